"""The files that a query reads: found below its paths, narrowed by names, and packed into tasks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from formats.file_names import FileKind, parse_file_name
from snaprebuild.operations.findings import Finding
from snaprebuild.operations.source import Selection, open_source
from snaprebuild.spark.packing import TASK_BYTES_MAX, TASK_BYTES_MIN, pack
from snaprebuild.spark.pushed_filters import column_of, holds, may_hold
from snaprebuild.storage.local_store import LOCAL
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import Store

__all__ = ["Fault", "FileToRead", "Task", "packed", "passes", "segments_and_faults", "snapshots_and_faults", "text_of"]

TASKS_MANY = 2048
"""Tasks from which on they rather become larger: nobody tells a data source how many cores there are."""

FILE_COST_BYTES = 1 << 20
"""What opening a file costs, as if it were longer by this."""


@dataclass(frozen=True, slots=True)
class FileToRead:
    """A segment or a snapshot.

    Attributes:
        topic: of its partition; likewise ``partition`` and ``directory``, its path.
        partition: see there.
        directory: see there.
        name: of the file.
        offset: in its name.
        size_bytes: when it was listed.
        next_offset: of a segment, the base offset of the next one; None behind the last.
        has_index: of a segment: an offset index stands beside it.
        store: that holds it.
    """

    topic: str
    partition: int
    directory: str
    name: str
    offset: int
    size_bytes: int
    next_offset: int | None = None
    has_index: bool = False
    store: Store = LOCAL

    @property
    def path(self) -> str:
        """Of the file."""
        return os.path.join(self.directory, self.name)


@dataclass(frozen=True, slots=True)
class Fault:
    """What was found below the paths and is not read, and why."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Task:
    """What one task of Spark reads."""

    files: tuple[FileToRead, ...] = ()
    faults: tuple[Fault, ...] = ()


def text_of(path: str) -> str:
    """A path as text that can be sent: bytes that are no UTF-8 become question marks."""
    return os.fsencode(path).decode(errors="replace")


def segments_and_faults(paths: Iterable[str], selection: Selection) -> tuple[list[FileToRead], list[Fault]]:
    """The segments that may hold batches of the selection.

    A batch is looked for where a broker looks for it: in the segment with the greatest base offset that is not above its own.

    Raises:
        UsageError: a path is no directory.
    """

    def of_partition(directory: PartitionDir) -> Iterator[FileToRead]:
        segments = directory.segments
        for index, segment in enumerate(segments):
            next_offset = segments[index + 1].base_offset if index + 1 < len(segments) else None
            below = selection.offset_from is not None and next_offset is not None and next_offset <= selection.offset_from
            above = selection.offset_to is not None and segment.base_offset > selection.offset_to
            if not below and not above:
                name, size = segment.log.name, segment.size_bytes
                has_index = segment.offset_index is not None
                yield _file(directory, name, segment.base_offset, size, next_offset=next_offset, has_index=has_index)

    return _files_and_faults(paths, selection, FileKind.LOG, of_partition)


def snapshots_and_faults(paths: Iterable[str], selection: Selection) -> tuple[list[FileToRead], list[Fault]]:
    """The snapshots whose offset is selected.

    Raises:
        UsageError: a path is no directory.
    """

    def of_partition(directory: PartitionDir) -> Iterator[FileToRead]:
        for offset, file in directory.snapshots:
            if selection.takes_boundary(offset):
                yield _file(directory, file.name, offset, file.identity.size_bytes)

    return _files_and_faults(paths, selection, FileKind.PRODUCER_SNAPSHOT, of_partition)


def _files_and_faults(
    paths: Iterable[str], selection: Selection, kind: FileKind, of_partition: Callable[[PartitionDir], Iterable[FileToRead]]
) -> tuple[list[FileToRead], list[Fault]]:
    source = open_source(paths, selection=selection)
    faults = [Fault(finding.path, finding.message) for finding in source.findings if _concerns_data(finding)]
    files: list[FileToRead] = []
    for partition in source.partitions:
        directory = partition.directory
        for name in directory.unreadable:
            parsed = parse_file_name(name)
            if parsed is not None and parsed.kind is kind:
                faults.append(Fault(directory.file_path(name), "is no regular file: not read"))
        files += of_partition(directory)
    return files, faults


def _concerns_data(finding: Finding) -> bool:
    return bool(finding.severity) and finding.code != "unreadable-broker-file"


def _file(
    directory: PartitionDir, name: str, offset: int, size: int, *, next_offset: int | None = None, has_index: bool = False
) -> FileToRead:
    topic, partition = directory.name.topic, directory.name.partition
    return FileToRead(topic, partition, directory.path, name, offset, size, next_offset, has_index, directory.store)


def passes(known: dict[str, Any], ranges: dict[str, tuple[int, int]], filters: Sequence[Any]) -> bool:
    """Whether what a file holds may pass the filters.

    Args:
        known: the values that all its rows have, by column.
        ranges: least and greatest value that a row may have, by column.
        filters: of Spark, all of which have to hold.
    """
    for condition in filters:
        column = column_of(condition)
        if column in known:
            if holds(condition, known[column]) is not True:
                return False
        elif column in ranges and not may_hold(condition, *ranges[column]):
            return False
    return True


def packed(files: Sequence[FileToRead], faults: Sequence[Fault], tasks: int | None) -> list[Task]:
    """Tasks of nearly equal size, at least one.

    Args:
        files: to be read.
        faults: to be told by the first task.
        tasks: how many; None for as many as the bytes ask for.
    """
    sizes = [file.size_bytes + FILE_COST_BYTES for file in files]
    if tasks is None:
        task_bytes = min(max(sum(sizes) // TASKS_MANY, TASK_BYTES_MIN), TASK_BYTES_MAX)
        tasks = math.ceil(sum(sizes) / task_bytes)
    tasks = max(1, min(tasks, len(files)))
    of_task: list[list[FileToRead]] = [[] for _ in range(tasks)]
    for file, task in zip(files, pack(sizes, tasks), strict=True):
        of_task[task].append(file)
    return [Task(tuple(each), () if index else tuple(faults)) for index, each in enumerate(of_task)]
