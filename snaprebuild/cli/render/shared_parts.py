"""Objects that several documents share, made from domain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from snaprebuild.cli.answer import expiry_words
from snaprebuild.cli.value_text import time_text
from snaprebuild.documents import common as doc
from snaprebuild.findings import choose_form, pluralize
from snaprebuild.replay.difference import Comparison
from snaprebuild.snapshots.run import NO_CACHE_HITS, CacheHits
from snaprebuild.snapshots.source.boundary_needs import BoundaryNeeds
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.partition_names import names_of
from snaprebuild.storage.store import absolute

if TYPE_CHECKING:  # a verify needs no plan
    from snaprebuild.snapshots.plan.plan_model import GateVerdict
    from snaprebuild.snapshots.plan.source_verdict import VerdictSummary

__all__ = [
    "cache_use",
    "excused_text",
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
    if path is None:
        return None
    return doc.CacheUse(path=absolute(path), segments=total.segments, size_bytes=total.size_bytes)


def excused_text(comparisons: Iterable[Comparison], as_of_ms: int) -> str:
    """How many entries differ and were not judged, without a full stop; empty without any.

    A snapshot that other entries prove wrong is left out: nothing hides what is wrong with it.

    Args:
        comparisons: of snapshots with the log.
        as_of_ms: producers that have expired by then are not judged, ms since 1970.
    """
    counts = [each.excused_count for each in comparisons if each.excused_count and not each.proven_wrong]
    if not counts:
        return ""
    entries = pluralize(sum(counts), "entry that differs", "entries that differ")
    by = time_text(as_of_ms)
    are = choose_form(sum(counts), "is", "are")
    text = f"{entries} in {pluralize(len(counts), 'snapshot')} {are} not judged, because the producers have expired by {by}"
    return f"{text} (--as-of)" if "--as-of" in expiry_words() else text


def source_verdict(verdict: GateVerdict | None) -> VerdictSummary | None:
    """A verdict on a replica, without its rules; None where none was asked for."""
    return None if verdict is None else verdict.summary()
