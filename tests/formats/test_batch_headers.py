"""The fast header reader and the grammar: the same headers, markers and tail for every segment, block size and hint."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from budgets import notices_broken_rules
from control_records import build_end_transaction_marker
from fixture_files import each_broker_file
from header_engines import MarkerRow, Reading, hints, read_fast, read_reference, read_with, segment
from hypothesis import example, given
from hypothesis import strategies as st
from memory_peak import measured
from reference_producer_state import Marker
from strategies import (
    CONTROL,
    DECOY,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    GeneratedLog,
    LogBatch,
    batch_of,
    block_sizes,
    header_of,
    logs,
    message_of,
)

from formats import limits
from formats.errors import BadLengthError, BadMagicError, FormatError, LimitExceededError, TruncatedError
from formats.log.batch_headers import BytesSegment, HeaderBlock, HeaderReader, SegmentBytes, TailKind
from formats.log.record_batch import build_record_batch
from snaprebuild.storage.local.segment_file import SegmentFile

ReadHeaders = Callable[[SegmentBytes], Reading]

CLEAN, TORN, ZERO_FILLED, CORRUPT = TailKind.CLEAN, TailKind.TORN, TailKind.ZERO_FILLED, TailKind.CORRUPT


def marker_batch(offset: int, **fields: int) -> LogBatch:
    """A commit marker as a coordinator writes it."""
    record = build_end_transaction_marker(commit=True, coordinator_epoch=4)
    header = header_of(offset, **{"attributes": CONTROL | TRANSACTIONAL, "producer_id": 7, "producer_epoch": 0, **fields})
    return batch_of(header, [record])


def data_batch(offset: int, payload: bytes = b"payload") -> LogBatch:
    return batch_of(header_of(offset, producer_id=7, producer_epoch=0, base_sequence=0), payload)


# Every magic, a compressed wrapper, a marker, batches with and without a producer; begins above 2^56, so that no prefix is all zeros.
BASE = 0x0102030405060700
MIXED = GeneratedLog(
    (
        data_batch(BASE),
        message_of(0, BASE + 1, b"old"),
        message_of(1, BASE + 2, b"", timestamp=77, attributes=LOG_APPEND_TIME),
        message_of(1, BASE + 9, b"compressed", timestamp=78, attributes=2),
        marker_batch(BASE + 10),
        batch_of(header_of(BASE + 11), b""),
        message_of(0, BASE + 20, b"compressed", attributes=1),
        data_batch(BASE + 30, DECOY),
    )
)


class InParts(HeaderReader):
    """Yields every block in parts of three batches."""

    def __iter__(self) -> Iterator[HeaderBlock]:
        for block in HeaderReader.__iter__(self):
            for start in range(0, len(block), 3):
                yield block.part(start, min(start + 3, len(block)))


@notices_broken_rules
@given(log=logs(max_batches=20), block_bytes=block_sizes)
def test_parts_of_blocks_are_blocks(log: GeneratedLog, block_bytes: int) -> None:
    """With their markers, as if they had been read by themselves."""
    assert read_with(InParts(segment(log.data), block_bytes=block_bytes)) == read_reference(segment(log.data))


@notices_broken_rules
@given(log=logs(max_batches=20), block_bytes=block_sizes)
def test_generated_logs_in_blocks_of_any_size(log: GeneratedLog, block_bytes: int) -> None:
    meanings = [(row, batch.meaning) for row, batch in enumerate(log.batches) if isinstance(batch.meaning, Marker)]
    markers = [MarkerRow(row, marker.is_commit, marker.coordinator_epoch, marker.timestamp) for row, marker in meanings]
    for reading in (read_reference(segment(log.data)), read_fast(segment(log.data), block_bytes=block_bytes)):
        assert reading.headers == log.headers
        assert reading.positions == log.positions
        assert reading.markers == markers
        assert reading.end == (CLEAN, len(log.data), None)


@each_broker_file("*.log", "*.checkpoint")
def test_what_brokers_wrote(path: Path) -> None:
    source = segment(path.read_bytes())
    reference = read_reference(source)
    for block_bytes in (1000, limits.HEADER_BLOCK_BYTES):
        assert read_fast(source, block_bytes=block_bytes) == reference


# ---------------------------------------------------------------------------------------------------------------- tails


def test_torn_at_every_byte(read_headers: ReadHeaders) -> None:
    for cut in range(len(MIXED.data) + 1):
        reading = read_headers(segment(MIXED.data[:cut]))
        whole = sum(position + header.size_bytes <= cut for position, header in zip(MIXED.positions, MIXED.headers, strict=True))
        end = ([*MIXED.positions, len(MIXED.data)])[whole]
        assert reading.headers == MIXED.headers[:whole]
        assert reading.positions == MIXED.positions[:whole]
        assert reading.end == ((CLEAN, cut, None) if end == cut else (TORN, end, TruncatedError))
        assert reading.tail.error is None or (reading.tail.error.position, reading.tail.error.file) == (end, "segment")


@pytest.mark.parametrize("zeros", [1, 17, 18, 122, (1 << 20) + 7])
def test_zero_filled_tail(read_headers: ReadHeaders, zeros: int) -> None:
    reading = read_headers(segment(MIXED.data + bytes(zeros)))
    assert reading.headers == MIXED.headers
    assert (reading.tail.kind, reading.tail.position_bytes) == (ZERO_FILLED, len(MIXED.data))
    assert read_fast(segment(MIXED.data + bytes(zeros)), block_bytes=200).end[:2] == (ZERO_FILLED, len(MIXED.data))


def test_a_hole_of_any_size_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A file with holes may end anywhere; a broker opens no segment of more than 2^31 - 1 bytes."""
    path = tmp_path / "segment"
    for size, kind in ((2**43, CORRUPT), (2**31, CORRUPT), (len(MIXED.data) + 5000, ZERO_FILLED)):
        path.write_bytes(MIXED.data)
        os.truncate(path, size)
        with SegmentFile(str(path)) as source:
            reader = HeaderReader(source)
            assert sum(len(block) for block in reader) == len(MIXED.headers)
            assert reader.tail is not None
            assert (reader.tail.kind, reader.tail.position_bytes) == (kind, len(MIXED.data))
            assert reader.bytes_read <= 16 << 20


