"""The facts of a broker and its log directories, from their small files and its ``server.properties``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from formats.broker.broker_files import MetaProperties, Properties
from formats.partition.file_names import META_PROPERTIES, DirectoryForm, parse_partition_dir_name
from snaprebuild.broker.cluster_kind import ClusterKind, kind_of
from snaprebuild.broker.releases import (
    ALL_RELEASES,
    FIRST_WITH_DIRECTORY_ID,
    Release,
    ReleaseRange,
    parse_release,
)
from snaprebuild.broker.start_facts import BrokerFacts, LogDirFacts, Shutdown, SmallFile
from snaprebuild.storage.local.broker_lock import BrokerProcess
from snaprebuild.storage.log_dir import LogDirState, foreign_directories
from snaprebuild.storage.partition_dir import REMOTE_LOG_INDEX_CACHE

__all__ = ["log_dir_facts", "node_id_of", "read_broker_facts", "releases_of"]

METADATA_DIRECTORY = "__cluster_metadata-0"
PROTOCOL = "inter.broker.protocol.version"
FIRST_WITH_TOPIC_IDS: Release = (2, 8, 0)
LAST_WITH_ZOOKEEPER: Release = (3, 9, 99)


def log_dir_facts(state: LogDirState, shutdown: Shutdown, partitions: int) -> LogDirFacts:
    """The facts of one log directory. Lists it, and reads nothing else.

    Args:
        state: the content of its small files.
        shutdown: how its broker stopped.
        partitions: how many are in it.
    """
    meta = state.meta
    names = _names(state)
    return LogDirFacts(
        path=state.path,
        shutdown=shutdown,
        meta=_meta_state(state),
        cluster_id=None if meta is None else meta.cluster_id,
        node_id=None if meta is None else meta.node_id,
        malformed_checkpoints=tuple(name for name in state.malformed if name != META_PROPERTIES),
        unreadable_files=state.unreadable,
        foreign_directories=tuple(foreign_directories(state)),
        futures=_futures(names),
        strays=tuple(name for name in names if name.endswith(DirectoryForm.STRAY.value)),
        has_index_cache=REMOTE_LOG_INDEX_CACHE in names,
        has_metadata_log=_has_metadata_log(state),
        partitions=partitions,
    )


def _meta_state(state: LogDirState) -> SmallFile:
    if META_PROPERTIES in state.malformed:
        return SmallFile.MALFORMED
    if META_PROPERTIES in state.unreadable:
        return SmallFile.UNREADABLE
    if state.meta is None:
        return SmallFile.ABSENT
    return SmallFile.EMPTY if kind_of(state.meta) is ClusterKind.UNKNOWN else SmallFile.PRESENT


def _names(state: LogDirState) -> list[str]:
    """Names in a log directory of a broker; none if it cannot be listed: other checks report that."""
    if not (state.is_broker_directory and state.store.is_local):
        return []
    try:
        return sorted(os.listdir(state.path))
    except OSError:
        return []


def _futures(names: Iterable[str]) -> tuple[str, ...]:
    """Topic-partitions of the future copies."""
    parsed = [parse_partition_dir_name(name) for name in names if name.endswith(DirectoryForm.FUTURE.value)]
    return tuple(f"{each.topic}-{each.partition}" for each in parsed if each is not None)


def _has_metadata_log(state: LogDirState) -> bool:
    return state.store.is_local and os.path.isdir(os.path.join(state.path, METADATA_DIRECTORY))


def read_broker_facts(
    log_dirs: Sequence[LogDirState],
    properties: Properties | None = None,
    release: Release | None = None,
    metadata_release: Release | None = None,
    processes: Iterable[BrokerProcess] = (),
) -> BrokerFacts:
    """The facts of the broker of log directories.

    Args:
        log_dirs: of one broker.
        properties: its ``server.properties``; None without one.
        release: as the operator gave it; None for all that are possible.
        metadata_release: the lowest one that reads the image of its metadata log; None if it is unknown.
        processes: that hold the log directories now.
    """
    metas = [state.meta for state in log_dirs if state.meta is not None]
    kind = _cluster_kind(metas, log_dirs, properties)
    protocol = _protocol(properties)
    return BrokerFacts(
        cluster_kind=kind,
        releases=releases_of(kind, log_dirs, properties, release, metadata_release, processes),
        deletes_topic_ids=kind is ClusterKind.ZOOKEEPER and protocol is not None and protocol < FIRST_WITH_TOPIC_IDS,
        log_dirs=len(log_dirs),
    )


def _cluster_kind(metas: Iterable[MetaProperties], log_dirs: Iterable[LogDirState], properties: Properties | None) -> ClusterKind:
    """By ``meta.properties``, else by the configuration, else by a metadata log on one of the disks."""
    kinds = {kind_of(meta) for meta in metas}
    if ClusterKind.KRAFT in kinds:
        return ClusterKind.KRAFT
    if ClusterKind.ZOOKEEPER in kinds:
        return ClusterKind.ZOOKEEPER
    has_roles = properties is not None and bool((properties.get("process.roles") or "").strip())
    if has_roles or any(map(_has_metadata_log, log_dirs)):
        return ClusterKind.KRAFT
    return ClusterKind.UNKNOWN


def releases_of(
    kind: ClusterKind,
    log_dirs: Sequence[LogDirState],
    properties: Properties | None,
    release: Release | None,
    metadata_release: Release | None,
    processes: Iterable[BrokerProcess] = (),
) -> ReleaseRange:
    """The releases that may start the broker; arguments as of ``read_broker_facts``."""
    if release is not None:
        return ReleaseRange(release, release, "--kafka-release")
    running = _running_releases(processes)
    if running is not None:
        return running
    possible = ALL_RELEASES
    if kind is ClusterKind.ZOOKEEPER:
        possible = possible.narrowed(None, LAST_WITH_ZOOKEEPER, "meta.properties")
    wrote_directory_id = any(state.meta is not None and state.meta.directory_id is not None for state in log_dirs)
    if wrote_directory_id:
        possible = possible.narrowed(FIRST_WITH_DIRECTORY_ID, None, "directory.id in meta.properties")
    protocol = _protocol(properties)
    if protocol is not None:
        possible = possible.narrowed(protocol, None, PROTOCOL)
    if metadata_release is not None:
        possible = possible.narrowed(metadata_release, None, "metadata.version")
    return possible


def _running_releases(processes: Iterable[BrokerProcess]) -> ReleaseRange | None:
    """The release of the broker that runs; None if none runs, or its archives name no release that was read.

    Archives of several releases are in one class path where an upgrade did not remove the old ones.
    """
    known = [each for each in processes if each.releases]
    releases = sorted({release for each in known for release in each.releases})
    if not releases or not all(ALL_RELEASES.first <= each <= ALL_RELEASES.last for each in releases):
        return None
    return ReleaseRange(releases[0], releases[-1], f"the jars of process {known[0].process_id}")


def _protocol(properties: Properties | None) -> Release | None:
    text = None if properties is None else properties.get(PROTOCOL)
    return None if text is None else parse_release(text)


def node_id_of(properties: Properties | None) -> int | None:
    """``node.id``, else ``broker.id``; None where neither is a number of a node."""
    if properties is None:
        return None
    text = (properties.get("node.id") or properties.get("broker.id") or "").strip()
    return int(text) if text.isascii() and text.isdecimal() else None
