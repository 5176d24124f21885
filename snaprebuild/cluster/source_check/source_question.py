"""The question of ``cluster source``: which replicas, for which use, and with which evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from snaprebuild.published import Natural, Part
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.snapshots.source.selection import EVERYTHING, Selection

__all__ = ["SourceQuestion", "SourceTerms"]


class SourceTerms(Part, frozen=True):
    """The use of the replicas as a source, the evidence, and what the operator asserts."""

    purpose: Purpose = Purpose.REBUILD
    """The purpose for which the replicas may be a source."""
    server_properties: str | None = None
    """Configuration of the broker whose log.dirs were read."""
    metadata: str | None = None
    """Location of the named metadata log; null for each broker's own."""
    requested_offset: Natural | None = None
    """Last offset of the metadata log that is used; null for all."""
    voters: Sequence[str] = ()
    """Metadata logs of other voters (--voter)."""
    peers: Sequence[str] = ()
    """Locations of other replicas."""
    broker_epoch: Natural | None = None
    """Epoch of the live broker, asserted by the operator."""
    i_am_the_leader: bool = False
    """Asserted by the operator."""
    accept_own_log: bool = False
    """The operator accepts the broker's own metadata log after an unclean stop (rule R10)."""


class SourceQuestion(SourceTerms, frozen=True, kw_only=True):
    """Selects the replicas and the evidence.

    Attributes:
        paths: of log directories, or above them, or partition directories.
        selection: of partitions.
        named_voters: ids of ``voters`` that were named with one, by location; for others that of ``meta.properties`` counts.
        voter_ids: ids of all voters; None for what the log says.
    """

    paths: tuple[str, ...] = ()
    selection: Selection = EVERYTHING
    named_voters: Mapping[str, int] = msgspec.field(default_factory=dict)
    voter_ids: tuple[int, ...] | None = None

    @property
    def voter_logs(self) -> tuple[tuple[int | None, str], ...]:
        """Id and location of each of ``voters``; None for an id that was not named."""
        return tuple((self.named_voters.get(voter), voter) for voter in self.voters)
