"""A scan as text: the answer, the next command, and a table of the partitions that need attention, the worst first."""

from __future__ import annotations

import sys
from collections import Counter

from snaprebuild.broker.fates import FateKind
from snaprebuild.cli.answer import SELECTION, given_words
from snaprebuild.cli.printing import is_verbose, print_table, print_text
from snaprebuild.cli.render.status import answer_lines, can_write, next_of_status, note_sentences, nothing_read, snapshot_counts
from snaprebuild.cli.table import ROWS_MAX, printable
from snaprebuild.cli.value_text import labels_of, shown, size_text, time_text
from snaprebuild.cli.view import Answer
from snaprebuild.findings import first_of, pluralize, unread_paths
from snaprebuild.snapshots.scan.scan_result import AtNextStart, LogDirScan, PartitionScan, ScanResult
from snaprebuild.snapshots.scan.upload_attempts import CopyOutcome
from snaprebuild.snapshots.scan.upload_preflight import Blocker, LagWait, NextAttempt, StableBound

__all__ = ["print_boundaries", "print_scan", "scan_answer"]

LOG_DIRS_MAX = 10

ATTEMPTS = "If this broker leads the partition and remote.storage.enable=true, each upload attempt fails (every 30 s by default)."

STOP = (
    "To stop the attempts until the restart: set remote.log.copy.disable=true for the topic (3.9 and later, KRaft), with "
    "local.retention.* of -2 or equal to retention.*. Risk: retention then deletes segments that were never uploaded. On older "
    "releases do not set remote.storage.enable yet."
)

SILENT = "remote.copy.lag.* (4.4) lets this segment wait, so the broker logs nothing of it yet. It is due"

REASONS = {
    "missing-snapshot": ("no snapshot", "The file <next base offset>.snapshot is absent."),
    "snapshot-removed-at-start": (
        "snapshot will be removed",
        "The next start of the broker removes the snapshot and writes none in its place.",
    ),
    "irregular-snapshot": ("no regular file", "What has the name of the snapshot is no regular file. Remove it by hand."),
    "missing-offset-index": (
        "no offset index",
        "The .index file is absent. The next start of the broker recovers the segment, and drops the snapshots above it.",
    ),
    "missing-time-index": ("no time index", "The .timeindex file is absent. The next start of the broker makes an empty one."),
    "no-leader-epochs": (
        "no leader epochs",
        "No leader epoch covers these segments (message format 0 or 1). Kafka never uploads them.",
    ),
    "leader-epochs-lost": (
        "leader epochs lost",
        "leader-epoch-checkpoint is missing, empty or cut. Do not let this replica lead. Copy the file from a replica in sync.",
    ),
    "segment-too-large": ("segment too large", "The segment is larger than 2147483647 bytes. Kafka never uploads it."),
}
"""Why a segment is blocked: in short for the table, and as a footnote."""

BY_OTHERS = {
    "broker start": "Restart the broker: it makes the index files when it loads the log.",
    "hand": "Correct the files that stderr lists.",
    "retention": "Keep remote.storage.enable off for {topics} until retention deletes the segments.",
}
"""The advice for segments that `rebuild` does not free, by `FreedBy`."""


def scan_answer(result: ScanResult, now_ms: int) -> Answer:
    """The answer, and what comes next.

    Args:
        result: of the scan.
        now_ms: when it was made, ms since 1970: producers that have expired by then are of no use to a broker.
    """
    again = given_words(*SELECTION)
    totals = result.totals
    status = result.status
    findings = result.findings
    if not result.partitions and not status.concerns:
        return nothing_read(findings, status)
    affected = sum(each.totals.missing > 0 for each in result.partitions)
    heads = snapshot_counts(status, len(result.partitions), affected, is_incomplete=bool(unread_paths(findings)))
    stuck = _stuck_text(result)
    following = next_of_status(
        status,
        again,
        is_verified=False,
        is_local=all(each.state.store.is_local for each in result.log_dirs),
        can_plan=any(can_write(each.source, each.missing_offsets) for each in result.partitions),
        expiry=(),
    )
    expired = _expired_text(result, now_ms)
    if status.concerns:
        return answer_lines(status, findings, heads, [], expired), following
    extra = [note_sentences(status)]
    if totals.stuck_bytes_after_rebuild:
        extra.append(_others_text(result))
    if expired:
        return answer_lines(status, findings, heads, [*extra, stuck], expired), following
    return answer_lines(status, findings, heads, extra, stuck), following


def print_scan(result: ScanResult, *, all_rows: bool) -> None:
    """Prints what comes after the answer.

    Args:
        result: of the scan.
        all_rows: of the table, however many.
    """
    if not result.partitions:
        return
    blocker_numbers = _print_rows(result, all_rows=all_rows)
    _print_footnotes(result, blocker_numbers)
    _print_facts(result)


