"""Duplicates that keep a broker from its start: of a partition, a future copy, a log directory. Pure: facts in, fates out.

Source: ``LogManager.loadLog``, ``LogManager.validateLogDirs``, ``ConfigDef`` of 2.8.2, 3.6.1, 3.6.2, 3.7.0, 3.7.2, 3.9.2, 4.3.1, 4.4.0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from formats.partition.file_names import DirectoryForm
from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.releases import Release
from snaprebuild.broker.start_facts import BrokerFacts, PartitionFacts, Shutdown
from snaprebuild.broker.stray_fates import is_set_aside_at_load

__all__ = ["future_in_two_places", "log_dir_listed_twice", "partition_in_two_places"]

FIRST_WITH_UNIQUE_LISTS: Release = (4, 2, 0)
"""From here on ``log.dirs`` may have the same text twice (KIP-1161)."""


def partition_in_two_places(partitions: Iterable[PartitionFacts], broker: BrokerFacts) -> list[Fate]:
    """The fates of partitions that are in two log directories.

    Args:
        partitions: of one broker. Strays and directories that are marked for deletion may be there more than once.
        broker: whose they are.
    """
    return [
        _no_start(
            same,
            releases,
            cause="a partition in two log directories",
            detail=f"also in {same[0].path}",
            log_line="java.lang.IllegalStateException: Duplicate log directories are found",
            remedy="Keep the one that ends higher, and move the other one out of the log directory",
        )
        for same, releases in _twice(partitions, DirectoryForm.PLAIN, broker)
    ]


def _twice(
    partitions: Iterable[PartitionFacts], form: DirectoryForm, broker: BrokerFacts
) -> Iterator[tuple[list[PartitionFacts], str | None]]:
    """The directories of each partition that is there twice for some release, and these releases."""
    by_name: dict[str, list[PartitionFacts]] = {}
    for partition in partitions:
        if partition.form is form:
            by_name.setdefault(partition.topic_partition, []).append(partition)
    for same in by_name.values():
        releases = [release for release in broker.releases.releases if _is_twice(same, broker, release)]
        if releases:
            yield same, broker.releases.text_of(releases)


def _is_twice(same: Sequence[PartitionFacts], broker: BrokerFacts, release: Release) -> bool:
    """Whether two are left after the strays were set aside."""
    if len(same) < 2:
        return False
    return len([each for each in same if not is_set_aside_at_load(each, broker, release)]) > 1


def _no_start(same: Sequence[PartitionFacts], releases: str | None, *, cause: str, detail: str, log_line: str, remedy: str) -> Fate:
    paths = [each.path for each in same]
    return Fate(
        kind=FateKind.NO_START,
        subject=same[0].topic_partition,
        path=paths[-1],
        other_paths=tuple(paths[:-1]),
        code="partition-in-two-log-dirs",
        cause=cause,
        detail=detail,
        evidence="the listings",
        releases=releases,
        log_line=log_line,
        remedy=remedy,
    )


def future_in_two_places(partitions: Iterable[PartitionFacts], broker: BrokerFacts) -> list[Fate]:
    """The fates of partitions with two directories whose names end with ``-future``.

    Args:
        partitions: of one broker. While it runs, its future copies come and go, and nothing is judged.
        broker: whose they are.
    """
    stopped = (partition for partition in partitions if partition.shutdown is not Shutdown.RUNNING)
    return [
        _no_start(
            same,
            releases,
            cause="two future copies of a partition",
            detail=f"also {same[0].path}",
            log_line="java.lang.IllegalStateException: Duplicate log directories found",
            remedy="Move one of the directories that end with -future out of the log directory",
        )
        for same, releases in _twice(stopped, DirectoryForm.FUTURE, broker)
    ]


def log_dir_listed_twice(log_dirs: Sequence[str], broker: BrokerFacts) -> list[Fate]:
    """The fates of directories that ``log.dirs`` has twice.

    Args:
        log_dirs: the entries as they are written. Links are followed.
        broker: that has them.
    """
    first: dict[str, str] = {}
    fates = []
    for path in log_dirs:
        real = os.path.realpath(path)
        if real not in first:
            first[real] = path
            continue
        throwing = [release for release in broker.releases.releases if path != first[real] or release < FIRST_WITH_UNIQUE_LISTS]
        if throwing:
            fates.append(_listed_twice(path, first[real], broker.releases.text_of(throwing)))
    return fates


def _listed_twice(path: str, other: str, releases: str | None) -> Fate:
    return Fate(
        kind=FateKind.NO_START,
        subject=path,
        path=path,
        code="log-dir-listed-twice",
        cause="a log directory twice in log.dirs",
        detail=path if path == other else f"{path} is {other}",
        evidence="server.properties",
        releases=releases,
        log_line="org.apache.kafka.common.KafkaException: Duplicate log directory found",
        remedy="Correct log.dirs in server.properties",
    )
