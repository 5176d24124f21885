"""The first line of a verb that leaves partitions out because of what the next start does to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from snaprebuild.broker.status import fate_groups
from snaprebuild.cli.render.status import fate_sentence
from snaprebuild.findings import Severity

if TYPE_CHECKING:
    from snaprebuild.broker.fates import Fate
    from snaprebuild.snapshots.plan.plan_model import PartitionPlan

__all__ = ["answer_with_fate", "concerns_of"]


def concerns_of(plans: Iterable[PartitionPlan]) -> list[Fate]:
    """The fates because of which plans write nothing, without those of old replicas."""
    return [plan.fate for plan in plans if plan.fate is not None and plan.fate.severity is not Severity.NOTE]


def answer_with_fate(answer: tuple[str, list[str]], plans: Iterable[PartitionPlan], selected: list[str]) -> tuple[str, list[str]]:
    """An answer, preceded by the worst fate because of which something was left out. The next command shows all of them.

    Args:
        answer: of a verb that writes, with the words of its next command.
        plans: of its partitions.
        selected: words that select them.
    """
    fates = concerns_of(plans)
    if not fates:
        return answer
    return f"{fate_sentence(fate_groups(fates)[0])} {answer[0]}", ["scan", *selected]
