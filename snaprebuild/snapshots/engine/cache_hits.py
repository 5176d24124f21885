"""Segments that a run did not read, because an earlier run kept their effects."""

from __future__ import annotations

from snaprebuild.published import Natural, Part

__all__ = ["NO_CACHE_HITS", "CacheHits"]


class CacheHits(Part, frozen=True):
    """Segments that were not read, because the cache of an earlier run has their effects."""

    segments: Natural = 0
    size_bytes: Natural = 0

    def with_segment(self, size_bytes: int) -> CacheHits:
        """With one segment of this size more."""
        return CacheHits(segments=self.segments + 1, size_bytes=self.size_bytes + size_bytes)

    def __add__(self, other: CacheHits) -> CacheHits:
        return CacheHits(segments=self.segments + other.segments, size_bytes=self.size_bytes + other.size_bytes)


NO_CACHE_HITS = CacheHits()
