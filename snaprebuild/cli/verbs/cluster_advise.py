"""The verb ``cluster advise``."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.common import S3Options, as_of_ms, check_paths, quoted
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.cli.verbs.cluster_check import epoch_text
from snaprebuild.cli.verbs.simulate_metadata_log import Followers, offset_and_epoch, start_move
from snaprebuild.cluster.quorum.log_start import (
    FollowerMode,
)
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from snaprebuild.cluster.quorum.advise import KraftAdvice, PolicyAdvice
    from snaprebuild.cluster.quorum.log_start import LogStart, Progress, StartSettings
    from snaprebuild.documents import cluster as doc

__all__ = ["cluster_advise"]

COLUMNS = 64
"""Of the chart."""

_PROGRESS = re.compile(r"([A-Za-z0-9._-]{1,60}):([0-9]{1,19})")
_NUMBER = re.compile(r"-1|[0-9]{1,19}")


@verb()
def cluster_advise(
    *,
    directory: Annotated[str | None, typer.Argument(metavar="[DIR]")] = None,
    others: Annotated[list[str] | None, typer.Argument(metavar="[OTHER...]")] = None,
    replica: Annotated[
        list[str] | None,
        typer.Option(
            "--replica", metavar="ID:OFFSET", help="Next offset that a live replica fetches; repeatable. Default: the end of OTHER."
        ),
    ] = None,
    listener: Annotated[
        list[str] | None,
        typer.Option(
            "--listener", metavar="NAME:OFFSET", help="Next offset that a listener of this node reads; repeatable. Default: none."
        ),
    ] = None,
    leader_start: Annotated[
        str | None,
        typer.Option("--leader-start", metavar="OFFSET:EPOCH", help="Start of the leader's log. Default: from OTHER."),
    ] = None,
    server_properties: Annotated[
        str | None,
        typer.Option(
            "--server-properties",
            metavar="FILE",
            help="Configuration of the broker of DIR; refused if another of its log.dirs has the partition. Default: none, "
            "only DIR is checked.",
        ),
    ] = None,
    retention_bytes: Annotated[
        str | None,
        typer.Option(
            "--max-retention-bytes",
            metavar="N",
            help="metadata.max.retention.bytes, -1 for none. Default: that of --server-properties, else 104857600.",
        ),
    ] = None,
    retention_ms: Annotated[
        str | None,
        typer.Option(
            "--max-retention-ms",
            metavar="N",
            help="metadata.max.retention.ms, -1 for none. Default: that of --server-properties, else 604800000, 7 days.",
        ),
    ] = None,
    lag_time_max_ms: Annotated[
        str | None,
        typer.Option(
            "--lag-time-max-ms", metavar="N", help="Longest time that kafka-14932 waits for readers. Default: 604800000, 7 days."
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
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: where each policy would move the start of a node's metadata log now, what goes, and who would have to reload.

    DIR is a __cluster_metadata-0 directory, a log directory that holds one, or any directory above it. Each OTHER is that of another
    node of the quorum: what it holds is what it has fetched. With --server-properties and no DIR it is the one that this configuration
    names. The policies are those of `simulate metadata-log`.
    """
    from snaprebuild.cluster.quorum.advise import Readers
    from snaprebuild.cluster.quorum.advise import kraft_advise as ask

    out.begin()
    location, configured = _configured(directory, server_properties)
    check_paths([location, *(others or ())])
    readers = Readers(_progress("--replica", replica), _progress("--listener", listener), _start(leader_start))
    settings = replace(
        configured,
        retention_bytes=_number("--max-retention-bytes", retention_bytes, configured.retention_bytes, -1),
        retention_ms=_number("--max-retention-ms", retention_ms, configured.retention_ms, -1),
        lag_time_max_ms=_number("--lag-time-max-ms", lag_time_max_ms, configured.lag_time_max_ms, 0),
    )
    moment = as_of_ms(as_of)
    now_ms = int(time.time() * 1000) if moment is None else moment
    advice = ask(location, others or (), now_ms, settings, readers, followers, s3.settings())
    return Result(lambda: _document(advice), advice.findings, lambda: _print(advice))


