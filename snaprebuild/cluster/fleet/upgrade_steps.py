"""Go or no-go for each step of a rolling restart or an upgrade, each with its evidence and a next command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from snaprebuild.cluster.fleet.replicas import Fleet
from snaprebuild.cluster.fleet.restart_safety import RestartOrder
from snaprebuild.findings import pluralize

__all__ = ["Go", "StepName", "UpgradeStep", "upgrade_steps"]


class Go(StrEnum):
    """Whether a step may be done."""

    GO = "go"
    NO_GO = "no-go"
    UNKNOWN = "unknown"
    """Evidence is missing: not before the next command has shown it."""


class StepName(StrEnum):
    """What is done, or has to be in order before the next step."""

    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """One step.

    Attributes:
        name: what is done.
        go: whether it may be done.
        evidence: why, one sentence.
        command: that shows more or mends it; None if nothing is left to do.
        node_id: of the broker concerned; None for the whole cluster.
    """

    name: StepName
    go: Go
    evidence: str
    command: str | None = None
    node_id: int | None = None


def upgrade_steps(fleet: Fleet, order: RestartOrder) -> tuple[UpgradeStep, ...]:
    """The steps in their order.

    Args:
        fleet: all brokers that were scanned.
        order: of their restarts.
    """
    return tuple(_restarts(fleet, order))


def _restarts(fleet: Fleet, order: RestartOrder) -> Iterator[UpgradeStep]:
    """The brokers that may be restarted, one after the other, and then those at which the order stops."""
    for node in order.brokers:
        replicas = pluralize(fleet.brokers[node].replicas, "replica")
        evidence = f"another replica may lead, or it has the only one: {replicas}"
        yield UpgradeStep(StepName.RESTART, Go.GO, evidence, node_id=node)
    for node, hold in order.held.items():
        go = Go.UNKNOWN if hold.is_unknown else Go.NO_GO
        yield UpgradeStep(StepName.RESTART, go, hold.reason, hold.command, node)
