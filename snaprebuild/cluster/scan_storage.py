"""The scan and the fates of the next start, as every command judges them, with what only metadata logs (KRaft) on the same disks show.

Metadata logs show whether remote storage is on for each topic, how long its segments may wait, and which other replicas are in sync.
Broker epochs and the lowest release that reads the image are there, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.releases import Release, parse_release
from snaprebuild.broker.status import JudgedStart, findings_of
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, Severity, first_of, pluralize
from snaprebuild.snapshots.run import Run, current_time_ms
from snaprebuild.snapshots.scan.copy_lag import BROKER_SETTINGS, TOPIC_SETTINGS, copy_lag, with_copy_lag
from snaprebuild.snapshots.scan.next_start import with_next_start
from snaprebuild.snapshots.scan.partition import LOST_AT_NEXT_START
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.scan.scan_result import LogDirScan, PartitionScan, RemoteStorage, ScanResult, Shutdown
from snaprebuild.snapshots.source.broker_properties import metadata_dir_of
from snaprebuild.snapshots.source.source import Source, open_source
from snaprebuild.storage.log_dir import LogDirState, read_log_dir
from snaprebuild.storage.store import is_object
from snaprebuild.storage.store_path import path_of

if TYPE_CHECKING:
    from snaprebuild.cluster.metadata.image_model import MetadataImage
    from snaprebuild.cluster.metadata.topic_storage import TopicStorages

__all__ = [
    "OF_ONE_LOG",
    "SNAPSHOTS_ALONE",
    "NextStartJudge",
    "judged_scan",
    "local_start_concerns",
    "lost_and_unread",
    "lost_at_next_start",
    "metadata_logs",
    "start_concerns",
    "with_metadata_logs",
]


def judged_scan(
    source: Source,
    now_ms: int,
    release: Release | None = None,
    *,
    reads_log: bool = False,
) -> ScanResult:
    """A scan with the fates of the next start, as `scan` prints them: the one judgement of every command.

    Args:
        source: from ``open_source``.
        now_ms: the time of the scan, ms since 1970.
        release: that starts the brokers; None for all that are possible.
        reads_log: read the batches that the next start reads, too, as `verify` does.
    """
    return with_metadata_logs(scan_source(source, reads_log=reads_log), source, now_ms, release)


SNAPSHOTS_ALONE = frozenset((FateKind.SNAPSHOTS_REMOVED, FateKind.SWAP_FINISHED))
"""Fates that remove snapshots and leave the records."""

_RECORDS_GONE = frozenset((FateKind.EMPTIED, FateKind.RECORDS_CUT, FateKind.END_LOST, FateKind.CATCHES_UP))

OF_ONE_LOG = frozenset(FateKind) - {FateKind.NO_START, FateKind.FAILS_ONCE, FateKind.OFFLINE}
"""Fates of one partition, which are none of the others of its broker."""


def start_concerns(source: Source, reported: Sequence[Finding], *, without: frozenset[FateKind] = frozenset()) -> list[Finding]:
    """Fates of the logs that a command reads at the next start: a leader that does not start, or starts with less, answers otherwise.

    The command judges something else, so that each is a finding and no damage. What could not be read may hide another one.

    Args:
        source: that was read.
        reported: findings of the command: a path with one that is more than a note is not named again.
        without: kinds that do not change what the command says.
    """
    if not source.partitions or not source.is_local:
        return []
    named = _concerned_paths(reported)
    read = {partition.directory.path for partition in source.partitions} - named
    log_dirs = {log_dir.path for log_dir in source.log_dirs} - named
    start = NextStartJudge()(source)
    fates = [
        fate
        for fate in start.fates
        if fate.severity is not Severity.NOTE and fate.kind not in without and fate.path not in named
        if _is_about(fate, read, log_dirs)
    ]
    return [*(replace(each, severity=Severity.FINDING) for each in findings_of(fates)), *_also_unread(start, reported)]


def local_start_concerns(
    locations: Sequence[str], run: Run, server_properties: str | None = None, *, without: frozenset[FateKind] = frozenset()
) -> list[Finding]:
    """Fates of the log directories that a command names at the next start, as ``start_concerns``; objects start no broker.

    Args:
        locations: of log directories.
        run: the facts and the stores.
        server_properties: configuration of their broker; None if it is not named.
        without: as of ``start_concerns``.

    Raises:
        UsageError: a location leads nowhere.
    """
    local = [location for location in locations if not is_object(location)]
    if local:
        return start_concerns(open_source(local, server_properties, run=run), (), without=without)
    return []


def _is_about(fate: Fate, partitions: set[str], log_dirs: set[str]) -> bool:
    """Whether a fate is that of a partition, or of its log directory and what else is in there."""
    return fate.path in partitions or fate.path in log_dirs or os.path.dirname(fate.path) in partitions | log_dirs


def lost_and_unread(source: Source, reported: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Partitions that have lost records by the small files of their broker, and those files that could not be read.

    For a command that judges nothing else.
    """
    if not _has_small_files(source):
        return [], []
    start = NextStartJudge()(source)
    return _lost_records(source, start, reported), _also_unread(start, reported)


