"""Copies in remote storage that follow one another, as a log that can be replayed; and the small files of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.file_names import DirectoryForm, PartitionDirectoryName
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.aiven_manifest import read_aiven_manifest
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import RemoteSegment, TopicIdPartition
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding
from snaprebuild.replay.broker_answer import epoch_of
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, SegmentFiles
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store import FileIdentity, ReadStore
from snaprebuild.storage.thread_pool import at_once
from snaprebuild.tier.copies import CopyFacts, copy_facts, manifest_bytes
from snaprebuild.tier.remote_partition import LOG_KIND, NOBODY, RemotePartition, Tier

__all__ = ["RemoteChain", "chain_below", "leader_epochs_at", "metadata_findings", "partition_named", "small_file"]


def partition_named(tier: Tier, topic: str, number: int, topic_id: bytes | None, findings: list[Finding]) -> RemotePartition | None:
    """What remote storage has of a partition, by its name; None where it has nothing.

    Args:
        tier: the store.
        topic: name.
        number: of the partition.
        topic_id: 16 bytes; None for the only topic of that name.
        findings: gets what cannot be read.

    Raises:
        UsageError: several topics had that name.
        RefusedError: a limit of the run is used up.
    """
    named = {(each.topic_id, each.partition): each.topic for each in tier.logs.partitions}
    if topic_id is not None:
        ids = [topic_id] if (topic_id, number) in tier.partitions or (topic_id, number) in named else []
    else:
        found = {**{place: each.topic for place, each in tier.partitions.items()}, **named}
        ids = sorted({place[0] for place, name in found.items() if place[1] == number and name == topic})
    if len(ids) > 1:
        told = ", ".join(map(uuid_to_text, ids))
        raise UsageError(f"has copies of several topics called {topic}: --topic-id tells which of {told}", path=tier.root)
    if not ids:
        return None
    return tier.partition(TopicIdPartition(topic, ids[0], number), findings)


def metadata_findings(tier: Tier) -> list[Finding]:
    """What is wrong with the metadata logs; other partitions of the store are nobody's matter here."""
    return [each for each in tier.findings if each.code in ("damaged-metadata-log", "unknown-metadata-version")]


def small_file(remote: RemotePartition, segment: RemoteSegment, kind: LocalTierFile) -> bytes:
    """A small file of a copy that every copy has.

    Raises:
        ReadFailedError, FormatError, RefusedError: as ``RemotePartition.file``; or it is not there.
    """
    data = remote.file(segment, kind)
    if data is None:
        raise ReadFailedError(f"copy {uuid_to_text(segment.segment_id)}: it has no {kind}", path=remote.place)
    return data


def leader_epochs_at(remote: RemotePartition, segment: RemoteSegment) -> tuple[LeaderEpochEntry, ...]:
    """The leader epochs of the log up to the end of a copy: all entries.

    Raises:
        FormatError: they do not parse, or the copy cannot be read.
        ReadFailedError, RefusedError: likewise.
    """
    data = small_file(remote, segment, LocalTierFile.LEADER_EPOCHS)
    return read_leader_epoch_checkpoint(data, file=f"{remote.place}: copy {uuid_to_text(segment.segment_id)}")


def chain_below(remote: RemotePartition, epochs: Sequence[LeaderEpochEntry], end: int) -> RemoteChain | None:
    """The copies below an offset, of the log with these leader epochs; None where none holds the offset right below.

    Args:
        remote: the partition.
        epochs: of the log, ascending.
        end: offset behind the last one that is wanted.
    """
    found: list[RemoteSegment] = []
    wanted, why = end - 1, "the log begins here"
    while wanted >= 0:
        epoch = epoch_of(epochs, wanted)
        segment = None if epoch is None else remote.log.lookup(epoch, wanted)
        if segment is None:
            why = f"no finished copy holds offset {wanted} of leader epoch {epoch}"
            break
        if found and segment.end_offset >= found[-1].start_offset:
            why = f"the copy that holds {wanted} overlaps the one behind it"
            break
        found.append(segment)
        wanted = segment.start_offset - 1
    return RemoteChain(remote, tuple(reversed(found)), why) if found else None


