"""Whether a replica may lead: its leader epochs cover its batches, and its next start loses no record.

A leader assigns its epoch at its log end. Kafka then deletes remote segments whose epochs are all below the first one in the checkpoint.
Records of an epoch that is missing at the end are taken for records of the epoch before, so that no copy of them is found.

Source: ``Partition.makeLeader``, ``LeaderEpochFileCache``, ``RemoteLogManager.cleanupExpiredRemoteLogSegments`` of 3.6 to 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.findings import Severity

__all__ = ["Unfit", "unfit_replica"]

_UNFIT = frozenset(kind for kind in FateKind if kind.holds_broker and kind is not FateKind.CATCHES_UP) | {
    FateKind.NO_LEADER_EPOCHS,
    FateKind.LEADER_EPOCHS_CUT,
}
"""A replica that only has to catch up is in sync before it leads."""


class Unfit(msgspec.Struct, frozen=True):
    """Why a replica must not lead.

    Attributes:
        cause: why, in words that are equal for equal causes.
        severity: of the finding.
        remedy: what an operator does; empty where that is not known.
        is_of_broker: it is that of its broker or log directory, which has one finding for all of its replicas.
    """

    cause: str
    severity: Severity
    remedy: str = ""
    is_of_broker: bool = False


def unfit_replica(fates: Iterable[Fate]) -> Unfit | None:
    """Why a replica must not lead; None if nothing shows that it must not.

    Args:
        fates: of its next start.
    """
    unfit = [fate for fate in fates if fate.kind in _UNFIT and not fate.is_harmless]
    if not unfit:
        return None
    worst = max(unfit, key=lambda fate: fate.severity)
    return Unfit(worst.cause, worst.severity, worst.remedy)
