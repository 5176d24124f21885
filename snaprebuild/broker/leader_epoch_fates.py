"""What becomes of leader epochs that are gone from ``leader-epoch-checkpoint``. Pure: facts in, fates out.

Source: ``LeaderEpochFileCache``, ``LogSegment.recover``, ``RemoteLogManager.RLMExpirationTask`` of 2.8.2, 3.6, 3.7, 3.9 and 4.3.1.
"""

from __future__ import annotations

from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.start_facts import PartitionFacts, RemoteStorage, Shutdown, SmallFile

__all__ = ["CURRENT_MAGIC", "LEADER_EPOCHS_REMEDY", "are_all_recovered", "leader_epoch_fates"]

CURRENT_MAGIC = 2
"""Message format of batches that have a leader epoch."""

LEADER_EPOCHS_REMEDY = (
    "Copy leader-epoch-checkpoint from a replica in sync while the broker is stopped, "
    "or, if another replica is in sync, remove the directory of this replica"
)


def leader_epoch_fates(partition: PartitionFacts) -> list[Fate]:
    """The fates of epochs that are gone at the beginning of the checkpoint, or at its end."""
    return [*_gone_at_the_beginning(partition), *_gone_at_the_end(partition)]


def _gone_at_the_beginning(partition: PartitionFacts) -> list[Fate]:
    """Batches of format 2 without a leader epoch: a leader deletes the remote segments of the epochs that are gone."""
    if partition.uncovered_magic != CURRENT_MAGIC or are_all_recovered(partition):
        return []
    first_epoch = partition.leader_epochs[0][0] if partition.leader_epochs else None
    is_cut = partition.epochs_file is SmallFile.PRESENT and first_epoch is not None
    is_remote = partition.remote_storage is not RemoteStorage.OFF
    return [
        Fate(
            kind=FateKind.LEADING_DELETES_REMOTE if is_remote else FateKind.NO_LEADER_EPOCHS,
            subject=partition.topic_partition,
            path=partition.path,
            code="leader-epochs-lost",
            cause="the first leader epochs are gone" if is_cut else "no leader epochs",
            detail=f"remote epochs below {first_epoch}" if is_cut else "",
            leader_epoch=first_epoch if is_cut else None,
            evidence=f"leader-epoch-checkpoint ({'cut' if is_cut else partition.epochs_file}), batches of format 2",
            log_line="Deleted remote log segment due to leader epoch cache truncation" if is_remote else "no line",
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
    end, epochs = partition.end, partition.leader_epochs
    if partition.shutdown is not Shutdown.CLEAN or end is None or end.leader_epoch is None or not epochs:
        return []
    if end.leader_epoch <= epochs[-1][0]:
        return []
    return [
        Fate(
            kind=FateKind.LEADER_EPOCHS_CUT,
            subject=partition.topic_partition,
            path=partition.path,
            code="leader-epochs-lost",
            cause="the last leader epochs are gone",
            detail=f"the checkpoint ends with {epochs[-1][0]}, the last batch has {end.leader_epoch}",
            leader_epoch=epochs[-1][0],
            evidence="leader-epoch-checkpoint, the last batch",
            log_line="no line: Kafka loads the checkpoint as it is",
            remedy=LEADER_EPOCHS_REMEDY,
        )
    ]