def _concerned_paths(reported: Sequence[Finding]) -> set[str]:
    """Paths with a finding that is more than a note."""
    return {each.path for each in reported if each.severity is not Severity.NOTE}


def _also_unread(start: JudgedStart, reported: Sequence[Finding]) -> list[Finding]:
    """Findings about unread files of the judgement of the start, without the paths that the command reports as unread itself."""
    unread = {each.path for each in reported if each.is_unread}
    return [each for each in start.unread if each.path not in unread]


def lost_at_next_start(partitions: Iterable[PartitionScan]) -> list[Finding]:
    """The findings of `scan` about snapshots that the next start removes, or writes again as empty ones: each command has them."""
    return [finding for partition in partitions for finding in partition.findings if finding.cause in LOST_AT_NEXT_START]


def _has_small_files(source: Source) -> bool:
    return bool(source.partitions) and source.is_local


def _lost_records(source: Source, start: JudgedStart, reported: Sequence[Finding]) -> list[Finding]:
    paths = {partition.directory.path for partition in source.partitions} - _concerned_paths(reported)
    fates = [fate for fate in start.fates if fate.kind in _RECORDS_GONE and not fate.is_harmless and fate.path in paths]
    return [replace(each, severity=Severity.FINDING) for each in findings_of(fates)]


class NextStartJudge:
    """Judges what the next start of each broker does, as ``snapshots.plan.start_gate.StartJudge``.

    The fates are those of ``judged_scan``. Each metadata log is read once, however often it is called.
    """

    def __init__(self) -> None:
        """Has read nothing yet."""
        self._storages: dict[str, TopicStorages | SnaprebuildError | FormatError] = {}

    def __call__(self, source: Source, release: str | None = None, *, holds_locks: bool = False) -> JudgedStart:
        """The start of a source on local disks."""
        parsed = None if release is None else parse_release(release)
        result = scan_source(source, holds_locks=holds_locks, only_start=True)
        judged = with_metadata_logs(result, source, current_time_ms(), parsed, self._read, only_start=True)
        # A running broker changes and deletes files meanwhile.
        live = tuple(f"{log_dir.state.path}/" for log_dir in judged.log_dirs if log_dir.shutdown is Shutdown.RUNNING)
        unread = [finding for finding in judged.other_findings if finding.is_unread and not finding.path.startswith(live)]
        return JudgedStart(judged.fates, tuple(unread), tuple(lost_at_next_start(judged.partitions)))

    def _read(self, path: str) -> TopicStorages:
        from snaprebuild.cluster.metadata.topic_storage import read_topic_storages  # loads the readers of batches

        if path not in self._storages:
            try:
                self._storages[path] = read_topic_storages(path)
            except (SnaprebuildError, FormatError) as error:
                self._storages[path] = error
        storages = self._storages[path]
        if isinstance(storages, SnaprebuildError | FormatError):
            raise storages
        return storages


