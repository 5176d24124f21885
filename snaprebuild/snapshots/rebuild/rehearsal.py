"""A plan as `plan` shows it: what a run would be refused is known before, and so is what was staged already."""

from __future__ import annotations

from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.rebuild.preflight import with_preflight, without_blocked
from snaprebuild.snapshots.staging.resume import check_staging, earlier_staged_plan, resume_staging

__all__ = ["rehearsed"]


def rehearsed(plan: Plan) -> Plan:
    """The plan after everything that a run checks before it reads segments; nothing is written or locked.

    Raises:
        UsageError, RefusedError: a staging directory cannot be used.
    """
    plan = with_preflight(plan, is_rehearsal=True)
    check_staging(plan)
    before = earlier_staged_plan(plan.request)
    if before is not None:
        plan = with_preflight(resume_staging(plan, before), is_rehearsal=True)
    return without_blocked(plan)
