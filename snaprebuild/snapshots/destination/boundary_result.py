"""The result for one boundary, and what was done there: its action."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from snaprebuild.published import Natural, Part
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_model import BoundaryPlan

__all__ = ["NOT_DONE", "BoundaryAction", "BoundaryResult", "unfinished"]


class BoundaryAction(StrEnum):
    """The action of a run at a boundary. ``would_write`` is ``written`` in a dry run."""

    WRITTEN = "written"
    WOULD_WRITE = "would_write"
    EQUAL = "equal"
    """The snapshot that is there has the same entries."""
    KEPT = "kept"
    """The snapshot that is there differs, and was not replaced."""
    FAILED = "failed"
    """An error prevented it."""
    REFUSED = "refused"
    """The snapshot must not be written."""
    SKIPPED = "skipped"
    """The run did not reach it, or no broker uses one."""


NOT_DONE = frozenset((BoundaryAction.FAILED, BoundaryAction.REFUSED, BoundaryAction.SKIPPED))
"""Actions that leave a boundary without the snapshot that was requested."""


class BoundaryResult(Part, frozen=True):
    """A boundary and the action there."""

    offset: Natural
    is_log_end: bool
    action: BoundaryAction
    snapshot_class: SnapshotClass | None = msgspec.field(name="class")
    """Class of the rebuilt snapshot; null if it was not rebuilt."""
    reasons: tuple[str, ...]
    entries: Natural | None = None
    """Producers in the rebuilt snapshot; null if it was not rebuilt."""
    path: str | None = None
    set_aside_name: str | None = None
    """New name of a wrong snapshot that was set aside."""
    comparison: Comparison | None = None
    """The existing snapshot compared with the replay."""


def unfinished(boundary: BoundaryPlan, action: BoundaryAction, reason: str) -> BoundaryResult:
    """The result of a boundary that has got no snapshot: ``failed``, ``refused`` or ``skipped``."""
    return BoundaryResult(boundary.offset, boundary.is_log_end, action, None, (reason,))
