"""The verb ``cluster advise``."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec
import typer

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.facts import run_facts
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import S3Options, WholeNumber, as_of_ms, check_paths, quoted
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.cli.verbs.cluster_check import epoch_text
from snaprebuild.cli.verbs.simulate_metadata_log import Followers, offset_and_epoch, start_move
from snaprebuild.cluster.quorum.log_start import (
    FollowerMode,
)
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.cluster.quorum.advise import KraftAdvice, PolicyAdvice, Readers
    from snaprebuild.cluster.quorum.log_start import Progress, StartSettings
    from snaprebuild.documents import cluster as doc

__all__ = ["cluster_advise"]

COLUMNS = 64
"""Of the chart."""


class ReadTo(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """How far a reader is: NAME:OFFSET."""

    def __init__(self, name: str, pattern: str) -> None:
        self.name = name
        self._pattern = re.compile(f"({pattern}):([0-9]{{1,19}})")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Both parts; a usage error if it has others."""
        match = self._pattern.fullmatch(value)
        if match is None or int(match[2]) > INT64_MAX:
            self.fail(f"expected {self.name}, found {quoted(value)}", param, ctx)
        return match[1], int(match[2])


class AdviseAssumptions(msgspec.Struct, frozen=True):
    """What the directories do not show of the quorum."""

    replica: Annotated[
        Sequence[tuple[str, int]],
        Assumption(
            ReadTo("ID:OFFSET", "[0-9]{1,60}"),
            "Next offset that a live replica fetches; repeatable. Default: the end of OTHER.",
            is_list=True,
        ),
    ] = ()
    listener: Annotated[
        Sequence[tuple[str, int]],
        Assumption(
            ReadTo("NAME:OFFSET", "[A-Za-z0-9._-]{1,60}"),
            "Next offset that a listener of this node reads; repeatable. Default: none.",
            is_list=True,
        ),
    ] = ()
    leader_start: Annotated[
        tuple[str, int] | None, Assumption(ReadTo("OFFSET:EPOCH", "[0-9]{1,19}"), "Start of the leader's log. Default: from OTHER.")
    ] = None
    max_retention_bytes: Annotated[
        int | None,
        Assumption(
            WholeNumber(-1, INT64_MAX),
            "metadata.max.retention.bytes, -1 for none. Default: that of --server-properties, else 104857600.",
        ),
    ] = None
    max_retention_ms: Annotated[
        int | None,
        Assumption(
            WholeNumber(-1, INT64_MAX),
            "metadata.max.retention.ms, -1 for none. Default: that of --server-properties, else 604800000, 7 days.",
        ),
    ] = None
    lag_time_max_ms: Annotated[
        int | None,
        Assumption(WholeNumber(0, INT64_MAX), "Longest time that kafka-14932 waits for readers. Default: 604800000, 7 days."),
    ] = None

    def readers(self) -> Readers:
        """How far others have read.

        Raises:
            UsageError: a reader is named twice, or the start of the leader's log is no offset and epoch.
        """
        from snaprebuild.cluster.quorum.advise import Readers
        from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch

        start = None if self.leader_start is None else OffsetAndEpoch(int(self.leader_start[0]), self.leader_start[1])
        if start is not None and (start.offset > INT64_MAX or start.epoch > INT32_MAX):
            raise UsageError(f"--assume leader_start: expected OFFSET:EPOCH, found {quoted(f'{start.offset}:{start.epoch}')}")
        return Readers(_progress("replica", self.replica), _progress("listener", self.listener), start)

    def settings(self, configured: StartSettings) -> StartSettings:
        """The configured settings with the values that are given."""
        return replace(
            configured,
            retention_bytes=configured.retention_bytes if self.max_retention_bytes is None else self.max_retention_bytes,
            retention_ms=configured.retention_ms if self.max_retention_ms is None else self.max_retention_ms,
            lag_time_max_ms=configured.lag_time_max_ms if self.lag_time_max_ms is None else self.lag_time_max_ms,
        )


