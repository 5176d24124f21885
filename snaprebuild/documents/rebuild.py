"""The documents of ``rebuild``."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import CacheUse, InputSegment, PartitionNeeds, StatusName
from snaprebuild.documents.plan import NotPlanned
from snaprebuild.published import Document, Natural, Positive, Seconds
from snaprebuild.snapshots.destination.boundary_result import BoundaryResult
from snaprebuild.snapshots.plan.plan_request import SavedRequest
from snaprebuild.snapshots.plan.source_verdict import VerdictSummary
from snaprebuild.snapshots.run import CacheHits
from snaprebuild.snapshots.source.boundary_needs import NeedTotals

__all__ = ["Rebuild", "RebuildTotals", "RebuiltPartition"]


class RebuiltPartition(PartitionNeeds, frozen=True):
    """A partition and its result."""

    target: str
    """Directory of the snapshots."""
    inputs: Sequence[InputSegment]
    """The segments."""
    log_start_offset: Natural
    log_end_offset: Natural | None
    replay_from_offset: Natural | None
    replay_reason: str
    read_bytes: Natural
    cache_hits: CacheHits
    elapsed_seconds: Seconds
    boundaries: Sequence[BoundaryResult]
    """One for each requested boundary, ascending."""
    not_planned: Sequence[NotPlanned]
    verdict: VerdictSummary | None
    """On the replica as a source of snapshots; null if nothing would be written."""


class RebuildTotals(NeedTotals, frozen=True):
    """Boundaries without a snapshot before the run, and boundaries by action."""

    written: Natural = 0
    would_write: Natural = 0
    equal: Natural = 0
    kept: Natural = 0
    failed: Natural = 0
    refused: Natural = 0
    skipped: Natural = 0
    set_aside: Natural = 0
    """Snapshots of written and would_write that replace a wrong one, which is set aside."""
    not_judged: Natural = 0
    """Snapshots of equal and kept about which the replay proves nothing."""


class Rebuild(Document, frozen=True):
    """The JSON document of `snaprebuild rebuild`."""

    NAME = "rebuild"
    VERSION = 3

    request: SavedRequest
    as_of_ms: int
    expiration_ms: Positive
    dry_run: bool
    receipt: str | None
    """Path of the receipt of the written files; null if nothing was written."""
    staged_plan: str | None
    """Path of the plan for `install`; null if nothing was staged."""
    cache: CacheUse | None
    """Null without --cache."""
    takes_effect: str
    totals: RebuildTotals
    partitions: Sequence[RebuiltPartition]
    differences_not_listed: Natural
    """Entries that differ, are counted in difference_count and are not in differences."""
    status: StatusName
    """The worst of the counts."""
    counts: StatusCounts
    """The counts of the first line, after the run. A run does not count waiting segments."""
