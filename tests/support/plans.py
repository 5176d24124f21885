"""Plans as the commands make them: the source of each is judged with the rules of the cluster."""

from typing import Any

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.snapshots.plan import plan_file, planner
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.run import Run

__all__ = ["NOW_MS", "load_plan", "make_plan", "planned"]

NOW_MS = 1_795_270_000_000
"""After all bundled directories were made, and within the expiration of their producers."""


def make_plan(request: RebuildRequest, run: Run | None = None, **options: Any) -> Plan:
    """Calls ``planner.make_plan`` with the judge of the commands."""
    return planner.make_plan(request, judge_plans, run, **options)


def load_plan(path: str) -> Plan:
    """Calls ``plan_file.load_plan`` with the judge of the commands."""
    return plan_file.load_plan(path, judge_plans)


def planned(*paths: object, **options: Any) -> Plan:
    """A plan for these paths as of ``NOW_MS``."""
    return make_plan(RebuildRequest(tuple(str(path) for path in paths), **{"as_of_ms": NOW_MS, **options}))
