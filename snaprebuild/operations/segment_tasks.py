"""Read tasks for segments of a partition."""

from __future__ import annotations

from collections.abc import Iterable

from formats.file_names import offset_index_file_name
from snaprebuild.operations.schedule import ReadTask
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["read_tasks"]


def read_tasks(directory: PartitionDir, indices: Iterable[int], *, check_crc: bool) -> list[ReadTask]:
    """One task for each of the segments, in the order given."""
    tasks = []
    for index in indices:
        segment = directory.segments[index]
        name = offset_index_file_name(segment.base_offset) if segment.offset_index else None
        tasks.append(
            ReadTask(
                path=directory.file_path(segment.log.name),
                index_path=None if name is None else directory.file_path(name),
                base_offset=segment.base_offset,
                identity=segment.log.identity,
                check_crc=check_crc,
                may_grow=index == len(directory.segments) - 1,
            )
        )
    return tasks
