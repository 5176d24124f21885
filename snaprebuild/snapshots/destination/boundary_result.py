"""The result for one boundary, and what can be done with it: its action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from snaprebuild.published import Natural, Part, one_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_model import BoundaryPlan

__all__ = [
    "EQUAL",
    "FAILED",
    "KEPT",
    "NOT_DONE",
    "REFUSED",
    "SKIPPED",
    "WOULD_WRITE",
    "WRITTEN",
    "Action",
    "BoundaryResult",
    "unfinished",
]

WRITTEN = "written"
EQUAL = "equal"
KEPT = "kept"
WOULD_WRITE = "would_write"
"""Actions that leave a snapshot at the boundary: written; equal to one that is there; kept, because one is there and differs. Or it would
be written (dry run)."""

Action = Annotated[str, one_of("written", "would_write", "equal", "kept", "failed", "refused", "skipped")]

FAILED = "failed"
REFUSED = "refused"
SKIPPED = "skipped"

NOT_DONE = frozenset((FAILED, REFUSED, SKIPPED))
"""Actions that leave a boundary without the wanted snapshot: an error; it must not be written; or the run did not reach it."""


class BoundaryResult(Part, frozen=True):
    """A boundary and the action there."""

    offset: Natural
    is_log_end: bool
    action: Action
    snapshot_class: SnapshotClass | None = msgspec.field(name="class")
    """Class of the rebuilt snapshot; null if it was not rebuilt."""
    reasons: tuple[str, ...]
    entries: Natural | None = None
    """Producers in the rebuilt snapshot; null if it was not rebuilt."""
    path: str | None = None
    set_aside: str | None = None
    """New name of a wrong snapshot that was set aside."""
    comparison: Comparison | None = None
    """The existing snapshot compared with the replay."""


def unfinished(wanted: BoundaryPlan, action: str, why: str) -> BoundaryResult:
    """The result of a boundary that has got no snapshot: ``failed``, ``refused`` or ``skipped``."""
    return BoundaryResult(wanted.offset, wanted.is_log_end, action, None, (why,))
