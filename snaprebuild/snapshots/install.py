"""Installs what was staged into the log directories of a stopped broker: a rebuild whose snapshots are ready, as far as they are valid.

The most blocked partition comes first. Partitions are taken some at a time: looked at, judged, and linked. Segments that were rolled since
they were staged are replayed last, on the state that was staged.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.file_names import (
    PartitionDirectoryName,
    parse_partition_dir_name,
    segment_file_name,
    snapshot_file_name,
)
from snaprebuild.broker.fates import Fate, worst_first
from snaprebuild.broker.status import JudgedStart
from snaprebuild.errors import (
    DeadlinePassedError,
    GoneFileError,
    GonePartitionError,
    HeldError,
    ReadFailedError,
    RefusedError,
    UsageError,
    WriteFailedError,
)
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, pluralize
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult
from snaprebuild.snapshots.destination.destinations import InPlace
from snaprebuild.snapshots.engine.log_facts import check_deadline
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan, SourceGate
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.start_gate import (
    StartJudge,
    fates_of_paths,
    start_findings,
    start_of_paths,
    without_removed,
)
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildResult
from snaprebuild.snapshots.rebuild.run import RebuildRun
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.run import Run, RunFacts
from snaprebuild.snapshots.source.broker_properties import expiration_of
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.snapshots.source.topic_ids import BrokerReadiness, ReplicaPlace, broker_readiness, readiness_findings
from snaprebuild.snapshots.staging.faulty_snapshots import faults_left
from snaprebuild.snapshots.staging.staged_check import CheckedPartition, boundary_of, checked_partition
from snaprebuild.snapshots.staging.staged_plan import NotStaged, StagedPartition, StagedPlan
from snaprebuild.snapshots.state_replay import StateReplay, replays_by_state
from snaprebuild.storage.local.broker_lock import check_hold
from snaprebuild.storage.log_dir import LogDirState, read_log_dir
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.partition_names import TopicKind, topic_kind_of
from snaprebuild.storage.store_path import path_of
from snaprebuild.storage.thread_pool import serial_map

__all__ = ["install", "missing_snapshots"]

BATCH_PARTITIONS = 64
"""Partitions that are taken together: one sync of the receipt serves them all, and one of a journalling file system all their links."""


def install(
    plan: StagedPlan,
    gate: SourceGate,
    judge_start: StartJudge,
    run: Run,
    *,
    dry_run: bool = False,
    receipt: str | None = None,
    accept_topic_id_zero: bool = False,
) -> RebuildResult:
    """Carries out a staged plan. A failure in one partition does not stop the others.

    Args:
        plan: from ``load_staged_plan``.
        gate: judges whether the replicas of what is replayed may be written to.
        judge_start: judges what the next start of each broker does: nothing is installed where it loses more than that.
        run: its jobs replay; once its deadline is past, no further partition is taken and nothing replayed.
        dry_run: look at everything, also at the bytes of each staged file, and change nothing. The broker may run.
        receipt: path of the receipt; needed unless it is a dry run, which checks its place only.
        accept_topic_id_zero: also install snapshots of topics without an id, which Kafka would then upload under topic id zero.

    Returns:
        The partitions in the order in which they were taken.

    Raises:
        RefusedError: a broker, or another run, holds one of the log directories: nothing was changed; or the receipt's name is taken.
        LockUnknownError: that is not known.
        StorageError: the receipt cannot be written where it is wanted.
    """
    if accept_topic_id_zero:
        plan = _accepting(plan)
    whole = Plan(plan.request.in_place_now(), plan.clock, gate, (), ())
    record = None
    if receipt is not None:
        record = Receipt(receipt, whole)
    assert dry_run or record is not None, "a receipt records what is linked"
    with RebuildRun(run, receipt=None if dry_run else record, dry_run=dry_run) as writing:
        installation = _Install(plan, whole, judge_start, writing)
        installation.hold_log_dirs()
        if record is not None:
            record.check_place()
        return installation.done()


def _accepting(plan: StagedPlan) -> StagedPlan:
    partitions = tuple(replace(each, request=replace(each.request, accept_topic_id_zero=True)) for each in plan.partitions)
    return replace(plan, request=replace(plan.request, accept_topic_id_zero=True), partitions=partitions)


class _Install:
    """One run."""

    def __init__(self, staged: StagedPlan, whole: Plan, judge_start: StartJudge, writing: RebuildRun) -> None:
        self._staged = staged
        self._whole = whole
        self._judge_start = judge_start
        self._run = writing
        self._facts = writing.run.facts
        self._findings: list[Finding] = []
        self._fates: list[Fate] = []
        self._cannot: dict[str, WriteFailedError] = {}
        self._states: dict[str, LogDirState] = {}
        paths = [each.path for each in staged.partitions]
        self._ancestor = os.path.commonpath(paths) if paths else "/"
        self._paths_of: dict[str, list[str]] = {}
        one_of_each: dict[str, str] = {}
        for each in staged.partitions:
            self._paths_of.setdefault(each.topic_partition, []).append(each.path)
            one_of_each.setdefault(_log_dir_of(each), each.path)
        self._one_of_each_log_dir = tuple(one_of_each.values())
        self._brokers: tuple[BrokerReadiness, ...] = ()
        self._is_left_out_for_topic_id = False

    def hold_log_dirs(self) -> None:
        """Every log directory of the broker, so that it starts on none of them meanwhile; and of others, why nothing can be written.

        Raises:
            RefusedError: a broker, or another run, holds one, or that is not known.
        """
        for log_dir in self._log_dirs():
            if not os.path.isdir(log_dir):
                message = "this log directory of the broker is not there: nothing is installed into it"
                cause = FindingCause.OFFLINE_LOG_DIR
                self._findings.append(Finding("offline-log-dir", Severity.STORAGE, log_dir, message, is_unread=True, cause=cause))
            else:
                try:
                    self._hold(log_dir)
                except WriteFailedError as error:
                    self._cannot[log_dir] = error
            if log_dir in self._cannot:
                self._findings.append(finding_of_error(self._cannot[log_dir], log_dir))

    def _log_dirs(self) -> list[str]:
        """Every log directory of the broker, as far as the plan has them."""
        return sorted({*self._staged.log_dirs, *(_log_dir_of(each) for each in self._staged.partitions)})

    def _hold(self, log_dir: str) -> None:
        """Holds a log directory. A dry run makes sure that this is possible once its broker is stopped."""
        try:
            check_hold(log_dir)
        except HeldError:
            if not self._run.dry_run:
                raise
            message = "a live broker holds this log directory: nothing is installed before it is stopped"
            self._findings.append(Finding("live-broker", Severity.NOTE, log_dir, message, cause=FindingCause.LIVE_BROKER))
        if not self._run.dry_run:
            self._run.locks.hold(log_dir)

    def done(self) -> RebuildResult:
        self._brokers = self._readiness()
        not_staged = self._report_not_staged()
        ordered = sorted(self._staged.partitions, key=lambda each: (-each.blocked_bytes, each.path))
        results: dict[str, PartitionResult] = {}
        later: list[CheckedPartition] = []
        for start in range(0, len(ordered), BATCH_PARTITIONS):
            batch = ordered[start : start + BATCH_PARTITIONS]
            checked = self._batch(batch, results)
            later += [each for each in checked if each.plan.boundaries]
        for each in later:
            if self._run.dry_run:
                _would_replay(each)
        if later and not self._run.dry_run:
            with self._run.timed("replay"):
                self._replay(later)
        results |= {each.path: each.result for each in later}
        self._report_readiness()
        self._findings += faults_left(self._staged)
        fates = self._report_start(results)
        plan = replace(self._whole, findings=tuple(self._findings), fates=fates)
        return replace(self._run.ended(plan, [results[each.path] for each in ordered]), not_staged=not_staged)

    # ---------------------------------------------------------------------------------------------------- partitions

    def _batch(self, batch: Sequence[StagedPartition], results: dict[str, PartitionResult]) -> list[CheckedPartition]:
        """Links what is ready of some partitions. Adds to the results; returns the partitions that could be looked at."""
        checked = []
        with self._run.timed("check"):
            for staged in batch:
                partition = self._checked(staged)
                if isinstance(partition, CheckedPartition):
                    checked.append(partition)
                    self._is_left_out_for_topic_id |= partition.is_left_out_for_topic_id
                    results[staged.path] = partition.result
                else:
                    results[staged.path] = partition
        with self._run.timed("judge"):
            self._leave_out(checked)
        self._run.take_ready([each.result for each in checked])
        return checked

    def _checked(self, staged: StagedPartition) -> CheckedPartition | PartitionResult:
        """The partition as it is now; the result of one that could not be looked at."""
        log_dir = _log_dir_of(staged)
        try:
            check_deadline(self._run.run.deadline, staged.path)
            if log_dir in self._cannot:
                raise self._cannot[log_dir]
            _check_expiration(staged, self._facts)
            state = self._state(log_dir)
            dry_run = self._run.dry_run
            # Before the stop it is not known that it will be clean.
            is_before_stop = dry_run and not state.was_shut_down_cleanly
            topic = staged.topic_partition.rpartition("-")[0]
            return checked_partition(
                staged,
                state,
                self._ancestor,
                staged.request.destination if is_before_stop else InPlace(),
                reads_bytes=dry_run,
                holds_lock=not dry_run,
                uploads_under_id_zero=any(each.uploads_under_id_zero(log_dir, topic) for each in self._brokers),
            )
        except DeadlinePassedError as error:
            message = f"{error.message}: {pluralize(len(staged.due), 'snapshot')} not installed"
            cause = FindingCause.DEADLINE_PASSED
            late = Finding("deadline-passed", Severity.FINDING, staged.path, message, cause=cause)
            return self._unread(staged, late, BoundaryAction.SKIPPED)
        except (ReadFailedError, WriteFailedError, RefusedError, FormatError) as error:
            if isinstance(error, ReadFailedError) and os.path.isdir(log_dir) and not os.path.lexists(staged.path):
                message = "is not there any more: it was deleted or moved to another disk since it was staged; nothing is installed"
                return self._unread(
                    staged, Finding("partition-gone", Severity.FINDING, staged.path, message), BoundaryAction.SKIPPED
                )
            action = BoundaryAction.FAILED
            if isinstance(error, GonePartitionError):
                action = BoundaryAction.SKIPPED
            elif isinstance(error, RefusedError) and not isinstance(error, GoneFileError):
                action = BoundaryAction.REFUSED
            return self._unread(staged, finding_of_error(error, staged.path), action)

    def _unread(self, staged: StagedPartition, finding: Finding, action: BoundaryAction) -> PartitionResult:
        """The result of a partition that could not be looked at: nothing is listed in it, and nothing due is installed."""
        name = parse_partition_dir_name(os.path.basename(staged.path)) or PartitionDirectoryName(staged.topic_partition, 0)
        source = PartitionSource(PartitionDir(staged.path, name, 0), self._state(_log_dir_of(staged)), staged.path)
        result = PartitionResult(PartitionPlan(source=source, target=staged.path, fault=finding.message))
        result.findings.append(finding)
        for snapshot in staged.due:
            result.give_up(boundary_of(snapshot), finding.message, action)
        return result

    def _state(self, log_dir: str) -> LogDirState:
        if log_dir not in self._states:
            self._states[log_dir] = read_log_dir(path_of(log_dir))
        return self._states[log_dir]

    # ---------------------------------------------------------------------------------------------------- the next start

    def _leave_out(self, checked: Sequence[CheckedPartition]) -> None:
        """Judges those of a batch, also where nothing is due: a deadline leaves no time to judge all partitions first."""
        if not checked:
            return
        # What the start compares needs both directories of a partition that is there twice, and every log directory.
        paths = list(self._one_of_each_log_dir)
        for each in checked:
            paths += self._paths_of[each.staged.topic_partition]
        paths = list(dict.fromkeys(paths))
        # During a dry run a broker may run: then most of its start is judged after its stop.
        fates = fates_of_paths(self._judge_start, paths, self._staged.request, self._run.run, holds_locks=not self._run.dry_run)
        for each in checked:
            each.leave_out_by(fates)
            each.leave_out_removed(fates)
            each.leave_out_blocked()
        self._fates += fates

    def _report_start(self, results: Mapping[str, PartitionResult]) -> tuple[Fate, ...]:
        """Reports what the next start does, also to partitions of which nothing was staged. Returns all fates, the worst first."""
        with self._run.timed("judge"):
            whole = self._whole_start()
        # A fate that decided about an install was judged before it: its text has other numbers now.
        judged = {(fate.kind, fate.path) for fate in self._fates}
        others = [fate for fate in whole.fates if (fate.kind, fate.path) not in judged]
        fates = tuple(worst_first(list(dict.fromkeys([*self._fates, *others]))))
        plans = [each.plan for each in results.values()]
        start = without_removed(JudgedStart(fates, whole.unread), plans)
        self._findings += start_findings(start, plans, self._findings)
        self._findings += [each for each in whole.lost_snapshots if not self._is_written_later(results.get(each.path))]
        return fates

    def _whole_start(self) -> JudgedStart:
        """The next start of every partition in the log directories, with what was installed.

        After the deadline it is not judged, which is a finding about each log directory.
        """
        log_dirs = [each for each in self._log_dirs() if os.path.isdir(each)]
        try:
            for log_dir in log_dirs:
                check_deadline(self._run.run.deadline, log_dir)
        except DeadlinePassedError as error:
            message = f"{error.message}: what the next start does to the partitions here was not judged"
            cause = FindingCause.START_NOT_JUDGED
            self._findings += [Finding("deadline-passed", Severity.FINDING, each, message, cause=cause) for each in log_dirs]
            return JudgedStart()
        return start_of_paths(self._judge_start, log_dirs, self._staged.request, self._run.run, holds_locks=not self._run.dry_run)

    def _is_written_later(self, result: PartitionResult | None) -> bool:
        """Whether a dry run leaves snapshots of a partition to the run: the start finds them then."""
        if result is None or not self._run.dry_run:
            return False
        return any(each.action is BoundaryAction.WOULD_WRITE for each in result.boundaries)

    def _readiness(self) -> tuple[BrokerReadiness, ...]:
        """Whether topics would be uploaded under id zero, by the configuration and the ids that are there now."""
        replicas = []
        for each in self._staged.partitions:
            name = parse_partition_dir_name(os.path.basename(each.path))
            state = self._state(_log_dir_of(each))
            if name is not None:
                is_compacted = each.topic_partition in (state.cleaner_points or {})
                can_be_tiered = topic_kind_of(name.topic) is TopicKind.ORDINARY and not is_compacted
                replicas.append(ReplicaPlace(name.topic, each.path, state, can_be_tiered))
        properties = None
        if self._staged.request.server_properties is not None:
            with contextlib.suppress(UsageError, ReadFailedError, FormatError):  # ``_check_expiration`` refuses where it matters
                properties = self._facts.properties(self._staged.request.server_properties)
        return broker_readiness(replicas, properties)

    def _report_readiness(self) -> None:
        """A refusal if something was left out for it."""
        severity = Severity.FINDING
        if self._staged.request.accept_topic_id_zero:
            severity = Severity.NOTE
        elif self._is_left_out_for_topic_id:
            severity = Severity.REFUSED
        self._findings += readiness_findings(self._brokers, severity, with_notes=False)  # `stage` has shown these

    def _report_not_staged(self) -> int:
        """Reports the partitions of which nothing was staged. Returns how many snapshots they lack."""
        total = 0
        for left_out in self._staged.not_staged:
            missing = len(missing_snapshots(left_out))
            total += missing
            if missing or not left_out.offsets:
                what = pluralize(missing, "snapshot") + " missing" if missing else "it could not be judged"
                message = f"nothing of this partition was staged; {what}: run `stage` again, which shows why"
                self._findings.append(Finding("not-staged", Severity.FINDING, left_out.path, message))
        return total

    # ---------------------------------------------------------------------------------------------------- replays

    def _replay(self, later: Sequence[CheckedPartition]) -> None:
        """Partitions that were staged with the same options are replayed together. Sets their results."""
        gate = functools.partial(self._whole.gate, fates=tuple(self._fates))
        together: dict[tuple[RebuildRequest, Clock], list[CheckedPartition]] = {}
        for each in later:
            together.setdefault((each.staged.request, each.staged.evidence.clock), []).append(each)
        for (request, clock), several in together.items():
            by_state = [replays_by_state(each) for each in several]
            # One round, unless different boundaries of a partition continue from different staged states.
            for number in range(max(len(replays) for replays in by_state)):
                due = [replays[number] for replays in by_state if number < len(replays)]
                general = tuple(self._findings)
                whole = replace(self._whole, request=request.in_place_now(), clock=clock, gate=gate, findings=general)
                judged = self._judged(due, whole)
                planned = [each for each in due if each.path in judged]
                results = [PartitionResult(judged[each.path]) for each in planned]
                self._run.replay(whole, results, only_planned=True)
                for replay, result in zip(planned, results, strict=True):
                    replay.end(result)

    def _judged(self, replays: Sequence[StateReplay], whole: Plan) -> dict[str, PartitionPlan]:
        """Plans replays, at most one of a partition, as far as the replicas are trusted. Returns the plans by path."""
        request = whole.request
        try:
            if request.server_properties is None:
                properties = None
            else:
                properties = self._facts.properties(request.server_properties)
        except (UsageError, ReadFailedError, FormatError) as error:
            for each in replays:
                each.give_up(f"the broker's configuration cannot be read: {error}", BoundaryAction.FAILED)
            return {}
        planned: dict[str, PartitionPlan] = {}
        for each in replays:
            plan = each.plan(whole, self._run.run.deadline)
            if plan is not None:
                planned[each.path] = plan
        if not planned:
            return {}
        plans = list(planned.values())
        source = Source(tuple(plan.source for plan in plans), (), None, properties, facts=self._facts)
        judged, findings = whole.gate(plans, request, source, whole.findings, serial_map, self._run.run, holds_locks=True)
        self._findings += [each for each in findings if each not in self._findings]
        return planned | judged


def _log_dir_of(staged: StagedPartition) -> str:
    return os.path.dirname(os.path.realpath(staged.path))


def _would_replay(checked: CheckedPartition) -> None:
    """The boundaries that are replayed, in a dry run."""
    for boundary in checked.plan.boundaries:
        reason = "rolled since it was staged: replayed from the staged state"
        if not checked.is_untouched_below(boundary.offset):
            reason = "its segments were touched since it was staged: replayed"
        checked.result.boundaries.append(
            BoundaryResult(boundary.offset, boundary.is_log_end, BoundaryAction.WOULD_WRITE, None, (reason,))
        )


def missing_snapshots(left_out: NotStaged) -> list[int]:
    """Boundaries of a partition that was not staged: those between two segments that have no snapshot now."""
    names = set(os.listdir(left_out.path)) if os.path.isdir(left_out.path) else set()
    return [each for each in left_out.offsets if segment_file_name(each) in names and snapshot_file_name(each) not in names]


def _configured_expiration(path: str, facts: RunFacts) -> tuple[int | None, str]:
    """The expiration of a broker's configuration as it is now, in ms; None, and why, where it cannot be read."""
    try:
        return expiration_of(facts.properties(path)), ""
    except (UsageError, ReadFailedError, FormatError) as error:
        return None, str(error)


def _check_expiration(staged: StagedPartition, facts: RunFacts) -> None:
    """Checks that the expiration is not longer now. Snapshots proven by a replay window lack producers that had expired then.

    Raises:
        RefusedError: the expiration is longer now, or is not known.
    """
    path = staged.request.server_properties
    was_ms = staged.evidence.expiration_ms
    by_window = any(each.snapshot_class.holds_for_an_expiration for each in staged.snapshots)
    if path is None or staged.request.expiration_ms is not None or not by_window:
        return
    now_ms, fault = _configured_expiration(path, facts)
    message = f"was staged for producers that expire after {was_ms} ms, and the broker's configuration"
    if now_ms is None:
        raise RefusedError(f"{message} cannot be read, which may keep them longer ({fault}): stage again", path=staged.path)
    if now_ms > was_ms:
        raise RefusedError(f"{message} has {now_ms} now: entries may be missing that it would keep; stage again", path=staged.path)
