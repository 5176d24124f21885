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


def test_a_deletion_that_is_not_finished(tmp_path: Path) -> None:
    logs = logs_with(tmp_path, update(MIXED[0], SegmentState.DELETE_SEGMENT_STARTED))
    for verb in ("tier inventory", "tier audit"):
        run = in_json(verb, STORE, "--metadata-log", logs, *(AS_OF if "audit" in verb else ()))
        assert run.codes.keys().isdisjoint(("tier-orphan", "tier-unknown", "tier-deleted"))
        assert run.codes["tier-deleting"] == 1
        if "inventory" in verb:
            assert sorted(states(run.document)) == ["deleting"] + ["live"] * (len(MIXED) - 1)
            assert (run.exit_code, run.codes["tier-deleting"]) == (0, 1)
            assert "brokers continue it. Wait" in run.messages("tier-deleting")


@pytest.mark.parametrize("verb", ["tier inventory", "tier audit"])
def test_a_deletion_that_is_recorded_as_finished(tmp_path: Path, verb: str) -> None:
    ends = (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED)
    logs = logs_with(tmp_path, *(update(MIXED[0], state) for state in ends))
    run = in_json(verb, STORE, "--metadata-log", logs, *(AS_OF if "audit" in verb else ()))
    assert (run.exit_code, run.codes["tier-deleted"], run.codes.get("tier-orphan", 0)) == (1, 1, 0)
    assert "1 copy whose deletion the metadata log records as finished" in run.messages("tier-deleted")
    if "inventory" in verb:
        assert sorted(states(run.document)) == ["deleted"] + ["live"] * (len(MIXED) - 1)


@pytest.mark.parametrize("verb", ["tier inventory", "tier audit"])
@pytest.mark.parametrize("state", [DeleteState.DELETE_PARTITION_STARTED, DeleteState.DELETE_PARTITION_FINISHED])
def test_the_deletion_of_a_topic(tmp_path: Path, verb: str, state: DeleteState) -> None:
    partition = partition_of(MIXED[0])
    recorded = [DeleteState.DELETE_PARTITION_MARKED, DeleteState.DELETE_PARTITION_STARTED, DeleteState.DELETE_PARTITION_FINISHED]
    more = [PartitionDeletion(partition, 1, 3, each) for each in recorded[: recorded.index(state) + 1]]
    run = in_json(verb, STORE, "--metadata-log", logs_with(tmp_path, *more), *(AS_OF if "audit" in verb else ()))
    is_finished = state is DeleteState.DELETE_PARTITION_FINISHED
    word = "deleted" if is_finished else "deleting"
    assert run.codes.get(f"tier-{word}") == 1
    assert run.codes.keys().isdisjoint(("tier-orphan", "tier-unknown"))
    if "inventory" in verb:
        assert states(run.document) == [word] * len(MIXED)
    else:
        assert all(each["topic"] != "mixed" for each in run.document["partitions"])


@pytest.mark.parametrize("verb", ["tier inventory", "tier audit"])
def test_a_metadata_partition_that_was_not_given(tmp_path: Path, verb: str) -> None:
    """Kafka's partitioner names the one that is missing: the records of one topic are in the only one that was given."""
    number = metadata_partition(partition_of(MIXED[0]), METADATA_PARTITIONS)
    logs_with(tmp_path, of_all=False)
    (tmp_path / "__remote_log_metadata-0").rename(tmp_path / f"__remote_log_metadata-{number}")
    run = in_json(verb, STORE, "--metadata-log", tmp_path, *(AS_OF if "audit" in verb else ()))
    of = {metadata_partition(partition_of(each), METADATA_PARTITIONS): each for each in OTHERS.values()}
    assert sorted(of) == [1, 19, 48]
    assert number == 19  # so one of the others has its records there, too, and has none
    assert (run.exit_code, run.codes["tier-unknown"], run.codes["tier-orphan"]) == (1, 2, 1)
    other, missing = of[48], 48
    assert f"partition {missing} of __remote_log_metadata, which was not given" in run.messages("tier-unknown")
    assert "Delete nothing" in run.messages("tier-unknown")
    if "inventory" in verb:
        assert states(run.document) == ["live"] * len(MIXED)
        assert set(states(run.document, other["metadata"]["topic"])) == {"unknown"}
        table = snaprebuild("tier", "inventory", STORE, "--metadata-log", tmp_path)
        assert "unknown" in table.stdout


@pytest.mark.parametrize("verb", ["tier inventory", "tier audit"])
def test_foreign_copies(tmp_path: Path, verb: str) -> None:
    """All partitions of the topic were given, one of one, and none has a record."""
    run = in_json(verb, STORE, "--metadata-log", logs_with(tmp_path, of_all=False), *(AS_OF if "audit" in verb else ()))
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
