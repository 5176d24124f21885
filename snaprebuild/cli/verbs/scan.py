"""The verb ``scan``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snaprebuild.cli.options.common import Partition, Paths, S3Options, ServerProperties, Topic, open_selected, selection_of
from snaprebuild.cli.options.engine import EngineName, EngineOption, Master, SparkConf, engine_of
from snaprebuild.cli.options.io_limits import LoadAlone
from snaprebuild.cli.result import print_table, print_text, shown, size_text
from snaprebuild.cli.table import printable
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.findings import counted

if TYPE_CHECKING:
    from snaprebuild.snapshots.scan.copy_attempt import CopyOutcome
    from snaprebuild.snapshots.scan.result import Counts, PartitionScan, ScanResult
    from snaprebuild.snapshots.scan.upload_preflight import NextAttempt

__all__ = ["scan"]

ROWS_MAX = 40
"""Rows of a table without ``--details``: a broker has thousands of partitions, and the worst stand first."""

RARE = ("corrupt", "suspect", "misnamed", "stuck after rebuild", "blocked by")

COLUMNS = ("segments", "size", "boundaries", "missing", "corrupt", "suspect", "misnamed", "blocked", "stuck", "stuck after rebuild")

EFFECT = (
    "Effect: a snapshot that is written now counts from the next start of its broker on, when it loads the log; a running broker "
    "does not see it."
)

AGAIN = "So it goes with every run of the copy task, by default every 30 s."

STOP = (
    "Until the broker can be started again: remote.log.copy.disable=true of the topic stops the attempts (3.9 and later, KRaft; wants "
    "local.retention.* of -2 or as retention.*, which then deletes segments that were not uploaded); before, "
    "do not set remote.storage.enable yet (--output json tells more)."
)

ORDER = "Segments go up in order: the first blocked one holds back every later one, and local retention with it."

Details = Annotated[
    bool,
    typer.Option(
        "--details", help=f"Print every boundary, all rows and all findings. Default: the {ROWS_MAX} worst rows of each table."
    ),
]


@verb(LoadAlone, collects=False)
def scan(
    *,
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topic = None,
    partition: Partition = None,
    details: Details = False,
    engine: EngineOption = EngineName.PROCESS,
    master: Master = None,
    conf: SparkConf = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: shows missing and suspect snapshots, and which closed segments would block the upload to tiered storage.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Names, sizes, checkpoints, small files and snapshots are read, no segment. Exit code 1 when something is missing or
    wrong.
    """
    from snaprebuild.cli.render.scan import SCAN_VERSION, scan_as_json
    from snaprebuild.snapshots.scan.scan import scan as scan_source

    out.begin()
    source = open_selected(paths, server_properties, selection_of(topic, partition, None), s3)
    with engine_of(engine, master, conf=conf) as chosen:
        result = scan_source(source, chosen.planning())
    asked = {"paths": paths or [], "server_properties": server_properties, "topics": topic or [], "partitions": partition or []}
    return Result(
        ("scan", SCAN_VERSION),
        lambda: {"inputs": asked, **scan_as_json(result)},
        result.findings,
        lambda: _print(result, details=details),
        notes=True,
        everything=details or out.everything,
    )


def _print(result: ScanResult, *, details: bool) -> None:
    _print_tables(result, all_rows=details)
    if details:
        _print_boundaries(result)


