"""The counts of a ledger after a run."""

from __future__ import annotations

from snaprebuild.published import Natural, Part

__all__ = ["LedgerProgress"]


class LedgerProgress(Part, frozen=True, kw_only=True):
    """The counts of a ledger after a run."""

    path: str
    """Path of the ledger."""
    copies: Natural
    """Copies of the selection."""
    proven: Natural
    """Copies whose snapshots are proven, now or by an earlier run."""
    since_ms: Natural | None
    """When the first of their segments was read: no proof is older; null without any."""
    round_began_ms: Natural
    """When the present round began; a segment that was read since then is not read again in it."""
    read_segments: Natural
    """Segments that this run has read."""
    read_bytes: Natural
    """Bytes of the objects with these segments."""
    due_segments: Natural
    """Segments that are left for the next runs of this round."""
    due_bytes: Natural
    """Bytes of the objects with them."""
    oldest_unproven_ms: Natural | None
    """When the oldest copy was uploaded whose snapshot is not proven; null if there is none."""
