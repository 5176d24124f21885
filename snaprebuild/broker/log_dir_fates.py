"""The fates of the log directories of a broker, and of the broker, at its next start. Pure: facts in, fates out.

Each entry of ``log.dirs`` in the configuration is to be there, and the metadata log in one of them.

Source: ``MetaPropertiesEnsemble.verify``, ``LogManager.loadLogs``, ``LogManager.loadLog``, ``LogManager.createAndValidateLogDirs``,
``LocalLog.parseTopicPartitionName``, ``OffsetCheckpointFile``, ``KafkaRaftServer.initializeLogDirs``, ``BrokerMetadataCheckpoint`` of
2.8.2, 3.6, 3.7, 3.9, 4.3.1 and 4.4.0.
"""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.releases import FIRST_WITH_DIRECTORY_ID, Release
from snaprebuild.broker.start_facts import BrokerFacts, LogDirFacts, LogDirPlace, Shutdown, SmallFile
from snaprebuild.findings import first_of
from snaprebuild.storage.log_dir import ClusterKind
from snaprebuild.storage.partition_dir import REMOTE_LOG_INDEX_CACHE

__all__ = [
    "log_dir_fates",
    "metadata_log_elsewhere",
    "same_broker_fates",
    "same_directory_id",
    "unusable_log_dirs",
]

FIRST_WITH_INDEX_CACHE: Release = (3, 5, 0)
FIRST_WITH_STRAY_NAMES: Release = (3, 6, 0)
"""The first releases that read over ``remote-log-index-cache``, and that know names with ``-stray``."""
FIRST_THAT_GOES_ON: Release = (3, 7, 0)
"""From here on (``MetaPropertiesEnsemble``) a ``meta.properties`` that does not parse only takes its log directory offline."""

CHECKPOINT_REMEDY = (
    "Move the file away before the start: the broker writes it anew. Without it all logs of the directory are recovered"
)


_UNUSABLE_META = {
    SmallFile.ABSENT: ("meta.properties is missing", "No `meta.properties` found"),
    SmallFile.EMPTY: ("meta.properties is empty", "node ID not found"),
    SmallFile.WITHOUT_NODE_ID: ("meta.properties has no node id", "node ID not found"),
    SmallFile.MALFORMED: ("malformed meta.properties", "No readable meta.properties files found"),
    SmallFile.DIRECTORY: ("meta.properties is a directory", "No readable meta.properties files found"),
}
"""The cause, and what Kafka logs."""

_WITHOUT_ID = (SmallFile.EMPTY, SmallFile.WITHOUT_NODE_ID)
"""Nothing of the file is used."""

META_REMEDY = "Restore meta.properties: cluster id and node id are those of the other log directories of the node"


def log_dir_fates(log_dir: LogDirFacts, broker: BrokerFacts) -> list[Fate]:
    """The fates of one log directory, the worst first.

    Args:
        log_dir: the facts.
        broker: of its broker.
    """
    if log_dir.shutdown is Shutdown.UNKNOWN and log_dir.meta not in _WITHOUT_ID:
        return []
    of_meta = _unusable_meta_properties(log_dir, broker)
    if of_meta and log_dir.meta not in _WITHOUT_ID:
        return of_meta  # the broker reads nothing else of the directory
    return [*of_meta, *_foreign_directories(log_dir, broker), *_offline(log_dir, broker)]


def _unusable_meta_properties(log_dir: LogDirFacts, broker: BrokerFacts) -> list[Fate]:
    """The fate of a directory whose ``meta.properties`` a broker cannot use.

    A ZooKeeper broker writes a missing file anew.
    """
    if broker.cluster_kind is ClusterKind.UNKNOWN or log_dir.shutdown is Shutdown.RUNNING:
        return []
    if log_dir.meta not in _UNUSABLE_META:
        return []
    releases = [release for release in broker.releases.releases if not _is_written_anew(log_dir, broker, release)]
    offline = [release for release in releases if _goes_on_without(log_dir, broker, release)]
    ended = [release for release in releases if release not in offline]
    fates = []
    if ended:
        fates.append(_meta_ends_the_start(log_dir, broker.releases.text_of(ended)))
    if offline:
        fates.append(_meta_takes_offline(log_dir, broker, broker.releases.text_of(offline)))
    return fates


def _is_written_anew(log_dir: LogDirFacts, broker: BrokerFacts, release: Release) -> bool:
    """Whether a ZooKeeper broker takes the directory for a new one. Before 3.7 an empty file differs from those of other directories."""
    if broker.cluster_kind is not ClusterKind.ZOOKEEPER:
        return False
    if log_dir.meta in _WITHOUT_ID:
        return release >= FIRST_THAT_GOES_ON or broker.log_dirs < 2
    return log_dir.meta is SmallFile.ABSENT