def _print_tables(result: ScanResult, *, all_rows: bool) -> None:
    rows_max = sys.maxsize if all_rows else ROWS_MAX
    numbers = {log_dir.state.path: number for number, log_dir in enumerate(result.log_dirs, start=1)}
    log_dirs = ((log_dir.state.path, log_dir.shutdown.value, log_dir.counts) for log_dir in result.log_dirs)
    rows = [(numbers[path], shown(path), shutdown, counts.partitions, *_cells(counts)) for path, shutdown, counts in log_dirs]
    _print_rows("Log directories", ("dir", "log directory", "stop", "partitions", *COLUMNS), rows, rows_max)
    topics = sorted(result.topics.items(), key=lambda item: (-item[1].stuck_bytes, -item[1].missing, item[0]))
    rows = [(topic, counts.partitions, *_cells(counts)) for topic, counts in topics]
    _print_rows("Topics", ("topic", "partitions", *COLUMNS), rows, rows_max)
    first = result.partitions[:rows_max]
    rows = [
        (
            numbers[each.source.log_dir.path],
            each.source.topic_partition,
            _kind(each),
            *_cells(each.counts),
            _end(each),
            _because(each),
        )
        for each in first
    ]
    columns = ("dir", "partition", "kind", *COLUMNS, "log end", "blocked by")
    _print_rows("Partitions, the worst first", columns, rows, rows_max, of=len(result.partitions))
    _print_sentences(result)


def _print_sentences(result: ScanResult) -> None:
    counts = result.counts
    if not result.partitions:
        print_text("no partition was looked at")
        return
    if counts.missing == 0 and not counts.unread:
        print_text("No snapshot is missing, as far as names and small files tell; `verify` reads the log.")
    start = _start_text(result)
    if start:
        print_text(start)
    if counts.missing:
        print_text(EFFECT)
    if counts.blocked_segments:
        print_text(ORDER)
    _print_next_attempts(result)


def _print_next_attempts(result: ScanResult) -> None:
    """Which partitions a leader will try in vain, and what stops that."""
    failing = [each for each in result.partitions if each.preflight.next_attempt is not None and each.preflight.next_attempt.fails]
    if not failing:
        return
    first = failing[0]
    attempt = first.preflight.next_attempt
    assert attempt is not None
    of = first.source.topic_partition
    before = _before_text(attempt)
    throws = "; ".join(_outcome_text(outcome) for outcome in attempt.outcomes)
    others = f", and of {counted(len(failing) - 1, 'more partition')}" if len(failing) > 1 else ""
    print_text(
        f"Next attempt of a leader with remote storage on: segment {attempt.base_offset} of {of}, {before}in vain{others}: {throws}. "
        f"{AGAIN}"
    )
    print_text(STOP)


def _before_text(attempt: NextAttempt) -> str:
    count = attempt.uploads_before
    return f"once {counted(count, 'segment has', 'segments have')} gone up before it, " if count else ""


def _outcome_text(outcome: CopyOutcome) -> str:
    if outcome.exception is None:
        return f"{outcome.versions}: it goes up"
    what = f"{outcome.exception.rpartition('.')[2]} in {outcome.thrown_in}"
    phantom = ", and a phantom is left in __remote_log_metadata" if outcome.announces else ""
    return f"{outcome.versions}: {what}{phantom}"


def _print_rows(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], rows_max: int, of: int | None = None) -> None:
    if not rows:
        return
    shown = rows[:rows_max]
    # What nobody has needs no column.
    kept = [index for index, name in enumerate(columns) if name not in RARE or any(row[index] not in ("-", "") for row in shown)]
    shown = [tuple(row[index] for index in kept) for row in shown]
    print_table(title, [columns[index] for index in kept], shown, right=("dir", "partitions", *COLUMNS, "log end"))
    left = (len(rows) if of is None else of) - rows_max
    if left > 0:
        sys.stdout.write(f"... and {left} more (--details shows all)\n\n")


def _cells(counts: Counts) -> tuple[object, ...]:
    """The columns ``COLUMNS``; zeros of what is wrong are left blank, so that the rest stands out."""
    wrong = (counts.missing, counts.corrupt, counts.suspect, counts.misnamed, counts.blocked_segments)
    stuck = (counts.stuck_bytes, counts.stuck_bytes_after_rebuild)
    return (
        counts.segments,
        size_text(counts.size_bytes),
        counts.boundaries,
        *(value or "-" for value in wrong),
        *(size_text(value) if value else "-" for value in stuck),
    )


