"""A real broker at work, on which everything that changes a log directory happens all the time: it appends, rolls, retains and compacts."""

import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka_node import KafkaNode
from live_traffic import COMPACTED, RETAINED

HERE = Path(__file__).resolve().parent
OFTEN_MS = 300
SEGMENT_BYTES = 32 << 10
RETAINED_BYTES = 8 * SEGMENT_BYTES
RETAINED_MS = 6_000
DELETE_DELAY_MS = 120_000
"""Names go at once; bytes stay so long, for a witness that waits for a processor."""
START_SECONDS = 120.0
SLOW = r"EventPerformanceMonitor |ReplicationControlManager - \[QuorumController id=\d+\] processExpiredBrokerHeartbeat"
"""The controller was slow: so it is on any machine with other work."""
COMPLAINT = re.compile(rf"\] (?:ERROR|FATAL) (?!{SLOW})|^\S+Exception\b|Corrupt|NonMonotonic", re.MULTILINE)

BROKER = {
    "log.retention.check.interval.ms": OFTEN_MS,
    "log.initial.task.delay.ms": OFTEN_MS,
    "log.flush.offset.checkpoint.interval.ms": OFTEN_MS,
    "log.flush.start.offset.checkpoint.interval.ms": OFTEN_MS,
    "replica.high.watermark.checkpoint.interval.ms": OFTEN_MS,
    "log.cleaner.backoff.ms": OFTEN_MS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    # Old segments, snapshots and checkpoints of the cluster's own log come and go, too.
    "metadata.log.max.record.bytes.between.snapshots": 4096,
}
TOPIC = {"internal.segment.bytes": SEGMENT_BYTES, "segment.index.bytes": 4096, "file.delete.delay.ms": DELETE_DELAY_MS}
TOPICS = {
    "sized": {**TOPIC, "retention.bytes": RETAINED_BYTES},
    "timed": {**TOPIC, "retention.ms": RETAINED_MS},
    COMPACTED: {**TOPIC, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": 1_000},
}
assert TOPICS.keys() == {*RETAINED, COMPACTED}


class LiveBroker:
    """The broker, its clients, and the witness of its log directory: three processes next to this one."""

    def __init__(self, root: Path, version: str, seed: int) -> None:
        self.node = KafkaNode(root / "kafka", version=version, tiering=False, settings=BROKER)
        self.archive = root / "archive"
        self.archive.mkdir()
        self.records = 0
        self._seed = seed
        self._mark = 0
        self._clients: subprocess.Popen[str] | None = None
        self._witness: subprocess.Popen[str] | None = None

    @property
    def log_dir(self) -> Path:
        """Where it writes."""
        return self.node.log_dir

    def __enter__(self) -> Self:
        try:
            self._mark = self.node.start()
            for name, settings in TOPICS.items():
                self.node.create_topic(name, settings)
            self._witness = _began("log_witness.py", str(self.log_dir), str(self.archive), says="watches\n")
            self._clients = _began("live_traffic.py", self.node.address, str(self._seed), says="writes\n")
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._kill()

    def _kill(self) -> None:
        for process in (self._clients, self._witness):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        self.node.kill_all()

    def stop(self) -> list[str]:
        """Ends the clients, the broker (cleanly) and the witness. Returns what the broker said that it should not have to say."""
        assert self._clients is not None
        assert self._witness is not None
        reported, failed = self._clients.communicate("\n", timeout=START_SECONDS)
        assert self._clients.returncode == 0, failed
        self.records = int(reported)
        self.node.stop_all()
        reported, failed = self._witness.communicate("\n", timeout=START_SECONDS)
        assert reported == "ended\n", failed
        log = self.node.log_since(self._mark)
        return [log[log.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0] for match in COMPLAINT.finditer(log)]


def _began(program: str, *arguments: str, says: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / program), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline() != says:
        process.kill()
        raise AssertionError(f"{program} did not begin: {process.communicate()[1]}")
    return process
