"""Read tasks for segments of a partition."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from snaprebuild.snapshots.engine.schedule import ReadTask
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import NarrowStore

__all__ = ["read_tasks"]


def read_tasks(
    directory: PartitionDir,
    indices: Iterable[int],
    *,
    check_crc: bool,
    cuts: Sequence[int] = (),
    with_statistics: bool = False,
    traced_producer: int | None = None,
    deadline: float | None = None,
) -> list[ReadTask]:
    """One task for each of the segments, in the order given.

    Args:
        directory: the listing.
        indices: of the segments.
        check_crc: compute checksums.
        cuts: offsets at which the state is wanted, ascending, none twice: a segment is cut at those that lie inside it.
        with_statistics: count batches by kind and by producer, too.
        traced_producer: id of the producer whose deciding batches are wanted, too.
        deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
    """
    segments = directory.segments
    tasks = []
    for index in indices:
        segment = segments[index]
        name = segment.offset_index
        is_last = index == len(segments) - 1
        first = bisect_right(cuts, segment.base_offset)
        path, store = directory.file_path(segment.log.name), directory.store
        tasks.append(
            ReadTask(
                path=path,
                index_path=None if name is None else directory.file_path(name),
                base_offset=segment.base_offset,
                identity=segment.log.identity,
                check_crc=check_crc,
                is_last=is_last,
                deadline=deadline,
                store=store.narrowed(path) if isinstance(store, NarrowStore) else store,
                until=segment.until_offset,
                cuts=tuple(cuts[first:] if is_last else cuts[first : bisect_left(cuts, segments[index + 1].base_offset)]),
                with_statistics=with_statistics,
                traced_producer=traced_producer,
                check_indexes=segment.has_checked_indexes,
            )
        )
    return tasks
