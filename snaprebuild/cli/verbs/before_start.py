"""The verb ``before-start``."""

from __future__ import annotations

import functools
import os
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from snaprebuild.cli.launch import deadline_after
from snaprebuild.cli.options.common import (
    ExpirationMs,
    Jobs,
    Paths,
    ReceiptFile,
    ServerProperties,
    Topic,
    check_directories,
    command_run,
    deadline_option,
    selection_of,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.kafka_release import KafkaRelease, release_of
from snaprebuild.cli.options.metadata import Metadata, check_metadata
from snaprebuild.cli.options.rebuild import DryRun, SetAside
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.cli.wrapped_command import StartDecision, start_after, wrapped_command
from snaprebuild.errors import UsageError
from snaprebuild.findings import Severity

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_request import RebuildRequest

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
        deadline_option("Stop reading after this time, and keep what is written"),
    ] = None,
    fail_closed: Annotated[
        bool,
        option(
            "--fail-closed",
            short="Do not start CMD if the start itself would fail, or lose records that no other replica is known to hold",
            default="start it in any case",
        ),
    ] = False,
    order: Annotated[
        Order,
        option(
            "--order",
            short="First partition",
            details="bytes-blocked: the one with the most bytes that cannot be uploaded. path: the first path.",
            default="bytes-blocked",
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
) -> View:
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
    decision = StartDecision() if fail_closed else None
    if command is not None:
        start_after(command, deadline=until, decision=decision)
    # After the fork: a module that is damaged ends the work, and CMD starts.
    from snaprebuild.cli.render.before_start import BeforeStartView, reason_held
    from snaprebuild.cluster.scan_storage import judged_scan
    from snaprebuild.cluster.source_check.plan_gate import judge_plans
    from snaprebuild.snapshots.before_start import prepare_log_dirs
    from snaprebuild.snapshots.source.source import open_source

    out.begin({"--receipt": receipt})
    release = release_of(kafka_release)
    request = _request(paths, server_properties, topic, expiration_ms, metadata, set_aside=set_aside)
    source = open_source(request.paths, request.server_properties, selection_of(topic, None, None), command_run())
    judged = judged_scan(source, int(time.time() * 1000), release)
    if decision is not None:
        decision.send(reason_held(judged))
    result = prepare_log_dirs(
        request,
        functools.partial(judge_plans, unsafe=Severity.NOTE),  # the fates have findings of their own
        command_run(jobs=jobs, deadline=until),
        by_blocked_bytes=order is Order.BYTES_BLOCKED,
        dry_run=dry_run,
        receipt=receipt,
        starts_on_exit_code=fail_closed,
        source=source,
        fates=judged.fates,
    )
    return BeforeStartView(result, judged, deadline, order.value)


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

    check_directories(paths, server_properties=server_properties)
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
