"""Reads several small segments as if they were one.

What a small segment costs is mostly the fixed cost of some hundred array operations. Segments whose bytes are in one buffer share it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

from formats.errors import FormatError
from formats.log.batch_headers import BytesSegment, HeaderReader, Tail, TailKind
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay.block_effect import effects_of_parts
from snaprebuild.replay.segment_effect import SegmentEffect
from snaprebuild.replay.segment_facts import SegmentFacts
from snaprebuild.replay.segment_summary import SUMMARY_COLUMNS, BatchContents, Piece, summaries_of
from snaprebuild.replay.transactions import index_relevant
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_each, read_segment
from snaprebuild.storage.local.mapped_windows import mapped_reads

__all__ = ["read_in_worker", "read_parcel"]

TOGETHER_BYTES_MAX = 256 << 10
"""Of a segment. A larger one gains little."""


def read_parcel(tasks: Sequence[ReadTask]) -> list[Pieces | Exception]:
    """What ``read_segment`` returns for each of these segments, or its error. They may be of several partitions."""
    together = [task for task in tasks if _is_plain(task)]
    done: dict[str, Pieces] = {}
    if len(together) > 1:
        with contextlib.suppress(Exception):  # whatever it is, it concerns one of them: the one that has it alone
            done = _read_together(together)
    alone = iter(read_each(read_segment, [task for task in tasks if task.path not in done]))
    return [done[task.path] if task.path in done else next(alone) for task in tasks]


Reader = Callable[[Sequence[ReadTask]], Sequence[Pieces | Exception]]
"""``read_parcel``, or in a test another one."""


def read_in_worker(read: Reader, tasks: Sequence[ReadTask], *, may_map: bool) -> Sequence[Pieces | Exception]:
    """Reads a parcel in a process that may die of it."""
    with mapped_reads(allowed=may_map):
        return read(tasks)


def _is_plain(task: ReadTask) -> bool:
    """A small segment on a file system, of which nothing is wanted but its summary."""
    special = task.cuts or task.with_statistics or task.check_indexes
    is_whole = task.until is None and task.traced_producer is None
    return task.store.is_local and not special and is_whole and 0 < task.identity.size_bytes <= TOGETHER_BYTES_MAX


def _read_together(tasks: Sequence[ReadTask]) -> dict[str, Pieces]:
    """By path. Empty if anything is unusual: each segment, read alone, then says what."""
    parts = [(task, data) for task in tasks if (data := _bytes_of(task)) is not None]
    data = b"".join(part for _, part in parts)
    begins = np.cumsum([0, *(len(part) for _, part in parts[:-1])])
    check_crc = any(task.check_crc for task in tasks)
    reader = HeaderReader(
        BytesSegment(data), check_crc, begins, block_bytes=len(data), block_rows=len(data), columns=SUMMARY_COLUMNS
    )
    blocks = list(reader)
    # If a batch begins where each segment does, each one before it ends with its last batch.
    if len(blocks) != 1 or reader.tail != Tail(TailKind.CLEAN, len(data)) or reader.bytes_read != len(data):
        return {}
    (block,) = blocks
    starts = np.searchsorted(block.position_bytes, begins)
    if len(block.bad_crc) or not np.array_equal(block.position_bytes.take(starts, mode="clip"), begins):
        return {}
    contents = zip(parts, SegmentFacts.of_parts(block, starts), effects_of_parts(block, starts), strict=True)
    return {task.path: _pieces(task, len(part), facts, effect) for (task, part), facts, effect in contents}


def _bytes_of(task: ReadTask) -> bytes | None:
    """All of a segment; None if that fails."""
    data = bytearray(task.identity.size_bytes)
    with (
        contextlib.suppress(SnaprebuildError, FormatError),
        mapped_reads(allowed=False),
        task.store.open_bytes(task.path, task.identity, task.deadline, task.is_last) as source,
    ):
        is_whole = source.read_into(0, memoryview(data)) == len(data)
        return bytes(data) if is_whole else None
    return None


def _pieces(task: ReadTask, size_bytes: int, facts: SegmentFacts, effect: SegmentEffect) -> Pieces:
    relevant = index_relevant(effect.closes)
    contents = BatchContents(facts, effect.with_closes(relevant), len(effect.closes) - len(relevant))
    tail = Tail(TailKind.CLEAN, size_bytes)
    return summaries_of(
        [Piece(contents, size_bytes, size_bytes)], task.base_offset, (), tail=tail, size_bytes=size_bytes, is_last=task.is_last
    )
