"""Fleet: merges the scans of many brokers: stuck partitions, elections that free them, and brokers to repair, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from snaprebuild.broker.releases import Release
from snaprebuild.cluster.fleet.cluster_view import ClusterView, Placement
from snaprebuild.cluster.fleet.election_findings import ElectionRisks, held_restart_findings, lost_record_findings
from snaprebuild.cluster.fleet.elections import ElectionMoment, elections_of
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome, FleetPartition, grouped, partitions_text
from snaprebuild.cluster.fleet.forgotten_producers import forgotten_producer_findings
from snaprebuild.cluster.fleet.outdated import (
    contradicts_registration,
    missing_metadata_findings,
    refuse_outdated,
    refused_findings,
)
from snaprebuild.cluster.fleet.replicas import (
    PartitionKey,
    ReplicaReadiness,
    ScanDocument,
    ScannedFleet,
    ScannedReplica,
    read_scans,
)
from snaprebuild.cluster.fleet.restart_plan import RepairCover, Restart, restart_order, smallest_cover
from snaprebuild.cluster.fleet.restart_safety import LeaderSet, RestartSafety
from snaprebuild.cluster.fleet.topic_ids import topic_id_findings
from snaprebuild.cluster.fleet.unfit import start_fault_findings, unfit_findings
from snaprebuild.cluster.fleet.upgrade_steps import UpgradeStep, upgrade_steps
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.storage.partition_names import TopicKind, topic_kind_of

__all__ = [
    "FleetResult",
    "merge_scans",
    "unknown_brokers",
]

REPAIRABLE = frozenset({ReplicaReadiness.REBUILD, ReplicaReadiness.START, ReplicaReadiness.SUSPECT})


@dataclass(frozen=True, slots=True)
class FleetResult:
    """Scans of many brokers, merged.

    Attributes:
        fleet: what was scanned.
        partitions: by topic and partition.
        repair_cover: the brokers to repair.
        steps: their restarts, in order; those with a ``hold`` come last.
        upgrade: go or no-go for each step of a restart of all brokers, also of those without a scan.
        held_brokers: brokers whose restart would leave a partition without a leader that has all acknowledged records.
        unknown_brokers: brokers of which the scans do not show everything.
        rate_bytes_per_second: as the operator stated it; None without a statement.
        has_metadata: a metadata log was given, so that the ISR and the leaders are known.
        assumes: facts that the scans do not show and that the result relies on, one sentence each.
        findings: about scans, partitions, brokers and restarts.
        allows_risk: elections may delete data (KAFKA-20732), or that is not known, and are written all the same.
    """

    fleet: ScannedFleet
    partitions: tuple[FleetPartition, ...]
    repair_cover: RepairCover
    steps: tuple[Restart, ...]
    upgrade: tuple[UpgradeStep, ...]
    held_brokers: tuple[int, ...]
    unknown_brokers: tuple[int, ...]
    rate_bytes_per_second: int | None
    has_metadata: bool
    assumes: tuple[str, ...]
    findings: tuple[Finding, ...]
    allows_risk: bool = False

    def elections(self) -> tuple[ElectionMoment, ...] | None:
        """The leaders to elect now and after each restart; None without a metadata log, because the replicas are then unknown."""
        if self.has_metadata:
            return elections_of(self.partitions, self.steps, risky=self.allows_risk)
        return None

    def outcomes(self) -> Counter[FleetOutcome]:
        """Count of partitions by outcome."""
        return Counter(partition.outcome for partition in self.partitions)

    def stuck_bytes(self, *outcomes: FleetOutcome) -> int:
        """Bytes of the partitions with one of these outcomes."""
        return sum(partition.stuck_bytes for partition in self.partitions if partition.outcome in outcomes)


def merge_scans(
    scans: Sequence[ScanDocument],
    view: ClusterView | None = None,
    controllers: frozenset[int] = frozenset(),
    rate_bytes_per_second: int | None = None,
    *,
    release: Release | None = None,
    retention_bytes: int | None = None,
    allows_risk: bool = False,
    down: frozenset[int] = frozenset(),
) -> FleetResult:
    """Merges the scans of brokers.

    Args:
        scans: the documents.
        view: what the metadata log says; None without one.
        controllers: brokers that are controllers, besides those that the metadata log has.
        rate_bytes_per_second: bytes per second that a rebuild reads.
        release: of the brokers; None if unknown.
        retention_bytes: ``log.retention.bytes`` in the brokers' own configuration; None if unknown.
        allows_risk: elections may delete data (KAFKA-20732), or that is not known, and are written all the same.
        down: brokers that count as stopped.

    Raises:
        UsageError, ReadFailedError: as ``read_scans``. UsageError: the metadata log is of another cluster, or a broker of ``down`` is in no
            scan and not in the metadata log.
    """
    view = None if view is None else view.without(down)
    cluster = ClusterView(-1) if view is None else view
    fleet = read_scans(
        scans,
        cluster.placements,
        cluster.directories,
        lambda node, epoch, is_by_log: contradicts_registration(node, epoch, cluster.epochs, is_by_log=is_by_log),
    )
    if cluster.cluster_id is not None:
        fleet.take_cluster(cluster.cluster_id, cluster.path)
    if view is None and not any(broker.is_kraft for broker in fleet.brokers.values()):
        refuse_outdated(fleet)
    _check_down(down, fleet, cluster)
    fleet.count_as_down(down)
    all_partitions = _all_partitions(fleet, cluster, view)
    partitions = tuple(each for each in all_partitions if each.replicas or each.outcome is FleetOutcome.NOT_SCANNED)
    safety = RestartSafety(_leader_sets(fleet, view), fleet.start_faults, down, fleet.brokers)
    cover, steps = _repairs(partitions, safety, controllers | cluster.controllers, cluster.quorum_leader, rate_bytes_per_second)
    unknown = unknown_brokers(fleet, view, down)
    preferred = _upgrade_order(fleet, steps, controllers | cluster.controllers, cluster.quorum_leader)
    order = safety.order([node for node in preferred if node in down or node not in unknown]).with_unknown(unknown)
    releases = {node: each.release for node, each in fleet.brokers.items() if each.release is not None}
    risks = ElectionRisks(view, release, releases, retention_bytes)
    partitions = tuple(risks.added_to(each) for each in _with_repaired(partitions, steps))
    findings = (
        *refused_findings(fleet),
        *cluster.findings,
        *_not_whole(fleet),
        *missing_metadata_findings(fleet, has_metadata=view is not None),
        *topic_id_findings(fleet),
        *start_fault_findings(fleet),
        *unfit_findings(partitions, fleet, steps),
        *lost_record_findings(safety, fleet),
        *forgotten_producer_findings(_leader_sets(fleet, view), fleet),
        *held_restart_findings(order),
        *_findings(partitions, fleet, steps),
        *_not_assigned(all_partitions, fleet),
        *_not_scanned(partitions),
        *_gone(partitions),
        *_alone(partitions, steps, view),
        *risks.of_elections(partitions),
        *risks.of_restarts(steps, cluster),
    )
    assumes = _assumptions(view, controllers | cluster.controllers, down)
    return FleetResult(
        fleet=fleet,
        partitions=partitions,
        repair_cover=cover,
        steps=steps,
        held_brokers=tuple(node for node, hold in order.holds.items() if not (hold.is_reported or hold.is_unknown)),
        upgrade=upgrade_steps(fleet, order, partitions, view, unknown),
        unknown_brokers=tuple(unknown),
        rate_bytes_per_second=rate_bytes_per_second,
        has_metadata=view is not None,
        assumes=assumes,
        findings=findings,
        allows_risk=allows_risk,
    )


def _check_down(down: frozenset[int], fleet: ScannedFleet, view: ClusterView) -> None:
    placed = {node for placement in view.placements.values() for node in placement.replicas}
    unknown = sorted(down - fleet.brokers.keys() - placed - view.epochs.keys())
    if unknown:
        raise UsageError(f"--assume down: no scan and no metadata log has broker {unknown[0]}")


def _leader_sets(fleet: ScannedFleet, view: ClusterView | None) -> Iterator[LeaderSet]:
    """All partitions with a leader, also those that are never uploaded."""
    keys = {*fleet.partitions, *fleet.never_uploaded}
    if view is not None:
        keys = set(view.placements)
    for key in sorted(keys, key=lambda each: (each[0], each[1], each[2] or "")):
        replicas = (*fleet.partitions.get(key, ()), *fleet.never_uploaded.get(key, ()))
        placement = None if view is None else view.placements[key]
        if placement is not None:
            replicas = tuple(replica for replica in replicas if replica.node_id in placement.replicas)
        yield LeaderSet(key, replicas, placement)


def _repairs(
    partitions: Iterable[FleetPartition],
    safety: RestartSafety,
    controllers: frozenset[int],
    quorum_leader: int | None,
    rate_bytes_per_second: int | None,
) -> tuple[RepairCover, tuple[Restart, ...]]:
    """The brokers to repair, and the order of their restarts.

    A broker that something must be corrected for is left out where another one helps as well.
    """
    stuck = [partition for partition in partitions if partition.outcome is FleetOutcome.REPAIR]
    avoided: set[int] = set()
    while True:
        choices = [(each, _repairable(each, avoided)) for each in stuck]
        cover = smallest_cover({frozenset(replicas) for _, replicas in choices}, _replay_costs(choices))
        steps = restart_order(cover.brokers, choices, controllers, quorum_leader, rate_bytes_per_second)
        order = safety.order([step.node_id for step in steps])
        corrected_first = {node for node, hold in order.holds.items() if not hold.is_wait}
        if corrected_first <= avoided:
            break
        avoided |= corrected_first
    ranks = {node: rank for rank, node in enumerate((*order.brokers, *order.holds))}
    steps = restart_order(cover.brokers, choices, controllers, quorum_leader, rate_bytes_per_second, ranks)
    reasons = {node: hold.reason for node, hold in order.holds.items()}
    return cover, tuple(replace(step, hold=reasons.get(step.node_id)) for step in steps)


def _upgrade_order(
    fleet: ScannedFleet, steps: Iterable[Restart], controllers: frozenset[int], quorum_leader: int | None
) -> list[int]:
    """All brokers in the order that is wanted: those to repair first, controllers last."""
    ranks = {step.node_id: rank for rank, step in enumerate(steps)}
    last = len(ranks)
    return sorted(fleet.brokers, key=lambda node: (node == quorum_leader, node in controllers, ranks.get(node, last), node))


def _fleet_partition(key: PartitionKey, replicas: list[ScannedReplica], view: ClusterView | None) -> FleetPartition:
    if view is None:
        return FleetPartition(key, tuple(replicas), *_outcome(replicas, None))
    placement = view.placements.get(key)
    if placement is None:
        return FleetPartition(key, tuple(replicas), FleetOutcome.GONE)
    here = {replica.node_id for replica in replicas}
    absent = tuple(node for node in placement.replicas if node not in here)
    # A broker that was down while the partition was moved away from it still has its files; to elect it would be to add a replica.
    own = [replica for replica in replicas if replica.node_id in placement.replicas]
    left = tuple(replica.node_id for replica in replicas if replica.node_id not in placement.replicas)
    # Without a leader any member in sync may be the next one.
    needed = placement.in_sync if placement.leader is None else {placement.leader}
    is_judged = bool(own) and needed <= here
    outcome = _outcome(own, placement) if is_judged else (FleetOutcome.NOT_SCANNED, None, None)
    return FleetPartition(key, tuple(own), *outcome, placement, absent, left)


def _all_partitions(fleet: ScannedFleet, cluster: ClusterView, view: ClusterView | None) -> list[FleetPartition]:
    """The partitions of the scans, and those that only the metadata log has, by topic, number and topic id."""
    partitions = [_fleet_partition(key, replicas, view) for key, replicas in fleet.sorted_partitions()]
    partitions += _without_scan(fleet, cluster)
    partitions.sort(key=lambda partition: (partition.key[0], partition.key[1], partition.key[2] or ""))
    return partitions


def _without_scan(fleet: ScannedFleet, view: ClusterView) -> Iterator[FleetPartition]:
    """The partitions of the metadata log that no scan has: all that could be uploaded, as far as the names show it."""
    never_uploaded = {key[:2] for key in fleet.never_uploaded}
    for key, placement in view.placements.items():
        if key in fleet.partitions or key[:2] in never_uploaded or topic_kind_of(key[0]) is not TopicKind.ORDINARY:
            continue
        yield FleetPartition(key, (), FleetOutcome.NOT_SCANNED, placement=placement, not_scanned=placement.replicas)


def _outcome(replicas: list[ScannedReplica], placement: Placement | None) -> tuple[FleetOutcome, int | None, str | None]:
    states = {replica.state for replica in replicas}
    # A disk is replaced while its broker is down, and then another leader is elected: in epoch 0 the replica was never written to.
    is_first_epoch = placement is not None and placement.leader_epoch == 0
    if len(replicas) == 1 and replicas[0].is_empty and not is_first_epoch:
        return FleetOutcome.VERIFY, None, None
    if states == {ReplicaReadiness.READY}:
        return FleetOutcome.HEALTHY, None, None
    if ReplicaReadiness.READY in states:
        ready = [replica for replica in replicas if replica.state is ReplicaReadiness.READY]
        conditions = [(_condition(each, replicas, placement), each.node_id) for each in ready]
        # The present leader first, then whom nothing speaks against.
        leader = None if placement is None else placement.leader
        condition, elect = min(conditions, key=lambda each: (each[0] is not None, each[1] != leader, each[1]))
        return (FleetOutcome.HEALTHY if elect == leader and condition is None else FleetOutcome.ELECT), elect, condition
    if states == {ReplicaReadiness.SUSPECT}:
        return FleetOutcome.VERIFY, None, None
    return (FleetOutcome.REPAIR if states & REPAIRABLE else FleetOutcome.WAIT), None, None


def _condition(replica: ScannedReplica, replicas: list[ScannedReplica], placement: Placement | None) -> str | None:
    """The condition for electing a replica: a broker that lags leads only by an unclean election, which loses data."""
    newest = max((each.leader_epoch or 0 for each in replicas), default=0)
    committed = max((each.high_watermark or 0 for each in replicas), default=0)
    if replica.is_down:
        return "its broker counts as stopped: start it"
    if placement is not None:
        return _condition_by_log(replica, placement, committed)
    epoch = replica.leader_epoch
    end = replica.log_end_offset
    if epoch is not None and epoch < newest:
        return f"it had leader epoch {epoch} when it was scanned, another one {newest}: elect it when it is in sync"
    if end is not None and end < committed:
        return f"its log ended at {end} when it was scanned, below {committed} of another one: elect it when it is in sync"
    return None


def _condition_by_log(replica: ScannedReplica, placement: Placement, committed: int) -> str | None:
    if replica.node_id not in placement.in_sync:
        return "it is not in sync: elect it when it is"
    if replica.leader_epoch is not None and placement.leader_epoch is not None and replica.leader_epoch > placement.leader_epoch:
        return f"it has leader epoch {replica.leader_epoch}, and the metadata log {placement.leader_epoch}: name a later one"
    if replica.log_end_offset is not None and replica.log_end_offset < committed and not replica.is_running:
        return f"its log ended at {replica.log_end_offset} when it was scanned, below {committed} of another one: scan it again"
    return None


def _repairable(partition: FleetPartition, avoided: Collection[int]) -> dict[int, ScannedReplica]:
    """By broker, replicas that a rebuild or a start gets ready; of brokers to avoid only where no other has one."""
    every = {replica.node_id: replica for replica in partition.replicas if replica.state in REPAIRABLE}
    return {node: each for node, each in every.items() if node not in avoided} or every


def _replay_costs(choices: Iterable[tuple[FleetPartition, dict[int, ScannedReplica]]]) -> Counter[int]:
    costs: Counter[int] = Counter()
    for _, replicas in choices:
        for node, replica in replicas.items():
            costs[node] += replica.replay_bytes
    return costs


def _with_repaired(partitions: tuple[FleetPartition, ...], steps: tuple[Restart, ...]) -> tuple[FleetPartition, ...]:
    """The partitions, each with the repaired broker as the one to elect."""
    by_partition = {key: step for step in steps for key in step.keys}

    def with_leader(each: FleetPartition) -> FleetPartition:
        if each.outcome is not FleetOutcome.REPAIR:
            return each
        step = by_partition[each.key]
        (repaired,) = (replica for replica in each.replicas if replica.node_id == step.node_id)
        return replace(each, elect=step.node_id, condition=_condition(repaired, list(each.replicas), each.placement))

    return tuple(map(with_leader, partitions))


def _findings(partitions: Iterable[FleetPartition], fleet: ScannedFleet, steps: tuple[Restart, ...]) -> Iterator[Finding]:
    for step in steps:
        count = pluralize(step.partitions, "partition")
        message = f"no replica of {count} can be uploaded from as it is: repair broker {step.node_id}"
        yield Finding("stuck-until-repaired", Severity.FINDING, fleet.brokers[step.node_id].document, message)
    for partition in partitions:
        if partition.not_scanned and partition.outcome in (FleetOutcome.REPAIR, FleetOutcome.WAIT):
            nodes = ", ".join(map(str, partition.not_scanned))
            message = f"replicas on {nodes} were not scanned: one may have every snapshot"
            yield Finding("replica-not-scanned", Severity.NOTE, partition.name, message)
    elected = Counter(each.elect for each in partitions if each.outcome is FleetOutcome.ELECT and each.elect is not None)
    for node, many in sorted(elected.items()):
        message = (
            f"broker {node} has every snapshot of {pluralize(many, 'partition')} that others lack: elect it instead of a rebuild"
        )
        yield Finding("stuck-until-elected", Severity.FINDING, fleet.brokers[node].document, message)
    topics: dict[str, Counter[str]] = {code: Counter() for code in _OF_TOPICS}
    for partition in partitions:
        topic = partition.key[0]
        if partition.outcome is FleetOutcome.VERIFY:
            code = "only-replica-empty" if partition.replicas[0].is_empty else "every-replica-suspect"
            topics[code][topic] += 1
        elif partition.outcome is FleetOutcome.WAIT and not all(one.must_not_lead for one in partition.replicas):
            topics["stuck-for-good"][topic] += 1
    for code, counts in topics.items():
        for topic, many in sorted(counts.items()):
            yield Finding(code, Severity.FINDING, topic, f"{pluralize(many, 'partition')}: {_OF_TOPICS[code]}")
    yield from _same_name(partitions)


_OF_TOPICS = {
    "stuck-for-good": "`rebuild` helps on no broker: wait until retention removes the segments, or remove the cause by hand",
    "every-replica-suspect": "nothing is stuck, and every replica has snapshots that cannot be correct; run `verify`",
    "only-replica-empty": "the only replica that was scanned is empty: never written to, or lost with its disk; "
    "`cluster source` shows which",
}


def _same_name(partitions: Iterable[FleetPartition]) -> Iterator[Finding]:
    """Replicas of one name and several topic ids: the topic was deleted and made again, and some disk is old."""
    for (topic, number), several in grouped((partition.key[:2], partition) for partition in partitions).items():
        if len(several) > 1:
            detail = "; ".join(f"{each.key[2] or 'none'} on {_nodes(each)}" for each in several)
            message = f"has several topic ids ({detail}): each is reported separately; `cluster source` shows the cluster's"
            yield Finding("several-topic-ids", Severity.FINDING, f"{topic}-{number}", message)


def _nodes(partition: FleetPartition) -> str:
    return ", ".join(str(replica.node_id) for replica in partition.replicas)


def _not_whole(fleet: ScannedFleet) -> Iterator[Finding]:
    """Findings for incomplete scans: partitions that a scan lacks would look healthy."""
    for path, reasons in fleet.not_whole.items():
        message = f"is an incomplete scan: {'; '.join(reasons)}. This result lacks the same parts: scan again"
        yield Finding("scan-not-whole", Severity.FINDING, path, message, is_unread=path in fleet.unread)


def _not_scanned(partitions: Iterable[FleetPartition]) -> Iterator[Finding]:
    """Partitions that are not judged: the replica of the leader is in no scan."""
    absent = [(partition, partition.placement) for partition in partitions if partition.outcome is FleetOutcome.NOT_SCANNED]
    if absent:
        needed: set[int] = set()
        for _, placement in absent:
            if placement is not None and placement.leader is not None:
                needed.add(placement.leader)
            elif placement is not None:
                needed.update(placement.in_sync or placement.replicas)
        some = partitions_text([each.name for each, _ in absent])
        message = (
            f"no scan has the replica that leads {some}, or each that may lead next, so they are not judged: scan these brokers"
        )
        yield Finding("partition-not-scanned", Severity.FINDING, f"brokers {', '.join(map(str, sorted(needed)))}", message)


def _gone(partitions: Iterable[FleetPartition]) -> Iterator[Finding]:
    names = [partition.name for partition in partitions if partition.outcome is FleetOutcome.GONE]
    if names:
        message = (
            f"the metadata log has no topic of these ids: {partitions_text(names)}. "
            "They were deleted or made again, or are newer than the log, and are not judged"
        )
        yield Finding("topic-gone", Severity.NOTE, names[0], message)


def _not_assigned(partitions: Iterable[FleetPartition], fleet: ScannedFleet) -> Iterator[Finding]:
    """Replicas that were scanned and are none of the partition's: it was moved away while the broker was down, or the log is older."""
    names = grouped((node, partition.name) for partition in partitions for node in partition.not_assigned)
    for node, several in sorted(names.items()):
        message = (
            f"broker {node} has files of {partitions_text(several)}, and no replica of them by the metadata log: "
            "they were left out, and the broker must not lead there"
        )
        yield Finding("replica-not-assigned", Severity.NOTE, fleet.brokers[node].document, message)


