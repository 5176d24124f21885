"""Adds to a scan what only metadata logs (KRaft) show: remote storage of each topic, how long segments may wait, broker epochs.

The logs are those on the disks that were scanned.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from formats.errors import FormatError
from snaprebuild.broker.cluster_kind import ClusterKind, kind_of
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, Severity, first_of, pluralize
from snaprebuild.snapshots.scan.copy_lag import BROKER_SETTINGS, TOPIC_SETTINGS, copy_lag, with_copy_lag
from snaprebuild.snapshots.scan.result import LogDirScan, PartitionScan, RemoteStorage, ScanResult
from snaprebuild.snapshots.source.broker_properties import metadata_dir_of
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.log_dir import read_log_dir

if TYPE_CHECKING:
    from snaprebuild.cluster.metadata.topic_storage import TopicStorages

__all__ = ["metadata_logs", "with_metadata_logs"]


def with_metadata_logs(result: ScanResult, source: Source, now_ms: int) -> ScanResult:
    """Settles the topics of which no other file shows whether remote storage is on. What a metadata log does not settle is a note.

    Segments that ``remote.copy.lag.*`` lets wait are marked.
    A log directory without a clean-shutdown marker gets the epoch with which its broker registered by the broker's own metadata log.

    Topics are looked up by id, so that neither another cluster nor a deleted topic counts. Two logs that differ leave a topic unknown.

    Args:
        result: of the scan.
        source: that was scanned. Metadata logs are read in local log directories, and in ``metadata.log.dir``.
        now_ms: the time of the scan, ms since 1970.
    """
    topics = {topic for topic, state in result.remote_storage.items() if state is RemoteStorage.UNKNOWN}
    needs_epoch = any(each.marker_epoch is None and kind_of(each.state.meta) is ClusterKind.KRAFT for each in result.log_dirs)
    needs_storage = any(state is not RemoteStorage.OFF for state in result.remote_storage.values())
    logs = metadata_logs(source) if needs_epoch or needs_storage else []
    if not logs:
        return result
    from snaprebuild.cluster.metadata.topic_storage import ENABLE, read_topic_storages  # loads the readers of batches

    known: dict[bytes, bool | None] = {}
    epochs: dict[tuple[str, int], int] = {}
    lags = _Lags(source)
    notes = []
    for path in logs:
        try:
            read = read_topic_storages(path)
        except (SnaprebuildError, FormatError) as error:
            why = f"{ENABLE} of the topics cannot be read: {error.message}" if topics else ""
        else:
            epochs |= _own_epoch(path, read.broker_epochs)
            known |= {topic_id: is_on if known.get(topic_id, is_on) is is_on else None for topic_id, is_on in read.by_id.items()}
            lags.add(read)
            names = sorted(read.unproven & topics)
            why = f"{ENABLE} of {pluralize(len(names), 'topic')} ({first_of(names)}) is not known: {read.why}" if names else ""
        notes += [Finding("topic-storage-unknown", Severity.NOTE, path, why)] if why else []
    states: dict[str, set[bool | None]] = {}
    for each in result.partitions:
        is_on = None if each.topic_id is None else known.get(each.topic_id)
        states.setdefault(each.source.directory.name.topic, set()).add(is_on)
    settled = {topic: _one_state(states[topic]) for topic in topics}
    return replace(
        result,
        log_dirs=tuple(_with_epoch(each, epochs) for each in result.log_dirs),
        remote_storage={**result.remote_storage, **settled},
        partitions=tuple(lags.applied_to(each, now_ms) for each in result.partitions),
        findings=(*result.findings, *notes),
    )


def _own_epoch(path: str, broker_epochs: Mapping[int, int]) -> dict[tuple[str, int], int]:
    """The epoch of the broker that has a metadata log, by its cluster and node id; empty if its ``meta.properties`` cannot be read."""
    with contextlib.suppress(SnaprebuildError, FormatError):  # which is a finding of the scan
        meta = read_log_dir(os.path.dirname(path)).meta
        if meta is None or meta.cluster_id is None or meta.node_id is None:
            return {}
        epoch = broker_epochs.get(meta.node_id)
        return {} if epoch is None else {(meta.cluster_id, meta.node_id): epoch}
    return {}


def _with_epoch(log_dir: LogDirScan, epochs: Mapping[tuple[str, int], int]) -> LogDirScan:
    meta = log_dir.state.meta
    if meta is None or meta.cluster_id is None or meta.node_id is None or log_dir.state.clean_shutdown is not None:
        return log_dir
    return replace(log_dir, registered_epoch=epochs.get((meta.cluster_id, meta.node_id)))


class _Lags:
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
        meta = partition.source.log_dir.meta
        node = self._brokers.get(None if meta is None else meta.node_id, {})
        lag = copy_lag(topic, {**self._static, **self._brokers.get(None, {}), **node})
        return partition if lag is None else with_copy_lag(partition, lag, now_ms)


def _one_state(states: set[bool | None]) -> RemoteStorage:
    """Of the partitions of a topic."""
    return RemoteStorage.ON if True in states else RemoteStorage.OFF if states == {False} else RemoteStorage.UNKNOWN


def metadata_logs(source: Source) -> list[str]:
    """Paths of the metadata logs on the disks of a source: in its local log directories, and in ``metadata.log.dir``."""
    elsewhere = None if source.properties is None else metadata_dir_of(source.properties)
    places = [state.path for state in source.log_dirs if state.store.is_local] + ([] if elsewhere is None else [elsewhere])
    paths = dict.fromkeys(os.path.realpath(os.path.join(each, "__cluster_metadata-0")) for each in places)
    return [path for path in paths if os.path.isdir(path)]
