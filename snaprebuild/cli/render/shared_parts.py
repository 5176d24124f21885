"""Objects that several documents share, made from domain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from snaprebuild.documents import common as doc
from snaprebuild.snapshots.run_record import NO_CACHE_HITS, CacheHits
from snaprebuild.snapshots.source.boundary_needs import BoundaryNeeds
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.partition_names import names_of
from snaprebuild.storage.store import absolute

if TYPE_CHECKING:  # a verify needs no plan
    from snaprebuild.snapshots.plan.plan_model import GateVerdict
    from snaprebuild.snapshots.plan.source_verdict import VerdictSummary

__all__ = [
    "cache_use",
    "inputs_of",
    "needs_of",
    "source_verdict",
]


def needs_of(source: PartitionSource, needs: BoundaryNeeds) -> dict[str, Any]:
    """The members of a ``PartitionNeeds``: a partition with its boundaries that have no snapshot."""
    return {**names_of(source.directory), "path": source.directory.path, **asdict(needs)}


def inputs_of(source: PartitionSource) -> list[doc.InputSegment]:
    """The identities of its segments."""
    logs = [segment.log for segment in source.directory.segments]
    return [
        doc.InputSegment(
            name=log.name,
            size_bytes=log.identity.size_bytes,
            modified_ns=log.identity.modified_ns,
            inode=log.identity.inode if log.identity.etag is None else None,
            etag=log.identity.etag,
        )
        for log in logs
    ]


def cache_use(path: str | None, hits: Iterable[CacheHits]) -> doc.CacheUse | None:
    """The directory of the cache, and what came from there; None without one."""
    total = sum(hits, NO_CACHE_HITS)
    return None if path is None else doc.CacheUse(path=absolute(path), segments=total.segments, size_bytes=total.size_bytes)


def source_verdict(verdict: GateVerdict | None) -> VerdictSummary | None:
    """A verdict on a replica, without its rules; None where none was asked for."""
    return None if verdict is None else verdict.summary()
