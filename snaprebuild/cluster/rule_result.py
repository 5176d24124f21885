"""The result of a rule of ``cluster source`` (R1 to R13, ``source_check``) or of ``cluster check`` (K1 to K20, ``quorum``).

A rule whose evidence is missing is unknown. A rule that has nothing to judge, because there is nothing of the kind, does not apply.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Generic, TypeVar

import msgspec

from snaprebuild.findings import Finding, Severity

__all__ = ["Basis", "Grade", "RuleId", "RuleResult", "RuleState", "broken", "finding_of", "holds", "not_applicable", "unknown"]


class RuleState(StrEnum):
    """The state of a rule."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """Evidence that should be there is missing, cannot be read, or contradicts itself; or another rule has reported the reason."""
    NOT_APPLICABLE = "not-applicable"
    """Nothing is missing: this kind of cluster, or this question, has no such evidence."""


class Grade(StrEnum):
    """How bad a result is, by what Kafka does with it."""

    INFO = "info"
    """Nothing is wrong, or the next start mends it, or the rule holds with a reservation."""
    WARNING = "warning"
    """Kafka starts and continues; it repairs the fault, or never looks at it."""
    ERROR = "error"
    """Kafka starts, and something fails or goes wrong later."""
    DAMAGE = "damage"
    """The node does not start, or it loses records, or an image is not whole."""
    REFUSAL = "refusal"
    """Nothing may be taken from the replica."""


class Basis(Enum):
    """The basis of the state of a rule, where a verdict depends on it."""

    EVIDENCE = auto()
    OPERATOR = auto()
    """The operator asserts it."""
    DAMAGED_FILE = auto()
    """A file of the replica that could reject it is damaged, or missing although each broker of this kind writes it."""
    OWN_LOG_ALONE = auto()
    """Only the broker's own metadata log has evidence, after an unclean stop."""
    RECORDS_SO_FAR = auto()
    """The records that a metadata log still has break the rule, and only records that it lost could mend that."""


class RuleId(StrEnum):
    """A rule. The name is its number, the value says what it is about."""

    def sentence(self, evidence: str) -> str:
        """The evidence of a result as the message of a finding."""
        raise NotImplementedError

    def state_name(self, state: RuleState, grade: Grade | None) -> str:
        """A state as documents and tables of this set of rules call it."""
        raise NotImplementedError


Id = TypeVar("Id", bound=RuleId)


class RuleResult(msgspec.Struct, Generic[Id], frozen=True):
    """The result of a rule. A rule that is broken in several places has as many results.

    Attributes:
        rule: which.
        state: of it.
        evidence: the facts, one sentence; may be empty where it holds.
        grade: how bad; None for a result that is no finding.
        path: file or directory concerned; empty for the replica that was judged.
        offset: concerned, or None.
        trusted_below: the replica is trusted below this offset only; None for all of it.
        basis: what the state rests on.
    """

    rule: Id
    state: RuleState
    evidence: str
    grade: Grade | None = None
    path: str = ""
    offset: int | None = None
    trusted_below: int | None = None
    basis: Basis = Basis.EVIDENCE

    @property
    def state_name(self) -> str:
        """The state as documents and tables call it."""
        return self.rule.state_name(self.state, self.grade)


def holds(
    rule: Id, evidence: str = "", path: str = "", *, trusted_below: int | None = None, basis: Basis = Basis.EVIDENCE
) -> RuleResult[Id]:
    """A rule that holds."""
    return RuleResult(rule, RuleState.HOLDS, evidence, path=path, trusted_below=trusted_below, basis=basis)


def broken(rule: Id, grade: Grade, evidence: str, path: str = "", offset: int | None = None) -> RuleResult[Id]:
    """A rule that is broken."""
    return RuleResult(rule, RuleState.BROKEN, evidence, grade, path, offset)


def unknown(
    rule: Id,
    evidence: str,
    path: str = "",
    offset: int | None = None,
    *,
    trusted_below: int | None = None,
    basis: Basis = Basis.EVIDENCE,
) -> RuleResult[Id]:
    """A rule without evidence that should be there."""
    return RuleResult(
        rule=rule,
        state=RuleState.UNKNOWN,
        evidence=evidence,
        grade=None,
        path=path,
        offset=offset,
        trusted_below=trusted_below,
        basis=basis,
    )


def not_applicable(rule: Id, evidence: str, path: str = "") -> RuleResult[Id]:
    """A rule without evidence that this kind of cluster, or this question, never has."""
    return RuleResult(rule, RuleState.NOT_APPLICABLE, evidence, path=path)


_SEVERITIES = {
    Grade.INFO: Severity.NOTE,
    Grade.WARNING: Severity.FINDING,
    Grade.ERROR: Severity.FINDING,
    Grade.DAMAGE: Severity.DAMAGED,
    Grade.REFUSAL: Severity.REFUSED,
}


def finding_of(result: RuleResult[Id], code: str, path: str = "", *, prefix: str = "", reason: str | None = None) -> Finding:
    """The finding of a result that has a grade.

    Args:
        result: of a rule.
        code: of the finding.
        path: where the result names none.
        prefix: begins the message.
        reason: of the finding.
    """
    assert result.grade is not None
    message = f"{prefix}{result.rule.sentence(result.evidence)}"
    return Finding(code, _SEVERITIES[result.grade], result.path or path, message, result.offset, reason=reason)