@dataclass(frozen=True, slots=True)
class RemoteChain:
    """Copies that follow one another without a hole, up to an offset.

    Attributes:
        remote: their partition.
        segments: ascending; the last one holds the offset below the wanted end.
        ends_at: why no copy lies before the first one.
    """

    remote: RemotePartition
    segments: tuple[RemoteSegment, ...]
    ends_at: str
    _facts: dict[bytes, CopyFacts] = field(default_factory=dict, compare=False)

    @property
    def start_offset(self) -> int:
        """Of the first copy."""
        return self.segments[0].start_offset

    def source(self, segments: Sequence[RemoteSegment], snapshots: Sequence[RemoteSegment] = ()) -> PartitionSource:
        """Some of them as a partition directory.

        Args:
            segments: in a row.
            snapshots: copies whose producer snapshots lie beside them.

        Raises:
            ReadFailedError: objects are missing, or of another size than they should be.
            RefusedError: they are encrypted for a key that was not given.
        """
        remote = self.remote
        self._look(*segments, *snapshots)
        files = tuple(self._segment(each) for each in segments)
        listed = []
        for each in snapshots:
            size = self._facts[each.segment_id].snapshot_bytes
            if size:
                name = self._name(each).removesuffix(".log") + LocalTierFile.PRODUCER_SNAPSHOT
                listed.append((each.end_offset + 1, ListedFile(name, FileIdentity(size, 0, 0), NOBODY)))
        named = PartitionDirectoryName(remote.id.topic, remote.id.partition, DirectoryForm.PLAIN)
        directory = PartitionDir(remote.root, named, 0, files, tuple(listed), has_leader_epochs=True, store=remote.store)
        return PartitionSource(directory, LogDirState(remote.root), directory.topic_partition)

    def _look(self, *segments: RemoteSegment) -> None:
        """Asks for what the objects say of themselves, once."""
        unknown = {each.segment_id: self.remote.objects_of(each) for each in segments if each.segment_id not in self._facts}
        assert self.remote.layout is not None, "it has objects"
        look = partial(copy_facts, _base(self.remote.store), self.remote.root, self.remote.layout)
        found = at_once(look, list(unknown.values()), manifest_bytes)
        self._facts.update(zip(unknown, found, strict=True))

    def _name(self, segment: RemoteSegment) -> str:
        assert self.remote.layout is not None
        return self.remote.objects_of(segment).objects[LOG_KIND[self.remote.layout]].key

    def _segment(self, segment: RemoteSegment) -> SegmentFiles:
        facts, name, store = self._facts[segment.segment_id], self._name(segment), self.remote.store
        location = f"{self.remote.root}/{name}"
        if facts.fault is not None:
            raise ReadFailedError(facts.fault, path=location)
        if facts.key_id is not None and facts.manifest is not None and isinstance(store, TierStore):
            store.data_key(read_aiven_manifest(facts.manifest), location)
        if facts.segment_bytes != segment.size_bytes:
            told = f"has {facts.segment_bytes} bytes, and the metadata log says {segment.size_bytes}"
            raise ReadFailedError(told, path=location)
        # Names are keys: the objects of one partition may lie below several prefixes.
        assert self.remote.layout is not None
        stored = self.remote.objects_of(segment).objects[LOG_KIND[self.remote.layout]]
        listed = ListedFile(name, replace(stored.identity, size_bytes=segment.size_bytes), NOBODY)
        return SegmentFiles(segment.start_offset, listed, transaction_index=facts.index_bytes, index_hits=facts.index_hits)


def _base(store: ReadStore) -> ReadStore:
    """The store that holds the objects themselves."""
    return store.base if isinstance(store, TierStore) else store
