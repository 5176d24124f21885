"""The rebuild that costs a broker seconds, on real brokers, in one command.

A broker of Kafka 2.7 writes a topic. While it runs, its missing snapshots are built beside its log directory; it goes on writing, is
stopped for its upgrade, they are installed, and the new release starts and uploads. Each step checks itself; the first that differs
ends it with 1.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from broker_settings import COPY_INTERVAL_MS
from kafka_node import KafkaNode
from kafka_release import RELEASES
from kinds_of_data import Kind, retry, write_kind
from log_dirs import snapshot_name
from stuck_topic import BAD, COPIED, OLD, PARTITION, TIERED, TOPIC, UPLOAD_SECONDS, write_story
from transcript import NotAsExpectedError, Transcript

NEW = "3.9.2"
DELETES_SECONDS = 120.0
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"


class Story:
    """The steps, over one directory."""

    def __init__(self, work: Path, transcript: Transcript) -> None:
        self._work = work
        self._say = transcript
        self._root = work / "kafka"
        self._logs = self._root / "kafka-logs"
        self._partition = self._logs / PARTITION
        self._seconds: dict[str, object] = {}

    def _bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self._partition.glob("*.log"))

    def _snapshots(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self._partition.glob("*.snapshot"))}

    def _missing(self) -> list[int]:
        there = self._snapshots()
        return [base for base in self._bases()[1:] if snapshot_name(base) not in there]

    def _wait_until_deleted(self) -> None:
        """Kafka up to 2.7 deletes snapshots behind its recovery point each time that it writes this down."""
        deadline = time.monotonic() + DELETES_SECONDS
        while len(self._snapshots()) > 3:
            assert time.monotonic() < deadline, f"{len(self._snapshots())} snapshots are there still"
            time.sleep(0.2)

    def tell(self) -> None:
        """From the first step to the last."""
        plan, receipt = self._work / "staged" / "plan.jsonl", self._work / "receipt.jsonl"
        self._say.step(f"Kafka {OLD} with ZooKeeper {RELEASES[OLD].zookeeper} writes a topic")
        with KafkaNode(self._root, version=OLD, settings={"log.flush.offset.checkpoint.interval.ms": 2000}) as node:
            node.start()
            told = write_story(node)
            self._wait_until_deleted()
            self._say.check("more than ten segments are closed", len(self._bases()) > 10)

            self._say.step("while it runs: what lacks is built in another directory of the same file system")
            stage = ("rebuild", self._logs, "--topic", TOPIC, "--stage", self._work / "staged")
            before = self._snapshots()
            self._say.snaprebuild(*stage, exit_code=0, facts=("snapshots staged", "Nothing was written there"))
            self._say.check("nothing came into the log directory", self._snapshots().keys() <= before.keys())
            at_staging = self._bases()

            self._say.step(
                "it goes on writing: segments close, and it deletes the snapshots behind them, as every broker up to 2.7"
            )
            write_kind(node.address, TOPIC, Kind.COMMITTED, 1500)
            closed = [base for base in self._bases() if base > at_staging[-1]]
            self._say.check(f"{len(closed)} segments closed since", len(closed) > 3)
            self._say.snaprebuild("install", plan, "--dry-run", exit_code=0, facts=("would write",))
            self._say.snaprebuild("install", plan, exit_code=3)
            end = node.end_offset(TOPIC)

            self._say.step("it is stopped, and what was staged is installed")
            began = time.monotonic()
            node.stop()
            self._seconds["stop of the broker"] = f"{time.monotonic() - began:.1f} s"
            node.stop_all()
        missing = self._missing()
        began = time.monotonic()
        install = ("install", plan, "--receipt", receipt)
        self._say.snaprebuild(*install, exit_code=0, facts=(f"{len(missing)} snapshots installed",))
        added = time.monotonic() - began
        self._seconds["ADDED DOWNTIME: install"] = f"{len(missing)} snapshots in {added:.1f} s, the start of the program included"
        self._say.check("every boundary has one", self._missing(), [])
        self._say.snaprebuild("verify", self._logs, "--topic", TOPIC, exit_code=0)

        self._say.step("undo, and once more")
        self._say.snaprebuild("undo", receipt, exit_code=0, facts=(f"{len(missing)} removed",))
        self._say.check("as it was", self._missing(), missing)
        self._say.snaprebuild("install", plan, "--receipt", self._work / "receipt-2.jsonl", exit_code=0)

        self._say.step(f"Kafka {NEW} starts on it, tiered storage is switched on: the topic moves")
        files = self._snapshots()
        bases = self._bases()
        due = [base for base, following in itertools.pairwise(bases) if following <= told.last_stable]
        with KafkaNode(self._root, version=NEW) as node:
            began = time.monotonic()
            mark = node.start()
            self._seconds[f"start of Kafka {NEW}"] = f"{time.monotonic() - began:.1f} s"
            node.set_topic(TOPIC, TIERED)
            node.wait_for_log(COPIED, mark, UPLOAD_SECONDS, times=len(due))
            time.sleep(3 * COPY_INTERVAL_MS / 1000)  # three more rounds: it finds nothing else that it may upload
            asked = ("--bootstrap-server", node.address, "--topic", TOPIC, "--time", "-5")
            answer = node.tool(OFFSETS, *asked).strip()
            self._say.show(f"$ kafka-get-offsets.sh --bootstrap-server {node.address} --topic {TOPIC} --time -5\n{answer}")
            last = max(following for _, following in itertools.pairwise(bases) if following <= told.last_stable) - 1
            self._say.check(
                "the latest offset in remote storage is the end of the last one that may go up", answer, f"{TOPIC}:0:{last}"
            )
            self._say.check("the log is whole", node.end_offset(TOPIC), end)
            self._say.check("a retry is a duplicate", retry(node.port, TOPIC, told.first), told.first.offset)
            bad = [line for line in node.log_since(mark).splitlines() if BAD.search(line)]
            remote = node.remote_files(PARTITION)
            node.stop_all()
        self._say.check("no exception", bad, [])
        following = dict(itertools.pairwise(bases))
        same = all(remote[snapshot_name(base)].read_bytes() == files[snapshot_name(following[base])] for base in due)
        self._say.check(f"{len(due)} segments are uploaded, each with our snapshot, byte for byte", same)
        self._say.snaprebuild("verify", "--receipt", self._work / "receipt-2.jsonl", exit_code=0, facts=("kept",))
        self._say.end(self._seconds)


def main() -> int:
    """Tells the story; exit code 1 at the first step that differs."""
    parser = argparse.ArgumentParser(prog="scripts/demo-install", description=__doc__)
    parser.add_argument("-q", "--quiet", action="store_true", help="the steps and checks alone, without what commands print")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work here, and leave everything; default: a temporary directory")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="demo-install-")) if options.keep is None else options.keep.resolve()
    work.mkdir(parents=True, exist_ok=True)
    try:
        Story(work, Transcript(work, quiet=options.quiet)).tell()
    except (NotAsExpectedError, AssertionError) as error:
        sys.stderr.write(f"demo-install: {re.sub(re.escape(str(work)) + '/', '', str(error))}\n")
        return 1
    finally:
        if options.keep is None:
            shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