def _expired_text(result: ScanResult, now_ms: int) -> str:
    """A note on suspect snapshots that lack producers which no broker would load any more; empty without one."""
    count = sum(moment <= now_ms for partition in result.partitions for moment in partition.expired_from_ms)
    if not count:
        return ""
    if count == result.totals.suspect:
        return "harmless if only expired producers differ."
    return f"{pluralize(count, 'suspect one is', 'suspect ones are')} harmless if only expired producers differ."


def _stuck_text(result: ScanResult) -> str:
    stuck = result.totals.stuck_bytes
    after = result.totals.stuck_bytes_after_rebuild
    if not stuck:
        return ""
    freed = size_text(stuck - after)
    if not after:
        freed = "all of it"
    elif after >= stuck:
        freed = "none of it"
    if _kinds_of_help(result).keys() == {"broker start"}:
        return f"{size_text(stuck)} cannot be uploaded. A restart of the broker frees {freed}."
    later = ", in part only after the next start" if stuck > after and _waits_for_start(result) else ""
    # Until these topics have an id `rebuild` refuses.
    frees = "With their ids `rebuild` frees" if result.status.topics_without_id else "`rebuild` frees"
    return f"{size_text(stuck)} cannot be uploaded. {frees} {freed}{later}."


def _waits_for_start(result: ScanResult) -> bool:
    """Whether the next start removes snapshots of a partition that is stuck: a rebuild before it leaves them out."""
    kinds = (FateKind.SNAPSHOTS_REMOVED, FateKind.SWAP_FINISHED)
    paths = {fate.path for fate in result.fates if fate.kind in kinds}
    return any(each.stuck_bytes and each.source.directory.path in paths for each in result.partitions)


def _others_text(result: ScanResult) -> str:
    """The advice for partitions that stay blocked after a rebuild: the action that most of them need."""
    lasting = [each for each in result.partitions if each.stuck_bytes_after_rebuild]
    counts = Counter(kind for each in lasting for kind in sorted(_help_of(each)) if kind in BY_OTHERS)
    if not counts:
        return "see the reasons below."
    ((kind, _),) = counts.most_common(1)
    topics = dict.fromkeys(each.source.directory.name.topic for each in lasting if kind in _help_of(each))
    return BY_OTHERS[kind].format(topics=first_of([*topics]))


def _help_of(partition: PartitionScan) -> set[str]:
    """The actions of ``FreedBy`` that a partition needs."""
    return {blocker.freed_by.value for blocker in partition.blockers()}


def _kinds_of_help(result: ScanResult) -> Counter[str]:
    """How many partitions need each action of `FreedBy`, once for each reason."""
    return Counter(blocker.freed_by.value for each in result.partitions for blocker in each.blockers())


def _print_rows(result: ScanResult, *, all_rows: bool) -> dict[Blocker, int]:
    """The table; returns the numbers of its footnotes."""
    labels = labels_of(each.source for each in result.partitions)
    unread = unread_paths(result.findings)
    worst = [each for each in result.partitions if _needs_attention(each)]
    numbers: dict[Blocker, int] = {}
    rows: list[tuple[str, ...]] = [(shown(path), "?", "?", "?", "?", "UNREAD, see stderr") for path in unread]
    for each in worst:
        first = str(each.blocked_segments[0].base_offset) if each.blocked_segments else "-"
        stuck = size_text(each.stuck_bytes) if each.stuck_bytes else "-"
        cells = (str(each.totals.missing or "-"), str(each.totals.blocked_segments or "-"), stuck, first)
        is_shown = all_rows or is_verbose() or len(rows) < ROWS_MAX
        rows.append((labels[each.source.directory.path], *cells, _reason(each, numbers) if is_shown else ""))
    columns = ["partition", "missing", "blocked", "cannot upload", "first blocked", "reason"]
    if rows:
        print_table(None, columns, rows, right=columns[1:-1], drop=("first blocked", "blocked"), all_rows=all_rows)
    others = len(result.partitions) - len(worst)
    healthy = f"{pluralize(others, 'other partition')}: no snapshot missing. " if others and rows else ""
    print_text(f"{healthy}`scan` checks no contents; `verify` does.")
    sys.stdout.write("\n")
    return numbers


def _needs_attention(partition: PartitionScan) -> bool:
    totals = partition.totals
    return bool(totals.missing or totals.blocked_segments or totals.corrupt or totals.suspect or totals.misnamed)


def _reason(partition: PartitionScan, numbers: dict[Blocker, int]) -> str:
    parts = []
    for blocker in partition.blockers():
        number = numbers.setdefault(blocker, len(numbers) + 1)
        parts.append(f"{REASONS[blocker.value][0]} [{number}]")
    totals = partition.totals
    for count, name in ((totals.corrupt, "corrupt"), (totals.suspect, "suspect"), (totals.misnamed, "misnamed")):
        if count:
            parts.append(f"{count} {name}")
    if not partition.source.can_be_tiered:
        parts.append("never uploaded")
    return ", ".join(parts) or "not blocked"


