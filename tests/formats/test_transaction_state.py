"""Records of ``__transaction_state``, as Kafka's own dump tool prints them."""

import json
import os
import re

import pytest
from kafka_file_writers import write_transaction_state
from manifests import FIXTURES

from formats.errors import FormatError
from formats.metadata.transaction_state import read_transaction_state
from snaprebuild.inspect.transactions import find_transaction_states
from snaprebuild.snapshots.source.log_records import log_records

DUMPED = re.compile(r'^\| offset: (\d+) .*key: .*"transactionalId":"([^"]+)".* payload: (\{.*\})$', re.MULTILINE)
TWO_PHASE = {"producerId": 7, "producerEpoch": 3, "transactionTimeoutMs": 2**31 - 1, "transactionStatus": 1}


@pytest.mark.parametrize("fixture", ["txn-state", "txn-state4"])
def test_what_kafka_dumps(fixture: str) -> None:
    for directory in find_transaction_states([str(FIXTURES / fixture / "logs")]):
        dumps = sorted((FIXTURES / fixture / "expected").glob(f"{os.path.basename(directory.path)}-*.txt"))
        expected = [
            (int(offset), name, value["producerId"], value["producerEpoch"], value["transactionTimeoutMs"])
            for dump in dumps
            for offset, name, payload in DUMPED.findall(dump.read_text())
            if (value := json.loads(payload)["data"])
        ]
        states = [
            (each.offset, read_transaction_state(each.key or b"", each.value)) for each in log_records(directory) if each.value
        ]
        found = [(at, each.transactional_id, each.producer_ids[0], each.producer_epoch, each.timeout_ms) for at, each in states]
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
