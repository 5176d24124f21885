"""How much ``tier audit`` reads. Apart from it, because the help of the command names these."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["AuditLevel"]


class AuditLevel(StrEnum):
    """``--level``."""

    STRUCTURE = "structure"
    """Manifests and listings: which snapshots are missing, or too small to hold a producer."""
    FULL = "full"
    """Every segment, replayed, and every snapshot."""
