"""What keeps a broker from its start because of the ``log.dirs`` of its configuration: each is to be there, and the metadata log in one.

Pure: facts in, fates out. Source: ``KafkaRaftServer.initializeLogDirs``, ``MetaPropertiesEnsemble.verify``, ``BrokerMetadataCheckpoint``,
``LogManager.createAndValidateLogDirs`` of 2.8.2, 3.6, 3.7, 3.9, 4.3.1 and 4.4.0.
"""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.cluster_kind import ClusterKind
from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.log_dir_fates import unusable_meta_properties
from snaprebuild.broker.releases import FIRST_WITH_DIRECTORY_ID, Release
from snaprebuild.broker.start_facts import BrokerFacts, LogDirFacts, LogDirPlace, SmallFile

__all__ = ["metadata_log_elsewhere", "same_directory_id", "unusable_log_dirs"]

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
    for each in log_dirs:
        if each.place is LogDirPlace.OTHER:
            fates.append(_no_directory(each.path, is_metadata_dir=is_kraft and each.path == metadata_dir))
        elif is_kraft and each.meta is SmallFile.ABSENT:
            fates.append(_without_meta_properties(each))
        else:
            fates += unusable_meta_properties(each, broker)
    return fates


def _no_directory(path: str, *, is_metadata_dir: bool) -> Fate:
    """An IOException. A broker goes on with its other directories, but not without that of its metadata log."""
    return Fate(
        kind=FateKind.NO_START if is_metadata_dir else FateKind.OFFLINE,
        subject=path,
        path=path,
        code="offline-log-dir",
        cause="the directory of the metadata log is no directory" if is_metadata_dir else "a log directory that is no directory",
        evidence="the path in server.properties",
        log_line="Encountered I/O error in metadata log directory"
        if is_metadata_dir
        else "Failed to create or validate data directory",
        remedy="Check the mount, and log.dirs in server.properties",
    )


def _without_meta_properties(log_dir: LogDirFacts) -> Fate:
    is_missing = log_dir.place is LogDirPlace.MISSING
    return Fate(
        kind=FateKind.NO_START,
        subject=log_dir.path,
        path=log_dir.path,
        code="unusable-meta-properties",
        cause="a log directory that does not exist" if is_missing else "a log directory without meta.properties",
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
            subject=each.path,
            path=each.path,
            code="metadata-log-elsewhere",
            cause="a metadata log outside of metadata.log.dir",
            detail=f"it is {metadata_dir}",
            evidence="the listing, server.properties",
            releases=broker.releases.text_of(releases),
            log_line="org.apache.kafka.common.KafkaException: Found unexpected metadata location in data directory",
            remedy="Correct metadata.log.dir, or the order of log.dirs: the first has the metadata log without that setting",
        )
        for each in log_dirs
        if each.has_metadata_log and each.path != metadata_dir
    ]


def same_directory_id(log_dirs: Sequence[LogDirFacts], broker: BrokerFacts) -> list[Fate]:
    """The fates of two log directories with one ``directory.id``, as of a copied disk."""
    releases = [release for release in broker.releases.releases if release >= FIRST_WITH_DIRECTORY_ID]
    if broker.cluster_kind is not ClusterKind.KRAFT or not releases:
        return []
    first: dict[bytes, str] = {}
    fates = []
    for each in log_dirs:
        if each.directory_id is None:
            continue
        other = first.setdefault(each.directory_id, each.path)
        if other != each.path:
            fates.append(_same_id(each.path, other, broker.releases.text_of(releases)))
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
