"""The fates of a partition at the next start of its broker. Pure: facts in, fates out.

The order of the checks is that of a broker: the name, the leader epochs, the segments with their indexes, the end of the log. Then come
the topic id, and whether the partition is assigned. The first check that fails ends the start of the partition: nothing below it happens.

Source: ``LogManager.loadLogs`` and ``loadLog``, ``LogLoader.load`` and ``recoverLog``, ``UnifiedLog.apply``, ``LogSegment.sanityCheck``,
``TransactionIndex.sanityCheck``, ``FileLogInputStream.nextBatch``, ``PartitionMetadataFile`` of
2.8.2, 3.6, 3.7, 3.9 and 4.3.1. An IOException takes the log directory offline; anything else ends the start of the broker.
"""

from __future__ import annotations

import msgspec

from formats.partition.file_names import DirectoryForm
from snaprebuild.broker.fates import LEADER_EPOCHS_REMEDY, TAKE_ANOTHER_REPLICA, Fate, FateKind, worst_first
from snaprebuild.broker.releases import Release
from snaprebuild.broker.start_endings import start_endings
from snaprebuild.broker.start_facts import (
    BrokerFacts,
    LogRead,
    PartitionFacts,
    RemoteStorage,
    Shutdown,
    SmallFile,
    TransactionIndexFault,
)
from snaprebuild.broker.stray_fates import stray_fates, topic_id_absent
from snaprebuild.findings import FindingCause, pluralize

__all__ = ["CURRENT_MAGIC", "are_all_recovered", "partition_fates"]

CURRENT_MAGIC = 2
"""Message format of batches that have a leader epoch."""

FIRST_WITH_SWAP_RANGES: Release = (3, 2, 0)
"""Earlier ones recover the segment of a ``.swap``, and write the snapshots above it again."""


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
        return _metadata_log(partition)
    if partition.shutdown is Shutdown.RUNNING:
        # Its other files change while the broker runs, and are judged after a stop.
        is_replica = partition.form is DirectoryForm.PLAIN
        return _with_replicas(_leader_epochs(partition), partition) if is_replica else []
    endings, is_ended = start_endings(partition, broker)
    if is_ended or partition.form in (DirectoryForm.DELETE, DirectoryForm.STRAY):
        return worst_first(_with_replicas(endings, partition))
    fates = [*endings, *topic_id_absent(partition, broker), *stray_fates(partition, broker)]
    if partition.form is DirectoryForm.PLAIN:
        fates += _of_the_log(partition, broker)
    return worst_first(_with_replicas(fates, partition))


def _of_the_log(partition: PartitionFacts, broker: BrokerFacts) -> list[Fate]:
    """The fate of the records, the snapshots and the leader epochs."""
    if partition.has_swapped:
        return _swap_finished(partition, broker)  # other segments take the place of those of the listing
    return [
        *_log_end(partition),
        *_snapshots_removed(partition),
        *_leader_epochs(partition),
        *_recovered(partition),
    ]


def _with_replicas(fates: list[Fate], partition: PartitionFacts) -> list[Fate]:
    """The fates with the other replicas that are in sync, if the image is newer than the last batch of this one."""
    assignment = partition.assignment
    if assignment is None:
        return fates
    in_sync = assignment.in_sync if assignment.is_current else ()
    return [msgspec.structs.replace(fate, age=assignment.age, in_sync=in_sync) for fate in fates]


# ------------------------------------------------------------------------------------------------------------- the end of the log


