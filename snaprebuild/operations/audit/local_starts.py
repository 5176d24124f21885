"""Where the log of a partition begins on the leader's disk: from there on, at most, a follower still starts (KIP-405, KIP-1023)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.file_names import INT64_MAX
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.operations.findings import first_of
from snaprebuild.operations.source import open_source
from snaprebuild.storage.log_dir import read_topic_id
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import S3Settings

__all__ = ["LocalStarts", "read_local_starts"]

_TOLD = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})=(?P<offset>[0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class LocalStarts:
    """What is known of local log starts.

    Attributes:
        told: by options: offsets by topic and partition.
        found: in log directories: offsets by topic id and partition; by topic and partition where the directory has no id.
    """

    told: Mapping[tuple[str, int], Sequence[int]] = field(default_factory=dict)
    found: Mapping[tuple[str | bytes, int], Sequence[int]] = field(default_factory=dict)

    def of(self, topic: str, partition: int, topic_id: bytes) -> int | None:
        """First offset on the leader's disk; the least of several that may be the leader's, None where nobody tells.

        Args:
            topic: name.
            partition: number.
            topic_id: 16 bytes: a directory of another topic of that name shows nothing.
        """
        told = self.told.get((topic, partition), ())
        found = [*self.found.get((topic_id, partition), ()), *self.found.get((topic, partition), ())]
        return min(told or found, default=None)

    def check_known(self, partitions: Collection[tuple[str, int]]) -> None:
        """Makes sure that each partition that an option names is in remote storage.

        Args:
            partitions: topic and partition of all that are there.

        Raises:
            UsageError: one is not.
        """
        for topic, partition in self.told:
            if (topic, partition) not in partitions:
                there = first_of(sorted(f"{name}-{number}" for name, number in partitions))
                raise UsageError(f"--local-log-start: {topic}-{partition} is not in remote storage, which has {there}")


def read_local_starts(told: Sequence[str], log_dirs: Sequence[str], settings: S3Settings) -> LocalStarts:
    """From options, which count first, and from log directories.

    Args:
        told: ``TOPIC-PARTITION=OFFSET``.
        log_dirs: of brokers, the leaders best.
        settings: of object stores that ``log_dirs`` lead into.

    Raises:
        UsageError: an option is of another form, or no partition lies below a directory.
    """
    given: dict[tuple[str, int], list[int]] = {}
    found: dict[tuple[str | bytes, int], list[int]] = {}
    for source in open_source(log_dirs, settings=settings).partitions if log_dirs else ():
        segments = source.directory.segments
        if segments:
            # ``UnifiedLog.localLogStartOffset``, as it is when the log is loaded.
            start = max(source.checkpointed_log_start, segments[0].base_offset)
            name = source.directory.name
            found.setdefault((_topic_id(source.directory) or name.topic, name.partition), []).append(start)
    for text in told:
        place, offset = _parsed(text)
        given.setdefault(place, []).append(offset)
    return LocalStarts(given, found)


def _topic_id(directory: PartitionDir) -> bytes | None:
    try:
        return read_topic_id(directory)
    except (FormatError, ReadFailedError):
        return None


def _parsed(text: str) -> tuple[tuple[str, int], int]:
    found = _TOLD.fullmatch(text)
    if found is None or int(found["offset"]) > INT64_MAX:
        raise UsageError(f"--local-log-start: expected TOPIC-PARTITION=OFFSET, as orders-0=1151, found {text!r}")
    return (found["topic"], int(found["partition"])), int(found["offset"])
