"""Remote storage: copies of segments, and what the metadata log lists of them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["AuditLevel"]


class AuditLevel(StrEnum):
    """How much ``tier audit`` reads. Here, because the help of the command must not load more than this."""

    STRUCTURE = "structure"
    """Listings, manifests, and the snapshots: which do not parse, hold nothing, or contradict those before or after them."""
    REACHABLE = "reachable"
    """The snapshots that a follower may still start from, compared with a replay of one window."""
    FULL = "full"
    """Every segment, replayed, and every snapshot."""
    RECORDS = "records"
    """Every segment, replayed, every snapshot, and each record of each copy, decoded."""

    @property
    def replays_everything(self) -> bool:
        """Whether no segment is left out."""
        return self in (AuditLevel.FULL, AuditLevel.RECORDS)