def _header(length: int, *, magic: int = 2) -> bytes:
    return (99).to_bytes(8, "big") + length.to_bytes(4, "big", signed=True) + bytes(4) + magic.to_bytes(1, "big", signed=True)


END = len(MIXED.data)


@pytest.mark.parametrize(
    ("garbage", "kind", "error", "position"),
    [
        # Not all zeros, though the length is.
        (bytes(5000) + b"\x01", CORRUPT, BadLengthError, END + 8),
        (_header(-1) + bytes(100), CORRUPT, BadLengthError, END + 8),
        (_header(13) + bytes(100), CORRUPT, BadLengthError, END + 8),
        # Below the least length of its own magic.
        (_header(48) + bytes(100), CORRUPT, BadLengthError, END + 8),
        (_header(21, magic=1) + bytes(100), CORRUPT, BadLengthError, END + 8),
        (_header(50, magic=3) + bytes(100), CORRUPT, BadMagicError, END + 16),
        # A batch that is not whole: the broker's iterator ends there in silence, before it looks at the magic or at anything else.
        (_header(2**31 - 1) + bytes(100), TORN, TruncatedError, END),
        (_header(101 + 5) + bytes(100), TORN, TruncatedError, END),
        (_header(500, magic=3) + bytes(100), TORN, TruncatedError, END),
        (_header(48)[:17] + bytes(20), TORN, TruncatedError, END),
        # FileLogInputStream wants more than 17 bytes before it looks at a length.
        (_header(-1), TORN, TruncatedError, END),
        (_header(-1) + b"\0", CORRUPT, BadLengthError, END + 8),
        (b"\xff" * 17, TORN, TruncatedError, END),
        (b"\xff" * 18, CORRUPT, BadLengthError, END + 8),
    ],
)
def test_garbage_tail(read_headers: ReadHeaders, garbage: bytes, kind: TailKind, error: type[FormatError], position: int) -> None:
    reading = read_headers(segment(MIXED.data + garbage))
    assert reading.headers == MIXED.headers
    assert reading.end == (kind, END, error)
    assert reading.tail.error is not None
    assert (reading.tail.error.position, reading.tail.error.file) == (position, "segment")
    for block_bytes in (1, 130, 500):
        assert read_fast(segment(MIXED.data + garbage), block_bytes=block_bytes).end == (kind, END, error)


