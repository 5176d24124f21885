"""Plans and rebuilds as JSON documents (``snaprebuild.plan/1``, ``snaprebuild.rebuild/1``; docs/json.md) and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from snaprebuild.cli.result import labels_of, print_table, print_text, shown, size_text, time_text, unless_unread
from snaprebuild.cluster.source.verifier import verdict_json
from snaprebuild.findings import pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.engine.partition_task import NO_CACHE_HITS
from snaprebuild.snapshots.plan.placement_rules import is_relevant_gap
from snaprebuild.snapshots.rebuild.result import EQUAL, REFUSED, SKIPPED, WOULD_WRITE, WRITTEN
from snaprebuild.snapshots.source.boundary_needs import NeedCounts
from snaprebuild.storage.store import absolute, is_object

if TYPE_CHECKING:
    from snaprebuild.findings import Finding
    from snaprebuild.replay.difference import Comparison
    from snaprebuild.snapshots.engine.partition_task import CacheHits
    from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan
    from snaprebuild.snapshots.rebuild.result import BoundaryResult, PartitionResult, RebuildResult
    from snaprebuild.snapshots.source.boundary_needs import BoundaryNeeds

__all__ = [
    "boundary_json",
    "comparison_json",
    "effects_json",
    "needs_json",
    "plan_document",
    "print_plan",
    "print_rebuild",
    "rebuild_document",
]


def plan_document(plan: Plan) -> dict[str, object]:
    """The JSON document of a plan."""
    rate = plan.rate_bytes_per_second
    return {
        "request": plan.request.as_json(),
        "as_of_ms": plan.clock.as_of_ms,
        "expiration_ms": plan.clock.expiration_ms,
        "bytes_to_read": plan.bytes_least,
        "bytes_to_read_most": plan.bytes_most,
        "rate_bytes_per_second": None if rate is None else round(rate),
        "seconds_estimated": None if rate is None else round(plan.bytes_least / rate, 3),
        "retention_ms": plan.retention_ms,
        "retention_source": plan.retention_source,
        "counts": asdict(plan.counts),
        "partitions": [_partition_plan(partition) for partition in plan.partitions],
    }


def _partition_plan(plan: PartitionPlan) -> dict[str, object]:
    segments = plan.source.directory.segments
    return {
        "path": plan.source.directory.path,
        "topic_partition": plan.source.topic_partition,
        "target": plan.target,
        "segments": len(segments),
        "log_start_offset": plan.source.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "replay_from_offset": segments[plan.replay_index].base_offset if plan.boundaries else None,
        "replay_reason": plan.replay_reason,
        "bytes_to_read": plan.bytes_least,
        "bytes_to_read_most": plan.bytes_most,
        "retention_frees_ms": plan.retention_frees_ms,
        "fault": plan.fault,
        **needs_json(plan.needs),
        "verdict": verdict_json(plan.verdict),
        "boundaries": [asdict(boundary) for boundary in plan.boundaries],
        "not_planned": _not_planned_json(plan),
    }


def _not_planned_json(plan: PartitionPlan) -> list[dict[str, object]]:
    return [
        {"offset": offset, "action": REFUSED if is_relevant_gap(plan, offset, reason) else SKIPPED, "reason": reason}
        for offset, reason in plan.not_planned
    ]


def needs_json(needs: BoundaryNeeds) -> dict[str, object]:
    """The boundaries of a partition that have no snapshot in the log directory: offsets of the missing ones, counts of the others."""
    return asdict(needs)


def print_plan(plan: Plan) -> None:
    """A table of partitions, the most expensive first, and what is worth a sentence."""
    busy = [partition for partition in plan.partitions if partition.boundaries]
    labels = labels_of(partition.source for partition in plan.partitions)
    rows = []
    for partition in sorted(busy, key=lambda each: -each.bytes_least):
        base = partition.source.directory.segments[partition.replay_index].base_offset
        classes = Counter(SnapshotClass(boundary.expected_class).confidence for boundary in partition.boundaries)
        frees = "-" if partition.retention_frees_ms is None else time_text(partition.retention_frees_ms)
        if partition.retention_frees_ms is not None and partition.source.is_tiered:
            frees += " (loss: not uploaded)"
        expected = ", ".join(f"{count} {name}" for name, count in classes.items())
        label = labels[partition.source.directory.path]
        row = (label, len(partition.boundaries), base, partition.replay_reason, size_text(partition.bytes_least))
        rows.append((*row, expected, frees))
    count = sum(len(partition.boundaries) for partition in busy)
    if rows:
        columns = ("partition", "snapshots", "replay from", "because", "to read", "confidence", "retention deletes it")
        title = f"{pluralize(count, 'snapshot')} in {len(busy)} of {pluralize(len(plan.partitions), 'partition')}"
        print_table(title, columns, rows, right=("snapshots", "replay from", "to read"))
    else:
        print_text(f"{_nothing_text(plan.counts.missing, plan.findings)} in {pluralize(len(plan.partitions), 'partition')}")
    if plan.rate_bytes_per_second:
        seconds = plan.bytes_least / plan.rate_bytes_per_second
        rate = size_text(int(plan.rate_bytes_per_second))
        amount = f"{size_text(plan.bytes_least)}, at most {size_text(plan.bytes_most)}"
        print_text(f"to read: {amount}; about {seconds:.1f} s at the measured {rate}/s")
    if any(partition.retention_frees_ms is not None for partition in busy):
        print_text(
            f"retention: assumes {plan.retention_source}. While remote storage is off, you can wait for that date instead. With remote "
            "storage on, the date is a loss: since 3.7.1 Kafka then deletes segments that were never uploaded"
        )
    _print_not_planned(plan)
    _print_live_brokers(plan)


def _print_not_planned(plan: Plan) -> None:
    """What has no snapshot and gets none: for each reason how many, and what could not be planned at all."""
    reasons = Counter(
        (reason, REFUSED if is_relevant_gap(partition, offset, reason) else SKIPPED)
        for partition in plan.partitions
        for offset, reason in partition.not_planned
    )
    for (reason, action), count in reasons.items():
        print_text(f"{action}: {pluralize(count, 'boundary', 'boundaries')}: {reason}")
    rejected = sum(partition.fault is not None and partition.verdict is not None for partition in plan.partitions)
    if rejected:
        print_text(
            f"refused: {pluralize(rejected, 'partition')} that may be no source; run `snaprebuild cluster source` (named on stderr)"
        )
    faults = sum(partition.fault is not None and partition.verdict is None for partition in plan.partitions)
    if faults:
        print_text(f"failed: {pluralize(faults, 'partition')} that cannot be read (named on stderr)")


def _print_live_brokers(plan: Plan) -> None:
    if plan.request.in_place and not plan.request.broker_running and any(partition.boundaries for partition in plan.partitions):
        for finding in plan.findings:
            if finding.code == "live-broker":
                print_text(f"a live broker holds {shown(finding.path)}: stop it first, or write elsewhere with --out")


def rebuild_document(result: RebuildResult, effects: str | None) -> dict[str, object]:
    """The JSON document of a rebuild, with the directory of kept effects as it was given."""
    plan = result.plan
    return {
        "request": plan.request.as_json(),
        "as_of_ms": plan.clock.as_of_ms,
        "expiration_ms": plan.clock.expiration_ms,
        "dry_run": result.is_dry_run,
        "receipt": result.receipt,
        "staged_plan": result.staged_plan,
        "effects": effects_json(effects, (partition.outcome.cache_hits for partition in result.partitions)),
        "takes_effect": "when a broker next loads the log, at its start" + (", behind `install`" if plan.request.stage else ""),
        "counts": asdict(NeedCounts.of(partition.needs for partition in result.partitions)),
        "partitions": [_partition_result(partition) for partition in result.partitions],
        "differences_not_listed": result.differences_not_listed,
        "totals": result.totals,
    }


def _partition_result(result: PartitionResult) -> dict[str, object]:
    directory = result.plan.source.directory
    return {
        "path": directory.path,
        "topic_partition": result.plan.source.topic_partition,
        "target": result.plan.target,
        "inputs": [[segment.log.name, *segment.log.identity.row] for segment in directory.segments],
        "log_start_offset": result.plan.source.log_start_offset,
        "log_end_offset": result.plan.log_end_offset,
        "replay_from_offset": directory.segments[result.outcome.replay_index].base_offset
        if result.boundaries and directory.segments
        else None,
        "replay_reason": result.outcome.replay_reason,
        "bytes_read": result.outcome.bytes_read,
        "from_effects": result.outcome.cache_hits.as_json(),
        "seconds": round(result.outcome.seconds, 4),
        **needs_json(result.needs),
        "verdict": verdict_json(result.plan.verdict),
        "boundaries": [boundary_json(boundary) for boundary in result.boundaries],
        "not_planned": _not_planned_json(result.plan),
    }


def boundary_json(boundary: BoundaryResult) -> dict[str, object]:
    """What became of a boundary, as plain values."""
    return {
        "offset": boundary.offset,
        "is_log_end": boundary.is_log_end,
        "action": boundary.action,
        "class": None if boundary.snapshot_class is None else boundary.snapshot_class.value,
        "reasons": list(boundary.reasons),
        "entries": boundary.entries,
        "path": boundary.path,
        "set_aside": boundary.set_aside,
        "comparison": None if boundary.comparison is None else comparison_json(boundary.comparison),
    }


def effects_json(path: str | None, found: Iterable[CacheHits]) -> dict[str, object] | None:
    """The directory of kept effects, and what came from there; None without one."""
    return None if path is None else {"path": absolute(path), **sum(found, NO_CACHE_HITS).as_json()}


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """A comparison as plain values."""
    differences = [{**asdict(difference), "kind": difference.kind.value} for difference in comparison.differences]
    return {**asdict(comparison), "status": comparison.status.value, "differences": differences}


def print_rebuild(result: RebuildResult) -> None:
    """A table of partitions, then one line of totals, and what else became of the plan."""
    rows = []
    labels = labels_of(partition.plan.source for partition in result.partitions)
    for partition in result.partitions:
        if not partition.boundaries:
            continue
        actions = Counter(boundary.action for boundary in partition.boundaries)
        classes = Counter(
            boundary.snapshot_class.confidence for boundary in partition.boundaries if boundary.snapshot_class is not None
        )
        first, last = partition.boundaries[0].offset, partition.boundaries[-1].offset
        offsets = f"{first} .. {last}" if first != last else str(first)
        entries = max((boundary.entries or 0 for boundary in partition.boundaries), default=0)
        what = ", ".join(f"{count} {name}" for name, count in classes.items()) or "-"
        read, target = size_text(partition.outcome.bytes_read), shown(partition.plan.target)
        label = labels[partition.plan.source.directory.path]
        rows.append((label, offsets, _actions_text(actions), what, entries, read, target))
    totals = Counter(boundary.action for partition in result.partitions for boundary in partition.boundaries)
    if rows:
        columns = ("partition", "boundaries", "done", "confidence", "producers", "read", "directory")
        print_table(_title(result, totals["written"]), columns, rows, right=("producers", "read"))
    done = _actions_text(totals) or _nothing_text(result.plan.counts.missing, result.findings)
    print_text(f"{pluralize(len(result.partitions), 'partition')}: {done}")
    _print_not_planned(result.plan)
    if result.is_dry_run:
        _print_live_brokers(result.plan)
    aside = sum(boundary.set_aside is not None for partition in result.partitions for boundary in partition.boundaries)
    if aside:
        print_text(f"{pluralize(aside, 'wrong snapshot')} set aside beside the new one, as <offset>.snapshot.set-aside.<number>")
    if result.receipt is not None:
        in_store = any(is_object(partition.plan.target) for partition in result.partitions)
        undone = "" if in_store else " (`snaprebuild undo` takes back what it lists)"
        print_text(f"receipt: {shown(result.receipt)}{undone}")
    if result.staged_plan is not None:
        states = sum(boundary.exists for partition in result.partitions for boundary in partition.plan.boundaries)
        if states:
            print_text(f"{states} of them stand in the log directory already: states from which what closes later is replayed")
        print_text(f"Nothing was written there. With the broker stopped: snaprebuild install {shown(result.staged_plan)}")
    if result.plan.request.broker_running:
        for beside in dict.fromkeys(each.message for each in result.plan.findings if each.code == "beside-broker"):
            print_text(f"{beside[0].upper()}{beside[1:]}.")
    elif totals["written"] and result.plan.request.in_place:
        print_text("The snapshots take effect when the broker next starts.")


def _nothing_text(missing: int, findings: Iterable[Finding]) -> str:
    """The result of a plan without a boundary."""
    if missing:
        return f"{pluralize(missing, 'snapshot is missing', 'snapshots are missing')}, and none is written"
    return unless_unread("nothing to rebuild", findings)


def _title(result: RebuildResult, written: int) -> str:
    unsound = sum(
        boundary.snapshot_class is SnapshotClass.UNSOUND and boundary.action in (WRITTEN, WOULD_WRITE, EQUAL)
        for partition in result.partitions
        for boundary in partition.boundaries
    )
    # A file in DIR looks like any other: its class is in this result alone.
    if result.is_dry_run:
        return "Dry run: nothing was written" + (
            f"; {pluralize(unsound, 'snapshot is', 'snapshots are')} UNSOUND" if unsound else ""
        )
    done = "staged" if result.plan.request.stage else "written"
    title = f"{pluralize(written, 'snapshot')} {done}" if written else f"Nothing was {done}"
    return (
        f"{title}; {pluralize(unsound, 'snapshot is', 'snapshots are')} UNSOUND: do not use {'it' if unsound == 1 else 'them'}"
        if unsound
        else title
    )


def _actions_text(actions: Counter[str]) -> str:
    return ", ".join(f"{count} {action.replace('_', ' ')}" for action, count in actions.items())
