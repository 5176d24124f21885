"""Installs as JSON documents and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from snaprebuild.cli.render.rebuild import request_words
from snaprebuild.cli.render.unsafe_start import concerns_of
from snaprebuild.cli.result import print_table, print_text, print_undo, shown, size_text, time_text
from snaprebuild.cli.table import counts_text, range_text
from snaprebuild.documents.common import ActionTotals
from snaprebuild.documents.install import Install, Partition, PhaseSeconds
from snaprebuild.findings import first_of, pluralize
from snaprebuild.snapshots.rebuild.result import NOT_DONE, WRITTEN
from snaprebuild.storage.partition_names import names_in

if TYPE_CHECKING:
    from snaprebuild.snapshots.rebuild.result import PartitionResult, RebuildResult
    from snaprebuild.snapshots.staging.staged_plan import StagedPartition, StagedPlan

__all__ = ["install_answer", "install_document", "print_install"]


def install_document(plan: StagedPlan, result: RebuildResult, seconds: Mapping[str, float], deadline: int | None) -> Install:
    """The JSON document.

    Args:
        plan: that was installed.
        result: of the run.
        seconds: of each phase.
        deadline: as it was given, in seconds.
    """
    assert plan.sha256 is not None, "it was loaded"
    staged = _by_path(plan)
    return Install(
        plan=plan.path,
        plan_sha256=plan.sha256,
        staged_ms=plan.staged_ms,
        log_dirs=plan.log_dirs,
        dry_run=result.is_dry_run,
        deadline_seconds=deadline,
        receipt=result.receipt,
        takes_effect="when a broker next loads the log, at its start",
        elapsed_seconds=PhaseSeconds(**{phase: round(each, 4) for phase, each in seconds.items()}),
        totals=ActionTotals(**result.totals),
        partitions=[_partition(staged[each.path], each) for each in result.partitions],
    )


def _by_path(plan: StagedPlan) -> dict[str, StagedPartition]:
    return {each.path: each for each in plan.partitions}


def _partition(staged: StagedPartition, result: PartitionResult) -> Partition:
    return Partition(
        **names_in(staged.topic_partition),
        path=staged.path,
        staged=staged.target,
        blocked_bytes=staged.bytes_blocked,
        read_bytes=result.outcome.bytes_read,
        boundaries=result.boundaries,
        touched_segment=result.touched_at if result.not_linked else None,
        replayed_not_linked=result.not_linked,
    )


def install_answer(plan: StagedPlan, result: RebuildResult) -> tuple[str, list[str]]:
    """The answer, and the words of the next command. Another line has the segments that were touched: a replay takes longer than links."""
    text, following = _answer(plan, result)
    touched = _touched_text(result)
    if touched:
        text = f"{text}\n{touched}"
    return text, following


def _touched_text(result: RebuildResult) -> str:
    touched = [each for each in result.partitions if each.not_linked]
    if not touched:
        return ""
    count = sum(len(each.not_linked) for each in touched)
    names = first_of([f"{each.plan.source.topic_partition} from the segment at {each.touched_at}" for each in touched])
    verb = "to replay" if result.is_dry_run else "replayed"
    return f"Note: {pluralize(count, 'snapshot')} {verb}, not linked: segments were touched since they were staged ({names})."


def _answer(plan: StagedPlan, result: RebuildResult) -> tuple[str, list[str]]:
    totals = Counter(result.totals)
    partitions = pluralize(len(result.partitions), "partition")
    others = counts_text({action: count for action, count in totals.items() if action != WRITTEN})
    partitions += f"; {pluralize(result.not_staged, 'missing snapshot')} not staged" if result.not_staged else ""
    if result.is_dry_run:
        return f"Dry run: nothing was changed; {others or 'nothing'} in {partitions}.", ["install", shown(plan.path)]
    if totals[WRITTEN]:
        answer = f"{pluralize(totals[WRITTEN], 'snapshot')} installed in {partitions}{f'; {others}' if others else ''}."
    else:
        answer = f"Nothing was installed; {others or 'nothing'} in {partitions}."
    may_start = not concerns_of(result.plan.partitions) and not any(fate.holds_broker for fate in result.plan.fates)
    if result.not_staged or any(totals[action] for action in NOT_DONE):
        request = plan.request
        stages = [word for directory in request.destination.directories for word in ("--to", shown(directory))]
        return f"{answer} You can start the broker now." if may_start else answer, ["stage", *request_words(request), *stages]
    if totals[WRITTEN] and may_start:
        answer += " Start the broker: they take effect then."
    return answer, [] if result.receipt is None else ["verify", "--receipt", shown(result.receipt)]


def print_install(plan: StagedPlan, result: RebuildResult, seconds: Mapping[str, float]) -> None:
    """A table of partitions, then phases with their seconds, and where the receipt is."""
    rows = []
    by_path = _by_path(plan)
    for each in sorted(result.partitions, key=lambda each: not any(one.action in NOT_DONE for one in each.boundaries)):
        boundaries = each.boundaries
        offsets = range_text([boundary.offset for boundary in boundaries])
        actions = Counter(boundary.action for boundary in boundaries)
        staged = by_path[each.path]
        read = size_text(each.outcome.bytes_read)
        blocked = size_text(staged.bytes_blocked)
        rows.append((staged.topic_partition, blocked, offsets, counts_text(actions), read, shown(each.path)))
    if rows:
        columns = ("partition", "cannot upload", "boundaries", "done", "replayed", "directory")
        print_table(None, columns, rows, right=("cannot upload", "replayed"), drop=("replayed", "cannot upload", "boundaries"))
    phases = ", ".join(f"{phase} {each:.2f} s" for phase, each in seconds.items())
    print_text(f"staged at {time_text(plan.staged_ms)}; in {sum(seconds.values()):.2f} s: {phases}")
    if result.is_dry_run:
        print_text(f"SHA-256 of the plan: {plan.sha256}")
    if result.totals.get(WRITTEN):
        print_text("The staged files are the same files: they may be removed.")
    print_undo(result.receipt)
