"""The document of ``before-start``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from snaprebuild.documents.common import SourceVerdict, TopicPartition
from snaprebuild.documents.typed import Document, Natural, Part, Seconds, one_of

__all__ = ["BeforeStart", "Partition", "PartitionTotals", "Totals"]


class PartitionTotals(Part, frozen=True):
    """Snapshots and bytes."""

    written: Natural
    would_write: Natural
    """In a dry run."""
    failed: Natural
    """Due, and an error prevented it."""
    refused: Natural
    """Due, and must not be written."""
    skipped: Natural
    """Due, and not reached: the deadline passed, or a file vanished."""
    blocked_bytes: Natural
    """Before the run: of the first closed segment whose snapshot is missing and of every later closed one."""
    blocked_bytes_left: Natural
    """The same after the run (in a dry run: after what it would write)."""
    read_bytes: Natural
    """Of segments."""


class Totals(PartitionTotals, frozen=True):
    """Sums of all partitions."""

    partitions: Natural
    prepared: Natural


class Partition(TopicPartition, frozen=True):
    """A partition."""

    path: str
    state: Annotated[str, one_of("prepared", "partly", "not-prepared")]
    """prepared: each snapshot that is due is there; partly: some were written, some not; not-prepared: none was written, and some are
    due."""
    totals: PartitionTotals
    elapsed_seconds: Seconds
    fault: str | None
    """Why nothing could be planned for it."""
    verdict: SourceVerdict | None
    """On the replica as a source of snapshots; null where nothing would be written."""


class BeforeStart(Document, frozen=True):
    """What `snaprebuild before-start --output json` prints."""

    NAME = "before-start"
    VERSION = 2

    paths: Sequence[str]
    """Absolute."""
    server_properties: str | None
    topics: Sequence[str]
    """Shell patterns; empty for all."""
    metadata: str | None
    """Location of the cluster's metadata log that was named; null for each broker's own."""
    deadline_seconds: Natural | None
    order: Annotated[str, one_of("bytes-blocked", "path")]
    set_aside: bool
    as_of_ms: Natural
    expiration_ms: Natural
    dry_run: bool
    receipt: str | None
    """Null where nothing was written."""
    takes_effect: str
    elapsed_seconds: Seconds
    totals: Totals
    partitions: Sequence[Partition]
    """In the order in which they were worked on."""
