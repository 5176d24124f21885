"""``scan``, ``plan``, ``rebuild`` and ``verify``: the commands of these names, with the same defaults, checks and results.

A call reads like the command: as fast as any program, and with 64 MiB a second of each disk at idle priority while a broker holds it.
It leaves the page cache as it was. Results of the command that would be files or tables are values (``library.verb_result.Result``).

Calls may start worker processes for more than 96 MiB of segments. With ``jobs=1`` there are none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from snaprebuild.cli.options.common import AS_OF_MAX_MS
from snaprebuild.cli.options.io_limits import Impact, Load
from snaprebuild.cli.options.kafka_release import release_of
from snaprebuild.cli.runs.sources import partition_named
from snaprebuild.cli.runs.stores import check_settings
from snaprebuild.cluster.judged_plan import judged_plan, load_judged_plan, rebuild_findings
from snaprebuild.cluster.judged_verify import judged_verify
from snaprebuild.cluster.scan_producer_ids import with_producer_ids
from snaprebuild.cluster.scan_storage import with_metadata_logs
from snaprebuild.documents.rebuild import Rebuild, RebuiltPartition
from snaprebuild.documents.scan import Scan
from snaprebuild.documents.verify import VerifiedPartition, Verify
from snaprebuild.errors import UsageError
from snaprebuild.hooks import FilePath
from snaprebuild.library.call_engine import THIS_MACHINE, CallEngine
from snaprebuild.library.command_line import CommandLine
from snaprebuild.library.tables import PLAN, REBUILD, SCAN, VERIFY
from snaprebuild.library.verb_result import PlanResult, Result
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild import run as rebuilding
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.rebuild.results_file import result_file, write_results
from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path
from snaprebuild.snapshots.run import Run, RunFacts
from snaprebuild.snapshots.run_record import Invocation
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.scan.scan_parts import ScannedPartition, ScanRequest
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import Source, open_source, yield_to_brokers
from snaprebuild.snapshots.staging.resume import rehearsed
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.storage.store import USUAL_S3, S3Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from snaprebuild.cli.view import View
    from snaprebuild.snapshots.engine.partition_task import Progress

__all__ = ["FilePath", "Paths", "plan", "rebuild", "scan", "verify"]

Paths = FilePath | Sequence[FilePath]
"""One path or several: partition directories, log directories, or any directories above them."""


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
    check_settings(s3)
    selected = _Selected.of(source, server_properties, topics, partitions, topic_partitions)
    release = release_of(kafka_release)
    engine = engine or THIS_MACHINE
    command = CommandLine.of(
        "scan",
        selected.paths,
        server_properties=selected.server_properties,
        topics=selected.topics,
        partitions=selected.partitions,
        topic_partitions=selected.topic_partitions,
        kafka_release=kafka_release,
        s3=s3,
        impact=impact,
        max_read_rate=max_read_rate,
        engine_words=engine.words,
    )
    invocation = Invocation.now(command.text)
    with _reading(invocation, impact, max_read_rate):
        opened = selected.opened(Run(stores=s3.for_run()))
        now_ms = _now_ms()
        result = with_metadata_logs(scan_source(opened, engine.planning()), opened, now_ms, release)
        result = with_producer_ids(result, opened, now_ms)
    request = ScanRequest(
        paths=selected.paths,
        server_properties=selected.server_properties,
        topics=selected.topics,
        partitions=selected.partitions,
        topic_partitions=selected.topic_partitions,
    )

    def new_view() -> View:
        from snaprebuild.cli.render.scan import ScanView

        return ScanView(result, request, opened.properties, all_rows=False)

    return Result(command, invocation, SCAN, new_view)


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
    asked = _Request(
        source=source,
        server_properties=server_properties,
        topics=topics,
        partitions=partitions,
        topic_partitions=topic_partitions,
        offset_from=offset_from,
        offset_to=offset_to,
        out=out,
        broker_running=broker_running,
        boundaries=boundaries,
        replay_from=replay_from,
        set_aside=set_aside,
        check_crc=check_crc,
        drop_expired=drop_expired,
        allow_unproven=allow_unproven,
        accept_topic_id_zero=accept_topic_id_zero,
        kafka_release=kafka_release,
        as_of_ms=as_of_ms,
        expiration_ms=expiration_ms,
        metadata=metadata,
        s3=s3,
    )
    engine = engine or THIS_MACHINE
    command = asked.command("plan", engine, impact=impact, max_read_rate=max_read_rate)
    invocation = Invocation.now(command.text)
    with _reading(invocation, impact, max_read_rate):
        planned = judged_plan(asked.checked(), Run(), measure_rate=True, parallel_map=engine.planning())
        shown = rehearsed(planned)

    def new_view() -> View:
        from snaprebuild.cli.render.rebuild import RebuildPlanView

        return RebuildPlanView(shown, _request_words(), None)

    return PlanResult(command, invocation, PLAN, new_view, planned)


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
        progress: called with a topic-partition and the bytes that were read since the last call.
        impact: ``low``, ``normal`` or ``full``, as ``--impact``; None for low while a broker runs.
        max_read_rate: bytes a second; None for any number.
        engine: where segments are read and replayed; None for worker processes of this machine.

    Raises:
        UsageError: nothing to read from, an argument makes no sense or does not go with ``plan``, or ``out`` is no directory.
        RefusedError: a file may not be written there, a saved plan is out of date, or a limit is used up.
        StorageError: the receipt cannot be written, or an object store does not answer.
    """
    asked = _Request(
        source=source,
        server_properties=server_properties,
        topics=topics,
        partitions=partitions,
        topic_partitions=topic_partitions,
        offset_from=offset_from,
        offset_to=offset_to,
        out=out,
        broker_running=broker_running,
        boundaries=boundaries,
        replay_from=replay_from,
        set_aside=set_aside,
        check_crc=check_crc,
        drop_expired=drop_expired,
        allow_unproven=allow_unproven,
        accept_topic_id_zero=accept_topic_id_zero,
        kafka_release=kafka_release,
        as_of_ms=as_of_ms,
        expiration_ms=expiration_ms,
        metadata=metadata,
        s3=s3,
    )
    engine = engine or THIS_MACHINE
    command = asked.command(
        "rebuild",
        engine,
        plan=None if plan is None or isinstance(plan, PlanResult) else os.fsdecode(plan),
        dry_run=dry_run,
        receipt=_text(receipt),
        results=_text(results),
        jobs=_checked_jobs(jobs),
        impact=impact,
        max_read_rate=max_read_rate,
    )
    if isinstance(plan, PlanResult):
        command = plan._command.carried_out_by("rebuild", command)
    table_file = _table_file(_text(results), _text(receipt))
    facts = RunFacts()
    invocation = Invocation.now(command.text)
    with _reading(invocation, impact, max_read_rate):
        planned = _plan_to_carry_out(asked, plan, engine, facts)
        if table_file is not None:
            check_new_place(table_file)
        engine.keep_effects((each.source for each in planned.partitions), planned.request.s3)
        run = Run(jobs=jobs, engine=engine.reading(progress), facts=facts)
        result = _carried_out(planned, run, dry_run=dry_run, receipt=_text(receipt), progress=progress)
        findings = rebuild_findings(result, facts)
    if table_file is not None:
        write_results(result, table_file)

    def new_view() -> View:
        from snaprebuild.cli.render.rebuild import RebuildView

        return RebuildView(result, findings, _request_words(), cache=engine.cache)

    return Result(command, invocation, REBUILD, new_view)


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
        progress: called with a topic-partition and the bytes that were read since the last call.
        impact: ``low``, ``normal`` or ``full``, as ``--impact``; None for low while a broker runs.
        max_read_rate: bytes a second; None for any number.
        engine: where segments are read and replayed; None for worker processes of this machine.

    Raises:
        UsageError: nothing to read from, or an argument makes no sense.
        RefusedError: a limit is used up.
        ReadFailedError: an object store cannot be listed.
    """
    check_settings(s3)
    selected = _Selected.of(source, server_properties, topics, partitions, topic_partitions, offset_from, offset_to)
    release = release_of(kafka_release)
    engine = engine or THIS_MACHINE
    command = CommandLine.of(
        "verify",
        selected.paths,
        server_properties=selected.server_properties,
        topics=selected.topics,
        partitions=selected.partitions,
        topic_partitions=selected.topic_partitions,
        offset_from=offset_from,
        offset_to=offset_to,
        check_crc=check_crc,
        kafka_release=kafka_release,
        as_of_ms=as_of_ms,
        expiration_ms=expiration_ms,
        s3=s3,
        jobs=_checked_jobs(jobs),
        impact=impact,
        max_read_rate=max_read_rate,
        engine_words=engine.words,
    )
    stores = s3.for_run()
    invocation = Invocation.now(command.text)
    with _reading(invocation, impact, max_read_rate):
        opened = selected.opened(Run(stores=stores))
        clock = Clock(_moment_ms(as_of_ms), _checked_expiration(expiration_ms) or opened.expiration_ms or DEFAULT_EXPIRATION_MS)
        engine.keep_effects(opened.partitions, stores)
        judged = judged_verify(
            opened,
            Run(clock=clock, jobs=jobs, engine=engine.reading(progress), stores=stores, facts=opened.facts),
            release=release,
            selection=selected.selection,
            check_crc=check_crc,
            progress=progress,
        )

    def new_view() -> View:
        from snaprebuild.cli.render.verify import VerifyView

        return VerifyView(judged, engine.cache, details=False)

    return Result(command, invocation, VERIFY, new_view)


@dataclass(frozen=True, slots=True)
class _Selected:
    """What a call reads.

    Attributes:
        paths: as they were given.
        topics: shell patterns.
    """

    paths: tuple[str, ...]
    server_properties: str | None
    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    topic_partitions: tuple[str, ...]
    selection: Selection

    @classmethod
    def of(
        cls,
        source: Paths,
        server_properties: FilePath | None,
        topics: str | Sequence[str],
        partitions: int | Sequence[int],
        topic_partitions: str | Sequence[str],
        offset_from: int | None = None,
        offset_to: int | None = None,
    ) -> _Selected:
        """The selection of some arguments.

        Raises:
            UsageError: a path or a pattern is empty, or no offset is selected.
        """
        patterns = _patterns(topics)
        numbers = _numbers(partitions)
        _check_offsets(offset_from, offset_to)
        names = _names(topic_partitions)
        selection = Selection(patterns, frozenset(numbers), offset_from, offset_to, frozenset(names))
        return cls(_texts(source), _text(server_properties), patterns, numbers, names, selection)

    def opened(self, run: Run) -> Source:
        """The listing of what is selected. The call now reads slowly if a broker holds a part of it."""
        source = open_source(self.paths, self.server_properties, self.selection, run)
        yield_to_brokers(source)
        return source


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The arguments that ``plan`` and ``rebuild`` share, with their defaults."""

    source: Paths = ()
    server_properties: FilePath | None = None
    topics: str | Sequence[str] = ()
    partitions: int | Sequence[int] = ()
    topic_partitions: str | Sequence[str] = ()
    offset_from: int | None = None
    offset_to: int | None = None
    out: FilePath | None = None
    broker_running: bool = False
    boundaries: str = "missing"
    replay_from: str = "auto"
    set_aside: bool = False
    check_crc: bool = True
    drop_expired: bool = False
    allow_unproven: bool = False
    accept_topic_id_zero: bool = False
    kafka_release: str | None = None
    as_of_ms: int | None = None
    expiration_ms: int | None = None
    metadata: FilePath | None = None
    s3: S3Settings = USUAL_S3

    def __post_init__(self) -> None:
        """Iterators are read once: an argument that was read for the command line would select everything afterwards."""
        check_settings(self.s3)
        object.__setattr__(self, "source", _texts(self.source))
        object.__setattr__(self, "topics", _patterns(self.topics))
        object.__setattr__(self, "partitions", _numbers(self.partitions))
        object.__setattr__(self, "topic_partitions", _names(self.topic_partitions))

    def checked(self) -> RebuildRequest:
        """The request of the run.

        Raises:
            UsageError: an argument makes no sense.
        """
        release_of(self.kafka_release)
        _check_offsets(self.offset_from, self.offset_to)
        return RebuildRequest(
            paths=_texts(self.source),
            server_properties=_text(self.server_properties),
            topics=_patterns(self.topics),
            partitions=_numbers(self.partitions),
            topic_partitions=_names(self.topic_partitions),
            offset_from=self.offset_from,
            offset_to=self.offset_to,
            out=_text(self.out),
            boundaries=self.boundaries,
            replay_from=self.replay_from,
            set_aside=self.set_aside,
            check_crc=self.check_crc,
            drop_expired=self.drop_expired,
            allow_unproven=self.allow_unproven,
            as_of_ms=_moment_ms(self.as_of_ms),
            expiration_ms=_checked_expiration(self.expiration_ms),
            metadata=_text(self.metadata),
            s3=self.s3,
            broker_running=self.broker_running,
            accept_topic_id_zero=self.accept_topic_id_zero,
            kafka_release=self.kafka_release,
        ).checked()

    def command(self, verb: str, engine: CallEngine, **others: str | int | None) -> CommandLine:
        """The command line of a verb with these arguments, and others of its own."""
        return CommandLine.of(
            verb,
            _texts(self.source),
            server_properties=_text(self.server_properties),
            topics=_patterns(self.topics),
            partitions=_numbers(self.partitions),
            topic_partitions=_names(self.topic_partitions),
            offset_from=self.offset_from,
            offset_to=self.offset_to,
            out=_text(self.out),
            broker_running=self.broker_running,
            boundaries=None if self.boundaries == "missing" else self.boundaries,
            replay_from=None if self.replay_from == "auto" else self.replay_from,
            set_aside=self.set_aside,
            check_crc=self.check_crc,
            drop_expired=self.drop_expired,
            allow_unproven=self.allow_unproven,
            accept_topic_id_zero=self.accept_topic_id_zero,
            kafka_release=self.kafka_release,
            as_of_ms=self.as_of_ms,
            expiration_ms=self.expiration_ms,
            metadata=_text(self.metadata),
            s3=self.s3,
            engine_words=engine.words,
            **others,
        )


