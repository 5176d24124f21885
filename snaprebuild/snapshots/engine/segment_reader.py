"""Reads segments to their summaries: one, or several small ones as if they were one. Worker processes and Spark tasks run this.

What a small segment costs is mostly the fixed cost of some hundred array operations. Segments whose bytes are in one buffer share it.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.log.batch_headers import BytesSegment, HeaderBlock, HeaderReader, Tail, TailKind
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay.block_effect import effects_of_parts
from snaprebuild.replay.segment_effect import SegmentEffect, index_relevant
from snaprebuild.replay.segment_summary import (
    SUMMARY_COLUMNS,
    Analysis,
    BatchContents,
    BatchTotals,
    IndexEntries,
    Piece,
    SegmentSummary,
    summaries_of,
    summarise_pieces,
)
from snaprebuild.storage.local.regular_file import once_more
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.partition_dir import PartitionDir, read_positions_hint
from snaprebuild.storage.store import FileIdentity, OpenBytes, ReadStore
from snaprebuild.storage.store_path import ReadPath

__all__ = [
    "Outcomes",
    "Pieces",
    "Read",
    "ReadTask",
    "index_entries_of",
    "open_segment",
    "read_each",
    "read_group",
    "read_segment",
    "read_tasks",
]

log = logging.getLogger(__name__)

Pieces = tuple[SegmentSummary, ...]
"""The summary of a segment, or those of its pieces if it is cut."""


class ReadTask(msgspec.Struct, frozen=True):
    """One segment to read.

    Attributes:
        index_path: of its offset index, which is a hint; None without one.
        identity: from the listing.
        is_last: of its partition: a live broker may append to it.
        cuts: offsets inside it at which it is cut in pieces, ascending.
        with_first_events: also find the first events of each producer (``replay.first_events``).
        deadline: nothing is read after this ``time.monotonic()``, which all processes of a machine share; None for none.
        until: batches from this offset on do not count; None if all do.
        compared_bytes: stored bytes of each index next to it that is compared with its batches; None if none is.
        extras: other analyses of its batches.
    """

    path: str
    index_path: str | None
    base_offset: int
    identity: FileIdentity
    check_crc: bool
    is_last: bool = False
    cuts: tuple[int, ...] = ()
    with_first_events: bool = False
    deadline: float | None = None
    store: ReadStore = LOCAL
    until: int | None = None
    compared_bytes: tuple[int, ...] | None = None
    extras: tuple[Analysis, ...] = ()


def read_tasks(
    directory: PartitionDir,
    indices: Iterable[int],
    *,
    check_crc: bool,
    cuts: Sequence[int] = (),
    extras: tuple[Analysis, ...] = (),
    with_first_events: bool = False,
    deadline: float | None = None,
) -> list[ReadTask]:
    """One task for each of these segments, in the order given.

    Args:
        directory: the listing.
        indices: of the segments.
        check_crc: see ``ReadTask``, as for the other arguments.
        cuts: offsets at which the state is wanted, ascending and distinct: a segment is cut at those inside it.
        extras: see ``ReadTask``.
        with_first_events: see ``ReadTask``.
        deadline: see ``ReadTask``.
    """
    segments = directory.segments
    tasks = []
    for index in indices:
        segment = segments[index]
        is_last = index == len(segments) - 1
        inner_cuts = cuts[bisect_right(cuts, segment.base_offset) :]
        if not is_last:
            inner_cuts = inner_cuts[: bisect_left(inner_cuts, segments[index + 1].base_offset)]
        path = directory.file_path(segment.log.name)
        tasks.append(
            ReadTask(
                path=path,
                index_path=None if segment.offset_index is None else directory.file_path(segment.offset_index),
                base_offset=segment.base_offset,
                identity=segment.log.identity,
                check_crc=check_crc,
                is_last=is_last,
                deadline=deadline,
                store=directory.store.for_file(path),
                until=segment.until_offset,
                cuts=tuple(inner_cuts),
                extras=extras,
                with_first_events=with_first_events,
                compared_bytes=segment.compared_bytes if segment.has_checked_indexes else None,
            )
        )
    return tasks


UNINDEXED_BYTES_MAX = 32 << 10
"""Size of a segment that is walked sooner than its index is opened."""


@contextlib.contextmanager
def open_segment(task: ReadTask, *, splits: bool = False) -> Iterator[tuple[OpenBytes, np.ndarray | None]]:
    """The segment of a task and its index hint. The hint of an object costs a request, so it is read only to split the object.

    Raises:
        RefusedError: it is not the listed file or changed while it was read (``ChangedFileError``), or the deadline has passed.
        ReadFailedError: it cannot be opened.
    """
    with task.store.open_bytes(task.path, task.identity, task.deadline, task.is_last) as source:
        hint = None
        is_large = task.store.is_local and source.size_bytes > UNINDEXED_BYTES_MAX
        if task.index_path is not None and (splits or is_large):
            hint = read_positions_hint(ReadPath(task.store, task.index_path), source.size_bytes)
        yield source, hint


def index_entries_of(task: ReadTask) -> IndexEntries | None:
    """The entries of the indexes next to the segment of a task; None if they are not compared with its batches."""
    if task.compared_bytes is None:
        return None
    from snaprebuild.snapshots.engine.index_check import read_index_entries  # needed for remote storage alone

    return read_index_entries(ReadPath(task.store, task.path), task.base_offset)


def read_segment(task: ReadTask) -> Pieces:
    """Reads one segment. If it changes meanwhile, it is read once more.

    Raises:
        RefusedError: it is not the listed file or changed both times (``ChangedFileError``), or the deadline has passed.
        SnaprebuildError: it cannot be read.
    """
    return once_more(partial(_read_once, task))


def read_each(read: Callable[[ReadTask], Pieces], tasks: Iterable[ReadTask]) -> list[Pieces | Exception]:
    """Reads segments one after the other. An error is that of its segment alone."""
    outcomes: list[Pieces | Exception] = []
    for task in tasks:
        try:
            outcomes.append(read(task))
        except Exception as error:
            outcomes.append(error)
    return outcomes


def _read_once(task: ReadTask) -> Pieces:
    cuts = task.cuts
    if task.until is not None:
        cuts = (*(cut for cut in task.cuts if cut < task.until), task.until)
    with open_segment(task) as (source, hint):
        pieces = summarise_pieces(
            source,
            task.base_offset,
            cuts,
            is_last=task.is_last,
            check_crc=task.check_crc,
            hint=hint,
            extras=task.extras,
            with_first_events=task.with_first_events,
            indexes=index_entries_of(task),
        )
    if task.until is not None:
        return tuple(_before(pieces, task.until))
    return pieces


def _before(pieces: Pieces, until: int) -> Iterator[SegmentSummary]:
    """The pieces up to a cut, which becomes the end of the segment; all of them if the segment ends before it."""
    for piece in pieces:
        if piece.cut_offset == until:
            yield replace(piece, cut_offset=None, cut_batch_offset=None)
            return
        yield piece


TOGETHER_BYTES_MAX = 256 << 10
"""Size of a segment that is read together with others. A larger one gains little."""


Outcomes = Sequence[Pieces | Exception]
"""The pieces of segments that were read together, or the error of each."""

Read = Callable[[Sequence[ReadTask]], Outcomes]
"""``read_group``, or in a test another one."""


def read_group(tasks: Sequence[ReadTask]) -> Outcomes:
    """The result of ``read_segment`` for each of these segments, or its error. They may be of several partitions."""
    together = _read_plain_ones(tasks)
    outcomes: list[Pieces | Exception] = []
    for number, task in enumerate(tasks):
        if number in together:
            outcomes.append(together[number])
        else:
            outcomes += read_each(read_segment, [task])
    return outcomes


def _read_plain_ones(tasks: Sequence[ReadTask]) -> dict[int, Pieces]:
    """The pieces of the plain segments by number, without those that have to be read alone."""
    numbers = [number for number, task in enumerate(tasks) if _is_plain(task)]
    if len(numbers) < 2:
        return {}
    try:
        parts = []
        for number in numbers:
            data = _bytes_of(tasks[number])
            if data is not None:
                parts.append(_WholeSegment(number, tasks[number], data))
        return dict(_read_together(parts))
    except Exception as error:  # whatever it is, it concerns one of them: the one that has it alone
        log.debug("%d segments are read one by one", len(tasks), exc_info=error)
        return {}


class _WholeSegment(msgspec.Struct, frozen=True):
    """A segment and all of its bytes; ``number`` is its place among the tasks."""

    number: int
    task: ReadTask
    data: bytearray


def _is_plain(task: ReadTask) -> bool:
    """A small segment on a file system, of which nothing is wanted but its summary."""
    if not task.store.is_local or not 0 < task.identity.size_bytes <= TOGETHER_BYTES_MAX:
        return False
    return task == ReadTask(
        path=task.path,
        index_path=task.index_path,
        base_offset=task.base_offset,
        identity=task.identity,
        check_crc=task.check_crc,
        is_last=task.is_last,
        deadline=task.deadline,
        store=task.store,
    )


def _bytes_of(task: ReadTask) -> bytearray | None:
    """All of a segment; None if that fails, or if it has grown since it was listed."""
    data = bytearray(task.identity.size_bytes)
    with (
        contextlib.suppress(SnaprebuildError, FormatError),
        task.store.open_bytes(task.path, task.identity, task.deadline, task.is_last) as source,
    ):
        if source.size_bytes == len(data) and source.read_into(0, memoryview(data)) == len(data):
            return data
    return None


def _read_together(parts: Sequence[_WholeSegment]) -> Iterator[tuple[int, Pieces]]:
    """By number. A segment with anything unusual is left out: read alone, it says what."""
    batches = _batches_of(parts)
    if batches is None:
        half = len(parts) // 2
        if half:
            yield from _read_together(parts[:half])
            yield from _read_together(parts[half:])
        return
    block, starts = batches
    totals = BatchTotals.of_parts(block, starts)
    effects = effects_of_parts(block, starts)
    for part, facts, effect in zip(parts, totals, effects, strict=True):
        yield part.number, _pieces(part.task, len(part.data), facts, effect)


def _batches_of(parts: Sequence[_WholeSegment]) -> tuple[HeaderBlock, np.ndarray] | None:
    """The batches of all segments, and the row with which each segment begins; None if anything is unusual."""
    data = b"".join(part.data for part in parts)
    begins = np.cumsum([0, *(len(part.data) for part in parts[:-1])])
    check_crc = any(part.task.check_crc for part in parts)
    reader = HeaderReader(
        BytesSegment(data), check_crc, begins, block_bytes=len(data), block_rows=len(data), columns=SUMMARY_COLUMNS
    )
    blocks = list(reader)
    # If a batch begins where each segment does, each one before it ends with its last batch.
    if len(blocks) != 1 or reader.tail != Tail(TailKind.CLEAN, len(data)) or reader.bytes_read != len(data):
        return None
    (block,) = blocks
    starts = np.searchsorted(block.position_bytes, begins)
    if len(block.bad_crc) or not np.array_equal(block.position_bytes.take(starts, mode="clip"), begins):
        return None
    return block, starts


def _pieces(task: ReadTask, size_bytes: int, facts: BatchTotals, effect: SegmentEffect) -> Pieces:
    relevant = index_relevant(effect.closes)
    contents = BatchContents(facts, effect.with_closes(relevant), len(effect.closes) - len(relevant))
    tail = Tail(TailKind.CLEAN, size_bytes)
    return summaries_of(
        [Piece(contents=contents, end_bytes=size_bytes, read_bytes=size_bytes)],
        task.base_offset,
        (),
        tail=tail,
        size_bytes=size_bytes,
        is_last=task.is_last,
    )