@verb()
def cluster_advise(
    *,
    directory: Annotated[str | None, typer.Argument(metavar="[DIR]")] = None,
    others: Annotated[list[str] | None, typer.Argument(metavar="[OTHER...]")] = None,
    server_properties: Annotated[
        str | None,
        typer.Option(
            "--server-properties",
            metavar="FILE",
            help="Configuration of the node: its metadata log, if DIR is not given, and its retention. Default: none.",
        ),
    ] = None,
    followers: Followers = FollowerMode.STRICT,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="Time of the decision: ISO 8601 (UTC without a zone), milliseconds since 1970, or now. Default: now.",
        ),
    ] = None,
    assumed: AdviseAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: shows where each policy would move the start of a metadata log now, and which nodes would have to load a checkpoint.

    DIR is a __cluster_metadata-0 directory, a log directory that holds one, or any directory above it. Each OTHER is the
    directory of another node of the quorum; its log end is what that node has fetched. Without DIR, --server-properties names the
    directory. The policies are those of `simulate metadata-log`.
    """
    from snaprebuild.cluster.quorum.advise import kraft_advise as ask

    out.begin()
    location, configured = _configured(directory, server_properties)
    check_paths([location, *(others or ())])
    readers = assumed.readers()
    settings = assumed.settings(configured)
    moment = as_of_ms(as_of)
    now_ms = int(time.time() * 1000) if moment is None else moment
    advice = ask(location, others or (), now_ms, settings, readers, followers, s3.run())
    return Result(lambda: _document(advice), advice.findings, lambda: _print(advice))


def _configured(directory: str | None, server_properties: str | None) -> tuple[str, StartSettings]:
    """The directory that is advised on, and the settings before options change them."""
    from snaprebuild.cluster.quorum.advise import metadata_directory_of, start_settings_of
    from snaprebuild.cluster.quorum.log_start import StartSettings

    check_paths(None, server_properties=server_properties)
    if server_properties is None:
        if directory is None:
            raise UsageError("name the directory of a metadata log, or the --server-properties of its node")
        return directory, StartSettings()
    properties = run_facts().properties(server_properties)
    location = metadata_directory_of(properties) if directory is None else directory
    return location, start_settings_of(properties, server_properties)


def _progress(name: str, values: Sequence[tuple[str, int]]) -> tuple[Progress, ...]:
    from snaprebuild.cluster.quorum.log_start import Progress

    found: dict[str, Progress] = {}
    for each, offset in values:
        if each in found:
            raise UsageError(f"--assume {name}: {each} is named twice")
        found[each] = Progress(each, offset)
    return tuple(found.values())


def _document(advice: KraftAdvice) -> doc.ClusterAdvise:
    from snaprebuild.cli.render.shared_parts import unknown_contents
    from snaprebuild.documents import cluster as doc

    facts = advice.node.facts
    settings = advice.settings
    due = advice.next_checkpoint
    return doc.ClusterAdvise(
        directory=advice.node.log.path,
        node_id=advice.node.node_id,
        is_leader=advice.is_leader,
        as_of_ms=advice.as_of_ms,
        retention_bytes=settings.retention_bytes,
        retention_ms=settings.retention_ms,
        lag_time_max_ms=settings.lag_time_max_ms,
        checkpoint_interval_ms=settings.checkpoints.interval_ms,
        checkpoint_record_bytes=settings.checkpoints.record_bytes,
        next_checkpoint=doc.NextCheckpoint(record_bytes=due.record_bytes, age_ms=due.age_ms, is_due=due.is_due),
        first_base_offset=facts.first_base_offset,
        start=doc.LogStart(offset=facts.start_offset, epoch=None if facts.start is None else facts.start.epoch),
        end_offset=facts.end_offset,
        kept_bytes=advice.kept_bytes,
        replicas=[_reader(each) for each in advice.replicas],
        unknown_replicas=advice.unknown,
        listeners=[_reader(each) for each in advice.listeners],
        leader_start=None if advice.leader_start is None else offset_and_epoch(advice.leader_start),
        policies=[_policy(advice, each) for each in advice.policies],
        assumptions=advice.assumptions,
        unknown_contents=unknown_contents(advice.node.log.unknown, advice.node.log.other_files),
    )


def _reader(reader: Progress) -> doc.Reader:
    from snaprebuild.documents import cluster as doc

    return doc.Reader(name=reader.name, offset=reader.offset)


def _policy(advice: KraftAdvice, policy: PolicyAdvice) -> doc.AdvisedPolicy:
    from snaprebuild.documents import cluster as doc

    return doc.AdvisedPolicy(
        policy=policy.policy.value,
        start=doc.LogStart(offset=policy.start.offset, epoch=_epoch_of(advice, policy)),
        moves=[start_move(advance) for advance in policy.advances],
        kept_bytes=policy.kept_bytes,
        kept_checkpoints=policy.checkpoints,
        invalidated=policy.invalidated,
        reloaded=policy.reloaded,
        stays_because=policy.why_not,
    )


def _epoch_of(advice: KraftAdvice, policy: PolicyAdvice) -> int | None:
    """Of a start that stays where its epoch is not known it is not known either."""
    return policy.start.epoch if policy.advances or advice.node.facts.start is not None else None


def _print(advice: KraftAdvice) -> None:
    from snaprebuild.cli.render.log_start_chart import with_duration_texts
    from snaprebuild.cli.result import print_line, print_table, print_text, shown, size_text

    facts = advice.node.facts
    rows: list[tuple[object, ...]] = [
        ("now", epoch_text(facts.start, facts.start_offset), "-", "-", size_text(advice.kept_bytes), "-", "-", "")
    ]
    for each in advice.policies:
        segments = sum(len(advance.deleted.segments) for advance in each.advances)
        checkpoints = sum(len(advance.deleted.checkpoints) for advance in each.advances)
        because = with_duration_texts(each.why_not or each.advances[-1].reason)
        start = str(each.start) if each.advances else "stays"
        who = (", ".join(names) or "-" for names in (each.invalidated, each.reloaded))
        rows.append((each.policy.value, start, segments or "-", checkpoints or "-", size_text(each.kept_bytes), *who, because))
    node = "" if advice.node.node_id is None else f" of node {advice.node.node_id}"
    role = "leader" if advice.is_leader else "follower"
    columns = ("policy", "start", "segments go", "checkpoints go", "kept", "invalidated", "reloaded", "because")
    print_table(
        f"Start of the metadata log{node}, {role}: {shown(advice.node.log.path)}",
        columns,
        rows,
        right=columns[2:5],
        drop=("checkpoints go", "segments go"),
    )
    for line in _chart(advice):
        print_line(line)
    print_text(_next_text(advice))
    for assumption in advice.assumptions:
        print_text(f"Assumed: {assumption}")
    if advice.node.log.unknown:
        print_text(f"Not covered: {advice.node.log.unknown.sentence}.")


def _next_text(advice: KraftAdvice) -> str:
    """When there is another checkpoint to go to."""
    from snaprebuild.cli.render.log_start_chart import duration_text
    from snaprebuild.cli.result import size_text

    due = advice.next_checkpoint
    settings = advice.settings.checkpoints
    amount = f"{size_text(due.record_bytes)} of {size_text(settings.record_bytes)} of records follow the latest"
    if settings.interval_ms:
        age = "which is of unknown age"
        if due.age_ms is not None:
            age = f"which is {duration_text(due.age_ms)} old; the limit is {duration_text(settings.interval_ms)}"
        amount += f", {age}"
    by_time = due.is_due and due.record_bytes < settings.record_bytes
    state = "due, if the node has been up since the latest" if by_time else "due" if due.is_due else "not due"
    return f"Next checkpoint: {state} ({amount})"


def _chart(advice: KraftAdvice) -> list[str]:
    """The log as a line of offsets, what each policy would keep of it, and where checkpoints end."""
    from snaprebuild.cli.result import draws_blocks

    facts = advice.node.facts
    first = min(facts.base, facts.start_offset)
    end = facts.end_offset
    kept, gone, mark, edge = "█░▲│" if draws_blocks() else "#.^|"
    if end <= first:
        return []

    def column(offset: int) -> int:
        return min(COLUMNS - 1, (offset - first) * COLUMNS // (end - first))

    def marked(offsets: Sequence[int], sign: str, blank: str) -> str:
        at = {column(each) for each in offsets if first <= each <= end}
        return "".join(sign if each in at else blank for each in range(COLUMNS)).rstrip()

    def bar(start: int) -> str:
        return gone * column(max(first, start)) + kept * (COLUMNS - column(max(first, start)))

    lines = [f" {'offsets':<12}{first:<{COLUMNS - len(str(end))}}{end}"]
    lines.append(f" {'segments':<12}{marked([each.base_offset for each in advice.node.segments], edge, ' ')}")
    lines.append(f" {'checkpoints':<12}{marked([each.id.offset for each in facts.checkpoints], mark, ' ')}")
    for name, readers in (("replicas", advice.replicas), ("listeners", advice.listeners)):
        if readers:
            lines.append(f" {name:<12}{marked([each.offset for each in readers], '*', ' ')}")
    lines.append(f" {'now':<12}{bar(facts.start_offset)}")
    lines += [f" {each.policy.value:<12}{bar(each.start.offset)}" for each in advice.policies]
    return [*lines, ""]
