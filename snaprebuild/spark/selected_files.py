"""The files that a query reads: found below its paths, narrowed by names, split if they are huge, and packed into tasks.

Spark plans a DataFrame or view once and uses this plan in every later query. A planned file therefore represents a range of offsets in
its directory. A task lists the directory again and reads the files that have an offset of its ranges at that moment. The ranges of all
tasks cover each directory without overlap, so every file is read by exactly one task, whatever a broker adds or deletes. The first task
also looks for directories that the plan does not have.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from formats.partition.file_names import FileKind, PartitionDirectoryName, parse_file_name
from snaprebuild.errors import GonePartitionError, ReadFailedError, RefusedError, UsageError
from snaprebuild.findings import Finding, FindingCause
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import open_source, why_skipped
from snaprebuild.spark.executor_directories import DirectoryIdentity, directories_above, identities_of, paths_without
from snaprebuild.spark.packing import packed_for_source, source_part_bytes
from snaprebuild.spark.pushed_filters import column_of, holds, may_hold
from snaprebuild.spark.segment_parts import Joint, joints_of
from snaprebuild.storage.local.segment_file import check_parts
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.log_dir import listed_again
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, read_positions_hint
from snaprebuild.storage.store import USUAL_S3, FileIdentity, ReadStore, S3Settings
from snaprebuild.storage.store_path import ReadPath
from snaprebuild.storage.thread_pool import local_map

__all__ = [
    "FileToRead",
    "FilesOf",
    "ListedFiles",
    "ReadFault",
    "Task",
    "list_files",
    "listed_now",
    "packed",
    "passes",
    "planned",
    "segments",
    "snapshots",
    "split",
    "text_of",
]

FILE_COST_BYTES = 1 << 20
"""Cost of opening a file, as a number of additional bytes."""


@dataclass(frozen=True, slots=True)
class FileToRead:
    """A segment, a part of one, or a snapshot.

    Attributes:
        topic: of its partition.
        partition: number.
        directory: path of the partition directory.
        name: of the file.
        offset: in its name.
        size_bytes: of the file, or part, when it was listed.
        next_offset: for a segment, the base offset of the next one; None for the last.
        has_index: for a segment: there is an offset index.
        store: that holds it.
        identity: when it was listed.
        joints: of a segment that is split.
        part: number of the part, from 0.
        low: least offset of the range in its directory that a planned file represents, inclusive.
        high: end of that range, exclusive; None for no end.
    """

    topic: str
    partition: int
    directory: str
    name: str
    offset: int
    size_bytes: int
    next_offset: int | None = None
    has_index: bool = False
    store: ReadStore = LOCAL
    identity: FileIdentity | None = None
    joints: tuple[Joint, ...] = ()
    part: int = 0
    low: int = 0
    high: int | None = None

    @property
    def path(self) -> str:
        """Path of the file."""
        return os.path.join(self.directory, self.name)

    @property
    def file(self) -> ReadPath:
        """The file, to be read."""
        return ReadPath(self.store, self.path)

    @property
    def index(self) -> ReadPath | None:
        """The offset index of a segment; None without one."""
        return ReadPath(self.store, self.path.removesuffix(".log") + ".index") if self.has_index else None


@dataclass(frozen=True, slots=True)
class ReadFault:
    """Something below the paths that is not read, and why."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Task:
    """The files that one task of Spark reads.

    Attributes:
        files: planned ones; the task reads the present content of their directories in their ranges (``listed_now``).
        planned_directories: of all tasks, for the task that looks for other directories; None for every other task.
        log_dirs: identities of the directories above those of the partitions, by path, where they were listed; also of paths
            without partitions.
    """

    files: tuple[FileToRead, ...] = ()
    planned_directories: frozenset[str] | None = None
    log_dirs: Mapping[str, DirectoryIdentity] = field(default_factory=dict)


class ListedFiles(NamedTuple):
    """The files below the paths of a query.

    Attributes:
        files: that the query may need.
        faults: of what is not read.
        log_dirs: directories on this machine that a task must have, too (``executor_directories``).
    """

    files: list[FileToRead]
    faults: list[ReadFault]
    log_dirs: list[str]


FilesOf = Callable[[PartitionDir, Selection], Iterable[FileToRead]]
"""The files of a partition that a query may need."""


