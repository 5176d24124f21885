"""Keeps snapshots out of partitions that lose them, or more, at the next start of their broker.

A start makes a missing ``.index`` anew, and the ``.index`` of a segment whose ``.txnindex`` fails. To do so it recovers the segment, and
removes the snapshots above it. Then it writes some of them itself (``LogLoader.recoverSegment``). Only snapshots that are still there
after the start are planned, written, staged and installed. Everything else that a start removes is no boundary, is at or below the log
start (``boundary_needs``), or belongs to a partition with a fate.

What the start does is judged by the command (``StartJudge``), from the fates that ``scan`` prints. Output elsewhere is not concerned.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.status import JudgedStart, findings_of
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.replay.broker_start import LoadedLog, SnapshotOrigin, broker_start
from snaprebuild.snapshots.destination.placement_rules import is_needed_after, reason_of_fate
from snaprebuild.snapshots.plan.plan_model import PartitionPlan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.source.boundary_needs import LeftOut, LeftOutReason
from snaprebuild.snapshots.source.source import PartitionSource, Source, open_source

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = [
    "REMOVED_AT_START",
    "UNSAFE_START",
    "StartJudge",
    "fate_against_writing",
    "fates_of_paths",
    "lost_at_start",
    "removed_at_start_finding",
    "start_findings",
    "start_of_paths",
    "unsafe_start_finding",
    "without_removed",
    "without_removed_snapshots",
    "without_writing",
]

UNSAFE_START = "unsafe-next-start"
"""Code of the finding about a partition that nothing is written into."""


_NEEDED_BY_NONE = (FateKind.OLD_REPLICA, FateKind.COPY_TAKES_OVER)
"""Fates after which no broker reads the directory: it belongs to another one, or a future copy takes its place."""


class StartJudge(Protocol):
    """Judges what the next start of each broker does. The command supplies it: metadata logs are part of the evidence."""

    def __call__(self, source: Source, release: str | None = None, *, holds_locks: bool = False) -> JudgedStart:
        """The start of the brokers of a source, also of partitions in which no snapshot is missing.

        Args:
            source: the partitions on local disks, with their log directories.
            release: that starts the brokers, such as ``3.9.1``; None for all that are possible.
            holds_locks: this process holds the locks of the log directories, so that no broker runs on them.
        """


def start_findings(start: JudgedStart, plans: Sequence[PartitionPlan], reported: Iterable[Finding]) -> list[Finding]:
    """Findings about the next start, one for each cause: a broker without a missing snapshot may still lose records.

    Args:
        start: of all partitions.
        plans: those with a fate have a finding about it.
        reported: other findings so far; those about what could not be read are not repeated.
    """
    reported_fates = {plan.fate for plan in plans}
    unread = {each.path for each in reported if each.is_unread}
    concerns = [fate for fate in start.fates if fate.severity is not Severity.NOTE and fate not in reported_fates]
    findings = findings_of(concerns)
    return [*findings, *(each for each in start.unread if each.path not in unread)]


def without_removed(start: JudgedStart, plans: Iterable[PartitionPlan]) -> JudgedStart:
    """Without the snapshots that the start removes, where a finding says which of the planned ones these are."""
    reported = {plan.path for plan in plans if any(reason.kind is LeftOut.REMOVED_AT_START for _, reason in plan.not_planned)}
    fates = [fate for fate in start.fates if fate.kind is not FateKind.SNAPSHOTS_REMOVED or fate.path not in reported]
    return replace(start, fates=tuple(fates))


def fates_of_paths(
    judge_start: StartJudge, paths: Iterable[str], request: RebuildRequest, run: Run, *, holds_locks: bool
) -> Sequence[Fate]:
    """The fates of partitions that are named by their paths at the next start.

    Args:
        judge_start: judges it.
        paths: of partition directories; those that are not there any more are left out.
        request: names the ``server.properties``, which is left out if it cannot be read, and the release.
        run: its facts.
        holds_locks: as of ``StartJudge``.
    """
    return start_of_paths(judge_start, paths, request, run, holds_locks=holds_locks).fates


def start_of_paths(
    judge_start: StartJudge, paths: Iterable[str], request: RebuildRequest, run: Run, *, holds_locks: bool
) -> JudgedStart:
    """The next start of the partitions below paths.

    Args:
        judge_start: judges it.
        paths: of partition directories or log directories; those that are not there any more are left out.
        request: names the ``server.properties``, which is left out if it cannot be read, and the release.
        run: its facts.
        holds_locks: as of ``StartJudge``.
    """
    present = [path for path in paths if os.path.isdir(path)]
    if not present:
        return JudgedStart()
    source = open_source(present, run=run, holds_locks=holds_locks)
    with contextlib.suppress(UsageError, ReadFailedError, FormatError):
        if request.server_properties is not None:
            source = replace(source, properties=run.facts.properties(request.server_properties))
    return judge_start(source, request.kafka_release, holds_locks=holds_locks)


def fate_against_writing(partition: PartitionSource, fates: Iterable[Fate]) -> Fate | None:
    """The worst fate because of which nothing is written into a partition; None if it may be written to.

    A fate of a log directory is one of each partition in it. A fate that is harmless keeps nothing out.

    Args:
        partition: that would be written to.
        fates: of its broker, the worst first.
    """
    path = partition.directory.path
    for fate in fates:
        keeps_out = fate.kind.holds_broker or fate.kind in _NEEDED_BY_NONE
        if fate.is_harmless or not keeps_out:
            continue
        concerned = {fate.path, *fate.other_paths}
        if not concerned.isdisjoint((path, partition.log_dir.path)) or fate.path.startswith(f"{path}/"):
            return fate
    return None


def without_writing(plan: PartitionPlan, judged: PartitionPlan, fate: Fate) -> PartitionPlan:
    """The plan of a partition that nothing is written into: what lacks is listed with the reason, and what is there is compared.

    Args:
        plan: the plan as it was made.
        judged: as far as the verdict on the replica goes.
        fate: because of which; that of an old replica is no fault, because no broker needs its snapshots.
    """
    there = tuple(boundary for boundary in judged.boundaries if boundary.exists)
    reason = reason_of_fate(fate)
    left_out = [(boundary.offset, reason) for boundary in plan.boundaries if not boundary.exists]
    if not left_out:
        return replace(judged, keeps_files=fate)
    limited = PartitionPlan(source=plan.source, target=plan.target, log_end_offset=plan.log_end_offset, verdict=judged.verdict)
    return replace(
        replace(judged, boundaries=there) if there else limited,
        not_planned=plan.not_planned_with(left_out),
        fault=reason.text if is_needed_after(fate) else None,
        fate=fate,
        keeps_files=fate,
    )


def without_removed_snapshots(plan: PartitionPlan, fates: Iterable[Fate]) -> tuple[PartitionPlan, list[Finding]]:
    """The plan of a partition without the new snapshots that the next start removes or writes again, and the finding about them.

    Args:
        plan: with boundaries that are replayed, or whose snapshots are ready.
        fates: of its broker.
    """
    new = [boundary.offset for boundary in plan.all_boundaries if not boundary.exists]
    lost = lost_at_start(plan.source, plan.log_end_offset, new, fates)
    if not lost:
        return plan, []
    left_out = [(offset, REMOVED_AT_START) for offset in sorted(lost)]
    boundaries = tuple(boundary for boundary in plan.boundaries if boundary.offset not in lost)
    limited = replace(
        plan,
        boundaries=boundaries,
        ready=tuple(each for each in plan.ready if each.boundary.offset not in lost),
        not_planned=plan.not_planned_with(left_out),
    )
    if plan.boundaries and not boundaries:  # nothing is read
        limited = replace(limited, min_read_bytes=0, max_read_bytes=0, retention_frees_ms=None)
    return limited, [removed_at_start_finding(plan.path, lost)]


def unsafe_start_finding(path: str, fate: Fate, severity: Severity) -> Finding:
    """The finding about a partition that nothing is written into.

    Args:
        path: of the partition directory.
        fate: because of which.
        severity: where a broker may need the snapshots; else it is a note.
    """
    message = f"{reason_of_fate(fate).text}, so no snapshot is written here. {fate.remedy}"
    weight = severity if is_needed_after(fate) else Severity.NOTE
    return Finding(UNSAFE_START, weight, path, message, fate.log_end_offset)


REMOVED_AT_START = LeftOutReason(
    LeftOut.REMOVED_AT_START,
    "the next start makes an index anew, and removes the snapshots above it: start and stop the broker once, then run again",
)


def lost_at_start(
    partition: PartitionSource, log_end: int | None, offsets: Collection[int], fates: Iterable[Fate]
) -> frozenset[int]:
    """The offsets of new snapshots that the next start removes or writes again.

    Args:
        partition: that they would be written into.
        log_end: its log end offset; None where it is not known, so that any offset above the last segment is used for it.
        offsets: of the new snapshots.
        fates: of the next start of its broker.
    """
    recovered = _recovered_segments(partition, fates)
    if not recovered or not offsets:
        return frozenset()
    segments = partition.directory.segments
    existing = partition.directory.snapshot_offsets
    end = log_end
    if end is None:
        end = max(segments[-1].base_offset, *offsets, *existing) + 1
    snapshots = dict.fromkeys((*existing, *offsets), True)
    if partition.is_broker_running:
        snapshots[end] = True  # the broker writes it when it stops
    loaded = LoadedLog(
        base_offsets=tuple(segment.base_offset for segment in segments),
        checkpointed_log_start_offset=partition.checkpointed_log_start_offset,
        log_end_offset=end,
        snapshots=snapshots,
        is_clean=partition.is_broker_running or partition.log_dir.was_shut_down_cleanly,
        recovery_point=partition.recovery_point,
        without_index=recovered,
        is_tiered=partition.is_tiered,
    )
    # What goes for another reason, too, is no matter of an index.
    kept_otherwise = _kept(replace(loaded, without_index=frozenset()))
    return kept_otherwise.intersection(offsets) - _kept(loaded)


def _kept(log: LoadedLog) -> frozenset[int]:
    return frozenset(offset for offset, origin in broker_start(log).after if origin is SnapshotOrigin.KEPT)


def _recovered_segments(partition: PartitionSource, fates: Iterable[Fate]) -> frozenset[int]:
    """Base offsets of the segments whose ``.index`` the next start makes anew."""
    path = partition.directory.path
    missing = [segment.base_offset for segment in partition.directory.segments if segment.offset_index is None]
    judged = [base for fate in fates if fate.path == path for base in fate.recovered_segments]
    return frozenset((*missing, *judged))


def removed_at_start_finding(path: str, offsets: Collection[int]) -> Finding:
    """The one finding about the snapshots of a partition that are left out because the next start would remove them."""
    count = pluralize(len(offsets), "snapshot")
    message = (
        f"{count} from {min(offsets)} on not written: the next start makes an index of this partition anew, and removes the snapshots "
        "above it. Start and stop the broker once. Then run again"
    )
    return Finding("snapshot-removed-at-start", Severity.FINDING, path, message, min(offsets))
