"""The verb ``before-start``."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.facts import run_facts
from snaprebuild.cli.launch import deadline_after
from snaprebuild.cli.options.common import (
    ExpirationMs,
    Jobs,
    Paths,
    ReceiptFile,
    ServerProperties,
    Topic,
    check_paths,
    deadline_option,
    selection_of,
)
from snaprebuild.cli.options.kafka_release import KafkaRelease, release_of
from snaprebuild.cli.options.metadata import Metadata, check_metadata
from snaprebuild.cli.options.rebuild import DryRun, SetAside
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.cli.wrapped_command import Verdict, start_after, wrapped_command
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.documents.before_start import BeforeStart, Partition
    from snaprebuild.findings import Finding
    from snaprebuild.snapshots.before_start import Preparation, PreparedPartition
    from snaprebuild.snapshots.plan.plan_request import RebuildRequest
    from snaprebuild.snapshots.scan.result import ScanResult

__all__ = ["before_start"]


class Order(StrEnum):
    """Which partition is worked on first."""

    BYTES_BLOCKED = "bytes-blocked"
    PATH = "path"


@verb()
def before_start(
    *,
    paths: Paths = None,
    server_properties: ServerProperties = None,
    deadline: Annotated[
        int | None,
        deadline_option("Stop reading after this time, and keep what is written. Default: none."),
    ] = None,
    fail_closed: Annotated[
        bool,
        typer.Option(
            "--fail-closed",
            help="Do not start CMD if the start itself would fail, or lose records that no other replica is known to hold. "
            "Default: start it in any case.",
        ),
    ] = False,
    order: Annotated[
        Order,
        typer.Option(
            "--order",
            show_default=False,
            help="First partition. bytes-blocked: the one with the most bytes that cannot be uploaded. path: the first path. "
            "Default: bytes-blocked.",
        ),
    ] = Order.BYTES_BLOCKED,
    metadata: Metadata = None,
    topic: Topic = None,
    expiration_ms: ExpirationMs = None,
    kafka_release: KafkaRelease = None,
    set_aside: SetAside = False,
    dry_run: DryRun = False,
    receipt: ReceiptFile = None,
    jobs: Jobs = None,
    out: OutputOptions,
) -> Result:
    """WRITES missing snapshots into the log directories of a stopped broker, then starts the broker with CMD.

    PATH is a partition directory, a log directory, or any directory above them; several may be named. It does what
    `rebuild` does, just before a broker starts: in ExecStart of systemd, or in the entry point of a container. The partition with
    the most bytes that cannot be uploaded comes first. What is written at the deadline is complete. CMD starts after every
    result, also after an error of usage. With --fail-closed it does not start if the start itself would lose records or fail: then
    the exit code is 3. It takes the place of this process and gets its stdout. Without CMD the exit code is the result.
    SNAPREBUILD_START_ANYWAY=1, or the file /run/snaprebuild/start-anyway, starts CMD at once and checks nothing.
    """
    command = wrapped_command(as_json=out.as_json)
    if command is None and fail_closed:
        raise UsageError("--fail-closed decides when CMD is started, and there is no CMD: use the exit code")
    until = None if deadline is None else deadline_after(deadline)
    verdict = Verdict() if fail_closed else None
    if command is not None:
        start_after(command, deadline=until, verdict=verdict)
    # After the fork: a module that is damaged ends the work, and CMD starts.
    from snaprebuild.broker.status import findings_of
    from snaprebuild.cluster.scan_storage import judged_scan
    from snaprebuild.cluster.source_check.plan_gate import judge_plans
    from snaprebuild.findings import Severity
    from snaprebuild.snapshots.before_start import prepare_log_dirs
    from snaprebuild.snapshots.run import Run
    from snaprebuild.snapshots.source.source import open_source

    out.begin({"--receipt": receipt})
    release = release_of(kafka_release)
    request = _request(paths, server_properties, topic, expiration_ms, metadata, set_aside=set_aside)
    source = open_source(request.paths, request.server_properties, selection_of(topic, None, None), Run(facts=run_facts()))
    judged = judged_scan(source, int(time.time() * 1000), release)
    if verdict is not None:
        verdict.give(_why_held(judged))
    result = prepare_log_dirs(
        request,
        functools.partial(judge_plans, unsafe=Severity.NOTE),  # the fates have findings of their own
        Run(facts=run_facts(), jobs=jobs, deadline=until),
        by_blocked_bytes=order is Order.BYTES_BLOCKED,
        dry_run=dry_run,
        receipt=receipt,
        starts_on_exit_code=fail_closed,
        source=source,
        fates=judged.fates,
    )
    reported = {each.path for each in result.findings if each.is_unread}
    unread = [each for each in judged.other_findings if each.is_unread and each.path not in reported]
    findings = (*result.findings, *unread, *findings_of(judged.fates))
    return Result(
        lambda: _document(result, judged, deadline, order),
        findings,
        lambda: _print(result, judged, findings),
        last=lambda: print_on_stderr(f"snaprebuild: {_summary(result)}"),
    )


def _request(
    paths: list[str] | None,
    server_properties: str | None,
    topic: list[str] | None,
    expiration_ms: int | None,
    metadata: str | None,
    *,
    set_aside: bool,
) -> RebuildRequest:
    from snaprebuild.snapshots.plan.plan_request import RebuildRequest
    from snaprebuild.storage.store import absolute

    check_paths(paths, server_properties=server_properties)
    check_metadata(metadata)
    return RebuildRequest(
        paths=tuple(absolute(path) for path in paths or ()),
        server_properties=None if server_properties is None else os.path.abspath(server_properties),
        topics=selection_of(topic, None, None).topics,
        set_aside=set_aside,
        as_of_ms=int(time.time() * 1000),
        expiration_ms=expiration_ms,
        metadata=None if metadata is None else absolute(metadata),
    )


def _document(result: Preparation, judged: ScanResult, deadline: int | None, order: Order) -> BeforeStart:
    from snaprebuild.documents.before_start import BeforeStart, Totals

    plan = result.rebuilt.plan
    return BeforeStart(
        paths=plan.request.paths,
        server_properties=plan.request.server_properties,
        topics=plan.request.topics,
        metadata=plan.request.metadata,
        deadline_seconds=deadline,
        order=order.value,
        set_aside=plan.request.set_aside,
        as_of_ms=plan.clock.as_of_ms,
        expiration_ms=plan.clock.expiration_ms,
        dry_run=result.rebuilt.dry_run,
        receipt=result.rebuilt.receipt,
        takes_effect="when a broker next loads the log, at its start",
        elapsed_seconds=round(result.seconds, 4),
        totals=Totals(
            partitions=len(result.partitions),
            prepared=sum(each.state == "prepared" for each in result.partitions),
            **_sums(result),
        ),
        partitions=[_partition(each) for each in result.partitions],
        status=judged.status.word.value,
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
    from snaprebuild.documents.before_start import PartitionTotals

    counts = [_counts(each) for each in result.partitions]
    return {name: sum(each[name] for each in counts) for name in PartitionTotals.__struct_fields__}


def _not_written(counts: Mapping[str, int]) -> int:
    """Number of snapshots that a broker may need, and that do not get there."""
    return counts["failed"] + counts["refused"] + counts["skipped"]


def _partition(partition: PreparedPartition) -> Partition:
    from snaprebuild.cli.render.shared_parts import source_verdict
    from snaprebuild.documents.before_start import Partition, PartitionTotals
    from snaprebuild.storage.partition_names import names_of

    result = partition.result
    return Partition(
        **names_of(result.plan.source.directory),
        path=result.path,
        state=partition.state.value,
        totals=PartitionTotals(**_counts(partition)),
        elapsed_seconds=round(result.outcome.elapsed_seconds, 4),
        fault=result.plan.fault,
        verdict=source_verdict(result.plan.verdict),
    )


def _summary(result: Preparation) -> str:
    """The one line that is read in the journal of a start."""
    from snaprebuild.cli.result import size_text
    from snaprebuild.findings import pluralize
    from snaprebuild.snapshots.source.topic_ids import topics_under_id_zero

    totals = _sums(result)
    done = "to write (dry run)" if result.rebuilt.dry_run else "written"
    parts = [
        f"{pluralize(totals['written'] + totals['would_write'], 'snapshot')} {done}",
        f"{_not_written(totals)} not written",
        f"blocked {size_text(totals['blocked_bytes'])}, now {size_text(totals['blocked_bytes_left'])}",
        f"{size_text(totals['read_bytes'])} of {pluralize(len(result.partitions), 'partition')} read in {result.seconds:.1f} s",
    ]
    without_id = topics_under_id_zero(each.result.plan.source for each in result.partitions)
    if without_id:
        parts.append(f"not ready for remote storage: {pluralize(len(without_id), 'topic')} without an id")
    receipt = result.rebuilt.receipt
    return "; ".join([*parts, *([] if receipt is None else [f"receipt {receipt}"])])


def _why_held(judged: ScanResult) -> str | None:
    """Why ``--fail-closed`` holds the broker; None if it may start."""
    from snaprebuild.cli.render.status import fate_sentence
    from snaprebuild.findings import pluralize, unread_paths
    from snaprebuild.snapshots.scan.result import Shutdown

    if any(log_dir.shutdown is Shutdown.RUNNING for log_dir in judged.log_dirs):
        return "another process holds .lock of a log directory."
    for group in judged.status.groups:
        if any(fate.holds_broker for fate in group.fates):
            return fate_sentence(group)
    unread = unread_paths(judged.other_findings)
    return f"INCOMPLETE: {pluralize(len(unread), 'path')} could not be read." if unread else None


def _print(result: Preparation, judged: ScanResult, findings: Sequence[Finding]) -> None:
    from snaprebuild.cli.render.status import status_details, status_line
    from snaprebuild.cli.result import labels_of, print_table, print_text, size_text, unless_unread
    from snaprebuild.findings import pluralize

    first = status_line(judged.status)
    if first is not None:
        print_text(first)
    details = status_details(judged.status)  # where the first line has no room for the names
    if details:
        print_text(details)
    labels = labels_of(each.result.plan.source for each in result.partitions)
    busy = [each for each in result.partitions if each.result.boundaries or each.result.plan.fault is not None or each.left_out]
    rows = [
        (
            labels[each.result.path],
            size_text(each.blocked_bytes),
            each.count("written", "would_write"),
            _not_written(_counts(each)),
            size_text(each.result.outcome.read_bytes),
            each.state.value,
        )
        for each in busy
    ]
    left_out = sum(each.left_out for each in result.partitions)
    if left_out and all(not each.result.boundaries and each.result.plan.fault is None for each in busy):
        print_text(f"{pluralize(left_out, 'snapshot is missing', 'snapshots are missing')}, and none is written")
        return
    if not rows and first is None:
        print_text(unless_unread("no snapshot is missing", findings))
    if not rows:
        return
    columns = ("partition", "blocked", "snapshots", "not written", "read", "state")
    title = "Dry run: nothing was written" if result.rebuilt.dry_run else "Prepared, the most blocked first"
    print_table(title, columns, rows, right=columns[1:-1], drop=("read",))
