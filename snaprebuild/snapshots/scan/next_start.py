"""Adds to a scan what the next start of each broker does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from formats.broker.broker_files import Properties
from snaprebuild.broker.broker_facts import log_dir_facts, node_id_of, read_broker_facts
from snaprebuild.broker.duplicate_logs import future_in_two_places, log_dir_listed_twice, partition_in_two_places
from snaprebuild.broker.fates import Fate, worst_first
from snaprebuild.broker.log_dir_fates import log_dir_fates, same_broker_fates
from snaprebuild.broker.partition_fates import partition_fates
from snaprebuild.broker.releases import Release
from snaprebuild.broker.start_facts import BrokerFacts, LogDirFacts, PartitionFacts, RemoteStorage, Shutdown
from snaprebuild.findings import Severity
from snaprebuild.snapshots.scan.result import ScanResult
from snaprebuild.snapshots.source.broker_properties import log_dirs_of
from snaprebuild.storage.local.broker_lock import BrokerProcess
from snaprebuild.storage.log_dir import LogDirState

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
        [each.facts for each in result.partitions],
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
    partitions = list(partitions)
    processes = processes or {}
    counts = dict.fromkeys(log_dirs, 0)
    for partition in partitions:
        above = _log_dir_of(partition, log_dirs)
        counts[above] = counts.get(above, 0) + 1
    configured = set() if properties is None else {os.path.realpath(path) for path in log_dirs_of(properties)}
    brokers: dict[str, BrokerFacts] = {}
    fates: list[Fate] = []
    for members in _of_one_broker(log_dirs, configured):
        is_configured = members[0] in configured
        of_broker = properties if is_configured else None
        known = [(metadata_releases or {}).get(path) for path in members]
        newest = max((each for each in known if each is not None), default=None)
        running = [processes[path] for path in members if path in processes]
        facts = read_broker_facts([log_dirs[path][0] for path in members], of_broker, release, newest, running)
        # Only a configuration lists all directories of a broker.
        facts = facts if is_configured else msgspec.structs.replace(facts, log_dirs=0)
        of_dirs: list[LogDirFacts] = []
        of_broker_fates: list[Fate] = []
        for path in members:
            brokers[path] = facts
            state, shutdown = log_dirs[path]
            of_dirs.append(log_dir_facts(state, shutdown, counts[path]))
            of_broker_fates += log_dir_fates(of_dirs[-1], facts)
        if properties is not None and is_configured:
            of_broker_partitions = [each for each in partitions if _log_dir_of(each, log_dirs) in configured]
            of_broker_fates += same_broker_fates(of_dirs, node_id_of(properties))
            of_broker_fates += partition_in_two_places(of_broker_partitions, facts)
            of_broker_fates += future_in_two_places(of_dirs)
            of_broker_fates += log_dir_listed_twice(log_dirs_of(properties), facts)
        else:
            # Directories of equal nodes may be copies of each other.
            of_broker_fates += [fate for each in of_dirs for fate in future_in_two_places([each])]
        fates += _with_releases(of_broker_fates, facts)
    unknown = BrokerFacts()
    for partition in partitions:
        topic = partition.topic_partition.rpartition("-")[0]
        storage = remote_storage.get(topic, partition.remote_storage)
        is_same = storage is partition.remote_storage
        now = partition if is_same else msgspec.structs.replace(partition, remote_storage=storage)
        facts = brokers.get(_log_dir_of(partition, log_dirs), unknown)
        fates += _with_releases(partition_fates(now, facts), facts)
    return worst_first(fates)


def _with_releases(fates: Iterable[Fate], broker: BrokerFacts) -> list[Fate]:
    """The fates with the evidence of the releases that they were judged for; a note is true for each release."""
    releases = broker.releases.evidence
    if releases is None:
        return list(fates)
    return [
        fate if fate.severity is Severity.NOTE else msgspec.structs.replace(fate, evidence=f"{fate.evidence}; {releases}")
        for fate in fates
    ]


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
