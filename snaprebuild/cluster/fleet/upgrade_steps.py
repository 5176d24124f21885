"""Go or no-go for each step of a rolling restart and an upgrade, up to remote storage; each with its evidence and a next command.

The restarts come first, in their order. What must be in order before remote storage is switched on follows: the protocol or the metadata
version, topic ids, snapshots, free space, and how long the upload takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from snaprebuild.broker.releases import parse_release
from snaprebuild.cluster.fleet.cluster_view import ClusterView
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome, FleetPartition
from snaprebuild.cluster.fleet.replicas import ScannedBroker, ScannedFleet
from snaprebuild.cluster.fleet.restart_safety import SCAN_AGAIN, RestartOrder
from snaprebuild.cluster.fleet.topic_ids import topics_without_id
from snaprebuild.cluster.metadata.registered_model import METADATA_VERSION
from snaprebuild.findings import choose_form, first_of, pluralize
from snaprebuild.published import Natural, Part
from snaprebuild.shell_words import program_command

__all__ = ["FREE_BYTES_MIN", "Go", "StepName", "UpgradeStep", "upgrade_steps"]

FIRST_PROTOCOL_WITH_IDS = (2, 8)

FREE_BYTES_MIN = 1 << 30
"""Free bytes that each log directory needs: ``remote.log.index.file.cache.total.size.bytes``, or a new segment
(``log.segment.bytes``), by their defaults."""

FEATURES = "kafka-features.sh --bootstrap-server HOST:PORT describe"


class Go(StrEnum):
    """Whether a step may be done."""

    GO = "go"
    NO_GO = "no-go"
    UNKNOWN = "unknown"
    """Evidence is missing: not before the next command has shown it."""


class StepName(StrEnum):
    """The steps that are done, or have to be in order before remote storage is switched on."""

    RESTART = "restart"
    PROTOCOL = "protocol"
    """``inter.broker.protocol.version``, or with KRaft ``metadata.version``."""
    TOPIC_IDS = "topic-ids"
    MISSING = "missing-snapshots"
    SUSPECT = "suspect-snapshots"
    FREE_SPACE = "free-space"
    BACKLOG = "backlog"
    """How long the first upload takes."""


class UpgradeStep(Part, frozen=True):
    """A step of an upgrade: the restart of a broker, or what must be in order before remote storage is switched on."""

    kind: StepName
    go: Go
    evidence: str
    """Not stable."""
    command: str | None = None
    """Command that shows more, or mends it; null if nothing is left to do."""
    node_id: Natural | None = None
    """The broker that restarts; null for the other steps."""


def upgrade_steps(
    fleet: ScannedFleet,
    order: RestartOrder,
    partitions: Sequence[FleetPartition],
    view: ClusterView | None,
    unknown: Mapping[int, str],
) -> tuple[UpgradeStep, ...]:
    """The steps in their order.

    Args:
        fleet: all brokers that were scanned. Scans that were refused show nothing.
        order: of their restarts.
        partitions: that can be uploaded, with what to do about them.
        view: of the metadata log; None without one.
        unknown: brokers of which the scans do not show everything, with the reason.
    """
    brokers = [each for _, each in sorted(fleet.brokers.items()) if each.document not in fleet.refused]
    is_kraft = view is not None or any(broker.is_kraft for broker in brokers)
    checks: tuple[UpgradeStep, ...] = (
        _topic_ids(fleet, is_kraft=is_kraft),
        _missing(fleet, partitions),
        _suspect(fleet, partitions),
        _free_space(brokers),
        _backlog(brokers, partitions, view),
    )
    if unknown or fleet.not_whole:
        checks = tuple(_not_known(check, [*unknown]) for check in checks)
    return (*_restarts(fleet, order), _metadata_version(view) if is_kraft else _protocol(brokers), *checks)


def _not_known(step: UpgradeStep, nodes: Sequence[int]) -> UpgradeStep:
    """The step without a verdict: scans that are missing, were refused, or are incomplete may hold facts against it."""
    if step.go is not Go.GO:
        return step
    evidence = "a scan is missing, was refused, or is incomplete: this is not known of all replicas"
    if nodes:
        evidence = f"this is not known of {_nodes(nodes)}: a scan is missing, was refused, or is incomplete"
    return UpgradeStep(step.kind, Go.UNKNOWN, evidence, SCAN_AGAIN)


def _restarts(fleet: ScannedFleet, order: RestartOrder) -> Iterator[UpgradeStep]:
    """The brokers that may be restarted, one after the other, and then those at which the order stops."""
    for node in order.brokers:
        replicas = pluralize(fleet.brokers[node].replicas, "replica")
        yield UpgradeStep(StepName.RESTART, Go.GO, f"{replicas}: others may lead, or it has the only one", node_id=node)
    for node, hold in order.holds.items():
        go = Go.UNKNOWN if hold.is_unknown else Go.NO_GO
        yield UpgradeStep(StepName.RESTART, go, hold.reason, hold.command, node)


# ------------------------------------------------------------------------------------------------------- versions and topic ids


def _metadata_version(view: ClusterView | None) -> UpgradeStep:
    feature = None
    if view is not None:
        feature = next((each for each in view.features if each.name == METADATA_VERSION), None)
    if feature is None:
        return UpgradeStep(
            StepName.PROTOCOL, Go.UNKNOWN, "metadata.version is unknown: name the metadata log (--metadata)", FEATURES
        )
    now = f"metadata.version is {feature.finalized_level}"
    if feature.held_back_by:
        nodes = sorted({each.node_id for each in feature.held_back_by})
        evidence = f"{now}; greatest one of {_nodes(nodes)}: {feature.max_of_all}, of others: {feature.max_of_any}"
        return UpgradeStep(StepName.PROTOCOL, Go.NO_GO, evidence, FEATURES)
    if feature.finalized_level < feature.max_of_all:
        return UpgradeStep(StepName.PROTOCOL, Go.GO, f"{now}, and all nodes support {feature.max_of_all}: raise it", FEATURES)
    return UpgradeStep(StepName.PROTOCOL, Go.GO, f"{now}, the greatest one that all nodes support")


def _protocol(brokers: Sequence[ScannedBroker]) -> UpgradeStep:
    """The protocol of a ZooKeeper cluster. Below 2.8 topics have no id."""
    low: dict[str, list[int]] = {}
    unknown = []
    for broker in brokers:
        protocol = _protocol_of(broker)
        version = None if protocol is None else parse_release(protocol)
        if version is None or protocol is None:
            unknown.append(broker.node_id)
        elif version[:2] < FIRST_PROTOCOL_WITH_IDS:
            low.setdefault(protocol, []).append(broker.node_id)
    if low:
        texts = [f"{protocol} on {_nodes(nodes)}" for protocol, nodes in sorted(low.items())]
        evidence = (
            f"inter.broker.protocol.version is {'; '.join(texts)}: raise it to 2.8 or newer when all brokers run the new release"
        )
        return UpgradeStep(StepName.PROTOCOL, Go.NO_GO, evidence, SCAN_AGAIN)
    if unknown:
        evidence = f"inter.broker.protocol.version of {_nodes(unknown)} is unknown: scan with --server-properties"
        return UpgradeStep(StepName.PROTOCOL, Go.UNKNOWN, evidence, SCAN_AGAIN)
    return UpgradeStep(StepName.PROTOCOL, Go.GO, "inter.broker.protocol.version is 2.8 or newer on all brokers")


def _protocol_of(broker: ScannedBroker) -> str | None:
    """Where it is not set it is that of the release."""
    if broker.settings is None:
        return None
    if broker.settings.inter_broker_protocol_version is not None:
        return broker.settings.inter_broker_protocol_version
    return None if broker.release is None else ".".join(map(str, broker.release))


def _topic_ids(fleet: ScannedFleet, *, is_kraft: bool) -> UpgradeStep:
    without = topics_without_id(fleet)
    if without:
        evidence = f"{pluralize(len(without), 'topic')} without an id ({first_of(without)}): consumers would lose what is uploaded"
        return UpgradeStep(StepName.TOPIC_IDS, Go.NO_GO, evidence, SCAN_AGAIN)
    kind = "KRaft gives each topic an id" if is_kraft else "each replica that was scanned has one"
    return UpgradeStep(StepName.TOPIC_IDS, Go.GO, kind)


# -------------------------------------------------------------------------------------------------------------------- snapshots

_STUCK = (FleetOutcome.ELECT, FleetOutcome.REPAIR, FleetOutcome.WAIT)


def _missing(fleet: ScannedFleet, partitions: Iterable[FleetPartition]) -> UpgradeStep:
    missing: Counter[int] = Counter()
    outcomes: Counter[FleetOutcome] = Counter()
    for partition in partitions:
        outcomes[partition.outcome] += 1
        for replica in partition.replicas:
            missing[replica.node_id] += replica.missing
    nodes = sorted(node for node, count in missing.items() if count)
    lack = f"{pluralize(missing.total(), 'snapshot')} missing on {_nodes(nodes)}"
    stuck = sum(outcomes[each] for each in _STUCK)
    if stuck:
        some = f"; {lack}" if nodes else ""
        command = _on(fleet, "plan", nodes[:1]) if nodes else SCAN_AGAIN
        return UpgradeStep(StepName.MISSING, Go.NO_GO, f"{pluralize(stuck, 'partition')} cannot be uploaded{some}", command)
    if outcomes[FleetOutcome.NOT_SCANNED]:
        return UpgradeStep(StepName.MISSING, Go.UNKNOWN, "some partitions were not scanned", SCAN_AGAIN)
    if nodes:
        evidence = f"the leaders have every snapshot; {lack}: repair these before they lead"
        return UpgradeStep(StepName.MISSING, Go.GO, evidence, _on(fleet, "plan", nodes[:1]))
    return UpgradeStep(StepName.MISSING, Go.GO, "no snapshot is missing")


def _suspect(fleet: ScannedFleet, partitions: Iterable[FleetPartition]) -> UpgradeStep:
    suspect: Counter[int] = Counter()
    for partition in partitions:
        for replica in partition.replicas:
            suspect[replica.node_id] += replica.suspect
    nodes = sorted(node for node, count in suspect.items() if count)
    if nodes:
        evidence = f"{pluralize(suspect.total(), 'snapshot')} on {_nodes(nodes)} cannot be correct, or do not parse"
        return UpgradeStep(StepName.SUSPECT, Go.NO_GO, evidence, _on(fleet, "verify", nodes[:1]))
    return UpgradeStep(StepName.SUSPECT, Go.GO, "no snapshot is suspect")


def _on(fleet: ScannedFleet, verb: str, nodes: Iterable[int]) -> str:
    """A command for the log directories of brokers."""
    paths = [path for node in nodes for path in fleet.brokers[node].paths]
    return program_command([verb, *paths])


# --------------------------------------------------------------------------------------------------------------- space and time


def _free_space(brokers: Sequence[ScannedBroker]) -> UpgradeStep:
    """The index cache of remote storage is in the first log directory, and each has new segments."""
    full = [
        f"{free >> 20} MiB in {path} of broker {broker.node_id}"
        for broker in brokers
        for path, free in sorted(broker.free_bytes.items())
        if free < FREE_BYTES_MIN
    ]
    unknown = [broker.node_id for broker in brokers if set(broker.paths) - broker.free_bytes.keys()]
    if full:
        evidence = f"free: {first_of(full)}; the index cache of remote storage takes up to 1 GiB by default"
        return UpgradeStep(StepName.FREE_SPACE, Go.NO_GO, evidence, "df -h")
    if unknown:
        return UpgradeStep(StepName.FREE_SPACE, Go.UNKNOWN, f"no scan has the free space of {_nodes(unknown)}", SCAN_AGAIN)
    least = min((free for broker in brokers for free in broker.free_bytes.values()), default=0)
    return UpgradeStep(StepName.FREE_SPACE, Go.GO, f"at least {least >> 20} MiB are free in each log directory")


def _backlog(brokers: Sequence[ScannedBroker], partitions: Iterable[FleetPartition], view: ClusterView | None) -> UpgradeStep:
    """Each broker uploads what it leads, at its own quota. Without a metadata log it may lead each of its replicas."""
    rolled: Counter[int] = Counter()
    for partition in partitions:
        for replica in partition.replicas:
            if partition.placement is None or partition.placement.leader in (None, replica.node_id):
                rolled[replica.node_id] += replica.rolled_bytes
    quotas = {broker.node_id: _quota_of(broker, view) for broker in brokers}
    hours = {node: rolled[node] / quota / 3_600 for node, quota in quotas.items() if quota is not None}
    all_of = f"at most {_size(rolled.total())} to upload" if view is not None else _largest(rolled)
    unlimited = sorted(node for node, quota in quotas.items() if quota is None)
    unknown = [broker.node_id for broker in brokers if broker.settings is None and quotas[broker.node_id] is None]
    if unknown and rolled.total():
        evidence = f"{all_of}; the copy quota of {_nodes(unknown)} is unknown: scan with --server-properties"
        return UpgradeStep(StepName.BACKLOG, Go.UNKNOWN, evidence, SCAN_AGAIN)
    texts = [all_of]
    if hours:
        slowest = max(hours, key=lambda node: hours[node])
        texts.append(f"{hours[slowest]:.1f} hours on broker {slowest} at {quotas[slowest]} bytes/s")
    if unlimited and rolled.total():
        texts.append(f"no copy quota on {_nodes(unlimited)}")
    return UpgradeStep(StepName.BACKLOG, Go.GO, "; ".join(texts))


def _largest(rolled: Counter[int]) -> str:
    if not rolled:
        return "nothing to upload"
    node, size = rolled.most_common(1)[0]
    return f"at most {_size(size)} to upload on one broker ({node}), if it leads all of its replicas"


def _quota_of(broker: ScannedBroker, view: ClusterView | None) -> int | None:
    """A dynamic setting comes before that of the file. None for no quota, or an unknown one."""
    dynamic = {} if view is None else view.copy_quotas
    for key in (broker.node_id, None):
        if key in dynamic:
            return dynamic[key]
    return None if broker.settings is None else broker.settings.copy_quota_bytes_per_second


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >> 20 else f"{size_bytes} bytes"


def _nodes(nodes: Sequence[int]) -> str:
    return f"{choose_form(len(nodes), 'broker', 'brokers')} {first_of([*map(str, nodes)], most=5)}"
