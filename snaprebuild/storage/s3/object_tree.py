"""Partitions below a prefix of an object store: one listing, whose keys are split into directories.

Keys come in ascending order, so that everything below a directory comes in one piece. A directory is complete when the listing
leaves it. Only the directories on the path of the present key are held open.
"""

from __future__ import annotations

import os

import msgspec

from formats.partition.file_names import parse_partition_dir_name
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.storage.partition_dir import (
    ENTRIES_MAX,
    REMOTE_LOG_INDEX_CACHE,
    ObjectEntry,
    PartitionDir,
    is_partition,
    partition_dir_of_entries,
)
from snaprebuild.storage.store import ABOVE_BUCKETS, Status
from snaprebuild.storage.store_path import StorePath

__all__ = ["FoundObjects", "find_objects"]


class _Open(msgspec.Struct):
    """A directory that the listing is in: its names so far, and the partitions found below it."""

    path: str
    entries: list[ObjectEntry] = msgspec.field(default_factory=list)
    below: list[PartitionDir] = msgspec.field(default_factory=list)
    is_too_large: bool = False

    def add(self, entry: ObjectEntry) -> None:
        if len(self.entries) < ENTRIES_MAX:
            self.entries.append(entry)
        else:
            self.is_too_large = True


class _Tree(msgspec.Struct):
    """Takes the keys of one listing in order."""

    root: StorePath
    open: list[_Open]
    faults: list[ReadFailedError] = msgspec.field(default_factory=list)
    odd: int = 0
    first_odd: str = ""

    def take(self, key: str, status: Status) -> None:
        *directories, name = key.split("/")
        # Such a key has no place in a tree of directories, and below --out it could lead anywhere.
        if any(part in ("", ".", "..") for part in directories) or "\0" in key:
            self.odd += 1
            self.first_odd = self.first_odd or key
            return
        if REMOTE_LOG_INDEX_CACHE in directories:
            directories = directories[: directories.index(REMOTE_LOG_INDEX_CACHE)]
            name = ""
        self._enter(directories)
        if name:  # a key without a name is the directory itself
            self.open[-1].add(ObjectEntry(name, status))

    def _enter(self, directories: list[str]) -> None:
        paths = [self.open[0].path]
        for name in directories:
            paths.append(os.path.join(paths[-1], name))
        while len(self.open) > len(paths) or self.open[-1].path != paths[len(self.open) - 1]:
            self.leave()
        for path in paths[len(self.open) :]:
            self.open[-1].add(ObjectEntry(os.path.basename(path)))
            self.open.append(_Open(path))

    def leave(self) -> list[PartitionDir]:
        """Ends the innermost directory. Returns the partitions at or below it, which belong to the one around it."""
        done = self.open.pop()
        directories = done.below
        above, last = os.path.split(done.path)
        name = (
            None if above.rstrip("/") == ABOVE_BUCKETS else parse_partition_dir_name(last)
        )  # a bucket is none, whatever it is called
        if done.is_too_large:
            self.faults.append(ReadFailedError(f"has more than {ENTRIES_MAX} entries", path=done.path))
            directories = []
        elif name is not None and is_partition(done.entries):
            directories = [partition_dir_of_entries(self.root.at(done.path), name, done.entries)]
        if self.open:
            self.open[-1].below += directories
        return directories


class FoundObjects(msgspec.Struct, frozen=True):
    """Partition directories of an object store.

    Attributes:
        faults: errors of directories that could not be listed.
        left_out: a message if there are keys that cannot be files below a directory; it contains one of them.
    """

    partitions: list[PartitionDir]
    faults: list[ReadFailedError]
    left_out: str | None


def find_objects(root: StorePath) -> FoundObjects:
    """Partition directories at or below ``root``.

    Args:
        root: ``s3://bucket/prefix``, without a slash at its end.

    Raises:
        UsageError: there are no objects.
        ReadFailedError: it cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    tree = _Tree(root, [_Open(root.path)])
    is_empty = True
    for key, status in root.list_below():
        is_empty = False
        tree.take(key, status)
    if is_empty:
        raise UsageError("there is no object below it", path=root.path)
    while len(tree.open) > 1:
        tree.leave()
    left_out = None
    if tree.odd:
        left_out = f"has {tree.odd} keys that cannot be files below a directory, the first {tree.first_odd!r}: left out"
    partitions = tree.leave()
    return FoundObjects(partitions, tree.faults, left_out)