def _goes_on_without(log_dir: LogDirFacts, broker: BrokerFacts, release: Release) -> bool:
    """Whether a broker does without this log directory. It never does without that of its metadata log.

    An IOException always takes the directory offline; content that does not parse does so from 3.7 on.
    """
    if broker.cluster_kind is ClusterKind.KRAFT:
        may_be_metadata_dir = broker.metadata_dir is None or log_dir.path == broker.metadata_dir
        if may_be_metadata_dir or log_dir.has_metadata_log:
            return False
    if log_dir.meta is SmallFile.DIRECTORY:
        return True
    return log_dir.meta is SmallFile.MALFORMED and release >= FIRST_THAT_GOES_ON


def _meta_ends_the_start(log_dir: LogDirFacts, releases: str | None) -> Fate:
    cause, log_line = _UNUSABLE_META[log_dir.meta]
    return Fate(
        kind=FateKind.NO_START,
        subject=log_dir.path,
        path=log_dir.path,
        code="unusable-meta-properties",
        cause=cause,
        evidence="meta.properties",
        releases=releases,
        log_line=log_line,
        remedy=META_REMEDY,
    )


def _meta_takes_offline(log_dir: LogDirFacts, broker: BrokerFacts, releases: str | None) -> Fate:
    cause, _ = _UNUSABLE_META[log_dir.meta]
    return Fate(
        kind=FateKind.OFFLINE,
        subject=log_dir.path,
        path=log_dir.path,
        code="unusable-meta-properties",
        cause=f"{cause}{_end_of_the_only_log_dir(broker)}",
        evidence="meta.properties, server.properties",
        releases=releases,
        log_line="Error while reading meta.properties file",
        remedy=META_REMEDY,
    )


def _end_of_the_only_log_dir(broker: BrokerFacts) -> str:
    if broker.log_dirs == 1:
        return "; it is the only log directory, so the broker shuts down"
    return ""


def _foreign_directories(log_dir: LogDirFacts, broker: BrokerFacts) -> list[Fate]:
    """``lost+found``, a backup. ``LocalLog.parseTopicPartitionName`` throws at the first one.

    The names of later releases count only where no release that knows them can start the broker: it was one of these that wrote them.
    """
    newest = broker.releases.releases[-1]
    names = list(log_dir.foreign_directories)
    if newest < FIRST_WITH_INDEX_CACHE and log_dir.has_index_cache:
        names.append(REMOTE_LOG_INDEX_CACHE)
    if newest < FIRST_WITH_STRAY_NAMES:
        names += log_dir.strays
    if not names:
        return []
    return [
        Fate(
            kind=FateKind.NO_START,
            subject=log_dir.path,
            path=log_dir.path,
            code="foreign-directory",
            cause="a directory that is no partition",
            detail=first_of(names),
            evidence="the listing",
            log_line="org.apache.kafka.common.KafkaException: Found directory, which is not in the form of topic-partition",
            remedy="Move it out of the log directory",
        )
    ]


def _offline(log_dir: LogDirFacts, broker: BrokerFacts) -> list[Fate]:
    """``CheckpointFile`` reports a file that does not parse, and its directory goes offline; one without a byte has no entries."""
    if log_dir.shutdown is Shutdown.RUNNING:
        return []
    halts = _end_of_the_only_log_dir(broker)
    return [
        Fate(
            kind=FateKind.OFFLINE,
            subject=log_dir.path,
            path=log_dir.path,
            code="unreadable-broker-file",
            cause=f"malformed {name}{halts}",
            evidence=name,
            log_line="java.io.IOException: Malformed line in checkpoint file",
            remedy=CHECKPOINT_REMEDY,
        )
        for name in log_dir.malformed_checkpoints
    ]


def same_broker_fates(log_dirs: Sequence[LogDirFacts], node_id: int | None) -> list[Fate]:
    """Fates of directories that do not belong together in the ``log.dirs`` of one ``server.properties``.

    Args:
        log_dirs: all of them.
        node_id: of the properties; None where they have none.
    """
    known = [log_dir for log_dir in log_dirs if log_dir.meta is SmallFile.PRESENT]
    clusters = sorted({each.cluster_id for each in known if each.cluster_id is not None})
    nodes = sorted({each.node_id for each in known if each.node_id is not None})
    fates = []
    if len(clusters) > 1:
        fates.append(_not_one(known[-1].path, "log directories of two clusters", first_of(clusters), "Invalid cluster.id"))
    if len(nodes) > 1:
        fates.append(_not_one(known[-1].path, "log directories of two brokers", first_of([*map(str, nodes)]), "Invalid node.id"))
    elif node_id is not None and nodes and nodes[0] != node_id:
        detail = f"{nodes[0]}, server.properties has {node_id}"
        fates.append(_not_one(known[-1].path, "the log directory of another broker", detail, "Invalid node.id"))
    return fates


def _not_one(path: str, cause: str, detail: str, log_line: str) -> Fate:
    return Fate(
        kind=FateKind.NO_START,
        subject=path,
        path=path,
        code="unusable-meta-properties",
        cause=cause,
        detail=detail,
        evidence="meta.properties",
        log_line=log_line,
        remedy="Correct log.dirs in server.properties",
    )