def with_metadata_logs(
    result: ScanResult,
    source: Source,
    now_ms: int,
    release: Release | None = None,
    read_log: Callable[[str], TopicStorages] | None = None,
    *,
    only_start: bool = False,
) -> ScanResult:
    """Judges the next start, and settles the topics of which no other file shows whether remote storage is on.

    What a metadata log does not settle is a note.
    Segments that ``remote.copy.lag.*`` lets wait are marked.
    A log directory without a clean-shutdown marker gets the epoch with which its broker registered by the broker's own metadata log.

    Topics are looked up by id, so that neither another cluster nor a deleted topic counts. Two logs that differ leave a topic unknown.

    Args:
        result: of the scan.
        source: that was scanned. Metadata logs are read in local log directories, and in ``metadata.log.dir``.
        now_ms: the time of the scan, ms since 1970.
        release: that starts the brokers; None for all that are possible.
        read_log: reads the metadata log of a path, as ``read_topic_storages``; None for that function.
        only_start: the scan looked at nothing else: no segment is marked.
    """
    topics = {topic for topic, state in result.remote_storage.items() if state is RemoteStorage.UNKNOWN}
    logs = metadata_logs(source)
    if not logs:
        return with_next_start(result, source.properties, release)
    from snaprebuild.cluster.metadata.topic_storage import ENABLE, read_topic_storages  # loads the readers of batches
    from snaprebuild.cluster.scan_fates import with_images

    known: dict[bytes, bool | None] = {}
    epochs = _RegisteredEpochs()
    images: dict[str, MetadataImage] = {}
    lags = _CopyLags(source)
    notes = []
    for path in logs:
        try:
            read = read_topic_storages(path) if read_log is None else read_log(path)
        except (SnaprebuildError, FormatError) as error:
            reason = f"{ENABLE} of the topics cannot be read: {error.message}" if topics else ""
        else:
            images[os.path.dirname(path)] = read.image
            epochs.add(os.path.dirname(path), read.broker_epochs)
            known |= {topic_id: is_on if known.get(topic_id, is_on) is is_on else None for topic_id, is_on in read.by_id.items()}
            lags.add(read)
            names = sorted(read.unproven & topics)
            if names:
                reason = f"{ENABLE} of {pluralize(len(names), 'topic')} ({first_of(names)}) is not known: {read.reason}"
            else:
                reason = ""
        notes += [Finding("topic-storage-unknown", Severity.NOTE, path, reason)] if reason else []
    states: dict[str, set[bool | None]] = {}
    for partition in result.partitions:
        is_on = None if partition.topic_id is None else known.get(partition.topic_id)
        states.setdefault(partition.source.directory.name.topic, set()).add(is_on)
    settled = {topic: _one_state(states[topic]) for topic in topics}
    partitions = result.partitions
    if not only_start:
        partitions = tuple(lags.applied_to(partition, now_ms) for partition in partitions)
    next_producer_id = None
    if len(images) == len(logs):  # a log that could not be read leaves the next id unknown
        next_producer_id = min(image.next_producer_id for image in images.values())
    result = replace(
        result,
        log_dirs=tuple(epochs.applied_to(log_dir) for log_dir in result.log_dirs),
        remote_storage={**result.remote_storage, **settled},
        partitions=partitions,
        other_findings=(*result.other_findings, *notes),
        next_producer_id=next_producer_id,
    )
    return with_images(result, source, release, images)