def _table_file(results: str | None, receipt: str | None) -> str | None:
    """The file of the table of results; None without one.

    Raises:
        UsageError: a path is empty, its directory does not exist, or both are one file.
        RefusedError: the file is there.
    """
    if receipt == "":
        raise UsageError("receipt: the path is empty")
    if results is None:
        return None
    file = os.path.abspath(result_file(results))
    if not os.path.isdir(os.path.dirname(file)):
        raise UsageError("results: its directory does not exist", path=file)
    if receipt is not None and file == os.path.abspath(receipt):
        raise UsageError("results and receipt are one file", path=file)
    return file


def _plan_to_carry_out(asked: _Request, plan: PlanResult | FilePath | None, engine: CallEngine, facts: RunFacts) -> Plan:
    """A new plan of the arguments, or the one that was given.

    Raises:
        UsageError: other arguments were given with it, or it is no plan of ``rebuild``.
        RefusedError: the disk has changed since it was saved.
    """
    if plan is None:
        return judged_plan(asked.checked(), Run(facts=facts), parallel_map=engine.planning())
    defaults = _Request()
    others = [each.name for each in fields(asked) if getattr(asked, each.name) != getattr(defaults, each.name)]
    if others:
        raise UsageError(f"a plan has its own source and options: give {', '.join(others)} to plan(), not with the plan")
    planned = plan._plan if isinstance(plan, PlanResult) else load_judged_plan(os.fsdecode(plan), Run(facts=facts))
    if planned.request.destination.installed_later:
        raise UsageError("the plan is one of `stage`: run snaprebuild stage --plan FILE")
    return planned


