"""Brokers of every release load the files that we write: the same files, in the directory of a log."""

import itertools
import re
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from command import in_json_process
from kafka_node import KafkaNode
from kafka_release import RELEASES
from log_dirs import TRANSACTIONAL, batch, marker, write_partition
from wire import ActiveProducer, Wire

pytestmark = pytest.mark.broker

ENDS = (next(iter(RELEASES)), next(reversed(RELEASES)))
"""The oldest and the newest release; those between them are for the night tier."""

BROKEN = re.compile(
    r"NullPointerException|[Cc]orrupt|NonMonotonic|\] ERROR (?!EventPerformanceMonitor |ControllerApis )|recovering segment"
)
IDEMPOTENT, OTHER, COMMITTED, HANGING = 100, 300, 200, 400
"""Producer ids."""
SHOWN = (
    ((IDEMPOTENT, 4), (COMMITTED, 4)),
    ((IDEMPOTENT, 4), (OTHER, 4), (COMMITTED, 9)),
    ((IDEMPOTENT, 9), (OTHER, 4), (COMMITTED, 9), (HANGING, 4)),
    ((IDEMPOTENT, 9), (OTHER, 9), (COMMITTED, 9), (HANGING, 4)),
)
"""Producers and their last sequences, snapshot by snapshot."""


SILENT = ("scan", "verify", "inspect stats", "inspect transactions", "cluster source")


@dataclass
class Written:
    """A log of three rolled segments and an active one, as brokers before 2.8 leave it. Its times are now: nothing has expired."""

    now: int = field(default_factory=lambda: int(time.time() * 1000))
    segments: dict[int, bytes] = field(default_factory=lambda: {0: b""})
    aborted: dict[int, bytes] = field(default_factory=dict)
    end: int = 0

    def append(self, data: bytes, count: int) -> None:
        """To the active segment."""
        self.segments[max(self.segments)] += data
        self.end += count

    def records(self, producer_id: int, sequence: int, attributes: int = 0) -> None:
        """A batch of five."""
        self.append(self.five(self.end, producer_id, sequence, attributes), 5)

    def five(self, offset: int, producer_id: int, sequence: int, attributes: int = 0) -> bytes:
        return batch(
            offset, producer_id=producer_id, sequence=sequence, count=5, timestamp=self.now, attributes=attributes, payload_bytes=40
        )

    def abort(self, producer_id: int, first_offset: int) -> None:
        """A marker, and what the index of aborted transactions says of it."""
        self.aborted[max(self.segments)] = struct.pack(">hqqqq", 0, producer_id, first_offset, self.end, self.end + 1)
        self.marker(producer_id, commit=False)

    def marker(self, producer_id: int, *, commit: bool) -> None:
        self.append(marker(self.end, producer_id, commit=commit, timestamp=self.now + 1, coordinator_epoch=3), 1)

    def roll(self) -> None:
        """Begins a segment."""
        self.segments[self.end] = b""

    def write(self, directory: Path) -> Path:
        """With the indexes that such small segments have, and no snapshot."""
        write_partition(directory, self.segments)
        bases = [*self.segments, self.end]
        for base, following in itertools.pairwise(bases):
            (directory / f"{base:020d}.index").touch()
            (directory / f"{base:020d}.timeindex").write_bytes(struct.pack(">qi", self.now + 1, following - 1 - base))
        for base, index in self.aborted.items():
            (directory / f"{base:020d}.txnindex").write_bytes(index)
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        return directory


def findings_of(verb: str, log_dir: Path) -> set[str]:
    """Codes of what is reported, without notes."""
    return {each["code"] for each in in_json_process(verb, log_dir).document["findings"] if each["severity"] != "note"}


