#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""The rebuild that costs a broker seconds, on real brokers, in one command.

A broker of Kafka 2.7 with two log directories writes two topics (with one on the way to 3.6, which has no remote storage with more). While
it runs, the missing snapshots are staged in each directory. It continues writing, some segments close, and they are staged once more. Then
the broker is stopped for its upgrade, the snapshots are installed, and the new release starts and uploads. Each step checks itself; the
first that differs ends it with exit code 1.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from pathlib import Path

from broker_settings import COPY_INTERVAL_MS
from kafka_node import KafkaNode
from kafka_release import RELEASES
from kinds_of_data import Kind, retry, write_kind
from log_dirs import snapshot_name
from stuck_topic import BAD, COPIED, OLD, PARTITION, SEGMENT_BYTES, TIERED, TOPIC, UPLOAD_SECONDS, WrittenData, write_data
from transcript import Transcript, demonstration, parser_of

NEW = ("3.9.2", "3.6.2")
ONE_LOG_DIR = "3.6.2"
"""Does not start with remote storage and several log directories; nor does its tool know -5."""
OTHER = "other"
MEMORY = Path("/dev/shm")
"""Another file system, where there is one."""
DELETES_SECONDS = 120.0
OFFSETS = ("kafka-get-offsets.sh", "org.apache.kafka.tools.GetOffsetShell")
CONFIGS = ("kafka-configs.sh", "kafka.admin.ConfigCommand")
TIERED_TEXT = ",".join(f"{name}={value}" for name, value in TIERED.items())


