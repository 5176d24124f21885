"""The form of the rows, and healthy log directories to begin with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from log_dirs import batch_positions, snapshot_name
from manifests import FIXTURES

HEALTHY_LOG = FIXTURES / "damaged" / "healthy" / "log"
NODE = FIXTURES / "kraft-cluster3" / "node1"

PAYMENTS, PAYMENTS_ID = HEALTHY_LOG / "payments-0", "L20oNJ0MSsC6VKxY_UASOw"
"""Segments at 0, 56 and 116, the end at 173; producers without transactions; one leader epoch."""
ORDERS, ORDERS_ID = NODE / "orders-0", "TbEpDujbR1a9Y_KYwm3sPQ"
"""Seven segments from 0 to 501, the end at 533; aborted transactions in those at 0, 91 and 330; one leader epoch."""
EPOCHS, EPOCHS_ID = NODE / "shrink-0", "Gyij17zNR7CDWoRhrQQRwg"
"""Segments at 0, 70 and 160, the end at 203; leader epochs 0 from 0 and 1 from 160."""
REBORN, REBORN_ID = NODE / "reborn-0", "5RZ5JfslTlyQJjgTg3vKgw"
"""Segments at 0 and 77, the end at 122."""
COMPACTED, COMPACTED_ID = FIXTURES / "kafka4-compacted" / "logs" / "compacted-0", "hVLXsV0ZSTSJwjeZBRZyLg"
"""Segments at 0 and 1411, the end at 1416; the cleaner ran."""
METADATA = NODE / "__cluster_metadata-0"
ENDS = {PAYMENTS: 173, ORDERS: 533, EPOCHS: 203, REBORN: 122, COMPACTED: 1416}

DIRECTORY_IDS = {
    "data": "OLUQ4H3IOks6dBfUurXmGA",
    "d1": "OLUQ4H3IOks6dBfUurXmGA",
    "d2": "vbgXJ_mX3w2WzAJjsPWbwQ",
    "meta": "8mRrVvXkQ0qWcH0nB1p2Tg",
}
SUFFIX = "0123456789abcdef0123456789abcdef"
"""Makes the names of directories unique that are marked for deletion, stray, or being moved."""

Topics = Mapping[str, tuple[str, Sequence[int], str]]

TOPICS: Topics = {
    "payments": (PAYMENTS_ID, (1,), DIRECTORY_IDS["data"]),
    "orders": (ORDERS_ID, (1,), DIRECTORY_IDS["data"]),
    "shrink": (EPOCHS_ID, (1,), DIRECTORY_IDS["data"]),
    "compacted": (COMPACTED_ID, (1,), DIRECTORY_IDS["data"]),
    "reborn": (REBORN_ID, (1,), DIRECTORY_IDS["d2"]),
}
"""The metadata image: topics, each with its id, the replicas of its one partition, and the directory of this broker's."""


@dataclass(frozen=True)
class StartState:
    """The directories that a broker finds when it starts.

    Attributes:
        name: of the row.
        about: what is there.
        build: makes the log directories below a directory that is empty.
        log_dirs: of the broker, in the order of its settings.
        zookeeper: its cluster is kept in ZooKeeper, as it is for releases before 4.0 only; else in KRaft.
        keeps_topic_ids: with ZooKeeper: whether its protocol is 2.8 or newer.
        settings: of the broker, besides those that every row has. A ``metadata.log.dir`` is relative to the directory of the state.
        topic_settings: of all topics.
        topics: of the metadata image. The broker is number 1.
    """

    name: str
    about: str
    build: Callable[[Path], None]
    log_dirs: tuple[str, ...] = ("data",)
    zookeeper: bool = False
    keeps_topic_ids: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    topics: Topics = field(default_factory=lambda: TOPICS)

    def settings_in(self, base: Path) -> dict[str, str]:
        """The settings of the broker, with absolute paths."""
        metadata_dir = self.settings.get("metadata.log.dir")
        changed = {} if metadata_dir is None else {"metadata.log.dir": str(base / metadata_dir)}
        return {**self.settings, **changed}


