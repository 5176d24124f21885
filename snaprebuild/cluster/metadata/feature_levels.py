"""Feature levels that a cluster can be raised to, and registrations that hold it back.

A controller raises a feature only if each registered broker, fenced or not, and each registered controller supports the new level. A node
that does not name a feature supports level 0 of it. A registration outlives its node: a controller that is gone holds the cluster back
until it is unregistered.

``kraft.version`` is not judged by registrations, but by the voters: it is left out here.

Source: ``FeatureControlManager.reasonNotSupported``, ``ClusterControlManager.unregisterController``,
``MetadataVersion.isControllerRegistrationSupported`` and ``isControllerUnregistrationSupported`` of 4.4.0; run with controllers of 4.3.1
and 4.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.cluster.metadata.registered_model import METADATA_VERSION, FeatureLevels
from snaprebuild.findings import Finding, Severity, first_of
from snaprebuild.published import Natural, Part

__all__ = [
    "CONTROLLERS_REGISTER",
    "CONTROLLERS_UNREGISTER",
    "FeatureLevel",
    "HoldingNode",
    "NodeKind",
    "NodeState",
    "feature_levels",
    "held_back_findings",
]

CONTROLLERS_REGISTER = 15
"""``metadata.version`` 3.7-IV0: below it no controller registers, and none is asked."""
CONTROLLERS_UNREGISTER = 33
"""``metadata.version`` 4.4-IV2: below it no release unregisters a controller (KIP-1312)."""

_BY_VOTERS = "kraft.version"


class NodeState(StrEnum):
    """A node that holds a feature back, as the metadata log shows it."""

    VOTER = "voter"
    """A controller that is a voter: not upgraded yet, or stopped. A registration does not show which."""
    OBSERVER = "observer"
    """A controller that is no voter: an observer, or a node that is gone."""
    CONTROLLER = "controller"
    """A controller, and the voters are not known."""
    ACTIVE = "active"
    """A broker that is not fenced: it runs."""
    FENCED = "fenced"
    """A broker that is fenced and has replicas: it is down, perhaps for a restart."""
    FENCED_WITHOUT_REPLICAS = "fenced-without-replicas"
    """A broker that is fenced and has no replica: probably gone."""

    @property
    def kind(self) -> NodeKind:
        """Whether it is the registration of a broker or of a controller."""
        if self in (NodeState.VOTER, NodeState.OBSERVER, NodeState.CONTROLLER):
            return NodeKind.CONTROLLER
        return NodeKind.BROKER


class NodeKind(StrEnum):
    """The kind of a registration. A combined node has a registration of each kind."""

    BROKER = "broker"
    CONTROLLER = "controller"


class HoldingNode(Part, frozen=True):
    """A registration that supports less of a feature than another one."""

    kind: NodeKind
    """A combined node has a registration of each kind."""
    node_id: Natural
    max_level: Natural
    """Greatest level that it supports; 0 if it does not name the feature."""
    state: NodeState
    """The evidence in the log: a voter, no voter (`observer`), or a controller without known voters; the state of a broker."""


class FeatureLevel(Part, frozen=True):
    """The levels of a feature, from the registrations of brokers and controllers."""

    name: str
    finalized_level: Natural
    """Level of the cluster; 0 if the feature is off."""
    max_of_all: Natural
    """Greatest level that all registered nodes support: the cluster can be raised to it."""
    max_of_any: Natural
    """Greatest level that a registered node supports."""
    held_back_by: tuple[HoldingNode, ...]
    """The registrations that support less than `max_of_any`."""


def feature_levels(image: MetadataImage, static_voters: Iterable[int] | None = None) -> tuple[FeatureLevel, ...]:
    """Every feature that a node registered with, by name.

    Args:
        image: of the cluster.
        static_voters: of ``quorum-state``, for a log without a record that names the voters; None if the file has none.
    """
    registered = list(_registrations(image, static_voters))
    names = {name for _, _, features in registered for name in features if name != _BY_VOTERS}
    return tuple(_feature_level(name, image.features.get(name, 0), registered) for name in sorted(names))


_Registration = tuple[int, NodeState, Mapping[str, int]]
"""Node id, state, and the greatest level by feature."""


def _registrations(image: MetadataImage, static_voters: Iterable[int] | None) -> Iterator[_Registration]:
    with_replicas = {
        node for topic in image.topics.values() for partition in topic.partitions.values() for node in partition.replicas
    }
    for broker in image.brokers.values():
        state = NodeState.ACTIVE
        if broker.fenced:
            state = NodeState.FENCED if broker.node_id in with_replicas else NodeState.FENCED_WITHOUT_REPLICAS
        yield broker.node_id, state, _max_levels(broker.features)
    if image.features.get(METADATA_VERSION, 0) < CONTROLLERS_REGISTER:
        return
    voters = None if static_voters is None else frozenset(static_voters)
    if image.quorum.voters is not None:
        voters = frozenset(voter.voter_id for voter in image.quorum.voters)
    for controller in image.controllers.values():
        state = NodeState.CONTROLLER
        if voters is not None:
            state = NodeState.VOTER if controller.node_id in voters else NodeState.OBSERVER
        yield controller.node_id, state, _max_levels(controller.features)


def _max_levels(features: Mapping[str, FeatureLevels]) -> dict[str, int]:
    return {name: levels.max_level for name, levels in features.items()}


def _feature_level(name: str, level: int, registered: list[_Registration]) -> FeatureLevel:
    highest = [features.get(name, 0) for _, _, features in registered]
    most = max(highest)
    holding = [
        HoldingNode(state.kind, node_id, max_level, state)
        for (node_id, state, _), max_level in zip(registered, highest, strict=True)
        if max_level < most
    ]
    holding.sort(key=lambda each: (each.node_id, each.state))
    return FeatureLevel(name, level, min(highest), most, tuple(holding))


# ----------------------------------------------------------------------------------------------------------------------- words


def held_back_findings(path: str, levels: Iterable[FeatureLevel]) -> list[Finding]:
    """One finding for each registration that holds a feature back.

    An upgrade that is under way is a note. A registration that is probably a leftover is a finding.

    Args:
        path: of the metadata log.
        levels: of the cluster.
    """
    by_node: dict[tuple[int, NodeState], list[tuple[FeatureLevel, int]]] = {}
    metadata_level = 0
    for feature in levels:
        if feature.name == METADATA_VERSION:
            metadata_level = feature.finalized_level
        for node in feature.held_back_by:
            by_node.setdefault((node.node_id, node.state), []).append((feature, node.max_level))
    findings = []
    for (node_id, state), features in sorted(by_node.items()):
        features.sort(key=lambda each: (each[0].name != METADATA_VERSION, each[0].name))
        limits = first_of([f"{feature.name} up to {most} (others {feature.max_of_any})" for feature, most in features], most=2)
        message = (
            f"{state.kind} {node_id} supports {limits}. {_raisable(features)} {_advice(node_id, state, metadata_level, features)}"
        )
        findings.append(Finding("features-held-back", _SEVERITIES[state], path, message.removesuffix(".")))
    return findings


_SEVERITIES = {
    NodeState.VOTER: Severity.NOTE,
    NodeState.OBSERVER: Severity.FINDING,
    NodeState.CONTROLLER: Severity.NOTE,
    NodeState.ACTIVE: Severity.NOTE,
    NodeState.FENCED: Severity.NOTE,
    NodeState.FENCED_WITHOUT_REPLICAS: Severity.FINDING,
}


def _raisable(features: list[tuple[FeatureLevel, int]]) -> str:
    limits = first_of([f"{feature.name} {feature.max_of_all} (now {feature.finalized_level})" for feature, _ in features], most=2)
    return f"All nodes support {limits}."


def _advice(node_id: int, state: NodeState, metadata_level: int, features: list[tuple[FeatureLevel, int]]) -> str:
    unregister = f"`kafka-cluster.sh unregister --id {node_id}` (2.8 and later)"
    if state is NodeState.ACTIVE:
        return "It is not fenced, so it runs: upgrade it."
    if state is NodeState.FENCED:
        return f"It is fenced: stopped, being restarted, or gone; the log does not show which. Upgrade it, or {unregister}."
    if state is NodeState.FENCED_WITHOUT_REPLICAS:
        return f"It is fenced and has no replica: probably the registration of a node that is gone. If so, {unregister}."
    if state is NodeState.VOTER:
        return (
            "It is a voter: not upgraded yet, stopped, or gone; these look alike. Upgrade it. If it is gone, remove it from "
            f"the voters first. {_unregister_controller(metadata_level, features)}"
        )
    if state is NodeState.CONTROLLER:
        who = "Whether it is a voter is not known: no record names the voters. A stopped voter looks like one that is gone."
        return f"{who} {_unregister_controller(metadata_level, features)}"
    who = "It is not a voter: an observer, or the registration of a node that is gone."
    return f"{who} {_unregister_controller(metadata_level, features)}"


def _unregister_controller(metadata_level: int, features: list[tuple[FeatureLevel, int]]) -> str:
    command = f"`kafka-cluster.sh unregister-controller` needs metadata.version {CONTROLLERS_UNREGISTER} (4.4)"
    if metadata_level >= CONTROLLERS_UNREGISTER:
        return f"{command}, which the cluster has."
    blocks = any(feature.name == METADATA_VERSION and most < CONTROLLERS_UNREGISTER for feature, most in features)
    if blocks:
        return (
            f"{command}, which this registration prevents. Start a controller of the new release with this node id once: it "
            "registers again. Then raise the level, and unregister it."
        )
    return f"{command}: raise the level first."
