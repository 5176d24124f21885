"""Ranges of a segment, joined, against the segment read whole: for every log, every damage and every choice of positions."""

import pickle
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from budgets import FEWER_EXAMPLES, search_until
from header_engines import read_reference, segment
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from msgspec.structs import replace
from simulated_broker import SimulatedBroker, idempotent_log
from strategies import GeneratedLog, block_sizes, logs

from formats.errors import FormatError, TruncatedError
from formats.log.batch_headers import BytesSegment, TailKind
from snaprebuild.inspect.producer_trace import TraceAnalysis
from snaprebuild.inspect.segment_statistics import StatisticsAnalysis
from snaprebuild.replay.segment_summary import BAD_CRC_LISTED_MAX, SegmentSummary, summarise_pieces
from snaprebuild.spark.segment_ranges import RangeSummary, WhyWhole, join_ranges, summarise_range


def plain(value: object) -> object:
    """A value in which arrays and errors can be compared, types of columns too."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if isinstance(value, FormatError):
        return type(value), str(value)
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return value


def whole_of(data: bytes, base: int, block_bytes: int, **options: bool | int | None) -> SegmentSummary:
    (whole,) = summarise_pieces(BytesSegment(data), base, (), is_last=True, block_bytes=block_bytes, **options)  # type: ignore[arg-type]
    return whole


def joined_whole(parts: Sequence[RangeSummary]) -> SegmentSummary | WhyWhole:
    """Without cuts."""
    found = join_ranges(parts)
    if isinstance(found, WhyWhole):
        return found
    (whole,) = found
    return whole


def parts_of(data: bytes, base: int, positions: Sequence[int], block_bytes: int, **options: object) -> list[RangeSummary]:
    """Last one first: no range knows of another."""
    ranges = list(pairwise((0, *positions, None)))
    source = BytesSegment(data)
    read = [
        summarise_range(source, base, start or 0, end, block_bytes=block_bytes, **options)  # type: ignore[arg-type]
        for start, end in reversed(ranges)
    ]
    return [part for pieces in pickle.loads(pickle.dumps(read[::-1])) for part in pieces]  # as a worker process hands them over


def check(
    data: bytes,
    base: int,
    positions: Sequence[int],
    block_bytes: int,
    cuts: Sequence[int] = (),
    *,
    is_last: bool = True,
    **options: bool | int | None,
) -> str:
    """The ranges join to the whole, cut or not, or say why not, exactly where that is so. Returns what came of it."""
    reading = read_reference(segment(data))
    pieces = summarise_pieces(BytesSegment(data), base, cuts, is_last=is_last, block_bytes=1 << 20, **options)  # type: ignore[arg-type]
    parts = parts_of(data, base, positions, block_bytes, cuts=cuts, **options)
    joined = join_ranges(parts, cuts, is_last=is_last)
    whole = pieces[-1]
    batches = {*reading.positions, reading.tail.position_bytes}
    if any(position not in batches and position < reading.tail.position_bytes for position in positions):
        assert joined is WhyWhole.CROSSED
        return "crossed"
    if any(piece.facts.disorder_offset is not None for piece in pieces):
        assert joined is WhyWhole.DISORDER
        return "disorder"
    assert isinstance(joined, tuple)
    assert sum(each.read_bytes for each in joined) == sum(part.read_bytes for part in parts)
    assert [plain(replace(each, read_bytes=0)) for each in joined] == [plain(replace(each, read_bytes=0)) for each in pieces]
    if positions and positions[-1] > reading.tail.position_bytes:
        return "behind damage"
    return "joined" if whole.tail.kind is TailKind.CLEAN else "damaged at the end"


@st.composite
def tails(draw: DrawFn) -> bytes:
    """Bytes that may follow the batches of a segment."""
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return bytes(draw(st.sampled_from((1, 17, 100, 3000))))
    if kind == 1:
        data = idempotent_log([1 << 50]).data
        return data[: draw(st.integers(1, len(data) - 1))]
    return draw(st.binary(max_size=80)) if kind == 2 else b""


@st.composite
def segments(draw: DrawFn) -> tuple[GeneratedLog, bytes]:
    """A log, and its bytes with whatever may have happened to them."""
    log = draw(logs(max_batches=25, is_dense=draw(st.booleans())))
    if draw(st.booleans()):
        log = SimulatedBroker(draw(st.integers(0, 2**64 - 1)), 3).log
    if log.batches and draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(log.batches) - 1))
        log = GeneratedLog((*log.batches[:at], *log.batches[at + 1 :], log.batches[at]))
    data = bytearray(log.data + draw(tails()))
    for position in draw(st.lists(st.sampled_from(log.positions), max_size=3)) if log.batches else ():
        data[position + draw(st.sampled_from((17, 20)))] ^= 1  # of the checksum; of magic 0 and 1 something else
    if log.batches and draw(st.integers(0, 5)) == 0:
        data[draw(st.sampled_from(log.positions)) + 16] = 9  # the magic
    if data and draw(st.integers(0, 5)) == 0:
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return log, bytes(data)


@st.composite
def cases(draw: DrawFn) -> tuple[bytes, int, list[int], int, list[int], dict[str, Any]]:
    log, data = draw(segments())
    base = max(0, (log.batches[0].header.base_offset if log.batches else 0) - draw(st.sampled_from((0, 0, 0, 1, 3, -1))))
    chosen = draw(st.sets(st.sampled_from(log.positions), max_size=draw(st.sampled_from((1, 5, 40))))) if log.batches else set()
    if data and draw(st.integers(0, 4)) == 0:
        chosen |= draw(st.sets(st.integers(0, len(data) - 1), min_size=1, max_size=3))
    producer = draw(st.sampled_from([None, 7, *(each.header.producer_id for each in log.batches[:5])]))
    # At, in and between batches, some of which begin a range, and after the last one.
    ends = [base, *(each.header.last_offset + 1 for each in log.batches)]
    around = st.sampled_from(ends).flatmap(lambda end: st.integers(end - 1, end + 2))
    cuts = sorted(each for each in draw(st.sets(around, max_size=draw(st.sampled_from((0, 1, 4, 12))))) if each > base)
    options: dict[str, Any] = {
        "is_last": draw(st.booleans()),
        "check_crc": draw(st.booleans()),
        "extras": ([StatisticsAnalysis()] if draw(st.booleans()) else [])
        + ([TraceAnalysis(producer)] if producer is not None and producer >= 0 else []),
    }
    return data, base, sorted(chosen - {0}), draw(block_sizes), cuts, options


@pytest.mark.full
def test_any_segment_split_anywhere() -> None:
    reached: Counter[tuple[str, bool]] = Counter()

    @settings(max_examples=FEWER_EXAMPLES // 2)
    @given(cases())
    def holds(case: tuple[bytes, int, list[int], int, list[int], dict[str, Any]]) -> None:
        data, base, positions, block_bytes, cuts, options = case
        reached[check(data, base, positions, block_bytes, cuts, **options), bool(cuts)] += 1

    outcomes = {"joined", "crossed", "disorder", "behind damage", "damaged at the end"}
    cut_too = {"joined", "crossed", "damaged at the end"}
    search_until(
        holds, lambda: {each for each, _ in reached} == outcomes and {each for each, is_cut in reached if is_cut} >= cut_too
    )
    assert {outcome for outcome, _ in reached} == outcomes, reached
    assert {outcome for outcome, is_cut in reached if is_cut} >= cut_too, reached


@settings(max_examples=FEWER_EXAMPLES // 2)
@given(st.integers(0, 2**64 - 1), st.data())
def test_every_range_a_batch_and_every_batch_a_range(seed: int, data: st.DataObject) -> None:
    """With transactions that many ranges lie between, and with a cut in each gap."""
    log = SimulatedBroker(seed, 2).log
    batches = log.batches
    producer = data.draw(st.sampled_from(sorted({batch.header.producer_id for batch in batches} - {-1})))
    options: dict[str, Any] = {"extras": [StatisticsAnalysis(), TraceAnalysis(producer)]}
    base = batches[0].header.base_offset
    assert check(log.data, base, log.positions[1:], 1 << 20, **options) == "joined"
    cuts = sorted({batch.header.last_offset + 1 for batch in batches} - {base})
    assert check(log.data, base, log.positions[1:], 1 << 20, cuts, **options) == "joined"
    assert check(log.data, base, log.positions[3::3], 1 << 20, cuts[1::2], **options) == "joined"


def four() -> GeneratedLog:
    return idempotent_log(range(5, 9))


def test_ranges_that_are_not_the_segment_are_an_error() -> None:
    """One is missing, one is of another segment, one is there twice, there is none."""
    log = four()
    whole, (_, *others) = (parts_of(log.data, base, log.positions[1:], 1 << 20) for base in (5, 6))
    for parts in (whole[1:], [*whole[:2], whole[3]], whole[:-1], [whole[0], *others], [whole[0], whole[0]], []):
        with pytest.raises(ValueError, match="expected"):
            joined_whole(parts)


def test_behind_damage_no_range_is_needed() -> None:
    """The whole ends there; what is after it is not asked for, and does no harm."""
    log = four()
    data = bytearray(log.data)
    data[log.positions[1] + 16] = 9
    parts = parts_of(bytes(data), 5, [*log.positions[1:3], log.positions[3] + 1], 1 << 20)
    for count in (2, 3, 4):
        joined = joined_whole(parts[:count])
        assert isinstance(joined, SegmentSummary)
        assert (joined.facts.next_offset, joined.facts.batches, joined.tail.kind) == (6, 1, TailKind.CORRUPT)
        assert joined.tail.position_bytes == log.positions[1]
        assert joined.read_bytes == sum(part.read_bytes for part in parts[:count])


def test_disorder_between_two_ranges() -> None:
    """Each of them is in order."""
    batches = four().batches
    log = GeneratedLog((*batches[2:], *batches[:2]))
    parts = parts_of(log.data, 5, log.positions[2:3], 1 << 20)
    assert [part.contents.facts.disorder_offset for part in parts] == [None, None]
    assert joined_whole(parts) is WhyWhole.DISORDER


def test_a_segment_that_grows_is_as_long_as_the_last_range_saw_it() -> None:
    log = four()
    end = log.positions[3]
    first, _ = parts_of(log.data[:end], 5, log.positions[2:3], 1 << 20)
    _, last = parts_of(log.data, 5, log.positions[2:3], 1 << 20)
    joined = joined_whole([first, last])
    assert isinstance(joined, SegmentSummary)
    assert plain(joined) == plain(whole_of(log.data, 5, 1 << 20))


def test_a_segment_that_does_not_reach_to_the_range_is_an_error() -> None:
    size = len(four().data)
    for start, end in ((size + 1, None), (0, size + 1)):
        with pytest.raises(TruncatedError, match=f"shorter.*{size + 1 if end else size} bytes"):
            summarise_range(BytesSegment(four().data), 5, start, end)


def test_the_first_damaged_batches_of_all_ranges_are_named() -> None:
    log = idempotent_log(range(BAD_CRC_LISTED_MAX + 30))
    data = bytearray(log.data)
    for position in log.positions:
        data[position + 30] ^= 1
    joined = joined_whole(parts_of(bytes(data), 0, log.positions[60::60], 1 << 20))
    assert isinstance(joined, SegmentSummary)
    assert joined.facts.bad_crc == tuple(zip(log.positions[:BAD_CRC_LISTED_MAX], range(BAD_CRC_LISTED_MAX), strict=True))
    assert joined.facts.bad_crc_count == BAD_CRC_LISTED_MAX + 30


def test_ranges_ask_for_no_more_than_the_whole() -> None:
    log = four()
    whole = whole_of(log.data, 5, 1 << 20)
    parts = parts_of(log.data, 5, log.positions[1:], 1 << 20)
    assert [part.read_bytes for part in parts] == [len(batch.data) for batch in log.batches]
    joined = joined_whole(parts)
    assert isinstance(joined, SegmentSummary)
    assert joined.read_bytes == whole.read_bytes == len(log.data)
