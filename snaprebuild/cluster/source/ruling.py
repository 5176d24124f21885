"""What one rule says of a replica."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Ruling", "State", "fails", "not_applicable", "not_known", "passes", "warns"]


class State(StrEnum):
    """How a rule came out."""

    PASS = "pass"  # noqa: S105  # no password
    WARN = "warn"
    """It does not reject, and somebody should look."""
    FAIL = "fail"
    NOT_KNOWN = "not-known"
    """Evidence that should be there is missing, cannot be read, or contradicts itself."""
    NOT_APPLICABLE = "not-applicable"
    """Nothing is missing: this kind of cluster, or this question, has no such evidence."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a rule says.

    Attributes:
        state: how it came out.
        evidence: the facts, one sentence.
        limit: the replica is trusted below this offset only; None for all of it.
        is_word: it rests on the operator's word.
        is_damaged: a file of the replica that could reject it is damaged, or missing although each broker of this kind writes it.
    """

    state: State
    evidence: str
    limit: int | None = None
    is_word: bool = False
    is_damaged: bool = False


def passes(evidence: str, limit: int | None = None, *, is_word: bool = False) -> Ruling:
    """A rule that is kept."""
    return Ruling(State.PASS, evidence, limit, is_word)


def warns(evidence: str, limit: int | None = None) -> Ruling:
    """One that is not quite."""
    return Ruling(State.WARN, evidence, limit)


def fails(evidence: str) -> Ruling:
    """One that is broken."""
    return Ruling(State.FAIL, evidence)


def not_known(evidence: str, limit: int | None = None, *, is_damaged: bool = False) -> Ruling:
    """A rule whose evidence should be there, and is missing, cannot be read, or contradicts itself."""
    return Ruling(State.NOT_KNOWN, evidence, limit, is_damaged=is_damaged)


def not_applicable(evidence: str) -> Ruling:
    """A rule whose evidence this kind of cluster, or this question, does not have."""
    return Ruling(State.NOT_APPLICABLE, evidence)
