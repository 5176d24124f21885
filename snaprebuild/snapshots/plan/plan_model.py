"""The plan of a rebuild as values: the request, and the steps for it.

``plan`` makes them. A ``SourceGate`` removes the snapshots for which a replica is not trusted. ``rebuild`` carries them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Protocol

import msgspec

from formats.partition.file_names import snapshot_file_name
from snaprebuild.broker.fates import Fate
from snaprebuild.broker.status import Status, snapshot_faults, status_of
from snaprebuild.findings import Finding, Severity, unread_paths
from snaprebuild.published import Natural, Part
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction
from snaprebuild.snapshots.engine.partition_replay import InitialState, ReplayCheckpoint, ReplayFrom
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.source_verdict import VerdictSummary
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.boundary_needs import NO_NEEDS, BoundaryNeeds, LeftOutReason, NeedTotals
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.snapshots.source.topic_ids import topics_under_id_zero
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.store import is_object
from snaprebuild.storage.thread_pool import ParallelMap

__all__ = [
    "CLASS_NOT_ESTIMATED",
    "DEFAULT_RETENTION_MS",
    "Blocked",
    "BoundaryPlan",
    "GateVerdict",
    "PartitionPlan",
    "Plan",
    "PlanCounts",
    "ReadySnapshot",
    "SourceGate",
    "concerns_of_plan",
    "fates_against_writing",
    "plan_counts",
    "topics_left_out",
]

DEFAULT_RETENTION_MS = 604_800_000
"""``log.retention.hours`` is 168 by default."""


class GateVerdict(Protocol):
    """Whether a replica may be the source of snapshots, as far as a plan and its tables need it. ``str`` gives it in one word."""

    @property
    def is_rejected(self) -> bool:
        """Nothing may be written next to its segments."""

    @property
    def trusted_below(self) -> int | None:
        """Nothing above this offset is trusted; None for no such limit."""

    @property
    def trusted_below_after_clean_stop(self) -> int | None:
        """``trusted_below`` as it would be after a clean stop of the broker."""

    @property
    def reason(self) -> str:
        """The reason, as a sentence; empty if there is none."""

    def reason_of_limit(self, offset: int) -> str:
        """Why nothing above an offset is trusted that is one of the two limits, as a sentence."""

    def rejection_finding(self, path: str) -> Finding:
        """The finding of a replica that is rejected."""

    def in_place_refusal(self, path: str) -> Finding | None:
        """Why nothing is written next to its segments, also for other reasons than a rejection; None if something may be."""

    def summary(self) -> VerdictSummary:
        """The verdict in plans and results."""


class BoundaryPlan(Part, frozen=True):
    """A boundary that gets a snapshot."""

    offset: Natural
    is_log_end: bool
    exists: bool
    """A snapshot of this name exists: it is compared, and replaced only with --set-aside and if it is proven wrong."""
    expected_class: SnapshotClass
    """The best class that is possible; the real one is known after the replay."""


CLASS_NOT_ESTIMATED = SnapshotClass.UNSOUND
"""``BoundaryPlan.expected_class`` before the plan of its partition has estimated it."""


class ReadySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot of a wanted boundary as a file that was staged: the boundary is not replayed.

    Attributes:
        boundary: that it is for.
        path: of the file.
        file: its bytes and modification time, which were checked.
        snapshot_class: from the replay that staged it.
        entries: count of them.
        copied_for: the attribute in which the file differs from its segment, so that a copy is made; None for a hard link.
    """

    boundary: BoundaryPlan
    path: str
    file: Fingerprint
    snapshot_class: SnapshotClass
    entries: int
    copied_for: str | None = None

    def is_in(self, directory: str) -> bool:
        """Whether a directory holds the file itself, so that nothing is linked."""
        return os.path.dirname(self.path) == directory


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing of a partition can be written by this process, although it is planned.

    Attributes:
        finding: about it.
        text: for each of its boundaries.
        action: of each of its boundaries, ``refused`` or ``failed``.
    """

    finding: Finding
    text: str
    action: BoundaryAction


class PartitionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for one partition. Without boundaries nothing is replayed, and nothing read.

    Attributes:
        source: the partition and what its broker's files show.
        target: directory that the snapshots go to.
        boundaries: wanted ones that are replayed, ascending.
        not_planned: (offset, reason) of boundaries that are not due where they would go.
        log_end_offset: end of the last whole batch; None where it cannot be read.
        window_index: first segment within the expiration.
        replay_index: segment where replay begins, as far as names and hints show.
        replay_reason: why there.
        stop_index: first segment that is not needed.
        min_read_bytes: to read; ``max_read_bytes`` when the evidence asks for everything below.
        retention_frees_ms: moment after which plain retention has deleted every segment that lacks a snapshot; None when unknown, or if
            remote storage is on.
        fault: why nothing can be done, or None.
        initial_state: the state before the first segment, where it is known from elsewhere; None to begin as requested.
        verdict: on the replica as a source of snapshots; None if nothing would be written.
        resumed: where the replay continues, with ``initial_state`` for the class of that state; None to begin as requested.
        ready: the snapshots of the other wanted boundaries, ascending: they were staged, and are still valid.
        needs: the selected boundaries that have no snapshot in the log directory, by what they need.
        fate: of the next start, because of which boundaries are left out; None for none.
        blocked: what keeps this process from writing; None for nothing, and before ``with_preflight`` was asked.
        keeps_files: fate because of which no file of the partition is replaced: what is there is compared; None for none.
    """

    source: PartitionSource
    target: str
    boundaries: tuple[BoundaryPlan, ...] = ()
    not_planned: tuple[tuple[int, LeftOutReason], ...] = ()
    log_end_offset: int | None = None
    window_index: int = 0
    replay_index: int = 0
    replay_reason: str = "nothing to do"
    stop_index: int = 0
    min_read_bytes: int = 0
    max_read_bytes: int = 0
    retention_frees_ms: int | None = None
    fault: str | None = None
    initial_state: InitialState | None = None
    verdict: GateVerdict | None = None
    resumed: ReplayCheckpoint | None = None
    ready: tuple[ReadySnapshot, ...] = ()
    needs: BoundaryNeeds = NO_NEEDS
    fate: Fate | None = None
    keeps_files: Fate | None = None
    blocked: Blocked | None = None

    @property
    def path(self) -> str:
        """Path of the partition directory."""
        return self.source.directory.path

    def not_planned_with(self, left_out: Iterable[tuple[int, LeftOutReason]]) -> tuple[tuple[int, LeftOutReason], ...]:
        """The offsets that are not planned and more of them, ascending, each with its reason."""
        return tuple(sorted((*self.not_planned, *left_out), key=itemgetter(0)))

    @property
    def all_boundaries(self) -> tuple[BoundaryPlan, ...]:
        """All boundaries that get a snapshot, ascending: those that are replayed, and those whose snapshots are ready."""
        if not self.ready:
            return self.boundaries
        return tuple(sorted((*self.boundaries, *(each.boundary for each in self.ready)), key=lambda each: each.offset))


