"""The verdict on a replica as a source, as documents show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from snaprebuild.published import Natural, Part, one_of

__all__ = ["RuleName", "VerdictSummary"]

RuleName = Annotated[str, one_of(*(f"R{number}" for number in range(1, 14)))]


class VerdictSummary(Part, frozen=True):
    """Whether this replica may be a source (docs/reference/cluster-rules.md)."""

    purpose: Annotated[str, one_of("rebuild", "upload", "bootstrap")]
    outcome: Annotated[str, one_of("TRUSTED", "TRUSTED_BELOW", "UNKNOWN", "REJECTED")]
    trusted_below: Natural | None
    """Offset; null if no rule limits it."""
    rule: RuleName | None
    """The first rule that fails, or is unknown, or that limits the offset."""
    reason: str | None
    """Evidence of that rule."""
    unknown_rules: Sequence[RuleName]
    """Rules whose evidence should exist: it is missing, not readable, or contradicts itself."""
    not_applicable_rules: Sequence[RuleName]
    """Rules for which this kind of cluster, or this question, has no evidence."""
    rules_without_evidence: Sequence[RuleName]
    """Equal to unknown_rules."""
    asserted_by_operator: Sequence[str]