def test_a_fault_in_the_middle_hides_what_follows(read_headers: ReadHeaders) -> None:
    """No search for the next batch: a broker cannot do that either."""
    data = bytearray(MIXED.data)
    data[MIXED.positions[5] + 16] = 7
    reading = read_headers(segment(bytes(data)))
    assert reading.headers == MIXED.headers[:5]
    assert reading.end == (CORRUPT, MIXED.positions[5], BadMagicError)


@notices_broken_rules
@given(data=st.binary(max_size=400), log=logs(max_batches=4), block_bytes=block_sizes)
@example(data=bytes(17), log=GeneratedLog(()), block_bytes=1)
def test_both_readers_give_one_answer_to_any_bytes(data: bytes, log: GeneratedLog, block_bytes: int) -> None:
    source = segment(log.data + data)
    assert read_fast(source, block_bytes=block_bytes, check_crc=True) == read_reference(source)


@notices_broken_rules
@given(log=logs(min_batches=1, max_batches=6), at=st.integers(0), value=st.integers(0, 255), block_bytes=block_sizes)
def test_both_readers_give_one_answer_to_a_changed_byte(log: GeneratedLog, at: int, value: int, block_bytes: int) -> None:
    data = bytearray(log.data)
    data[at % len(data)] = value
    assert read_fast(segment(bytes(data)), block_bytes=block_bytes) == read_reference(segment(bytes(data)))


# ---------------------------------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("size", [70, 123, 100_000])
@pytest.mark.parametrize("block_bytes", [1, 4096, 99_999])
def test_batches_larger_than_a_block(size: int, block_bytes: int) -> None:
    big, small = data_batch(0, (bytes(range(256)) * 400)[: size - 61]), data_batch(1)
    log = GeneratedLog((big, small, big, big, message_of(1, 9, bytes(size)), small, big))
    reader = HeaderReader(segment(log.data), block_bytes=block_bytes, check_crc=True)
    reading = read_with(reader)
    assert (reading.headers, reading.positions) == (log.headers, log.positions)
    assert reading.end == (CLEAN, len(log.data), None)
    assert reading.bad_crc == []
    assert read_fast(segment(log.data[:-1]), block_bytes=block_bytes).end == (TORN, log.positions[-1], TruncatedError)


def test_a_marker_larger_than_a_block() -> None:
    """A later version of the value may be as long as it likes."""
    record = build_end_transaction_marker(commit=False, coordinator_epoch=6, version=3, rest=bytes(3000), timestamp_delta=5)
    header = header_of(1, attributes=CONTROL, producer_id=7, producer_epoch=0)
    log = GeneratedLog((data_batch(0), batch_of(header, [record]), data_batch(2)))
    for block_bytes in (1, 122, 1000, 3100, 1 << 20):
        reading = read_fast(segment(log.data), block_bytes=block_bytes)
        assert reading.markers == [MarkerRow(1, False, 6, 1005)]
        assert reading.end == (CLEAN, len(log.data), None)


@pytest.mark.parametrize("block_bytes", [1, 1000, limits.HEADER_BLOCK_BYTES])
def test_a_control_batch_larger_than_its_limit(block_bytes: int) -> None:
    record = build_end_transaction_marker(commit=False, coordinator_epoch=6, rest=bytes(limits.CONTROL_BATCH_BYTES_MAX))
    log = GeneratedLog((data_batch(0), batch_of(header_of(1, attributes=CONTROL, producer_id=7, producer_epoch=0), [record])))
    assert read_fast(segment(log.data), block_bytes=block_bytes).end == (CORRUPT, log.positions[1], LimitExceededError)


# ---------------------------------------------------------------------------------------------------------------- ranges


