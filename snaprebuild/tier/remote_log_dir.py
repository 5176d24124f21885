"""Copies of a partition in remote storage as a partition directory, which `verify` and replay read like any other.

Names of files are keys below the root of the store: the objects of one partition may be below several prefixes. The parts of one object in
Aiven's layout have the names that ``TierStore`` understands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from formats import limits
from formats.partition.file_names import DirectoryForm, PartitionDirectoryName
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, SegmentFiles
from snaprebuild.storage.remote.listing import TierLayout
from snaprebuild.storage.store import FileIdentity, Ownership, ReadStore
from snaprebuild.storage.store_path import ReadPath, StorePath
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.remote_copy import LOG_OF, UNREAD, CopyFacts, RemoteCopy, copy_facts, manifest_bytes

__all__ = ["RemoteLogDir"]

NO_OWNER = Ownership(0, 0, 0)


@dataclass(frozen=True, slots=True)
class RemoteLogDir:
    """Where the copies of one partition are, and how their files are read.

    Attributes:
        base: where the objects are.
        store: reads the files of a copy: that of ``base``, or a ``TierStore`` on it.
    """

    id: TopicIdPartition
    base: StorePath
    layout: TierLayout
    store: ReadStore

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.base.path}: {self.id.topic}-{self.id.partition} ({uuid_to_text(self.id.topic_id)})"

    def name(self, copy: RemoteCopy, kind: LocalTierFile = LocalTierFile.LOG) -> str:
        """Name of a file of a copy."""
        return copy.objects.by_kind[LOG_OF[self.layout]].key.removesuffix(LocalTierFile.LOG) + kind

    def path(self, copy: RemoteCopy, kind: LocalTierFile = LocalTierFile.LOG) -> str:
        """Location of a file of a copy."""
        return f"{self.base.path}/{self.name(copy, kind)}"

    def file(self, copy: RemoteCopy, kind: LocalTierFile = LocalTierFile.LOG) -> ReadPath:
        """A file of a copy, to be read."""
        return ReadPath(self.store, self.path(copy, kind))

    def facts_of(self, copies: Sequence[RemoteCopy]) -> Iterator[CopyFacts]:
        """The facts of each copy from the listing and the manifests, in the order of the copies, which have objects.

        Raises:
            RefusedError: a limit of the run is used up.
        """
        objects = [each.objects for each in copies]
        return map_in_threads(partial(copy_facts, self.base, self.layout), objects, manifest_bytes)

    def read(self, copy: RemoteCopy, kind: LocalTierFile, bytes_max: int = limits.INDEX_BYTES_MAX) -> bytes | None:
        """Bytes of a small file of a copy; None where it has none.

        Raises:
            ReadFailedError: it cannot be read.
            FormatError: what the store keeps around it is bad.
            RefusedError: it is encrypted, and no key was given; or a limit of the run is used up.
        """
        return self.file(copy, kind).read_small(bytes_max)

    def segment(self, copy: RemoteCopy, *, until: int | None = None, with_indexes: bool = False) -> SegmentFiles:
        """A copy as a segment of the directory.

        Args:
            copy: with a record, or with facts.
            until: offset after the last one that is taken; None for all.
            with_indexes: its offset and time index may be read as those of a directory; they are not compared with the segment.
        """
        assert copy.segment_bytes is not None
        facts = UNREAD if with_indexes else copy.facts
        identity = replace(copy.objects.by_kind[LOG_OF[self.layout]].identity, size_bytes=copy.segment_bytes)
        offset_index, time_index = (
            self.name(copy, kind) if with_indexes else None for kind in (LocalTierFile.OFFSET_INDEX, LocalTierFile.TIME_INDEX)
        )
        return SegmentFiles(
            base_offset=copy.start_offset,
            log=ListedFile(self.name(copy), identity, NO_OWNER),
            offset_index=offset_index,
            time_index=time_index,
            transaction_index=facts.index_bytes,
            until_offset=until,
            index_hits=facts.index_hits,
            compared_bytes=tuple(size for _, size in facts.compared),
        )

    def snapshot(self, copy: RemoteCopy) -> ListedFile | None:
        """The producer snapshot of a copy with facts as a file of the directory; None where it has no bytes."""
        size_bytes = copy.facts.snapshot_bytes
        if not size_bytes:
            return None
        return ListedFile(self.name(copy, LocalTierFile.PRODUCER_SNAPSHOT), FileIdentity(size_bytes, 0, 0), NO_OWNER)

    def directory(
        self,
        segments: Iterable[SegmentFiles],
        snapshots: Iterable[tuple[int, ListedFile]] = (),
        log_end_offset: int | None = None,
    ) -> PartitionDir:
        """Copies that follow one another as a partition directory."""
        named = PartitionDirectoryName(self.id.topic, self.id.partition, DirectoryForm.PLAIN)
        return PartitionDir(
            self.base.path,
            named,
            0,
            tuple(segments),
            tuple(snapshots),
            has_leader_epochs=True,
            store=self.store,
            log_end_offset=log_end_offset,
        )

    def source(self, directory: PartitionDir) -> PartitionSource:
        """A directory of this partition as a source."""
        return PartitionSource(directory, LogDirState(self.base.path, store=self.base.store), directory.topic_partition)
