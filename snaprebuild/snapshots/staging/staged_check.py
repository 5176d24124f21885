"""Checks staged snapshots against the segments that are there now: which may be installed, and which segments were rolled since."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.file_names import parse_partition_dir_name, snapshot_file_name
from formats.partition.producer_snapshot import read_entries
from snaprebuild.broker.fates import Fate
from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.findings import Severity, pluralize
from snaprebuild.replay.window import Clock, same_when_loaded
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult
from snaprebuild.snapshots.destination.destinations import Destination
from snaprebuild.snapshots.destination.link_writer import segment_path
from snaprebuild.snapshots.destination.placement_rules import IRREGULAR_NAME, is_needed_after, not_planned_findings, reason_of_fate
from snaprebuild.snapshots.destination.rebuilt_snapshot import owner_of_snapshot
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.plan.plan_model import CLASS_NOT_ESTIMATED, BoundaryPlan, PartitionPlan, ReadySnapshot
from snaprebuild.snapshots.plan.planner import due_and_left_out
from snaprebuild.snapshots.plan.start_gate import (
    REMOVED_AT_START,
    fate_against_writing,
    unsafe_start_finding,
    without_removed_snapshots,
)
from snaprebuild.snapshots.rebuild.preflight import blocked_in_place
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildOutcome
from snaprebuild.snapshots.source.boundary_needs import LeftOut, LeftOutReason
from snaprebuild.snapshots.source.source import PartitionSource, check_segments_are_files, partition_source, why_skipped
from snaprebuild.snapshots.staging.staged_plan import StagedPartition, StagedSnapshot
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_at
from snaprebuild.storage.local.hard_links import difference, project_of
from snaprebuild.storage.local.write_checks import is_link_allowed
from snaprebuild.storage.log_dir import LogDirState, read_topic_id
from snaprebuild.storage.partition_dir import PartitionDir, list_partition_dir
from snaprebuild.storage.store import Ownership

__all__ = ["CheckedPartition", "boundary_of", "change_times", "checked_partition", "known_topic_id", "ready_snapshot"]


class CheckedPartition(msgspec.Struct):
    """A partition as it is now, and what was staged for it.

    Attributes:
        staged: what was staged.
        result: with the plan: what is ready, and the boundaries that are replayed. Boundaries that get nothing are in it already.
        touched_segment: base offset of the first segment that may have been changed since it was staged; None if there is none.
        is_left_out_for_topic_id: a snapshot is not installed because Kafka would upload its segment under topic id zero.
    """

    staged: StagedPartition
    result: PartitionResult
    touched_segment: int | None = None
    is_left_out_for_topic_id: bool = False

    @property
    def plan(self) -> PartitionPlan:
        """The plan of the partition as it is now."""
        return self.result.plan

    @property
    def path(self) -> str:
        """Path of the partition directory."""
        return self.staged.path

    def is_untouched_below(self, offset: int) -> bool:
        """Whether no segment below an offset may have been changed since it was staged."""
        return self.touched_segment is None or offset <= self.touched_segment

    @property
    def lost_to_start(self) -> list[BoundaryPlan]:
        """Absent snapshots that are not due any more, because the log start is above them now."""
        settled = {each.offset for each in self.result.boundaries}
        settled.update(each.offset for each in self.plan.all_boundaries)
        existing = set(self.plan.source.directory.snapshot_offsets)
        return [boundary_of(each) for each in self.staged.due if each.offset not in settled and each.offset not in existing]

    @property
    def has_something_due(self) -> bool:
        """Whether a snapshot is installed or replayed next, or would be if the log start were as it was."""
        return bool(self.plan.ready or self.plan.boundaries or self.lost_to_start)

    def leave_out_by(self, fates: Sequence[Fate]) -> None:
        """Installs and replays nothing if the next start loses the partition, or its end.

        Args:
            fates: of the next start.
        """
        fate = fate_against_writing(self.plan.source, fates)
        if fate is None or not self.has_something_due:
            return
        action = BoundaryAction.REFUSED if is_needed_after(fate) else BoundaryAction.SKIPPED
        for boundary in (*self.plan.all_boundaries, *self.lost_to_start):
            self.result.give_up(boundary, reason_of_fate(fate).text, action)
        self.result.plan = replace(self.plan, ready=(), boundaries=(), fate=fate)
        self.result.replayed_not_linked = ()
        self.result.findings.append(unsafe_start_finding(self.path, fate, Severity.REFUSED))

    def leave_out_blocked(self) -> None:
        """Installs and replays nothing in a directory that this process may not write to, or where no file gets its owner."""
        plan = self.plan
        if not plan.all_boundaries:
            return
        is_allowed = not plan.ready or is_link_allowed(plan.ready[0].path)  # all of them have one owner
        copied = [each.boundary.offset for each in plan.ready if each.copied_for is not None or not is_allowed]
        blocked = blocked_in_place(plan, [*copied, *(each.offset for each in plan.boundaries)])
        if blocked is None:
            return
        for boundary in plan.all_boundaries:
            self.result.give_up(boundary, blocked.text, blocked.action)
        self.result.plan = replace(plan, ready=(), boundaries=())
        self.result.replayed_not_linked = ()
        self.result.findings.append(blocked.finding)

    def leave_out_removed(self, fates: Sequence[Fate]) -> None:
        """Installs and replays no snapshot that the next start removes or writes again.

        Args:
            fates: of the next start.
        """
        before = self.plan
        self.result.plan, findings = without_removed_snapshots(before, fates)
        left = {each.offset for each in self.plan.all_boundaries}
        for boundary in before.all_boundaries:
            if boundary.offset not in left:
                self.result.give_up(boundary, REMOVED_AT_START.text)
        self.result.replayed_not_linked = tuple(offset for offset in self.result.replayed_not_linked if offset in left)
        self.result.findings.extend(findings)


def boundary_of(snapshot: StagedSnapshot) -> BoundaryPlan:
    """The boundary of a staged snapshot that is absent from the log directory. The log end is never staged."""
    return BoundaryPlan(snapshot.offset, is_log_end=False, exists=False, expected_class=snapshot.snapshot_class)


def checked_partition(
    staged: StagedPartition,
    state: LogDirState,
    ancestor: str,
    destination: Destination,
    *,
    reads_bytes: bool,
    holds_lock: bool,
    uploads_under_id_zero: bool,
) -> CheckedPartition:
    """Looks at a partition and at what was staged for it. Changes nothing.

    Args:
        staged: what was staged.
        state: the small files of its log directory.
        ancestor: of all paths, for labels.
        destination: decides which snapshots are due: those to be written in place, or, before the stop, those to be staged.
        reads_bytes: read every staged file, and compare its bytes with the plan; else only those whose change time is not the one of
            their last check.
        holds_lock: this process holds the lock of the log directory.
        uploads_under_id_zero: as ``PartitionSource.uploads_under_id_zero``.

    Raises:
        ReadFailedError: the partition cannot be accessed.
        RefusedError: it is another one than it was.
        FormatError: its last segment is damaged.
    """
    name = parse_partition_dir_name(os.path.basename(staged.path))
    if name is None:
        raise RefusedError("the staged plan names a directory that is not a partition directory", path=staged.path)
    directory = list_partition_dir(staged.path, name)
    source = partition_source(directory, state, os.path.relpath(staged.path, ancestor))
    source = replace(source, uploads_under_id_zero=uploads_under_id_zero and source.can_be_tiered)
    skipped = why_skipped(directory, is_named=False, holds_lock=holds_lock)
    if skipped is not None:
        nothing = PartitionPlan(source=source, target=staged.path, fault=skipped.message)
        checked = CheckedPartition(staged, PartitionResult(nothing, RebuildOutcome([skipped])))
        for snapshot in staged.due:
            checked.result.give_up(boundary_of(snapshot), skipped.message, BoundaryAction.SKIPPED)
        return checked
    check_segments_are_files(directory)
    topic_id = known_topic_id(directory)
    if staged.topic_id not in (None, topic_id):
        raise RefusedError(
            f"the topic id was {staged.topic_id}, and is {topic_id}: another topic has its name now", path=staged.path
        )
    if not directory.segments:
        raise RefusedError("has no segment any more", path=staged.path)
    plan = PartitionPlan(source=source, target=staged.path, log_end_offset=_log_end(source))
    checked = CheckedPartition(staged, PartitionResult(plan))
    sound_up_to = _sound_up_to(checked)
    checked.touched_segment = staged.first_touched(change_times(directory))
    ready = _ready(checked, sound_up_to, destination, reads_bytes=reads_bytes)
    rolled_since = _rolled_since(checked, sound_up_to, destination)
    _report_touched(checked, rolled_since)
    checked.result.plan = replace(plan, ready=tuple(ready), boundaries=tuple(rolled_since))
    return checked


def _log_end(source: PartitionSource) -> int | None:
    """After a clean stop everything was flushed, and the snapshot there confirms it: no segment need be opened."""
    directory = source.directory
    flushed = source.recovery_point
    if source.log_dir.was_shut_down_cleanly and flushed >= directory.segments[-1].base_offset and directory.snapshot_at(flushed):
        return flushed
    return log_end_offset(directory)


def _sound_up_to(checked: CheckedPartition) -> int | None:
    """The base offset up to which every segment is unchanged; None if all that were rolled then are. Each difference is a finding."""
    now = {segment.base_offset: segment.log.identity for segment in checked.result.plan.source.directory.segments}
    changed = checked.staged.first_change(now)
    if changed is None:
        return None
    base, what = changed
    message = f"the segment at {base} {what}: snapshots staged above it depend on it and are not installed; stage again"
    checked.result.add_finding("stale-staged", Severity.REFUSED, message, base)
    return base


def _ready(
    checked: CheckedPartition, sound_up_to: int | None, destination: Destination, *, reads_bytes: bool
) -> list[ReadySnapshot]:
    """The staged files that may be installed. Each other one that is due, and not replayed, is added to the result."""
    source = checked.plan.source
    request = checked.staged.request
    ready: list[ReadySnapshot] = []
    bases = set(source.directory.base_offsets)
    no_more: list[tuple[int, LeftOutReason]] = []
    existing = set(source.directory.snapshot_offsets)
    # What is due is between the log start and a recovery point, so that two offsets decide for all between them.
    ends = {
        each.offset: destination.reason_against(request, source, each.offset, is_log_end=False)
        for each in checked.staged.snapshots[:: len(checked.staged.snapshots) - 1 or 1]
    }
    all_due = not any(ends.values())
    statuses = _statuses_in(checked.staged.target)
    for snapshot in checked.staged.snapshots:
        offset = snapshot.offset
        if not snapshot.is_due and offset in existing:
            continue  # it was there when the others were staged; a broker up to 2.7 may have deleted it since
        reason = None if all_due else destination.reason_against(request, source, offset, is_log_end=False)
        if snapshot_file_name(offset) in source.directory.unreadable:
            reason = IRREGULAR_NAME
        if reason is not None:
            no_more.append((offset, reason))
        elif (sound_up_to is not None and offset > sound_up_to) or offset not in bases:
            checked.result.give_up(boundary_of(snapshot), "its segments changed since")
        elif offset not in existing and not checked.is_untouched_below(offset):
            continue  # it is replayed
        elif offset in existing:
            _take_existing(checked, snapshot, checked.staged.evidence.clock)
        elif (fault := _fault_of(checked, snapshot, statuses, reads_bytes=reads_bytes)) is not None:
            message = f"the staged file {fault}: it is not installed; stage again"
            checked.result.add_finding("stale-staged", Severity.REFUSED, message, offset)
            checked.result.give_up(boundary_of(snapshot), f"the staged file {fault}")
        else:
            ready.append(ready_snapshot(checked.staged, snapshot, boundary_of(snapshot)))
    _report_not_due(checked, no_more)
    return _with_copies(checked, ready)


def ready_snapshot(staged: StagedPartition, snapshot: StagedSnapshot, boundary: BoundaryPlan) -> ReadySnapshot:
    """A staged snapshot that was checked, for a boundary that is wanted."""
    return ReadySnapshot(
        boundary=boundary,
        path=os.path.join(staged.target, snapshot_file_name(snapshot.offset)),
        file=snapshot.fingerprint,
        snapshot_class=snapshot.snapshot_class,
        entries=snapshot.entries,
    )


def _with_copies(checked: CheckedPartition, ready: list[ReadySnapshot]) -> list[ReadySnapshot]:
    """Marks those that must be copied, because a link would carry something that the segments have not; a finding counts them.

    Files of one directory belong to one quota project: one file and its segment are compared for all.
    """
    if not ready:
        return ready
    plan = checked.plan
    one = ready[0]
    is_other_project = project_of(one.path) != project_of(segment_path(plan, one.boundary.offset))
    snapshots = []
    for each in ready:
        what = difference(each.path, segment_path(plan, each.boundary.offset))
        if what is None and is_other_project:
            what = "quota project"
        snapshots.append(each if what is None else replace(each, copied_for=what))
    copies = [each.copied_for for each in snapshots if each.copied_for is not None]
    if copies:
        what = " and ".join(sorted(set(copies)))
        message = f"{pluralize(len(copies), 'staged file')} of another {what} than the segments: a copy is installed, not a link"
        checked.result.add_finding("installed-as-copy", Severity.NOTE, message)
    return snapshots


def _report_not_due(checked: CheckedPartition, no_more: list[tuple[int, LeftOutReason]]) -> None:
    """Adds the findings of boundaries that are not due: a note where no broker needs a snapshot, as in a plan."""
    plan = checked.result.plan
    for offset, reason in no_more:
        if reason.may_be_needed:
            checked.result.give_up(
                BoundaryPlan(offset, is_log_end=False, exists=False, expected_class=CLASS_NOT_ESTIMATED), reason.text
            )
            checked.is_left_out_for_topic_id |= reason.kind is LeftOut.TOPIC_ID_ZERO
    checked.result.findings.extend(not_planned_findings(replace(plan, not_planned=tuple(no_more))))


def _take_existing(checked: CheckedPartition, snapshot: StagedSnapshot, clock: Clock) -> None:
    """A file of that name is there: of an earlier run of this plan, or of a broker. It is never replaced."""
    directory = checked.result.plan.source.directory
    listed = directory.snapshot_at(snapshot.offset)
    assert listed is not None
    path = directory.file_path(listed.name)
    try:
        theirs = directory.store.read_small(path, listed.identity.size_bytes + 1) or b""
        is_equal = Fingerprint.of(theirs, snapshot.modified_ns) == snapshot.fingerprint
        if not is_equal:
            staged_path = os.path.join(checked.staged.target, snapshot_file_name(snapshot.offset))
            mine = directory.store.read_small(staged_path, snapshot.size_bytes) or b""
            is_equal = Fingerprint.of(mine, snapshot.modified_ns) == snapshot.fingerprint and same_when_loaded(
                read_entries(theirs, file=path), read_entries(mine, file=staged_path), clock.as_of_ms, clock.expiration_ms
            )
    except (FormatError, ReadFailedError):
        is_equal = False
    if not is_equal:
        message = "the snapshot that is here differs from the staged one: kept; `verify` shows which is right"
        checked.result.add_finding("different-file", Severity.FINDING, message, snapshot.offset)
    action = BoundaryAction.EQUAL if is_equal else BoundaryAction.KEPT
    klass = snapshot.snapshot_class
    entries = snapshot.entries
    checked.result.boundaries.append(
        BoundaryResult(
            offset=snapshot.offset, is_log_end=False, action=action, snapshot_class=klass, reasons=(), entries=entries, path=path
        )
    )


def _statuses_in(directory: str) -> dict[str, os.stat_result]:
    """The status of each file of a directory; empty if it cannot be listed."""
    try:
        with os.scandir(directory) as entries:
            return {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    except OSError:
        return {}


def _fault_of(
    checked: CheckedPartition, snapshot: StagedSnapshot, statuses: dict[str, os.stat_result], *, reads_bytes: bool
) -> str | None:
    """Why a staged file may not be installed, or None."""
    name = snapshot_file_name(snapshot.offset)
    status = statuses.get(name)
    if status is None:
        return "is not there"
    fingerprint = snapshot.fingerprint
    if not stat.S_ISREG(status.st_mode) or (status.st_size, status.st_mtime_ns, status.st_ino) != (
        fingerprint.size_bytes,
        fingerprint.modified_ns,
        snapshot.inode,
    ):
        return "is not the one that was staged"
    owner = Ownership.of(status)
    expected_owner = owner_of_snapshot(checked.result.plan, snapshot.offset)
    if owner != expected_owner:
        return f"has {owner}, its segment has {expected_owner}"
    if reads_bytes or status.st_ctime_ns != snapshot.checked_ctime_ns:
        try:
            if fingerprint_at(os.path.join(checked.staged.target, name)) != fingerprint:
                return "has other bytes than were staged"
        except ReadFailedError as error:
            return error.message
    return None


def _rolled_since(checked: CheckedPartition, sound_up_to: int | None, destination: Destination) -> list[BoundaryPlan]:
    """Boundaries that are due now, and were not staged: they are replayed from the staged state below the first of them, or reported."""
    boundaries: list[BoundaryPlan] = []
    plan = checked.result.plan
    staged = checked.staged
    request = checked.staged.request
    listed = {each.offset for each in staged.snapshots}
    untouched = {offset for offset in listed if checked.is_untouched_below(offset)}
    due, left_out = due_and_left_out(plan.source, plan.log_end_offset, request, destination)
    _report_not_due(checked, [each for each in left_out if each[1] is IRREGULAR_NAME and each[0] not in listed])
    for boundary in due:
        offset = boundary.offset
        if offset in untouched or (sound_up_to is not None and offset > sound_up_to):
            continue
        has_state = offset > staged.snapshots[0].offset or not checked.is_untouched_below(offset)
        if has_state and offset not in staged.given_up and sound_up_to is None:
            expected = staged.snapshots[-1].snapshot_class
            boundaries.append(replace(boundary, expected_class=expected))
        else:
            reason = "is missing, and was not staged"
            if offset in listed:
                reason = f"was staged, and depends on the segment at {checked.touched_segment}, which was touched since"
            checked.result.add_finding("not-staged", Severity.FINDING, f"the snapshot {reason}: stage again", offset)
            checked.result.give_up(boundary, reason)
    return boundaries


def _report_touched(checked: CheckedPartition, rolled_since: Sequence[BoundaryPlan]) -> None:
    touched = [each.offset for each in rolled_since if not checked.is_untouched_below(each.offset)]
    if touched:
        message = (
            f"the segment at {checked.touched_segment} was touched since it was staged (owner, mode, a link, or its bytes): "
            f"{pluralize(len(touched), 'snapshot')} from there on replayed, not linked"
        )
        checked.result.touched_segment = checked.touched_segment
        checked.result.replayed_not_linked = tuple(touched)
        checked.result.add_finding("segment-touched", Severity.NOTE, message, checked.touched_segment)


def change_times(directory: PartitionDir) -> dict[int, int]:
    """The inode change time (ns) of each segment of a local partition, by base offset; -1 for a segment that is gone."""
    ctimes: dict[int, int] = {}
    for segment in directory.segments:
        try:
            ctimes[segment.base_offset] = os.lstat(directory.file_path(segment.log.name)).st_ctime_ns
        except OSError:
            ctimes[segment.base_offset] = -1
    return ctimes


def known_topic_id(directory: PartitionDir) -> str | None:
    """The topic id of ``partition.metadata``, in hexadecimal digits; None where there is none, as before 2.8, or it cannot be read."""
    try:
        topic_id = read_topic_id(directory)
    except (ReadFailedError, FormatError):
        return None
    return None if topic_id is None else topic_id.hex()
