"""``scan``, ``plan``, ``rebuild`` and ``verify``: the commands of these names, with the same defaults, checks and results.

A call reads like the command: as fast as any program, and with 64 MiB a second of each disk at idle priority while a broker holds it.
It leaves the page cache as it was. Results of the command that would be files or tables are values (``library.verb_result.Result``).

Only the arguments count: a call reads no setting of the command, neither ``SNAPREBUILD_*`` variables nor ``config.toml``.

Calls may start worker processes for more than 96 MiB of segments. With ``jobs=1`` there are none.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from snaprebuild.argument_names import names_arguments
from snaprebuild.cli.options.kafka_release import release_of
from snaprebuild.cluster.judged_plan import judged_plan, load_judged_plan
from snaprebuild.cluster.judged_rebuild import judged_rebuild
from snaprebuild.cluster.judged_verify import judged_verify
from snaprebuild.cluster.scan_producer_ids import with_producer_ids
from snaprebuild.cluster.scan_storage import with_metadata_logs
from snaprebuild.documents.rebuild import Rebuild, RebuiltPartition
from snaprebuild.documents.scan import Scan
from snaprebuild.documents.verify import VerifiedPartition, Verify
from snaprebuild.errors import UsageError
from snaprebuild.hooks import FilePath
from snaprebuild.library.arguments import (
    Arguments,
    checked_arguments,
    command_of,
    given_with_a_plan,
    moment_of,
    reading,
    request_of,
    selection_of,
)
from snaprebuild.library.call_engine import CallEngine
from snaprebuild.library.call_progress import progress_of
from snaprebuild.library.tables import PLAN, REBUILD, SCAN, VERIFY
from snaprebuild.library.verb_result import PlanResult, Result
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.rebuild.results_file import result_file, write_results
from snaprebuild.snapshots.run import Invocation, Run, RunFacts, current_time_ms
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.scan.scan_parts import ScannedPartition, ScanRequest
from snaprebuild.snapshots.source.source import Source, open_source, yield_to_brokers
from snaprebuild.snapshots.staging.resume import rehearsed
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.storage.store import USUAL_S3, S3Settings

if TYPE_CHECKING:
    from snaprebuild.cli.view import View

__all__ = ["FilePath", "Paths", "plan", "rebuild", "scan", "verify"]

Paths = FilePath | Sequence[FilePath]
"""One path or several: partition directories, log directories, or any directories above them."""


@names_arguments
def scan(
    source: Paths = (),
    *,
    server_properties: FilePath | None = None,
    topics: str | Sequence[str] = (),
    partitions: int | Sequence[int] = (),
    topic_partitions: str | Sequence[str] = (),
    kafka_release: str | None = None,
    s3: S3Settings = USUAL_S3,
    impact: str | None = None,
    max_read_rate: int | None = None,
    engine: CallEngine | None = None,
) -> Result[Scan, ScannedPartition]:
    """Finds missing and suspect snapshots, and the rolled segments that would block the upload to tiered storage. Reads only.

    Args:
        source: paths, one or several.
        server_properties: configuration of a broker, whose ``log.dirs`` are read too.
        topics: shell patterns; none for all.
        partitions: numbers; none for all.
        topic_partitions: names such as ``orders-0``, besides those of the topics and numbers.
        kafka_release: release that starts the broker next, such as ``4.3.1``; None for all that are possible.
        s3: how object stores are reached, and the limits of the call.
        impact: ``low``, ``normal`` or ``full``, as ``--impact``; None for low while a broker runs.
        max_read_rate: bytes a second; None for any number.
        engine: where the partitions are looked at; None for this process.

    Raises:
        UsageError: nothing to read from, or an argument makes no sense.
        ReadFailedError: an object store cannot be listed.
    """
    given = checked_arguments(locals())
    used_engine: CallEngine = given["engine"]
    command = command_of("scan", given, used_engine)
    invocation = Invocation.now(command.text)
    with reading(invocation, given):
        opened = _opened(given, Run(stores=s3.for_run()))
        now_ms = current_time_ms()
        scanned = scan_source(opened, used_engine.planning())
        result = with_metadata_logs(scanned, opened, now_ms, release_of(kafka_release))
        result = with_producer_ids(result, opened, now_ms)
    request = ScanRequest(
        paths=given["source"],
        server_properties=given["server_properties"],
        topics=given["topics"],
        partitions=given["partitions"],
        topic_partitions=given["topic_partitions"],
    )

    def new_view() -> View:
        from snaprebuild.cli.render.scan import ScanView

        return ScanView(result, request, opened.properties, now_ms, all_rows=False)

    return Result(command, invocation, SCAN, new_view)


@names_arguments
def plan(
    source: Paths = (),
    *,
    server_properties: FilePath | None = None,
    topics: str | Sequence[str] = (),
    partitions: int | Sequence[int] = (),
    topic_partitions: str | Sequence[str] = (),
    offset_from: int | None = None,
    offset_to: int | None = None,
    out: FilePath | None = None,
    broker_running: bool = False,
    boundaries: str = "missing",
    replay_from: str = "auto",
    set_aside: bool = False,
    check_crc: bool = True,
    drop_expired: bool = False,
    allow_unproven: bool = False,
    accept_topic_id_zero: bool = False,
    kafka_release: str | None = None,
    as_of_ms: int | None = None,
    expiration_ms: int | None = None,
    metadata: FilePath | None = None,
    s3: S3Settings = USUAL_S3,
    impact: str | None = None,
    max_read_rate: int | None = None,
    engine: CallEngine | None = None,
) -> PlanResult:
    """Plans a rebuild: which snapshots ``rebuild`` with the same arguments would write, and what that costs. Reads only.

    Args:
        source: as for ``rebuild``, like every argument that has no other meaning here.
        server_properties: as for ``rebuild``.
        topics: as for ``rebuild``.
        partitions: as for ``rebuild``.
        topic_partitions: as for ``rebuild``.
        offset_from: as for ``rebuild``.
        offset_to: as for ``rebuild``.
        out: as for ``rebuild``.
        broker_running: as for ``rebuild``.
        boundaries: as for ``rebuild``.
        replay_from: as for ``rebuild``.
        set_aside: as for ``rebuild``.
        check_crc: as for ``rebuild``.
        drop_expired: as for ``rebuild``.
        allow_unproven: as for ``rebuild``.
        accept_topic_id_zero: as for ``rebuild``.
        kafka_release: as for ``rebuild``.
        as_of_ms: as for ``rebuild``.
        expiration_ms: as for ``rebuild``.
        metadata: as for ``rebuild``.
        s3: as for ``rebuild``.
        impact: as for ``rebuild``.
        max_read_rate: as for ``rebuild``.
        engine: where the partitions are planned; None for this process.

    Raises:
        UsageError: nothing to read from, or an argument makes no sense.
        RefusedError: ``out`` is in a broker's directory.
        ReadFailedError: an object store cannot be listed.
    """
    given = checked_arguments(locals())
    used_engine: CallEngine = given["engine"]
    command = command_of("plan", given, used_engine)
    invocation = Invocation.now(command.text)
    with reading(invocation, given):
        planned = judged_plan(request_of(given), Run(), measure_rate=True, parallel_map=used_engine.planning())
        shown = rehearsed(planned)

    def new_view() -> View:
        from snaprebuild.cli.render.rebuild import RebuildPlanView

        return RebuildPlanView(shown, _request_words(), None)

    return PlanResult(command, invocation, PLAN, new_view, planned)


@names_arguments
def rebuild(
    source: Paths = (),
    *,
    plan: PlanResult | FilePath | None = None,
    server_properties: FilePath | None = None,
    topics: str | Sequence[str] = (),
    partitions: int | Sequence[int] = (),
    topic_partitions: str | Sequence[str] = (),
    offset_from: int | None = None,
    offset_to: int | None = None,
    out: FilePath | None = None,
    broker_running: bool = False,
    boundaries: str = "missing",
    replay_from: str = "auto",
    set_aside: bool = False,
    check_crc: bool = True,
    drop_expired: bool = False,
    allow_unproven: bool = False,
    accept_topic_id_zero: bool = False,
    kafka_release: str | None = None,
    as_of_ms: int | None = None,
    expiration_ms: int | None = None,
    metadata: FilePath | None = None,
    s3: S3Settings = USUAL_S3,
    dry_run: bool = False,
    receipt: FilePath | None = None,
    results: FilePath | None = None,
    jobs: int | None = None,
    progress: Callable[[str, int], None] | None = None,
    impact: str | None = None,
    max_read_rate: int | None = None,
    engine: CallEngine | None = None,
) -> Result[Rebuild, RebuiltPartition]:
    """Writes the missing snapshots INTO the log directories, or below ``out``. Never replaces an existing file.

    The broker must be stopped, unless ``out`` or ``broker_running`` is given. ``snaprebuild undo`` takes back what the receipt lists.

    Args:
        source: paths, one or several.
        plan: the result of ``plan``, or the file of a saved plan; it is carried out with the arguments with which it was made.
        server_properties: configuration of a broker: all its ``log.dirs`` are read, with its expiration and retention.
        topics: shell patterns; none for all.
        partitions: numbers; none for all.
        topic_partitions: names such as ``orders-0``, besides those of the topics and numbers.
        offset_from: least boundary, inclusive; None for no bound.
        offset_to: greatest boundary, inclusive; None for no bound.
        out: directory of the snapshots; None for next to the segments.
        broker_running: write while a broker of 2.8 or newer runs.
        boundaries: ``missing`` or ``all``.
        replay_from: ``auto``, ``window`` or ``log-start``.
        set_aside: rename snapshots that are proven wrong, and write the right ones.
        check_crc: compute the checksum of every batch.
        drop_expired: leave expired entries out.
        allow_unproven: also write UNPROVEN ones next to the segments.
        accept_topic_id_zero: also write those of topics without an id, which Kafka would upload under topic id zero.
        kafka_release: release that starts the broker next, such as ``4.3.1``; None for all that are possible.
        as_of_ms: moment for expiry, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms``; None for that of ``server_properties``, else Kafka's default.
        metadata: metadata log of the cluster, which shows whether replicas may be written to; None for each broker's own.
        s3: how object stores are reached, and the limits of the call.
        dry_run: replay and judge, and write nothing.
        receipt: file that lists the written files; None for a new one in the usual place (``snaprebuild undo`` lists them).
        results: file for a row of each boundary, JSON lines or ``.parquet``; it must not exist.
        jobs: worker processes; None for as many as processors, or as disks if those are more.
        progress: called with a topic-partition and the bytes that were read since the last call. An error of it ends the run.
        impact: ``low``, ``normal`` or ``full``, as ``--impact``; None for low while a broker runs.
        max_read_rate: bytes a second; None for any number.
        engine: where segments are read and replayed; None for worker processes of this machine.

    Raises:
        UsageError: nothing to read from, an argument makes no sense or does not go with ``plan``, or ``out`` is no directory.
        RefusedError: a file may not be written there, a saved plan is out of date, or a limit is used up.
        StorageError: the receipt cannot be written, or an object store does not answer.
    """
    given = checked_arguments(locals())
    used_engine: CallEngine = given["engine"]
    command = command_of("rebuild", given, used_engine)
    if isinstance(plan, PlanResult):
        command = plan._command.carried_out_by(command)
    table_file = _table_file(given["results"], given["receipt"])
    facts = RunFacts()
    invocation = Invocation.now(command.text)
    with reading(invocation, given), progress_of(given["progress"], used_engine) as called:
        planned = _plan_to_carry_out(given, used_engine, facts)
        if table_file is not None:
            check_new_place(table_file)
        used_engine.keep_effects((each.source for each in planned.partitions), planned.request.s3)
        run = Run(jobs=given["jobs"], engine=used_engine.reading(called), facts=facts)

        def at_end(result: RebuildResult) -> None:
            if table_file is not None:
                write_results(result, table_file)
            if called is not None:
                called.raise_error()

        rebuilt = judged_rebuild(planned, run, dry_run=dry_run, receipt=given["receipt"], progress=called, at_end=at_end)

    def new_view() -> View:
        from snaprebuild.cli.render.rebuild import RebuildView

        return RebuildView(rebuilt.result, rebuilt.findings, _request_words(), cache=used_engine.cache)

    return Result(command, invocation, REBUILD, new_view)


@names_arguments
def verify(
    source: Paths = (),
    *,
    server_properties: FilePath | None = None,
    topics: str | Sequence[str] = (),
    partitions: int | Sequence[int] = (),
    topic_partitions: str | Sequence[str] = (),
    offset_from: int | None = None,
    offset_to: int | None = None,
    check_crc: bool = True,
    kafka_release: str | None = None,
    as_of_ms: int | None = None,
    expiration_ms: int | None = None,
    s3: S3Settings = USUAL_S3,
    jobs: int | None = None,
    progress: Callable[[str, int], None] | None = None,
    impact: str | None = None,
    max_read_rate: int | None = None,
    engine: CallEngine | None = None,
) -> Result[Verify, VerifiedPartition]:
    """Replays each partition and compares every snapshot on disk with the result. Reads only.

    Args:
        source: paths, one or several.
        server_properties: configuration of a broker, whose ``log.dirs`` and expiration count too.
        topics: shell patterns; none for all.
        partitions: numbers; none for all.
        topic_partitions: names such as ``orders-0``, besides those of the topics and numbers.
        offset_from: least offset of a snapshot, inclusive; None for no bound.
        offset_to: greatest offset of a snapshot, inclusive; None for no bound.
        check_crc: compute the checksum of every batch.
        kafka_release: release that starts the broker next, such as ``4.3.1``; None for all that are possible.
        as_of_ms: moment for expiry, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms``; None for that of ``server_properties``, else Kafka's default.
        s3: how object stores are reached, and the limits of the call.
        jobs: worker processes; None for as many as processors, or as disks if those are more.
        progress: called with a topic-partition and the bytes that were read since the last call. An error of it ends the run.
        impact: ``low``, ``normal`` or ``full``, as ``--impact``; None for low while a broker runs.
        max_read_rate: bytes a second; None for any number.
        engine: where segments are read and replayed; None for worker processes of this machine.

    Raises:
        UsageError: nothing to read from, or an argument makes no sense.
        RefusedError: a limit is used up.
        ReadFailedError: an object store cannot be listed.
    """
    given = checked_arguments(locals())
    used_engine: CallEngine = given["engine"]
    command = command_of("verify", given, used_engine)
    stores = s3.for_run()
    invocation = Invocation.now(command.text)
    with reading(invocation, given), progress_of(given["progress"], used_engine) as called:
        opened = _opened(given, Run(stores=stores))
        clock = Clock(moment_of(given), given["expiration_ms"] or opened.expiration_ms or DEFAULT_EXPIRATION_MS)
        used_engine.keep_effects(opened.partitions, stores)
        judged = judged_verify(
            opened,
            Run(clock=clock, jobs=given["jobs"], engine=used_engine.reading(called), stores=stores, facts=opened.facts),
            release=release_of(kafka_release),
            selection=selection_of(given),
            check_crc=check_crc,
            progress=called,
        )

    def new_view() -> View:
        from snaprebuild.cli.render.verify import VerifyView

        return VerifyView(judged, used_engine.cache, details=False)

    return Result(command, invocation, VERIFY, new_view)


def _opened(given: Arguments, run: Run) -> Source:
    """The listing of what is selected. The call now reads slowly if a broker holds a part of it."""
    source = open_source(given["source"], given["server_properties"], selection_of(given), run)
    yield_to_brokers(source)
    return source


def _table_file(results: str | None, receipt: str | None) -> str | None:
    """The file of the table of results; None without one.

    Raises:
        UsageError: its directory does not exist, or both are one file.
        RefusedError: the file is there.
    """
    if results is None:
        return None
    file = os.path.abspath(result_file(results))
    if not os.path.isdir(os.path.dirname(file)):
        raise UsageError("results: its directory does not exist", path=file)
    if receipt is not None and file == os.path.abspath(receipt):
        raise UsageError("results and receipt are one file", path=file)
    return file


def _plan_to_carry_out(given: Arguments, engine: CallEngine, facts: RunFacts) -> Plan:
    """A new plan of the arguments, or the one that was given.

    Raises:
        UsageError: other arguments were given with it, or it is no plan of ``rebuild``.
        RefusedError: the disk has changed since it was saved.
    """
    plan = given["plan"]
    if plan is None:
        return judged_plan(request_of(given), Run(facts=facts), parallel_map=engine.planning())
    parameters = inspect.signature(rebuild).parameters.values()
    others = given_with_a_plan(given, {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY})
    if others:
        raise UsageError(f"a plan has its own source and options: give {', '.join(others)} to plan(), not with the plan")
    planned = plan._plan if isinstance(plan, PlanResult) else load_judged_plan(plan, Run(facts=facts))
    if planned.request.destination.installed_later:
        raise UsageError("the plan is one of `stage`: run snaprebuild stage --plan FILE")
    return planned


def _request_words() -> list[str]:
    """The words that give the request, or the saved plan, to the next command."""
    from snaprebuild.cli.runs.rebuild_request import request_words

    return request_words()