def _carried_out(planned: Plan, run: Run, *, dry_run: bool, receipt: str | None, progress: Progress | None) -> RebuildResult:
    """The result of a plan. An error has a note with the receipt, if anything was written until then."""
    written = Receipt(receipt or default_receipt_path(planned.request.destination.receipt_directory), planned)
    try:
        return rebuilding.rebuild(planned, run, dry_run=dry_run, receipt=written, progress=progress)
    except BaseException as error:
        if written.is_there:
            error.add_note(f"receipt of what was written: {written.path} (`snaprebuild undo` takes it back)")
        raise


def _request_words() -> list[str]:
    """The words that give the request, or the saved plan, to the next command."""
    from snaprebuild.cli.runs.rebuild_request import request_words

    return request_words()


@contextmanager
def _reading(invocation: Invocation, impact: str | None, max_read_rate: int | None) -> Iterator[None]:
    """The call reads so inside, and what it records is of this invocation.

    Raises:
        UsageError: there is no such impact, or no byte may be read.
    """
    if impact is not None and impact not in list(Impact):
        raise UsageError(f"impact: expected {', '.join(Impact)}, found {impact!r}")
    if max_read_rate is not None and max_read_rate < 1:
        raise UsageError(f"max_read_rate: expected 1 or more, found {max_read_rate}")
    load = Load(impact=None if impact is None else Impact(impact), max_read_rate=max_read_rate)
    with invocation.active(), load.limits():
        yield


