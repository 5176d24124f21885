"""The document of ``verify``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from snaprebuild.broker.fates import StartFate
from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import CacheUse, InputSegment, NeedTotals, PartitionNeeds, StatusName
from snaprebuild.published import Document, Natural, Part, Positive, Run, Seconds
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison
from snaprebuild.snapshots.engine.partition_task import CacheHits

__all__ = ["Partition", "Snapshot", "Totals", "Verify"]


class Snapshot(Part, frozen=True):
    """A snapshot compared with the replay."""

    offset: Natural
    snapshot_class: SnapshotClass | None = msgspec.field(name="class")
    """Class of the replay at this offset; null at or below the first base offset, above the log end, and above damage."""
    comparison: Comparison


class Partition(PartitionNeeds, frozen=True):
    """A partition."""

    inputs: Sequence[InputSegment]
    """The segments."""
    read_bytes: Natural
    from_cache: CacheHits
    snapshots: Sequence[Snapshot]
    """One for each snapshot on disk, ascending."""


class Totals(NeedTotals, frozen=True):
    """Boundaries without a snapshot, and snapshots by status."""

    equal: Natural = 0
    equal_after_expiry: Natural = 0
    unverifiable: Natural = 0
    extra_entries: Natural = 0
    missing_entries: Natural = 0
    stale: Natural = 0
    false_empty: Natural = 0
    corrupt: Natural = 0


class Verify(Document, frozen=True):
    """What `snaprebuild verify --output json` prints."""

    NAME = "verify"
    VERSION = 2

    run: Run
    as_of_ms: int
    expiration_ms: Positive
    elapsed_seconds: Seconds
    cache: CacheUse | None
    """Null without --cache."""
    totals: Totals
    partitions: Sequence[Partition]
    differences_not_listed: Natural
    """Entries that differ, are counted in difference_count and are not in differences."""
    status: StatusName = "healthy"
    """The worst of what was found, in the order of StatusName."""
    counts: StatusCounts = StatusCounts()
    """The counts of the first line."""
    fates: Sequence[StartFate] = ()
    """What the next start does, the worst first; partitions without one start as usual."""