def text_of(path: str) -> str:
    """A path as text that can be sent: bytes that are no UTF-8 become question marks."""
    return os.fsencode(path).decode(errors="replace")


def segments(directory: PartitionDir, selection: Selection) -> Iterator[FileToRead]:
    """The segments that may hold batches of the selection.

    A batch is looked for where a broker looks for it: in the segment with the greatest base offset that is not above its own.
    """
    for segment, next_one in pairwise((*directory.segments, None)):
        assert segment is not None
        next_offset = None if next_one is None else next_one.base_offset
        below = selection.offset_from is not None and next_offset is not None and next_offset <= selection.offset_from
        above = selection.offset_to is not None and segment.base_offset > selection.offset_to
        if not below and not above:
            has_index = segment.offset_index is not None
            yield _file(directory, segment.log, segment.base_offset, next_offset=next_offset, has_index=has_index)


def snapshots(directory: PartitionDir, selection: Selection) -> Iterator[FileToRead]:
    """The snapshots whose offset is selected."""
    for offset, file in directory.snapshots:
        if selection.takes_boundary(offset):
            yield _file(directory, file, offset)


def list_files(
    paths: Iterable[str],
    selection: Selection,
    kind: FileKind,
    files_of: FilesOf,
    stores: S3Settings = USUAL_S3,
    *,
    checks_names: bool = False,
) -> ListedFiles:
    """The files below ``paths``. A directory without partitions has none.

    Args:
        paths: to look below.
        selection: topics, partitions and offsets.
        kind: of the files.
        files_of: the files of one partition.
        stores: how object stores are reached.
        checks_names: names that select none of the partitions that are there are an error, because they are probably mistyped.

    Raises:
        UsageError: a path is no directory, or no partition has the selected names.
    """
    places = tuple(paths)
    source = open_source(places, selection=selection, run=Run(stores=stores))
    faults = []
    for finding in source.findings:
        if finding.cause is FindingCause.NOTHING_FOUND:
            if checks_names:
                _check_names(places, selection, stores)
        elif _concerns_data(finding):
            faults.append(ReadFault(finding.path, finding.message))
    files: list[FileToRead] = []
    for partition in source.partitions:
        faults += _unreadable(partition.directory, kind)
        files += files_of(partition.directory, selection)
    directories = [each.directory for each in (*source.partitions, *source.skipped)]
    log_dirs = directories_above((each.store, each.path) for each in directories)
    return ListedFiles(files, faults, log_dirs + paths_without((each.path for each in directories), places))


def _check_names(places: tuple[str, ...], selection: Selection, stores: S3Settings) -> None:
    everything = open_source(places, run=Run(stores=stores))
    present = [(each.directory.name.topic, each.directory.name.partition) for each in (*everything.partitions, *everything.skipped)]
    if present:
        raise UsageError(selection.why_none(present, as_options=False), path=places[0])


def _unreadable(directory: PartitionDir, kind: FileKind) -> Iterator[ReadFault]:
    for name in directory.unreadable:
        parsed = parse_file_name(name)
        if parsed is not None and parsed.kind is kind:
            yield ReadFault(directory.file_path(name), "is no regular file: not read")


def planned(files: Iterable[FileToRead]) -> list[FileToRead]:
    """The files with the ranges that they represent: together they cover each directory.

    Args:
        files: by directory, and ascending by offset.
    """
    represented = []
    for _, group in groupby(files, key=lambda file: file.directory):
        of_directory = list(group)
        bounds = [0, *(file.offset for file in of_directory[1:]), None]
        for file, (low, high) in zip(of_directory, pairwise(bounds), strict=True):
            assert low is not None
            represented.append(replace(file, low=low, high=high))
    return represented


