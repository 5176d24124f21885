#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""The steps of README, "Repair a broker", on a broker of Kafka 2.7 whose protocol is still 2.7 after its upgrade, in one command.

Step 7 is the one that is easily done in the wrong order. Below protocol 2.8 topics have no id, and Kafka would upload them under id zero.
So `scan` and `rebuild` say so while remote storage is on and the protocol is not raised, and nothing is lost. Each step checks itself;
the first that differs ends it with exit code 1.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from kafka_node import KafkaNode
from log_dirs import snapshot_name
from stuck_topic import COPIED, OLD, PARTITION, TIERED, TOPIC, UPLOAD_SECONDS, WrittenData, write_data
from transcript import Transcript, demonstration, parser_of

NEW = "3.9.2"
PROTOCOL = {"inter.broker.protocol.version": "2.7"}
RAISED = {"inter.broker.protocol.version": "3.9"}
SWITCH = "remote.log.storage.system.enable=true\n"
NOT_READY = r"Not ready for remote storage: \d+ topics? ha(s|ve) no id\. Raise the protocol first\."
DELETES_SECONDS = 120.0


class ReadmeSteps:
    """The steps, over one directory."""

    def __init__(self, work: Path, transcript: Transcript) -> None:
        self._work = work
        self._say = transcript
        self._root = work / "kafka"
        self._properties = self._root / "server.properties"
        self._partition = self._root / "kafka-logs" / PARTITION
        self._figures: dict[str, object] = {}

    def run(self) -> None:
        """From the first to the last."""
        plan = self._work / "staged" / "plan.jsonl"
        receipt = self._work / "receipt.jsonl"
        written = self._stage(plan)
        self._say.step("README 4: stop the broker; install")
        missing = self._missing()
        installed = ("install", "--plan", plan, "--receipt", receipt)
        self._say.snaprebuild(*installed, exit_code=0, facts=(f"{len(missing)} snapshots? installed",))
        self._say.check("every boundary has a snapshot", self._missing(), [])
        self._start_and_verify(receipt)
        self._not_ready()
        self._raise_and_upload(written)
        self._say.step("README 8: to go back, stop the broker; undo")
        self._say.snaprebuild("undo", receipt, exit_code=0, facts=("removed",))
        self._say.check("what install wrote is gone", self._missing(), missing)
        self._say.end(self._figures)

    def _stage(self, plan: Path) -> WrittenData:
        self._say.step(f"Kafka {OLD} with ZooKeeper and protocol 2.7 writes a topic")
        settings = {**PROTOCOL, "log.flush.offset.checkpoint.interval.ms": 2000}
        with KafkaNode(self._root, version=OLD, settings=settings) as node:
            node.start()
            written = write_data(node)
            self._wait_until_deleted()
            selected = ("--server-properties", self._properties, "--topic", TOPIC)
            self._say.step("README 1 to 3: scan, plan and stage; the broker runs")
            self._say.snaprebuild("scan", *selected, exit_code=1, facts=("missing",))
            self._say.snaprebuild("plan", *selected, exit_code=0)
            self._say.snaprebuild("stage", *selected, "--to", plan.parent, exit_code=0, facts=(r"\d+ snapshots? staged",))
            node.stop_all()
        return written

    def _start_and_verify(self, receipt: Path) -> None:
        self._say.step(f"README 5 and 6: Kafka {NEW} starts, its protocol is still 2.7; verify the receipt")
        with KafkaNode(self._root, version=NEW, settings=PROTOCOL, tiering=False) as node:
            node.start()
            self._say.check("the topic has no id", self._has_id(), False)
            self._say.snaprebuild("verify", "--written-by", receipt, exit_code=0, facts=("kept",))
            node.stop_all()

    def _not_ready(self) -> None:
        self._say.step("README 7 in the wrong order: remote storage is on in the configuration, the protocol is not raised")
        wrong = self._root / "wrong.properties"
        wrong.write_text(self._properties.read_text() + SWITCH)
        self._say.snaprebuild("scan", "--server-properties", wrong, exit_code=1, facts=(NOT_READY,))
        self._say.snaprebuild("verify", "--server-properties", wrong, exit_code=1, facts=(NOT_READY,))
        one = max(self._partition.glob("*.snapshot"))
        away = one.rename(self._work / one.name)
        self._say.snaprebuild("rebuild", "--server-properties", wrong, exit_code=3, facts=(NOT_READY,))
        self._say.check("nothing was written", one.exists(), False)
        away.rename(one)

    def _raise_and_upload(self, written: WrittenData) -> None:
        self._say.step("README 7: raise the protocol, with a restart of its own")
        with KafkaNode(self._root, version=NEW, settings=RAISED, tiering=False) as node:
            node.start()
            node.stop()
            self._say.check("the topic has an id", self._has_id())
        self._say.snaprebuild("scan", "--server-properties", self._properties, "--topic", TOPIC, exit_code=0)
        self._say.step("README 7: then switch remote storage on, with the next restart")
        bases = self._bases()
        due = [base for base, following in itertools.pairwise(bases) if following <= written.last_stable]
        with KafkaNode(self._root, version=NEW, settings=RAISED) as node:
            mark = node.start()
            node.set_topic(TOPIC, TIERED)
            node.wait_for_log(COPIED, mark, UPLOAD_SECONDS, times=len(due))
            remote = node.remote_files(PARTITION)
            places = {path.name for path in node.remote_dir.glob(f"*/{PARTITION}-*")}
            self._say.check("the log is whole", node.end_offset(TOPIC), written.end)
            node.stop_all()
        uploaded = sorted(int(name[:20]) for name in remote if name.endswith(".log"))
        self._say.check(f"{len(due)} segments are uploaded, and no other", uploaded, due)
        self._say.check("none of them under topic id zero", places & {f"{PARTITION}-AAAAAAAAAAAAAAAAAAAAAA"}, set())
        self._figures["segments uploaded"] = len(due)

    def _bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self._partition.glob("*.log"))

    def _missing(self) -> list[int]:
        return [base for base in self._bases()[1:] if not (self._partition / snapshot_name(base)).exists()]

    def _has_id(self) -> bool:
        return (self._partition / "partition.metadata").exists()

    def _wait_until_deleted(self) -> None:
        """Kafka up to 2.7 deletes snapshots below its recovery point each time that it writes the checkpoint of it."""
        deadline = time.monotonic() + DELETES_SECONDS
        while len(list(self._partition.glob("*.snapshot"))) > 3:
            assert time.monotonic() < deadline, "its snapshots are there still"
            time.sleep(0.2)


def main() -> None:
    """The command."""
    options = parser_of("scripts/demo/readme_steps.py", __doc__).parse_args()
    with demonstration(options, "demo-readme") as transcript:
        ReadmeSteps(transcript.work, transcript).run()


if __name__ == "__main__":
    main()
