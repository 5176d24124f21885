"""The result of ``before-start``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from snaprebuild.broker.status import findings_of
from snaprebuild.cli.answer import SELECTION, expiry_words, given_words, none_read, repeated_words, unless_unread
from snaprebuild.cli.printing import print_table
from snaprebuild.cli.render.rebuild import run_text
from snaprebuild.cli.render.shared_parts import source_verdict
from snaprebuild.cli.render.status import fate_sentence, faults_text, forgetful_text, status_details, status_line, words_after
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.value_text import labels_of, size_text
from snaprebuild.cli.view import AGAIN, Advice, Answer, View
from snaprebuild.cluster.scan_storage import lost_at_next_start
from snaprebuild.documents import before_start as doc
from snaprebuild.findings import Finding, FindingCause, Severity, pluralize, unread_paths
from snaprebuild.snapshots.before_start import Preparation, PreparedPartition
from snaprebuild.snapshots.scan.scan_result import ScanResult, Shutdown
from snaprebuild.snapshots.source.topic_ids import topics_under_id_zero
from snaprebuild.storage.partition_names import names_of

__all__ = ["BeforeStartView", "reason_held"]


AFTER_DEADLINE = Advice("run this command again at the next stop; with a longer --deadline it does more at once")
"""The advice after a deadline: the broker starts without the snapshots that are still missing."""


class BeforeStartView(View):
    """The snapshots that were written before a start, and what the start does. One line for the journal comes last."""

    def __init__(self, result: Preparation, judged: ScanResult, deadline: int | None, order: str) -> None:
        super().__init__(_findings(result, judged))
        self._result = result
        self._judged = judged
        self._deadline = deadline
        self._order = order

    def document(self) -> doc.BeforeStart:
        return _document(self._result, self._judged, self._deadline, self._order)

    def answer(self) -> Answer:
        """The fates of the next start come first: the broker starts at once."""
        rebuilt = self._result.rebuilt
        fates = status_line(self._judged.status)
        text = run_text(rebuilt)
        if not rebuilt.plan.counts.missing and not rebuilt.totals:
            none = unless_unread(f"No snapshot missing in {pluralize(len(rebuilt.partitions), 'partition')}", self.findings)
            text = f"{none[0].upper()}{none[1:]}."
        if not rebuilt.partitions:
            return none_read([each for each in self.findings if each.severity is not Severity.NOTE])
        text = f"{text} {forgetful_text(self.findings)}".rstrip()
        if fates is None:
            return f"{faults_text(rebuilt.status)}{text}", self._following()
        return f"{fates}\n{status_details(self._judged.status)} {text}".replace("\n ", "\n"), self._following()

    def _following(self) -> Sequence[str] | Advice:
        result = self._result
        rebuilt = result.rebuilt
        request = rebuilt.plan.request
        totals = _sums(result)
        status = rebuilt.status
        if self._judged.status.concerns:
            return words_after(self._judged.status.concerns[0], given_words(*SELECTION))
        if (status.wrong or status.suspect) and not request.set_aside:
            return ["verify", *given_words(*SELECTION), *expiry_words()]
        if rebuilt.dry_run and totals["would_write"]:
            words = ("before-start", *repeated_words("dry_run"))
            is_live = any(each.cause is FindingCause.LIVE_BROKER for each in result.findings)
            return Advice("stop the broker", words) if is_live else words
        if any(each.cause is FindingCause.DEADLINE_PASSED for each in result.findings):
            return AFTER_DEADLINE
        if _not_written(totals) or self._judged.status.topics_without_id:
            return AGAIN
        is_verified_next = forgetful_text(self.findings) or _above_log_ends(self._judged)
        return ["verify", *given_words(*SELECTION)] if is_verified_next else []

    def print_table(self) -> None:
        _print(self._result)

    def close(self) -> None:
        print_on_stderr(f"snaprebuild: {_summary(self._result)}")


def _findings(result: Preparation, judged: ScanResult) -> tuple[Finding, ...]:
    reported = {each.path for each in result.findings if each.is_unread}
    unread = [each for each in judged.other_findings if each.is_unread and each.path not in reported]
    # The start itself loses no record by them, so that they hold no broker.
    lost = [replace(each, severity=Severity.NOTE) for each in lost_at_next_start(judged.partitions)]
    return (*result.findings, *unread, *findings_of(judged.fates), *lost, *_above_log_ends(judged))


def _above_log_ends(judged: ScanResult) -> list[Finding]:
    """Notes about logs that may have lost their tail, unless that is a fate."""
    fates = {each.path for each in judged.fates}
    return [
        replace(each, severity=Severity.NOTE)
        for partition in judged.partitions
        for each in partition.findings
        if each.cause is FindingCause.SNAPSHOT_ABOVE_LOG_END and each.severity is not Severity.NOTE and each.path not in fates
    ]


def _document(result: Preparation, judged: ScanResult, deadline: int | None, order: str) -> doc.BeforeStart:
    plan = result.rebuilt.plan
    return doc.BeforeStart(
        paths=plan.request.paths,
        server_properties=plan.request.server_properties,
        topics=plan.request.topics,
        partition_numbers=plan.request.partitions,
        topic_partitions=plan.request.topic_partitions,
        metadata=plan.request.metadata,
        deadline_seconds=deadline,
        order=order,
        set_aside=plan.request.set_aside,
        as_of_ms=plan.clock.as_of_ms,
        expiration_ms=plan.clock.expiration_ms,
        dry_run=result.rebuilt.dry_run,
        receipt=result.rebuilt.receipt,
        takes_effect="when a broker next loads the log, at its start",
        elapsed_seconds=round(result.seconds, 4),
        totals=doc.BeforeStartTotals(
            partitions=len(result.partitions),
            prepared=sum(each.state == "prepared" for each in result.partitions),
            **_sums(result),
        ),
        partitions=[_partition(each) for each in result.partitions],
        status=judged.status.word,
        counts=judged.status.counts,
    )


def _counts(partition: PreparedPartition) -> dict[str, int]:
    return {
        **{action: partition.count(action) for action in ("written", "would_write", "failed", "skipped")},
        "refused": partition.count("refused") + partition.left_out,
        "blocked_bytes": partition.blocked_bytes,
        "blocked_bytes_left": partition.bytes_blocked_left,
        "read_bytes": partition.result.outcome.read_bytes,
    }


def _sums(result: Preparation) -> dict[str, int]:
    counts = [_counts(each) for each in result.partitions]
    return {name: sum(each[name] for each in counts) for name in doc.PreparedTotals.__struct_fields__}


def _not_written(counts: Mapping[str, int]) -> int:
    """Number of snapshots that a broker may need, and that do not get there."""
    return counts["failed"] + counts["refused"] + counts["skipped"]


def _partition(partition: PreparedPartition) -> doc.BeforeStartPartition:
    result = partition.result
    return doc.BeforeStartPartition(
        **names_of(result.plan.source.directory),
        path=result.path,
        state=partition.state,
        totals=doc.PreparedTotals(**_counts(partition)),
        elapsed_seconds=round(result.outcome.elapsed_seconds, 4),
        fault=result.plan.fault,
        verdict=source_verdict(result.plan.verdict),
    )


def _summary(result: Preparation) -> str:
    """The one line that is read in the journal of a start."""
    totals = _sums(result)
    done = "to write (dry run)" if result.rebuilt.dry_run else "written"
    parts = [
        f"{pluralize(totals['written'] + totals['would_write'], 'snapshot')} {done}",
        f"{_not_written(totals)} not written",
        f"{size_text(totals['blocked_bytes'])} wait for a snapshot, now {size_text(totals['blocked_bytes_left'])}",
        f"{size_text(totals['read_bytes'])} of {pluralize(len(result.partitions), 'partition')} read in {result.seconds:.1f} s",
    ]
    without_id = topics_under_id_zero(each.result.plan.source for each in result.partitions)
    if without_id:
        parts.append(f"not ready for remote storage: {pluralize(len(without_id), 'topic')} without an id")
    receipt = result.rebuilt.receipt
    return "; ".join([*parts, *([] if receipt is None else [f"receipt {receipt}"])])


def reason_held(judged: ScanResult) -> str | None:
    """Why ``--fail-closed`` holds the broker; None if it may start."""
    if any(log_dir.shutdown is Shutdown.RUNNING for log_dir in judged.log_dirs):
        return "another process holds .lock of a log directory."
    for group in judged.status.groups:
        if any(fate.holds_broker for fate in group.fates):
            return fate_sentence(group)
    unread = unread_paths(judged.other_findings)
    return f"INCOMPLETE: {pluralize(len(unread), 'path')} could not be read." if unread else None


def _print(result: Preparation) -> None:
    labels = labels_of(each.result.plan.source for each in result.partitions)
    rows = [
        (
            labels[each.result.path],
            size_text(each.blocked_bytes),
            each.count("written", "would_write"),
            _not_written(_counts(each)),
            size_text(each.result.outcome.read_bytes),
            each.state.value,
        )
        for each in result.partitions
        if each.result.boundaries or each.result.plan.fault is not None or each.left_out
    ]
    if rows:
        columns = ("partition", "wait for snapshot", "snapshots", "not written", "read", "state")
        title = None if result.rebuilt.dry_run else "Prepared, the most blocked first"
        print_table(title, columns, rows, right=columns[1:-1], drop=("read",))
