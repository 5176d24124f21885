"""One explained snapshot as a JSON document, as first lines and as a table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from snaprebuild.cli.answer import expiry_words
from snaprebuild.cli.printing import is_verbose, print_table, print_text
from snaprebuild.cli.render.status import answer_lines, is_stray, next_of_status
from snaprebuild.cli.value_text import shown, time_text
from snaprebuild.cli.view import Answer, View
from snaprebuild.cluster.judged_snapshot import JudgedSnapshot
from snaprebuild.documents.inspect import ExplainSnapshot
from snaprebuild.findings import choose_form, pluralize
from snaprebuild.inspect.snapshot_explanation import SnapshotExplanation, SnapshotRun, WrongEntry, WrongField
from snaprebuild.replay.difference import Comparison, ComparisonStatus
from snaprebuild.storage.partition_names import names_of

__all__ = ["SnapshotExplanationView"]

ENTRIES_SHOWN_MAX = 10
"""Wrong entries that the tables show without ``-v``."""

FIELDS_SHOWN_MAX = 3
"""Fields of an entry that the table shows; the JSON document has all."""


class SnapshotExplanationView(View):
    """The result of ``inspect explain FILE.snapshot``."""

    names_unread = True
    codes_in_table = frozenset({"wrong-snapshot"})

    def __init__(self, run: SnapshotRun, judged: JudgedSnapshot, seconds: float) -> None:
        """Takes the explanation, the status of the snapshot, and the seconds that the explanation took."""
        super().__init__(judged.findings)
        self._run = run
        self._judged = judged
        self._seconds = seconds

    def document(self) -> ExplainSnapshot:
        """The document of ``inspect explain FILE.snapshot``."""
        run = self._run
        explanation = run.explanation
        comparison = explanation.comparison
        judgement = explanation.judgement
        expected_entries = None
        if comparison is not None and judgement is not None:
            expected_entries = comparison.expected_entries
        not_listed = 0
        if comparison is not None and explanation.entries:
            not_listed = comparison.certain_count - len(explanation.entries)
        return ExplainSnapshot(
            **names_of(explanation.source.directory),
            path=explanation.path,
            offset=explanation.offset,
            as_of_ms=run.clock.as_of_ms,
            expiration_ms=run.clock.expiration_ms,
            elapsed_seconds=round(self._seconds, 4),
            read_bytes=run.read_bytes,
            status=None if comparison is None else comparison.status,
            proven_wrong=comparison is not None and comparison.proven_wrong,
            reason=None if comparison is None else comparison.reason,
            found_entries=0 if comparison is None else comparison.found_entries,
            expected_entries=expected_entries,
            snapshot_class=None if judgement is None else judgement.snapshot_class,
            reasons=() if judgement is None else judgement.reasons,
            wrong_since_offset=explanation.wrong_since_offset,
            base_snapshot_offset=explanation.base_snapshot_offset,
            differing_entries=0 if comparison is None else comparison.difference_count,
            entries=explanation.entries,
            entries_not_listed=not_listed,
        )

    def answer(self) -> Answer:
        """The verdict, since when, and what corrects the snapshot."""
        status = self._judged.status
        explanation = self._run.explanation
        selected = [shown(os.path.dirname(explanation.path))]
        sentence = self._sentence()
        following = next_of_status(
            status,
            selected,
            is_verified=True,
            is_local=explanation.source.directory.store.is_local,
            can_plan=False,  # missing snapshots are not looked for
            can_replace=_is_at_boundary(explanation),
            are_strays=is_stray(explanation.source, explanation.offset),
            expiry=expiry_words(),
        )
        if status.concerns:
            return answer_lines(status, self._judged.findings, [sentence], [f"{sentence}."]), following
        return answer_lines(status, self._judged.findings, [sentence], self._since()), following

    def _sentence(self) -> str:
        """The verdict, without a full stop."""
        explanation = self._run.explanation
        comparison = explanation.comparison
        name = f"{explanation.source.directory.topic_partition} at {explanation.offset}"
        if comparison is None:
            return f"{name} was not read"
        if comparison.status is ComparisonStatus.EQUAL:
            return f"{name} is right: its {pluralize(comparison.found_entries, 'entry', 'entries')} are those of a replay"
        if comparison.status is ComparisonStatus.EQUAL_AFTER_EXPIRY:
            return f"{name} is right: it differs from a replay only in entries that have expired"
        if comparison.status is ComparisonStatus.UNVERIFIABLE:
            return f"{name} cannot be judged: {comparison.reason}"
        kind = comparison.status.value.replace("_", " ")
        if not comparison.certain_count:
            return f"{name} is wrong ({kind}): {comparison.reason}"
        wrong = pluralize(comparison.certain_count, "entry", "entries")
        return f"{name} is wrong ({kind}): {wrong}, of {comparison.expected_entries} by the log and {comparison.found_entries} in the file"

    def _since(self) -> list[str]:
        """Since when it is wrong, and what is uncertain."""
        explanation = self._run.explanation
        comparison = explanation.comparison
        if comparison is None:
            return []
        if comparison.status is ComparisonStatus.UNVERIFIABLE:
            return _uncertain_text(comparison)
        if explanation.wrong_since_offset is None:
            return []
        if explanation.wrong_since_offset == explanation.offset:
            return ["It is the first retained snapshot that is wrong."]
        return [f"Each retained snapshot from {explanation.wrong_since_offset} on is wrong, up to this one."]

    def print_table(self) -> None:
        """Prints the wrong entries: what is wrong, since when, and where the right value is from."""
        explanation = self._run.explanation
        entries = explanation.entries if is_verbose() else explanation.entries[:ENTRIES_SHOWN_MAX]
        if entries:
            rows = [row for entry in entries for row in _rows(entry)]
            columns = ("producer id", "field", "found", "by the log", "wrong since", "what it costs")
            print_table("Wrong entries", columns, rows, right=("producer id", "found", "by the log", "wrong since"))
            places = [place for entry in entries for place in _places(entry)]
            columns = ("producer id", "field", "segment", "byte", "offset", "time")
            print_table("The batches that set the right values", columns, places, right=("producer id", "byte", "offset"))
        comparison = explanation.comparison
        more = 0 if comparison is None else comparison.certain_count - len(entries)
        if entries and more:
            print_text(f"and {more} more wrong {choose_form(more, 'entry', 'entries')}: -v or --output json (at most 100)")
        if explanation.base_snapshot_offset is not None:
            print_text(
                f"The replay began with the snapshot at the first offset, {explanation.base_snapshot_offset}: values without a batch are "
                "from there."
            )
        if explanation.judgement is not None:
            reasons = "; ".join(explanation.judgement.reasons)
            print_text(f"The replay is {explanation.judgement.snapshot_class.value}{': ' if reasons else ''}{reasons}")


def _is_at_boundary(explanation: SnapshotExplanation) -> bool:
    """Whether the snapshot can be replaced if it is wrong: the log has a boundary there, or may end there."""
    bases = explanation.source.directory.base_offsets
    return bool(bases) and (explanation.offset in bases[1:] or explanation.offset > bases[-1])


def _uncertain_text(comparison: Comparison) -> list[str]:
    if not comparison.difference_count:
        return []
    return [f"{pluralize(comparison.difference_count, 'entry differs', 'entries differ')}, which proves nothing."]


def _fields(entry: WrongEntry) -> Sequence[tuple[str, WrongField]]:
    """The fields of an entry that the tables show, the deciding one first; one for an entry that is missing, or too much."""
    if entry.deciding_field is None:
        field = next(each for each in entry.fields if each.field == "last_offset")
        return [("no entry" if field.found is None else "whole entry", field)]
    ranked = sorted(entry.fields, key=lambda each: each.field != entry.deciding_field)
    return [(each.field.replace("_", " "), each) for each in ranked[:FIELDS_SHOWN_MAX]]


def _rows(entry: WrongEntry) -> Iterator[tuple[object, ...]]:
    for number, (name, field) in enumerate(_fields(entry)):
        if number == 0:
            yield entry.producer_id, name, field.found, field.expected, entry.wrong_since_offset, entry.consequence
        else:
            yield "", name, field.found, field.expected, "", ""


def _places(entry: WrongEntry) -> Iterator[tuple[object, ...]]:
    """The file, the position, the offset and the time of each batch."""
    for number, (name, field) in enumerate(_fields(entry)):
        batch = entry.right_since if entry.deciding_field is None else field.right_since
        producer = entry.producer_id if number == 0 else ""
        if batch is None:
            yield producer, name, "no batch", "", "", ""
        else:
            yield producer, name, batch.segment, batch.position_bytes, batch.base_offset, time_text(batch.timestamp_ms)
