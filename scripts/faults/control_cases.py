"""The healthy directories that known corruptions are made of, cut out of bundled ones, and what changes their bytes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

from formats.partition.producer_snapshot import ProducerEntry, parse_snapshot

ROOT = Path(__file__).resolve().parents[2]
NODE = ROOT / "fixtures" / "follower-lost-state" / "node1"
COPIES = next((ROOT / "fixtures" / "follower-lost-state" / "remote" / "kafka-tiered-storage").iterdir())
CONTROLLER = ROOT / "fixtures" / "kraft-metadata-moved" / "logs"
BASES = (0, 56, 116)
END = 173
LONGER = (173, 235, 303)
LONGER_END = 368
NEWER = 727, 790
"""The segments of the node that are taken, the first of which aborts transactions."""
BROKER_FILES = (
    "meta.properties",
    ".kafka_cleanshutdown",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
P = "payments-0/"
Files = dict[str, bytes]


def read_below(root: Path) -> Files:
    """All files, by relative path."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def healthy_longer_log() -> Files:
    """A log as ``healthy_log`` gives it, up to a segment with an aborted transaction."""
    return healthy_log((*BASES, *LONGER), LONGER_END)


def healthy_log(bases: tuple[int, ...] = BASES, end: int = END) -> Files:
    """A log directory with one partition of three segments, from offset 0 on."""
    files = {name: (NODE / name).read_bytes() for name in BROKER_FILES}
    files["log-start-offset-checkpoint"] = b"0\n0\n"
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        files[name] = f"0\n1\npayments 0 {end}\n".encode()
    for base, following in zip(bases, (*bases[1:], end), strict=True):
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            if copies := sorted(COPIES.glob(f"{base:020d}-*{suffix}")):
                files[f"{P}{base:020d}{suffix}"] = copies[0].read_bytes()
        files[f"{P}{following:020d}.snapshot"] = copied(base, ".snapshot")
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        files[P + name] = (NODE / P / name).read_bytes()
    return files


def copied(base: int, suffix: str) -> bytes:
    """A file of a copy in remote storage."""
    return next(COPIES.glob(f"{base:020d}-*{suffix}")).read_bytes()


def healthy_node() -> Files:
    """A node, broker and controller, whose log begins where remote storage continues."""
    files = {name: (NODE / name).read_bytes() for name in BROKER_FILES}
    files |= {f"__cluster_metadata-0/{name}": data for name, data in read_below(NODE / "__cluster_metadata-0").items()}
    for path in sorted((NODE / P).iterdir()):
        if not path.name[:20].isdigit() or int(path.name[:20]) >= NEWER[0]:
            files[P + path.name] = path.read_bytes()
    return files


def healthy_tier() -> Files:
    """Remote storage when three copies were finished, and what the metadata log said then."""
    files = {f"remote/{COPIES.parent.name}/{COPIES.name}/{path.name}": path.read_bytes() for path in copies_of(BASES)}
    log = (NODE / "__remote_log_metadata-0" / f"{0:020d}.log").read_bytes()
    files |= {f"metadata/{name}": (NODE / name).read_bytes() for name in ("meta.properties", ".kafka_cleanshutdown")}
    files[METADATA_LOG] = log[: batches_end(log, 2 * len(BASES))]
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        files[f"metadata/__remote_log_metadata-0/{name}"] = (NODE / "__remote_log_metadata-0" / name).read_bytes()
    return files


METADATA_LOG = f"metadata/__remote_log_metadata-0/{0:020d}.log"


def copies_of(bases: tuple[int, ...]) -> list[Path]:
    """Files of copies in remote storage."""
    return sorted(path for base in bases for path in COPIES.glob(f"{base:020d}-*"))


def healthy_controller() -> Files:
    """A controller whose log begins at a checkpoint."""
    names = re.compile(r"0{17}(720|740|812|817)")
    files = {name: (CONTROLLER / name).read_bytes() for name in ("meta.properties",)}
    for name, data in read_below(CONTROLLER / "__cluster_metadata-0").items():
        if not name[:1].isdigit() or (names.match(name) and not name.endswith(".deleted")):
            files[f"__cluster_metadata-0/{name}"] = data
    files["__cluster_metadata-0/leader-epoch-checkpoint"] = b"0\n1\n4 720\n"
    return files


HEALTHY = {
    "log": healthy_log,
    "longer-log": healthy_longer_log,
    "node": healthy_node,
    "tier": healthy_tier,
    "controller": healthy_controller,
}


def batches_end(log: bytes, count: int) -> int:
    """Position after this many batches."""
    at = 0
    for _ in range(count):
        at += 12 + struct.unpack_from(">i", log, at + 8)[0]
    return at


def flipped(data: bytes, position: int) -> bytes:
    """One bit is another."""
    return data[:position] + bytes((data[position] ^ 0x10,)) + data[position + 1 :]


def segment(base: int) -> str:
    """Name of a segment's log."""
    return f"{P}{base:020d}.log"


def snapshot(offset: int) -> str:
    """Name of a snapshot."""
    return f"{P}{offset:020d}.snapshot"


def entries(data: bytes) -> list[ProducerEntry]:
    """Producer entries of a snapshot."""
    return list(parse_snapshot(data))


def without_files(*names: str) -> Callable[[Files], None]:
    """A change that removes files."""

    def change(files: Files) -> None:
        for name in names:
            del files[name]

    return change


def copied_to(source: str, target: str) -> Callable[[Files], None]:
    """A file has the bytes of another one."""

    def change(files: Files) -> None:
        files[target] = files[source]

    return change


def holding(name: str, data: bytes) -> Callable[[Files], None]:
    """A file has these bytes."""

    def change(files: Files) -> None:
        files[name] = data

    return change


def cut_to(name: str, size: int) -> Callable[[Files], None]:
    """A file has its first bytes only."""

    def change(files: Files) -> None:
        files[name] = files[name][:size]

    return change


def tier_file(base: int, suffix: str) -> str:
    """Name of a file of a copy, below ``healthy_tier``."""
    (path,) = COPIES.glob(f"{base:020d}-*{suffix}")
    return f"remote/{COPIES.parent.name}/{COPIES.name}/{path.name}"
