"""The facts of a segment against a naive count over the headers that the grammar reads, one by one."""

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from budgets import scaled, search_until
from effects import assert_same, effect_of_data
from header_engines import Reading, read_reference, segment
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import PartitionFixture
from reference_producer_state import ProducerState
from segment_summaries import summarise_segment
from simulated_broker import SimulatedBroker, idempotent_log
from strategies import GeneratedLog, LogBatch, block_sizes, logs

from formats.errors import TruncatedError
from formats.log.batch_headers import BytesSegment, Tail, TailKind
from snaprebuild.replay.segment_effect import compose
from snaprebuild.replay.segment_summary import SegmentSummary, index_relevant, summarise_pieces

FACTS = (
    "batches",
    "first_offset",
    "next_offset",
    "max_timestamp",
    "missing_offsets",
    "partial_batches",
    "empty_control_batches",
    "disorder_offset",
)


def naive(reading: Reading, base_offset: int) -> dict[str, int | None]:
    """Computes the facts batch by batch."""
    headers = reading.headers
    facts: dict[str, int | None] = dict.fromkeys(FACTS, 0)
    facts["batches"] = len(headers)
    facts["first_offset"] = headers[0].base_offset if headers and headers[0].magic == 2 else None
    facts["next_offset"] = headers[-1].base_offset + headers[-1].last_offset_delta + 1 if headers else base_offset
    facts["max_timestamp"] = max((header.max_timestamp for header in headers), default=-1)
    facts["partial_batches"] = sum(header.magic == 2 and header.record_count != header.last_offset_delta + 1 for header in headers)
    facts["empty_control_batches"] = sum(header.magic == 2 and header.is_control and header.record_count == 0 for header in headers)
    following = base_offset
    missing, disorder = 0, None
    for header in headers:
        if disorder is None and (header.base_offset < following or header.last_offset < header.base_offset):
            disorder = header.base_offset
        if header.magic == 2 and header.base_offset > following:
            missing += header.base_offset - following
        following = header.last_offset + 1
    return {**facts, "missing_offsets": missing, "disorder_offset": disorder}


def facts_of(summary: SegmentSummary) -> dict[str, int | None]:
    return {name: getattr(summary.facts, name) for name in FACTS}


@given(logs(), block_sizes, st.integers(-3, 3))
def test_facts_of_generated_logs(log: GeneratedLog, block_bytes: int, shift: int) -> None:
    base = (log.batches[0].header.base_offset if log.batches else 0) + shift
    source = BytesSegment(log.data)
    summary = summarise_segment(source, base, block_bytes=block_bytes)
    reading = read_reference(source)
    assert facts_of(summary) == naive(reading, base)
    kinds = Counter(marker.is_commit for marker in reading.markers)
    assert (summary.facts.commit_markers, summary.facts.abort_markers) == (kinds[True], kinds[False])
    assert (summary.base_offset, summary.size_bytes, summary.facts.bad_crc_count) == (base, len(log.data), 0)
    assert summary.tail.kind is TailKind.CLEAN
    assert summary.read_bytes >= len(log.data)


@given(st.integers(0, 2**64 - 1), block_sizes, st.booleans())
def test_effect_is_that_of_its_blocks_however_they_are_joined(seed: int, block_bytes: int, has_hint: bool) -> None:
    log = SimulatedBroker(seed, 5).log
    whole = effect_of_data(log.data)
    hint = np.array(log.positions[::2], dtype=np.int64) if has_hint else None
    summary = summarise_segment(BytesSegment(log.data), 0, hint=hint, block_bytes=block_bytes)
    assert_same(summary.effect, whole.with_closes(index_relevant(whole.closes)))
    assert facts_of(summary) == naive(read_reference(BytesSegment(log.data)), 0)
    # Those that are left out and those that are listed are all that the fold sees committed.
    completed = list(ProducerState().append(log.meanings))
    closes = summary.effect.closes.without_orphans()
    listed = int(np.count_nonzero(~closes.is_aborted))
    assert summary.contents.commits_omitted + listed == sum(not each.is_aborted for each in completed)
    assert len(closes) - listed == sum(each.is_aborted for each in completed)