class SourceGate(Protocol):
    """Judges whether replicas may be the source of what is planned. The command supplies it: the evidence is the cluster's."""

    def __call__(
        self,
        plans: Sequence[PartitionPlan],
        request: RebuildRequest,
        source: Source,
        reported: Sequence[Finding],
        parallel_map: ParallelMap,
        run: Run,
        *,
        holds_locks: bool = False,
        fates: Sequence[Fate] | None = None,
    ) -> tuple[dict[str, PartitionPlan], list[Finding]]:
        """Sets the verdict of each plan; a replica that is rejected gets no snapshot in place.

        Args:
            plans: of the partitions for which something would be written.
            request: what is asked for.
            source: the partitions with their log directories.
            reported: findings so far: their reasons are not repeated.
            parallel_map: judges the partitions.
            run: a replica that was not judged by its deadline is not written to.
            holds_locks: the caller holds the locks of the log directories, so that no broker does.
            fates: of the next start, where they were judged before; None to judge them here.

        Returns:
            The plans that were judged, by path of the partition, and the findings.

        Raises:
            UsageError, RefusedError, StorageError: the evidence that was named cannot be used.
        """


class Plan(msgspec.Struct, frozen=True):
    """A plan for everything that was asked for.

    Attributes:
        request: what was asked.
        clock: expiry.
        gate: judges the source of a partition that has to be planned again.
        partitions: one plan for each, ordered by path.
        findings: what was skipped, refused or found on the way.
        rate_bytes_per_second: measured on a sample of the segments; None without any.
        retention_ms: the retention that ``retention_frees_ms`` assumes, with ``retention_source``.
        readiness: findings about topics without an id; they are in ``findings``, too.
        is_remote_storage_off: ``server.properties`` was named, and shows that; else it is on or unknown.
        fates: of the next start, the worst first, also of partitions to which nothing is written; empty where they were not asked for.
    """

    request: RebuildRequest
    clock: Clock
    gate: SourceGate
    partitions: tuple[PartitionPlan, ...]
    findings: tuple[Finding, ...]
    rate_bytes_per_second: float | None = None
    retention_ms: int = DEFAULT_RETENTION_MS
    retention_source: str = "Kafka's default"
    readiness: tuple[Finding, ...] = ()
    is_remote_storage_off: bool = False
    fates: tuple[Fate, ...] = ()

    @property
    def counts(self) -> NeedTotals:
        """Selected boundaries without a snapshot in the log directories, by what they need."""
        return NeedTotals.of(partition.needs for partition in self.partitions)

    @property
    def status(self) -> Status:
        """The one answer of ``plan``, without what waits: a plan looks at no upload."""
        faults = snapshot_faults(self.findings)
        return status_of(
            concerns_of_plan(self, self.partitions),
            wrong=len(faults.wrong),
            suspect=len(faults.suspect),
            missing=self.counts.missing,
            waiting=0,
            unread=len(unread_paths(self.findings)),
            topics_without_id=topics_left_out(self, self.partitions),
        )

    @property
    def min_read_bytes(self) -> int:
        """Bytes to read."""
        return sum(partition.min_read_bytes for partition in self.partitions)

    @property
    def max_read_bytes(self) -> int:
        """Bytes to read when every window has to be extended to its log start."""
        return sum(partition.max_read_bytes for partition in self.partitions)


