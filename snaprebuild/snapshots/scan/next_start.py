"""Adds to a scan what the next start of each broker does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from formats.broker.broker_files import Properties
from snaprebuild.broker.broker_facts import (
    configured_log_dir_facts,
    log_dir_facts,
    lone_future_copies,
    node_id_of,
    read_broker_facts,
)
from snaprebuild.broker.duplicate_logs import future_in_two_places, log_dir_listed_twice, partition_in_two_places
from snaprebuild.broker.fates import Fate, worst_first
from snaprebuild.broker.future_fates import future_fates, lone_copy_fates
from snaprebuild.broker.log_dir_fates import (
    log_dir_fates,
    metadata_log_elsewhere,
    same_broker_fates,
    same_directory_id,
    unusable_log_dirs,
)
from snaprebuild.broker.partition_fates import partition_fates
from snaprebuild.broker.releases import Release
from snaprebuild.broker.start_facts import BrokerFacts, LogDirFacts, PartitionFacts, RemoteStorage, Shutdown
from snaprebuild.findings import Severity
from snaprebuild.snapshots.scan.scan_result import ScanResult
from snaprebuild.snapshots.source.broker_properties import log_dirs_of, metadata_dir_of
from snaprebuild.storage.local.broker_lock import BrokerProcess
from snaprebuild.storage.log_dir import ClusterKind, LogDirState

__all__ = ["next_start_fates", "with_next_start"]


def with_next_start(
    result: ScanResult,
    properties: Properties | None,
    release: Release | None = None,
    metadata_releases: Mapping[str, Release] | None = None,
) -> ScanResult:
    """The result with its fates.

    Args:
        result: of the scan.
        properties: the ``server.properties``, None without one.
        release: that starts the brokers; None for all that are possible.
        metadata_releases: the lowest release that reads the image of the metadata log, by log directory.
    """
    fates = next_start_fates(
        {log_dir.state.path: (log_dir.state, log_dir.shutdown) for log_dir in result.log_dirs},
        [*(each.facts for each in result.partitions), *(each.facts for each in result.skipped)],
        result.remote_storage,
        properties,
        release,
        metadata_releases,
        {log_dir.state.path: log_dir.process for log_dir in result.log_dirs if log_dir.process is not None},
    )
    return replace(result, fates=tuple(fates))


def next_start_fates(
    log_dirs: Mapping[str, tuple[LogDirState, Shutdown]],
    partitions: Iterable[PartitionFacts],
    remote_storage: Mapping[str, RemoteStorage],
    properties: Properties | None,
    release: Release | None = None,
    metadata_releases: Mapping[str, Release] | None = None,
    processes: Mapping[str, BrokerProcess] | None = None,
) -> list[Fate]:
    """The fates of log directories and their partitions, the worst first.

    Args:
        log_dirs: content of the small files, and how the broker stopped, by path.
        partitions: their facts.
        remote_storage: by topic name.
        properties: the ``server.properties``, None without one.
        release: that starts the brokers; None for all that are possible.
        metadata_releases: the lowest release that reads the image of the metadata log, by log directory.
        processes: that hold log directories, by path.
    """
    by_dir: dict[str, list[PartitionFacts]] = {path: [] for path in log_dirs}
    for partition in partitions:
        topic = partition.topic_partition.rpartition("-")[0]
        storage = remote_storage.get(topic, partition.remote_storage)
        is_same = storage is partition.remote_storage
        now = partition if is_same else replace(partition, remote_storage=storage)
        by_dir.setdefault(_log_dir_of(partition, log_dirs), []).append(now)
    configured = set() if properties is None else {os.path.realpath(path) for path in log_dirs_of(properties)}
    fates: list[Fate] = []
    brokers: dict[str, BrokerFacts] = {}
    for members in _of_one_broker(log_dirs, configured):
        is_configured = members[0] in configured
        known = [(metadata_releases or {}).get(path) for path in members]
        newest = max((each for each in known if each is not None), default=None)
        of_broker = properties if is_configured else None
        running = [processes[path] for path in members if processes is not None and path in processes]
        broker = read_broker_facts([log_dirs[path][0] for path in members], of_broker, release, newest, running)
        # Only a configuration lists all directories of a broker.
        if of_broker is None:
            broker = replace(broker, log_dirs=0)
        else:
            broker = replace(broker, log_dirs=len(configured), metadata_dir=_metadata_dir(of_broker))
        brokers |= dict.fromkeys(members, broker)
        of_dirs = [log_dir_facts(*log_dirs[path], len(by_dir[path])) for path in members]
        replicas = [each for path in members for each in by_dir[path]]
        own_fates = [fate for each in of_dirs for fate in log_dir_fates(each, broker)]
        if of_broker is not None:
            own_fates += _configured_fates(of_dirs, of_broker, broker)
            own_fates += partition_in_two_places(replicas, broker)
            own_fates += future_in_two_places(replicas, broker)
            own_fates += lone_copy_fates(replicas, lone_future_copies(replicas, log_dirs_of(of_broker)), broker)
        else:
            # Directories of equal nodes may be copies of each other.
            own_fates += [fate for path in members for fate in future_in_two_places(by_dir[path], broker)]
        own_fates += future_fates(replicas, broker)
        fates += _with_releases(own_fates, broker)
    if properties is not None and not configured.intersection(log_dirs):
        # None of them has a partition, or is a directory.
        broker = read_broker_facts([], properties, release)
        broker = replace(broker, log_dirs=len(configured), metadata_dir=_metadata_dir(properties))
        fates += _with_releases(_configured_fates([], properties, broker), broker)
    for path, of_one_dir in by_dir.items():
        broker = brokers.get(path, BrokerFacts())
        for partition in of_one_dir:
            fates += _with_releases(partition_fates(partition, broker), broker)
    return worst_first(fates)


def _with_releases(fates: Iterable[Fate], broker: BrokerFacts) -> list[Fate]:
    """The fates with the evidence of the releases that they were judged for; a note is true for each release."""
    releases = broker.releases.evidence
    if releases is None:
        return list(fates)
    return [fate if fate.severity is Severity.NOTE else replace(fate, evidence=f"{fate.evidence}; {releases}") for fate in fates]


def _configured_fates(of_dirs: Sequence[LogDirFacts], properties: Properties, broker: BrokerFacts) -> list[Fate]:
    """Findings about the entries of ``log.dirs`` and ``metadata.log.dir`` together, those without any partition included."""
    paths = log_dirs_of(properties)
    with_partitions = {each.path for each in of_dirs}
    metadata_dir = _metadata_dir(properties)
    # Loader.addMetadataLogDir: meta.properties of that directory is verified with the others.
    places = [*paths, *([metadata_dir] if broker.cluster_kind is ClusterKind.KRAFT else [])]
    real = dict.fromkeys(os.path.realpath(path) for path in places)
    others = [configured_log_dir_facts(path) for path in real if path not in with_partitions]
    every = [*of_dirs, *others]
    return [
        *same_broker_fates(every, node_id_of(properties)),
        *unusable_log_dirs(others, broker, metadata_dir),
        *metadata_log_elsewhere(every, broker, metadata_dir),
        *same_directory_id(every, broker),
        *log_dir_listed_twice(paths, broker),
    ]


def _metadata_dir(properties: Properties) -> str:
    """The real path of ``metadata.log.dir``, or of the first of ``log.dirs``."""
    return os.path.realpath(metadata_dir_of(properties) or log_dirs_of(properties)[0])


def _log_dir_of(partition: PartitionFacts, log_dirs: Mapping[str, object]) -> str:
    """Real path of its log directory; a partition may be reached by a link to that."""
    above = os.path.dirname(partition.path)
    return above if above in log_dirs else os.path.realpath(above)


def _of_one_broker(log_dirs: Mapping[str, tuple[LogDirState, Shutdown]], configured: set[str]) -> list[list[str]]:
    """Paths of the log directories by broker: those of a configuration, and those with one cluster id and node id."""
    groups: dict[object, list[str]] = {}
    for path, (state, _) in log_dirs.items():
        meta = state.meta
        key: object = (None if meta is None else (meta.cluster_id, meta.node_id)) or path
        groups.setdefault("configured" if path in configured else key, []).append(path)
    return list(groups.values())
