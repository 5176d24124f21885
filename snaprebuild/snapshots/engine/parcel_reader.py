"""Reads several small segments as if they were one.

What a small segment costs is mostly the fixed cost of some hundred array operations. Segments whose bytes are in one buffer share it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from formats.errors import FormatError
from formats.log.batch_headers import BytesSegment, HeaderBlock, HeaderReader, Tail, TailKind
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay.block_effect import effects_of_parts
from snaprebuild.replay.segment_effect import SegmentEffect
from snaprebuild.replay.segment_facts import SegmentFacts
from snaprebuild.replay.segment_summary import SUMMARY_COLUMNS, BatchContents, Piece, summaries_of
from snaprebuild.replay.transactions import index_relevant
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_each, read_segment

__all__ = ["Outcomes", "Read", "read_parcel"]

log = logging.getLogger(__name__)

TOGETHER_BYTES_MAX = 256 << 10
"""Of a segment. A larger one gains little."""


Outcomes = Sequence[Pieces | Exception]
"""Of segments that were read together."""

Read = Callable[[Sequence[ReadTask]], Outcomes]
"""``read_parcel``, or in a test another one."""


def read_parcel(tasks: Sequence[ReadTask]) -> Outcomes:
    """What ``read_segment`` returns for each of these segments, or its error. They may be of several partitions."""
    together = [number for number, task in enumerate(tasks) if _is_plain(task)]
    done: dict[int, Pieces] = {}
    if len(together) > 1:
        try:
            parts = [_Part(number, tasks[number], data) for number in together if (data := _bytes_of(tasks[number])) is not None]
            done = dict(_read_together(parts))
        except Exception as error:  # whatever it is, it concerns one of them: the one that has it alone
            log.debug("%d segments are read one by one", len(tasks), exc_info=error)
    alone = iter(read_each(read_segment, [task for number, task in enumerate(tasks) if number not in done]))
    return [done[number] if number in done else next(alone) for number in range(len(tasks))]


class _Part(msgspec.Struct, frozen=True):
    """A segment and all of its bytes; ``number`` is its place among the tasks."""

    number: int
    task: ReadTask
    data: bytearray


def _is_plain(task: ReadTask) -> bool:
    """A small segment on a file system, of which nothing is wanted but its summary."""
    whole = (task.path, task.index_path, task.base_offset, task.identity, task.check_crc, task.is_last)
    is_small = 0 < task.identity.size_bytes <= TOGETHER_BYTES_MAX
    return is_small and task.store.is_local and task == ReadTask(*whole, deadline=task.deadline, store=task.store)


def _bytes_of(task: ReadTask) -> bytearray | None:
    """All of a segment; None if that fails, or if it has grown since it was listed."""
    data = bytearray(task.identity.size_bytes)
    with (
        contextlib.suppress(SnaprebuildError, FormatError),
        task.store.open_bytes(task.path, task.identity, task.deadline, task.is_last) as source,
    ):
        is_whole = source.size_bytes == len(data) and source.read_into(0, memoryview(data)) == len(data)
        return data if is_whole else None
    return None


def _read_together(parts: Sequence[_Part]) -> Iterator[tuple[int, Pieces]]:
    """By number. A segment with anything unusual is left out: read alone, it says what."""
    found = _found_together(parts)
    if found is None:
        half = len(parts) // 2
        for some in (parts[:half], parts[half:]) if half else ():
            yield from _read_together(some)
        return
    block, starts = found
    contents = zip(parts, SegmentFacts.of_parts(block, starts), effects_of_parts(block, starts), strict=True)
    yield from ((part.number, _pieces(part.task, len(part.data), facts, effect)) for part, facts, effect in contents)


def _found_together(parts: Sequence[_Part]) -> tuple[HeaderBlock, np.ndarray] | None:
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
    is_right = not len(block.bad_crc) and np.array_equal(block.position_bytes.take(starts, mode="clip"), begins)
    return (block, starts) if is_right else None


def _pieces(task: ReadTask, size_bytes: int, facts: SegmentFacts, effect: SegmentEffect) -> Pieces:
    relevant = index_relevant(effect.closes)
    contents = BatchContents(facts, effect.with_closes(relevant), len(effect.closes) - len(relevant))
    tail = Tail(TailKind.CLEAN, size_bytes)
    return summaries_of(
        [Piece(contents=contents, end_bytes=size_bytes, bytes_read=size_bytes)],
        task.base_offset,
        (),
        tail=tail,
        size_bytes=size_bytes,
        is_last=task.is_last,
    )