@pytest.mark.parametrize("version", [each if each in ENDS else pytest.param(each, marks=pytest.mark.night) for each in RELEASES])
def test_a_broker_takes_what_was_written(version: str, tmp_path: Path) -> None:
    log = Written()
    log.records(-1, -1)
    log.records(IDEMPOTENT, 0)
    log.records(COMMITTED, 0, TRANSACTIONAL)
    log.marker(COMMITTED, commit=True)
    log.roll()
    log.records(OTHER, 0)
    log.records(COMMITTED, 5, TRANSACTIONAL)
    log.abort(COMMITTED, log.end - 5)
    log.roll()
    retried_at = log.end
    log.records(IDEMPOTENT, 5)
    hanging_from = log.end
    log.records(HANGING, 0, TRANSACTIONAL)
    log.roll()
    log.records(OTHER, 5)

    with KafkaNode(tmp_path, version=version, tiering=False) as node:
        node.start()  # each has written its meta.properties before
        if node.zookeeper is None:  # a log of a topic that is not known yet would be taken for a stray one
            node.create_topic("story", {})
        node.stop()
        partition = node.plant("story-0", log.write(tmp_path / "log"), log.end)
        boundaries = [*log.segments, log.end][1:]
        run = in_json_process("rebuild", partition)
        assert run.actions("story-0") == dict.fromkeys(boundaries, "written")
        # The producers of a planted log are no producers of this cluster. With ZooKeeper there is no metadata log that shows it.
        expected = set() if node.zookeeper is not None else {"producer-id-collision"}
        assert {each["code"] for each in run.document["findings"] if each["severity"] != "note"} == expected
        assert run.exit_code == len(expected)
        ours = {path.name: path.read_bytes() for path in partition.glob("*.snapshot")}
        dumped = node.tool(node.release.dump_tool, "--files", ",".join(str(partition / name) for name in sorted(ours)))

        mark = node.start()
        loaded = {path.name: path.read_bytes() for path in partition.glob("*.snapshot")}
        if node.zookeeper is not None:
            node.create_topic("story", {})
        with Wire(node.port) as wire:
            assert wire.produce("story", log.five(0, IDEMPOTENT, 5)) == retried_at, "a retry of what is in a rolled segment"
            if node.release.has_describe_producers:
                assert wire.describe_producers("story") == {
                    each.producer_id: each
                    for each in (
                        ActiveProducer(IDEMPOTENT, 0, 9, log.now, -1, -1),
                        ActiveProducer(OTHER, 0, 9, log.now, -1, -1),
                        ActiveProducer(COMMITTED, 0, 9, log.now + 1, 3, -1),
                        ActiveProducer(HANGING, 0, 4, log.now, -1, hanging_from),
                    )
                }
            assert (node.end_offset("story"), node.end_offset("story", stable=True)) == (log.end, hanging_from)
            assert wire.produce("story", log.five(0, OTHER, 10)) == log.end, "what comes next is no retry"
        node.stop_all()
        assert [line for line in node.log_since(mark).splitlines() if BROKEN.search(line)] == [], version

    left = {path.name: path.read_bytes() for path in partition.glob("*.snapshot")}
    assert loaded == ours, version
    # Before 2.8 a broker deletes at its stop what is below the last two segments, no matter who wrote it.
    kept = sorted(ours)[-3:] if version.startswith("2.") else sorted(ours)
    assert {name: left[name] for name in ours if name in left} == {name: ours[name] for name in kept}, version
    # What a release left in health gives no alarm, but that 2.7 has no snapshots below. This log is of another cluster: a metadata log
    # shows that the producer ids in it are still to be given out.
    alarms = {(verb, code) for verb in SILENT for code in findings_of(verb, node.log_dir)}
    expected = {("scan", "missing-snapshots")} if version.startswith("2.") else set()
    if node.zookeeper is None:
        expected = {(verb, "producer-id-collision") for verb in ("scan", "verify", "cluster source")}
    assert alarms == expected, version
    rows = re.findall(r"producerId: (\d+) .*lastSequence: (\d+)", dumped)
    assert sorted((int(producer), int(last)) for producer, last in rows) == sorted(row for snapshot in SHOWN for row in snapshot)
