"""Remote log metadata: bytes of Kafka's classes, the records that a real broker wrote, and what they must not be."""

import json
from dataclasses import replace

import pytest
from fixture_files import FIXTURES

from formats.errors import BadLengthError, BadValueError, FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_from_text, uuid_to_text
from formats.remote.remote_log_metadata import (
    DeleteState,
    PartitionDeletion,
    RemoteLogRecord,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
    metadata_partition,
    read_remote_log_record,
    write_remote_log_record,
)

PARTITION = TopicIdPartition("topic1", uuid_from_text("lZ6vvmajTWKDBUTV6SQAtQ"), 42)
SEGMENT_ID = RemoteSegmentId(PARTITION, uuid_from_text("adh9f8BMS4anaUnD8KWfWg"))
STARTED = RemoteSegment(
    id=SEGMENT_ID,
    segment_id=SEGMENT_ID.id,
    start_offset=0,
    end_offset=1000,
    broker_id=2,
    max_timestamp_ms=1_000_000_000,
    event_timestamp_ms=2_000_000_000,
    leader_epochs=(LeaderEpochEntry(0, 0),),
    size_bytes=100_500,
    custom_metadata=None,
    state=SegmentState.COPY_SEGMENT_STARTED,
    txn_index_empty=False,
)
EPOCHS = tuple(LeaderEpochEntry(epoch, offset) for epoch, offset in ((0, 0), (1, 200), (2, 300)))
HEAD = (
    "01000007746f70696331959eafbe66a34d62830544d5e92400b50000002a0069d87d7fc04c4b86a76949c3f0a59f5a0000"
    "0000000000000000000000000003e800000002000000003b9aca000000000077359400"
)

# Written by ``RemoteLogMetadataSerde`` of Kafka 4.3.1.
KAFKA_BYTES: dict[str, tuple[str, RemoteLogRecord]] = {
    "started": (HEAD + "020000000000000000000000000000018894000000", STARTED),
    "started, three epochs": (
        HEAD
        + "040000000000000000000000000000000001"
        + "00000000000000c800"
        + "00000002000000000000012c00"
        + "000188940000010001"
        + "01",
        replace(STARTED, leader_epochs=EPOCHS, txn_index_empty=True),
    ),
    "finished": (
        "01010007746f70696331959eafbe66a34d62830544d5e92400b50000002a0069d87d7fc04c4b86a76949c3f0a59f5a00000000020000000077359401040102030100",
        RemoteSegmentUpdate(SEGMENT_ID, 2, 2_000_000_001, b"\x01\x02\x03", SegmentState.COPY_SEGMENT_FINISHED),
    ),
    "partition deleted": (
        "01020007746f70696331959eafbe66a34d62830544d5e92400b50000002a000000000200000000000000070000",
        PartitionDeletion(PARTITION, 2, 7, DeleteState.DELETE_PARTITION_MARKED),
    ),
}


@pytest.mark.parametrize("case", KAFKA_BYTES)
def test_bytes_of_kafka(case: str) -> None:
    data, record = KAFKA_BYTES[case]
    assert read_remote_log_record(bytes.fromhex(data)) == record
    assert write_remote_log_record(record).hex() == data


def test_records_of_a_real_broker() -> None:
    manifest = json.loads((FIXTURES / "tiered-local" / "manifest.json").read_text())
    segments = {each["segment_id"]: each for each in manifest["remote_segments"]}
    assert len(manifest["records"]) == manifest["counts"]["records"] == 37
    for reported in manifest["records"]:
        value = bytes.fromhex(reported["value_hex"])
        record = read_remote_log_record(value)
        assert write_remote_log_record(record) == value
        assert isinstance(record, RemoteSegment | RemoteSegmentUpdate)
        assert record.id is not None
        assert record.custom_metadata is None
        said = {"segment_id": str(record.id), "broker_id": record.broker_id, "event_timestamp_ms": record.event_timestamp_ms}
        assert {**said, "state": record.state.name}.items() <= reported["body"].items()
        partition = record.id.topic_id_partition
        said = {"topic": partition.topic, "topic_id": uuid_to_text(partition.topic_id), "partition": partition.partition}
        if isinstance(record, RemoteSegment):
            said |= {name: getattr(record, name) for name in ("start_offset", "end_offset", "max_timestamp_ms")}
            said |= {"segment_size_bytes": record.size_bytes, "txn_idx_empty": record.txn_index_empty}
            said["segment_leader_epochs"] = {str(each.epoch): each.start_offset for each in record.leader_epochs}
        segment = segments[reported["body"]["segment_id"]]
        assert said == {name: segment[name] for name in said}


def test_a_record_of_a_snapshot_has_no_partition() -> None:
    record = replace(STARTED, id=None)
    value = write_remote_log_record(record)
    # As the others, without the partition: only the id of the segment comes before its offsets.
    assert value.hex() == "010300" + SEGMENT_ID.id.hex() + KAFKA_BYTES["started"][0][len(HEAD) - 72 :]
    assert read_remote_log_record(value) == record


@pytest.mark.parametrize(
    ("topic_id", "partition", "partitions", "expected"),
    [("lZ6vvmajTWKDBUTV6SQAtQ", 42, 5, 3), ("lZ6vvmajTWKDBUTV6SQAtQ", 42, 50, 33), ("AAAAAAAAAAAAAAAAAAAAAQ", 0, 50, 35)],
)
def test_partition_of_the_metadata_topic(topic_id: str, partition: int, partitions: int, expected: int) -> None:
    """Reported by ``RemoteLogMetadataTopicPartitioner`` of Kafka 4.3.1."""
    assert metadata_partition(TopicIdPartition("any", uuid_from_text(topic_id), partition), partitions) == expected


def test_bad_records_are_reported_with_their_place() -> None:
    finished = bytes.fromhex(KAFKA_BYTES["finished"][0])
    with pytest.raises(BadLengthError, match=r"x\.log, byte 166: RemoteLogSegmentMetadataUpdateRecord: expected its end"):
        read_remote_log_record(finished + b"\x00", file="x.log", position=100)
    with pytest.raises(BadValueError, match="SegmentState of remote log metadata: expected one of 0, 1, 2, 3, found 4"):
        read_remote_log_record(finished[:-2] + b"\x04\x00")
    with pytest.raises(BadValueError, match="api key of a message: expected one of 0, 1, 2, 3, found 4"):
        read_remote_log_record(b"\x01\x04\x00")
    for size in range(len(finished)):
        with pytest.raises(FormatError):
            read_remote_log_record(finished[:size])
