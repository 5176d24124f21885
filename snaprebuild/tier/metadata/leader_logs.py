"""Facts about partitions in remote storage from the logs of their leaders: log start offset, leader epochs, first offset on disk.

Source: ``LogManager.checkpointLogStartOffsets``, which has a line for each log with remote storage; ``LeaderEpochCheckpointFile``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from formats.broker.broker_files import MetaProperties
from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, open_source
from snaprebuild.storage.log_dir import read_leader_epochs, read_log_dir, read_topic_id
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import absolute
from snaprebuild.storage.store_path import path_of
from snaprebuild.tier.named_offsets import check_named_partitions, named_offset

__all__ = ["LeaderLog", "LeaderLogs", "read_leader_logs"]


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """The log of one replica.

    Attributes:
        path: of its directory.
        log_start_offset: of the checkpoint; None if that has no line of it.
        first_local_offset: base offset of the first segment on disk; None without a segment.
        leader_epochs: of the log, ascending; none if unknown.
        directory: the listing.
        node_id: of its broker; None if its log directory does not show it.
    """

    path: str
    log_start_offset: int | None
    first_local_offset: int | None
    leader_epochs: tuple[LeaderEpochEntry, ...]
    directory: PartitionDir
    node_id: int | None = None

    @property
    def segment_sizes(self) -> list[tuple[int, int]]:
        """Base offset and bytes of each segment on disk."""
        return [(each.base_offset, each.log.identity.size_bytes) for each in self.directory.segments]

    def log_end_offset(self) -> int:
        """The end of the last segment on disk.

        Raises:
            FormatError, ReadFailedError: it cannot be read.
        """
        return log_end_offset(self.directory)

    @property
    def last_epoch(self) -> int:
        """The last leader epoch of the log; -1 if unknown."""
        return self.leader_epochs[-1].epoch if self.leader_epochs else -1


@dataclass(frozen=True, slots=True)
class LeaderLogs:
    """The logs of several partitions.

    Attributes:
        logs: of each partition, one for each replica that was named.
        log_starts: by topic and number, as an option names them.
        findings: files that could not be read.
        directories: how many partition directories of each topic and number were there, whatever their topic ids.
        places: ``meta.properties`` of the log directories that were named as a whole.
    """

    logs: Mapping[TopicIdPartition, Sequence[LeaderLog]] = field(default_factory=dict)
    log_starts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    directories: Mapping[tuple[str, int], int] = field(default_factory=dict)
    places: tuple[MetaProperties, ...] = ()

    def are_all_read(self, partition: TopicIdPartition) -> bool:
        """Whether each directory of this name could be read, and is of this topic id."""
        return self.directories.get((partition.topic, partition.partition), 0) == len(self.logs.get(partition, ()))

    def newest(self, partition: TopicIdPartition) -> LeaderLog | None:
        """The log with the greatest leader epoch, which is that of the leader or of its successor; None without any."""
        return max(self.logs.get(partition, ()), key=lambda each: each.last_epoch, default=None)

    def first_local_offsets(self, partition: TopicIdPartition) -> frozenset[int]:
        """First offsets on disk of the replicas."""
        first = (each.first_local_offset for each in self.logs.get(partition, ()))
        return frozenset(each for each in first if each is not None)

    def log_start_of(self, partition: TopicIdPartition) -> int | None:
        """The greatest log start offset of the replicas and the option: what is below it was never served again. None if unknown."""
        starts = [each.log_start_offset for each in self.logs.get(partition, ()) if each.log_start_offset is not None]
        option = self.log_starts.get((partition.topic, partition.partition))
        if option is not None:
            starts.append(option)
        return max(starts, default=None)

    def check_options(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Makes sure that each partition of an option is in remote storage, once.

        Args:
            partitions: all that are there.

        Raises:
            UsageError: one is not, or its name has several topic ids.
        """
        check_named_partitions("--log-start", self.log_starts, partitions)


def read_leader_logs(log_dirs: Sequence[str], options: Sequence[str], run: Run) -> LeaderLogs:
    """Reads the small files of the logs. A directory without a topic id shows nothing, because the name may be another topic's.

    Args:
        log_dirs: of brokers, the leaders best.
        options: ``TOPIC-PARTITION=OFFSET``, the log start offset of each.
        run: how the object stores are reached that ``log_dirs`` lead into.

    Raises:
        UsageError: an option is of another form, or a directory has no partition.
    """
    log_starts: dict[tuple[str, int], int] = {}
    for text in options:
        place, offset = named_offset("--log-start", text)
        log_starts[place] = max(offset, log_starts.get(place, 0))
    logs: dict[TopicIdPartition, list[LeaderLog]] = {}
    findings: list[Finding] = []
    if not log_dirs:
        return LeaderLogs(log_starts=log_starts)
    opened = open_source(log_dirs, run=run)
    findings += [each for each in opened.findings if each.severity is not Severity.NOTE]
    for source in opened.partitions:
        try:
            topic_id = read_topic_id(source.directory)
            log = _leader_log(source)
        except (FormatError, ReadFailedError) as error:
            findings.append(finding_of_error(error, source.directory.path))
            continue
        if topic_id is not None:
            name = source.directory.name
            logs.setdefault(TopicIdPartition(name.topic, topic_id, name.partition), []).append(log)
    sources = (*opened.partitions, *opened.skipped)
    directories = Counter((each.directory.name.topic, each.directory.name.partition) for each in sources)
    states = [read_log_dir(path_of(absolute(each), run.stores)) for each in log_dirs]
    places = tuple(each.meta for each in states if each.meta is not None)
    return LeaderLogs(logs, log_starts, tuple(findings), directories, places)


def _leader_log(source: PartitionSource) -> LeaderLog:
    directory = source.directory
    log_starts = source.log_dir.log_starts or {}
    first = directory.segments[0].base_offset if directory.segments else None
    epochs = read_leader_epochs(directory) or ()
    return LeaderLog(directory.path, log_starts.get(directory.topic_partition), first, epochs, directory, source.log_dir.node_id)
