"""Where a live leader with remote storage serves an offset from, what DeleteRecords removes, and where its leader epochs end.

What ``follower fetch-path`` says is compared with what the leader does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command import in_json_process
from kafka_node import KafkaNode
from kinds_of_data import Kind, write_kind
from live_offsets import FOLLOWER, LEADER, SEGMENT_BYTES, SPECIAL, TIERED, Answers, delete_records, partition_row, settle, wait
from live_truth import batches_in
from ours import ends_of_epochs
from transcript import Transcript
from wire import BrokerError, Wire

TOPIC = "where"
PARTITION = f"{TOPIC}-0"
OUT_OF_RANGE = 1
FETCHED_BYTES = 2_000
TURNS = 3
"""Leader epochs in which it is written: one for each start of the broker."""

DONE = {"local": "batches", "remote": "batches", "not-yet": "nothing yet", "offset-out-of-range": "out of range"}
"""Outcome for a consumer by the answer of ``follower fetch-path``."""


class LiveWhere:
    """The chapter: one leader, one topic, of which the old part is in remote storage alone."""

    def __init__(self, root: Path, version: str, say: Transcript) -> None:
        self._node = KafkaNode(root / "leader", version=version, settings=LEADER)
        self._hidden = root / "hidden"
        self._say = say
        self._compared = 0

    def run(self) -> dict[str, object]:
        """Runs it. Returns its figures."""
        self._say.step(
            "next to a live leader: where it serves an offset from, what DeleteRecords removes, and OffsetsForLeaderEpoch"
        )
        self._hidden.mkdir(parents=True)
        with self._node as node:
            for turn in range(TURNS):
                node.start()
                with Wire(node.port) as self._wire:
                    self._turn(node, turn)
                node.stop_all()
        return {"fetches, deletions and leader epochs of a live leader, as where said": self._compared}

    def _turn(self, node: KafkaNode, turn: int) -> None:
        """Runs one turn. Uploads happen once, so they settle before the broker stops."""
        if turn == 0:
            node.create_topic(TOPIC, {**TIERED, "local.retention.bytes": 3 * SEGMENT_BYTES})
        write_kind(node.address, TOPIC, Kind.IDEMPOTENT, 300)
        self._settle()
        if turn == TURNS - 1:
            self._situations(node)

    def _situations(self, node: KafkaNode) -> None:
        self._compare_epochs("the log begins at 0")
        self._compare_fetches("the log begins at 0")
        for what, offset in (
            ("inside of remote storage", self._bases_of_copies()[2] + 3),
            ("on disk", self._bases_on_disk()[1] + 3),
        ):
            self._compare_deletion(node, what, offset)
            self._compare_epochs(f"records below {offset} were deleted")
            self._compare_fetches(f"records below {offset} were deleted")

    # ---- fetches ----

    def _compare_fetches(self, situation: str) -> None:
        reported = {offset: self._where(offset)["consumer"] for offset in self._offsets()}
        served = {offset: self._fetch(offset) for offset in reported}
        self._say.check(
            f"{situation}; offsets around every segment and copy: {self._counted(reported)}",
            {offset: DONE[consumer["served"]] for offset, consumer in reported.items()},
            served,
        )
        self._compared += len(served)
        remote = {offset: consumer["object_key"] for offset, consumer in reported.items() if consumer["served"] == "remote"}
        local = [offset for offset, consumer in reported.items() if consumer["served"] == "local"]
        with self._taken_away(set(remote.values())):
            failed = {offset: self._fetch(offset) for offset in (*remote, *local)}
        expected = {**dict.fromkeys(remote, "failed"), **dict.fromkeys(local, "batches")}
        self._say.check("  without remote storage, those fail that it serves, and no other", failed, expected)
        self._compared += len(failed)
        for base_offset in sorted(set(remote.values())):
            with self._taken_away({base_offset}):
                failing = {offset for offset in remote if self._fetch(offset) == "failed"}
            mine = {offset for offset, each in remote.items() if each == base_offset}
            self._say.check(f"  without the copy of {Path(base_offset).name[:20]}, its own alone: {sorted(mine)}", failing, mine)
            self._compared += len(remote)

    def _fetch(self, offset: int) -> str:
        try:
            data = self._wire.fetch(TOPIC, offset, FETCHED_BYTES)
        except BrokerError as error:
            return "out of range" if error.code == OUT_OF_RANGE else "failed"
        if not data:
            return "nothing yet"
        first = next(iter(batches_in(data)))
        return "batches" if first.base_offset <= offset < first.next_offset else f"batches of {first.base_offset}"

    @contextlib.contextmanager
    def _taken_away(self, objects: set[str]) -> Iterator[None]:
        """While this is open, these objects are not in remote storage."""
        places = {name: self._hidden / Path(name).name for name in objects}
        for name, place in places.items():
            (self._node.remote_dir / name).rename(place)
        try:
            yield
        finally:
            for name, place in places.items():
                place.rename(self._node.remote_dir / name)

    @staticmethod
    def _counted(reported: dict[int, dict[str, Any]]) -> str:
        served = [consumer["served"] for consumer in reported.values()]
        return ", ".join(f"{served.count(kind)} {kind}" for kind in dict.fromkeys(served))

    # ---- DeleteRecords and leader epochs ----

    def _compare_deletion(self, node: KafkaNode, what: str, offset: int) -> None:
        reported = self._where(offset)["delete_records"]
        gone = {each["base_offset"] for each in reported["segments"]}
        copies = {each["start_offset"] for each in reported["copies"]}
        left = (sorted(set(self._bases_on_disk()) - gone), sorted(set(self._bases_of_copies()) - copies))
        delete_records(node, TOPIC, offset)
        wait(lambda: (self._bases_on_disk(), self._bases_of_copies()) == left, f"{left} expected to be left")
        self._settle()
        bases = (self._bases_on_disk(), self._bases_of_copies())
        self._say.check(f"DeleteRecords to {offset}, {what}: {len(gone)} segments and {len(copies)} copies went", bases, left)
        self._say.check("  the log start is as reported", self._wire.list_offsets(TOPIC, [-2])[-2][0], reported["log_start_offset"])
        self._compared += len(gone) + len(copies) + 1

    def _compare_epochs(self, situation: str) -> None:
        epochs = range(-1, 3 * TURNS)
        node = self._node
        ours = ends_of_epochs(node.log_dir / PARTITION, node.remote_dir, node.log_dir, epochs)
        theirs = {epoch: self._wire.end_of_leader_epoch(TOPIC, epoch) for epoch in epochs}
        text = ", ".join(f"{epoch}: {ends[0]} to {ends[1]}" for epoch, ends in theirs.items())
        self._say.check(f"{situation}; OffsetsForLeaderEpoch {text}", ours, theirs)
        self._compared += len(theirs)

    # ---- the leader's log ----

    def _where(self, offset: int) -> dict[str, Any]:
        log_dir = self._node.log_dir
        places = (self._node.remote_dir, log_dir / PARTITION, "--metadata-log", log_dir)
        return partition_row(in_json_process("follower fetch-path", *places, "--offset", offset).document)

    def _offsets(self) -> list[int]:
        """Around every boundary, and around both ends."""
        ends = self._answers(TOPIC)
        offsets = {*self._bases_on_disk(), *self._bases_of_copies(), ends[-1][0], ends[-2][0]}
        return sorted({max(0, each + step) for each in offsets for step in (-1, 0, 1)})

    def _bases_on_disk(self) -> list[int]:
        return sorted(int(path.stem) for path in (self._node.log_dir / PARTITION).glob("*.log"))

    def _bases_of_copies(self) -> list[int]:
        return sorted(int(name[:20]) for name in self._node.remote_files(PARTITION) if name.endswith(".log"))

    def _answers(self, topic: str) -> Answers:
        return self._wire.list_offsets(topic, SPECIAL, replica_id=FOLLOWER)

    def _settle(self) -> None:
        settle(self._node, TOPIC, self._answers)
