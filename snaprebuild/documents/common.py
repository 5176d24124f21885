"""Objects that several documents share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.broker.status import StatusWord
from snaprebuild.published import Natural, Part, one_of
from snaprebuild.snapshots.run import CacheHits
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "ActionTotals",
    "CacheUse",
    "ExitCode",
    "InputSegment",
    "PartitionNeeds",
    "StatusName",
]

ExitCode = Annotated[int, msgspec.Meta(extra_json_schema={"enum": [0, 1, 3, 4, 5]})]


StatusName = Annotated[str, one_of(*StatusWord)]


class ActionTotals(Part, frozen=True):
    """Boundaries by action."""

    written: Natural = 0
    would_write: Natural = 0
    equal: Natural = 0
    kept: Natural = 0
    failed: Natural = 0
    refused: Natural = 0
    skipped: Natural = 0


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


class CacheUse(CacheHits, frozen=True, kw_only=True):
    """The directory of --cache, and the segments whose effects were in it."""

    path: str
    """Absolute path."""
