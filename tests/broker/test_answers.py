"""The answers of a leader, by ``inspect.broker_answer`` from what ``inspect.producer_trace`` kept, equal those of Kafka's classes."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_classpath import BEFORE_3, BEFORE_THE_LAST_CHANGE, KAFKA_VERSION, OTHER_VERSIONS, java_output
from log_dirs import batch, snapshot_bytes, snapshot_name, write_partition
from msgspec.structs import astuple
from oracle import Oracle
from simulated_broker import SimulatedBroker
from strategies import TRANSACTIONAL, batch_of, header_of

from formats.log.batch_headers import BytesSegment
from snaprebuild.inspect.broker_answer import AnswerKind, Attempt, BrokerAnswer, ProducerMemory, answer_to
from snaprebuild.inspect.producer_trace import ProducerTrace, TraceAnalysis, traced_rows
from snaprebuild.replay.segment_summary import summarise_pieces

pytestmark = pytest.mark.kafka

LOGS = 60
UNKNOWN = 999_999


@pytest.fixture(
    scope="module",
    params=[KAFKA_VERSION, BEFORE_THE_LAST_CHANGE, *(pytest.param(each, marks=pytest.mark.night) for each in OTHER_VERSIONS)],
)
def versioned(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    with Oracle(request.param) as running:
        yield running


def attempts_on(memory: ProducerMemory | None, rng: random.Random, *, bumps: bool) -> list[Attempt]:
    """Every epoch around that of the producer with every sequence around its batches, one record or as many as a batch had."""
    epoch = 0 if memory is None else memory.epoch
    batches = () if memory is None else memory.batches
    ranges = [(each.first_sequence, each.last_sequence) for each in batches]
    sizes = {first: (last - first) % 2**31 + 1 for first, last in ranges if first >= 0}
    lasts = [each.last_sequence for each in batches]
    sequences = {
        0,
        1,
        7,
        *sizes,
        *(max(first - 1, 0) for first in sizes),
        *((last + more) % 2**31 for last in lasts for more in (1, 2)),
    }
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


def trace_of(log: bytes, producer_id: int) -> ProducerTrace:
    (piece,) = summarise_pieces(BytesSegment(log), 0, (), is_last=True, extras=[TraceAnalysis(producer_id)])
    trace = ProducerTrace()
    trace.take(traced_rows(piece.contents), producer_id)
    return trace


def in_words(answer: BrokerAnswer) -> str:
    return answer.answer.value if answer.first_offset is None else f"{answer.answer.value} {answer.first_offset}"


def memories_of(trace: ProducerTrace) -> tuple[ProducerMemory | None, ProducerMemory | None]:
    """While the broker runs, and after a start."""
    return trace.memory, None if trace.entry is None else ProducerMemory.loaded(trace.entry)


def compare(oracle: Oracle, log: bytes, end_offset: int, producer_id: int, rng: random.Random) -> list[list[AnswerKind]]:
    """Our answers while it runs and after a start, which are those of Kafka."""
    major, minor = map(int, oracle.version.split(".")[:2])
    trace = trace_of(log, producer_id)
    attempts = attempts_on(trace.memory, rng, bumps=major >= 4)
    batches = [(bytes_of(producer_id, end_offset, each), each.transaction_version_2) for each in attempts]
    reported = []
    for memory, reload in zip(memories_of(trace), (False, True), strict=True):
        ours = [answer_to(memory, attempt, (major, minor)) for attempt in attempts]
        theirs = oracle.answers(log, batches, reload=reload)
        wrong = [each for each in zip(attempts, map(in_words, ours), theirs, strict=True) if each[1] != each[2]]
        assert not wrong, (producer_id, reload, memory, wrong[:3])
        reported.append([each.answer for each in ours])
    return reported


def questions(logs: int) -> Iterator[tuple[bytes, int, int, random.Random]]:
    """This many logs, each with its end, with some of its producers, and with one that it does not know."""
    for seed in range(logs):
        rng, broker = random.Random(seed), SimulatedBroker(seed, 3)
        log = b"".join(segment.data for segment in broker.segments)
        known = sorted(broker.whole.entries)
        for producer_id in [*rng.sample(known, min(3, len(known))), UNKNOWN]:
            yield log, broker.end_offset, producer_id, rng


def test_answers_are_those_of_kafka(versioned: Oracle) -> None:
    reached: Counter[AnswerKind] = Counter()
    differ_after_a_start = 0
    for log, end_offset, producer_id, rng in questions(LOGS):
        running, restarted = compare(versioned, log, end_offset, producer_id, rng)
        reached.update([*running, *restarted])
        differ_after_a_start += running != restarted
    expected = {
        AnswerKind.ACCEPTED,
        AnswerKind.DUPLICATE,
        AnswerKind.OUT_OF_ORDER_SEQUENCE,
        AnswerKind.INVALID_PRODUCER_EPOCH,
        AnswerKind.INVALID_TXN_STATE,
    }
    assert {answer for answer, count in reached.items() if count >= 20} == expected
    assert differ_after_a_start >= LOGS // 4


@pytest.mark.parametrize(
    "version", [BEFORE_3[0], *(pytest.param(each, marks=pytest.mark.night) for each in BEFORE_3[1:-1]), BEFORE_3[-1]]
)
def test_answers_are_those_of_kafka_before_3(version: str, tmp_path: Path) -> None:
    major, minor = map(int, version.split(".")[:2])
    asked, ours = [], []
    for log, end_offset, producer_id, rng in questions(LOGS // 3):
        trace = trace_of(log, producer_id)
        attempts = attempts_on(trace.memory, rng, bumps=False)
        for word, memory in zip(("log", "reload"), memories_of(trace), strict=True):
            asked += [f"{word} {log.hex()}", *(f"batch {bytes_of(producer_id, end_offset, each).hex()}" for each in attempts)]
            ours += [(in_words(answer_to(memory, each, (major, minor))), producer_id, memory, each) for each in attempts]
    theirs = java_output("LeaderBefore3", arguments=[tmp_path], lines=asked, version=version)
    wrong = [(*each, answer) for each, answer in zip(ours, theirs, strict=True) if each[0] != answer]
    assert not wrong, wrong[:3]
    reached = Counter(answer.split()[0] for answer in theirs)
    fenced = "ProducerFencedException" if (major, minor) < (2, 7) else "InvalidProducerEpochException"
    expected = {"accepted", "duplicate", "OutOfOrderSequenceException", "InvalidTxnStateException", fenced}
    expected |= {"UnknownProducerIdException"} if (major, minor) < (2, 5) else set()
    assert {answer for answer, count in reached.items() if count >= 20} == expected


@pytest.mark.parametrize("records", [1, 4])
def test_sequences_that_wrap(versioned: Oracle, records: int) -> None:
    """Batches that end before 2^31 - 1, at it, or continue after it with 0."""
    reached: Counter[AnswerKind] = Counter()
    for first in range(2**31 - 2 * records - 2, 2**31):
        attempts = [Attempt(0, (first + at * records) % 2**31, records) for at in range(3)]
        log = b"".join(bytes_of(7, at * records, attempt) for at, attempt in enumerate(attempts))
        reported = compare(versioned, log, 3 * records, 7, random.Random(first))
        reached.update(answer for each in reported for answer in each)
    assert {AnswerKind.ACCEPTED, AnswerKind.DUPLICATE, AnswerKind.OUT_OF_ORDER_SEQUENCE} <= reached.keys()


@pytest.mark.parametrize(("recovery_point", "is_clean"), [(0, False), (6, False), (16, False), (16, True)])
def test_a_started_broker_holds_one_batch(tmp_path: Path, recovery_point: int, is_clean: bool) -> None:
    """Also after an unclean stop, whatever was flushed: the recovery takes a snapshot at the log end, and that is what is loaded."""
    now_ms = int(time.time() * 1000)
    data = [batch(at, producer_id=7, sequence=at, count=2, timestamp=now_ms) for at in range(0, 16, 2)]
    directory = write_partition(tmp_path / "t-0", {0: b"".join(data[:4]), 8: b"".join(data[4:])})
    trace = trace_of(b"".join(data), 7)
    assert trace.entry is not None
    if is_clean:
        (directory / snapshot_name(16)).write_bytes(snapshot_bytes([trace.entry]))
    reported = java_output("StartedLog", arguments=[directory, recovery_point, str(is_clean).lower()])
    held = [tuple(map(int, line.split())) for line in reported]
    assert held == [(7, *astuple(each)) for each in ProducerMemory.loaded(trace.entry).batches] == [(7, 14, 15, 14)]
    assert len(trace.in_memory) == 5