def cut_by_hand(log: GeneratedLog, cuts: Sequence[int], *, is_last: bool) -> list[tuple[int | None, list[LogBatch]]]:
    """The cuts that are reached, each with the batches since the one before; and the rest with None."""
    waiting, pieces, piece = list(cuts), [], []
    for batch in log.batches:
        while waiting and batch.header.last_offset >= waiting[0]:
            pieces.append((waiting.pop(0), piece))
            piece = []
        piece.append(batch)
    for cut in [] if is_last else waiting:
        pieces.append((cut, piece))
        piece = []
    return [*pieces, (None, piece)]


def piece_by_piece(log: GeneratedLog, base: int, cuts: Sequence[int], block_bytes: int, *, is_last: bool) -> Counter[str]:
    """Each piece is what a segment of its batches alone is, and together they are the whole. Returns what was seen."""
    seen: Counter[str] = Counter()
    source = BytesSegment(log.data)
    pieces = summarise_pieces(source, base, cuts, is_last=is_last, block_bytes=block_bytes)
    expected = cut_by_hand(log, cuts, is_last=is_last)
    assert [piece.cut_offset for piece in pieces] == [cut for cut, _ in expected]
    start, position, rest = base, 0, log.batches
    for piece, (cut, batches) in zip(pieces, expected, strict=True):
        alone, rest = GeneratedLog(tuple(batches)), rest[len(batches) :]
        assert facts_of(piece) == naive(Reading(alone.headers, [], [], Tail(TailKind.CLEAN, 0)), start)
        assert_same(piece.effect, summarise_segment(BytesSegment(alone.data), start).effect)
        position += len(alone.data)
        assert (piece.size_bytes, piece.tail) == (len(alone.data), Tail(TailKind.CLEAN, position))
        start = piece.facts.next_offset
        around = [
            at.header.base_offset for at in rest[:1] if cut is not None and at.header.magic == 2 and at.header.base_offset < cut
        ]
        assert piece.cut_batch_offset == (around[0] if around else None)
        if cut is not None:
            seen["inside a batch"] += bool(around)
            seen["at the end of a batch"] += cut == start
            seen["in a gap"] += cut > start and bool(rest) and not around
            seen["behind the last batch"] += cut > start and not rest
            seen["without a batch"] += not batches
    whole = summarise_segment(source, base, block_bytes=block_bytes)
    joined = functools.reduce(compose, (piece.effect for piece in pieces))
    assert_same(joined.with_closes(index_relevant(joined.closes)), whole.effect)
    for name in ("commit_markers", "abort_markers"):
        assert sum(getattr(piece.facts, name) for piece in pieces) == getattr(whole.facts, name)
    assert sum(piece.read_bytes for piece in pieces) == whole.read_bytes
    return seen


def test_pieces_of_generated_segments() -> None:
    reached: Counter[str] = Counter()

    @settings(max_examples=scaled(150))
    @given(logs(max_batches=20), block_sizes, st.data())
    def holds(log: GeneratedLog, block_bytes: int, data: st.DataObject) -> None:
        base = log.batches[0].header.base_offset if log.batches else 0
        end = log.batches[-1].header.last_offset + 1 if log.batches else 0
        ends = [end, *(at for batch in log.batches for at in (batch.header.base_offset, batch.header.last_offset + 1))]
        near = sorted({at + step for at in ends for step in (-1, 0, 1, 3) if at + step > base})
        cuts = sorted(data.draw(st.sets(st.sampled_from(near), max_size=8)))
        reached.update(piece_by_piece(log, base, cuts, block_bytes, is_last=data.draw(st.booleans())))

    search_until(holds, lambda: len(reached) == 5 and all(reached.values()))
    assert all(reached.values()), reached
    assert len(reached) == 5


