"""Whether a replica may lead: its leader epochs cover its batches, and its next start loses no record.

A leader assigns its epoch at its log end. Kafka then deletes remote segments whose epochs are all below the first one in the checkpoint.
Records of an epoch that is missing at the end are taken for records of the epoch before, so that no copy of them is found.

Source: ``Partition.makeLeader``, ``LeaderEpochFileCache``, ``RemoteLogManager.cleanupExpiredRemoteLogSegments`` of 3.6 to 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.findings import Severity
from snaprebuild.published import Part, one_of

__all__ = ["MustNotLead", "unfit_replica"]

_UNFIT = frozenset(kind for kind in FateKind if kind.holds_broker and kind is not FateKind.CATCHES_UP) | {
    FateKind.NO_LEADER_EPOCHS,
    FateKind.LEADER_EPOCHS_CUT,
}
"""A replica that only has to catch up is in sync before it leads."""


class MustNotLead(Part, frozen=True):
    """Why a replica must not lead: its leader epochs do not cover its batches of format 2, or its next start loses records."""

    cause: str
    severity: Annotated[str, one_of("finding", "damaged")]
    remedy: str = ""
    """Advice to an operator about the worst fate; empty in earlier documents."""

    @property
    def finding_severity(self) -> Severity:
        """The severity of a finding about it."""
        return Severity[self.severity.upper()]


def unfit_replica(fates: Iterable[Fate]) -> MustNotLead | None:
    """Why a replica must not lead; None if nothing shows that it must not.

    Args:
        fates: of its next start.
    """
    unfit = [fate for fate in fates if fate.kind in _UNFIT and not fate.is_harmless]
    if not unfit:
        return None
    worst = max(unfit, key=lambda fate: fate.severity)
    return MustNotLead(worst.cause, worst.severity.name.lower(), worst.remedy)
