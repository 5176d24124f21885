"""Verified snapshots as a JSON document and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import asdict

from snaprebuild.cli.answer import SELECTION, expiry_words, given_words
from snaprebuild.cli.printing import print_table, print_text
from snaprebuild.cli.render.shared_parts import cache_use, excused_text, inputs_of, needs_of
from snaprebuild.cli.render.status import (
    LINE_MAX,
    answer_lines,
    can_write,
    forgetful_text,
    is_stray,
    next_of_status,
    nothing_read,
    snapshot_counts,
    waiting_text,
)
from snaprebuild.cli.table import counts_text
from snaprebuild.cli.value_text import labels_of
from snaprebuild.cli.view import Answer, View
from snaprebuild.cluster.judged_verify import JudgedVerify
from snaprebuild.documents.verify import VerifiedPartition, Verify, VerifyTotals
from snaprebuild.findings import deleted_text, pluralize, unread_paths
from snaprebuild.replay.difference import DifferenceKind, EntryDifference, VerifiedSnapshot
from snaprebuild.snapshots.run import run_record
from snaprebuild.snapshots.verify import PartitionVerdict, VerifyResult

__all__ = ["VerifyView"]

DIFFERENCES_SHOWN_MAX = 10


class VerifyView(View):
    """The result of ``verify``."""

    names_unread = True

    def __init__(self, judged: JudgedVerify, cache: str | None, *, details: bool) -> None:
        """Takes the result, the directory of the effects of earlier runs, and whether the table has all snapshots."""
        super().__init__(judged.findings)
        self._judged = judged
        self._result = judged.result
        self._cache = cache
        self._details = details

    def document(self) -> Verify:
        result = self._result
        status = self._judged.status
        statuses = _statuses(each for verdict in result.partitions for each in verdict.outcome.snapshots)
        return Verify(
            run=run_record(verdict.source.log_dir for verdict in result.partitions),
            as_of_ms=result.clock.as_of_ms,
            expiration_ms=result.clock.expiration_ms,
            elapsed_seconds=round(self._judged.elapsed_seconds, 4),
            cache=cache_use(self._cache, (verdict.outcome.cache_hits for verdict in result.partitions)),
            totals=VerifyTotals(**asdict(result.counts), **statuses),
            partitions=[_partition(verdict) for verdict in result.partitions],
            differences_not_listed=result.differences_not_listed,
            status=status.word.value,
            counts=status.counts,
            fates=[fate.document() for group in status.groups for fate in group.fates],
        )

    def answer(self) -> Answer:
        result = self._result
        status = self._judged.status
        findings = self._judged.findings
        if not result.partitions and not status.concerns:
            return nothing_read(findings, status)
        totals = _statuses(each for verdict in result.partitions for each in verdict.outcome.snapshots)
        compared = f"{pluralize(len(result.partitions), 'partition')}: {counts_text(totals) or 'no snapshot'}"
        wrong = f"{pluralize(status.wrong, 'snapshot is', 'snapshots are')} proven wrong" if status.wrong else ""
        suspect = f"{pluralize(status.suspect, 'snapshot is', 'snapshots are')} suspect" if status.suspect else ""
        missing = f"{pluralize(status.missing, 'snapshot is', 'snapshots are')} missing" if status.missing else ""
        waiting = waiting_text(status).capitalize() if status.waiting + status.waiting_unknown else ""
        unjudged = " ".join(filter(None, (_expired_text(result), _unjudged_text(result))))
        whole = ". ".join(filter(None, (wrong, suspect, compared, missing, waiting)))
        alone = ". ".join(filter(None, (wrong, suspect, missing, waiting)))
        selected = given_words(*SELECTION)
        following = next_of_status(
            status,
            selected,
            is_verified=True,
            is_local=all(verdict.source.directory.store.is_local for verdict in result.partitions),
            can_plan=any(can_write(verdict.source, verdict.needs.missing_offsets) for verdict in result.partitions),
            can_replace=any(_is_at_boundary(verdict, each) for verdict in result.partitions for each in verdict.outcome.snapshots),
            are_strays=all(
                is_stray(verdict.source, each.offset)
                for verdict in result.partitions
                for each in verdict.outcome.snapshots
                if each.comparison.proven_wrong
            ),
            writes_empty=bool(forgetful_text(findings)),
            expiry=expiry_words(),
        )
        if status.concerns:
            return answer_lines(status, findings, [whole], [f"{compared}.", unjudged]), following
        affected = sum(bool(each.needs.missing_offsets) for each in result.partitions)
        counts = snapshot_counts(status, len(result.partitions), affected, is_incomplete=bool(unread_paths(findings)))
        if not unread_paths(findings) and len(f"{deleted_text(findings)}{whole}.") <= LINE_MAX:
            return answer_lines(status, findings, [whole], [unjudged]), following
        return answer_lines(status, findings, [alone, *counts] if alone else counts, [f"{compared}.", unjudged]), following

    def print_table(self) -> None:
        result = self._result
        labels = labels_of(verdict.source for verdict in result.partitions)
        rows = []
        for verdict in sorted(result.partitions, key=_urgency):
            counts = counts_text(_statuses(verdict.outcome.snapshots)) or "-"
            if _is_unjudged(verdict):
                counts += "; not judged to the end"
            label = labels[verdict.source.directory.path]
            rows.append((label, len(verdict.outcome.snapshots), len(verdict.needs.missing_offsets) or "-", counts))
        if rows:
            print_table(None, ("partition", "snapshots", "missing", "verdict"), rows, right=("snapshots", "missing"))
        if text := forgetful_text(self._judged.findings):
            print_text(text)
        self._print_snapshots(labels)
        _print_differences(result, labels)
        if result.differences_not_listed:
            entries = pluralize(result.differences_not_listed, "entry that differs is", "entries that differ are")
            print_text(f"{entries} counted and not listed, here or in --output json")

    def _print_snapshots(self, labels: dict[str, str]) -> None:
        each = [
            (labels[one.source.directory.path], snapshot) for one in self._result.partitions for snapshot in one.outcome.snapshots
        ]
        if self._details:
            self._print_list("Every snapshot", [_snapshot_row(label, snapshot) for label, snapshot in each])
            return
        wrong = [_snapshot_row(label, snapshot) for label, snapshot in each if snapshot.comparison.proven_wrong]
        self._print_list("Wrong snapshots", wrong)
        others = [
            _snapshot_row(label, one)
            for label, one in each
            if not one.comparison.proven_wrong and not one.comparison.status.is_right
        ]
        self._print_list("Snapshots that could not be checked", others)

    def _print_list(self, title: str, rows: Sequence[tuple[object, ...]]) -> None:
        if rows:
            columns = ("partition", "offset", "verdict", "entries", "expected", "because")
            right = ("offset", "entries", "expected")
            print_table(title, columns, rows, right=right, drop=("expected", "entries"), all_rows=self._details)


def _statuses(snapshots: Iterable[VerifiedSnapshot]) -> dict[str, int]:
    """Snapshots by status."""
    return Counter(each.comparison.status.value for each in snapshots)


def _partition(verdict: PartitionVerdict) -> VerifiedPartition:
    return VerifiedPartition(
        **needs_of(verdict.source, verdict.needs),
        inputs=inputs_of(verdict.source),
        read_bytes=verdict.outcome.read_bytes,
        cache_hits=verdict.outcome.cache_hits,
        snapshots=verdict.outcome.snapshots,
    )


def _unjudged_text(result: VerifyResult) -> str:
    """How many partitions were not judged to the end, as the table shows them; empty without any."""
    unjudged = sum(map(_is_unjudged, result.partitions))
    return f"{pluralize(unjudged, 'partition')} not judged to the end." if unjudged else ""


def _is_unjudged(verdict: PartitionVerdict) -> bool:
    """Whether a partition was not read to its end, or is damaged."""
    return any(each.leaves_gap for each in verdict.findings)


def _urgency(verdict: PartitionVerdict) -> tuple[int, ...]:
    """A key to sort partitions by: those that need somebody come first."""
    comparisons = [each.comparison for each in verdict.outcome.snapshots]
    wrong = sum(each.proven_wrong for each in comparisons)
    unchecked = sum(not each.status.is_right for each in comparisons)
    return (-int(_is_unjudged(verdict)), -wrong, -len(verdict.needs.missing_offsets), -unchecked)


def _expired_text(result: VerifyResult) -> str:
    """``excused_text`` as sentences. `scan`, which proposes this command, may suspect the same snapshot."""
    comparisons = (each.comparison for verdict in result.partitions for each in verdict.outcome.snapshots)
    text = excused_text(comparisons, result.clock.as_of_ms)
    if not text:
        return ""
    if "--as-of" in expiry_words():
        return f"{text}."
    return f"{text}. A broker that starts then drops them, so that a snapshot that `scan` suspects may be harmless by now."


def _is_at_boundary(verdict: PartitionVerdict, snapshot: VerifiedSnapshot) -> bool:
    """Whether a wrong snapshot can be replaced: the log has a boundary there, or may end there."""
    bases = verdict.source.directory.base_offsets
    return snapshot.comparison.proven_wrong and bool(bases) and (snapshot.offset in bases[1:] or snapshot.offset > bases[-1])


def _snapshot_row(label: str, snapshot: VerifiedSnapshot) -> tuple[object, ...]:
    comparison = snapshot.comparison
    # Where there is no state to compare with, nothing is expected.
    expected = "-" if snapshot.snapshot_class is None else comparison.expected_entries
    status = comparison.status.value.replace("_", " ")
    return label, snapshot.offset, status, comparison.found_entries, expected, comparison.reason


def _print_differences(result: VerifyResult, labels: dict[str, str]) -> None:
    rows = [
        row
        for verdict in result.partitions
        for snapshot in verdict.outcome.snapshots
        if snapshot.comparison.proven_wrong
        for row in _difference_rows(labels[verdict.source.directory.path], snapshot)
    ]
    if rows:
        columns = ("partition", "offset", "producer id", "differs", "found", "what it costs")
        print_table("Wrong entries", columns, rows, right=("offset", "producer id"))


def _difference_rows(label: str, snapshot: VerifiedSnapshot) -> list[tuple[object, ...]]:
    """The first certain differences of a snapshot, and how many more there are."""
    comparison = snapshot.comparison
    certain = [difference for difference in comparison.differences if difference.is_certain]
    rows = [_difference_row(label, snapshot.offset, difference) for difference in certain[:DIFFERENCES_SHOWN_MAX]]
    more = comparison.certain_count - len(rows)
    if more:
        listed = len(certain) - len(rows)
        them = "them" if listed == more else f"{listed} of them"
        rows.append((label, snapshot.offset, "...", "", "", f"and {more} more (--output json lists {them})"))
    return rows


def _difference_row(label: str, offset: int, difference: EntryDifference) -> tuple[object, ...]:
    member = difference.kind.value if difference.field is None else difference.field
    values = "no entry"
    if difference.kind is not DifferenceKind.MISSING:
        values = f"{difference.found} instead of {difference.expected}"
    return label, offset, difference.producer_id, member, values, difference.consequence
