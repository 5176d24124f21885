"""The result for one boundary, and what can be done with it: its action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snaprebuild.documents import common as common_documents

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_model import BoundaryPlan

__all__ = ["EQUAL", "FAILED", "KEPT", "NOT_DONE", "REFUSED", "SKIPPED", "WOULD_WRITE", "WRITTEN", "BoundaryResult", "unfinished"]

WRITTEN = "written"
EQUAL = "equal"
KEPT = "kept"
WOULD_WRITE = "would_write"
"""Actions that leave a snapshot at the boundary: written; equal to one that is there; kept, because one is there and differs. Or it would
be written (dry run)."""

FAILED = "failed"
REFUSED = "refused"
SKIPPED = "skipped"

NOT_DONE = frozenset((FAILED, REFUSED, SKIPPED))
"""Actions that leave a boundary without the wanted snapshot: an error; it must not be written; or the run did not reach it."""


class BoundaryResult(common_documents.ReplayedBoundary, frozen=True):
    """The result for one boundary, as documents show it."""


def unfinished(wanted: BoundaryPlan, action: str, why: str) -> BoundaryResult:
    """The result of a boundary that has got no snapshot: ``failed``, ``refused`` or ``skipped``."""
    return BoundaryResult(wanted.offset, wanted.is_log_end, action, None, (why,))
