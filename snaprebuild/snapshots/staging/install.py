"""Gives staged snapshots their names in the log directories of a stopped broker: links only, so that it takes seconds whatever the bytes.

The most blocked partition comes first. Partitions are taken some at a time: looked at, announced in the receipt with one sync, linked, and
each of their directories synced once. Segments that were rolled since they were staged are replayed last, on the state that was staged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.file_names import (
    parse_partition_dir_name,
    segment_file_name,
    snapshot_file_name,
    snapshot_temporary_file_name,
)
from snaprebuild.broker.fates import Fate
from snaprebuild.errors import (
    DeadlinePassedError,
    LockUnknownError,
    OutcomeUnknownError,
    ReadFailedError,
    RefusedError,
    SnaprebuildError,
    StorageError,
    UsageError,
    WriteFailedError,
)
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.destination.destinations import InPlace
from snaprebuild.snapshots.destination.placement_rules import TOPIC_ID_ZERO
from snaprebuild.snapshots.destination.rebuilt_snapshot import owner_of_snapshot
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.engine.log_facts import check_deadline
from snaprebuild.snapshots.plan.plan_model import Plan, Request, SourceGate
from snaprebuild.snapshots.plan.start_gate import StartJudge, fates_of_paths
from snaprebuild.snapshots.rebuild.result import WOULD_WRITE, WRITTEN, BoundaryResult
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.receipts.write_events import WriteAnnounced, WriteSettled
from snaprebuild.snapshots.source.broker_properties import expiration_of, read_server_properties
from snaprebuild.snapshots.source.topic_ids import BrokerReadiness, ReplicaPlace, broker_readiness, readiness_findings
from snaprebuild.snapshots.source.topic_kind import TopicKind, topic_kind_of
from snaprebuild.snapshots.staging.install_result import InstalledPartition, InstallResult
from snaprebuild.snapshots.staging.resume import replay_rolled_since
from snaprebuild.snapshots.staging.staged_check import CheckedPartition, checked_partition
from snaprebuild.snapshots.staging.staged_plan import NotStaged, StagedPartition, StagedPlan, StagedSnapshot
from snaprebuild.storage.local.broker_lock import HeldLock, hold, lock_holder
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.hard_links import correction, difference, link_files
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.local.regular_file import read_small_file
from snaprebuild.storage.local.whole_file import sync_directory
from snaprebuild.storage.log_dir import LogDirState, read_log_dir
from snaprebuild.storage.threads import ThreadPool

__all__ = ["install", "missing_snapshots"]

BATCH_PARTITIONS = 64
"""Partitions that are taken together: one sync of the receipt serves them all, and one of a journalling file system all their links."""

SYNC_THREADS = 8

_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Another mount or quota project, a file of another owner (fs.protected_hardlinks), too many links, or a file system without them: a copy
is installed."""

OF_A_WINDOW = (SnapshotClass.LOAD_EQUIVALENT, SnapshotClass.SUPERSET_SAFE)
"""Classes that hold for an expiration."""


def install(
    plan: StagedPlan,
    gate: SourceGate,
    judge_start: StartJudge,
    *,
    deadline: float | None = None,
    dry_run: bool = False,
    receipt: str | None = None,
    jobs: int | None = None,
    accept_topic_id_zero: bool = False,
) -> InstallResult:
    """Carries out a staged plan. A failure in one partition does not stop the others.

    Args:
        plan: from ``load_staged_plan``.
        gate: judges whether the replicas of what is replayed may be written to.
        judge_start: judges what the next start of each broker does: nothing is installed where it loses more than that.
        deadline: no further partition is taken, and nothing replayed, once ``time.monotonic()`` is past it; None for none.
        dry_run: look at everything, also at the bytes of each staged file, and change nothing. The broker may run.
        receipt: path of the receipt; needed unless it is a dry run.
        jobs: worker processes for what is replayed, None for as many as processors.
        accept_topic_id_zero: also install snapshots of topics without an id, which Kafka would then upload under topic id zero.

    Raises:
        RefusedError: a broker, or another run, holds one of the log directories: nothing was changed; or the receipt's name is taken.
        LockUnknownError: that is not known.
        StorageError: the receipt cannot be written where it is wanted.
    """
    result = InstallResult(_accepting(plan) if accept_topic_id_zero else plan, dry_run)
    with contextlib.ExitStack() as stack:
        locks, cannot = _locks(plan, result, stack)
        return _Install(result, gate, judge_start, locks, cannot, deadline, receipt, jobs).done()