def _alone(partitions: Iterable[FleetPartition], steps: tuple[Restart, ...], view: ClusterView | None) -> Iterator[Finding]:
    """Partitions that are offline while a broker restarts, because no other replica is in sync."""
    restarted = {step.node_id for step in steps}
    holders = [
        (
            {one.node_id for one in partition.replicas} if partition.placement is None else partition.placement.in_sync,
            partition.name,
        )
        for partition in partitions
    ]
    for node, names in sorted(
        grouped((next(iter(nodes)), name) for nodes, name in holders if len(nodes) == 1 and nodes <= restarted).items()
    ):
        if view is None:
            message = f"no other scan has a replica of {partitions_text(names)}: make sure that one is in sync before it stops"
            yield Finding("no-other-replica", Severity.NOTE, f"broker {node}", message)
        else:
            message = f"is the only one in sync for {partitions_text(names)}, offline while it restarts: wait until another one is"
            yield Finding("last-in-sync", Severity.FINDING, f"broker {node}", message)


def _assumptions(view: ClusterView | None, controllers: frozenset[int], down: frozenset[int]) -> tuple[str, ...]:
    if down:
        stopped = [f"{pluralize(len(down), 'broker')} ({', '.join(map(str, sorted(down)))}) stopped, as --assume down says"]
    else:
        stopped = []
    if view is not None:
        return ("the metadata log is of now: who is in sync and who leads may have changed since", *stopped)
    assumptions = [
        *stopped,
        "every replica has been scanned: replicas on brokers without a scan are unknown (--metadata lists them)",
        "every replica that was scanned is in sync, unless its scan shows that it lagged (--metadata has the ISR)",
    ]
    if not controllers:
        assumptions.append("no broker is a controller (--metadata or --controller names the controllers, which restart last)")
    return tuple(assumptions)


def unknown_brokers(fleet: ScannedFleet, view: ClusterView | None, down: Collection[int]) -> dict[int, str]:
    """The reason for each of them, by node id.

    Args:
        fleet: all brokers that were scanned.
        view: of the metadata log, which has the brokers of all replicas; None without one.
        down: brokers that count as stopped. If they were not scanned, their replicas are unknown, too.
    """
    placements = () if view is None else view.placements.values()
    placed = {node for placement in placements for node in placement.replicas}
    reasons = dict.fromkeys((placed | set(down)) - fleet.brokers.keys(), "no scan has this broker")
    for node, broker in fleet.brokers.items():
        if broker.document in fleet.refused:
            reasons[node] = "its scan was refused"
        elif broker.document in fleet.not_whole:
            reasons[node] = "its scan is incomplete"
    return dict(sorted(reasons.items()))
