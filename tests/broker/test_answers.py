"""The answers of a leader, by ``replay.broker_answer`` from what ``replay.producer_trace`` kept, beside those of Kafka's classes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from kafka_classpath import KAFKA_VERSION, OTHER_VERSIONS
from oracle import Oracle
from simulated_broker import SimulatedBroker
from strategies import TRANSACTIONAL, batch_of, header_of

from formats.batch_headers import BytesSegment
from snaprebuild.replay.broker_answer import Answer, Attempt, ProducerMemory, answer_to
from snaprebuild.replay.producer_trace import ProducerTrace
from snaprebuild.replay.segment_summary import summarise_pieces

pytestmark = pytest.mark.kafka

LOGS = 60
UNKNOWN = 999_999


@pytest.fixture(scope="module", params=[KAFKA_VERSION, *OTHER_VERSIONS])
def versioned(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    with Oracle(request.param) as running:
        yield running


def attempts_on(memory: ProducerMemory | None, rng: random.Random, *, bumps: bool) -> list[Attempt]:
    """Every epoch around that of the producer with every sequence around its batches, one record or as many as a batch had."""
    epoch = 0 if memory is None else memory.epoch
    batches = () if memory is None else memory.batches
    sizes = {first: (last - first) % 2**31 + 1 for first, last in batches if first >= 0}
    sequences = {0, 1, 7, *sizes, *(max(first - 1, 0) for first in sizes), *(last + 1 for _, last in batches)}
    sequences |= {last + 2 for _, last in batches}
    return [
        Attempt(at, sequence, records, is_transactional, is_transactional and bumps and rng.random() < 0.5)
        for at in (epoch - 1, epoch, epoch + 1)
        if 0 <= at < 2**15
        for sequence in sorted(sequences)
        for records in {1, sizes.get(sequence, 2)}
        for is_transactional in (False, True)
    ]


def bytes_of(producer_id: int, offset: int, attempt: Attempt) -> bytes:
    header = header_of(
        offset,
        attributes=TRANSACTIONAL if attempt.is_transactional else 0,
        last_offset_delta=attempt.records - 1,
        producer_id=producer_id,
        producer_epoch=attempt.epoch,
        base_sequence=attempt.base_sequence,
        record_count=attempt.records,
    )
    return batch_of(header, b"").data


def test_answers_are_those_of_kafka(versioned: Oracle) -> None:
    major, minor = map(int, versioned.version.split(".")[:2])
    reached: Counter[Answer] = Counter()
    differ_after_a_start = 0
    for seed in range(LOGS):
        rng = random.Random(seed)
        broker = SimulatedBroker(seed, 3)
        log = b"".join(segment.data for segment in broker.segments)
        for producer_id in [*rng.sample(sorted(broker.whole.entries), min(3, len(broker.whole.entries))), UNKNOWN]:
            (piece,) = summarise_pieces(BytesSegment(log), 0, (), is_last=True, traced_producer=producer_id)
            trace = ProducerTrace()
            trace.take(piece.traced, producer_id)
            memories = (trace.memory, None if trace.entry is None else ProducerMemory.loaded(trace.entry))
            attempts = attempts_on(trace.memory, rng, bumps=major >= 4)
            batches = [(bytes_of(producer_id, broker.end_offset, each), each.bumps_epochs) for each in attempts]
            told = []
            for memory, reload in zip(memories, (False, True), strict=True):
                ours = [answer_to(memory, attempt, (major, minor)).answer for attempt in attempts]
                reached.update(ours)
                told.append(ours)
                theirs = versioned.answers(log, batches, reload=reload)
                wrong = [each for each in zip(attempts, ours, theirs, strict=True) if each[1].value != each[2]]
                assert not wrong, (seed, producer_id, reload, memory, wrong[:3])
            differ_after_a_start += told[0] != told[1]
    expected = {
        Answer.ACCEPTED,
        Answer.DUPLICATE,
        Answer.OUT_OF_ORDER_SEQUENCE,
        Answer.INVALID_PRODUCER_EPOCH,
        Answer.INVALID_TXN_STATE,
    }
    assert {answer for answer, count in reached.items() if count >= 20} == expected
    assert differ_after_a_start >= LOGS // 4