@given(st.integers(0, 2**64 - 1), block_sizes, st.data())
def test_pieces_with_hints_and_wrong_checksums(seed: int, block_bytes: int, data: st.DataObject) -> None:
    """Every damaged batch is named by the piece that holds it, and a cut is not said to lie inside a batch that may be anything."""
    log = SimulatedBroker(seed, 3).log
    batches = log.batches
    rows = data.draw(st.sets(st.integers(0, len(batches) - 1)))
    cuts = sorted(data.draw(st.sets(st.integers(1, batches[-1].header.last_offset + 1), max_size=8)))
    source = BytesSegment(damaged_at(log.data, [log.positions[row] for row in rows]))
    hint = np.array(log.positions[::2], dtype=np.int64)
    pieces = summarise_pieces(source, 0, cuts, is_last=True, hint=hint, block_bytes=block_bytes)
    bad = {batches[row].header.base_offset for row in rows}
    for piece, (cut, held) in zip(pieces, cut_by_hand(log, cuts, is_last=True), strict=True):
        offsets = [batch.header.base_offset for batch in held]
        assert [offset for _, offset in piece.facts.bad_crc] == [offset for offset in offsets if offset in bad]
        assert all(
            log.positions[batches.index(each)] in dict(piece.facts.bad_crc) for each in held if each.header.base_offset in bad
        )
        assert piece.facts.bad_crc_count == len(piece.facts.bad_crc)
        around = [
            at.header.base_offset for at in batches if cut is not None and at.header.base_offset < cut <= at.header.last_offset
        ]
        assert piece.cut_batch_offset == next((offset for offset in around if offset not in bad), None)
    unchecked = summarise_segment(source, 0, block_bytes=block_bytes, check_crc=False)
    assert (unchecked.facts.bad_crc_count, unchecked.facts.bad_crc) == (0, ())


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("tail", [b"\1", bytes(100), b"\xff" * 60])
def test_cuts_behind_a_damaged_end_make_no_piece(tail: bytes, is_last: bool) -> None:
    """At the end itself the state is known; in the last segment that is the log end, unless a broker throws there."""
    data = idempotent_log(range(5, 9)).data
    *pieces, rest = summarise_pieces(BytesSegment(data + tail), 5, (7, 9, 12), is_last=is_last)
    at_end = [] if is_last and tail[0] != 0xFF else [(9, 9, TailKind.CLEAN)]
    assert [(piece.cut_offset, piece.facts.next_offset, piece.tail.kind) for piece in pieces] == [(7, 7, TailKind.CLEAN), *at_end]
    assert (rest.facts.next_offset, rest.tail.kind is TailKind.CLEAN) == (9, False)


def test_pieces_where_offsets_do_not_ascend() -> None:
    """The first batch in log order that does not end below the cut, as a search for an offset finds it; disorder stays disorder."""
    log = idempotent_log((0, 9, 1, 2, 20))
    first, second, rest = summarise_pieces(BytesSegment(log.data), 0, (2, 15), is_last=True)
    assert (first.facts.batches, second.facts.batches, rest.facts.batches) == (1, 3, 1)
    assert (first.facts.disorder_offset, second.facts.disorder_offset, rest.facts.disorder_offset) == (None, 1, None)


def test_facts_of_bundled_segments(partition_fixture: PartitionFixture) -> None:
    for part in partition_fixture.segments:
        source = segment(part.path.read_bytes())
        summary = summarise_segment(source, part.base_offset, block_bytes=3000)
        assert facts_of(summary) == naive(read_reference(source), part.base_offset)
        is_torn = partition_fixture.partition == "torn-tail-0" and part is partition_fixture.segments[-1]
        assert summary.tail.kind is (TailKind.TORN if is_torn else TailKind.CLEAN)
        facts = summary.facts
        assert (facts.batches, facts.next_offset, facts.max_timestamp) == (part.batches, part.next_offset, part.max_timestamp)
        is_bad = partition_fixture.partition == "bad-crc-0" and part.base_offset == bad_crc_base(part.path)
        assert (summary.facts.bad_crc_count > 0) is is_bad


def bad_crc_base(path: Path) -> int:
    """The manifest says: the last but one segment."""
    bases = sorted(int(each.stem) for each in path.parent.glob("*.log"))
    return bases[-2]


def damaged_at(data: bytes, positions: Sequence[int]) -> bytes:
    """One bit of the base timestamp of each batch at ``positions`` flipped; nothing of that decides where batches end."""
    changed = bytearray(data)
    for position in positions:
        changed[position + 30] ^= 1
    return bytes(changed)


def test_a_segment_that_shrinks_while_it_is_read_is_an_error() -> None:
    class Shrinking(BytesSegment):
        @property
        def size_bytes(self) -> int:
            return 10_000

    with pytest.raises(TruncatedError, match="shorter"):
        summarise_segment(Shrinking(bytes(100)), 0)
