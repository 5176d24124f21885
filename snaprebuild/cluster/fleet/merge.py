"""Fleet: scans of many brokers become one answer. What is stuck, what an election frees, which brokers to treat, in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from snaprebuild.cluster.fleet.cluster_view import ClusterView, Placement
from snaprebuild.cluster.fleet.election_risk import ElectionRisk, KafkaRelease, Risk, TopicStorage, election_risk
from snaprebuild.cluster.fleet.elections import Elections, elections_of
from snaprebuild.cluster.fleet.replicas import Fleet, PartitionKey, Replica, ReplicaState, read_scans
from snaprebuild.cluster.fleet.restart_plan import Cover, Step, restart_order, smallest_cover
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.snapshots.source.source import TopicKind, topic_kind_of

__all__ = ["FleetPartition", "FleetResult", "Outcome", "merge_scans"]

TREATABLE = frozenset({ReplicaState.REBUILD, ReplicaState.START, ReplicaState.DOUBTED})


class Outcome(StrEnum):
    """What to do about a partition."""

    HEALTHY = "healthy"
    """Nothing: whoever leads uploads it."""
    ELECT = "elect"
    """A replica has all its snapshots: elect it, and nothing has to be rebuilt."""
    TREAT = "treat"
    """No replica has: one must be rebuilt, or its broker started again."""
    VERIFY = "verify"
    """Nothing is stuck, and snapshots of every replica are unproven, or the only replica is empty."""
    WAIT = "wait"
    """No replica can be rebuilt so that all goes up: retention, or somebody's hand."""


