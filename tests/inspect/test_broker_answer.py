"""Answers of brokers, case by case: from Kafka's classes of 4.3.1, and from the sources of older ones.

``tests/broker/test_answers.py`` asks the classes of versions from 2.4 to 4.3 again, about many more.
"""

import pytest

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.inspect.broker_answer import VERSIONS, AnswerKind, Attempt, BatchInMemory, ProducerMemory, answer_to
from snaprebuild.replay.difference import next_sequence

A, D = AnswerKind.ACCEPTED, AnswerKind.DUPLICATE
OUT, INVALID, FENCED = AnswerKind.OUT_OF_ORDER_SEQUENCE, AnswerKind.INVALID_PRODUCER_EPOCH, AnswerKind.PRODUCER_FENCED
UNKNOWN, TXN = AnswerKind.UNKNOWN_PRODUCER_ID, AnswerKind.INVALID_TXN_STATE


def holding(*sequences: tuple[int, int], txn_first_offset: int | None = None) -> ProducerMemory:
    """Epoch 3, and batches that begin at 100 more than their sequence."""
    return ProducerMemory(3, tuple(BatchInMemory(*each, each[0] + 100) for each in sequences), txn_first_offset)


FIVE = holding(*((at, at) for at in range(5, 10)))
ONE = holding((9, 9))
BARE = holding()
EMPTY = ProducerMemory(-1)
OPEN = holding((9, 9), txn_first_offset=40)
WRAPPED = holding((2**31 - 2, 1))

CASES = [
    # memory, epoch, sequence, (2.4, 2.5, 2.6, 2.7, 4.0, 4.4)
    (None, 3, 10, (UNKNOWN, A, A, A, A, A)),
    (None, 3, 0, (A, A, A, A, A, A)),
    (EMPTY, 3, 10, (UNKNOWN, A, A, A, A, A)),
    (EMPTY, -1, 10, (UNKNOWN, A, A, A, A, A)),
    (FIVE, 3, 10, (A, A, A, A, A, A)),
    (FIVE, 3, 9, (D, D, D, D, D, D)),
    (FIVE, 3, 5, (D, D, D, D, D, D)),
    (FIVE, 3, 4, (OUT, OUT, OUT, OUT, OUT, OUT)),
    (FIVE, 3, 11, (OUT, OUT, OUT, OUT, OUT, OUT)),
    (ONE, 3, 5, (OUT, OUT, OUT, OUT, OUT, OUT)),
    (ONE, 3, 9, (D, D, D, D, D, D)),
    (ONE, 2, 9, (FENCED, FENCED, FENCED, INVALID, INVALID, INVALID)),
    (ONE, 4, 0, (A, A, A, A, A, A)),
    (ONE, 4, 10, (OUT, OUT, OUT, OUT, OUT, OUT)),
    (BARE, 3, 0, (A, A, A, A, A, A)),
    (BARE, 3, 10, (UNKNOWN, OUT, OUT, OUT, OUT, OUT)),
    (OPEN, 3, 10, (TXN, TXN, TXN, TXN, TXN, TXN)),
    (OPEN, 3, 9, (D, D, D, D, D, D)),
    (OPEN, 3, 12, (OUT, OUT, OUT, OUT, OUT, OUT)),
    (WRAPPED, 3, 2, (A, A, A, A, A, A)),
]


@pytest.mark.parametrize(("memory", "epoch", "sequence", "answers"), CASES)
def test_each_version_answers_as_its_source_says(
    memory: ProducerMemory | None, epoch: int, sequence: int, answers: tuple[AnswerKind, ...]
) -> None:
    versions = ((2, 4), (2, 5), (2, 6), (2, 7), (4, 0), (4, 4))
    reported = tuple(answer_to(memory, Attempt(epoch, sequence), version) for version in versions)
    assert tuple(each.answer for each in reported) == answers
    assert all(each.reason for each in reported)


def test_a_retry_is_the_same_batch_and_not_a_part_of_it() -> None:
    memory = holding((0, 4), (5, 9))
    assert [answer_to(memory, Attempt(3, at, 5), (4, 3)).first_offset for at in (0, 5, 10)] == [100, 105, None]
    assert "acknowledged with offset 105" in answer_to(memory, Attempt(3, 5, 5), (4, 3)).reason
    assert answer_to(memory, Attempt(3, 5, 4), (4, 3)).answer is OUT
    assert answer_to(WRAPPED, Attempt(3, 2**31 - 2, 4), (4, 3)).answer is D
    assert answer_to(holding((7, 2**31 - 1)), Attempt(3, 0), (4, 3)).answer is A


def test_a_transaction_continues_inside_and_not_outside() -> None:
    assert answer_to(OPEN, Attempt(3, 10, is_transactional=True), (4, 3)).answer is A
    assert "open from 40" in answer_to(OPEN, Attempt(3, 10), (4, 3)).reason


@pytest.mark.parametrize(("version", "answer"), [((3, 9), A), ((4, 0), A), ((4, 1), OUT), ((4, 4), OUT)])
def test_a_producer_of_version_2_begins_with_0_where_nothing_is_known(version: tuple[int, int], answer: AnswerKind) -> None:
    attempt = Attempt(3, 10, is_transactional=True, transaction_version_2=True)
    assert answer_to(None, attempt, version).answer is answer
    assert answer_to(None, Attempt(3, 0, is_transactional=True, transaction_version_2=True), version).answer is A
    assert answer_to(ONE, attempt, version).answer is A


def test_a_group_coordinator_has_no_sequences() -> None:
    memory = holding((-1, -1), txn_first_offset=40)
    assert answer_to(memory, Attempt(3, -1, is_transactional=True), (4, 3)).answer is A
    assert answer_to(memory, Attempt(2, -1, is_transactional=True), (4, 3)).answer is INVALID
    assert answer_to(memory, Attempt(2, -1, is_transactional=True), (2, 6)).answer is FENCED


def test_a_loaded_entry_is_one_batch_at_most() -> None:
    assert ProducerMemory.loaded(ProducerEntry(7, 3, 9, 99, 4, 5000, 3, -1)) == ProducerMemory(3, (BatchInMemory(5, 9, 95),))
    assert ProducerMemory.loaded(ProducerEntry(7, 3, 1, 99, 3, 5000, 3, 80)) == ProducerMemory(
        3, (BatchInMemory(2**31 - 2, 1, 96),), 80
    )
    assert ProducerMemory.loaded(ProducerEntry(7, 3, -1, 99, 3, 5000, 3, 80)) == ProducerMemory(3, (BatchInMemory(-1, -1, 96),), 80)
    assert ProducerMemory.loaded(ProducerEntry(7, 3, 77, -1, 5, 5000, 3, -1)) == BARE


def test_sequences_wrap() -> None:
    assert [next_sequence(last) for last in (-1, 0, 9, 2**31 - 1)] == [0, 1, 10, 0]


def test_the_versions_are_those_that_there_were() -> None:
    assert [version for version in ((2, 3), (2, 8), (2, 9), (3, 0), (3, 9), (3, 10), (4, 0), (4, 5)) if version in VERSIONS] == [
        (2, 8),
        (3, 0),
        (3, 9),
        (4, 0),
    ]
