"""The document of ``fleet``."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.status import StatusCounts
from snaprebuild.cluster.fleet.election_risk import ElectionRisk
from snaprebuild.cluster.fleet.elections import ElectionMoment
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome
from snaprebuild.cluster.fleet.replicas import FleetBroker, FleetReplica
from snaprebuild.cluster.fleet.restart_plan import RepairCover, RestartStep
from snaprebuild.cluster.fleet.upgrade_steps import UpgradeStep
from snaprebuild.cluster.metadata.unknown_contents import UnknownContents
from snaprebuild.documents.common import StatusName
from snaprebuild.published import Document, Natural, Part, Positive, RunRecord, Seconds, Streamed
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "Fleet",
    "FleetTotals",
    "Outcomes",
    "UnhealthyPartition",
]


class Outcomes(Part, frozen=True):
    """Partitions by the required action."""

    healthy: Natural
    elect: Natural
    repair: Natural
    verify: Natural
    wait: Natural
    not_scanned: Natural
    """Not judged: no scan has the leader's replica."""
    gone: Natural
    """Not judged: the metadata log has no topic of this id."""


class FleetTotals(Part, frozen=True):
    """Sums of all brokers."""

    brokers: Natural
    partitions: Natural
    """Partitions that can be uploaded."""
    partitions_by_outcome: Outcomes
    stuck_bytes: Natural
    freed_by_election_bytes: Natural
    freed_by_repair_bytes: Natural
    replay_bytes: Natural
    estimated_seconds: Seconds | None
    """Time for all steps at the stated rate; null without one."""


class UnhealthyPartition(TopicPartition, frozen=True):
    """A partition that is not healthy."""

    topic_id: str | None
    outcome: FleetOutcome
    elect: Natural | None
    """Node id of the broker that should lead."""
    condition: str | None
    """Condition that must be met before; if it is not null, the partition is in no elections."""
    election_risk: ElectionRisk | None
    """Null if no election is needed."""
    leader: Natural | None
    """Null without a metadata log, or for none."""
    in_sync: Sequence[Natural] | None
    """In-sync and eligible leader replicas; null without a metadata log."""
    not_scanned: Sequence[Natural]
    """Brokers with a replica but without a scan."""
    stuck_bytes: Natural
    replicas: Sequence[FleetReplica]


class Fleet(Document, frozen=True):
    """The JSON document of `snaprebuild fleet`."""

    NAME = "fleet"
    VERSION = 3

    run: RunRecord
    cluster_id: str | None
    """Cluster id of all scans; null if none has it."""
    has_metadata: bool
    """A metadata log shows which replicas are in sync and lead."""
    rate_bytes_per_second: Positive | None
    """From --assume rate."""
    assumes: Sequence[str]
    totals: FleetTotals
    repair_cover: RepairCover
    steps: Sequence[RestartStep]
    """Steps in their order."""
    elections: Sequence[ElectionMoment] | None
    """The elections that --elections writes for Kafka's tools; null without a metadata log."""
    brokers: Sequence[FleetBroker]
    """By node id."""
    partitions: Streamed[UnhealthyPartition]
    """Partitions that are not healthy."""
    upgrade: Sequence[UpgradeStep] = ()
    """Go or no-go for each step, in order; restarts that are no go come after those that are."""
    unknown_contents: UnknownContents | None = None
    """Contents of the metadata log that this version does not know; null for nothing."""
    status: StatusName = "healthy"
    """The worst of the counts, in the order of StatusName."""
    counts: StatusCounts = StatusCounts()
    """Sums of the counts of the scans."""
