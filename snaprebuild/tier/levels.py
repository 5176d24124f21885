"""How much ``tier audit`` reads. Apart from it, because the help of the command names these."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["AuditLevel"]


class AuditLevel(StrEnum):
    """``--level``."""

    STRUCTURE = "structure"
    """Listings, manifests, and the snapshots themselves: which do not parse, hold nothing, or do not go with those beside them."""
    REACHABLE = "reachable"
    """The snapshots that a follower may still start from, held against a replay of one window."""
    FULL = "full"
    """Every segment, replayed, and every snapshot."""
