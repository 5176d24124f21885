"""Objects that several documents share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

import msgspec

from snaprebuild.documents.typed import Natural, Part, one_of
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["ExitCode", "PartitionName", "ReportedFinding", "Run", "TopicPartition", "names_of"]

Code = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]

ExitCode = Annotated[int, msgspec.Meta(extra_json_schema={"enum": [0, 1, 3, 4, 5]})]


class ReportedFinding(Part, frozen=True):
    """One thing found."""

    code: Code
    """Stable name (docs/findings.md)."""
    severity: Annotated[str, one_of("note", "finding", "refused", "damaged", "storage")]
    """Asks for exit code 0, 1, 3, 4, 5."""
    path: str
    """File or directory concerned."""
    message: str
    """One sentence for a person; not stable."""
    offset: Natural | None
    """Boundary or batch concerned."""
    reason: Code | None
    """Kind of it, where one code has several; null for others."""


class Run(Part, frozen=True):
    """When, where and how the document was made."""

    at_ms: Natural
    """Milliseconds since 1970."""
    host: str
    command: str
    """With its arguments, quoted for a shell."""
    cluster_ids: Sequence[str]
    """From the meta.properties that were read."""


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


def names_of(directory: PartitionDir) -> PartitionName:
    """How documents name a partition."""
    name = directory.name
    return {"topic": name.topic, "partition": name.partition, "topic_partition": directory.topic_partition}