def _accepting(plan: StagedPlan) -> StagedPlan:
    partitions = tuple(replace(each, request=replace(each.request, accept_topic_id_zero=True)) for each in plan.partitions)
    return dataclasses.replace(plan, request=replace(plan.request, accept_topic_id_zero=True), partitions=partitions)


def _locks(
    plan: StagedPlan, result: InstallResult, stack: contextlib.ExitStack
) -> tuple[dict[str, HeldLock], dict[str, WriteFailedError]]:
    """Every log directory of the broker, so that it starts on none of them meanwhile; and of others, why nothing can be written."""
    locks: dict[str, HeldLock] = {}
    cannot: dict[str, WriteFailedError] = {}
    for log_dir in sorted({*plan.log_dirs, *(os.path.dirname(os.path.realpath(each.path)) for each in plan.partitions)}):
        if not os.path.isdir(log_dir):
            message = "this log directory of the broker is not there: nothing is installed into it"
            result.general.append(Finding("offline-log-dir", Severity.STORAGE, log_dir, message, is_unread=True))
        elif not result.is_dry_run:
            try:
                locks[log_dir] = stack.enter_context(hold(log_dir))
            except WriteFailedError as error:
                cannot[log_dir] = error
        else:
            if os.statvfs(log_dir).f_flag & os.ST_RDONLY:
                cannot[log_dir] = WriteFailedError("is mounted read-only", path=log_dir, errno=errno.EROFS)
            with contextlib.suppress(LockUnknownError):
                if lock_holder(log_dir) is not None:
                    message = "a live broker holds this log directory: nothing is installed before it is stopped"
                    result.general.append(Finding("live-broker", Severity.NOTE, log_dir, message))
        if log_dir in cannot:
            result.general.append(finding_of_error(cannot[log_dir], log_dir))
    return locks, cannot


