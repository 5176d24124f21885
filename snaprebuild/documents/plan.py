"""The document of ``plan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import PartitionNeeds, StatusName
from snaprebuild.published import Document, Natural, Part, Positive, Seconds, one_of
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PlanCounts
from snaprebuild.snapshots.plan.plan_request import SavedRequest
from snaprebuild.snapshots.plan.source_verdict import VerdictSummary
from snaprebuild.snapshots.source.boundary_needs import NeedTotals

__all__ = ["NotPlanned", "PlanDocument", "PlannedPartition"]


class NotPlanned(Part, frozen=True):
    """A boundary that is not planned: refused if a broker may need it, else skipped."""

    offset: Natural
    action: Annotated[str, one_of("refused", "skipped")]
    reason: str


class PlannedPartition(PartitionNeeds, frozen=True):
    """The plan of a partition."""

    target: str
    """Directory of the snapshots."""
    segments: Natural
    log_start_offset: Natural
    log_end_offset: Natural | None
    """End of the last whole batch; null if it cannot be read or there is no segment."""
    replay_from_offset: Natural | None
    """Base offset of the segment where replay begins; null if there is nothing to do."""
    replay_reason: str
    min_read_bytes: Natural
    max_read_bytes: Natural
    retention_frees_ms: int | None
    """Moment after which retention has deleted every segment that lacks a snapshot; may be past. Null if remote storage is on, because a
    broker keeps what is not uploaded, or if server.properties does not show that it is off."""
    fault: str | None
    """Why nothing can be done."""
    boundaries: Sequence[BoundaryPlan]
    not_planned: Sequence[NotPlanned]
    verdict: VerdictSummary | None
    """On the replica as a source of snapshots; null if nothing would be written."""


class PlanDocument(Document, frozen=True):
    """The JSON document of `snaprebuild plan`."""

    NAME = "plan"
    VERSION = 3

    request: SavedRequest
    as_of_ms: int
    expiration_ms: Positive
    min_read_bytes: Natural
    max_read_bytes: Natural
    """Bytes to read if every window must be extended to its log start."""
    rate_bytes_per_second: Natural | None
    """Measured on a sample; null without anything to read."""
    estimated_seconds: Seconds | None
    retention_ms: int
    """Retention that retention_frees_ms assumes."""
    retention_source: str
    totals: NeedTotals
    planned: PlanCounts
    """The actions of a run, as far as they are known before the replay."""
    partitions: Sequence[PlannedPartition]
    status: StatusName
    """The worst of the counts."""
    counts: StatusCounts
    """The counts of the first line. A plan does not count waiting segments."""
