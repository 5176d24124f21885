"""The verb ``cluster history``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.common import S3Options, WholeNumber, moment_ms, quoted
from snaprebuild.cli.options.metadata import MetadataPath, QuorumAssumptions, VoterLogs, voter_log_of
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from snaprebuild.cli.render.timeline_chart import ChartLine, Glyphs
    from snaprebuild.cluster.metadata.history import BrokerEntry, BrokerTimeline, HistoryResult, LogPoint, Moment, PartitionTimeline
    from snaprebuild.cluster.metadata.registered_model import BrokerRegistration, PartitionRegistration

__all__ = ["cluster_history"]

State = TypeVar("State")


@verb()
def cluster_history(
    *,
    path: MetadataPath,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", help="Every topic that had this name. Default: none."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            metavar="N",
            click_type=WholeNumber(0, INT32_MAX),
            help="Partition of the topic. Default: all.",
        ),
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker",
            metavar="ID",
            click_type=WholeNumber(0, INT32_MAX),
            help="Show the registrations of this broker or controller, and how many partitions it leads. Default: none.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="OFFSET|TIME",
            help="First offset or time (ISO 8601, UTC without a zone) of the history; what was before is one entry. Default: "
            "the start of the log.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="OFFSET|TIME", help="Last offset or time of the history. Default: the end of the log."),
    ] = None,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: the history of a topic's partitions (--topic) or of a broker (--broker), as the metadata log has it.

    DIR is __cluster_metadata-0, a copy of it under any name, or a directory above that holds one, also as s3://BUCKET/PREFIX.
    The history begins with the log, or with the oldest whole checkpoint at its beginning. A chart shows who led and who was in
    sync, the table below it each change; --from and --to choose a part. A topic that was deleted and created again is another
    one, with another id.
    """
    from snaprebuild.cli.options.common import check_paths
    from snaprebuild.cli.render.metadata import history_document
    from snaprebuild.cluster.metadata.history import HistoryQuestion
    from snaprebuild.cluster.metadata.history import metadata_history as look

    out.begin()
    others = tuple(voter_log_of(each) for each in voter or ())
    check_paths([path, *(each for _, each in others)])
    if topic is None and broker is None:
        raise UsageError("name a --topic, a --broker, or both")
    if topic is None and partition is not None:
        raise UsageError("--partition belongs to a --topic")
    begin_at = log_point_of("--from", since)
    end_at = log_point_of("--to", until)
    question = HistoryQuestion(path, topic, partition, broker, begin_at, end_at, others, assumed.voters)
    result = look(question, s3.run())
    return Result(lambda: history_document(result), result.findings, lambda: _print(result))


def log_point_of(option: str, text: str | None) -> LogPoint | None:
    """An offset or a time.

    Raises:
        UsageError: it is neither.
    """
    from snaprebuild.cluster.metadata.history import LogPoint

    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        if len(text) > 19 or int(text) > INT64_MAX:
            raise UsageError(f"{option}: expected an offset up to {INT64_MAX}, found {quoted(text)}")
        return LogPoint(int(text))
    return LogPoint(None, moment_ms(option, text))


# ---------------------------------------------------------------------------------------------------------------------- tables


def _print(result: HistoryResult) -> None:
    from snaprebuild.cli.result import print_text, shown, unless_unread
    from snaprebuild.findings import pluralize

    for timeline in result.timelines.partitions.values():
        _print_partition(timeline, result)
    broker = result.timelines.broker
    if broker is not None and broker.entries:
        _print_broker(broker, result)
    entries = sum(len(each.entries) for each in result.timelines.partitions.values())
    entries += 0 if broker is None else len(broker.entries)
    since = "the beginning" if result.first_offset == 0 else f"offset {result.first_offset}"
    if result.first_offset == result.checkpoint_end:
        since = f"a checkpoint of everything below {since}"
    print_text(f"{shown(result.path)}: {pluralize(entries, 'entry', 'entries')}, from {since} to offset {result.last_offset}")
    end = result.proof.end_offset
    if end > result.last_offset:
        print_text(unless_unread("all of it is proven to be committed", result.findings))
    else:
        print_text(f"offsets marked with a star, from {end} on, are not proven to be committed")
    if result.unknown:
        print_text(f"Not covered: {result.unknown.sentence}.")