class _Install:
    """One run."""

    def __init__(
        self,
        result: InstallResult,
        gate: SourceGate,
        judge_start: StartJudge,
        locks: Mapping[str, HeldLock],
        cannot: Mapping[str, WriteFailedError],
        deadline: float | None,
        receipt: str | None,
        jobs: int | None,
    ) -> None:
        self._result = result
        self._plan = result.plan
        self._locks = locks
        self._cannot = cannot
        self._deadline = deadline
        self._jobs = jobs
        self._gate = gate
        self._judge_start = judge_start
        self._fates: list[Fate] = []
        self._whole = Plan(self._plan.request.in_place_now(), self._plan.clock, gate, (), ())
        self._receipt = None
        if not result.is_dry_run:
            assert receipt is not None, "a receipt records what is linked"
            self._receipt = Receipt(receipt, self._whole)
            self._receipt.check_place()
        self._states: dict[str, LogDirState] = {}
        self._brokers = self._readiness()
        paths = [each.path for each in self._plan.partitions]
        self._configured_expiration = functools.cache(_configured_expiration)
        self._ancestor = os.path.commonpath(paths) if paths else "/"

    def _readiness(self) -> tuple[BrokerReadiness, ...]:
        """Whether topics would be uploaded under id zero, by the configuration and the ids that are there now."""
        replicas = []
        for each in self._plan.partitions:
            name, state = parse_partition_dir_name(os.path.basename(each.path)), self._state(each)
            if name is not None:
                is_compacted = each.topic_partition in (state.cleaner_points or {})
                can_be_tiered = topic_kind_of(name.topic) is TopicKind.ORDINARY and not is_compacted
                replicas.append(ReplicaPlace(name.topic, each.path, state, can_be_tiered))
        properties = None
        if self._plan.request.server_properties is not None:
            with contextlib.suppress(UsageError, ReadFailedError, FormatError):  # ``_check_expiration`` refuses where it matters
                properties = read_server_properties(self._plan.request.server_properties)
        return broker_readiness(replicas, properties)

    def _state(self, staged: StagedPartition) -> LogDirState:
        log_dir = os.path.dirname(os.path.realpath(staged.path))
        if log_dir not in self._states:
            self._states[log_dir] = read_log_dir(log_dir)
        return self._states[log_dir]

    def done(self) -> InstallResult:
        self._report_not_staged()
        ordered = sorted(self._plan.partitions, key=lambda each: (-each.bytes_blocked, each.path))
        taken: list[CheckedPartition] = []
        with ThreadPool(SYNC_THREADS, thread_name_prefix="sync") as threads:
            for start in range(0, len(ordered), BATCH_PARTITIONS):
                taken += self._batch(ordered[start : start + BATCH_PARTITIONS], threads)
        self._replay([each for each in taken if each.rolled_since])
        for each in taken:
            each.result.findings.sort(key=lambda finding: (-1 if finding.offset is None else finding.offset, finding.code))
            findings = tuple(each.result.findings)
            self._result.partitions.append(InstalledPartition(each.staged, each.result, findings, each.touched_at, each.not_linked))
        self._report_readiness()
        by_path = {each.path: number for number, each in enumerate(ordered)}
        self._result.partitions.sort(key=lambda each: by_path[each.staged.path])
        if self._receipt is not None and self._receipt.is_there:
            self._result.receipt = self._receipt.path
            try:
                self._receipt.close()
            except WriteFailedError as error:
                self._result.general.append(finding_of_error(error, self._receipt.path))
        return self._result

    def _report_readiness(self) -> None:
        """A refusal if something was left out for it."""
        boundaries = (boundary for each in self._result.partitions for boundary in each.boundaries)
        severity = Severity.FINDING
        if self._plan.request.accept_topic_id_zero:
            severity = Severity.NOTE
        elif any(TOPIC_ID_ZERO in boundary.reasons for boundary in boundaries):
            severity = Severity.REFUSED
        self._result.general += readiness_findings(self._brokers, severity, with_notes=False)  # `stage` has shown these

    def _report_not_staged(self) -> None:
        for left_out in self._plan.not_staged:
            missing = len(missing_snapshots(left_out))
            self._result.not_staged += missing
            if missing or not left_out.offsets:
                what = pluralize(missing, "snapshot") + " missing" if missing else "it could not be judged"
                message = f"nothing of this partition was staged; {what}: stage again"
                self._result.general.append(Finding("not-staged", Severity.FINDING, left_out.path, message))

    def _batch(self, batch: Sequence[StagedPartition], threads: ThreadPool) -> list[CheckedPartition]:
        with self._timed("check"):
            checked = [found for staged in batch if (found := self._checked(staged)) is not None]
        with self._timed("judge"):
            self._leave_out(checked)
        if self._receipt is None:
            for each in checked:
                each.result.boundaries.extend(self._linked(each, snapshot, WOULD_WRITE) for snapshot in each.links)
            return checked
        if linking := [each for each in checked if each.links]:
            self._link_all(linking, threads)
        return checked

    def _leave_out(self, checked: Sequence[CheckedPartition]) -> None:
        """Judges those of a batch that something would be written into: a deadline leaves no time to judge all partitions first."""
        names = {each.staged.topic_partition for each in checked if each.has_something_due}
        if not names:
            return
        # What the start compares needs both directories of a partition that is there twice, and every log directory.
        log_dirs: dict[str, str] = {}
        for staged in self._plan.partitions:
            log_dirs.setdefault(os.path.dirname(os.path.realpath(staged.path)), staged.path)
        compared = set(log_dirs.values())
        paths = [each.path for each in self._plan.partitions if each.topic_partition in names or each.path in compared]
        # During a dry run a broker may run: then most of its start is judged after its stop.
        fates = fates_of_paths(self._judge_start, paths, self._plan.request, holds_locks=not self._result.is_dry_run)
        for each in checked:
            each.leave_out_by(fates)
            each.report_removed_at_start()
        self._fates += fates

    def _checked(self, staged: StagedPartition) -> CheckedPartition | None:
        log_dir = os.path.dirname(os.path.realpath(staged.path))
        try:
            check_deadline(self._deadline, staged.path)
            if log_dir in self._cannot:
                raise self._cannot[log_dir]
            _check_expiration(staged, self._configured_expiration)
            state, dry_run = self._state(staged), self._result.is_dry_run
            # Before the stop it is not known that it will be clean.
            is_before_stop = dry_run and not state.was_shut_down_cleanly
            destination = staged.request.destination if is_before_stop else InPlace()
            topic = staged.topic_partition.rpartition("-")[0]
            is_zero = any(each.uploads_under_id_zero(log_dir, topic) for each in self._brokers)
            return checked_partition(
                staged,
                state,
                self._ancestor,
                destination,
                reads_bytes=dry_run,
                holds_lock=not dry_run,
                uploads_under_id_zero=is_zero,
            )
        except DeadlinePassedError as error:
            message = f"{error.message}: {pluralize(len(staged.due), 'snapshot')} not installed"
            finding = Finding("deadline-passed", Severity.FINDING, staged.path, message)
        except (ReadFailedError, WriteFailedError, RefusedError, FormatError) as error:
            finding = finding_of_error(error, staged.path)
            if isinstance(error, ReadFailedError) and os.path.isdir(log_dir) and not os.path.lexists(staged.path):
                message = "is not there any more: it was deleted or moved to another disk since it was staged; nothing is installed"
                finding = Finding("partition-gone", Severity.FINDING, staged.path, message)
        self._result.partitions.append(InstalledPartition(staged, None, (finding,)))
        return None

    def _replay(self, later: Sequence[CheckedPartition]) -> None:
        if self._receipt is None:
            for each in later:
                for wanted in each.rolled_since:
                    why = "rolled since it was staged: replayed from the staged state"
                    if not each.is_untouched_below(wanted.offset):
                        why = "its segments were touched since it was staged: replayed"
                    each.result.boundaries.append(BoundaryResult(wanted.offset, wanted.is_log_end, WOULD_WRITE, None, (why,)))
            return
        known = functools.partial(self._gate, fates=tuple(self._fates))
        with self._timed("replay"):
            by_run: dict[tuple[Request, Clock], list[CheckedPartition]] = {}
            for each in later:
                by_run.setdefault((each.staged.request, each.staged.evidence.clock), []).append(each)
            for (request, clock), several in by_run.items():
                general = tuple(self._result.general)
                whole = replace(self._whole, request=request.in_place_now(), clock=clock, gate=known, findings=general)
                found = replay_rolled_since(several, whole, self._locks, self._receipt, self._deadline, self._jobs)
                self._result.general += found

    def _link_all(self, linking: Sequence[CheckedPartition], threads: ThreadPool) -> None:
        """From here on the receipt has every name that may appear."""
        assert self._receipt is not None
        try:
            with self._timed("announce"):
                for each in linking:
                    links = [one for one in each.links if one.offset not in each.copies]
                    if links:
                        files = (WriteAnnounced(one.offset, one.snapshot_class.value, one.entries, one.file) for one in links)
                        self._receipt.announce_all(each.result.plan, files)
                self._receipt.sync()
        except (WriteFailedError, RefusedError) as error:
            for each in linking:
                self._fail(each, error)
            return
        with self._timed("link"):
            for each in linking:
                self._link(each)
        with self._timed("sync"):
            changed = [each for each in linking if any(one.action == WRITTEN for one in each.result.boundaries)]
            for each, failure in zip(changed, threads.map(_sync_failure, [one.staged.path for one in changed]), strict=True):
                if failure is not None:
                    each.result.findings.append(finding_of_error(failure, each.staged.path))
        with self._timed("announce"):
            for each in linking:
                linked = [one.offset for one in each.result.boundaries if one.action == WRITTEN]
                self._receipt.settle_all(each.result.plan, linked)

    def _link(self, checked: CheckedPartition) -> None:
        left = {snapshot_file_name(each.offset): each for each in checked.links}
        try:
            self._verify_lock(checked)
            linked = [name for name, snapshot in left.items() if snapshot.offset not in checked.copies]
            for name, failure in link_files(checked.staged.target, checked.staged.path, linked):
                if failure is None:
                    checked.result.boundaries.append(self._linked(checked, left.pop(name), WRITTEN))
                elif failure.errno not in _NO_LINK:
                    self._fail_one(checked, left.pop(name), failure)
            for name in list(left):
                self._copy(checked, left.pop(name))
        except (WriteFailedError, RefusedError) as error:
            checked.links = list(left.values())
            self._fail(checked, error)

    def _copy(self, checked: CheckedPartition, snapshot: StagedSnapshot) -> None:
        """A new file, which inherits label, list and quota project from the directory of its partition, as the segments did."""
        assert self._receipt is not None
        receipt, plan = self._receipt, checked.result.plan
        staged, segment = checked.staged_path(snapshot), checked.segment_path(snapshot)
        temporary_name = snapshot_temporary_file_name(snapshot.offset)

        def check_and_announce(status: os.stat_result) -> None:
            what = difference(os.path.join(checked.staged.path, temporary_name), segment)
            if what is not None:
                message = f"neither a link nor a copy would have the {what} of its segment: run `{correction(staged, segment)}`, then again"
                raise RefusedError(message, path=staged)
            made = replace(snapshot.file, mtime_ns=status.st_mtime_ns)
            receipt.record(plan, WriteAnnounced(snapshot.offset, snapshot.snapshot_class.value, snapshot.entries, made))

        try:
            data = read_small_file(staged, snapshot.file.size_bytes)
            if data is None or Fingerprint.of(data, snapshot.file.mtime_ns) != snapshot.file:
                raise ReadFailedError("is not what was staged", path=staged)
            create_file(
                checked.staged.path,
                snapshot_file_name(snapshot.offset),
                data,
                owner=owner_of_snapshot(plan, snapshot.offset),
                temporary_name=temporary_name,
                before_name=check_and_announce,
            )
        except (StorageError, RefusedError) as error:
            self._fail_one(checked, snapshot, error)
            return
        checked.result.boundaries.append(self._linked(checked, snapshot, WRITTEN))

    def _verify_lock(self, checked: CheckedPartition) -> None:
        lock = self._locks.get(checked.result.plan.source.log_dir.path)
        if lock is None:
            raise RefusedError("its log directory is not one that the plan names", path=checked.staged.path)
        lock.verify()

    def _fail(self, checked: CheckedPartition, error: SnaprebuildError) -> None:
        checked.result.findings.append(finding_of_error(error, checked.staged.path))
        for snapshot in checked.links:
            checked.give_up_after(error, snapshot.offset)

    def _fail_one(self, checked: CheckedPartition, snapshot: StagedSnapshot, error: SnaprebuildError) -> None:
        assert self._receipt is not None
        self._receipt.record(checked.result.plan, WriteSettled(snapshot.offset, error))
        checked.result.findings.append(replace(finding_of_error(error, checked.staged.path), offset=snapshot.offset))
        checked.give_up_after(error, snapshot.offset)

    @staticmethod
    def _linked(checked: CheckedPartition, snapshot: StagedSnapshot, action: str) -> BoundaryResult:
        path = os.path.join(checked.staged.path, snapshot_file_name(snapshot.offset))
        klass = snapshot.snapshot_class
        return BoundaryResult(snapshot.offset, False, action, klass, (), snapshot.entries, path)

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._result.seconds[phase] = self._result.seconds.get(phase, 0.0) + time.perf_counter() - began


