"""A snapshot on disk, compared with a replay."""

from __future__ import annotations

import msgspec

from snaprebuild.published import Natural, Part
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison

__all__ = ["VerifiedSnapshot"]


class VerifiedSnapshot(Part, frozen=True):
    """A snapshot compared with the replay."""

    offset: Natural
    name: str
    """Name of the file."""
    snapshot_class: SnapshotClass | None = msgspec.field(name="class")
    """Class of the replay at this offset; null at or below the first base offset, above the log end, and above damage."""
    comparison: Comparison