@notices_broken_rules
@given(log=logs(min_batches=1), damage=st.binary(max_size=40), block_bytes=block_sizes, data=st.data())
@example(log=GeneratedLog((data_batch(0),)), damage=bytes(17), block_bytes=1, data=None)
def test_a_range_ends_as_the_whole_does_or_before_a_batch_that_crosses_its_end(
    log: GeneratedLog, damage: bytes, block_bytes: int, data: st.DataObject | None
) -> None:
    """From a batch on, up to any byte."""
    source = segment(log.data + damage)
    whole = read_reference(source)
    ends = [*whole.positions, whole.tail.position_bytes]
    row = data.draw(st.integers(0, len(ends) - 1)) if data is not None else 0
    some = st.sampled_from([*ends[row:], len(source.data)]) | st.integers(ends[row], len(source.data))
    end = data.draw(some) if data is not None else len(source.data)
    stop_row = max(at for at in range(row, len(ends)) if ends[at] <= end)
    stop = ends[stop_row]
    hint = hints(whole.positions) if data is None or data.draw(st.booleans()) else None
    reading = read_fast(source, start_bytes=ends[row], end_bytes=end, block_bytes=block_bytes, hint=hint)
    assert (reading.headers, reading.positions) == (whole.headers[row:stop_row], whole.positions[row:stop_row])
    assert reading.markers == [
        MarkerRow(at.row - row, at.is_commit, at.coordinator_epoch, at.timestamp)
        for at in whole.markers
        if row <= at.row < stop_row
    ]
    assert reading.end == (whole.end if stop == whole.tail.position_bytes and stop < end else (CLEAN, stop, None))


@pytest.mark.parametrize(("every", "block_bytes"), [(1, 700), (3, 1 << 20)])
def test_hints_in_ranges(every: int, block_bytes: int) -> None:
    """The fast walk, whose hints continue after the range."""
    found: list[int] = []
    for start, end in pairwise((*HINTED.positions[::150], len(HINTED.data))):
        options = {"hint": hints(HINTED.positions[::every]), "block_bytes": block_bytes}
        reader = HeaderReader(segment(HINTED.data), start_bytes=start, end_bytes=end, **options)  # type: ignore[arg-type]
        reading = read_with(reader)
        assert reading.end == (CLEAN, end, None)
        assert block_bytes < 1 << 20 or reader.bytes_read == end - start
        found += reading.positions
    assert found == HINTED.positions


def test_a_marker_on_which_a_broker_throws_ends_the_range_before_it() -> None:
    """The range ends there, though it goes on inside of the batch, as the whole would."""
    bad = batch_of(header_of(1, attributes=CONTROL, producer_id=7, producer_epoch=0), b"no record")
    log = GeneratedLog((data_batch(0), bad, data_batch(2)))
    whole = read_reference(segment(log.data))
    assert whole.tail.kind is CORRUPT
    for end in range(log.positions[1] + 1, len(log.data) + 1):
        assert read_fast(segment(log.data), end_bytes=end).end == whole.end


def test_a_range_of_nothing() -> None:
    for position in (*MIXED.positions, len(MIXED.data)):
        reader = HeaderReader(segment(MIXED.data), start_bytes=position, end_bytes=position)
        assert read_with(reader).end == (CLEAN, position, None)
        assert reader.bytes_read == 0


# ---------------------------------------------------------------------------------------------------------------- hints


def _plain_log(count: int) -> GeneratedLog:
    sizes = (0, 5, 61, 200, 17)
    return GeneratedLog(tuple(data_batch(row, (DECOY * 3)[: sizes[row % len(sizes)]]) for row in range(count)))


HINTED = _plain_log(400)
TRUE_ANSWER = read_reference(segment(HINTED.data))


def nearly_true(wrong: dict[int, int]) -> list[int]:
    return [position + wrong.get(row, 0) for row, position in enumerate(HINTED.positions)]


WRONG_STEPS = st.dictionaries(st.integers(0, 399), st.integers(-70, 70), min_size=1, max_size=5)
HINTS = {
    "true": st.builds(lambda start, every: HINTED.positions[start::every], st.integers(0, 30), st.integers(1, 20)),
    "random": st.lists(st.integers(-50, len(HINTED.data) + 200), min_size=16, max_size=200).map(sorted),
    "nearly true": WRONG_STEPS.map(nearly_true).map(sorted),
    "nearly true and out of order": WRONG_STEPS.map(nearly_true),
}


