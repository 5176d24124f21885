"""Faults that keep all replicas of a broker or a log directory from leading: the start fails, or the directory goes offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from snaprebuild.broker.fates import FateKind, StartFate
from snaprebuild.broker.leadership import MustNotLead
from snaprebuild.findings import Severity

__all__ = ["StartFault", "start_fault_of"]

_OF_BROKER = {
    FateKind.NO_START: "does not start",
    FateKind.FAILS_ONCE: "fails at its next start",
}


@dataclass(frozen=True, slots=True)
class StartFault:
    """A fate that is not of one replica alone.

    Attributes:
        log_dir: that goes offline; None if it is the broker that does not start.
        what: "does not start", after the name of a broker or of a log directory.
        cause: why, with the names of what causes it.
        severity: of the finding.
        remedy: what an operator does.
    """

    log_dir: str | None
    what: str
    cause: str
    severity: Severity
    remedy: str

    def unfit(self) -> MustNotLead:
        """Why no replica that it concerns must lead."""
        subject = "its broker" if self.log_dir is None else "its log directory"
        return MustNotLead(f"{subject} {self.what}: {self.cause}", self.severity.name.lower(), self.remedy)

    def concerns(self, log_dir: str) -> bool:
        """Whether it concerns the replicas of a log directory of its broker."""
        return self.log_dir is None or self.log_dir == log_dir


def start_fault_of(fate: StartFate, node_of: Mapping[str, int]) -> tuple[set[int], StartFault] | None:
    """The brokers of a fault, and the fault; None for a fate that is of one replica alone, or harmless.

    Args:
        fate: of a scan.
        node_of: the brokers of its log directories. A path outside of them may be of any of these.
    """
    kind = fate.kind
    severity = Severity[fate.severity.upper()]
    cause = f"{fate.cause} ({fate.detail})" if fate.detail else fate.cause
    log_dir = _log_dir_of(fate.path, node_of)
    if severity is Severity.NOTE:
        return None
    nodes = set(node_of.values()) if log_dir is None else {node_of[log_dir]}
    if kind in _OF_BROKER:
        return nodes, StartFault(None, _OF_BROKER[kind], cause, severity, fate.remedy)
    if kind is FateKind.OFFLINE and log_dir is not None:
        return nodes, StartFault(log_dir, "goes offline at the start", cause, severity, fate.remedy)
    return None


def _log_dir_of(path: str, node_of: Mapping[str, int]) -> str | None:
    """The innermost one, where one is inside of another."""
    holders = [each for each in node_of if path == each or path.startswith(f"{each.rstrip('/')}/")]
    return max(holders, key=len, default=None)