STATES: list[StartState] = []
"""All rows, in the order of their modules."""


def start_state(**facts: object) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Makes a row of a builder: its name is that of the row, its docstring says what is there."""

    def registered(build: Callable[[Path], None]) -> Callable[[Path], None]:
        name = build.__name__.strip("_").replace("_", "-")
        assert build.__doc__ is not None, name
        assert name not in {each.name for each in STATES}, name
        STATES.append(StartState(name, build.__doc__.strip(), build, **facts))  # type: ignore[arg-type]
        return build

    return registered


def log_dir(
    base: Path,
    *partitions: Path,
    name: str = "data",
    clean: bool = True,
    recovery_points: Mapping[str, int] | None = None,
    high_watermarks: Mapping[str, int] | None = None,
    log_starts: Mapping[str, int] | None = None,
) -> Path:
    """A log directory of a broker that ran in KRaft, with copies of partitions: `PAYMENTS`, unless others are given.

    Recovery points and high watermarks are the log ends, unless they are given.
    """
    root = base / name
    root.mkdir(parents=True)
    sources = partitions or (PAYMENTS,)
    for source in sources:
        shutil.copytree(source, root / source.name)
    ends = {source.name: ENDS[source] for source in sources if source in ENDS}
    facts = ("version=1", "node.id=1", f"directory.id={DIRECTORY_IDS[name]}", "cluster.id=Pq2wE8rTSkGz6xYb1nMc3A", "")
    (root / "meta.properties").write_text("\n".join(facts))
    write_checkpoint(root / "recovery-point-offset-checkpoint", recovery_points or ends)
    write_checkpoint(root / "replication-offset-checkpoint", high_watermarks or ends)
    write_checkpoint(root / "log-start-offset-checkpoint", log_starts or {})
    (root / "cleaner-offset-checkpoint").write_bytes(b"")
    if clean:
        (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":14}')
    return root


def write_checkpoint(path: Path, offsets: Mapping[str, int]) -> None:
    """A file with offsets of partitions."""
    lines = [" ".join((*name.rsplit("-", 1), str(offset))) for name, offset in offsets.items()]
    path.write_text("\n".join(("0", str(len(lines)), *lines, "")))


def zookeeper_log_dir(base: Path, *, clean: bool = True, protocol_below_2_8: bool = False) -> Path:
    """The log directory of a broker whose cluster is kept in ZooKeeper."""
    root = log_dir(base, clean=clean)
    (root / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=Pq2wE8rTSkGz6xYb1nMc3A\n")
    if clean:
        (root / ".kafka_cleanshutdown").write_bytes(b"")
    if protocol_below_2_8:
        (root / "payments-0" / "partition.metadata").unlink()
    return root


def segment(partition: Path, base_offset: int, suffix: str = ".log") -> Path:
    """The path of a file of a segment."""
    return partition / f"{base_offset:020d}{suffix}"


def remove(partition: Path, base_offset: int, *suffixes: str) -> None:
    """Removes files of a segment that are there."""
    for suffix in suffixes:
        segment(partition, base_offset, suffix).unlink()


def snapshot(partition: Path, offset: int) -> Path:
    """The path of a producer snapshot."""
    return partition / snapshot_name(offset)


def cut_batches(log: Path, count: int) -> None:
    """Cuts batches off the end of a segment."""
    data = log.read_bytes()
    log.write_bytes(data[: batch_positions(log)[-count]])


def set_byte(path: Path, position: int, value: int) -> None:
    """Replaces a byte; a negative position counts from the end."""
    data = bytearray(path.read_bytes())
    data[position] = value
    path.write_bytes(bytes(data))


def spoil_transaction_index(partition: Path, base_offset: int) -> Path:
    """The last offset of the first aborted transaction is below the base offset of the segment, which Kafka checks."""
    path = segment(partition, base_offset, ".txnindex")
    data = bytearray(path.read_bytes())
    data[18:26] = (5).to_bytes(8, "big")
    path.write_bytes(bytes(data))
    return path