@pytest.mark.parametrize("kind", HINTS)
@notices_broken_rules
@given(data=st.data(), block_bytes=st.sampled_from((700, 5000, 20_000, 1 << 20)) | st.integers(122, 50_000))
def test_any_hints(kind: str, data: st.DataObject, block_bytes: int) -> None:
    chosen = data.draw(HINTS[kind])
    assert read_fast(segment(HINTED.data), hint=hints(chosen), block_bytes=block_bytes) == TRUE_ANSWER


LYING = {
    # Into payloads with whole batches that are none of this log.
    "decoys": [position + 61 for position in HINTED.positions[2::5]],
    "chains of decoys": [position + 61 for position in HINTED.positions[3::5]],
    "true ones and decoys": sorted([*HINTED.positions, *(position + 61 for position in HINTED.positions[3::5])]),
    "outside in the middle": [*HINTED.positions[:200], -5, 10**12, *HINTED.positions[200:]],
    "every byte": list(range(len(HINTED.data))),
}


@pytest.mark.parametrize("kind", LYING)
def test_lying_hints(kind: str) -> None:
    for block_bytes in (700, 5000, 1 << 20):
        reading = read_fast(segment(HINTED.data), hint=hints(LYING[kind]), block_bytes=block_bytes, check_crc=True)
        assert reading == TRUE_ANSWER
        assert reading.bad_crc == []


@pytest.mark.parametrize("length", [0, 1, 13])
def test_hints_do_not_lead_over_a_length_that_is_too_small(length: int) -> None:
    """Twelve bytes and a length of nearly nothing, then the chain continues where a hint says so."""
    scrap = (1).to_bytes(8, "big") + length.to_bytes(4, "big") + b"\x09" * length
    follows = data_batch(BASE).data
    data = HINTED.data + scrap + follows
    end = len(HINTED.data)
    positions = [*HINTED.positions, end, end + len(scrap)]
    for chosen in (positions, positions[:-2], positions[::3], [*positions[:-2], positions[-1]]):
        reading = read_fast(segment(data), hint=hints(chosen))
        assert reading.headers == HINTED.headers
        assert reading.end == read_reference(segment(data)).end == (CORRUPT, end, BadLengthError)


def test_hints_as_an_offset_index_holds_them() -> None:
    """int32, big-endian: positions in a file."""
    for dtype in (">i4", "<i4", "<u4", ">i8"):
        assert read_fast(segment(HINTED.data), hint=np.asarray(HINTED.positions[::3], dtype=dtype), block_bytes=9000) == TRUE_ANSWER


@notices_broken_rules
@given(cut=st.integers(0, len(HINTED.data)), every=st.integers(1, 5), zeros=st.sampled_from((0, 0, 10, 3000)))
def test_hints_and_a_tail(cut: int, every: int, zeros: int) -> None:
    source = segment(HINTED.data[:cut] + bytes(zeros))
    assert read_fast(source, hint=hints(HINTED.positions[::every]), block_bytes=9000) == read_reference(source)


@notices_broken_rules
@given(at=st.integers(0, len(HINTED.data) - 1), value=st.integers(0, 255), every=st.integers(1, 5))
def test_hints_and_a_changed_byte(at: int, value: int, every: int) -> None:
    data = bytearray(HINTED.data)
    data[at] = value
    source = segment(bytes(data))
    assert read_fast(source, hint=hints(HINTED.positions[::every])) == read_fast(source)


@notices_broken_rules
@given(log=logs(min_batches=12, max_batches=30), block_bytes=block_sizes)
def test_hints_in_a_log_of_every_magic(log: GeneratedLog, block_bytes: int) -> None:
    source = segment(log.data)
    assert read_fast(source, hint=hints(log.positions), block_bytes=block_bytes) == read_fast(source)


# ---------------------------------------------------------------------------------------------------------------- checksums