def _texts(source: Paths) -> tuple[str, ...]:
    if isinstance(source, str | bytes | os.PathLike):
        return (os.fsdecode(source),)
    return tuple(os.fsdecode(each) for each in source)


def _text(path: FilePath | None) -> str | None:
    return None if path is None else os.fsdecode(path)


def _patterns(topics: str | Sequence[str]) -> tuple[str, ...]:
    """One pattern or several.

    Raises:
        UsageError: one is empty.
    """
    patterns = (topics,) if isinstance(topics, str) else tuple(topics)
    if not all(patterns):
        raise UsageError("topics: the pattern is empty")
    return patterns


def _numbers(partitions: int | Sequence[int]) -> tuple[int, ...]:
    """Numbers of partitions.

    Raises:
        UsageError: one is no number, or below 0.
    """
    numbers = (partitions,) if isinstance(partitions, int | str) else tuple(partitions)
    for number in numbers:
        if not isinstance(number, int) or number < 0:
            raise UsageError(f"partitions: expected numbers, 0 or more, found {number!r}")
    return numbers


def _names(topic_partitions: str | Sequence[str]) -> tuple[str, ...]:
    """Names of partitions.

    Raises:
        UsageError: one is no name of a partition.
    """
    names = (topic_partitions,) if isinstance(topic_partitions, str) else tuple(topic_partitions)
    for name in names:
        partition_named(name)
    return names


def _check_offsets(offset_from: int | None, offset_to: int | None) -> None:
    given = [each for each in (offset_from, offset_to) if each is not None]
    if any(each < 0 for each in given) or given != sorted(given):
        raise UsageError(f"expected offset_from <= offset_to, both 0 or more, found {offset_from} and {offset_to}")


def _now_ms() -> int:
    return int(time.time() * 1000)


def _moment_ms(as_of_ms: int | None) -> int:
    if as_of_ms is None:
        return _now_ms()
    if not 0 <= as_of_ms <= AS_OF_MAX_MS:
        raise UsageError(f"as_of_ms: {as_of_ms} is not between 1970 and 9999")
    return as_of_ms


def _checked_expiration(expiration_ms: int | None) -> int | None:
    if expiration_ms is not None and expiration_ms < 1:
        raise UsageError(f"expiration_ms: expected 1 or more, found {expiration_ms}")
    return expiration_ms


def _checked_jobs(jobs: int | None) -> int | None:
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs: expected 1 or more, found {jobs}")
    return jobs