def concerns_of_plan(plan: Plan, partitions: Sequence[PartitionPlan]) -> list[Fate]:
    """The fates of the next start, as far as they are more than a note.

    Args:
        plan: of the run.
        partitions: of the plan, or of its results: where the plan asked for no fates, those because of which nothing is written.
    """
    fates = [fate for fate in plan.fates if fate.severity is not Severity.NOTE]
    return fates or fates_against_writing(partitions)


def fates_against_writing(partitions: Iterable[PartitionPlan]) -> list[Fate]:
    """The fates because of which plans write nothing, without those of old replicas."""
    return [each.fate for each in partitions if each.fate is not None and each.fate.severity is not Severity.NOTE]


def topics_left_out(plan: Plan, partitions: Sequence[PartitionPlan]) -> tuple[str, ...]:
    """The topics without an id, where their snapshots are left out for it, by name."""
    if not plan.request.destination.is_for_broker or plan.request.accept_topic_id_zero:
        return ()
    return tuple(sorted(topics_under_id_zero(each.source for each in partitions)))


class PlanCounts(Part, frozen=True):
    """The work of a plan, in numbers of snapshots."""

    to_write: Natural
    """Boundaries where no file is: each gets one, if the replay gives a snapshot that may be written there."""
    to_compare: Natural
    """Files that are there, and that the run compares with the replay."""
    writes_at_least: Natural
    """Files that the run writes if every segment is whole."""
    writes_at_most: Natural
    """Files that the run may write. With --set-aside it replaces each file that the replay proves wrong."""


def plan_counts(plan: Plan) -> PlanCounts:
    """The numbers of a plan as it is shown, after ``rehearsed``. Lists the directories that the snapshots go to."""
    to_write = 0
    to_compare = 0
    at_least = 0
    for partition in plan.partitions:
        boundaries = partition.all_boundaries
        new = _new(partition, boundaries, plan.request)
        to_write += new
        to_compare += len(boundaries) - new
        if _is_certain(partition, plan.request):
            at_least += new
    return PlanCounts(
        to_write=to_write,
        to_compare=to_compare,
        writes_at_least=at_least,
        writes_at_most=to_write + (to_compare if plan.request.set_aside or plan.request.destination.installed_later else 0),
    )


def _new(partition: PartitionPlan, boundaries: Sequence[BoundaryPlan], request: RebuildRequest) -> int:
    """How many of the boundaries have no file where the snapshots go."""
    if request.destination.writes_into_log_dirs:
        return sum(not boundary.exists for boundary in boundaries)
    if not boundaries or is_object(partition.target):
        return len(boundaries)
    try:
        names = set(os.listdir(partition.target))
    except OSError:
        return len(boundaries)
    return sum(snapshot_file_name(boundary.offset) not in names for boundary in boundaries)


def _is_certain(partition: PartitionPlan, request: RebuildRequest) -> bool:
    """Whether a replay of whole segments gives snapshots that may be written.

    Where the log begins above offset 0, or the cleaner has removed batches, only the replay shows what is proven.
    """
    if partition.keeps_files is not None:
        return False
    if is_object(partition.target) and not request.destination.writes_into_log_dirs:
        return False  # objects that an earlier run has left there are not listed
    if partition.resumed is not None:
        return True
    segments = partition.source.directory.segments
    begins_at_zero = bool(segments) and segments[0].base_offset == 0
    return begins_at_zero and not partition.source.is_compacted and request.replay_from != ReplayFrom.WINDOW.value