@notices_broken_rules
@given(
    log=logs(min_batches=1, max_batches=12),
    flips=st.sets(st.integers(0, 11), max_size=4),
    bit=st.integers(0, 7),
    block_bytes=block_sizes,
)
def test_bad_checksums_are_reported_where_they_stand(log: GeneratedLog, flips: set[int], bit: int, block_bytes: int) -> None:
    data = bytearray(log.data)
    expected = []
    for row, (position, batch) in enumerate(zip(log.positions, log.batches, strict=True)):
        if row in flips:
            data[position + (17 if batch.header.magic == 2 else 12)] ^= 1 << bit  # the stored checksum
            expected.append(position)
    reader = HeaderReader(segment(bytes(data)), check_crc=True, block_bytes=block_bytes)
    reading = read_with(reader)
    assert reading.bad_crc == expected
    assert reading.positions == log.positions
    without = HeaderReader(segment(bytes(data)), block_bytes=block_bytes)
    unchecked = read_with(without)
    assert unchecked == reading
    assert unchecked.bad_crc == []


# ---------------------------------------------------------------------------------------------------------------- bounded memory


@dataclass
class RepeatedBatch:
    """One batch, its payload zeros, ``count`` times: as large as one likes, without a byte on disk."""

    batch: bytes
    size: int
    count: int
    zeros: int = 0
    name: str = "repeated"
    reads: int = 0

    @property
    def size_bytes(self) -> int:
        return self.size * self.count + self.zeros

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        self.reads += 1
        end = min(position_bytes + len(buffer), self.size_bytes)
        np.frombuffer(buffer, dtype=np.uint8)[: end - position_bytes] = 0
        for start in range(position_bytes // self.size * self.size, min(end, self.size * self.count), self.size):
            low, high = max(start, position_bytes), min(start + len(self.batch), end)
            if low < high:
                buffer[low - position_bytes : high - position_bytes] = self.batch[low - start : high - start]
        return max(end - position_bytes, 0)


def _header_with_length(size: int) -> bytes:
    header = bytearray(data_batch(BASE).data[:61])
    header[8:12] = (size - 12).to_bytes(4, "big")
    return bytes(header)


BLOCK = 1 << 20
LARGE, SMALL = 24 << 20, 256


@pytest.mark.parametrize(
    ("source", "check_crc", "tail", "blocks_max"),
    [
        (RepeatedBatch(_header_with_length(LARGE), LARGE, 1000), False, CLEAN, 2),
        (RepeatedBatch(_header_with_length(SMALL), SMALL, (16 << 20) // SMALL), False, CLEAN, 8),
        (RepeatedBatch(_header_with_length(LARGE), LARGE, 2), True, CLEAN, 4),
        (RepeatedBatch(_header_with_length(SMALL), SMALL, 10, zeros=300 << 20), False, ZERO_FILLED, 5),
    ],
    ids=["many GiB", "small batches", "checksums of large batches", "a preallocated tail"],
)
def test_a_segment_takes_a_few_blocks_of_memory(source: RepeatedBatch, check_crc: bool, tail: TailKind, blocks_max: int) -> None:
    reader = HeaderReader(source, block_bytes=BLOCK, check_crc=check_crc)
    with measured() as peak:
        counts = [(len(block), len(block.bad_crc)) for block in reader]
    assert sum(count for count, _ in counts) == source.count
    assert sum(bad for _, bad in counts) == (source.count if check_crc else 0)
    assert reader.tail is not None
    assert (reader.tail.kind, reader.tail.position_bytes) == (tail, source.size * source.count)
    assert peak.bytes < blocks_max * BLOCK


@pytest.mark.parametrize("check_crc", [False, True])
def test_a_file_that_shrinks_is_a_format_error(check_crc: bool) -> None:
    class Shrinking(BytesSegment):
        @property
        def size_bytes(self) -> int:
            return len(self.data) + 5000

    source = Shrinking(build_record_batch(header_of(0), bytes(3000)) * 3)
    with pytest.raises(TruncatedError) as caught:
        list(HeaderReader(source, block_bytes=1000, check_crc=check_crc))
    assert caught.value.file == "segment"
