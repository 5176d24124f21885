"""One copy as an audit sees it: its objects, what they tell without its segment, and what is to be read of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from formats.remote.aiven_key import AivenObject
from formats.remote.local_tier_name import LocalTierFile
from snaprebuild.storage.partition_dir import ListedFile, SegmentFiles
from snaprebuild.storage.remote.listing import TierCopy, TierLayout
from snaprebuild.storage.remote.store import KnownCopy
from snaprebuild.storage.store import FileIdentity
from snaprebuild.tier.audit.overlaps import CopySpan
from snaprebuild.tier.audit.result import AuditedCopy
from snaprebuild.tier.copies import CopyFacts
from snaprebuild.tier.cost import LOG_OF, CopyRead
from snaprebuild.tier.remote_partition import NOBODY

__all__ = ["ReadableCopy"]


@dataclass(slots=True)
class ReadableCopy:
    """A copy whose segment can be read.

    Attributes:
        copy: its objects.
        layout: of them.
        facts: what they tell.
        audited: what is told of it.
        epochs: leader epochs of the segment; none where nobody tells.
        event_time_ms: when its copy began, or was finished; 0 where nobody tells.
        max_timestamp_ms: greatest of its records; None where nobody tells.
    """

    copy: TierCopy
    layout: TierLayout
    facts: CopyFacts
    audited: AuditedCopy
    epochs: tuple[tuple[int, int], ...]
    event_time_ms: int
    max_timestamp_ms: int | None

    @property
    def end_offset(self) -> int | None:
        """Last offset; None as long as it is not known."""
        return self.audited.end_offset

    @property
    def span(self) -> CopySpan:
        """For ``remote_line``; its end is known."""
        assert self.end_offset is not None
        last_epoch = self.epochs[-1][0] if self.epochs else -1
        return CopySpan(self.copy.base_offset, self.end_offset, self.epochs, (last_epoch, self.event_time_ms))

    @property
    def log_name(self) -> str:
        """Key of the segment: the objects of one partition may lie below several prefixes."""
        return self.copy.objects[LOG_OF[self.layout]].key

    def file_name(self, kind: LocalTierFile) -> str:
        """Of what belongs to the segment, as ``TierStore`` takes it."""
        return self.log_name.removesuffix(LocalTierFile.LOG) + kind

    def known(self, root: str) -> KnownCopy | None:
        """What ``TierStore`` need not read again; None where its objects lie below several prefixes."""
        stem, indexes = self.log_name.removesuffix(LocalTierFile.LOG), self.copy.objects.get(AivenObject.INDEXES)
        if self.facts.manifest is None or indexes is None or indexes.key != f"{stem}.{AivenObject.INDEXES}":
            return None
        return KnownCopy(f"{root}/{stem}", self.facts.manifest, indexes.identity)

    def segment(self, until: int | None = None, *, with_index: bool = False) -> SegmentFiles:
        """As a file of a directory.

        Args:
            until: offset behind the last one that is taken; None for all.
            with_index: its offset index may be read, too.
        """
        assert self.facts.segment_bytes is not None
        stored = self.copy.objects[LOG_OF[self.layout]]
        listed = ListedFile(stored.key, replace(stored.identity, size_bytes=self.facts.segment_bytes), NOBODY)
        cut = until if until is not None and (self.end_offset is None or until <= self.end_offset) else None
        index = self.file_name(LocalTierFile.OFFSET_INDEX) if with_index else None
        facts = self.facts
        sizes = tuple(size for _, size in facts.compared)
        return SegmentFiles(self.copy.base_offset, listed, index, None, facts.index_bytes, cut, facts.index_hits, sizes)

    def snapshot(self) -> ListedFile | None:
        """Its producer snapshot as a file of a directory; None where that has no bytes."""
        if not self.facts.snapshot_bytes:
            return None
        return ListedFile(self.file_name(LocalTierFile.PRODUCER_SNAPSHOT), FileIdentity(self.facts.snapshot_bytes, 0, 0), NOBODY)

    def is_compared(self, until: int | None = None) -> bool:
        """Whether its indexes are compared with its segment, of which that much is taken."""
        return self.segment(until).has_checked_indexes

    def read(
        self, *, segment: bool = False, compared: bool = False, snapshot: bool = False, index: bool = False, end: bool = False
    ) -> CopyRead:
        """What reading costs.

        Args:
            segment: read it.
            compared: and its indexes, which are compared with it.
            snapshot: and its producer snapshot.
            index: and its transaction index.
            end: and look for its end, which only its batches tell, and its leader epochs.
        """
        found = CopyRead(self.copy)
        is_aiven = self.layout is TierLayout.AIVEN
        if segment:
            found.add(LOG_OF[self.layout], self.copy.objects[LOG_OF[self.layout]].identity.size_bytes)
        for kind, size in self.facts.compared if compared else ():
            found.add(AivenObject.INDEXES if is_aiven else kind, size)
        if snapshot:
            found.add(AivenObject.INDEXES if is_aiven else LocalTierFile.PRODUCER_SNAPSHOT, self.facts.snapshot_bytes or 0)
        if index:
            found.add(AivenObject.INDEXES if is_aiven else LocalTierFile.TRANSACTION_INDEX, self.facts.index_bytes or 0)
        if end:
            beside = (LocalTierFile.OFFSET_INDEX, LocalTierFile.LEADER_EPOCHS, LocalTierFile.TIME_INDEX)
            kinds = (AivenObject.INDEXES,) * len(beside) if is_aiven else beside
            found.parts += [(kind, 0, 1) for kind in (LOG_OF[self.layout], *kinds)]
        return found