def _configured(directory: str | None, server_properties: str | None) -> tuple[str, StartSettings]:
    """The directory that is advised on, and the settings before options change them."""
    from snaprebuild.cluster.quorum.advise import metadata_directory_of, start_settings_of
    from snaprebuild.cluster.quorum.log_start import StartSettings
    from snaprebuild.snapshots.source.broker_properties import read_server_properties

    check_paths(None, server_properties=server_properties)
    if server_properties is None:
        if directory is None:
            raise UsageError("name the directory of a metadata log, or the --server-properties of its node")
        return directory, StartSettings()
    properties = read_server_properties(server_properties)
    location = metadata_directory_of(properties) if directory is None else directory
    return location, start_settings_of(properties, server_properties)


def _progress(option: str, values: list[str] | None) -> tuple[Progress, ...]:
    from snaprebuild.cluster.quorum.log_start import Progress

    found: dict[str, Progress] = {}
    for value in values or ():
        match = _PROGRESS.fullmatch(value)
        if match is None or int(match[2]) > INT64_MAX or (option == "--replica" and not match[1].isdecimal()):
            expected = "ID:OFFSET" if option == "--replica" else "NAME:OFFSET"
            raise UsageError(f"{option}: expected {expected}, found {quoted(value)}")
        if match[1] in found:
            raise UsageError(f"{option}: {match[1]} is named twice")
        found[match[1]] = Progress(match[1], int(match[2]))
    return tuple(found.values())


def _start(value: str | None) -> LogStart | None:
    from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch

    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,19}):([0-9]{1,10})", value)
    if match is None or int(match[1]) > INT64_MAX or int(match[2]) > INT32_MAX:
        raise UsageError(f"--leader-start: expected OFFSET:EPOCH, found {quoted(value)}")
    return OffsetAndEpoch(int(match[1]), int(match[2]))


def _number(option: str, value: str | None, default: int, least: int) -> int:
    if value is None:
        return default
    if _NUMBER.fullmatch(value) is None or not least <= int(value) <= INT64_MAX:
        raise UsageError(f"{option}: expected a number from {least} to {INT64_MAX}, found {quoted(value)}")
    return int(value)


def _document(advice: KraftAdvice) -> doc.ClusterAdvise:
    from snaprebuild.documents import cluster as doc

    facts, settings, due = advice.node.facts, advice.settings, advice.next_checkpoint
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
    from snaprebuild.cli.result import print_line, print_table, print_text, shown, size_text

    facts = advice.node.facts
    rows: list[tuple[object, ...]] = [
        ("now", epoch_text(facts.start, facts.start_offset), "-", "-", size_text(advice.kept_bytes), "-", "-", "")
    ]
    for each in advice.policies:
        segments = sum(len(advance.deleted.segments) for advance in each.advances)
        checkpoints = sum(len(advance.deleted.checkpoints) for advance in each.advances)
        because = each.why_not or each.advances[-1].reason
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


def _next_text(advice: KraftAdvice) -> str:
    """When there is another checkpoint to go to."""
    from snaprebuild.cli.result import size_text

    due, settings = advice.next_checkpoint, advice.settings.checkpoints
    told = f"{size_text(due.record_bytes)} of {size_text(settings.record_bytes)} of records lie behind the latest"
    if settings.interval_ms:
        age = "which is of unknown age" if due.age_ms is None else f"which is {due.age_ms} of {settings.interval_ms} ms old"
        told += f", {age}"
    by_time = due.is_due and due.record_bytes < settings.record_bytes
    state = "due, if the node has been up since the latest" if by_time else "due" if due.is_due else "not due"
    return f"Next checkpoint: {state} ({told})"


def _chart(advice: KraftAdvice) -> list[str]:
    """The log as a line of offsets, what each policy would keep of it, and where checkpoints end."""
    from snaprebuild.cli.result import draws_blocks

    facts = advice.node.facts
    first, end = min(facts.base, facts.start_offset), facts.end_offset
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