class Scenario:
    """The steps, over one directory."""

    def __init__(self, work: Path, transcript: Transcript, version: str) -> None:
        self._work = work
        self._say = transcript
        self._version = version
        self._root = work / "kafka"
        disks = 1 if version == ONE_LOG_DIR else 2
        self._log_dirs = (self._root / "kafka-logs", work / "d2" / "logs")[:disks]
        self._stages = (work / "staged", work / "d2" / "staged")[:disks]
        self._properties = self._root / "server.properties"
        self._settings = {"log.dirs": ",".join(map(str, self._log_dirs))}
        self._seconds: dict[str, object] = {}

    @property
    def _partition(self) -> Path:
        return self._directory(PARTITION)

    def _directory(self, partition: str) -> Path:
        """Where the broker has put it."""
        (directory,) = [log_dir / partition for log_dir in self._log_dirs if (log_dir / partition).is_dir()]
        return directory

    def _bases(self, directory: Path | None = None) -> list[int]:
        return sorted(int(path.stem) for path in (directory or self._partition).glob("*.log"))

    def _snapshots(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self._partition.glob("*.snapshot"))}

    def _missing(self) -> list[tuple[str, int]]:
        """Segments of both topics without a snapshot."""
        directories = [self._directory(partition) for partition in (PARTITION, f"{OTHER}-0")]
        return [
            (directory.name, base)
            for directory in directories
            for base in self._bases(directory)[1:]
            if not (directory / snapshot_name(base)).exists()
        ]

    def _wait_until_deleted(self) -> None:
        """Kafka up to 2.7 deletes snapshots below its recovery point each time that it writes the checkpoint of it."""
        deadline = time.monotonic() + DELETES_SECONDS
        while len(self._snapshots()) > 3:
            assert time.monotonic() < deadline, f"{len(self._snapshots())} snapshots are there still"
            time.sleep(0.2)

    def run(self) -> None:
        """From the first step to the last."""
        plan = self._stages[0] / "plan.jsonl"
        receipt = self._work / "receipt.jsonl"
        topics = ("--topic", TOPIC, "--topic", OTHER)
        self._say.step(
            f"Kafka {OLD} with ZooKeeper {RELEASES[OLD].zookeeper}, log directories: {len(self._log_dirs)}, writes two topics"
        )
        settings = {**self._settings, "log.flush.offset.checkpoint.interval.ms": 2000}
        with KafkaNode(self._root, version=OLD, settings=settings) as node:
            node.start()
            node.create_topic(OTHER, {"segment.bytes": SEGMENT_BYTES, "retention.ms": -1})
            reported = write_data(node)
            write_kind(node.address, OTHER, Kind.COMMITTED, 1000)
            self._wait_until_deleted()
            self._say.check("more than ten segments are rolled", len(self._bases()) > 10)
            directories = {self._directory(partition).parent for partition in (PARTITION, f"{OTHER}-0")}
            self._say.check("both topics lie in them, each in its own where there are two", directories, set(self._log_dirs))
            systems = {each.stat().st_dev for each in self._log_dirs}
            self._seconds["file systems of the log directories"] = len(systems)

            self._say.step("while it runs: what lacks is built in another directory of each file system")
            self._say.snaprebuild("scan", "--server-properties", self._properties, *topics, exit_code=1, facts=("missing",))
            where = [word for stage in self._stages for word in ("--to", stage)]
            stage = ("stage", "--server-properties", self._properties, *where, *topics)
            before = self._snapshots()
            self._say.snaprebuild(
                *stage, exit_code=0, facts=(r"\d+ snapshots? staged", "Nothing was written to the log directories")
            )
            self._say.check("nothing came into the log directory", self._snapshots().keys() <= before.keys())
            at_staging = self._bases()

            self._say.step("it continues writing: segments close, and it deletes their snapshots, as every broker up to 2.7")
            write_kind(node.address, TOPIC, Kind.COMMITTED, 1500)
            rolled = [base for base in self._bases() if base > at_staging[-1]]
            self._say.check(f"{len(rolled)} segments rolled since", len(rolled) > 3)
            self._say.snaprebuild(*stage, exit_code=0, facts=(r"\d+ snapshots? staged", r"\d+ equal"))
            write_kind(node.address, TOPIC, Kind.COMMITTED, 500)
            self._say.snaprebuild("install", "--plan", plan, "--dry-run", exit_code=0, facts=("would be written",))
            self._say.snaprebuild("install", "--plan", plan, exit_code=3)
            end = node.end_offset(TOPIC)

            self._say.step("it is stopped, and what was staged is installed")
            began = time.monotonic()
            node.stop()
            self._seconds["stop of the broker"] = f"{time.monotonic() - began:.1f} s"
            node.stop_all()
        self._installed(plan, receipt, topics)
        self._moves(reported, end)
        self._say.end(self._seconds)

    def _installed(self, plan: Path, receipt: Path, topics: tuple[str, ...]) -> None:
        missing = self._missing()
        began = time.monotonic()
        install = ("install", "--plan", plan, "--receipt", receipt)
        self._say.snaprebuild(*install, exit_code=0, facts=(f"{len(missing)} snapshots? installed",))
        added = time.monotonic() - began
        self._seconds["ADDED DOWNTIME: install"] = f"{len(missing)} snapshots in {added:.1f} s, the start of the program included"
        self._say.check("every boundary has one", self._missing(), [])
        self._say.snaprebuild("verify", "--server-properties", self._properties, *topics, exit_code=0)

        self._say.step("undo, and once more")
        self._say.snaprebuild("undo", receipt, exit_code=0, facts=(f"{len(missing)} removed",))
        self._say.check("as it was", self._missing(), missing)
        self._say.snaprebuild("install", "--plan", plan, "--receipt", self._work / "receipt-2.jsonl", exit_code=0)

    def _moves(self, reported: WrittenData, end: int) -> None:
        self._say.step(f"Kafka {self._version} starts on it, tiered storage is switched on: the topic moves")
        files = self._snapshots()
        bases = self._bases()
        due = [base for base, following in itertools.pairwise(bases) if following <= reported.last_stable]
        with KafkaNode(self._root, version=self._version, settings=self._settings) as node:
            began = time.monotonic()
            mark = node.start()
            self._seconds[f"start of Kafka {self._version}"] = f"{time.monotonic() - began:.1f} s"
            self._tool(node, CONFIGS, "--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--add-config", TIERED_TEXT)
            node.wait_for_log(COPIED, mark, UPLOAD_SECONDS, times=len(due))
            time.sleep(3 * COPY_INTERVAL_MS / 1000)  # three more rounds: it finds nothing else that it may upload
            if self._version != ONE_LOG_DIR:
                answer = self._tool(node, OFFSETS, "--topic", TOPIC, "--time", "-5")
                last = max(following for _, following in itertools.pairwise(bases) if following <= reported.last_stable) - 1
                self._say.check(
                    "the latest offset in remote storage is the end of the last one that may go up", answer, f"{TOPIC}:0:{last}"
                )
            self._say.check("the log is whole", node.end_offset(TOPIC), end)
            self._say.check("a retry is a duplicate", retry(node.port, TOPIC, reported.first), reported.first.offset)
            bad = [line for line in node.log_since(mark).splitlines() if BAD.search(line)]
            remote = node.remote_files(PARTITION)
            node.stop_all()
        self._say.check("no exception", bad, [])
        following = dict(itertools.pairwise(bases))
        same = all(remote[snapshot_name(base)].read_bytes() == files[snapshot_name(following[base])] for base in due)
        self._say.check(f"{len(due)} segments are uploaded, each with our snapshot, byte for byte", same)
        self._say.snaprebuild("verify", "--written-by", self._work / "receipt-2.jsonl", exit_code=0, facts=("kept",))

    def _tool(self, node: KafkaNode, tool: tuple[str, str], *arguments: str) -> str:
        """Runs one of Kafka's tools, as the runbook has it. Returns what it says."""
        name, main = tool
        options = ("--bootstrap-server", node.address, *arguments)
        answer = node.tool(main, *options).strip()
        self._say.show(f"$ {name} {' '.join(options)}\n{answer}")
        return answer


def main() -> None:
    """The command."""
    parser = parser_of("scripts/demo/install_scenario.py", __doc__)
    parser.add_argument("--to", choices=NEW, default=NEW[0], metavar="VERSION", help=f"of {', '.join(NEW)}; default: {NEW[0]}")
    options = parser.parse_args()
    with demonstration(options, "demo-install") as transcript:
        other = Path(tempfile.mkdtemp(prefix="demo-install-", dir=MEMORY if MEMORY.is_dir() else transcript.work))
        (transcript.work / "d2").symlink_to(other)
        transcript.elsewhere = (other, "d2")
        try:
            Scenario(transcript.work, transcript, options.to).run()
        finally:
            if options.keep is None:
                shutil.rmtree(other, ignore_errors=True)


if __name__ == "__main__":
    main()
