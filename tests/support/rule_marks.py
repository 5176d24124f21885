"""The results of rules of ``cluster source`` as their documents tell them apart: a rule that holds may have a reservation."""

from snaprebuild.cluster.rule_result import Grade, RuleState
from snaprebuild.cluster.source_check.rules import SourceRuleResult

Mark = tuple[RuleState, Grade | None]
HOLDS: Mark = (RuleState.HOLDS, None)
WARNS: Mark = (RuleState.HOLDS, Grade.INFO)
REJECTS: Mark = (RuleState.BROKEN, Grade.REFUSAL)
UNKNOWN: Mark = (RuleState.UNKNOWN, None)
NOT_APPLICABLE: Mark = (RuleState.NOT_APPLICABLE, None)
MARKS = (HOLDS, WARNS, REJECTS, UNKNOWN, NOT_APPLICABLE)


def mark_of(result: SourceRuleResult) -> Mark:
    """State and grade."""
    return result.state, result.grade
