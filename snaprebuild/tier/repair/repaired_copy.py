"""Results of a repair of remote storage, or of its undo, for each copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from formats.remote.aiven_manifest import IndexPlace
from snaprebuild.published import Natural, Part, Uuid, one_of
from snaprebuild.storage.partition_names import TopicPartition
from snaprebuild.tier.audit.partition_audit import WRONG

__all__ = ["ObjectPart", "RepairAction", "RepairTotals", "RepairedCopy", "repair_totals"]


class RepairAction(StrEnum):
    """The result for a copy whose snapshot is wrong, or was repaired."""

    REPAIRED = "repaired"
    WOULD_REPAIR = "would-repair"
    """Dry run of a repair."""
    NOT_REPAIRED = "not-repaired"
    """The right content is not proven, or the copy is one that is left alone."""
    RESTORED = "restored"
    WOULD_RESTORE = "would-restore"
    """Dry run of an undo."""
    ABSENT = "absent"
    """Undo: there is nothing to restore."""
    LEFT = "left"
    """Undo: the manifest is neither the old one nor that of the repair."""
    REFUSED = "refused"
    """The objects of the copy changed meanwhile, or may not be written."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The copy may be repaired, or restored; another run shows it."""


class RepairTotals(Part, frozen=True, rename="kebab"):
    """Copies by action."""

    repaired: Natural
    would_repair: Natural
    not_repaired: Natural
    restored: Natural
    would_restore: Natural
    absent: Natural
    left: Natural
    refused: Natural
    failed: Natural
    unknown: Natural


class ObjectPart(Part, frozen=True):
    """A part of an object, as it is stored."""

    position: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    """Position of its first byte."""
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]

    @classmethod
    def of(cls, place: IndexPlace) -> ObjectPart:
        """The place of an index in ``.indexes``."""
        return cls(position=place.position, size_bytes=place.size)


class RepairedCopy(TopicPartition, frozen=True, kw_only=True):
    """A copy of a segment whose snapshot is or was wrong."""

    topic_id: Uuid
    segment_id: Uuid
    start_offset: Natural
    """First offset of the segment."""
    end_offset: Natural | None = None
    """Last offset; null if it is not known, and with undo."""
    action: RepairAction
    """The action (docs/guides/remote-storage.md)."""
    reason: str = ""
    """Why it was not done; empty if it was done, or would be."""
    verdict: Annotated[str, one_of(*WRONG)] | None = None
    """Verdict of `tier audit`; null with undo."""
    entries: Natural | None = None
    """Producers in the wrong snapshot; null if it was not compared."""
    snapshot_class: Annotated[str, one_of("EXACT")] | None = msgspec.field(name="class", default=None)
    """Class of the right snapshot: only this one is written; null if none is proven."""
    manifest_key: str | None = None
    """Key below the store; null if the repair was not begun."""
    indexes_key: str | None = None
    """Key of the .indexes object; null if the repair was not begun, and with undo."""
    indexes_bytes: Natural | None = None
    """Size of that object before."""
    appended_bytes: Natural | None = None
    """Bytes that are appended to it; 0 if an earlier run has done that."""
    old_place: ObjectPart | None = None
    """Position of the wrong snapshot in .indexes; null if the repair was not begun."""
    place: ObjectPart | None = None
    """Position of the right one."""


def repair_totals(copies: Sequence[RepairedCopy]) -> RepairTotals:
    """Copies by action."""
    counts = Counter(each.action for each in copies)
    return msgspec.convert({action.value: counts[action] for action in RepairAction}, RepairTotals)
