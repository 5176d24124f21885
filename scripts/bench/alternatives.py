#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""Compares the rebuild with other ways to make the missing snapshots, on the same partition: seconds, bytes read and written.

Kafka makes the snapshots itself when it recovers a log from its beginning, and when it writes the log anew as a replica of it. A broker
is made to do so in three ways, and what comes out is compared with what we write. Then the ways that make none: a replica that has them
is elected, and retention deletes what lacks them. Two brokers at most run at once.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_classpath import KAFKA_VERSION
from kafka_node import KafkaNode
from kafka_release import RELEASES
from kinds_of_data import Kind, write_kind
from log_dirs import snapshots_in
from make_partition import Shape, make_partition

from formats.log.record_batch import BatchHeader, parse_batch_header

TOPIC = "moved"
PARTITION = "moved-0"
SECONDS_MAX = 550.0
HEADER_BYTES = 61
WAIT_MS = 60_000
OFTEN = {"log.retention.check.interval.ms": 1_000, "log.initial.task.delay.ms": 1_000}
TIERED = {"remote.storage.enable": "true", "local.retention.ms": -2, "local.retention.bytes": -2}
EXPIRED = r"About to delete remote log segment .* due to retention time"
STUCK = r"java\.lang\.NullPointerException"
COPIED = r"Copied 0000\d+\.log to remote storage"


@dataclass(frozen=True)
class Result:
    """The result of one alternative.

    Attributes:
        way: what was done.
        seconds: from the order until it is done; of a recovery what the broker says that the load of this log took.
        read_bytes: by all processes that took part, from files and sockets.
        written_bytes: to disk, by the same processes.
        snapshots: of how many boundaries there is one then.
        boundaries: of the log at that moment.
        shared: of how many we wrote one, too: the states are equal. A replica begins its segments elsewhere.
        needs: what else it requires.
    """

    way: str
    seconds: float
    read_bytes: int
    written_bytes: int
    snapshots: int
    boundaries: int
    shared: int
    needs: str


