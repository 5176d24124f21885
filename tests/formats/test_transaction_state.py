"""Records of ``__transaction_state``, as Kafka's own dump tool prints them."""

import json
import os
import re
from typing import Any

import pytest
from kafka_file_writers import write_transaction_state
from manifests import FIXTURES

from formats.errors import FormatError
from formats.metadata.transaction_state import TransactionState, TransactionStatus, read_transaction_state, read_transactional_id
from snaprebuild.inspect.coordinator_records import find_transaction_states
from snaprebuild.snapshots.source.log_records import log_records

DUMPED = re.compile(r'^\| offset: (\d+) .*key: .*"transactionalId":"([^"]+)".* payload: (\{.*\})$', re.MULTILINE)
FIELDS = (
    "producerId",
    "producerEpoch",
    "transactionTimeoutMs",
    "transactionStatus",
    "transactionLastUpdateTimestampMs",
    "transactionStartTimestampMs",
)
TWO_PHASE = {"producerId": 7, "producerEpoch": 3, "transactionTimeoutMs": 2**31 - 1, "transactionStatus": 1}


def _partitions(dumped: list[dict[str, Any]] | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((each["topic"], tuple(each["partitionIds"])) for each in dumped or ())


def _fields(state: TransactionState) -> tuple[int, ...]:
    return (
        state.producer_ids[0],
        state.producer_epoch,
        state.timeout_ms,
        state.status,
        state.updated_ms,
        state.started_ms,
    )


@pytest.mark.parametrize("fixture", ["txn-state", "txn-state4"])
def test_what_kafka_dumps(fixture: str) -> None:
    for directory in find_transaction_states([str(FIXTURES / fixture / "logs")]):
        dumps = sorted((FIXTURES / fixture / "expected").glob(f"{os.path.basename(directory.path)}-*.txt"))
        expected = [
            (int(offset), name, *(value[field] for field in FIELDS), _partitions(value["transactionPartitions"]))
            for dump in dumps
            for offset, name, payload in DUMPED.findall(dump.read_text())
            if (value := json.loads(payload)["data"])
        ]
        states = [
            (each.offset, read_transaction_state(each.key or b"", each.value)) for each in log_records(directory) if each.value
        ]
        found = [(at, each.transactional_id, *_fields(each), each.partitions) for at, each in states]
        assert len(found) > 90
        assert found == expected
        assert not any(each.is_two_phase for _, each in states)


@pytest.mark.parametrize("version", [0, 1])
def test_a_transaction_that_never_expires(version: int) -> None:
    state = read_transaction_state(*write_transaction_state("flink-1", TWO_PHASE, version))
    assert (state.transactional_id, state.producer_ids, state.producer_epoch, state.is_two_phase) == ("flink-1", (7,), 3, True)


def test_other_producer_ids_of_a_record() -> None:
    fields = {**TWO_PHASE, "previousProducerId": 6, "nextProducerId": 9}
    assert read_transaction_state(*write_transaction_state("a", fields)).producer_ids == (7, 6, 9)


def test_what_follows_no_schema() -> None:
    key, value = write_transaction_state("a", TWO_PHASE)
    for bad_key, bad_value in ((key, b""), (key, value[:9]), (b"", value), (key, b"\0\2" + value[2:])):
        with pytest.raises(FormatError):
            read_transaction_state(bad_key, bad_value)
    unknown = {**TWO_PHASE, "transactionStatus": 8}
    with pytest.raises(FormatError, match="transactionStatus"):
        read_transaction_state(*write_transaction_state("a", unknown))


def test_the_partitions_of_a_transaction() -> None:
    fields = {**TWO_PHASE, "transactionStatus": 2, "transactionPartitions": [{"topic": "t", "partitionIds": [0, 2]}]}
    key, value = write_transaction_state("a", fields)
    state = read_transaction_state(key, value)
    assert (read_transactional_id(key), state.status) == ("a", TransactionStatus.PREPARE_COMMIT)
    assert [state.has_partition(*each) for each in (("t", 0), ("t", 1), ("t", 2), ("u", 0))] == [True, False, True, False]
