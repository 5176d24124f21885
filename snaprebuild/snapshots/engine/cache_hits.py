"""How much of a partition was not read, because what it gives was kept by an earlier run (``spark.effect_cache``)."""

from __future__ import annotations

from dataclasses import dataclass

from snaprebuild.replay.segment_summary import SegmentSummary

__all__ = ["NONE_KEPT", "FromEffects"]


@dataclass(frozen=True, slots=True)
class FromEffects:
    """A count of segments, and the bytes that they have."""

    segments: int = 0
    size_bytes: int = 0

    def with_segment(self, summary: SegmentSummary) -> FromEffects:
        """With one more, if it was kept."""
        return FromEffects(self.segments + 1, self.size_bytes + summary.bytes_kept) if summary.bytes_kept else self

    def __add__(self, other: FromEffects) -> FromEffects:
        return FromEffects(self.segments + other.segments, self.size_bytes + other.size_bytes)

    def as_json(self) -> dict[str, int]:
        """For documents."""
        return {"segments": self.segments, "bytes": self.size_bytes}


NONE_KEPT = FromEffects()
"""Everything was read."""
