"""Whether a replica may lead: its leader epochs cover its batches, and its next start loses no record.

A leader assigns its epoch at its log end. Kafka then deletes remote segments whose epochs are all below the first one in the checkpoint.
Records of an epoch that is missing at the end are taken for records of the epoch before, so that no copy of them is found.

Source: ``Partition.makeLeader``, ``LeaderEpochFileCache``, ``RemoteLogManager.cleanupExpiredRemoteLogSegments`` of 3.6 to 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.partition_fates import CURRENT_MAGIC
from snaprebuild.broker.start_facts import PartitionFacts, Shutdown, SmallFile
from snaprebuild.findings import Severity

__all__ = ["Unfit", "unfit_replica"]

_UNFIT = frozenset(
    (
        FateKind.NO_START,
        FateKind.FAILS_ONCE,
        FateKind.OFFLINE,
        FateKind.EMPTIED,
        FateKind.RECORDS_CUT,
        FateKind.END_LOST,
        FateKind.STRAY_DELETED,
        FateKind.LEADING_DELETES_REMOTE,
        FateKind.STRAY,
        FateKind.NO_LEADER_EPOCHS,
    )
)
"""A replica that only has to catch up is in sync before it leads."""


class Unfit(msgspec.Struct, frozen=True):
    """Why a replica must not lead.

    Attributes:
        cause: why, in words that are equal for equal causes.
        severity: of the finding.
    """

    cause: str
    severity: Severity


def unfit_replica(partition: PartitionFacts, fates: Iterable[Fate]) -> Unfit | None:
    """Why a replica must not lead; None if nothing shows that it must not.

    Args:
        partition: the facts.
        fates: of its next start.
    """
    unfit = [fate for fate in fates if fate.kind in _UNFIT and not fate.is_harmless]
    if unfit:
        worst = max(unfit, key=lambda fate: fate.severity)
        return Unfit(worst.cause, worst.severity)
    cause = _epoch_fault(partition)
    return None if cause is None else Unfit(cause, Severity.FINDING)


def _epoch_fault(partition: PartitionFacts) -> str | None:
    """What is wrong with the leader epochs; None where they cover all batches, or no batch is of format 2."""
    if partition.epochs_file in (SmallFile.MALFORMED, SmallFile.UNREADABLE):
        return "leader-epoch-checkpoint cannot be read"
    if partition.uncovered_magic == CURRENT_MAGIC:
        return "the first leader epochs are gone" if partition.leader_epochs else "no leader epochs"
    return "the last leader epochs are gone" if _is_cut_at_end(partition) else None


def _is_cut_at_end(partition: PartitionFacts) -> bool:
    """After a crash the checkpoint may be older than the log, and the recovery adds the epochs of the last segments."""
    end = partition.end
    if partition.shutdown is not Shutdown.CLEAN or end is None or end.leader_epoch is None or not partition.leader_epochs:
        return False
    return end.leader_epoch > max(epoch for epoch, _ in partition.leader_epochs)
