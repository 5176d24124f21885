"""Plans as the commands make them: the source of each is judged with the rules of the cluster."""

from __future__ import annotations

from typing import Any

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.snapshots.plan import plan_file, planner
from snaprebuild.snapshots.plan.plan_model import Plan, Request

__all__ = ["load_plan", "make_plan"]


def make_plan(request: Request, **options: Any) -> Plan:
    """As ``planner.make_plan``."""
    return planner.make_plan(request, judge_plans, **options)


def load_plan(path: str) -> Plan:
    """As ``plan_file.load_plan``."""
    return plan_file.load_plan(path, judge_plans)
