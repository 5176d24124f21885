"""The segments of a partition that are read one after the other: on disk, or copies in remote storage, each for a range of offsets."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator

import msgspec
import numpy as np

from formats import limits
from formats.errors import BadValueError, FormatError
from formats.log.batch_headers import HeaderBlock, HeaderReader, Tail, TailKind
from formats.log.record_batch import LENGTH_MIN, LOG_OVERHEAD_BYTES, MAGIC_POSITION
from formats.partition.index_entries import Index
from formats.partition.offset_index import OffsetIndexEntry, read_offset_index
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.snapshots.engine.log_facts import ends_at_log_end
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles, read_positions_hint
from snaprebuild.storage.store import FileIdentity, OpenBytes, ReadStore
from snaprebuild.storage.store_path import ReadPath

__all__ = ["MAGIC_V2", "BatchFault", "LogPiece", "blocks_of", "pieces_of", "split_offsets"]

BLOCK_ROWS = 4096
"""Headers of a block, at least, unless the segment ends."""

MAGIC_V2 = 2

MAGIC_BYTES = MAGIC_POSITION + 1 - LOG_OVERHEAD_BYTES
"""Bytes after the length, up to the magic."""


class LogPiece(msgspec.Struct, frozen=True):
    """A segment, and which of its offsets are read.

    Attributes:
        store: that holds it.
        path: of the segment.
        identity: when it was listed.
        base_offset: in its name.
        low: least offset that is read, inclusive.
        high: end of these offsets, exclusive.
        is_last: of the log on disk: a broker may append to it.
        index: path of its offset index; None without one.
        origin: the partition directory, or the id of the copy.
        end: base offset of the next segment on disk, which no batch of this one reaches; None if that is not known.
    """

    store: ReadStore
    path: str
    identity: FileIdentity
    base_offset: int
    low: int
    high: int
    is_last: bool
    index: str | None
    origin: str
    end: int | None = None

    @property
    def size_bytes(self) -> int:
        """Size of the segment."""
        return self.identity.size_bytes

    def open(self) -> OpenBytes:
        """Opens the segment (``ReadStore.open_bytes``)."""
        return self.store.open_bytes(self.path, self.identity, None, self.is_last)

    def hint(self, source: OpenBytes) -> np.ndarray | None:
        """Positions of batches from the offset index; None for objects, because a request costs more than the hint saves."""
        if self.index is None or not self.store.is_local:
            return None
        return read_positions_hint(ReadPath(self.store, self.index), source.size_bytes)


def pieces_of(directory: PartitionDir, high: int) -> tuple[LogPiece, ...]:
    """The segments on disk that may hold offsets up to ``high``, excluded.

    A batch is looked for where a broker looks for it: in the segment with the greatest base offset that is not above its own.
    """
    pieces = []
    for number, segment in enumerate(directory.segments):
        is_last = number == len(directory.segments) - 1
        following = None if is_last else directory.segments[number + 1].base_offset
        end = high if following is None else min(high, following)
        if segment.base_offset < end:
            pieces.append(_piece(directory, segment, end, following))
    return tuple(pieces)


def _piece(directory: PartitionDir, segment: SegmentFiles, high: int, following: int | None) -> LogPiece:
    path = directory.file_path(segment.log.name)
    return LogPiece(
        store=directory.store.for_file(path),
        path=path,
        identity=segment.log.identity,
        base_offset=segment.base_offset,
        low=segment.base_offset,
        high=high,
        is_last=following is None,
        index=None if segment.offset_index is None else directory.file_path(segment.offset_index),
        origin=directory.path,
        end=following,
    )


class BatchFault(msgspec.Struct, frozen=True):
    """Batches that cannot be read.

    Attributes:
        piece: the segment.
        position_bytes: where the first of them begins.
        error: what is wrong.
        offset: of the first one, as far as its header shows; None if there is no header.
    """

    piece: LogPiece
    position_bytes: int
    error: FormatError
    offset: int | None = None


OnFault = Callable[[BatchFault], None]


def blocks_of(
    piece: LogPiece,
    source: OpenBytes,
    columns: tuple[str, ...],
    on_fault: OnFault | None,
    *,
    low: int = 0,
    on_torn: OnFault | None = None,
) -> Generator[HeaderBlock]:
    """The headers of a segment, block by block, of batches whose offsets ascend. Blocks list batches with wrong checksums.

    Args:
        piece: the segment.
        source: its bytes.
        columns: of the blocks; ``base_offset`` and ``last_offset_delta`` are among them.
        on_fault: takes the fault that ends the segment early; None to raise it.
        low: batches that end below it may be left out.
        on_torn: takes the end of the log if bytes follow its last whole batch, which a broker cuts off.

    Raises:
        FormatError: the segment is damaged, and ``on_fault`` is None.
        ReadFailedError, RefusedError: it cannot be read.
    """
    start: int | None = _start_of(piece, source, low)
    previous = piece.base_offset - 1
    while start is not None:
        reader = HeaderReader(
            source, check_crc=True, hint=piece.hint(source), columns=columns, block_rows=BLOCK_ROWS, start_bytes=start
        )
        fault = None
        for block, following in _with_following(reader):
            row = _first_disorder(piece, block, previous, following)
            if row is not None:
                if row:
                    previous = int(_last_offsets(block)[row - 1])
                    yield block.part(0, row)
                fault = _disorder(piece, block, row, previous, following)
                break
            previous = int(_last_offsets(block)[-1])
            yield block
        if fault is None:
            fault = _fault_of_tail(piece, source, reader, on_torn)
        if fault is None:
            return
        _report(fault, on_fault)
        start = _after(source, fault.position_bytes)


LOOK_BACK_BYTES = 256 << 10
"""Bytes before a position of an offset index, at least, in which whole batches must lead to it."""

LOOK_BACK_BYTES_MAX = 16 << 20
"""If the index has no entry for longer than this, its position is not used."""


def split_offsets(piece: LogPiece, part_bytes: int) -> list[int]:
    """Offsets of a segment that are about so many bytes apart, by its offset index; none if it has no index that can be read."""
    index = _read_index(piece)
    if index is None or not len(index):
        return []
    positions = index.column("position")
    ideal = np.arange(part_bytes, piece.size_bytes, part_bytes)
    places = np.unique(np.searchsorted(positions, ideal))
    offsets = index.column("relative_offset")[places[places < len(positions)]] + piece.base_offset + 1
    return [offset for offset in offsets.tolist() if piece.low < offset < piece.high]


def _read_index(piece: LogPiece) -> Index[OffsetIndexEntry] | None:
    if piece.index is None:
        return None
    try:
        data = ReadPath(piece.store, piece.index).read_small(limits.INDEX_BYTES_MAX)
        return None if data is None else read_offset_index(data, file=piece.index)
    except (FormatError, ReadFailedError, ChangedFileError):
        return None


def _start_of(piece: LogPiece, source: OpenBytes, low: int) -> int:
    """Where a batch begins that no batch with an offset at or above ``low`` is before; 0 unless the offset index has such a position.

    Whole batches with right checksums must lead there from an earlier entry, and its offset must not be above ``low``.
    """
    if low <= piece.base_offset or source.size_bytes < LOOK_BACK_BYTES:
        return 0
    index = _read_index(piece)
    if index is None:
        return 0
    positions = index.column("position")
    place = int(np.searchsorted(index.column("relative_offset"), low - piece.base_offset))
    if not place:
        return 0
    position = int(positions[place - 1])
    before = int(np.searchsorted(positions, position - LOOK_BACK_BYTES, side="right"))
    anchor = int(positions[before - 1]) if before else 0
    if not 0 < position < source.size_bytes or position - anchor > LOOK_BACK_BYTES_MAX:
        return 0
    look = HeaderReader(source, check_crc=True, start_bytes=anchor, end_bytes=position, columns=(), read_markers=False)
    is_right = not any(len(block.bad_crc) for block in look) and look.tail == Tail(TailKind.CLEAN, position)
    first = next(iter(HeaderReader(source, start_bytes=position, block_bytes=1, columns=("base_offset",))), None)
    if not is_right or first is None or int(first.column("base_offset")[0]) > low:
        return 0
    return position


def _last_offsets(block: HeaderBlock) -> np.ndarray:
    last: np.ndarray = block.column("base_offset") + block.column("last_offset_delta")
    return last


def _with_following(blocks: Iterable[HeaderBlock]) -> Iterator[tuple[HeaderBlock, int]]:
    """Each block, with the base offset of the batch after it; the greatest int64 after the last one."""
    held: HeaderBlock | None = None
    for block in blocks:
        if held is not None:
            yield held, int(block.column("base_offset")[0])
        held = block
    if held is not None:
        yield held, limits.INT64_MAX


def _first_disorder(piece: LogPiece, block: HeaderBlock, previous: int, following: int) -> int | None:
    """The first row whose offsets are not above all before it, or are above those after it; None without one.

    A base offset is not under the checksum. Where two neighbours contradict each other, the first is wrong if the second one goes on from
    what is before both.
    """
    base = block.column("base_offset")
    last = _last_offsets(block)
    before = np.concatenate(([previous], last[:-1]))
    after = np.concatenate((base[1:], [following]))
    is_above_next = after < base
    is_above_next[block.bad_crc] |= (after <= last)[block.bad_crc]
    is_wrong = (base <= before) | (last < base) | (is_above_next & (after > before))
    if piece.end is not None:
        # Not where the segment goes on: two segments may hold the same batches.
        is_wrong |= (base >= piece.end) & (base > before + 1) & (before < piece.end) & (after == limits.INT64_MAX)
    wrong = np.flatnonzero(is_wrong)
    return int(wrong[0]) if len(wrong) else None


def _disorder(piece: LogPiece, block: HeaderBlock, row: int, previous: int, following: int) -> BatchFault:
    position = int(block.position_bytes[row])
    found = int(block.column("base_offset")[row])
    expected = f"{previous + 1} or higher"
    if found > previous:
        after = int(block.column("base_offset")[row + 1]) if row + 1 < len(block) else following
        bound = after if piece.end is None else min(after, piece.end)
        expected = f"{expected}, and below {bound}"
    error = BadValueError("offset of a batch", file=piece.path, position=position, expected=expected, found=found)
    return BatchFault(piece, position, error, found)


def _fault_of_tail(piece: LogPiece, source: OpenBytes, reader: HeaderReader, on_torn: OnFault | None) -> BatchFault | None:
    """Why the batches end before the end of the segment; None if they do not, or end as a broker ends a log."""
    tail = reader.tail
    if tail is None or tail.error is None:
        return None
    is_torn = piece.is_last and tail.kind in (TailKind.TORN, TailKind.ZERO_FILLED)
    index = None if piece.index is None else ReadPath(piece.store, piece.index)
    fault = BatchFault(piece, tail.position_bytes, tail.error.in_file(piece.path))
    if not is_torn or not ends_at_log_end(source, piece.base_offset, index):
        return fault
    if on_torn is not None:
        on_torn(fault)
    return None


def _after(source: OpenBytes, position: int) -> int | None:
    """Where the batch after a damaged one begins, by the length of that; None if its length cannot be right."""
    head = bytearray(LOG_OVERHEAD_BYTES + MAGIC_BYTES)
    if source.read_into(position, memoryview(head)) != len(head):
        return None
    length = int.from_bytes(head[8:LOG_OVERHEAD_BYTES], "big", signed=True)
    end = position + LOG_OVERHEAD_BYTES + length
    return end if length >= LENGTH_MIN[0] and end < source.size_bytes else None


def _report(fault: BatchFault, on_fault: OnFault | None) -> None:
    if on_fault is None:
        raise fault.error
    on_fault(fault)