FIRST_THAT_CHECKS_THE_PLACE: Release = (3, 0, 0)
"""From here on a metadata log in another directory ends the start."""


def unusable_log_dirs(log_dirs: Sequence[LogDirFacts], broker: BrokerFacts, metadata_dir: str) -> list[Fate]:
    """The fates of log directories that are no directory, or have no ``meta.properties``.

    Args:
        log_dirs: entries of ``log.dirs`` without a partition, and ``metadata.log.dir``.
        broker: whose they are.
        metadata_dir: ``metadata.log.dir``, or the first of ``log.dirs``.
    """
    is_kraft = broker.cluster_kind is ClusterKind.KRAFT
    fates = []
    for log_dir in log_dirs:
        if log_dir.place is LogDirPlace.OTHER:
            fates.append(_no_directory(log_dir.path, is_metadata_dir=is_kraft and log_dir.path == metadata_dir))
        elif is_kraft and log_dir.meta is SmallFile.ABSENT:
            fates.append(_without_meta_properties(log_dir))
        else:
            fates += _unusable_meta_properties(log_dir, broker)
    return fates


def _no_directory(path: str, *, is_metadata_dir: bool) -> Fate:
    """An IOException. A broker goes on with its other directories, but not without that of its metadata log."""
    kind = FateKind.OFFLINE
    cause = "a log directory that is no directory"
    log_line = "Failed to create or validate data directory"
    if is_metadata_dir:
        kind = FateKind.NO_START
        cause = "the directory of the metadata log is no directory"
        log_line = "Encountered I/O error in metadata log directory"
    return Fate(
        kind=kind,
        subject=path,
        path=path,
        code="offline-log-dir",
        cause=cause,
        evidence="the path in server.properties",
        log_line=log_line,
        remedy="Check the mount, and log.dirs in server.properties",
    )


def _without_meta_properties(log_dir: LogDirFacts) -> Fate:
    cause = "a log directory without meta.properties"
    if log_dir.place is LogDirPlace.MISSING:
        cause = "a log directory that does not exist"
    return Fate(
        kind=FateKind.NO_START,
        subject=log_dir.path,
        path=log_dir.path,
        code="unusable-meta-properties",
        cause=cause,
        detail=log_dir.path,
        evidence="the path in server.properties",
        log_line="No `meta.properties` found",
        remedy="Check the mount. If the directory is new, format it with kafka-storage.sh",
    )


def metadata_log_elsewhere(log_dirs: Sequence[LogDirFacts], broker: BrokerFacts, metadata_dir: str) -> list[Fate]:
    """The fates of log directories that have ``__cluster_metadata-0``, and are not the one that has to have it."""
    releases = [release for release in broker.releases.releases if release >= FIRST_THAT_CHECKS_THE_PLACE]
    if broker.cluster_kind is not ClusterKind.KRAFT or not releases:
        return []
    return [
        Fate(
            kind=FateKind.NO_START,
            subject=log_dir.path,
            path=log_dir.path,
            code="metadata-log-elsewhere",
            cause="a metadata log outside of metadata.log.dir",
            detail=f"it is {metadata_dir}",
            evidence="the listing, server.properties",
            releases=broker.releases.text_of(releases),
            log_line="org.apache.kafka.common.KafkaException: Found unexpected metadata location in data directory",
            remedy="Correct metadata.log.dir, or the order of log.dirs: the first has the metadata log without that setting",
        )
        for log_dir in log_dirs
        if log_dir.has_metadata_log and log_dir.path != metadata_dir
    ]


def same_directory_id(log_dirs: Sequence[LogDirFacts], broker: BrokerFacts) -> list[Fate]:
    """The fates of two log directories with one ``directory.id``, as of a copied disk."""
    releases = [release for release in broker.releases.releases if release >= FIRST_WITH_DIRECTORY_ID]
    if broker.cluster_kind is not ClusterKind.KRAFT or not releases:
        return []
    first: dict[bytes, str] = {}
    fates = []
    for log_dir in log_dirs:
        if log_dir.directory_id is None:
            continue
        other = first.setdefault(log_dir.directory_id, log_dir.path)
        if other != log_dir.path:
            fates.append(_same_id(log_dir.path, other, broker.releases.text_of(releases)))
    return fates


def _same_id(path: str, other: str, releases: str | None) -> Fate:
    return Fate(
        kind=FateKind.NO_START,
        subject=path,
        path=path,
        code="unusable-meta-properties",
        cause="one directory.id in two log directories",
        detail=f"also in {other}",
        evidence="meta.properties",
        releases=releases,
        log_line="java.lang.RuntimeException: Duplicate directory ID",
        remedy="If one is a copy, take it out of log.dirs. Else remove the line directory.id from one of the files",
    )