def listed_now(files: Iterable[FileToRead], selection: Selection, files_of: FilesOf) -> Iterator[FileToRead | ReadFault]:
    """The present files of the directories of planned files, in their ranges. A directory that is gone has none.

    Raises:
        RefusedError: a file that is read in parts was replaced.
    """
    for path, group in groupby(files, key=lambda file: file.directory):
        of_directory = list(group)
        name = PartitionDirectoryName(of_directory[0].topic, of_directory[0].partition)
        try:
            directory = listed_again(PartitionDir(path, name, 0, store=of_directory[0].store))
        except GonePartitionError:
            continue
        except ReadFailedError as error:
            yield ReadFault(path, error.message)
            continue
        skipped = why_skipped(directory, is_named=False)
        if skipped is not None:
            yield ReadFault(path, skipped.message)
            continue
        present = list(files_of(directory, selection))
        for plan in of_directory:
            for file in present:
                if plan.low <= file.offset and (plan.high is None or file.offset < plan.high):
                    yield from _part_now(plan, file) if plan.joints else (file,)


def _part_now(plan: FileToRead, file: FileToRead) -> Iterator[FileToRead]:
    """The part of a split segment. Its last part also reads the segments that were rolled since."""
    is_last = plan.part == len(plan.joints)
    if file.offset != plan.offset:
        if is_last:
            yield file
        return
    before = plan.identity
    now = file.identity
    assert before is not None
    assert now is not None
    if now != before and (not file.store.is_local or now.inode != before.inode or now.size_bytes < before.size_bytes):
        how = "load the DataFrame or view again, or use the option splitSegments=false"
        raise RefusedError(f"changed since it was listed, and is read in parts: {how}", path=file.path)
    check_parts(file.path, before, now)
    yield replace(file, joints=plan.joints, part=plan.part)


def _concerns_data(finding: Finding) -> bool:
    return bool(finding.severity) and finding.cause is not FindingCause.SETTINGS_UNREADABLE


def _file(
    directory: PartitionDir, file: ListedFile, offset: int, *, next_offset: int | None = None, has_index: bool = False
) -> FileToRead:
    topic = directory.name.topic
    partition = directory.name.partition
    identity = file.identity
    size = identity.size_bytes
    return FileToRead(
        topic=topic,
        partition=partition,
        directory=directory.path,
        name=file.name,
        offset=offset,
        size_bytes=size,
        next_offset=next_offset,
        has_index=has_index,
        store=directory.store,
        identity=identity,
    )


def passes(known: dict[str, Any], ranges: dict[str, tuple[int, int]], filters: Sequence[Any]) -> bool:
    """Whether rows of a file may pass the filters.

    Args:
        known: the values that all its rows have, by column.
        ranges: least and greatest value that a row may have, by column.
        filters: of Spark, all of which must hold.
    """
    for condition in filters:
        column = column_of(condition)
        if column in known:
            if holds(condition, known[column]) is not True:
                return False
        elif column in ranges and not may_hold(condition, *ranges[column]):
            return False
    return True


def split(segments: Sequence[FileToRead], tasks: int | None) -> list[FileToRead]:
    """The segments; those that are larger than a task and have an offset index are split into parts.

    Args:
        segments: to be read.
        tasks: how many; None for a number that suits the bytes.
    """
    total = sum(file.size_bytes for file in segments)
    target = source_part_bytes(total, tasks)
    huge = [file for file in segments if file.size_bytes > target and file.has_index]
    parts = local_map(file.store for file in huge)(lambda file: _parts(file, target), huge)
    of_huge = dict(zip(map(id, huge), parts, strict=True))
    return [part for file in segments for part in of_huge.get(id(file), (file,))]


def _parts(file: FileToRead, target_bytes: int) -> list[FileToRead]:
    assert file.index is not None
    joints = joints_of(read_positions_hint(file.index, file.size_bytes), file.size_bytes, target_bytes)
    bounds = pairwise((0, *(joint.position_bytes for joint in joints), file.size_bytes))
    return [replace(file, size_bytes=end - start, joints=joints, part=part) for part, (start, end) in enumerate(bounds)]


def packed(files: Sequence[FileToRead], tasks: int | None, log_dirs: Iterable[str] = ()) -> list[Task]:
    """Tasks of nearly equal size, at least one. The first one looks for directories that are not planned.

    Args:
        files: to be read.
        tasks: how many; None for a number that suits the bytes.
        log_dirs: directories on this machine that each task must have, too.
    """
    of_task = packed_for_source(files, [file.size_bytes + FILE_COST_BYTES for file in files], tasks)
    directories = frozenset(file.directory for file in files)
    identities = identities_of(log_dirs)
    return [Task(tuple(each), None if index else directories, identities) for index, each in enumerate(of_task)]
