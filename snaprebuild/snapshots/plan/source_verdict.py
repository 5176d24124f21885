"""The verdict on a replica as a source, as documents show it. ``cluster.source_check`` judges; a plan only carries its verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from snaprebuild.published import Natural, Part, one_of

__all__ = ["Purpose", "RuleNumber", "VerdictOutcome", "VerdictSummary"]

RuleNumber = Annotated[str, one_of(*(f"R{number}" for number in range(1, 14)))]
"""The number of a rule of ``cluster source``."""


class Purpose(StrEnum):
    """The use of a replica as a source."""

    REBUILD = "rebuild"
    """Snapshots next to its own segments: they describe local bytes, whatever the ISR."""
    UPLOAD = "upload"
    """Copies of its segments in remote storage, which become the log for everybody."""
    BOOTSTRAP = "bootstrap"
    """The log of another replica."""


class VerdictOutcome(StrEnum):
    """Whether a replica may be a source."""

    TRUSTED = "TRUSTED"
    TRUSTED_BELOW = "TRUSTED_BELOW"
    """Below an offset."""
    UNKNOWN = "UNKNOWN"
    """Nothing rejects it, and evidence that should be there is missing."""
    REJECTED = "REJECTED"


class VerdictSummary(Part, frozen=True):
    """Whether this replica may be a source (docs/reference/cluster-rules.md)."""

    purpose: Purpose
    outcome: VerdictOutcome
    trusted_below: Natural | None
    """Offset; null if no rule limits it."""
    rule: RuleNumber | None
    """The first rule that fails, or is unknown, or that limits the offset."""
    reason: str | None
    """Evidence of that rule."""
    unknown_rules: tuple[RuleNumber, ...]
    """Rules whose evidence should exist: it is missing, not readable, or contradicts itself."""
    not_applicable_rules: tuple[RuleNumber, ...]
    """Rules for which this kind of cluster, or this question, has no evidence."""
    asserted_by_operator: tuple[str, ...]