@dataclass(frozen=True, slots=True)
class FleetPartition:
    """A partition over all brokers that were scanned.

    Attributes:
        key: topic, partition, topic id.
        replicas: by node id; with a metadata log at most those that it gives to the partition.
        outcome: what to do.
        elect: broker whose replica is to lead; None where that is of no matter, or nobody helps.
        condition: what must be so before ``elect`` can lead; None where nothing speaks against it.
        placement: what the metadata log says of it; None without one.
        not_scanned: brokers that hold a replica and whose scan is not here, as the metadata log has it.
        not_assigned: brokers that were scanned with files of it, and have no replica of it, as the metadata log has it: they never lead.
        risk: of electing ``elect``; None where nobody has to be elected.
    """

    key: PartitionKey
    replicas: tuple[Replica, ...]
    outcome: Outcome
    elect: int | None = None
    condition: str | None = None
    placement: Placement | None = None
    not_scanned: tuple[int, ...] = ()
    not_assigned: tuple[int, ...] = ()
    risk: ElectionRisk | None = None

    @property
    def name(self) -> str:
        """``<topic>-<partition>``."""
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def stuck_bytes(self) -> int:
        """Of the leader where it is known, else of the replica with most: segments that cannot go up."""
        if self.placement is not None:
            of_leader = [each.stuck_bytes for each in self.replicas if each.node_id == self.placement.leader]
            if of_leader:
                return of_leader[0]
        return max(each.stuck_bytes for each in self.replicas)


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The answer.

    Attributes:
        fleet: what was scanned.
        partitions: by topic and partition.
        cover: the brokers to treat.
        steps: their restarts, in order.
        rate_bytes: per second, as it was stated; None where nobody did.
        has_metadata: a metadata log tells who is in sync and who leads.
        assumes: what was taken to be so.
        findings: of all.
        allows_risk: elections may delete data (KAFKA-20732), or that is not known, and are written all the same.
    """

    fleet: Fleet
    partitions: tuple[FleetPartition, ...]
    cover: Cover
    steps: tuple[Step, ...]
    rate_bytes: int | None
    has_metadata: bool
    assumes: tuple[str, ...]
    findings: tuple[Finding, ...]
    allows_risk: bool = False

    def elections(self) -> tuple[Elections, ...] | None:
        """Who is to lead, now and behind each restart; None where no metadata log tells the replicas of a partition."""
        return elections_of(self.partitions, self.steps, risky=self.allows_risk) if self.has_metadata else None

    def outcomes(self) -> Counter[Outcome]:
        """How many partitions of each."""
        return Counter(partition.outcome for partition in self.partitions)

    def stuck_bytes(self, *outcomes: Outcome) -> int:
        """Of the partitions with one of these outcomes."""
        return sum(partition.stuck_bytes for partition in self.partitions if partition.outcome in outcomes)


def merge_scans(
    paths: list[str],
    view: ClusterView | None = None,
    controllers: frozenset[int] = frozenset(),
    rate_bytes: int | None = None,
    *,
    release: KafkaRelease | None = None,
    retention_bytes: int | None = None,
    allows_risk: bool = False,
) -> FleetResult:
    """Merges the scans of brokers.

    Args:
        paths: of the documents.
        view: what the metadata log says; None without one.
        controllers: brokers that are controllers, too, beside those that the metadata log tells.
        rate_bytes: bytes per second that a rebuild reads.
        release: of the brokers; None where it is not known.
        retention_bytes: ``log.retention.bytes`` in the brokers' own configuration; None where it is not known.
        allows_risk: see ``FleetResult``.

    Raises:
        UsageError, ReadFailedError: as ``read_scans``.
    """
    fleet = read_scans(paths, () if view is None else view.placements, None if view is None else view.directories)
    judged = [_judged(key, replicas, view) for key, replicas in fleet.sorted_partitions()]
    partitions = tuple(each for each in judged if each.replicas)
    choices = [(each, _treatable(each)) for each in partitions if each.outcome is Outcome.TREAT]
    costs = _replay_costs(choices)
    cover = smallest_cover({frozenset(replicas) for _, replicas in choices}, costs)
    leader = None if view is None else view.quorum_leader
    known_controllers = controllers | (frozenset() if view is None else view.controllers)
    steps = restart_order(cover.brokers, choices, known_controllers, leader, rate_bytes)
    partitions = _with_treated(partitions, steps)
    partitions = tuple(replace(each, risk=_risk(each, view, release, retention_bytes)) for each in partitions)
    findings = (
        *_not_whole(fleet),
        *_findings(partitions, fleet, steps),
        *_not_assigned(judged, fleet),
        *_nowhere_scanned(fleet, view),
        *_alone(partitions, steps, view),
        *_risks(partitions),
        *_restart_risks(steps, view, release, retention_bytes),
    )
    assumes = _assumed(view, known_controllers)
    return FleetResult(fleet, partitions, cover, steps, rate_bytes, view is not None, assumes, findings, allows_risk)


def _judged(key: PartitionKey, replicas: list[Replica], view: ClusterView | None) -> FleetPartition:
    placement = None if view is None else view.placements.get(key)
    if placement is None:
        return FleetPartition(key, tuple(replicas), *_outcome(replicas, placement))
    here = {each.node_id for each in replicas}
    absent = tuple(node for node in placement.replicas if node not in here)
    # A broker that was down while the partition was moved away from it still has its files; to elect it would be to add a replica.
    own = [each for each in replicas if each.node_id in placement.replicas]
    left = tuple(each.node_id for each in replicas if each.node_id not in placement.replicas)
    return FleetPartition(key, tuple(own), *_outcome(own, placement), placement, absent, left)


def _outcome(replicas: list[Replica], placement: Placement | None) -> tuple[Outcome, int | None, str | None]:
    states = {each.state for each in replicas}
    # A disk is replaced while its broker is down, and then somebody is elected: in epoch 0 the replica was never written to.
    is_first_epoch = placement is not None and placement.leader_epoch == 0
    if len(replicas) == 1 and replicas[0].is_empty and not is_first_epoch:
        return Outcome.VERIFY, None, None
    if states == {ReplicaState.READY}:
        return Outcome.HEALTHY, None, None
    if ReplicaState.READY in states:
        ready = [each for each in replicas if each.state is ReplicaState.READY]
        conditions = [(_condition(each, replicas, placement), each.node_id) for each in ready]
        # The present leader first, then whom nothing speaks against.
        leader = None if placement is None else placement.leader
        condition, elect = min(conditions, key=lambda each: (each[0] is not None, each[1] != leader, each[1]))
        return (Outcome.HEALTHY if elect == leader and condition is None else Outcome.ELECT), elect, condition
    if states == {ReplicaState.DOUBTED}:
        return Outcome.VERIFY, None, None
    return (Outcome.TREAT if states & TREATABLE else Outcome.WAIT), None, None


def _condition(replica: Replica, replicas: list[Replica], placement: Placement | None) -> str | None:
    """What must be so before a replica is elected: a broker that lags leads only by an unclean election, which loses data."""
    if placement is not None:
        return None if replica.node_id in placement.in_sync else "it is not in sync: elect it when it is"
    newest = max((each.leader_epoch or 0 for each in replicas), default=0)
    if replica.leader_epoch is not None and replica.leader_epoch < newest:
        return f"it had leader epoch {replica.leader_epoch} when it was scanned, another one {newest}: elect it when it is in sync"
    committed = max((each.high_watermark or 0 for each in replicas), default=0)
    if replica.log_end is not None and replica.log_end < committed:
        return (
            f"its log ended at {replica.log_end} when it was scanned, below {committed} of another one: elect it when it is in sync"
        )
    return None


def _treatable(partition: FleetPartition) -> dict[int, Replica]:
    """By broker, replicas that a rebuild or a start gets ready."""
    return {each.node_id: each for each in partition.replicas if each.state in TREATABLE}


def _replay_costs(choices: Iterable[tuple[FleetPartition, dict[int, Replica]]]) -> Counter[int]:
    costs: Counter[int] = Counter()
    for _, replicas in choices:
        for node, replica in replicas.items():
            costs[node] += replica.replay_bytes
    return costs


def _with_treated(partitions: tuple[FleetPartition, ...], steps: tuple[Step, ...]) -> tuple[FleetPartition, ...]:
    """Each partition that is treated is to be led by the broker that was treated for it."""
    by_partition = {key: step.node_id for step in steps for key in step.partitions}

    def with_leader(each: FleetPartition) -> FleetPartition:
        if each.outcome is not Outcome.TREAT:
            return each
        elect = by_partition[each.key]
        (treated,) = (replica for replica in each.replicas if replica.node_id == elect)
        return replace(each, elect=elect, condition=_condition(treated, list(each.replicas), each.placement))

    return tuple(map(with_leader, partitions))


def _findings(partitions: Iterable[FleetPartition], fleet: Fleet, steps: tuple[Step, ...]) -> Iterator[Finding]:
    for step in steps:
        count = pluralize(len(step.partitions), "partition")
        message = f"{count} can be uploaded from no replica as it is: broker {step.node_id} is to be treated"
        yield Finding("stuck-until-treated", Severity.FINDING, fleet.brokers[step.node_id].document, message)
    elected: Counter[int] = Counter()
    empty: Counter[str] = Counter()
    topics: dict[Outcome, Counter[str]] = {Outcome.WAIT: Counter(), Outcome.VERIFY: Counter()}
    for each in partitions:
        if each.outcome is Outcome.ELECT and each.elect is not None:
            elected[each.elect] += 1
        elif each.outcome is Outcome.VERIFY and each.replicas[0].is_empty:
            empty[each.key[0]] += 1
        elif each.outcome in topics:
            topics[each.outcome][each.key[0]] += 1
        if each.not_scanned and each.outcome in (Outcome.TREAT, Outcome.WAIT):
            nodes = ", ".join(map(str, each.not_scanned))
            message = f"there are replicas on {nodes}, too, whose scan is not here: one may have every snapshot"
            yield Finding("replica-not-scanned", Severity.NOTE, each.name, message)
    for node, many in sorted(elected.items()):
        message = (
            f"broker {node} has every snapshot of {pluralize(many, 'partition')} that others lack: elect it instead of a rebuild"
        )
        yield Finding("stuck-until-elected", Severity.FINDING, fleet.brokers[node].document, message)
    for topic, many in sorted(topics[Outcome.WAIT].items()):
        message = (
            f"{pluralize(many, 'partition')}: on no broker a rebuild gets everything up; "
            "retention or a hand removes what is in the way"
        )
        yield Finding("stuck-for-good", Severity.FINDING, topic, message)
    for topic, many in sorted(topics[Outcome.VERIFY].items()):
        message = f"{pluralize(many, 'partition')}: nothing is stuck, and every replica has snapshots in doubt; `verify` tells more"
        yield Finding("every-replica-in-doubt", Severity.FINDING, topic, message)
    for topic, many in sorted(empty.items()):
        message = (
            f"{pluralize(many, 'partition')}: the only replica that was scanned is empty: never written to, or lost with its disk; "
            "`cluster source` shows which"
        )
        yield Finding("only-replica-empty", Severity.FINDING, topic, message)
    yield from _same_name(partitions)


def _same_name(partitions: Iterable[FleetPartition]) -> Iterator[Finding]:
    """Replicas of one name and several topic ids: the topic was deleted and made again, and some disk is old."""
    ids: dict[tuple[str, int], list[FleetPartition]] = {}
    for each in partitions:
        ids.setdefault(each.key[:2], []).append(each)
    for (topic, number), several in ids.items():
        if len(several) > 1:
            told = "; ".join(f"{each.key[2] or 'none'} on {_nodes(each)}" for each in several)
            message = f"has several topic ids ({told}): each is told for itself; `cluster source` tells which is the cluster's"
            yield Finding("several-topic-ids", Severity.FINDING, f"{topic}-{number}", message)


def _risk(
    partition: FleetPartition, view: ClusterView | None, release: KafkaRelease | None, retention_bytes: int | None
) -> ElectionRisk | None:
    broker, leader = partition.elect, None if partition.placement is None else partition.placement.leader
    if broker is None or broker == leader:
        return None
    (size_bytes,) = (each.size_bytes for each in partition.replicas if each.node_id == broker)
    return _risk_of(partition.key[0], broker, size_bytes, view, release, retention_bytes)


def _risk_of(
    topic: str, broker: int, size_bytes: int, view: ClusterView | None, release: KafkaRelease | None, retention_bytes: int | None
) -> ElectionRisk:
    storage, level = None, None
    if view is not None:
        storage, level = view.topics.get(topic, TopicStorage()), view.levels.get(broker)
        retention_bytes = view.retention_bytes.get(broker, view.retention_bytes.get(None, retention_bytes))
    return election_risk(topic, broker, size_bytes, storage, retention_bytes, release, level)


def _risks(partitions: Iterable[FleetPartition]) -> Iterator[Finding]:
    """One finding for each reason, not for each partition."""
    affected = [each for each in partitions if each.risk is not None and each.risk.outcome is Risk.AFFECTED]
    if affected:
        size_bytes = sum(each.risk.size_bytes or 0 for each in affected if each.risk is not None)
        message = (
            f"electing the leaders of {_some([each.name for each in affected])} may delete data within retention, remotely and on all "
            f"replicas (KAFKA-20732): {size_bytes} bytes of local logs may be counted twice. Upgrade to 4.3.2, or set retention.bytes=-1 "
            "for these topics, before you elect"
        )
        yield Finding("election-may-delete-data", Severity.FINDING, affected[0].name, message)
    missing: dict[str, list[FleetPartition]] = {}
    for each in partitions:
        if each.risk is not None and each.risk.outcome is Risk.UNKNOWN:
            missing.setdefault(each.risk.reason, []).append(each)
    for reason, several in missing.items():
        assert several[0].risk is not None
        message = (
            f"whether electing the leaders of {_some([each.name for each in several])} may delete data (KAFKA-20732) is not known: "
            f"{reason}. To find out: {several[0].risk.command}"
        )
        yield Finding("election-risk-unknown", Severity.NOTE, several[0].name, message)


def _restart_risks(
    steps: Iterable[Step], view: ClusterView | None, release: KafkaRelease | None, retention_bytes: int | None
) -> Iterator[Finding]:
    """A restart makes another broker the leader of each partition that the restarted one leads."""
    restarted = {step.node_id for step in steps}
    names: dict[Risk, list[str]] = {Risk.AFFECTED: [], Risk.UNKNOWN: []}
    for (topic, number, _), placement in sorted({} if view is None else view.placements.items(), key=lambda each: each[0][:2]):
        if placement.leader in restarted:
            others = [node for node in placement.in_sync if node != placement.leader]
            outcomes = {_risk_of(topic, node, 0, view, release, retention_bytes).outcome for node in others}
            for outcome, several in names.items():
                if outcome in outcomes and (outcome is Risk.AFFECTED or Risk.AFFECTED not in outcomes):
                    several.append(f"{topic}-{number}")
    if names[Risk.AFFECTED]:
        message = (
            f"the restarts elect other leaders of {_some(names[Risk.AFFECTED])}, which may delete data (KAFKA-20732): see fleet.md"
        )
        yield Finding("restart-may-delete-data", Severity.FINDING, names[Risk.AFFECTED][0], message)
    if names[Risk.UNKNOWN]:
        message = f"whether the restarts may delete data of {_some(names[Risk.UNKNOWN])} (KAFKA-20732) is not known: state "
        yield Finding(
            "restart-risk-unknown", Severity.NOTE, names[Risk.UNKNOWN][0], message + "--kafka-release and --retention-bytes"
        )


def _nodes(partition: FleetPartition) -> str:
    return ", ".join(str(each.node_id) for each in partition.replicas)


def _not_whole(fleet: Fleet) -> Iterator[Finding]:
    """What is not in a scan looks like what is healthy."""
    for path, reasons in fleet.not_whole.items():
        message = f"is no whole scan: {'; '.join(reasons)}. What it lacks is not in this answer: scan again"
        yield Finding("scan-not-whole", Severity.FINDING, path, message, is_unread=path in fleet.unread)


def _nowhere_scanned(fleet: Fleet, view: ClusterView | None) -> Iterator[Finding]:
    """Partitions that only brokers have whose scans are not here: of them nothing else is told."""
    names: list[str] = []
    nodes: set[int] = set()
    for (topic, number, _), placement in sorted({} if view is None else view.placements.items(), key=lambda each: each[0][:2]):
        if topic_kind_of(topic) is TopicKind.ORDINARY and fleet.brokers.keys().isdisjoint(placement.replicas):
            names.append(f"{topic}-{number}")
            nodes |= {*placement.replicas}
    if names:
        message = f"have all replicas of {_some(names)}, and their scans are not here: nothing is known of these, scan there"
        yield Finding("partition-not-scanned", Severity.NOTE, f"brokers {', '.join(map(str, sorted(nodes)))}", message)


def _not_assigned(partitions: Iterable[FleetPartition], fleet: Fleet) -> Iterator[Finding]:
    """Replicas that were scanned and are none of the partition's: it was moved away while the broker was down, or the log is older."""
    names: dict[int, list[str]] = {}
    for each in partitions:
        for node in each.not_assigned:
            names.setdefault(node, []).append(each.name)
    for node, several in sorted(names.items()):
        message = (
            f"broker {node} has files of {_some(several)} of which the metadata log gives it no replica: they were left out, "
            "and the broker is not to lead there"
        )
        yield Finding("replica-not-assigned", Severity.NOTE, fleet.brokers[node].document, message)


