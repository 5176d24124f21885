"""Installs as JSON documents and as tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from snaprebuild.cli.render.rebuild import request_words
from snaprebuild.cli.render.shared_parts import replayed_boundary
from snaprebuild.cli.render.unsafe_start import concerns_of
from snaprebuild.cli.result import print_table, print_text, print_undo, shown, size_text, time_text
from snaprebuild.cli.table import counts_text, range_text
from snaprebuild.documents.common import ActionTotals, names_in
from snaprebuild.documents.install import Install, Partition, PhaseSeconds
from snaprebuild.findings import first_of, pluralize
from snaprebuild.snapshots.rebuild.result import NOT_DONE, WRITTEN

if TYPE_CHECKING:
    from snaprebuild.snapshots.staging.install_result import InstalledPartition, InstallResult

__all__ = ["install_answer", "install_document", "print_install"]


def install_document(result: InstallResult, deadline: int | None) -> Install:
    """The JSON document, with the deadline as it was given, in seconds."""
    plan = result.plan
    assert plan.sha256 is not None, "it was loaded"
    return Install(
        plan=plan.path,
        plan_sha256=plan.sha256,
        staged_ms=plan.staged_ms,
        log_dirs=plan.log_dirs,
        dry_run=result.is_dry_run,
        deadline_seconds=deadline,
        receipt=result.receipt,
        takes_effect="when a broker next loads the log, at its start",
        elapsed_seconds=PhaseSeconds(**{phase: round(seconds, 4) for phase, seconds in result.seconds.items()}),
        totals=ActionTotals(**_totals(result)),
        partitions=[_partition(each) for each in result.partitions],
    )


def _partition(installed: InstalledPartition) -> Partition:
    staged = installed.staged
    return Partition(
        **names_in(staged.topic_partition),
        path=staged.path,
        staged=staged.target,
        blocked_bytes=staged.bytes_blocked,
        read_bytes=0 if installed.result is None else installed.result.outcome.bytes_read,
        boundaries=[replayed_boundary(boundary) for boundary in installed.boundaries],
        touched_segment=installed.touched_at if installed.not_linked else None,
        replayed_not_linked=installed.not_linked,
    )


def _totals(result: InstallResult) -> Counter[str]:
    return Counter(boundary.action for each in result.partitions for boundary in each.boundaries)


def install_answer(result: InstallResult) -> tuple[str, list[str]]:
    """The answer, and the words of the next command. Another line has the segments that were touched: a replay takes longer than links."""
    text, following = _answer(result)
    touched = _touched_text(result)
    return f"{text}\n{touched}" if touched else text, following


def _touched_text(result: InstallResult) -> str:
    touched = [each for each in result.partitions if each.not_linked]
    if not touched:
        return ""
    count = sum(len(each.not_linked) for each in touched)
    names = first_of([f"{each.staged.topic_partition} from the segment at {each.touched_at}" for each in touched])
    verb = "to replay" if result.is_dry_run else "replayed"
    return f"Note: {pluralize(count, 'snapshot')} {verb}, not linked: segments were touched since they were staged ({names})."


def _answer(result: InstallResult) -> tuple[str, list[str]]:
    totals = _totals(result)
    partitions = pluralize(len(result.partitions), "partition")
    others = counts_text({action: count for action, count in totals.items() if action != WRITTEN})
    partitions += f"; {pluralize(result.not_staged, 'missing snapshot')} not staged" if result.not_staged else ""
    if result.is_dry_run:
        return f"Dry run: nothing was changed; {others or 'nothing'} in {partitions}.", ["install", shown(result.plan.path)]
    if totals[WRITTEN]:
        answer = f"{pluralize(totals[WRITTEN], 'snapshot')} installed in {partitions}{f'; {others}' if others else ''}."
    else:
        answer = f"Nothing was installed; {others or 'nothing'} in {partitions}."
    if result.not_staged or any(totals[action] for action in NOT_DONE):
        request = result.plan.request
        stages = [word for directory in request.destination.directories for word in ("--to", shown(directory))]
        may_start = not concerns_of(each.result.plan for each in result.partitions if each.result is not None)
        return f"{answer} You can start the broker now." if may_start else answer, ["stage", *request_words(request), *stages]
    if totals[WRITTEN]:
        answer += " Start the broker: they take effect then."
    return answer, [] if result.receipt is None else ["verify", "--receipt", shown(result.receipt)]


def print_install(result: InstallResult) -> None:
    """A table of partitions, then phases, and where the receipt is."""
    rows = []
    for each in sorted(result.partitions, key=lambda each: not any(one.action in NOT_DONE for one in each.boundaries)):
        boundaries = each.boundaries
        offsets = range_text([boundary.offset for boundary in boundaries])
        actions = Counter(boundary.action for boundary in boundaries)
        read = 0 if each.result is None else each.result.outcome.bytes_read
        blocked = size_text(each.staged.bytes_blocked)
        rows.append((each.staged.topic_partition, blocked, offsets, counts_text(actions), size_text(read), shown(each.staged.path)))
    if rows:
        columns = ("partition", "cannot upload", "boundaries", "done", "replayed", "directory")
        print_table(None, columns, rows, right=("cannot upload", "replayed"), drop=("replayed", "cannot upload", "boundaries"))
    phases = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in result.seconds.items())
    print_text(f"staged at {time_text(result.plan.staged_ms)}; in {sum(result.seconds.values()):.2f} s: {phases}")
    if result.is_dry_run:
        print_text(f"SHA-256 of the plan: {result.plan.sha256}")
    if _totals(result)[WRITTEN]:
        print_text("The staged files are the same files: they may be removed.")
    print_undo(result.receipt)
