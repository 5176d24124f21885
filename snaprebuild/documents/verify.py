"""The document of ``verify``."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.fates import StartFate
from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import CacheUse, InputSegment, PartitionNeeds, StatusName
from snaprebuild.published import Document, Natural, Positive, RunRecord, Seconds
from snaprebuild.replay.difference import VerifiedSnapshot
from snaprebuild.snapshots.run import CacheHits
from snaprebuild.snapshots.source.boundary_needs import NeedTotals

__all__ = ["VerifiedPartition", "Verify", "VerifyTotals"]


class VerifiedPartition(PartitionNeeds, frozen=True):
    """A partition."""

    inputs: Sequence[InputSegment]
    """The segments."""
    read_bytes: Natural
    cache_hits: CacheHits
    snapshots: Sequence[VerifiedSnapshot]
    """One for each snapshot on disk, ascending."""


class VerifyTotals(NeedTotals, frozen=True):
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
    """The JSON document of `snaprebuild verify`."""

    NAME = "verify"
    VERSION = 3

    run: RunRecord
    as_of_ms: int
    expiration_ms: Positive
    elapsed_seconds: Seconds
    cache: CacheUse | None
    """Null without --cache."""
    totals: VerifyTotals
    partitions: Sequence[VerifiedPartition]
    differences_not_listed: Natural
    """Entries that differ, are counted in difference_count and are not in differences."""
    status: StatusName = "healthy"
    """The worst of what was found, in the order of StatusName."""
    counts: StatusCounts = StatusCounts()
    """The counts of the first line."""
    fates: Sequence[StartFate] = ()
    """Effects of the next start, the worst first; partitions without one start as usual."""
