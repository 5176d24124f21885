"""Empty followers of a live leader with remote storage: what ``follower plan`` says before, and what a real one asks and takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from command import in_json_process
from kafka_node import KafkaNode
from kinds_of_data import Kind, write_kind
from live_offsets import (
    FOLLOWER,
    LEADER,
    SPECIAL,
    TIERED,
    Answers,
    checkpointed,
    delete_records,
    partition_row,
    roll_and_upload,
    settle,
    wait,
)
from live_truth import batches_in
from transcript import Transcript
from wire import Wire

FEATURE = "follower.fetch.last.tiered.offset.enable"
REQUEST_LOG = "-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug"
REQUEST = re.compile(r"Completed request:(\{.*\})$", re.MULTILINE)
ASKS = {-1: "-1 latest", -2: "-2 earliest", -4: "-4 earliest local", -6: "-6 earliest pending upload"}
FAILED = "Couldn't build the state from remote store"
JOIN_SECONDS = 120.0


class LiveFollower:
    """The chapter: a leader, and a second broker that gets a replica of one topic after the other."""

    def __init__(self, root: Path, version: str, say: Transcript) -> None:
        self._leader = KafkaNode(root / "leader", version=version, settings=LEADER, java_options=(REQUEST_LOG,))
        self._root = root
        self._version = version
        self._say = say
        self._cases = 0

    def run(self) -> dict[str, object]:
        """Runs it. Returns its figures."""
        self._say.step("empty followers: what a live one does, and what follower plan said before")
        self._prepare()
        with self._leader as leader:
            leader.start()
            settings = {FEATURE: "true", "replica.fetch.backoff.ms": 200, **LEADER}
            with KafkaNode(self._root / "follower", version=self._version, controller=leader, settings=settings) as follower:
                follower.start()
                self._follower = follower
                self._joins("whole", "on", "nothing is deleted from the leader's disk")
                self._joins("tiered", "on", f"{FEATURE} is on")
                self._waits_and_joins("idle")
                self._never_joins("bare")
                follower.stop_all()
            with KafkaNode(self._root / "follower", version=self._version, controller=leader, settings=LEADER) as follower:
                follower.start()
                self._follower = follower
                self._joins("usual", "off", f"{FEATURE} is off, as by default")
                follower.stop_all()
            leader.stop_all()
        return {"empty followers that did what follower plan said": self._cases}

    def _prepare(self) -> None:
        """Topics, written in two leader epochs."""
        keeps = {"local.retention.bytes": 60_000}
        topics = {"whole": {}, "tiered": keeps, "usual": keeps, "idle": {}, "bare": {}}
        with self._leader as leader:
            leader.start()
            for topic, settings in topics.items():
                leader.create_topic(topic, {**TIERED, **settings})
                write_kind(leader.address, topic, Kind.IDEMPOTENT, 20 if topic == "bare" else 300)
            leader.stop_all()
            leader.start()
            for topic in ("whole", "tiered", "usual", "idle"):
                write_kind(leader.address, topic, Kind.COMMITTED, 300)
            for topic in topics:
                self._settle(topic)
            delete_records(leader, "tiered", 100)
            delete_records(leader, "bare", 10)
            leader.set_topic("idle", {"local.retention.ms": 1})
            roll_and_upload("idle", self._answers)
            self._settle("idle")
            leader.stop_all()

    def _answers(self, topic: str) -> Answers:
        with Wire(self._leader.port) as wire:
            return wire.list_offsets(topic, SPECIAL, replica_id=FOLLOWER)

    def _settle(self, topic: str) -> None:
        settle(self._leader, topic, self._answers)

    def _planned(self, topic: str, feature: str) -> dict[str, Any]:
        leader = self._leader
        tier = ("--metadata-log", leader.log_dir)
        options = ("--profile", "kafka-4.3", "--assume", f"last_tiered_offset={feature}", "--assume", "remote_storage=on")
        run = in_json_process("follower plan", leader.remote_dir, leader.log_dir / f"{topic}-0", *tier, *options)
        return partition_row(run.document)

    # ---- the cases ----

    def _joins(self, topic: str, feature: str, what: str) -> None:
        self._settle(topic)
        planned = self._planned(topic, feature)
        mark = self._mark()
        self._leader.reassign(topic, [1, 2])
        self._leader.wait_for_replicas(topic, leader=1, in_sync={1, 2})
        self._did(topic, planned, mark, what)

    def _waits_and_joins(self, topic: str) -> None:
        self._settle(topic)
        planned = self._planned(topic, "on")
        mark = self._mark()
        decision = planned["decision"]
        self._say.check(
            "everything is uploaded: plan says row 9, retry later", (decision["row"], decision["action"]), (9, "retry later")
        )
        self._leader.reassign(topic, [1, 2])
        timestamps = (ASKS[-6], -1)
        wait(lambda: self._requests(topic, mark).count(timestamps) >= 3, "the follower does not ask again and again", JOIN_SECONDS)
        self._say.check("the follower asks for -6 again and again, gets -1, and has no log", self._log(topic)["log_end"] or 0, 0)
        self._say.check("it asks what plan said", self._round(topic, mark, planned), _calls(planned))
        self._cases += 1
        self._leader.set_topic(topic, {"local.retention.ms": -2})  # else the record is rolled, uploaded and deleted, too
        write_kind(self._leader.address, topic, Kind.IDEMPOTENT, 1)
        self._leader.wait_for_replicas(topic, leader=1, in_sync={1, 2})
        self._did(topic, self._planned(topic, "on"), None, "somebody has written a record")

    def _never_joins(self, topic: str) -> None:
        planned = self._planned(topic, "on")
        mark = self._mark()
        follower_mark = self._follower.log_file.stat().st_size
        decision = planned["decision"]
        self._say.check(
            "nothing is uploaded, and the log does not begin at 0: plan says that it never starts",
            decision["action"],
            "retry, and fail each time",
        )
        self._leader.reassign(topic, [1, 2])
        self._follower.wait_for_log(FAILED, follower_mark, JOIN_SECONDS, times=4)
        self._say.check("the follower fails each time, and has no log", self._log(topic)["log_end"] or 0, 0)
        self._say.check("it asks what plan said", self._round(topic, mark, planned), _calls(planned))
        self._cases += 1

    def _did(self, topic: str, planned: dict[str, Any], mark: int | None, what: str) -> None:
        decision = planned["decision"]
        claim = self._claim(topic, planned)
        share = planned["share"]["replicated_bytes"]
        self._say.show(
            f"{topic}: plan says row {decision['row']}, {decision['action']}, {decision['offset']}; {claim}; {share} bytes"
        )
        wait(lambda: self._log(topic) == claim, f"{topic}: {claim} expected, {self._log(topic)} found", JOIN_SECONDS)
        self._say.check(f"{what}: log start, local start, log end and leader epochs are as plan said", self._log(topic), claim)
        fetched = sum(path.stat().st_size for path in self._directory(topic).glob("*.log"))
        self._say.check("as many bytes are fetched", fetched, share)
        if mark is not None:
            self._say.check("it asks the leader what plan said", self._round(topic, mark, planned), _calls(planned))
        self._cases += 1

    def _claim(self, topic: str, planned: dict[str, Any]) -> dict[str, Any]:
        """The log that the follower must have when it has fetched everything: without a special start, it is the leader's.

        A leader epoch reaches a follower with its first batch.
        """
        if planned["steps"]:
            last = planned["steps"][-1]
            epochs = [[each["epoch"], each["start_offset"]] for each in last["leader_epochs"]]
            return {
                "log_start": last["log_start_offset"],
                "log_end": last["log_end_offset"],
                "local_start": last["local_log_start_offset"],
                "leader_epochs": epochs,
            }
        ends = {name: planned[name]["offset"] for name in ("log_start", "log_end")}
        epochs = [each for each in _leader_epochs(self._leader.log_dir / f"{topic}-0") if each[1] < ends["log_end"]]
        return {**ends, "local_start": planned["decision"]["offset"], "leader_epochs": epochs}

    # ---- what the follower did ----

    def _directory(self, topic: str) -> Path:
        return self._follower.log_dir / f"{topic}-0"

    def _log(self, topic: str) -> dict[str, Any]:
        """The log of the follower, according to its files while it runs, read by hand."""
        directory = self._directory(topic)
        bases = sorted(int(path.stem) for path in directory.glob("*.log"))
        if not bases:
            return {"log_end": None}
        batches = list(batches_in((directory / f"{bases[-1]:020d}.log").read_bytes()))
        log_start = checkpointed(self._follower.log_dir / "log-start-offset-checkpoint", topic)
        return {
            "log_start": 0 if log_start is None else log_start,
            "local_start": bases[0],
            "log_end": batches[-1].next_offset if batches else bases[-1],
            "leader_epochs": _leader_epochs(directory),
        }

    def _mark(self) -> int:
        return self._leader.log_file.stat().st_size

    def _requests(self, topic: str, mark: int) -> list[tuple[str, int]]:
        """Requests of the follower about a topic, each with the answer."""
        rows = []
        for match in REQUEST.finditer(self._leader.log_since(mark)):
            reported = json.loads(match[1])
            api = reported["requestHeader"]["requestApiKeyName"]
            request = reported["request"]
            response = reported["response"]
            if api == "LIST_OFFSETS" and request["replicaId"] == FOLLOWER:
                for row, answer in zip(_rows(request), _rows(response), strict=True):
                    if row[0] == topic:
                        rows.append((ASKS[row[1]["timestamp"]], answer[1]["offset"]))
        return rows

    def _round(self, topic: str, mark: int, planned: dict[str, Any]) -> list[tuple[str, int]]:
        """The first requests of a follower, as many as the plan names: after a failure it begins anew. If it names none, all."""
        return self._requests(topic, mark)[: len(_calls(planned)) or None]


def _leader_epochs(directory: Path) -> list[list[int]]:
    lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return [[int(word) for word in line.split()] for line in lines]


def _rows(message: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(topic["name"], partition) for topic in message["topics"] for partition in topic["partitions"]]


def _calls(planned: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["argument"], each["offset"]) for each in planned["requests"] if each["api"] == "ListOffsets"]