class _RegisteredEpochs:
    """The epochs with which brokers registered, by their own metadata logs.

    A copy of a disk has the node id of the broker, and an older epoch. So a directory with a metadata log has the epoch of that log. The
    other directories of the node have its epoch only if all logs of the node have the same one.
    """

    def __init__(self) -> None:
        self._of_directory: dict[str, int] = {}
        self._of_node: dict[tuple[str, int], set[int]] = {}

    def add(self, directory: str, broker_epochs: Mapping[int, int]) -> None:
        """Takes the metadata log in a directory; nothing if the ``meta.properties`` there cannot be read.

        Args:
            directory: real path.
            broker_epochs: by node id, as the log has them.
        """
        with contextlib.suppress(SnaprebuildError, FormatError):  # which is a finding of the scan
            node = _node_of(read_log_dir(path_of(directory)))
            if node is not None and node[1] in broker_epochs:
                epoch = broker_epochs[node[1]]
                self._of_directory[directory] = epoch
                self._of_node.setdefault(node, set()).add(epoch)

    def applied_to(self, log_dir: LogDirScan) -> LogDirScan:
        """The log directory with its epoch, unless it has a clean-shutdown marker."""
        if log_dir.state.clean_shutdown is not None:
            return log_dir
        own = self._of_directory.get(os.path.realpath(log_dir.state.path))
        if own is not None:
            return dataclasses.replace(log_dir, registered_epoch=own)
        node = _node_of(log_dir.state)
        several = set() if node is None else self._of_node.get(node, set())
        return dataclasses.replace(log_dir, registered_epoch=next(iter(several)) if len(several) == 1 else None)


def _node_of(state: LogDirState) -> tuple[str, int] | None:
    """Cluster and node id of a log directory; None where ``meta.properties`` does not have both."""
    meta = state.meta
    if meta is None or meta.cluster_id is None or meta.node_id is None:
        return None
    return meta.cluster_id, meta.node_id


def _one_state(states: set[bool | None]) -> RemoteStorage:
    """Whether remote storage is on for the partitions of a topic."""
    if True in states:
        return RemoteStorage.ON
    if states == {False}:
        return RemoteStorage.OFF
    return RemoteStorage.UNKNOWN


def metadata_logs(source: Source) -> list[str]:
    """The directories of metadata logs on the local disks of a source, and in ``metadata.log.dir``."""
    elsewhere = None if source.properties is None else metadata_dir_of(source.properties)
    places = [state.path for state in source.log_dirs if state.store.is_local] + ([] if elsewhere is None else [elsewhere])
    paths = dict.fromkeys(os.path.realpath(os.path.join(place, "__cluster_metadata-0")) for place in places)
    return [path for path in paths if os.path.isdir(path)]


class _CopyLags:
    """``remote.copy.lag.*`` of topics, by the metadata logs that were read."""

    def __init__(self, source: Source) -> None:
        properties = source.properties
        values = {} if properties is None else {name: properties.get(name) for name in BROKER_SETTINGS}
        self._static = {name: value.strip() for name, value in values.items() if value}
        self._topics: dict[bytes, Mapping[str, str] | None] = {}
        self._brokers: dict[int | None, Mapping[str, str]] = {}

    def add(self, read: TopicStorages) -> None:
        """Takes the settings of one log. Two logs that differ leave the lag of a topic unknown."""
        for topic_id, configs in read.configs.items():
            own = {name: value for name, value in configs.items() if name in TOPIC_SETTINGS}
            self._topics[topic_id] = own if self._topics.get(topic_id, own) == own else None
        self._brokers |= read.broker_configs

    def applied_to(self, partition: PartitionScan, now_ms: int) -> PartitionScan:
        """The scan of a partition, with the segments that wait."""
        topic = None if partition.topic_id is None else self._topics.get(partition.topic_id)
        if topic is None:
            return partition
        node = self._brokers.get(partition.source.log_dir.node_id, {})
        lag = copy_lag(topic, {**self._static, **self._brokers.get(None, {}), **node})
        return partition if lag is None else with_copy_lag(partition, lag, now_ms)
