"""AlterPartition and Fetch: values, versions, and what is no message."""

from dataclasses import replace

import pytest
import replication_codec
from hypothesis import given
from hypothesis import strategies as st
from replication_codec import (
    read_alter_partition_request,
    read_alter_partition_response,
    read_replication_message,
    replica_of_fetch,
    versions_of,
    write_alter_partition_request,
    write_alter_partition_response,
    write_replication_message,
)
from strategies import INT16, INT32, INT64

from formats.errors import BadLengthError, BadVersionError, LimitExceededError, TruncatedError
from formats.message_schema import load_schemas
from formats.metadata.replication_messages import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    ProposedPartition,
    ReplicaState,
    ReplicationMessage,
    fetch_with_replica,
)

TOPIC_IDS = st.sampled_from([bytes([number]) * 16 for number in range(3)])
INT8 = st.integers(-128, 127)
MEMBERS = st.lists(st.builds(IsrMember, INT32, INT64), max_size=4).map(tuple)
PROPOSED = st.builds(ProposedPartition, TOPIC_IDS, INT32, INT32, MEMBERS, INT8, INT32)
ALTERED = st.builds(AlteredPartition, TOPIC_IDS, INT32, INT16, INT32, INT32, st.lists(INT32, max_size=4).map(tuple), INT8, INT32)
REQUESTS = st.builds(AlterPartitionRequest, INT32, INT64, st.lists(PROPOSED, max_size=5).map(tuple))
RESPONSES = st.builds(AlterPartitionResponse, INT32, INT16, st.lists(ALTERED, max_size=5).map(tuple))

REQUEST = AlterPartitionRequest(
    1, 15, (ProposedPartition(bytes(range(16)), 7, 3, (IsrMember(1, 15), IsrMember(2, 300), IsrMember(3)), 0, 9),)
)


@given(REQUESTS)
def test_a_request_round_trip(request_: AlterPartitionRequest) -> None:
    assert read_alter_partition_request(write_alter_partition_request(request_, 3), 3) == request_
    without = tuple(replace(each, isr=tuple(IsrMember(member.broker_id) for member in each.isr)) for each in request_.partitions)
    assert read_alter_partition_request(write_alter_partition_request(request_, 2), 2) == replace(request_, partitions=without)


@given(RESPONSES, st.sampled_from([2, 3]))
def test_a_response_round_trip(response: AlterPartitionResponse, version: int) -> None:
    assert read_alter_partition_response(write_alter_partition_response(response, version), version) == response


def test_bytes_by_hand() -> None:
    """Field by field from the schema: compact arrays, an empty tagged section after each structure."""
    head = "00000001 000000000000000f" + "02" + bytes(range(16)).hex() + "02" + "00000007 00000003"
    tail = "00 00000009" + "00 00 00"
    members = "04" + "00000001 000000000000000f 00" + "00000002 000000000000012c 00" + "00000003 ffffffffffffffff 00"
    assert write_alter_partition_request(REQUEST, 3) == bytes.fromhex(head + members + tail)
    assert write_alter_partition_request(REQUEST, 2) == bytes.fromhex(head + "04 00000001 00000002 00000003" + tail)


@pytest.mark.parametrize("version", range(12, versions_of(ReplicationMessage.FETCH_REQUEST).highest + 1))
def test_who_fetches(version: int) -> None:
    """Until version 14 a field in its place, and no epoch; since then the tagged field 1, left out where both have their defaults."""
    kind = ReplicationMessage.FETCH_REQUEST
    defaults = load_schemas("replication-messages")[kind].body.defaults()
    as_consumer = write_replication_message(kind, defaults, version)
    written = write_replication_message(kind, fetch_with_replica(defaults, version, ReplicaState(2, 300)), version)
    found = replica_of_fetch(read_replication_message(kind, written, version), version)
    assert replica_of_fetch(read_replication_message(kind, as_consumer, version), version) == ReplicaState(-1, -1)
    if version < 15:
        assert found == ReplicaState(2, -1)
        assert (as_consumer[:4].hex(), written[:4].hex()) == ("ffffffff", "00000002")
    else:
        assert found == ReplicaState(2, 300)
        assert written == as_consumer[:-1] + bytes.fromhex("01 01 0d 00000002 000000000000012c 00")


@pytest.mark.parametrize("kind", ReplicationMessage)
def test_versions_that_are_none(kind: ReplicationMessage) -> None:
    for version in (versions_of(kind).lowest - 1, versions_of(kind).highest + 1):
        with pytest.raises(BadVersionError):
            read_replication_message(kind, b"", version)


def test_more_and_less_than_a_message() -> None:
    written = write_alter_partition_request(REQUEST, 3)
    with pytest.raises(BadLengthError, match="expected its end, found 1 bytes more"):
        read_alter_partition_request(written + b"\0", 3)
    for size in range(len(written)):
        with pytest.raises(TruncatedError):
            read_alter_partition_request(written[:size], 3)


def test_larger_than_a_broker_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_codec, "REPLICATION_MESSAGE_BYTES_MAX", 50)
    with pytest.raises(LimitExceededError, match="at most 50 bytes"):
        read_alter_partition_request(write_alter_partition_request(REQUEST, 3), 3)