def _some(names: list[str]) -> str:
    return f"{pluralize(len(names), 'partition')} ({', '.join(names[:3])}{' ...' if len(names) > 3 else ''})"


def _alone(partitions: Iterable[FleetPartition], steps: tuple[Step, ...], view: ClusterView | None) -> Iterator[Finding]:
    """Partitions that are offline while a broker restarts, because no other replica is in sync."""
    restarted = {step.node_id for step in steps}
    alone: dict[int, list[str]] = {}
    for each in partitions:
        nodes = {one.node_id for one in each.replicas} if each.placement is None else each.placement.in_sync
        if len(nodes) == 1 and nodes <= restarted:
            alone.setdefault(next(iter(nodes)), []).append(each.name)
    for node, names in sorted(alone.items()):
        some = _some(names)
        if view is None:
            message = f"no other scan has a replica of {some}: make sure that one is in sync before it stops"
            yield Finding("no-other-replica", Severity.NOTE, f"broker {node}", message)
        else:
            message = f"is the only one in sync for {some}, offline while it restarts: wait until another one is"
            yield Finding("last-in-sync", Severity.FINDING, f"broker {node}", message)


def _assumed(view: ClusterView | None, controllers: frozenset[int]) -> tuple[str, ...]:
    if view is not None:
        return ("the metadata log is of now: who is in sync and who leads may have changed since",)
    assumed = [
        "every replica has been scanned: replicas of brokers whose scan is not here are not known (--metadata tells them)",
        "every replica that was scanned is in sync, unless its scan shows that it lagged (--metadata tells who is)",
    ]
    if not controllers:
        assumed.append("no broker is a controller (--metadata or --controller tells which are: they come last)")
    return tuple(assumed)
