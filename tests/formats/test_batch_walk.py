"""Guesses about where batches begin: what a search finds, what it may not mislead, and what proves a walk."""

import functools

import numpy as np
import pytest
from header_engines import read_fast, read_reference, segment
from hypothesis import given
from hypothesis import strategies as st
from strategies import GeneratedLog, LogBatch, batch_of, header_of

from formats.log import batch_headers
from formats.log.batch_walk import chain_end, seeds_from_search, walk_by_length, walk_from_seeds

EPOCH = 7
LENGTH_POSITION = 8


def data_batch(offset: int, payload: bytes, epoch: int = EPOCH) -> LogBatch:
    return batch_of(header_of(offset, partition_leader_epoch=epoch, producer_id=7, producer_epoch=0, base_sequence=0), payload)


# Leader epoch and magic in places where no batch begins: alone, as the beginning of a whole batch, and as a chain of batches.
PATTERN = EPOCH.to_bytes(4, "big") + b"\x02"
WHOLE = data_batch(5, b"decoy").data
PAYLOADS = (b"", PATTERN, b"x" * 50 + PATTERN + bytes(30), WHOLE, WHOLE * 4, b"\x02" * 40, bytes(100))


@functools.cache
def searched_log(count: int = 900, epoch_at: int | None = None) -> GeneratedLog:
    def epoch(row: int) -> int:
        return EPOCH if epoch_at is None or row < epoch_at else EPOCH + 1

    return GeneratedLog(tuple(data_batch(row, PAYLOADS[row % len(PAYLOADS)], epoch(row)) for row in range(count)))


def blocks_of(data: bytes) -> tuple[bytearray, np.ndarray]:
    memory = bytearray(data + bytes(100))
    return memory, np.frombuffer(memory, dtype=np.uint8)


def test_a_search_finds_true_beginnings_among_decoys() -> None:
    log = searched_log()
    data, buffer = blocks_of(log.data)
    seeds = seeds_from_search(data, buffer, len(log.data), LENGTH_POSITION)
    assert seeds is not None
    assert len(seeds) >= 16
    assert (np.diff(seeds) > 0).all()
    # A pattern alone does not survive; a decoy that is followed by another one does, and the proof is there for it.
    inside = set(seeds.tolist()) - set(log.positions)
    assert all(log.data[at : at + len(WHOLE)] == WHOLE for at in inside)


def test_without_decoys_the_search_needs_no_second_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    log = GeneratedLog(tuple(data_batch(row, b"x" * (row % 90)) for row in range(2000)))
    plain_walks = []

    def counted(*args: object, **options: object) -> object:
        plain_walks.append(args)
        return walk_by_length(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_headers, "walk_by_length", counted)
    reading = read_fast(segment(log.data))
    assert (reading.headers, reading.positions) == (log.headers, log.positions)
    assert plain_walks == []


@pytest.mark.parametrize("epoch_at", [None, 1, 17, 450, 899])
def test_a_searched_log_reads_as_the_grammar_does(epoch_at: int | None) -> None:
    log = searched_log(epoch_at=epoch_at)
    for block_bytes in (60_000, 1 << 20):
        reading = read_fast(segment(log.data), block_bytes=block_bytes)
        assert (reading.headers, reading.positions) == (log.headers, log.positions)


@given(cut=st.integers(0), change=st.integers(0, 255), zeros=st.sampled_from((0, 0, 12, 3000)))
def test_a_searched_log_with_a_changed_byte_and_a_tail(cut: int, change: int, zeros: int) -> None:
    log = searched_log(500)
    data = bytearray(log.data)
    data[cut % len(data)] = change
    source = segment(bytes(data[: len(data) - cut % 200]) + bytes(zeros))
    reference, fast = read_reference(source), read_fast(source)
    assert (fast.headers, fast.positions, fast.end) == (reference.headers, reference.positions, reference.end)


def test_a_search_that_does_not_pay_is_left() -> None:
    for payload, count in ((bytes(10_000), 100), (b"", 15), (b"", 100)):
        data, buffer = blocks_of(GeneratedLog(tuple(data_batch(row, payload) for row in range(count))).data)
        assert seeds_from_search(data, buffer, len(buffer) - 100, LENGTH_POSITION) is None


def test_chains_longer_than_the_limit_are_left_to_the_plain_walk() -> None:
    log = GeneratedLog(tuple(data_batch(row, b"") for row in range(600)))
    _, buffer = blocks_of(log.data)
    seeds = np.asarray(log.positions[:20])
    assert walk_from_seeds(buffer, len(log.data), seeds, LENGTH_POSITION) is None
    seeds = np.asarray(log.positions[::200])
    assert walk_from_seeds(buffer, len(log.data), seeds, LENGTH_POSITION).tolist() == log.positions  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("offsets", "lengths", "filled", "expected"),
    [
        ([0, 100, 200], [88, 88, 88], 300, (3, 300)),
        ([0, 100, 200], [88, 88, 88], 299, (2, 200)),  # the last one is not whole
        ([0, 100, 200], [88, 88, 5], 217, (2, 200)),  # nor is its header
        ([0, 100], [88, 500], 110, (1, 100)),
        ([0], [500], 110, (0, 0)),
        ([0, 100, 200], [88, 89, 88], 300, None),  # does not end where the next begins
        ([0, 100, 200], [88, 87, 88], 300, None),
        ([4, 100], [84, 88], 188, None),  # does not begin at the first byte
        ([0, 100, 113], [88, 1, 175], 300, None),  # a length on which a broker throws
        ([0, 100], [88, -1], 300, None),
    ],
)
def test_what_proves_a_walk(offsets: list[int], lengths: list[int], filled: int, expected: tuple[int, int] | None) -> None:
    assert chain_end(np.asarray(offsets), np.asarray(lengths), filled) == expected
