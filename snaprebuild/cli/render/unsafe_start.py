"""The first line of a verb that writes, where the next start loses partitions, or the producers of some."""

from __future__ import annotations

import os
from collections.abc import Iterable

from snaprebuild.broker.fates import Fate
from snaprebuild.broker.status import fate_groups
from snaprebuild.cli.render.status import fate_sentence, words_after
from snaprebuild.cli.table import middle_cut
from snaprebuild.cli.view import Answer
from snaprebuild.findings import Finding, FindingCause, Severity, pluralize
from snaprebuild.snapshots.plan.plan_model import PartitionPlan

__all__ = ["answer_with_fate", "concerns_of", "lost_at_start", "lost_snapshots_text"]

NAME_COLUMNS = 40
"""Columns of the name of a partition in a first line."""


def concerns_of(plans: Iterable[PartitionPlan]) -> list[Fate]:
    """The fates because of which plans write nothing, without those of old replicas."""
    return [plan.fate for plan in plans if plan.fate is not None and plan.fate.severity is not Severity.NOTE]


def lost_at_start(findings: Iterable[Finding]) -> list[Finding]:
    """Findings about partitions whose producers the next start forgets, without topics that are never uploaded."""
    return [each for each in findings if each.cause is FindingCause.EMPTY_AT_NEXT_START and each.severity is not Severity.NOTE]


def lost_snapshots_text(findings: Iterable[Finding]) -> str:
    """A sentence about the partitions whose producers the next start forgets; empty without any.

    Args:
        findings: of the command.
    """
    lost = lost_at_start(findings)
    if not lost:
        return ""
    name = middle_cut(os.path.basename(lost[0].path), NAME_COLUMNS)
    others = f" and {pluralize(len(lost) - 1, 'other')}" if len(lost) > 1 else ""
    return f"The start forgets the producers of {name}{others}."


def answer_with_fate(answer: Answer, plans: Iterable[PartitionPlan], selected: list[str], of_start: Iterable[Fate] = ()) -> Answer:
    """An answer, preceded by the worst fate of the next start.

    Where something was left out for a fate, the next command shows all of them. Where nothing is planned, it is that of the fate.

    Args:
        answer: of a verb that writes, with the words of its next command.
        plans: of its partitions.
        selected: words that select them.
        of_start: all fates, if the verb has judged those of partitions to which nothing is written, too.
    """
    plans = list(plans)
    left_out = concerns_of(plans)
    groups = fate_groups([fate for fate in of_start if fate.severity is not Severity.NOTE] or left_out)
    if not groups:
        return answer
    text, following = answer
    if left_out:
        following = ["scan", *selected]
    elif not any(plan.all_boundaries for plan in plans):
        following = words_after(groups[0], selected)
    return f"{fate_sentence(groups[0])} {text}", following
