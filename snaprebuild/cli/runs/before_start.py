"""The work of the verb ``before-start``, after the process that starts the broker was forked."""

from __future__ import annotations

import functools
import os

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.before_start import BeforeStartOptions, Order
from snaprebuild.cli.options.kafka_release import release_of
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.render.before_start import BeforeStartView, reason_held
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cli.wrapped_command import StartDecision
from snaprebuild.cluster.scan_storage import judged_scan
from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.errors import UsageError
from snaprebuild.findings import Severity
from snaprebuild.snapshots.before_start import prepare_log_dirs
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.run import current_time_ms
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage.store import absolute, is_object
from snaprebuild.typed_paths import absent_text

__all__ = ["run_before_start"]


def run_before_start(
    options: BeforeStartOptions, *, until: float | None, decision: StartDecision | None, out: OutputOptions
) -> View:
    """Writes missing snapshots, and decides with ``decision`` whether the broker may start.

    Args:
        options: of the verb.
        until: a ``time.monotonic()`` after which nothing of a segment is read; None for none.
        decision: gets the reason why the broker may not start; None where it starts in any case.
        out: where the result goes.
    """
    # A broker is prepared also if nobody can read how.
    out.begin(new_files={"--receipt": options.receipt}, works_without_files=True)
    release = release_of(options.kafka_release)
    request = _request(options)
    source = open_source(request.paths, request.server_properties, request.selection, run_of())
    judged = judged_scan(source, current_time_ms(), release)
    if decision is not None:
        decision.send(reason_held(judged))
    result = prepare_log_dirs(
        request,
        functools.partial(judge_plans, unsafe=Severity.NOTE),  # the fates have findings of their own
        run_of(jobs=options.jobs, deadline=until),
        by_blocked_bytes=options.order is Order.BYTES_BLOCKED,
        dry_run=options.dry_run,
        receipt=options.receipt,
        starts_on_exit_code=options.fail_closed,
        source=source,
        fates=judged.fates,
    )
    return BeforeStartView(result, judged, options.deadline, options.order.value)


def _request(options: BeforeStartOptions) -> RebuildRequest:
    check_directories(options.paths, server_properties=options.server_properties)
    check_metadata(options.metadata)
    for path in (options.paths or [])[1:]:
        if not is_object(path) and not os.path.lexists(path):
            raise UsageError(f"{absent_text(path)}; CMD comes after `--`", path=path)
    selection = selection_of(options)
    return RebuildRequest(
        paths=tuple(absolute(path) for path in options.paths or ()),
        server_properties=None if options.server_properties is None else os.path.abspath(options.server_properties),
        topics=selection.topics,
        partitions=tuple(selection.partitions),
        topic_partitions=tuple(selection.topic_partitions),
        set_aside=options.set_aside,
        as_of_ms=current_time_ms(),
        expiration_ms=options.expiration_ms,
        metadata=None if options.metadata is None else absolute(options.metadata),
    )