def _print_footnotes(result: ScanResult, numbers: dict[Blocker, int]) -> None:
    for blocker, number in numbers.items():
        print_text(f"[{number}] {REASONS[blocker.value][1]}", "    ")
        first = next((each for each in result.partitions if blocker in each.blockers() and _fails(each)), None)
        failing = None if first is None else first.preflight.next_attempt
        if first is not None and failing is not None and blocker.value == "missing-snapshot":
            after = f" after {pluralize(failing.uploads_before, 'upload')}" if failing.uploads_before else ""
            print_text(f"    {ATTEMPTS}", "    ")
            print_text(
                f"    The next attempt is for segment {failing.base_offset} of {first.source.directory.topic_partition}{after}.",
                "    ",
            )
            for outcome in failing.outcomes:
                print_text(f"      {_outcome_text(outcome)}", " " * 22)
            if first.preflight.copy_lag is not None and first.preflight.attempt_waits:
                print_text(f"    {SILENT} {_due_text(first.preflight.copy_lag)}.", "    ")
            print_text(f"    {STOP}", "    ")
        sys.stdout.write("\n")


def _fails(partition: PartitionScan) -> bool:
    attempt = partition.preflight.next_attempt
    return attempt is not None and attempt.fails


def _outcome_text(outcome: CopyOutcome) -> str:
    if outcome.exception is None:
        return f"{outcome.versions}: uploaded"
    text = f"{outcome.versions}: {outcome.exception.rpartition('.')[2]} in {outcome.thrown_in}"
    if outcome.announces:
        return f"{text}. Each attempt also leaves a record of a copy without data in __remote_log_metadata"
    return text


def _print_facts(result: ScanResult) -> None:
    waiting = result.waiting_segments
    if waiting:
        on_purpose = any(each.preflight.copy_lag is not None for each in result.uploaded)
        lag = ", or held by remote.copy.lag.*" if on_purpose else ""
        print_text(
            f"Waiting, not blocked: {pluralize(waiting, 'rolled segment')} above the last stable offset or the high watermark "
            f"(`inspect transactions` lists open transactions){lag}. They are uploaded after that, without `rebuild`."
        )
    unknown = result.status.waiting_unknown
    if unknown:
        print_text(
            f"Perhaps waiting: {pluralize(unknown, 'rolled segment')}. The files do not show the last stable offset, so these segments "
            "are uploaded at once, or after open transactions have ended."
        )
    _print_lag(result)
    start = _start_text(result)
    if start:
        print_text(start)
    if result.totals.missing:
        print_text("A snapshot that is written now takes effect at the next start of the broker.")
    for log_dir in result.log_dirs[:LOG_DIRS_MAX]:
        print_text(_log_dir_text(log_dir, has_path=len(result.log_dirs) > 1))
    if len(result.log_dirs) > LOG_DIRS_MAX:
        print_text(f"and {len(result.log_dirs) - LOG_DIRS_MAX} more log directories (--output json lists them)")
    totals = result.totals
    print_text(
        f"read: {pluralize(len(result.partitions), 'partition')}, {pluralize(totals.segments, 'segment')}, {size_text(totals.size_bytes)}; "
        f"unread: {totals.unread}; remote.storage.enable of the topics: {_storage_text(result)}"
    )


def _print_lag(result: ScanResult) -> None:
    """The segments that wait on purpose, and when the first one is due."""
    lags = [(each.source.directory.topic_partition, each.preflight.copy_lag) for each in result.partitions]
    waits = [(name, wait) for name, wait in lags if wait is not None]
    if not waits:
        return
    count = pluralize(sum(wait.segments for _, wait in waits), "rolled segment")
    size = size_text(sum(wait.size_bytes for _, wait in waits))
    name, first = min(waits, key=lambda each: (each[1].due_ms is None, each[1].due_ms or 0))
    print_text(
        f"Waiting on purpose, by remote.copy.lag.* (4.4): {count}, {size}. They are neither blocked nor late. Segment "
        f"{first.base_offset} of {name} is due {_due_text(first)}."
    )


def _due_text(wait: LagWait) -> str:
    by_age = "" if wait.due_ms is None else f"at {time_text(wait.due_ms)}"
    by_size = "" if wait.due_bytes is None else f"after {size_text(wait.due_bytes)} more"
    return " or ".join(filter(None, (by_age, by_size))) or "never: the lag and the local retention are both without a limit"


def _storage_text(result: ScanResult) -> str:
    counts = Counter(state.value for state in result.remote_storage.values())
    return ", ".join(
        state if len(counts) == 1 else f"{state} for {counts[state]}" for state in ("on", "off", "unknown") if counts[state]
    )


