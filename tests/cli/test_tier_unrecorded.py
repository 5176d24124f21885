"""Copies that the metadata log does not call live: deleted, unknown and foreign ones need different actions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process import in_json, snaprebuild
from log_dirs import batch, make_log_dir, record, write_partition
from manifests import FIXTURES
from metadata_logs import metadata_log, uuid_bytes

from formats.remote.remote_log_metadata import (
    METADATA_PARTITIONS,
    DeleteState,
    PartitionDeletion,
    RemoteLogRecord,
    RemoteSegmentId,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
    metadata_partition,
    write_remote_log_record,
)

STORE = FIXTURES / "aiven-layout" / "plain" / "store"
SEGMENTS = json.loads((FIXTURES / "aiven-layout" / "plugin-reads.json").read_text())["variants"]["plain"]["segments"]
MIXED = [each for each in SEGMENTS if each["metadata"]["topic"] == "mixed"]
OTHERS = {each["metadata"]["topic_id"]: each for each in SEGMENTS if each["metadata"]["topic"] != "mixed"}
AS_OF = ("--as-of", "2026-11-20")


def partition_of(segment: dict[str, Any]) -> TopicIdPartition:
    known = segment["metadata"]
    return TopicIdPartition(known["topic"], uuid_bytes(known["topic_id"]), known["partition"])


def update(segment: dict[str, Any], state: SegmentState) -> RemoteSegmentUpdate:
    segment_id = RemoteSegmentId(partition_of(segment), uuid_bytes(segment["metadata"]["segment_id"]))
    return RemoteSegmentUpdate(segment_id, 1, 3, None, state)


def logs_with(to: Path, *more: RemoteLogRecord, of_all: bool = True) -> Path:
    """All copies announced and finished, and further records, in the only partition of the topic."""
    segments = SEGMENTS if of_all else MIXED
    metadata_log(to, segments)
    data = b"".join(batch(number, records=[record(write_remote_log_record(each))]) for number, each in enumerate(more, 1_000))
    if more:
        write_partition(to / "__remote_log_metadata-0", {1_000: data})
    return to


def states(document: dict[str, Any], topic: str = "mixed") -> list[str]:
    (partition,) = (each for each in document["partitions"] if each["topic"] == topic)
    return [copy["state"] for copy in partition["copies"]]


def deleted(*ends: SegmentState) -> list[RemoteLogRecord]:
    """Of the first copy."""
    return [update(MIXED[0], state) for state in ends]


def topic_deleted(*ends: DeleteState) -> list[RemoteLogRecord]:
    return [PartitionDeletion(partition_of(MIXED[0]), 1, 3, state) for state in (DeleteState.DELETE_PARTITION_MARKED, *ends)]


SEGMENT_STARTED, SEGMENT_FINISHED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED
TOPIC_STARTED, TOPIC_FINISHED = DeleteState.DELETE_PARTITION_STARTED, DeleteState.DELETE_PARTITION_FINISHED


@pytest.mark.parametrize(
    ("more", "code", "count", "exit_code", "said"),
    [
        (deleted(SEGMENT_STARTED), "tier-deleting", 1, 0, "brokers continue it. Wait"),
        (
            deleted(SEGMENT_STARTED, SEGMENT_FINISHED),
            "tier-deleted",
            1,
            1,
            "1 copy whose deletion the metadata log records as finished",
        ),
        (topic_deleted(TOPIC_STARTED), "tier-deleting", len(MIXED), 0, "brokers continue it. Wait"),
        (
            topic_deleted(TOPIC_STARTED, TOPIC_FINISHED),
            "tier-deleted",
            len(MIXED),
            1,
            "whose deletion the metadata log records as finished",
        ),
    ],
    ids=["segment started", "segment finished", "topic started", "topic finished"],
)
def test_a_deletion(tmp_path: Path, more: list[RemoteLogRecord], code: str, count: int, exit_code: int, said: str) -> None:
    """The audit names it too, and judges none of these copies."""
    logs = logs_with(tmp_path, *more)
    run = in_json("tier inventory", STORE, "--metadata-log", logs)
    assert (run.exit_code, run.codes[code]) == (exit_code, 1)
    assert run.codes.keys().isdisjoint(("tier-orphan", "tier-unknown"))
    assert said in run.messages(code)
    assert sorted(states(run.document)) == [code.removeprefix("tier-")] * count + ["live"] * (len(MIXED) - count)
    audit = in_json("tier audit", STORE, "--metadata-log", logs, *AS_OF)
    assert (audit.codes[code], audit.codes.get("tier-orphan", 0)) == (1, 0)
    judged = [copy for each in audit.document["partitions"] if each["topic"] == "mixed" for copy in each["copies"]]
    assert len(judged) == len(MIXED) - count


def test_a_metadata_partition_that_was_not_given(tmp_path: Path) -> None:
    """Kafka's partitioner names the one that is missing: the records of one topic are in the only one that was given."""
    number = metadata_partition(partition_of(MIXED[0]), METADATA_PARTITIONS)
    logs_with(tmp_path, of_all=False)
    (tmp_path / "__remote_log_metadata-0").rename(tmp_path / f"__remote_log_metadata-{number}")
    run = in_json("tier inventory", STORE, "--metadata-log", tmp_path)
    of = {metadata_partition(partition_of(each), METADATA_PARTITIONS): each for each in OTHERS.values()}
    assert sorted(of) == [1, 19, 48]
    assert number == 19  # so one of the others has its records there, too, and has none
    assert (run.exit_code, run.codes["tier-unknown"], run.codes["tier-orphan"]) == (1, 2, 1)
    assert "partition 48 of __remote_log_metadata, which was not given" in run.messages("tier-unknown")
    assert "Delete nothing" in run.messages("tier-unknown")
    assert states(run.document) == ["live"] * len(MIXED)
    assert set(states(run.document, of[48]["metadata"]["topic"])) == {"unknown"}
    assert "unknown" in snaprebuild("tier", "inventory", STORE, "--metadata-log", tmp_path).stdout


def test_foreign_copies(tmp_path: Path) -> None:
    """All partitions of the topic were given, one of one, and none has a record."""
    run = in_json("tier inventory", STORE, "--metadata-log", logs_with(tmp_path, of_all=False))
    assert (run.exit_code, run.codes["tier-orphan"], run.codes.get("tier-unknown", 0)) == (1, len(OTHERS), 0)
    assert "Another cluster or plugin wrote them" in run.messages("tier-orphan")


def test_all_fifty_partitions_were_given(tmp_path: Path) -> None:
    number = metadata_partition(partition_of(MIXED[0]), METADATA_PARTITIONS)
    logs_with(tmp_path, of_all=False)
    (tmp_path / "__remote_log_metadata-0").rename(tmp_path / f"__remote_log_metadata-{number}")
    for other in set(range(METADATA_PARTITIONS)) - {number}:
        write_partition(make_log_dir(tmp_path) / f"__remote_log_metadata-{other}", {0: b""})
    run = in_json("tier inventory", STORE, "--metadata-log", tmp_path)
    assert (run.codes["tier-orphan"], run.codes.get("tier-unknown", 0)) == (len(OTHERS), 0)
