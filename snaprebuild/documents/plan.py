"""The document of ``plan``, and the request in plans, rebuilds, receipts and staged plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from snaprebuild.documents.common import NeedTotals, PartitionNeeds
from snaprebuild.documents.file_facts import Nameable
from snaprebuild.published import Document, Natural, Part, Positive, Seconds, one_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.plan.verdict_summary import VerdictSummary
from snaprebuild.storage.store import S3Connection

__all__ = ["NotPlanned", "Partition", "Plan", "PlannedBoundary", "Request"]


class Request(Part, frozen=True):
    """The request of a run."""

    # The only description of its members: ``snapshots.plan.plan_model.Request`` is this struct with what follows from them.
    paths: tuple[Nameable, ...]
    """Absolute paths."""
    server_properties: Nameable | None = None
    topics: tuple[Nameable, ...] = ()
    """Shell patterns; empty for all."""
    partitions: tuple[Natural, ...] = ()
    """Empty for all."""
    offset_from: Natural | None = None
    offset_to: Natural | None = None
    out: Nameable | None = None
    """Absolute path; null for in place."""
    boundaries: Annotated[str, one_of("missing", "all")] = "missing"
    replay_from: Annotated[str, one_of("auto", "window", "log-start")] = "auto"
    set_aside: bool = False
    """Snapshots that are proven wrong are renamed, and replaced."""
    check_crc: bool = True
    drop_expired: bool = False
    """Entries of expired producers are left out."""
    allow_unproven: bool = False
    """Unproven snapshots are written in place, too."""
    as_of_ms: Natural = 0
    expiration_ms: Positive | None = None
    metadata: Nameable | None = None
    """Location of the named metadata log of the cluster; null for each broker's own."""
    s3: S3Connection | None = None
    """Null if no object store is used."""
    stage: tuple[Nameable, ...] = ()
    """Absolute directories in which snapshots are staged; empty otherwise."""
    broker_running: bool = False
    """Snapshots are written while the broker runs."""
    accept_topic_id_zero: bool = False
    """Snapshots of topics without an id are written, too."""
    kafka_release: str | None = None
    """Release that starts the broker next; null for all that are possible."""


class PlannedBoundary(Part, frozen=True):
    """A boundary that gets a snapshot."""

    offset: Natural
    is_log_end: bool
    exists: bool
    """A snapshot of this name exists."""
    expected_class: SnapshotClass
    """The best class that is possible."""


class NotPlanned(Part, frozen=True):
    """A boundary that is not planned: refused if a broker may need it, else skipped."""

    offset: Natural
    action: Annotated[str, one_of("refused", "skipped")]
    reason: str


class Partition(PartitionNeeds, frozen=True):
    """The plan of a partition."""

    target: str
    """Directory of the snapshots."""
    segments: Natural
    log_start_offset: Natural
    log_end_offset: Natural | None
    """End of the last whole batch; null if it cannot be read or there is no segment."""
    replay_from_offset: Natural | None
    """Base offset of the segment where replay begins; null if there is nothing to do."""
    replay_reason: str
    min_read_bytes: Natural
    max_read_bytes: Natural
    retention_frees_ms: int | None
    """Moment after which retention has deleted every segment that lacks a snapshot; may be past. Null if remote storage is on, because a
    broker keeps what is not uploaded, or if server.properties does not show that it is off."""
    fault: str | None
    """Why nothing can be done."""
    boundaries: Sequence[PlannedBoundary]
    not_planned: Sequence[NotPlanned]
    verdict: VerdictSummary | None
    """On the replica as a source of snapshots; null if nothing would be written."""


class Plan(Document, frozen=True):
    """What `snaprebuild plan --output json` prints."""

    NAME = "plan"
    VERSION = 3

    request: Request
    as_of_ms: int
    expiration_ms: Positive
    min_read_bytes: Natural
    max_read_bytes: Natural
    """Bytes to read if every window must be extended to its log start."""
    rate_bytes_per_second: Natural | None
    """Measured on a sample; null without anything to read."""
    estimated_seconds: Seconds | None
    retention_ms: int
    """Retention that retention_frees_ms assumes."""
    retention_source: str
    totals: NeedTotals
    partitions: Sequence[Partition]
