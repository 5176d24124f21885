"""Installs as JSON documents (``snaprebuild.install/1``; docs/json.md) and as tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from snaprebuild.cli.render.rebuild import boundary_json
from snaprebuild.cli.result import print_table, print_text, shown, size_text, time_text
from snaprebuild.findings import pluralize

if TYPE_CHECKING:
    from snaprebuild.snapshots.staging.install import InstalledPartition, InstallResult

__all__ = ["install_document", "print_install"]

ROWS_MAX = 40


def install_document(result: InstallResult, deadline: int | None) -> dict[str, object]:
    """The JSON document, with the deadline as it was given, in seconds."""
    plan = result.plan
    return {
        "plan": plan.path,
        "staged_ms": plan.staged_ms,
        "log_dirs": list(plan.log_dirs),
        "dry_run": result.is_dry_run,
        "deadline": deadline,
        "receipt": result.receipt,
        "takes_effect": "when a broker next loads the log, at its start",
        "seconds": {phase: round(seconds, 4) for phase, seconds in result.seconds.items()},
        "partitions": [_partition(each) for each in result.partitions],
        "totals": dict(_totals(result)),
    }


def _partition(installed: InstalledPartition) -> dict[str, object]:
    staged = installed.staged
    return {
        "path": staged.path,
        "topic_partition": staged.topic_partition,
        "staged": staged.target,
        "bytes_blocked": staged.bytes_blocked,
        "bytes_read": 0 if installed.result is None else installed.result.outcome.bytes_read,
        "boundaries": [boundary_json(boundary) for boundary in installed.boundaries],
    }


def _totals(result: InstallResult) -> Counter[str]:
    return Counter(boundary.action for each in result.partitions for boundary in each.boundaries)


def print_install(result: InstallResult) -> None:
    """A table of partitions, then totals, phases, and where the receipt is."""
    rows = []
    for each in result.partitions[:ROWS_MAX]:
        boundaries = each.boundaries
        offsets = "-"
        if boundaries:
            first, last = boundaries[0].offset, boundaries[-1].offset
            offsets = f"{first} .. {last}" if first != last else str(first)
        actions = Counter(boundary.action for boundary in boundaries)
        read = 0 if each.result is None else each.result.outcome.bytes_read
        blocked = size_text(each.staged.bytes_blocked)
        rows.append((each.staged.topic_partition, blocked, offsets, _text(actions), size_text(read), shown(each.staged.path)))
    totals = Counter(boundary.action for each in result.partitions for boundary in each.boundaries)
    title = "Dry run: nothing was changed" if result.is_dry_run else "Nothing was installed"
    if totals["written"]:
        title = f"{pluralize(totals['written'], 'snapshot')} installed"
    if rows:
        columns = ("partition", "blocked", "boundaries", "done", "replayed", "directory")
        print_table(title, columns, rows, right=("blocked", "replayed"))
    if len(result.partitions) > ROWS_MAX:
        print_text(f"and {pluralize(len(result.partitions) - ROWS_MAX, 'more partition')} (--output json lists them)")
    partitions = pluralize(len(result.partitions), "partition")
    print_text(f"{partitions}, staged at {time_text(result.plan.staged_ms)}: {_text(totals) or 'nothing'}")
    phases = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in result.seconds.items())
    print_text(f"in {sum(result.seconds.values()):.2f} s: {phases}")
    if result.receipt is not None:
        print_text(f"receipt: {shown(result.receipt)} (`snaprebuild undo` takes back what it lists)")
    if totals["written"]:
        print_text(
            "The snapshots take effect when the broker next starts. The staged files are the same files: they may be removed."
        )


def _text(actions: Counter[str]) -> str:
    return ", ".join(f"{count} {action.replace('_', ' ')}" for action, count in actions.items())
