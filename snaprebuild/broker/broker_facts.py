"""The facts of a broker and its log directories, from their small files and its ``server.properties``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence

import msgspec

from formats.broker.broker_files import MetaProperties, Properties
from formats.partition.file_names import META_PROPERTIES, DirectoryForm
from snaprebuild.broker.releases import (
    ALL_RELEASES,
    FIRST_WITH_DIRECTORY_ID,
    Release,
    ReleaseRange,
    parse_release,
)
from snaprebuild.broker.start_facts import BrokerFacts, LogDirFacts, LogDirPlace, PartitionFacts, Shutdown, SmallFile
from snaprebuild.storage.local.broker_lock import BrokerProcess
from snaprebuild.storage.log_dir import ClusterKind, LogDirState, foreign_directories, kind_of, read_log_dir
from snaprebuild.storage.partition_dir import REMOTE_LOG_INDEX_CACHE
from snaprebuild.storage.store_path import path_of

__all__ = ["configured_log_dir_facts", "log_dir_facts", "lone_future_copies", "node_id_of", "read_broker_facts", "releases_of"]

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
    names = _names(state)
    return LogDirFacts(
        path=state.path,
        shutdown=shutdown,
        meta=_meta_state(state),
        cluster_id=state.cluster_id,
        node_id=state.node_id,
        malformed_checkpoints=tuple(name for name in state.malformed if name != META_PROPERTIES),
        unreadable_files=state.unreadable,
        foreign_directories=tuple(foreign_directories(state)),
        strays=tuple(name for name in names if name.endswith(DirectoryForm.STRAY.value)),
        has_index_cache=REMOTE_LOG_INDEX_CACHE in names,
        has_metadata_log=_has_metadata_log(state),
        directory_id=state.directory_id,
        partitions=partitions,
    )


def configured_log_dir_facts(path: str) -> LogDirFacts:
    """The facts of an entry of ``log.dirs`` without a partition: a directory, or a path that leads to none."""
    place = _place_of(path)
    if place is not LogDirPlace.DIRECTORY:
        meta = SmallFile.UNREADABLE if place is LogDirPlace.UNKNOWN else SmallFile.ABSENT
        return LogDirFacts(path=path, shutdown=Shutdown.UNKNOWN, meta=meta, place=place)
    state = read_log_dir(path_of(path))
    shutdown = Shutdown.CLEAN if state.was_shut_down_cleanly else Shutdown.UNKNOWN
    facts = log_dir_facts(state, shutdown, 0)
    is_unread = facts.meta is SmallFile.ABSENT and bool(state.faults)
    return msgspec.structs.replace(facts, meta=SmallFile.UNREADABLE) if is_unread else facts


def lone_future_copies(partitions: Iterable[PartitionFacts], log_dirs: Sequence[str]) -> frozenset[str]:
    """Topic-partitions of which a broker has a future copy, and nothing else.

    None where a log directory cannot be looked at: the partition may be in it, and a broker creates no log while a directory is offline.

    Args:
        partitions: of one broker.
        log_dirs: all log directories of it.
    """
    if any(_place_of(path) is not LogDirPlace.DIRECTORY for path in log_dirs):
        return frozenset()
    names = {partition.topic_partition for partition in partitions if partition.form is DirectoryForm.FUTURE}
    return frozenset(name for name in names if not any(os.path.lexists(os.path.join(path, name)) for path in log_dirs))


def _place_of(path: str) -> LogDirPlace:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return LogDirPlace.MISSING
    except NotADirectoryError:
        return LogDirPlace.OTHER
    except OSError:
        return LogDirPlace.UNKNOWN  # the broker's user may be allowed more
    return LogDirPlace.DIRECTORY if stat.S_ISDIR(mode) else LogDirPlace.OTHER


def _meta_state(state: LogDirState) -> SmallFile:
    if META_PROPERTIES in state.malformed:
        return SmallFile.MALFORMED
    if META_PROPERTIES in state.unreadable:
        is_directory = state.store.is_local and os.path.isdir(os.path.join(state.path, META_PROPERTIES))
        return SmallFile.DIRECTORY if is_directory else SmallFile.UNREADABLE
    if state.meta is None:
        return SmallFile.ABSENT
    if kind_of(state.meta) is not ClusterKind.UNKNOWN:
        return SmallFile.PRESENT
    try:
        is_empty = state.store.is_local and os.path.getsize(os.path.join(state.path, META_PROPERTIES)) == 0
    except OSError:
        is_empty = False
    return SmallFile.EMPTY if is_empty else SmallFile.WITHOUT_NODE_ID


def _names(state: LogDirState) -> list[str]:
    """Names in a log directory of a broker; none if it cannot be listed: other checks report that."""
    if not (state.is_broker_directory and state.store.is_local):
        return []
    try:
        return sorted(os.listdir(state.path))
    except OSError:
        return []


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
    has_roles = properties is not None and properties.has_kraft_roles
    if has_roles or any(map(_has_metadata_log, log_dirs)):
        return ClusterKind.KRAFT
    return ClusterKind.UNKNOWN


def releases_of(
    kind: ClusterKind,
    log_dirs: Sequence[LogDirState],
    properties: Properties | None,
    release: Release | None,
    metadata_release: Release | None,
    processes: Iterable[BrokerProcess],
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
    if text.isascii() and text.isdecimal():
        return int(text)
    return None
