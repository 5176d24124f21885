"""The fates of the copies of a move between log directories. Pure: facts in, fates out.

A copy that the controller knows takes the place of the partition from 3.7.1 on. Any other goes on being filled, as does each with
ZooKeeper and before 3.7.1: that is as in any other start, and no fate. But where the partition itself is gone, the broker creates an empty
log for it, and cuts the copy to the end of that one.

Source: ``LogManager.recoverAbandonedFutureLogs``, ``replaceCurrentWithFutureLog`` of 3.7.2, 3.9.2, 4.3.1 and 4.4.0;
``Partition.createLogIfNotExists``, ``ReplicaAlterLogDirsThread.truncate`` by starts of 3.6.2 and 4.3.1.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from formats.partition.file_names import DirectoryForm
from snaprebuild.broker.fates import TAKE_ANOTHER_REPLICA, Fate, FateKind
from snaprebuild.broker.releases import Release
from snaprebuild.broker.start_facts import BrokerFacts, PartitionFacts, Shutdown, TopicIdFile
from snaprebuild.broker.stray_fates import FIRST_WITH_MANDATORY_ID, is_set_aside_at_load
from snaprebuild.findings import FindingCause
from snaprebuild.storage.log_dir import ClusterKind

__all__ = ["future_fates", "lone_copy_fates"]

FIRST_THAT_ENDS_MOVES: Release = (3, 7, 1)


def future_fates(partitions: Iterable[PartitionFacts], broker: BrokerFacts) -> list[Fate]:
    """The fates of future copies that take the place of their partition.

    Args:
        partitions: of one broker, its replicas and its future copies.
        broker: whose they are.
    """
    partitions = list(partitions)
    releases = [release for release in broker.releases.releases if release >= FIRST_THAT_ENDS_MOVES]
    if broker.cluster_kind is not ClusterKind.KRAFT or not releases:
        return []
    replicas: dict[tuple[str, bytes | None], list[PartitionFacts]] = {}
    for partition in partitions:
        if partition.form is DirectoryForm.PLAIN:
            replicas.setdefault((partition.topic_partition, partition.topic_id), []).append(partition)
    text = broker.releases.text_of(releases)
    fates = []
    for copy in filter(_takes_over, partitions):
        same = replicas.get((copy.topic_partition, copy.topic_id), [])
        # Two of them are no broker's, but copies of directories.
        fates.append(_fate(copy, same[0] if len(same) == 1 else None, text))
    return fates


def lone_copy_fates(partitions: Iterable[PartitionFacts], alone: Collection[str], broker: BrokerFacts) -> list[Fate]:
    """The fates of future copies whose partition is gone, and whose place they do not take.

    Args:
        partitions: of one broker.
        alone: topic-partitions of which no log directory of the broker has more than the copy.
        broker: whose they are.
    """
    fates = []
    for copy in partitions:
        if not _is_cut_to_an_empty_log(copy, alone):
            continue
        releases = [release for release in broker.releases.releases if _is_left_alone(copy, broker, release)]
        if releases:
            fates.append(_cut_to_an_empty_log(copy, broker.releases.text_of(releases)))
    return fates


def _is_cut_to_an_empty_log(copy: PartitionFacts, alone: Collection[str]) -> bool:
    """Whether there is something to cut, and the partition is still one of this broker, as far as that is known."""
    if copy.form is not DirectoryForm.FUTURE or copy.shutdown not in (Shutdown.CLEAN, Shutdown.UNCLEAN):
        return False
    if copy.topic_partition not in alone or copy.end is None or copy.end.offset <= copy.log_start:
        return False
    assignment = copy.assignment
    if assignment is None:
        return True
    return assignment.is_replica and copy.topic_id in (None, assignment.topic_id)


def _is_left_alone(copy: PartitionFacts, broker: BrokerFacts, release: Release) -> bool:
    """Whether a release loads the copy, and does nothing else with it before it gets its partitions."""
    is_kraft = broker.cluster_kind is ClusterKind.KRAFT
    if is_kraft and copy.topic_id_file is TopicIdFile.ABSENT and release >= FIRST_WITH_MANDATORY_ID:
        return False  # it is set aside, or ends the start
    if is_set_aside_at_load(copy, broker, release):
        return False
    return not (is_kraft and release >= FIRST_THAT_ENDS_MOVES and _takes_over(copy))


def _cut_to_an_empty_log(copy: PartitionFacts, releases: str | None) -> Fate:
    assert copy.end is not None
    assignment = copy.assignment
    return Fate(
        kind=FateKind.RECORDS_CUT,
        **copy.place,
        code="lost-log-end",
        cause="an empty log takes the place of a partition of which only the future copy is left",
        detail=f"{copy.log_start} to {copy.end.offset}",
        log_end_offset=copy.log_start,
        reached_offset=copy.end.offset,
        evidence="the listings of all log directories, the last segment of the copy",
        age=None if assignment is None else assignment.age,
        releases=releases,
        log_line="Created log for partition",
        remedy=f"Rename the directory that ends with -future to {copy.topic_partition} before the start, "
        "or, if another replica is in sync, remove it and let Kafka fetch the partition again",
        in_sync=assignment.in_sync if assignment is not None and assignment.is_current else (),
    )


def _takes_over(copy: PartitionFacts) -> bool:
    """Whether the metadata log has this directory for the replica of this node."""
    assignment = copy.assignment
    if copy.form is not DirectoryForm.FUTURE or copy.shutdown is Shutdown.RUNNING or assignment is None:
        return False
    is_known = assignment.is_replica and copy.topic_id is not None and assignment.topic_id == copy.topic_id
    return is_known and copy.directory_id is not None and assignment.directory_id == copy.directory_id


def _fate(copy: PartitionFacts, replica: PartitionFacts | None, releases: str | None) -> Fate:
    if replica is not None and os.path.dirname(replica.path) == os.path.dirname(copy.path):
        return _in_one_directory(copy, replica, releases)
    if replica is not None and replica.end is not None and copy.end is not None:
        end = copy.end.offset
        reached = replica.end.offset
        reached = reached if replica.high_watermark is None else min(reached, replica.high_watermark)
        if end < reached:
            return _shorter(copy, replica, end, reached, releases)
    assert copy.assignment is not None
    return Fate(
        kind=FateKind.COPY_TAKES_OVER,
        **copy.place,
        other_paths=() if replica is None else (replica.path,),
        code="future-directory",
        finding_cause=FindingCause.WITHOUT_CONCERN,
        cause="the controller knows the future copy",
        evidence="the metadata log of this node, meta.properties",
        age=copy.assignment.age,
        releases=releases,
        log_line="Successfully renamed abandoned future log",
        remedy="None",
    )


def _shorter(copy: PartitionFacts, replica: PartitionFacts, end: int, reached: int, releases: str | None) -> Fate:
    assert copy.assignment is not None
    return Fate(
        kind=FateKind.RECORDS_CUT,
        **copy.place,
        other_paths=(replica.path,),
        code="lost-log-end",
        cause="a shorter future copy takes the place of the partition",
        detail=f"{end} to {reached}, {replica.path} is deleted",
        log_end_offset=end,
        reached_offset=reached,
        evidence="the last segments of both, the metadata log of this node",
        age=copy.assignment.age,
        releases=releases,
        log_line="Successfully renamed abandoned future log",
        remedy=f"{TAKE_ANOTHER_REPLICA}. Or move the directory that ends with -future out of the log directory",
        in_sync=copy.assignment.in_sync if copy.assignment.is_current else (),
    )


def _in_one_directory(copy: PartitionFacts, replica: PartitionFacts, releases: str | None) -> Fate:
    """The rename fails at each start. A broker never makes a copy there."""
    assert copy.assignment is not None
    return Fate(
        kind=FateKind.NO_START,
        **copy.place,
        other_paths=(replica.path,),
        code="partition-in-two-log-dirs",
        cause="a partition and its future copy in one log directory",
        evidence="the listing, the metadata log of this node",
        age=copy.assignment.age,
        releases=releases,
        log_line="org.apache.kafka.common.errors.KafkaStorageException: Error while renaming dir",
        remedy="Move the directory that ends with -future out of the log directory",
    )
