"""Plans with the judgement of the cluster's evidence: replicas as sources, the next start, and producer ids."""

from __future__ import annotations

from snaprebuild.cluster.source_check.plan_gate import judge_plans, judge_start
from snaprebuild.findings import Finding
from snaprebuild.snapshots.plan.plan_file import load_plan
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.run import Run, RunFacts, current_time_ms
from snaprebuild.storage.thread_pool import ParallelMap

__all__ = ["judged_plan", "load_judged_plan", "rebuild_findings"]


def judged_plan(request: RebuildRequest, run: Run, *, measure_rate: bool = False, parallel_map: ParallelMap | None = None) -> Plan:
    """``make_plan`` with the judgement of the replicas as sources and of the next start."""
    return make_plan(request, judge_plans, run, measure_rate=measure_rate, parallel_map=parallel_map, judge_start=judge_start)


def load_judged_plan(path: str, run: Run) -> Plan:
    """``load_plan`` with the judgement of the replicas as sources and of the next start."""
    return load_plan(path, judge_plans, judge_start, run)


def rebuild_findings(result: RebuildResult, facts: RunFacts) -> tuple[Finding, ...]:
    """The findings of a rebuild, and those about producers whose ids the cluster has yet to give out.

    These are the producers of batches above the newest snapshots; `scan` compares the snapshots. The metadata logs are read after the
    segments: they have the ids of all producers that wrote before.

    Args:
        result: of the run.
        facts: of the run.
    """
    later = {partition.path: partition.outcome.later_producers for partition in result.partitions}
    if not any(later.values()):
        return result.findings
    import numpy as np

    from formats.partition.producer_snapshot import ENTRY_DTYPE
    from snaprebuild.cluster.scan_producer_ids import producer_id_findings  # loads a scan, which few rebuilds need
    from snaprebuild.snapshots.source.source import Source

    request = result.plan.request
    properties = facts.properties_if_given(request.server_properties)
    partitions = tuple(partition.plan.source for partition in result.partitions if partition.outcome.later_producers)
    source = Source(partitions, (), result.plan.clock.expiration_ms, properties)
    entries = {path: np.frombuffer(data, ENTRY_DTYPE) for path, data in later.items() if data}
    return (*result.findings, *producer_id_findings(source, current_time_ms(), partitions, entries))
