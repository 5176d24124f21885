"""What happens to a partition at the next start of its broker. Pure: facts in, fates out.

The order of the checks is that of a broker: the name, the leader epochs, the segments with their indexes, the end of the log, the topic id,
and then whether the partition is assigned. The first check that fails ends the start of the partition, and nothing below it happens.

Source: ``LogManager.loadLogs`` and ``loadLog``, ``LogLoader.load`` and ``recoverLog``, ``UnifiedLog.apply``, ``LogSegment.sanityCheck``,
``TransactionIndex.sanityCheck``, ``FileLogInputStream.nextBatch``, ``PartitionMetadataFile`` of
2.8.2, 3.6, 3.7, 3.9 and 4.3.1. An IOException takes the log directory offline; anything else ends the start of the broker.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from formats.partition.file_names import DirectoryForm
from snaprebuild.broker.fates import TAKE_ANOTHER_REPLICA, Fate, FateKind, worst_first
from snaprebuild.broker.leader_epoch_fates import CURRENT_MAGIC, LEADER_EPOCHS_REMEDY, leader_epoch_fates
from snaprebuild.broker.log_read_fates import plain_write_endings, rebuilt_index_endings, recovery_cuts
from snaprebuild.broker.metadata_log_fates import metadata_log_fates
from snaprebuild.broker.releases import Release
from snaprebuild.broker.start_endings import Ending
from snaprebuild.broker.start_facts import (
    BrokerFacts,
    PartitionFacts,
    RemoteStorage,
    Shutdown,
    SmallFile,
    TopicIdFile,
    TransactionIndexFault,
)
from snaprebuild.broker.stray_fates import lost_id_remedy, stray_fates, topic_id_absent
from snaprebuild.findings import FindingCause

__all__ = ["CURRENT_MAGIC", "partition_fates"]

FIRST_THAT_GOES_OFFLINE: Release = (3, 2, 1)
FIRST_WITH_ANY_ID_VERSION: Release = (3, 7, 0)
"""From here on a ``partition.metadata`` above version 0 is read."""
FIRST_WITH_SWAP_RANGES: Release = (3, 2, 0)
"""Earlier ones recover the segment of a ``.swap``, and write the snapshots above it again."""
FIRST_WITH_TWO_BYTES: Release = (4, 4, 0)
"""From here on the version of an aborted transaction has two bytes, and only 0 passes."""


def partition_fates(partition: PartitionFacts, broker: BrokerFacts) -> list[Fate]:
    """The fates of a partition, the worst first; none if its next start is as any other.

    A stray, and a directory that is marked for deletion, are loaded as the others. Then the one is kept as it is, and the other deleted.
    For a future copy see ``future_fates``, too.

    Args:
        partition: the facts. A copy of partitions without files of a broker has no start.
        broker: of its broker.
    """
    if partition.shutdown is Shutdown.UNKNOWN:
        return []
    if not partition.is_served:
        return metadata_log_fates(partition)
    if partition.shutdown is Shutdown.RUNNING:
        # Its other files change while the broker runs, and are judged after a stop.
        is_replica = partition.form is DirectoryForm.PLAIN
        return _with_replicas(leader_epoch_fates(partition), partition) if is_replica else []
    endings, is_ended = _endings(partition, broker)
    if is_ended or partition.form in (DirectoryForm.DELETE, DirectoryForm.STRAY):
        return worst_first(_with_replicas(endings, partition))
    fates = [*endings, *topic_id_absent(partition, broker), *stray_fates(partition, broker)]
    if partition.form is DirectoryForm.PLAIN:
        fates += _of_the_log(partition, broker)
    return worst_first(_with_replicas(fates, partition))


def _of_the_log(partition: PartitionFacts, broker: BrokerFacts) -> list[Fate]:
    """What becomes of the records, the snapshots and the leader epochs."""
    if partition.has_swapped:
        return _swap_finished(partition, broker)  # other segments take the place of those of the listing
    return [
        *_log_end(partition),
        *_snapshots_removed(partition),
        *leader_epoch_fates(partition),
        *_recovered(partition),
    ]


def _with_replicas(fates: list[Fate], partition: PartitionFacts) -> list[Fate]:
    """The fates with the other replicas that are in sync, if the image is newer than the last batch of this one."""
    assignment = partition.assignment
    if assignment is None:
        return fates
    in_sync = assignment.in_sync if assignment.is_current else ()
    return [msgspec.structs.replace(fate, age=assignment.age, in_sync=in_sync) for fate in fates]


# ------------------------------------------------------------------------------------------------- what ends the start of a partition


def _endings(partition: PartitionFacts, broker: BrokerFacts) -> tuple[list[Fate], bool]:
    """The first ending of each release, and whether each release has one."""
    left = broker.releases.releases
    fates = []
    for check in _CHECKS_THAT_END_A_START:
        if check is _topic_id_file and broker.deletes_topic_ids:
            continue  # the file is deleted unread
        for ending in check(partition):
            ended = [release for release in left if ending.applies_to(release)]
            if ended:
                fates.append(msgspec.structs.replace(ending.fate, releases=broker.releases.text_of(ended)))
                left = tuple(release for release in left if release not in ended)
    return fates, not left


def _offline_or_exit(fate: Fate, before: Release | None = None) -> list[Ending]:
    """A KafkaStorageException of the load: releases before 3.2.1 do not catch it, and exit at each start (KAFKA-13773)."""
    exits = msgspec.structs.replace(fate, kind=FateKind.NO_START)
    return [Ending(exits, before=FIRST_THAT_GOES_OFFLINE), Ending(fate, first=FIRST_THAT_GOES_OFFLINE, before=before)]


def _unreadable(partition: PartitionFacts) -> list[Ending]:
    if not partition.unreadable_names:
        return []
    fate = Fate(
        kind=FateKind.OFFLINE,
        subject=partition.topic_partition,
        path=f"{partition.path}/{partition.unreadable_names[0]}",
        code="unreadable-by-broker",
        cause="a file that the broker may not read",
        detail=partition.unreadable_names[0],
        evidence="owner and mode of the file",
        log_line="java.io.IOException: Could not read file",
        remedy="Give the file to the broker's user (chown)",
        finding_cause=FindingCause.NOT_READABLE_BY_BROKER,
    )
    return [Ending(fate)]


def _unloadable_name(partition: PartitionFacts) -> list[Ending]:
    if not partition.unloadable_names:
        return []
    fate = Fate(
        kind=FateKind.NO_START,
        subject=partition.topic_partition,
        path=f"{partition.path}/{partition.unloadable_names[0]}",
        code="misnamed-file",
        cause="a file name without an offset",
        detail=partition.unloadable_names[0],
        evidence="the name",
        log_line="java.lang.NumberFormatException: For input string",
        remedy="Move the file out of the log directory",
    )
    return [Ending(fate)]


def _epochs_negative(partition: PartitionFacts) -> list[Ending]:
    """``LeaderEpochFileCache.assign`` throws an IllegalArgumentException, which nothing catches."""
    if partition.epochs_file is not SmallFile.NEGATIVE:
        return []
    fate = Fate(
        kind=FateKind.NO_START,
        subject=partition.topic_partition,
        path=partition.path,
        code="unreadable-leader-epochs",
        cause="a negative number in leader-epoch-checkpoint",
        evidence="leader-epoch-checkpoint",
        log_line="java.lang.IllegalArgumentException: Received invalid partition leader epoch entry",
        remedy=LEADER_EPOCHS_REMEDY,
    )
    return [Ending(fate)]


def _epochs_malformed(partition: PartitionFacts) -> list[Ending]:
    if partition.epochs_file is not SmallFile.MALFORMED:
        return []
    fate = Fate(
        kind=FateKind.OFFLINE,
        subject=partition.topic_partition,
        path=partition.path,
        code="unreadable-leader-epochs",
        cause="malformed leader-epoch-checkpoint",
        evidence="leader-epoch-checkpoint",
        log_line="java.io.IOException: Malformed line in checkpoint file",
        remedy=LEADER_EPOCHS_REMEDY,
    )
    return _offline_or_exit(fate)


def _transaction_index_version(partition: PartitionFacts) -> list[Ending]:
    return [
        *_transaction_version(partition, TransactionIndexFault.VERSION, None),
        *_transaction_version(partition, TransactionIndexFault.VERSION_OF_TWO_BYTES, FIRST_WITH_TWO_BYTES),
    ]


def _transaction_version(partition: PartitionFacts, fault: TransactionIndexFault, first: Release | None) -> list[Ending]:
    found = [base for base, each in partition.transaction_index_faults if each is fault]
    checked = [base for base in found if base not in partition.without_index]
    if not checked:
        return []
    fate = Fate(
        kind=FateKind.NO_START,
        subject=partition.topic_partition,
        path=partition.path,
        code="transaction-index-version",
        cause="a .txnindex of an unknown version",
        detail=f"segment {checked[0]}",
        evidence=".txnindex",
        log_line="org.apache.kafka.common.KafkaException: Unexpected aborted transaction version",
        remedy="Copy the file from a replica in sync, or, if another replica is in sync, remove the directory and let Kafka fetch it again",
    )
    return [Ending(fate, first=first)]


def _end_throws(partition: PartitionFacts) -> list[Ending]:
    end = partition.end
    if end is None or not end.throws or partition.shutdown is not Shutdown.CLEAN or partition.is_deleted:
        return []  # LogLoader.load does not read to the end of a log that is marked for deletion
    fate = Fate(
        kind=FateKind.FAILS_ONCE,
        subject=partition.topic_partition,
        path=partition.path,
        code="bytes-after-last-batch",
        cause="bytes after the last batch, and the marker of a clean stop",
        detail=f"{end.bytes_after} bytes after offset {end.offset}",
        size_bytes=end.bytes_after,
        log_end_offset=end.offset,
        evidence="the end of the last segment",
        log_line="org.apache.kafka.common.errors.CorruptRecordException: Found record size 0 smaller than minimum record overhead",
        remedy="Start twice: the second start recovers the log and cuts these bytes",
    )
    return [Ending(fate)]


def _topic_id_file(partition: PartitionFacts) -> list[Ending]:
    """``PartitionMetadataFile.read``."""
    if partition.topic_id_file is TopicIdFile.NEWER_VERSION:
        return _topic_id_version(partition)
    kind = {
        TopicIdFile.LINE_MISSING: FateKind.NO_START,
        TopicIdFile.NO_UUID: FateKind.NO_START,
        TopicIdFile.ZERO: FateKind.OFFLINE,
        TopicIdFile.MALFORMED: FateKind.OFFLINE,
    }.get(partition.topic_id_file)
    if kind is None:
        return []
    cause, log_line = {
        TopicIdFile.LINE_MISSING: ("partition.metadata is empty or cut", "java.lang.NullPointerException: this.text is null"),
        TopicIdFile.NO_UUID: ("partition.metadata has no UUID", "java.lang.IllegalArgumentException: Input string"),
        TopicIdFile.ZERO: (
            "partition.metadata has the id zero",
            "java.io.IOException: Invalid topic ID in partition metadata file",
        ),
        TopicIdFile.MALFORMED: ("malformed partition.metadata", "java.io.IOException: Malformed line in partition metadata file"),
    }[partition.topic_id_file]
    fate = Fate(
        kind=kind,
        subject=partition.topic_partition,
        path=partition.path,
        code="unreadable-topic-id",
        cause=cause,
        evidence="partition.metadata",
        log_line=log_line,
        remedy=lost_id_remedy(partition)
        or "Copy partition.metadata from another replica of the same topic: all of them have the same id",
    )
    return _offline_or_exit(fate) if kind is FateKind.OFFLINE else [Ending(fate)]


def _topic_id_version(partition: PartitionFacts) -> list[Ending]:
    fate = Fate(
        kind=FateKind.OFFLINE,
        subject=partition.topic_partition,
        path=partition.path,
        code="unreadable-topic-id",
        cause="partition.metadata of a version above 0",
        evidence="partition.metadata",
        log_line="java.io.IOException: Unrecognized version of partition metadata file",
        remedy="Start a release from 3.7 on, or copy partition.metadata from another replica of the same topic",
    )
    return _offline_or_exit(fate, before=FIRST_WITH_ANY_ID_VERSION)


_CHECKS_THAT_END_A_START: tuple[Callable[[PartitionFacts], list[Ending]], ...] = (
    _unreadable,
    _unloadable_name,
    _epochs_malformed,
    _epochs_negative,
    _transaction_index_version,
    rebuilt_index_endings,
    plain_write_endings,
    _end_throws,
    _topic_id_file,
)
"""In the order of a broker."""


# ------------------------------------------------------------------------------------------------------------- the end of the log


def _log_end(partition: PartitionFacts) -> list[Fate]:
    if not partition.base_offsets:
        return _no_segment(partition)
    end = partition.end
    if end is None:
        return []
    start = partition.checkpointed_log_start
    end_offset = end.offset if partition.log_read is None else partition.log_read.end_offset
    if start is not None and end_offset < start:
        return _below_log_start(partition, end_offset, start)
    if partition.log_read is not None and partition.log_read.cut_bytes:
        return recovery_cuts(partition, partition.log_read)
    if end.offset >= partition.checkpointed_end:
        return []
    reached = partition.checkpointed_end
    if partition.shutdown is Shutdown.CLEAN:
        return [
            Fate(
                kind=FateKind.END_LOST,
                subject=partition.topic_partition,
                path=partition.path,
                code="lost-log-end",
                cause="the log ends below its checkpoints, after a clean stop",
                detail=f"{end.offset}, its checkpoints say {reached}",
                log_end_offset=end.offset,
                reached_offset=reached,
                evidence="the last segment, recovery-point-offset-checkpoint, replication-offset-checkpoint",
                log_line="no line: Kafka loads the shorter log",
                remedy=TAKE_ANOTHER_REPLICA,
            )
        ]
    if end.bytes_after:
        return [
            Fate(
                kind=FateKind.RECORDS_CUT,
                subject=partition.topic_partition,
                path=partition.path,
                code="lost-log-end",
                cause="the recovery cuts bytes below the high watermark",
                detail=f"{end.offset} to {reached}",
                size_bytes=end.bytes_after,
                log_end_offset=end.offset,
                reached_offset=reached,
                evidence="the last segment, recovery-point-offset-checkpoint, replication-offset-checkpoint",
                log_line="Found invalid messages in log segment",
                remedy=TAKE_ANOTHER_REPLICA,
            )
        ]
    return [
        Fate(
            kind=FateKind.CATCHES_UP,
            subject=partition.topic_partition,
            path=partition.path,
            code="lost-log-end",
            cause="the log ends below its high watermark, after an unclean stop",
            detail=f"{reached - end.offset} offsets missing, from {end.offset}",
            log_end_offset=end.offset,
            reached_offset=reached,
            evidence="the last segment, recovery-point-offset-checkpoint, replication-offset-checkpoint",
            log_line="no line: Kafka loads the shorter log",
            remedy="Do not let this replica lead before it has caught up",
        )
    ]


def _no_segment(partition: PartitionFacts) -> list[Fate]:
    """A broker creates an empty log at the checkpointed start."""
    reached = partition.checkpointed_end
    lost = reached > partition.log_start or partition.snapshots or partition.has_lone_indexes
    if not lost:
        return []
    return [
        Fate(
            kind=FateKind.EMPTIED,
            subject=partition.topic_partition,
            path=partition.path,
            code="lost-log",
            cause="no segment is left",
            detail=f"high watermark {partition.high_watermark or 0}",
            reached_offset=reached,
            evidence="the listing, replication-offset-checkpoint, recovery-point-offset-checkpoint",
            log_line="no line: Kafka loads an empty log",
            remedy=TAKE_ANOTHER_REPLICA,
        )
    ]


def _below_log_start(partition: PartitionFacts, end: int, start: int) -> list[Fate]:
    """``LogLoader.recoverLog`` deletes all segments, however the broker stopped.

    After a crash this is harmless where all records below the high watermark were deleted: the end was not flushed.
    """
    are_all_deleted = partition.shutdown is Shutdown.UNCLEAN and partition.high_watermark == start
    return [
        Fate(
            kind=FateKind.EMPTIED,
            subject=partition.topic_partition,
            path=partition.path,
            code="log-start-above-log-end",
            cause="the log ends below its log start offset",
            detail=f"{end} < {start}",
            log_end_offset=end,
            reached_offset=start,
            evidence="the last segment, log-start-offset-checkpoint",
            log_line="Deleting all segments because logEndOffset is smaller than logStartOffset",
            remedy=f"{TAKE_ANOTHER_REPLICA}. If the checkpoint is wrong, restore the one of the same time",
            is_harmless=are_all_deleted,
        )
    ]


# ------------------------------------------------------------------------------------------------------------- snapshots, recovery


def _snapshots_removed(partition: PartitionFacts) -> list[Fate]:
    """``LogLoader.loadSegmentFiles``: a segment whose index has to be made anew is recovered, and the snapshots above it go.

    Where none is above it, this is harmless. But none may be written there before that start.
    """
    damaged = [base for base, fault in partition.transaction_index_faults if fault is TransactionIndexFault.BELOW_BASE]
    recovered = sorted({*damaged, *partition.without_index})
    if not recovered:
        return []
    first = recovered[0]
    removed = [offset for offset in partition.snapshots if offset > first]
    if not removed and first == partition.base_offsets[-1] and not partition.has_records:
        return []
    is_index = first in partition.without_index
    return [
        Fate(
            kind=FateKind.SNAPSHOTS_REMOVED,
            subject=partition.topic_partition,
            path=partition.path,
            code="index-rebuilt-at-start",
            cause="a missing .index" if is_index else "a .txnindex that does not belong to its segment",
            detail=f"segment {first}",
            evidence="the listing" if is_index else ".txnindex",
            log_line="Could not find offset index file" if is_index else "Found a corrupted index file",
            remedy="Start and stop the broker, then run `scan` again",
            removed_snapshots=len(removed),
            recovered_segments=tuple(recovered),
            is_harmless=not removed or partition.remote_storage is RemoteStorage.OFF,
        )
    ]


def _swap_finished(partition: PartitionFacts, broker: BrokerFacts) -> list[Fate]:
    """``LogLoader.load``, second pass: what is inside the range of a ``.swap`` is deleted by its offset, snapshots included."""
    if partition.swap_range is None:
        return []
    first, end = partition.swap_range
    removed = [offset for offset in partition.snapshots if first <= offset < end]
    releases = [release for release in broker.releases.releases if release >= FIRST_WITH_SWAP_RANGES]
    if not removed or not releases:
        return []
    return [
        Fate(
            kind=FateKind.SWAP_FINISHED,
            subject=partition.topic_partition,
            path=partition.path,
            code="interrupted-compaction",
            finding_cause=FindingCause.WITHOUT_CONCERN,
            cause="an interrupted compaction or split",
            detail=f"offsets {first} to {end - 1}",
            evidence="the .swap files",
            releases=broker.releases.text_of(releases),
            log_line="Deleting segment files that is compacted but has not been deleted yet",
            remedy="Start and stop the broker, then run `scan` again",
            removed_snapshots=len(removed),
            is_harmless=partition.remote_storage is RemoteStorage.OFF,
        )
    ]


def _recovered(partition: PartitionFacts) -> list[Fate]:
    if partition.shutdown is not Shutdown.UNCLEAN or not partition.has_records:
        return []
    point = partition.recovery_point or 0
    size_bytes = sum(partition.segment_sizes[partition.first_recovered :])
    return [
        Fate(
            kind=FateKind.RECOVERED,
            subject=partition.topic_partition,
            path=partition.path,
            code="unclean-shutdown",
            cause="unclean stop",
            detail=f"from {point}",
            evidence="no .kafka_cleanshutdown, recovery-point-offset-checkpoint",
            log_line="Recovering unflushed segment",
            remedy="None",
            size_bytes=size_bytes,
        )
    ]
