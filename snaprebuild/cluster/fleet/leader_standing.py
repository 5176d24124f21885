"""The standing of a replica as a leader, by all scans together: what consumers and producers lose if it leads.

Acknowledged records are those below the greatest high watermark that any replica of the partition has checkpointed. Consumers may have
read them, and producers do not send them again. A leader whose log ends below that offset loses them.

Source: ``Partition.makeLeader``, ``ReplicaManager`` of Kafka 4.3.1; ``LeaderEpochFileCache`` for forks of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from snaprebuild.cluster.fleet.cluster_view import Placement
from snaprebuild.cluster.fleet.replicas import ScannedBroker, ScannedReplica

__all__ = ["LeaderStanding", "ReplicaStanding", "acknowledged_by", "may_all_lead", "standings_of"]

SCAN_MS_MAX = 600_000
"""Ten minutes. A scan that began this much later than another one has read everything after it."""


class LeaderStanding(StrEnum):
    """Whether a replica may lead."""

    FIT = "fit"
    """The replica has all acknowledged records, as far as the scans and the metadata log show."""
    SHORT = "short"
    """Acknowledged records are not in its log: consumers would lose them."""
    NOT_IN_SYNC = "not-in-sync"
    """The replica is not in sync, by the metadata log."""
    END_UNKNOWN = "end-unknown"
    """Whether it has all acknowledged records is unknown."""
    UNFIT = "unfit"
    """The replica must not lead (``ScannedReplica.must_not_lead``): catching up does not help."""
    STOPPED = "stopped"
    """The operator counts its broker as stopped."""
    NOT_SCANNED = "not-scanned"
    """The metadata log has it, and no scan does."""

    @property
    def catches_up(self) -> bool:
        """Whether it may lead when its broker is in sync again."""
        return self in (LeaderStanding.FIT, LeaderStanding.SHORT, LeaderStanding.NOT_IN_SYNC, LeaderStanding.END_UNKNOWN)

    @property
    def is_unknown(self) -> bool:
        """Whether a scan may show that it may lead."""
        return self in (LeaderStanding.NOT_SCANNED, LeaderStanding.END_UNKNOWN)


@dataclass(frozen=True, slots=True)
class ReplicaStanding:
    """The standing of one replica.

    Attributes:
        node_id: of its broker.
        standing: whether it may lead.
        detail: why not, after the name of the broker; empty for a replica that may.
    """

    node_id: int
    standing: LeaderStanding
    detail: str = ""


def acknowledged_by(replicas: Sequence[ScannedReplica]) -> ScannedReplica | None:
    """The replica with the greatest high watermark; None if no replica has one."""
    return max((replica for replica in replicas if replica.high_watermark), key=lambda each: each.high_watermark or 0, default=None)


def standings_of(
    replicas: Sequence[ScannedReplica], placement: Placement | None, down: Collection[int], brokers: Mapping[int, ScannedBroker]
) -> dict[int, ReplicaStanding]:
    """The standing of each replica of a partition, by node id.

    Args:
        replicas: that were scanned.
        placement: of the partition in the metadata log; None without one.
        down: brokers that count as stopped.
        brokers: that were scanned.
    """
    by_node = {replica.node_id: replica for replica in replicas}
    nodes = sorted(by_node) if placement is None else sorted({*by_node, *placement.replicas})
    evidence = _ScanEvidence(replicas, placement, brokers)
    standings: dict[int, ReplicaStanding] = {}
    for node in nodes:
        if node in down:
            standings[node] = ReplicaStanding(node, LeaderStanding.STOPPED, "counts as stopped")
        elif node not in by_node:
            standings[node] = ReplicaStanding(node, LeaderStanding.NOT_SCANNED, "has no valid scan")
        else:
            standings[node] = evidence.standing_of(by_node[node])
    return standings


def may_all_lead(replicas: Sequence[ScannedReplica], placement: Placement | None, down: Collection[int]) -> bool:
    """Whether ``standings_of`` finds nothing but fit replicas: a quick look, which most partitions of a cluster pass."""
    if not replicas or (placement is not None and len(placement.replicas) != len(replicas)):
        return False
    acknowledged = max(replica.high_watermark or 0 for replica in replicas)
    epoch = replicas[0].leader_epoch
    return all(
        replica.must_not_lead is None
        and replica.log_end_offset is not None
        and replica.log_end_offset >= acknowledged
        and replica.leader_epoch == epoch
        and replica.node_id not in down
        and (placement is None or replica.node_id in placement.in_sync)
        for replica in replicas
    )


class _ScanEvidence:
    """The standing of each replica of a partition, by the scans of all of them."""

    def __init__(
        self, replicas: Sequence[ScannedReplica], placement: Placement | None, brokers: Mapping[int, ScannedBroker]
    ) -> None:
        self._placement = placement
        self._brokers = brokers
        self._holder = acknowledged_by(replicas)
        self._acknowledged = 0 if self._holder is None else self._holder.high_watermark or 0
        with_epoch = [replica for replica in replicas if replica.leader_epoch is not None]
        self._newest = max(with_epoch, key=lambda each: each.leader_epoch or 0, default=None)
        with_mark = [replica for replica in replicas if replica.high_watermark_epoch is not None]
        self._committed = max(with_mark, key=lambda each: each.high_watermark_epoch or 0, default=None)

    def standing_of(self, replica: ScannedReplica) -> ReplicaStanding:
        node = replica.node_id
        if replica.must_not_lead is not None:
            return ReplicaStanding(node, LeaderStanding.UNFIT, f"must not lead ({replica.must_not_lead.cause})")
        if self._placement is not None and node not in self._placement.in_sync:
            return ReplicaStanding(node, LeaderStanding.NOT_IN_SYNC, "is not in sync")
        if not self._is_assumed_in_sync(replica):
            return self._by_its_log(replica)
        return ReplicaStanding(node, LeaderStanding.FIT)

    def _is_assumed_in_sync(self, replica: ScannedReplica) -> bool:
        """A live follower that was scanned before the others may have been in sync all the time."""
        if not replica.is_running:
            return False
        if self._placement is not None or self._holder is None:
            return True
        holder = self._brokers[self._holder.node_id]
        follower = self._brokers[replica.node_id]
        # What a stopped broker has was written before it stopped.
        written_ms = holder.scanned_ms if holder.is_running else min(holder.newest_ms, holder.scanned_ms)
        return follower.scanned_ms - written_ms < SCAN_MS_MAX

    def _by_its_log(self, replica: ScannedReplica) -> ReplicaStanding:
        node = replica.node_id
        holder = self._holder
        if holder is None:
            return ReplicaStanding(node, LeaderStanding.FIT)
        mark = f"the high watermark {self._acknowledged} of broker {holder.node_id}"
        if replica.log_end_offset is None and replica.log_end_at_least < self._acknowledged:
            return ReplicaStanding(
                node,
                LeaderStanding.END_UNKNOWN,
                f"ends at {replica.log_end_at_least} or later, and {mark} is not reached for certain",
            )
        if replica.log_end_offset is not None and replica.log_end_offset < self._acknowledged:
            return ReplicaStanding(node, LeaderStanding.SHORT, f"ends at {replica.log_end_offset}, below {mark}")
        return self._by_its_epochs(replica)

    def _by_its_epochs(self, replica: ScannedReplica) -> ReplicaStanding:
        """Records of the newest leader epoch are in no log without that epoch, whatever its end: it may have forked."""
        node = replica.node_id
        newest = self._newest
        committed = self._committed
        # The newest epoch may have no record yet, so that only an epoch between the two shows the fork.
        if committed is not None and (committed.high_watermark_epoch or 0) > (replica.leader_epoch or 0):
            detail = f"has leader epoch {replica.leader_epoch}, and broker {committed.node_id} acknowledged records of"
            return ReplicaStanding(node, LeaderStanding.SHORT, f"{detail} {committed.high_watermark_epoch}")
        if newest is None or newest.leader_epoch is None or newest.leader_epoch <= (replica.leader_epoch or 0):
            return ReplicaStanding(node, LeaderStanding.FIT)
        start = newest.leader_epoch_start_offset
        epochs = f"has leader epoch {replica.leader_epoch}, and broker {newest.node_id} has {newest.leader_epoch}"
        if start is None:
            return ReplicaStanding(node, LeaderStanding.END_UNKNOWN, f"{epochs}, from an unknown offset")
        if start < self._acknowledged:
            acknowledged = f"with acknowledged records from {start} to {self._acknowledged}"
            return ReplicaStanding(node, LeaderStanding.SHORT, f"{epochs}, {acknowledged}")
        return ReplicaStanding(node, LeaderStanding.FIT)