class Alternatives:
    """Over one directory, with one generated partition without snapshots."""

    def __init__(self, work: Path, version: str, mib: int, segment_mib: int, batch_bytes: int) -> None:
        self._work = work
        self._version = version
        self._segment_bytes = segment_mib << 20
        self._source = work / "source" / PARTITION
        began = int(time.time() * 1000) - 3_600_000
        shape = Shape(batch_bytes, mib << 20, self._segment_bytes, leader_epoch=0, start_ms=began)
        self.batches = make_partition(self._source, shape)
        (self._source / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        self.size_bytes = sum(path.stat().st_size for path in self._source.glob("*.log"))
        self.segments = len(list(self._source.glob("*.log")))
        self._end = _log_end(self._source)
        self._ours: dict[int, object] = {}

    # ---- the ways ----

    def ours(self) -> Result:
        """The command, on a copy."""
        log_dir = self._work / "ours"
        shutil.copytree(self._source, log_dir / PARTITION)
        (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {self._end}\n")
        (log_dir / ".kafka_cleanshutdown").touch()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        command = [sys.executable, "-m", "snaprebuild", "rebuild", log_dir, "--receipt", self._work / "receipt", "--output", "json"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        self._ours = dict(snapshots_in(log_dir / PARTITION))
        written = (after.ru_oublock - before.ru_oublock) * 512
        return self._result(
            "snaprebuild rebuild (with CRC)", seconds, self.size_bytes, written, log_dir / PARTITION, "a stopped broker"
        )

    def recovery(self) -> Result:
        """A broker starts on the log as after a crash, with no recovery point."""
        node = self._planted("recovery")
        for name in ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
            (node.log_dir / name).unlink()
        with node:
            mark = node.start()
            read, written = _io(node.pid)
            node.stop_all()
        loaded = re.search(rf"Completed load of Log\(dir=\S*/{PARTITION},.* in (\d+)\s?ms", node.log_since(mark))
        assert loaded is not None, "the broker does not say how long the load took"
        needs = "the broker down meanwhile; every log of the directory that has no recovery point is read"
        seconds = int(loaded[1]) / 1000
        return self._result("Kafka recovers it, recovery point cleared", seconds, read, written, node.log_dir / PARTITION, needs)

    def other_log_dir(self) -> Result:
        """The running broker moves the replica to another of its log directories."""
        first = self._work / "jbod" / "kafka-logs"
        second = self._work / "jbod" / "second"
        node = self._planted("jbod", {"log.dirs": f"{first},{second}"})
        with node:
            node.start()
            before = _io(node.pid)
            began = time.monotonic()
            node.reassign(TOPIC, [1], log_dir=second)
            _wait(lambda: (second / PARTITION).is_dir() and not (first / PARTITION).exists())
            seconds = time.monotonic() - began
            after = _io(node.pid)
            node.stop_all()
        used = (after[0] - before[0], after[1] - before[1])
        needs = "a second log directory with room for the partition"
        return self._result("moved to another log directory", seconds, *used, second / PARTITION, needs)

    def other_broker(self) -> Result:
        """The partition is reassigned to a second broker."""
        node = self._planted("first")
        with node:
            node.start()
            with KafkaNode(self._work / "second", version=self._version, controller=node, tiering=False) as second:
                second.start()
                before = _io(node.pid), _io(second.pid)
                began = time.monotonic()
                node.reassign(TOPIC, [2])
                _wait(lambda: (second.log_dir / PARTITION).is_dir() and not (node.log_dir / PARTITION).exists())
                seconds = time.monotonic() - began
                after = (_io(node.pid), _io(second.pid))
                second.stop_all()
            node.stop_all()
        read, written = _used(before, after)
        needs = "a second broker with room, and the network between them"
        return self._result("reassigned to another broker", seconds, read, written, second.log_dir / PARTITION, needs)

    # ---- those that copy nothing ----

    def election(self) -> Result:
        """The topic is stuck; a replica in sync, which a later broker made from the beginning, is elected, and uploads."""
        node = self._planted("stuck", tiering=True)
        with node:
            mark = node.start()
            with KafkaNode(self._work / "newer", version=self._version, controller=node) as newer:
                newer.start()
                node.reassign(TOPIC, [1, 2])
                node.wait_for_replicas(TOPIC, leader=1, in_sync={1, 2})
                node.set_topic(TOPIC, TIERED)
                node.wait_for_log(STUCK, mark, SECONDS_MAX, times=2)
                assert node.remote_files(PARTITION) == {}, "it is not stuck"
                newer_mark = newer.log_file.stat().st_size
                before = (_io(node.pid), _io(newer.pid))
                began = time.monotonic()
                node.reassign(TOPIC, [2, 1])
                node.elect(TOPIC)
                node.wait_for_replicas(TOPIC, leader=2, in_sync={1, 2})
                seconds = time.monotonic() - began
                used = _used(before, (_io(node.pid), _io(newer.pid)))
                due = _due(newer.log_dir / PARTITION, node.end_offset(TOPIC, stable=True))
                newer.wait_for_log(COPIED, newer_mark, SECONDS_MAX, times=due)
                uploaded = time.monotonic() - began
                newer.stop_all()
            node.stop_all()
        needs = f"a replica in sync that has all snapshots; then {due} segments went up in {uploaded:.0f} s, all that may"
        return self._result("a replica created after 2.8 is elected", seconds, *used, newer.log_dir / PARTITION, needs)

    def waiting(self) -> Result:
        """Retention deletes the old segments, with remote storage off."""
        node, ends_ms = self._aged("waits")
        with node:
            mark = node.start()
            before = _io(node.pid)
            began = time.monotonic()
            node.set_topic(TOPIC, {"retention.ms": int(time.time() * 1000) - ends_ms + WAIT_MS})
            partition = node.log_dir / PARTITION
            _wait(lambda: [int(path.stem) for path in partition.glob("*.log")] == [self._end])
            seconds = time.monotonic() - began
            used = _used((before,), (_io(node.pid),))
            node.set_topic(TOPIC, {**TIERED, "retention.ms": -1, "segment.bytes": 1 << 20})
            write_kind(node.address, TOPIC, Kind.IDEMPOTENT, 10_000)
            node.wait_for_log(COPIED, mark, SECONDS_MAX, times=2)
            node.stop_all()
            assert not re.search(STUCK, node.log_since(mark)), "it is stuck all the same"
        needs = (
            f"that the data may be deleted: the last record had {WAIT_MS // 1000} s to live. Then remote storage was switched on"
        )
        return Result("waiting for retention, remote storage off", seconds, *used, 0, 0, 0, needs)

    def waiting_stuck(self) -> Result:
        """Retention with remote storage on, where nothing can be uploaded."""
        node, ends_ms = self._aged("waits-stuck")
        with node:
            mark = node.start()
            before = _io(node.pid)
            began = time.monotonic()
            retention = {"retention.ms": int(time.time() * 1000) - ends_ms + WAIT_MS}
            node.set_topic(TOPIC, {**TIERED, **retention, "local.retention.ms": 1})
            time.sleep(2 * WAIT_MS / 1000)  # twice as long as it would take
            seconds = time.monotonic() - began
            used = _used((before,), (_io(node.pid),))
            failures, expired = (len(re.findall(each, node.log_since(mark))) for each in (STUCK, EXPIRED))
            partition = node.log_dir / PARTITION
            gone = self.segments - len(list(partition.glob("*.log")))
            node.stop_all()
        uploaded = len(node.remote_files(PARTITION))
        needs = f"watched for {2 * WAIT_MS // 1000} s: {failures} exceptions, {uploaded} files uploaded"
        needs += f"; {expired} copies that were announced and never written expired, {gone} of {self.segments} segments deleted"
        # Not compared: a broker that starts without any snapshot writes an empty one at the log end.
        return Result("waiting for retention, remote storage on", seconds, *used, 0, 0, 0, needs)

    def _aged(self, name: str) -> tuple[KafkaNode, int]:
        """A stopped broker, and the timestamp of the last record. Without time indexes a broker goes by the times of the files."""
        node = self._planted(name, OFTEN, tiering=True)
        ends_ms = _last_header(self._source).max_timestamp
        for segment in (node.log_dir / PARTITION).glob("*.log"):
            os.utime(segment, (ends_ms / 1000, ends_ms / 1000))
        return node, ends_ms

    # ---- what they share ----

    def _planted(self, name: str, settings: Mapping[str, object] | None = None, *, tiering: bool = False) -> KafkaNode:
        """A stopped broker that has the partition."""
        node = KafkaNode(self._work / name, version=self._version, tiering=tiering, settings=settings)
        node.start()
        node.create_topic(TOPIC, {"segment.bytes": self._segment_bytes, "retention.ms": -1})
        node.stop_all()
        if not (node.log_dir / PARTITION).exists():  # it chose the other of its log directories
            (node.root / "second" / PARTITION).rename(node.log_dir / PARTITION)
        node.plant(PARTITION, self._source, self._end)
        return node

    def _result(self, way: str, seconds: float, read: int, written: int, partition: Path, needs: str) -> Result:
        snapshots = snapshots_in(partition)
        boundaries = {int(path.stem) for path in partition.glob("*.log")} - {0} | {self._end}
        common = snapshots.keys() & self._ours.keys()
        differ = [offset for offset in common if snapshots[offset] != self._ours[offset]]
        assert not differ, f"{way}: other states at {differ}"
        return Result(way, seconds, read, written, len(snapshots.keys() & boundaries), len(boundaries), len(common), needs)


def _log_end(partition: Path) -> int:
    return _last_header(partition).last_offset + 1


def _last_header(partition: Path) -> BatchHeader:
    """The header of the last batch of a partition."""
    last = max(partition.glob("*.log"))
    data = last.read_bytes()
    at = 0
    while at < len(data):
        header = parse_batch_header(data[at : at + HEADER_BYTES])
        at += 12 + header.length
    return header


def _due(partition: Path, stable: int) -> int:
    """Rolled segments that lie below the last stable offset."""
    return sum(following <= stable for following in sorted(int(path.stem) for path in partition.glob("*.log"))[1:])


def _used(before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Sums the bytes that processes have read and written between two samples."""
    read, written = (sum(new[kind] - old[kind] for new, old in zip(after, before, strict=True)) for kind in (0, 1))
    return read, written


def _io(pid: int) -> tuple[int, int]:
    """Bytes that a process has read, from whatever, and has written to disk."""
    lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(lines["rchar"]), int(lines["write_bytes"])


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it did not end"
        time.sleep(0.05)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


WAYS: dict[str, Callable[[Alternatives], Result]] = {
    "ours": Alternatives.ours,
    "recovery": Alternatives.recovery,
    "log-dir": Alternatives.other_log_dir,
    "broker": Alternatives.other_broker,
    "election": Alternatives.election,
    "waiting": Alternatives.waiting,
    "waiting-stuck": Alternatives.waiting_stuck,
}
OF_ANY_RELEASE = {"ours", "waiting", "waiting-stuck"}
"""The others are done by the tools and the settings of KRaft."""


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="scripts/bench/alternatives.py", description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"{', '.join(WAYS)} (default: all)")
    tiered = [version for version, release in RELEASES.items() if release.has_tiering]
    parser.add_argument("--broker", choices=tiered, default=KAFKA_VERSION, help="release (default: %(default)s)")
    parser.add_argument("--mib", type=int, default=512, help="size of the partition (default: %(default)s)")
    parser.add_argument("--segment-mib", type=int, default=32, help="of a segment (default: %(default)s)")
    parser.add_argument("--batch-bytes", type=int, default=16384, help="of a batch, on average (default: %(default)s)")
    options = parser.parse_args(arguments)
    chosen = options.ways or list(WAYS)
    if unknown := set(chosen) - WAYS.keys():
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    if RELEASES[options.broker].zookeeper is not None and not OF_ANY_RELEASE.issuperset(chosen):
        parser.error(f"with Kafka {options.broker} only: {', '.join(sorted(OF_ANY_RELEASE))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    work = Path(tempfile.mkdtemp(prefix="compare-alternatives-"))
    try:
        ways = Alternatives(work, options.broker, options.mib, options.segment_mib, options.batch_bytes)
        sys.stdout.write(f"Kafka {options.broker}; {_mib(ways.size_bytes)}, {ways.segments} segments, {ways.batches} batches\n\n")
        sys.stdout.write(
            "| way | seconds | read | written | snapshots | shared with ours, equal | needs |\n|---|---|---|---|---|---|---|\n"
        )
        for way in chosen:
            each = WAYS[way](ways)
            figures = f"{each.seconds:.1f} | {_mib(each.read_bytes)} | {_mib(each.written_bytes)}"
            snapshots = f"{each.snapshots} of {each.boundaries} | {each.shared}"
            sys.stdout.write(f"| {each.way} | {figures} | {snapshots} | {each.needs} |\n")
            sys.stdout.flush()
    finally:
        shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