def _log_dir_text(log_dir: LogDirScan, *, has_path: bool) -> str:
    meta = log_dir.state.meta
    stops = {"clean": "stopped cleanly", "unclean": "not stopped cleanly", "running": "running", "unknown": "no files of a broker"}
    parts = [shown(log_dir.state.path)] if has_path else []
    if meta is not None and meta.node_id is not None:
        parts.append(f"broker {meta.node_id}")
    if meta is not None and meta.cluster_id is not None:
        parts.append(f"cluster {meta.cluster_id}")
    parts.append(stops[log_dir.shutdown.value])
    holder = log_dir.held_by
    if holder is None:
        parts.append("no process holds .lock")
    else:
        release = "" if log_dir.kafka_release is None else f" (Kafka {log_dir.kafka_release})"
        parts.append("a process holds .lock" if holder < 0 else f"process {holder} holds .lock{release}")
    return "   ".join(parts)


def _start_text(result: ScanResult) -> str:
    """The effect of the next start of the brokers on the present files."""
    counts = dict.fromkeys(AtNextStart, 0)
    for partition in result.partitions:
        for boundary in partition.boundaries:
            if boundary.at_next_start is not None:
                counts[boundary.at_next_start] += 1
        counts[AtNextStart.REMOVED] += sum(each.at_next_start is AtNextStart.REMOVED for each in partition.other_snapshots)
    parts = [
        (counts[AtNextStart.REMOVED], "removes {}", "existing snapshot"),
        (counts[AtNextStart.EMPTY], "writes {}", "EMPTY snapshot"),
        (counts[AtNextStart.REBUILT], "makes {} itself", "snapshot"),
    ]
    texts = [text.format(pluralize(count, what)) for count, text, what in parts if count]
    whole = f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)
    return f"At its next start the broker {whole}." if whole else ""


def print_boundaries(result: ScanResult) -> None:
    """Every boundary as plain lines: a table of hundred thousands of rows would take minutes to lay out."""
    for partition in result.partitions:
        path = printable(shown(partition.source.directory.path))
        lines = [f"\n{path}: log start {partition.source.log_start_offset}, log end {_end(partition)}"]
        for boundary in partition.boundaries:
            facts = [boundary.state.value]
            if boundary.is_log_end:
                facts.append("log end")
            if boundary.entries is not None:
                facts.append(pluralize(boundary.entries, "entry", "entries"))
            if boundary.at_next_start is not None:
                facts.append(f"next start: {boundary.at_next_start.value}")
            lines.append(f"  {boundary.offset:>20}  {', '.join([*facts, *boundary.reasons])}")
        for snapshot in partition.other_snapshots:
            fate_text = "" if snapshot.at_next_start is None else f", next start: {snapshot.at_next_start.value}"
            lines.append(f"  {snapshot.offset:>20}  at no boundary{fate_text}")
        for segment in partition.blocked_segments:
            reasons = ", ".join(f"{blocker.value} (freed by {blocker.freed_by.value})" for blocker in segment.blockers)
            lines.append(f"  segment {segment.base_offset} to {segment.next_base_offset} is blocked: {reasons}")
        for rolled in partition.preflight.rolled_segments:
            if not rolled.blockers:
                count = pluralize(rolled.segments, "rolled segment")
                lines.append(
                    f"  {count}, {rolled.base_offset} to {rolled.next_base_offset}: {rolled.state.value.replace('-', ' ')}"
                )
        lines += _attempt_lines(partition)
        sys.stdout.write("\n".join(lines) + "\n")


def _bound_text(bound: StableBound) -> str:
    """The last stable offset, or what is known of it, with its source."""
    if bound.source is None:
        return "not known"
    if bound.exact is None:
        return f"at least {bound.at_least}, by {bound.source}"
    return f"{bound.exact}, by {bound.source}"


def _attempt_lines(partition: PartitionScan) -> list[str]:
    attempt = partition.preflight.next_attempt
    lines = []
    if partition.source.can_be_tiered:
        lines.append(f"  last stable offset: {_bound_text(partition.preflight.bound)}")
    if attempt is not None:
        lines.append(f"  next attempt: segment {attempt.base_offset}, {_before_text(attempt)}if {' and '.join(attempt.assumes)}")
        lines += [f"    {_outcome_text(outcome)}" for outcome in attempt.outcomes]
    return lines


def _before_text(attempt: NextAttempt) -> str:
    count = attempt.uploads_before
    if count:
        return f"once {pluralize(count, 'segment has', 'segments have')} gone up before it, "
    return ""


def _end(partition: PartitionScan) -> str:
    end = partition.log_end
    return f">= {end.at_least}" if end.offset is None else str(end.offset)
