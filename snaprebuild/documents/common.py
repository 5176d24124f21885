"""Objects that several documents share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

import msgspec

from formats.partition.file_names import parse_partition_dir_name
from snaprebuild.published import Natural, Part, one_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = [
    "Action",
    "ActionTotals",
    "CacheHits",
    "CacheUse",
    "ExitCode",
    "InputSegment",
    "NeedTotals",
    "PartitionName",
    "PartitionNeeds",
    "ReplayedBoundary",
    "ReportedFinding",
    "Run",
    "StatusCounts",
    "StatusName",
    "TopicPartition",
    "named",
    "names_in",
    "names_of",
]

Code = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]

ExitCode = Annotated[int, msgspec.Meta(extra_json_schema={"enum": [0, 1, 3, 4, 5]})]


StatusName = Annotated[str, one_of("fate", "wrong", "suspect", "missing", "waiting", "unknown", "healthy")]


class StatusCounts(Part, frozen=True):
    """The counts of a first line."""

    fates: Natural = 0
    """Causes of what the next start does, each with one or many partitions; without notes."""
    topics_without_id: Natural = 0
    """Topics that Kafka would upload under topic id zero."""
    wrong: Natural = 0
    """Snapshots that are proven wrong, or do not parse."""
    suspect: Natural = 0
    """Snapshots that parse but cannot be correct; 0 where snapshots are compared with a replay."""
    missing: Natural = 0
    """Boundaries that need a snapshot and have none."""
    waiting: Natural = 0
    """Rolled segments that are uploaded later, without any action: at least as many."""
    waiting_unknown: Natural = 0
    """Rolled segments of which it is unknown whether they wait."""
    unread: Natural = 0
    """Paths that were not read, or not to their end."""


class ReportedFinding(Part, frozen=True):
    """A finding."""

    code: Code
    """Stable name (docs/reference/findings.md)."""
    severity: Annotated[str, one_of("note", "finding", "refused", "damaged", "storage")]
    """Causes exit code 0, 1, 3, 4, 5."""
    path: str
    """File or directory concerned."""
    message: str
    """One sentence for the user; not stable."""
    offset: Natural | None
    """Boundary or batch concerned."""
    reason: Code | None
    """Cause, if one code has several; null for others."""


class Run(Part, frozen=True):
    """When, where and how the document was made."""

    at_ms: Natural
    """Milliseconds since 1970."""
    host: str
    command: str
    """The command line, quoted for a shell."""
    cluster_ids: Sequence[str]
    """From the meta.properties files that were read."""


class TopicPartition(Part, frozen=True):
    """An object about one partition."""

    topic: str
    partition: Natural
    topic_partition: str


class PartitionName(TypedDict):
    """The members of ``TopicPartition`` as arguments."""

    topic: str
    partition: int
    topic_partition: str


def named(topic: str, partition: int) -> PartitionName:
    """The names of a partition in documents."""
    return {"topic": topic, "partition": partition, "topic_partition": f"{topic}-{partition}"}


def names_of(directory: PartitionDir) -> PartitionName:
    """The names of a partition in documents, by its directory, whatever the suffix of that."""
    name = directory.name
    return {"topic": name.topic, "partition": name.partition, "topic_partition": directory.topic_partition}


def names_in(topic_partition: str) -> PartitionName:
    """As ``names_of``, from the name of a directory."""
    name = parse_partition_dir_name(topic_partition)
    if name is None:
        return {"topic": topic_partition, "partition": 0, "topic_partition": topic_partition}
    return {"topic": name.topic, "partition": name.partition, "topic_partition": topic_partition}


class NeedTotals(Part, frozen=True):
    """Selected boundaries without a snapshot in the log directories before the run, by need."""

    missing: Natural
    """Boundaries that need a snapshot and have none: the same number in scan, plan, rebuild, verify and report."""
    not_needed: Natural
    """Boundaries without a snapshot where no broker uses one."""
    made_by_broker: Natural
    """Boundaries without a snapshot that the broker writes itself, at its next stop or start."""


class PartitionNeeds(TopicPartition, frozen=True):
    """A partition with its boundaries that have no snapshot."""

    path: str
    missing_offsets: Sequence[Natural]
    """Selected boundaries that need a snapshot and have none in the log directory, before the run."""
    not_needed: Natural
    """Boundaries without a snapshot where no broker uses one."""
    made_by_broker: Natural
    """Boundaries without a snapshot that the broker writes itself, at its next stop or start."""


class InputSegment(Part, frozen=True):
    """The identity of a segment."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{20}\.log$")]
    size_bytes: Natural
    modified_ns: int
    """Nanoseconds since 1970."""
    inode: Natural | None
    """Null for an object."""
    etag: str | None
    """ETag of an object; null for a file."""


class CacheHits(Part, frozen=True):
    """Segments that were not read, because the cache of an earlier run has their effects."""

    segments: Natural = 0
    size_bytes: Natural = 0


class CacheUse(CacheHits, frozen=True, kw_only=True):
    """The directory of --cache, and the segments whose effects were in it."""

    path: str
    """Absolute path."""


Action = Annotated[str, one_of("written", "would_write", "equal", "kept", "failed", "refused", "skipped")]


class ActionTotals(Part, frozen=True):
    """Boundaries by action."""

    written: Natural = 0
    would_write: Natural = 0
    equal: Natural = 0
    kept: Natural = 0
    failed: Natural = 0
    refused: Natural = 0
    skipped: Natural = 0


class ReplayedBoundary(Part, frozen=True):
    """A boundary and the action there."""

    offset: Natural
    is_log_end: bool
    action: Action
    snapshot_class: SnapshotClass | None = msgspec.field(name="class")
    """Class of the rebuilt snapshot; null if it was not rebuilt."""
    reasons: tuple[str, ...]
    entries: Natural | None = None
    """Producers in the rebuilt snapshot; null if it was not rebuilt."""
    path: str | None = None
    set_aside: str | None = None
    """New name of a wrong snapshot that was set aside."""
    comparison: Comparison | None = None
    """The existing snapshot compared with the replay."""
