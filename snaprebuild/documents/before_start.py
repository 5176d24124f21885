"""The document of ``before-start``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from snaprebuild.broker.status import StatusCounts, StatusWord
from snaprebuild.published import Document, Natural, Part, Seconds, one_of
from snaprebuild.snapshots.before_start import PreparationState
from snaprebuild.snapshots.plan.source_verdict import VerdictSummary
from snaprebuild.storage.partition_names import TopicPartition

__all__ = ["BeforeStart", "BeforeStartPartition", "BeforeStartTotals", "PreparedTotals"]


class PreparedTotals(Part, frozen=True):
    """Snapshots and bytes."""

    written: Natural
    would_write: Natural
    """Snapshots that would be written, in a dry run."""
    failed: Natural
    """Snapshots that are needed, but an error prevented them."""
    refused: Natural
    """Snapshots that are needed, but must not be written."""
    skipped: Natural
    """Snapshots that are needed, but were not reached: the deadline passed, or a file was deleted."""
    blocked_bytes: Natural
    """Bytes of the first rolled segment without a snapshot and of every later rolled one, before the run."""
    blocked_bytes_left: Natural
    """Bytes of such segments after the run (in a dry run: after what it would write). `scan` shows other causes."""
    read_bytes: Natural
    """Bytes of segments that were read."""


class BeforeStartTotals(PreparedTotals, frozen=True):
    """Sums of all partitions."""

    partitions: Natural
    prepared: Natural


class BeforeStartPartition(TopicPartition, frozen=True):
    """A partition."""

    path: str
    state: PreparationState
    """prepared: each needed snapshot exists; partly: some were written, some not; not-prepared: none was written, and some are
    needed."""
    totals: PreparedTotals
    elapsed_seconds: Seconds
    fault: str | None
    """Why nothing could be planned for it."""
    verdict: VerdictSummary | None
    """On the replica as a source of snapshots; null if nothing would be written."""


class BeforeStart(Document, frozen=True):
    """The JSON document of `snaprebuild before-start`."""

    NAME = "before-start"
    VERSION = 3

    paths: Sequence[str]
    """Absolute paths."""
    server_properties: str | None
    topics: Sequence[str]
    """Shell patterns; empty for all."""
    partition_numbers: Sequence[Natural]
    """Empty for all."""
    topic_partitions: Sequence[str]
    """Names of partitions that are taken besides those of the patterns and numbers; empty for none."""
    metadata: str | None
    """Location of the named metadata log of the cluster; null for each broker's own."""
    deadline_seconds: Natural | None
    order: Annotated[str, one_of("bytes-blocked", "path")]
    set_aside: bool
    as_of_ms: Natural
    expiration_ms: Natural
    dry_run: bool
    receipt: str | None
    """Path of the receipt; null if nothing was written."""
    takes_effect: str
    elapsed_seconds: Seconds
    totals: BeforeStartTotals
    partitions: Sequence[BeforeStartPartition]
    """In the order of the work."""
    status: StatusWord = StatusWord.HEALTHY
    """The worst of all, as `scan` shows it before the run."""
    counts: StatusCounts = StatusCounts()
    """The counts of `scan`, before the run."""