def _kind(partition: PartitionScan) -> str:
    kinds = ["compacted" if partition.source.is_compacted else "", "tiered" if partition.source.is_tiered else ""]
    if partition.source.topic_kind.value != "ordinary":
        kinds.insert(0, partition.source.topic_kind.value.replace("_", " "))
    return ", ".join(kind for kind in kinds if kind) or "ordinary"


def _end(partition: PartitionScan) -> str:
    end = partition.log_end
    return f">= {end.at_least}" if end.offset is None else str(end.offset)


def _because(partition: PartitionScan) -> str:
    if not partition.source.can_be_tiered:
        return "(never uploaded)"
    return ", ".join(f"{blocker.value} {count}" for blocker, count in partition.blockers().items())


def _start_text(result: ScanResult) -> str:
    """What the next start of the brokers does to the files that are there now."""
    from snaprebuild.snapshots.scan.result import AtNextStart

    counts = dict.fromkeys(AtNextStart, 0)
    for partition in result.partitions:
        for boundary in partition.boundaries:
            if boundary.at_next_start is not None:
                counts[boundary.at_next_start] += 1
        for _, fate in partition.other_snapshots:
            if fate is AtNextStart.REMOVED:
                counts[fate] += 1
    parts = [
        (counts[AtNextStart.REMOVED], "removes {} now on disk", "snapshot"),
        (counts[AtNextStart.EMPTY], "writes {}", "EMPTY snapshot"),
        (counts[AtNextStart.REBUILT], "makes {} by its own replay", "snapshot"),
    ]
    said = [text.format(counted(count, what)) for count, text, what in parts if count]
    return f"Next start: a broker {', '.join(said)}." if said else ""


def _print_boundaries(result: ScanResult) -> None:
    """Every boundary as plain lines: a table of hundred thousands of rows would take minutes to lay out."""
    for partition in result.partitions:
        path = printable(shown(partition.source.directory.path))
        lines = [f"\n{path}: log start {partition.source.log_start_offset}, log end {_end(partition)}"]
        for boundary in partition.boundaries:
            facts = [boundary.state.value]
            if boundary.is_log_end:
                facts.append("log end")
            if boundary.entries is not None:
                facts.append(counted(boundary.entries, "entry", "entries"))
            if boundary.at_next_start is not None:
                facts.append(f"next start: {boundary.at_next_start.value}")
            lines.append(f"  {boundary.offset:>20}  {', '.join([*facts, *boundary.why])}")
        for offset, fate in partition.other_snapshots:
            fate_text = "" if fate is None else f", next start: {fate.value}"
            lines.append(f"  {offset:>20}  at no boundary{fate_text}")
        for segment in partition.blocked:
            reasons = ", ".join(f"{blocker.value} (freed by {blocker.freed_by.value})" for blocker in segment.blockers)
            lines.append(f"  segment {segment.base_offset} to {segment.next_base_offset} is blocked: {reasons}")
        for run in partition.preflight.runs:
            if not run.blockers:
                count = counted(run.segments, "closed segment")
                lines.append(f"  {count}, {run.base_offset} to {run.next_base_offset}: {run.state.value.replace('-', ' ')}")
        lines += _attempt_lines(partition)
        sys.stdout.write("\n".join(lines) + "\n")


def _attempt_lines(partition: PartitionScan) -> list[str]:
    attempt, bound = partition.preflight.next_attempt, partition.preflight.bound
    stable = bound.at_least if bound.exact is None else bound.exact
    lines = []
    if partition.source.can_be_tiered:
        known = (
            "not known" if bound.known_by is None else f"{'at least ' if bound.exact is None else ''}{stable}, by {bound.known_by}"
        )
        lines.append(f"  last stable offset: {known}")
    if attempt is not None:
        lines.append(f"  next attempt: segment {attempt.base_offset}, {_before_text(attempt)}if {' and '.join(attempt.assumes)}")
        lines += [f"    {_outcome_text(outcome)}" for outcome in attempt.outcomes]
    return lines
