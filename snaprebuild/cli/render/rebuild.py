"""Plans and rebuilds as JSON documents and as tables."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from snaprebuild.cli.render.shared_parts import cache_hits, cache_use, inputs_of, needs_of, replayed_boundary, source_verdict
from snaprebuild.cli.result import labels_of, print_line, print_table, print_text, shown, size_text, time_text, unless_unread
from snaprebuild.cli.table import counts_text, range_text
from snaprebuild.documents.common import NeedTotals
from snaprebuild.documents.plan import NotPlanned, PlannedBoundary, Request
from snaprebuild.documents.plan import Partition as PlannedPartition
from snaprebuild.documents.plan import Plan as PlanDocument
from snaprebuild.documents.rebuild import Partition as RebuiltPartition
from snaprebuild.documents.rebuild import Rebuild, Totals
from snaprebuild.findings import first_of, pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.plan.placement_rules import is_relevant_gap
from snaprebuild.snapshots.rebuild.result import EQUAL, REFUSED, SKIPPED, WOULD_WRITE, WRITTEN
from snaprebuild.snapshots.source.boundary_needs import NeedCounts
from snaprebuild.storage.store import is_object

if TYPE_CHECKING:
    from snaprebuild.findings import Finding
    from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan
    from snaprebuild.snapshots.rebuild.result import PartitionResult, RebuildResult

__all__ = [
    "plan_document",
    "print_plan",
    "print_rebuild",
    "rebuild_document",
]


def plan_document(plan: Plan) -> PlanDocument:
    """The JSON document of a plan."""
    rate = plan.rate_bytes_per_second
    return PlanDocument(
        request=_request(plan),
        as_of_ms=plan.clock.as_of_ms,
        expiration_ms=plan.clock.expiration_ms,
        min_read_bytes=plan.bytes_least,
        max_read_bytes=plan.bytes_most,
        rate_bytes_per_second=None if rate is None else round(rate),
        estimated_seconds=None if rate is None else round(plan.bytes_least / rate, 3),
        retention_ms=plan.retention_ms,
        retention_source=plan.retention_source,
        totals=NeedTotals(**asdict(plan.counts)),
        partitions=[_partition_plan(partition) for partition in plan.partitions],
    )


def _request(plan: Plan) -> Request:
    return msgspec.convert(plan.request.as_json(), Request)


def _partition_plan(plan: PartitionPlan) -> PlannedPartition:
    segments = plan.source.directory.segments
    return PlannedPartition(
        **needs_of(plan.source, plan.needs),
        target=plan.target,
        segments=len(segments),
        log_start_offset=plan.source.log_start_offset,
        log_end_offset=plan.log_end_offset,
        replay_from_offset=segments[plan.replay_index].base_offset if plan.boundaries else None,
        replay_reason=plan.replay_reason,
        min_read_bytes=plan.bytes_least,
        max_read_bytes=plan.bytes_most,
        retention_frees_ms=plan.retention_frees_ms,
        fault=plan.fault,
        boundaries=[PlannedBoundary(**asdict(boundary)) for boundary in plan.boundaries],
        not_planned=_not_planned(plan),
        verdict=source_verdict(plan.verdict),
    )


def _not_planned(plan: PartitionPlan) -> list[NotPlanned]:
    return [
        NotPlanned(offset=offset, action=REFUSED if is_relevant_gap(plan, offset, reason) else SKIPPED, reason=reason)
        for offset, reason in plan.not_planned
    ]


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
        expected = counts_text(classes)
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


def rebuild_document(result: RebuildResult, cache: str | None) -> Rebuild:
    """The JSON document of a rebuild, with the directory of the cache as it was given."""
    plan = result.plan
    needs = asdict(NeedCounts.of(partition.needs for partition in result.partitions))
    return Rebuild(
        request=_request(plan),
        as_of_ms=plan.clock.as_of_ms,
        expiration_ms=plan.clock.expiration_ms,
        dry_run=result.is_dry_run,
        receipt=result.receipt,
        staged_plan=result.staged_plan,
        cache=cache_use(cache, (partition.outcome.cache_hits for partition in result.partitions)),
        takes_effect="when a broker next loads the log, at its start" + (", after `install`" if plan.request.stage else ""),
        totals=Totals(**needs, **result.totals),
        partitions=[_partition_result(partition) for partition in result.partitions],
        differences_not_listed=result.differences_not_listed,
    )


def _partition_result(result: PartitionResult) -> RebuiltPartition:
    source = result.plan.source
    segments = source.directory.segments
    return RebuiltPartition(
        **needs_of(source, result.needs),
        target=result.plan.target,
        inputs=inputs_of(source),
        log_start_offset=source.log_start_offset,
        log_end_offset=result.plan.log_end_offset,
        replay_from_offset=segments[result.outcome.replay_index].base_offset if result.boundaries and segments else None,
        replay_reason=result.outcome.replay_reason,
        read_bytes=result.outcome.bytes_read,
        from_cache=cache_hits(result.outcome.cache_hits),
        elapsed_seconds=round(result.outcome.seconds, 4),
        boundaries=[replayed_boundary(boundary) for boundary in result.boundaries],
        not_planned=_not_planned(result.plan),
        verdict=source_verdict(result.plan.verdict),
    )


def print_rebuild(result: RebuildResult) -> None:
    """A table of partitions, then one line of totals, and what else became of the plan."""
    _print_ways_around_the_lock(result)
    rows = []
    labels = labels_of(partition.plan.source for partition in result.partitions)
    for partition in result.partitions:
        if not partition.boundaries:
            continue
        actions = Counter(boundary.action for boundary in partition.boundaries)
        classes = Counter(
            boundary.snapshot_class.confidence for boundary in partition.boundaries if boundary.snapshot_class is not None
        )
        offsets = range_text([boundary.offset for boundary in partition.boundaries])
        entries = max((boundary.entries or 0 for boundary in partition.boundaries), default=0)
        what = counts_text(classes) or "-"
        read, target = size_text(partition.outcome.bytes_read), shown(partition.plan.target)
        label = labels[partition.plan.source.directory.path]
        rows.append((label, offsets, counts_text(actions), what, entries, read, target))
    totals = Counter(boundary.action for partition in result.partitions for boundary in partition.boundaries)
    if rows:
        columns = ("partition", "boundaries", "done", "confidence", "producers", "read", "directory")
        print_table(_title(result, totals["written"]), columns, rows, right=("producers", "read"))
    done = counts_text(totals) or _nothing_text(result.plan.counts.missing, result.findings)
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


def _print_ways_around_the_lock(result: RebuildResult) -> None:
    """The answer, and what to do next, where a broker in the log directory refused every snapshot."""
    request, sources = result.plan.request, (each.plan.source for each in result.partitions if each.boundaries)
    held = sorted({shown(each.log_dir.path) for each in sources if each.is_broker_running})
    if not held or request.broker_running or set(result.totals) != {REFUSED}:
        return
    properties = [] if request.server_properties is None else ["--server-properties", shown(request.server_properties)]
    words = shlex.join([*map(shown, request.paths), *properties])
    staged = os.path.join(os.path.dirname(held[0]), "staged")
    print_text(f"Refused: a broker, or another run, uses {first_of(held)}.")
    print_text(f"{pluralize(result.totals[REFUSED], 'snapshot is', 'snapshots are')} still missing. Do one of these:")
    print_line("")
    print_line(f"  Restart planned?      snaprebuild stage {words} --to {shlex.quote(staged)}")
    print_line(f"                        Stop the broker. snaprebuild install {shlex.quote(os.path.join(staged, 'plan.jsonl'))}")
    print_line(f"  Broker 2.8 or newer?  snaprebuild rebuild {words} --broker-running")
    print_line(
        f"  Broker stopped?       fuser -v {shlex.quote(os.path.join(held[0], '.lock'))} shows who holds it. Do not delete it."
    )
    print_line("")


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