def _print_partition(timeline: PartitionTimeline, result: HistoryResult) -> None:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.cli.render.timeline_chart import ChartLine
    from snaprebuild.cli.result import print_line, print_table, print_text

    entries = list(timeline.entries)
    brokers = sorted({each for entry in entries if entry.state is not None for each in entry.state.replicas})
    glyphs, legend = _glyphs()

    def glyph_of(broker_id: int) -> Callable[[PartitionRegistration | None], str]:
        return lambda state: _partition_glyph(glyphs, state, broker_id)

    lines = [ChartLine(f"broker {each}", glyph_of(each)) for each in brokers]
    print_text(f"{timeline.topic}-{timeline.partition}, topic id {uuid_to_text(timeline.topic_id)}")
    print_line("")
    _print_chart([(entry.moment.timestamp_ms, entry.state) for entry in entries], lines, result, legend)
    rows = []
    for entry in entries:
        state = entry.state
        state_cells = ("-", "-", "-", "-") if state is None else _partition_cells(state)
        rows.append((*_when(entry.moment, result), *state_cells, "; ".join(entry.what)))
    columns = ("offset", "time", "leader", "epochs", "ISR", "ELR", "what")
    print_table("Changes", columns, rows, right=("offset", "leader", "epochs"), drop=("ELR", "epochs"))


def _partition_glyph(glyphs: Glyphs, state: PartitionRegistration | None, broker_id: int) -> str:
    if state is None or broker_id not in state.replicas:
        return glyphs.none
    if state.leader == broker_id:
        return glyphs.leader
    if broker_id in state.isr:
        return glyphs.in_sync
    return glyphs.eligible if broker_id in state.elr else glyphs.neither


def _partition_cells(state: PartitionRegistration) -> tuple[object, ...]:
    from snaprebuild.cli.render.metadata_tables import ids_text

    leader = "-" if state.leader < 0 else state.leader
    return leader, f"{state.leader_epoch}/{state.partition_epoch}", ids_text(state.isr), ids_text(state.elr)


def _print_broker(timeline: BrokerTimeline, result: HistoryResult) -> None:
    from snaprebuild.cli.render.timeline_chart import ChartLine
    from snaprebuild.cli.result import print_line, print_table

    entries = list(timeline.entries)
    glyphs, _ = _glyphs()
    most = max((entry.replicas for entry in entries), default=0)
    lines: list[ChartLine[BrokerEntry]] = [
        ChartLine("state", lambda entry: _broker_glyph(glyphs, entry.state)),
        ChartLine("leads", lambda entry: _height(glyphs, entry.leads, most)),
        ChartLine("in ISR", lambda entry: _height(glyphs, entry.in_isr, most)),
    ]
    print_line(f"broker {timeline.broker_id}")
    print_line("")
    legend = (
        f"{glyphs.leader} active, {glyphs.eligible} shutting down, {glyphs.neither} fenced, blank: not registered; heights are of the "
        f"{most} replicas that it had at most"
    )
    _print_chart([(entry.moment.timestamp_ms, entry) for entry in entries], lines, result, legend)
    rows = [
        (
            *_when(entry.moment, result),
            "-" if entry.state is None else entry.state.epoch,
            *(entry.leads, entry.in_isr, entry.in_elr, entry.replicas, "; ".join(entry.what)),
        )
        for entry in entries
    ]
    columns = ("offset", "time", "epoch", "leads", "in ISR", "in ELR", "replicas", "what")
    print_table("Changes", columns, rows, right=("offset", *columns[2:-1]), drop=("in ELR", "replicas", "epoch"))


def _broker_glyph(glyphs: Glyphs, state: BrokerRegistration | None) -> str:
    if state is None:
        return glyphs.none
    if state.fenced:
        return glyphs.neither
    return glyphs.eligible if state.in_controlled_shutdown else glyphs.leader


def _height(glyphs: Glyphs, count: int, most: int) -> str:
    """One of the heights; the lowest only for none."""
    steps = len(glyphs.heights) - 1
    return glyphs.heights[0 if count == 0 or most == 0 else max(1, count * steps // most)]


def _glyphs() -> tuple[Glyphs, str]:
    """The characters of a partition's chart, and what they mean."""
    import sys

    from snaprebuild.cli.render.timeline_chart import BLOCKS, LETTERS
    from snaprebuild.cli.result import draws_blocks

    glyphs = BLOCKS if sys.stdout.isatty() and draws_blocks() else LETTERS
    meanings = (
        f"{glyphs.leader} leader, {glyphs.in_sync} in sync, {glyphs.eligible} eligible leader replica, {glyphs.neither} not in sync"
    )
    return glyphs, f"{meanings}, blank: no replica"


def _print_chart(changes: list[tuple[int, State]], lines: list[ChartLine[State]], result: HistoryResult, legend: str) -> None:
    from snaprebuild.cli.render.timeline_chart import chart_text
    from snaprebuild.cli.result import line_width, print_line, print_text

    print_line(chart_text(changes, max(result.last_timestamp_ms, changes[-1][0]), lines, line_width()))
    print_text(f" {legend}")
    print_line("")


def _when(moment: Moment, result: HistoryResult) -> tuple[str, str]:
    """Offset, with a star where it is not proven to be committed, and time."""
    from snaprebuild.cli.result import time_text

    star = "*" if moment.offset >= result.proof.end_offset else ""
    return f"{moment.offset}{star}" if moment.offset >= 0 else "-", time_text(
        moment.timestamp_ms
    ) if moment.timestamp_ms >= 0 else "-"
