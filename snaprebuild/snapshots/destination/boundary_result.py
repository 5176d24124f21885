"""The result for one boundary, and what can be done with it: its action."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_model import BoundaryPlan

__all__ = ["EQUAL", "FAILED", "KEPT", "NOT_DONE", "REFUSED", "SKIPPED", "WOULD_WRITE", "WRITTEN", "BoundaryResult", "unfinished"]

WRITTEN, EQUAL, KEPT, WOULD_WRITE = "written", "equal", "kept", "would_write"

FAILED, REFUSED, SKIPPED = "failed", "refused", "skipped"

NOT_DONE = frozenset((FAILED, REFUSED, SKIPPED))
"""Actions that leave a boundary without the wanted snapshot: an error; it must not be written; or the run did not reach it."""


class BoundaryResult(msgspec.Struct, frozen=True):
    """The result for one boundary.

    Attributes:
        offset: the boundary.
        is_log_end: it is the log end offset.
        action: ``written`` or ``would_write`` (dry run). ``equal`` (is there already) or ``kept`` (is there, differs, was not touched).
            ``failed`` (an error), ``refused`` (it must not be written) or ``skipped`` (the run did not reach it).
        snapshot_class: of the rebuilt snapshot, or None when it was not rebuilt; ``reasons`` say why.
        entries: count in the rebuilt snapshot, or None.
        path: of the snapshot, or None.
        set_aside: name that a wrong snapshot was moved to, or None.
        comparison: with a snapshot that was there, or None.
    """

    offset: int
    is_log_end: bool
    action: str
    snapshot_class: SnapshotClass | None
    reasons: tuple[str, ...]
    entries: int | None = None
    path: str | None = None
    set_aside: str | None = None
    comparison: Comparison | None = None


def unfinished(wanted: BoundaryPlan, action: str, why: str) -> BoundaryResult:
    """The result of a boundary that has got no snapshot: ``failed``, ``refused`` or ``skipped``."""
    return BoundaryResult(wanted.offset, wanted.is_log_end, action, None, (why,))