def _log_end(partition: PartitionFacts) -> list[Fate]:
    if not partition.base_offsets:
        return _no_segment(partition)
    end = partition.end
    if end is None:
        return []
    start = partition.checkpointed_log_start_offset
    end_offset = end.offset if partition.log_read is None else partition.log_read.end_offset
    if start is not None and end_offset < start:
        return _below_log_start(partition, end_offset, start)
    if partition.log_read is not None and partition.log_read.cut_bytes:
        return _recovery_cuts(partition, partition.log_read)
    if end.offset >= partition.checkpointed_end:
        return []
    reached = partition.checkpointed_end
    if partition.shutdown is Shutdown.CLEAN:
        return [
            Fate(
                kind=FateKind.END_LOST,
                **partition.place,
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
                **partition.place,
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
            **partition.place,
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
            **partition.place,
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
            **partition.place,
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


def _recovery_cuts(partition: PartitionFacts, log_read: LogRead) -> list[Fate]:
    """The first damaged segment is cut, and all later ones are deleted. Nothing where all of it is above the high watermark."""
    reached = partition.checkpointed_end
    if log_read.end_offset >= reached:
        return []
    later = f", {pluralize(log_read.cut_segments, 'later segment')} deleted" if log_read.cut_segments else ""
    return [
        Fate(
            kind=FateKind.RECORDS_CUT,
            **partition.place,
            code="lost-log-end",
            cause="the recovery cuts damaged segments below the high watermark",
            detail=f"{log_read.end_offset} to {reached}{later}",
            size_bytes=log_read.cut_bytes,
            log_end_offset=log_read.end_offset,
            reached_offset=reached,
            evidence="the segments from the recovery point on, recovery-point-offset-checkpoint, replication-offset-checkpoint",
            log_line="Corruption found in segment",
            remedy=TAKE_ANOTHER_REPLICA,
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
    cause = "a .txnindex that does not belong to its segment"
    evidence = ".txnindex"
    log_line = "Found a corrupted index file"
    if first in partition.without_index:
        cause = "a missing .index"
        evidence = "the listing"
        log_line = "Could not find offset index file"
    return [
        Fate(
            kind=FateKind.SNAPSHOTS_REMOVED,
            **partition.place,
            code="index-rebuilt-at-start",
            cause=cause,
            detail=f"segment {first}",
            evidence=evidence,
            log_line=log_line,
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
            **partition.place,
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
            **partition.place,
            code="unclean-shutdown",
            cause="unclean stop",
            detail=f"from {point}",
            evidence="no .kafka_cleanshutdown, recovery-point-offset-checkpoint",
            log_line="Recovering unflushed segment",
            remedy="None",
            size_bytes=size_bytes,
        )
    ]


# ----------------------------------------------------------------------------------------------------------------- leader epochs


def _leader_epochs(partition: PartitionFacts) -> list[Fate]:
    """The fates of epochs that are gone at the beginning of the checkpoint, or at its end."""
    return [*_gone_at_the_beginning(partition), *_gone_at_the_end(partition)]


def _gone_at_the_beginning(partition: PartitionFacts) -> list[Fate]:
    """Batches of format 2 without a leader epoch: a leader deletes the remote segments of the epochs that are gone."""
    if partition.uncovered_magic != CURRENT_MAGIC or are_all_recovered(partition):
        return []
    first_epoch = partition.leader_epochs[0].epoch if partition.leader_epochs else None
    is_cut = partition.epochs_file is SmallFile.PRESENT and first_epoch is not None
    kind = FateKind.NO_LEADER_EPOCHS
    log_line = "no line"
    if partition.remote_storage is not RemoteStorage.OFF:
        kind = FateKind.LEADING_DELETES_REMOTE
        log_line = "Deleted remote log segment due to leader epoch cache truncation"
    return [
        Fate(
            kind=kind,
            **partition.place,
            code="leader-epochs-lost",
            cause="the first leader epochs are gone" if is_cut else "no leader epochs",
            detail=f"remote epochs below {first_epoch}" if is_cut else "",
            leader_epoch=first_epoch if is_cut else None,
            evidence=f"leader-epoch-checkpoint ({'cut' if is_cut else partition.epochs_file}), batches of format 2",
            log_line=log_line,
            remedy=LEADER_EPOCHS_REMEDY,
        )
    ]


def are_all_recovered(partition: PartitionFacts) -> bool:
    """Whether the next start recovers all segments, and so writes all of their epochs into an empty checkpoint."""
    is_empty = not partition.leader_epochs
    return is_empty and partition.shutdown is Shutdown.UNCLEAN and partition.first_recovered == 0


def _gone_at_the_end(partition: PartitionFacts) -> list[Fate]:
    """The last batch has a leader epoch above the last one of the checkpoint.

    A recovery adds the epochs of the segments that it reads. So only a clean stop keeps the gap.
    """
    end = partition.end
    epochs = partition.leader_epochs
    if partition.shutdown is not Shutdown.CLEAN or end is None or end.leader_epoch is None or not epochs:
        return []
    if end.leader_epoch <= epochs[-1].epoch:
        return []
    return [
        Fate(
            kind=FateKind.LEADER_EPOCHS_CUT,
            **partition.place,
            code="leader-epochs-lost",
            cause="the last leader epochs are gone",
            detail=f"the checkpoint ends with {epochs[-1].epoch}, the last batch has {end.leader_epoch}",
            leader_epoch=epochs[-1].epoch,
            evidence="leader-epoch-checkpoint, the last batch",
            log_line="no line: Kafka loads the checkpoint as it is",
            remedy=LEADER_EPOCHS_REMEDY,
        )
    ]


# ------------------------------------------------------------------------------------------------------------ the metadata log


def _metadata_log(log: PartitionFacts) -> list[Fate]:
    """The fates of ``__cluster_metadata-0``. ``LogManager`` does not load it, and no checkpoint has its end.

    A node that stops writes a snapshot at the end of the log, as for each other log, and removes the snapshots above whatever it truncates
    to. So one above the end shows that records are gone. Rule K17 of ``cluster.quorum.rules`` has more evidence than this.

    Args:
        log: the facts. Only after a clean stop a snapshot is on disk not before the records below it.
    """
    if log.shutdown is not Shutdown.CLEAN or log.end is None or not log.snapshots:
        return []
    end = log.end.offset
    reached = log.snapshots[-1]
    if reached <= end:
        return []
    return [
        Fate(
            kind=FateKind.END_LOST,
            **log.place,
            code="lost-log-end",
            cause="the metadata log ends below its newest snapshot, after a clean stop",
            detail=f"{end}, a snapshot is at {reached}",
            log_end_offset=end,
            reached_offset=reached,
            evidence="the last segment, the names of the snapshots",
            log_line="no line: Kafka loads the shorter log",
            remedy="Compare it with the logs of the other voters (`cluster check`), and use the longest one",
            finding_cause=FindingCause.SNAPSHOT_ABOVE_LOG_END,
        )
    ]
