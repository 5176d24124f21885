"""The document of ``install``."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import ActionTotals, StatusName
from snaprebuild.published import Document, Natural, Part, Seconds
from snaprebuild.snapshots.destination.boundary_result import BoundaryResult
from snaprebuild.storage.partition_names import TopicPartition

__all__ = ["Install", "InstalledPartition", "PhaseSeconds"]


class PhaseSeconds(Part, frozen=True):
    """Seconds by phase."""

    load: Seconds = 0.0
    check: Seconds = 0.0
    judge: Seconds = 0.0
    announce: Seconds = 0.0
    link: Seconds = 0.0
    sync: Seconds = 0.0
    replay: Seconds = 0.0


class InstalledPartition(TopicPartition, frozen=True):
    """A partition whose snapshots were staged."""

    path: str
    target: str
    """Directory of the staged files."""
    blocked_bytes: Natural
    """Bytes of the first rolled segment without a snapshot and of every later rolled one, when it was staged."""
    read_bytes: Natural
    """Bytes of segments that were rolled since."""
    boundaries: Sequence[BoundaryResult]
    touched_segment: Natural | None = None
    """Base offset of the first segment that was touched since it was staged, if snapshots above are replayed, not linked; else null."""
    replayed_not_linked: Sequence[Natural] = ()
    """Offsets of these snapshots."""


class Install(Document, frozen=True):
    """The JSON document of `snaprebuild install`."""

    NAME = "install"
    VERSION = 3

    plan: str
    """Path of the staged plan."""
    plan_sha256: str
    """SHA-256 of that file, for --require-plan."""
    staged_ms: Natural
    """When it was staged, milliseconds since 1970."""
    log_dirs: Sequence[str]
    """Every log directory of the broker that the plan has; all are locked meanwhile."""
    dry_run: bool
    deadline_seconds: Natural | None
    receipt: str | None
    """Path of the receipt of the installed snapshots; null if nothing was installed."""
    takes_effect: str
    phase_seconds: PhaseSeconds
    totals: ActionTotals
    partitions: Sequence[InstalledPartition]
    """In the order of the work: most bytes blocked first."""
    status: StatusName
    """The worst of the counts."""
    counts: StatusCounts
    """The counts of the first line, after the run. Missing are snapshots of the staged plan only; waiting segments are not counted."""
