"""Where the log of a partition begins on the leader's disk: from there on, at most, a follower still starts (KIP-405, KIP-1023)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from formats.errors import FormatError
from formats.limits import INT64_MAX
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import first_of
from snaprebuild.snapshots.source.source import Source, open_source, yield_to_brokers
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

    def checked(self, partitions: Collection[tuple[str, int, bytes]]) -> LocalStarts:
        """What holds for the partitions in remote storage: where a name has several ids there, a directory without an id shows nothing.

        Args:
            partitions: topic, partition and topic id of all that are there.

        Raises:
            UsageError: one that an option names is not there, or its name has several topic ids.
        """
        count = Counter((topic, partition) for topic, partition, _ in partitions)
        for place in self.told:
            name = f"{place[0]}-{place[1]}"
            if place not in count:
                there = first_of(sorted(f"{topic}-{partition}" for topic, partition in count))
                raise UsageError(f"--local-log-start: {name} is not in remote storage, which has {there}")
            if count[place] > 1:
                raise UsageError(
                    f"--local-log-start: {name} has several topic ids in remote storage: use --log-dir, whose directories have the id"
                )
        shared = {place for place, ids in count.items() if ids > 1}
        return replace(self, found={place: starts for place, starts in self.found.items() if place not in shared})


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
    opened = open_source(log_dirs, settings=settings) if log_dirs else Source((), ())
    yield_to_brokers(opened)
    for source in opened.partitions:
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