def missing_snapshots(left_out: NotStaged) -> list[int]:
    """Those of the boundaries between two segments that have no snapshot now."""
    names = set(os.listdir(left_out.path)) if os.path.isdir(left_out.path) else set()
    return [each for each in left_out.offsets if segment_file_name(each) in names and snapshot_file_name(each) not in names]


def _configured_expiration(path: str) -> tuple[int | None, str]:
    """The expiration of a broker's configuration as it is now, in ms; None, and why, where it cannot be read."""
    try:
        return expiration_of(read_server_properties(path)), ""
    except (UsageError, ReadFailedError, FormatError) as error:
        return None, str(error)


def _check_expiration(staged: StagedPartition, configured: Callable[[str], tuple[int | None, str]]) -> None:
    """Checks that the expiration is not longer now. Snapshots proven by a replay window lack producers that had expired then.

    Raises:
        RefusedError: the expiration is longer now, or is not known.
    """
    path, was_ms = staged.request.server_properties, staged.evidence.expiration_ms
    by_window = any(each.snapshot_class in OF_A_WINDOW for each in staged.snapshots)
    if path is None or staged.request.expiration_ms is not None or not by_window:
        return
    now_ms, fault = configured(path)
    message = f"was staged for producers that expire after {was_ms} ms, and the broker's configuration"
    if now_ms is None:
        raise RefusedError(f"{message} cannot be read, which may keep them longer ({fault}): stage again", path=staged.path)
    if now_ms > was_ms:
        raise RefusedError(f"{message} has {now_ms} now: entries may be missing that it would keep; stage again", path=staged.path)


def _sync_failure(path: str) -> SnaprebuildError | None:
    try:
        sync_directory(path)
    except (OutcomeUnknownError, WriteFailedError) as error:
        return error
    return None
