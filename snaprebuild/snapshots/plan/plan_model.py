"""The plan of a rebuild as values: the request, and the steps for it.

``plan`` makes them. A ``SourceGate`` removes the snapshots for which a replica is not trusted. ``rebuild`` carries them out.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec.structs import asdict, replace

from snaprebuild.broker.fates import Fate
from snaprebuild.documents import plan as plan_documents
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.destination.destinations import Below, Destination, InPlace, NextToBroker, Staged
from snaprebuild.snapshots.engine.boundary_state import InitialState, ReplayCheckpoint
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.plan.verdict_summary import VerdictSummary
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.boundary_needs import NO_NEEDS, BoundaryNeeds, NeedCounts
from snaprebuild.snapshots.source.left_out import LeftOutReason
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.parallel_map import ParallelMap
from snaprebuild.storage.store import USUAL_S3, S3Settings, absolute, is_object

__all__ = [
    "DEFAULT_RETENTION_MS",
    "Blocked",
    "BoundaryPlan",
    "GateVerdict",
    "PartitionPlan",
    "Plan",
    "ReadySnapshot",
    "Request",
    "SourceGate",
]

BOUNDARIES = ("missing", "all")

DEFAULT_RETENTION_MS = 604_800_000
"""``log.retention.hours`` is 168 by default."""


class Request(plan_documents.Request, frozen=True):
    """The request for a plan: the members are those of the document. A saved plan carries it, so that it can be made again and compared.

    Attributes:
        s3: how object stores are reached, also if none is concerned.
    """

    s3: S3Settings = USUAL_S3

    @classmethod
    def of(cls, document: plan_documents.Request) -> Request:
        """The request that a document shows, for a run of its own."""
        s3 = USUAL_S3 if document.s3 is None else S3Settings(*dataclasses.astuple(document.s3)).for_run()
        return cls(**{**asdict(document), "s3": s3})

    @property
    def destination(self) -> Destination:
        """Where the snapshots go. Only this reads ``out``, ``stage`` and ``broker_running``, which are how a saved plan names it."""
        if self.out is not None:
            return Below(self.out)
        if self.stage:
            return Staged(self.stage)
        return NextToBroker() if self.broker_running else InPlace()

    def in_place_now(self) -> Request:
        """The request of snapshots that were staged, for what is written in place after the stop."""
        return replace(self, stage=())

    @property
    def begins_empty(self) -> bool:
        """Whether "log-start" means the state that begins empty at the first segment, wherever the log begins. So it does elsewhere."""
        return not self.destination.is_for_broker and self.replay_from == ReplayFrom.LOG_START.value

    @property
    def document(self) -> plan_documents.Request:
        """The members as documents and files show them: ``s3`` is None where no object store is concerned."""
        concerns_objects = any(map(is_object, (*self.paths, self.out or "", self.metadata or "")))
        return plan_documents.Request(**{**asdict(self), "s3": self.s3.connection if concerns_objects else None})

    def checked(self) -> Request:
        """The request of a command: checked, with absolute paths.

        Raises:
            UsageError: it makes none.
        """
        if not all((*self.paths, *(path for path in (self.server_properties, self.out, self.metadata) if path is not None))):
            raise UsageError("a path is empty")
        for name, value, known in (
            ("boundaries", self.boundaries, BOUNDARIES),
            ("replay_from", self.replay_from, tuple(each.value for each in ReplayFrom)),
        ):
            if value not in known:
                raise UsageError(f"{name}: expected {', '.join(known)}, found {value!r}")
        self._check_one_destination()
        self.destination.check(self)
        if self.set_aside and any(map(is_object, self.paths)):
            raise UsageError("--set-aside renames files, and objects are never renamed or removed")
        return replace(
            self,
            paths=tuple(map(absolute, self.paths)),
            server_properties=None if self.server_properties is None else os.path.abspath(self.server_properties),
            partitions=tuple(sorted(self.partitions)),
            out=None if self.out is None else absolute(self.out),
            metadata=None if self.metadata is None else absolute(self.metadata),
            s3=self.s3.for_run(),
            stage=tuple(map(os.path.abspath, self.stage)),
        )

    def _check_one_destination(self) -> None:
        if self.stage and self.broker_running:
            raise UsageError("--to writes nothing into the log directories, --broker-running does: use only one of them")
        if self.out is not None and (self.stage or self.broker_running):
            option = "--to" if self.stage else "--broker-running"
            raise UsageError(f"{option} and --out name different places: use only one of them")

    @property
    def selection(self) -> Selection:
        """The partitions and boundaries asked for."""
        return Selection(self.topics, frozenset(self.partitions), self.offset_from, self.offset_to)


class GateVerdict(Protocol):
    """Whether a replica may be the source of snapshots, as far as a plan and its tables need it. ``str`` gives it in one word."""

    @property
    def is_rejected(self) -> bool:
        """Nothing may be written next to its segments."""

    @property
    def trusted_below(self) -> int | None:
        """Nothing above this offset is trusted; None for no such limit."""

    @property
    def reason(self) -> str:
        """The reason, as a sentence; empty if there is none."""

    def rejection_finding(self, path: str) -> Finding:
        """The finding of a replica that is rejected."""

    def in_place_refusal(self, path: str) -> Finding | None:
        """Why nothing is written next to its segments, also for other reasons than a rejection; None if something may be."""

    def summary(self) -> VerdictSummary:
        """The verdict in plans and results."""


class BoundaryPlan(msgspec.Struct, frozen=True):
    """A boundary that is wanted.

    Attributes:
        offset: the boundary.
        is_log_end: it is the log end offset.
        exists: a snapshot of this name is there; it is compared, and replaced only when asked and proven wrong.
        expected_class: the best class that the evidence can give; the real one is known after the replay.
    """

    offset: int
    is_log_end: bool
    exists: bool
    expected_class: str


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

    @property
    def offset(self) -> int:
        """The boundary."""
        return self.boundary.offset

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
    action: str


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
        bytes_least: to read; ``bytes_most`` when the evidence asks for everything below.
        retention_frees_ms: moment after which plain retention has deleted every segment that lacks a snapshot; None when unknown, or if
            remote storage is on.
        fault: why nothing can be done, or None.
        given: the state before the first segment, where it is known from elsewhere; None to begin as requested.
        verdict: on the replica as a source of snapshots; None if nothing would be written.
        resumed: where the replay continues, with ``given`` for the class of that state; None to begin as requested.
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
    bytes_least: int = 0
    bytes_most: int = 0
    retention_frees_ms: int | None = None
    fault: str | None = None
    given: InitialState | None = None
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
        return self.source.path

    @property
    def wanted(self) -> tuple[BoundaryPlan, ...]:
        """All wanted boundaries, ascending: those that are replayed, and those whose snapshots are ready."""
        if not self.ready:
            return self.boundaries
        return tuple(sorted((*self.boundaries, *(each.boundary for each in self.ready)), key=lambda each: each.offset))


class SourceGate(Protocol):
    """Judges whether replicas may be the source of what is planned. The command supplies it: the evidence is the cluster's."""

    def __call__(
        self,
        plans: Sequence[PartitionPlan],
        request: Request,
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

    request: Request
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
    def counts(self) -> NeedCounts:
        """Selected boundaries without a snapshot in the log directories, by what they need."""
        return NeedCounts.of(partition.needs for partition in self.partitions)

    @property
    def bytes_least(self) -> int:
        """Bytes to read."""
        return sum(partition.bytes_least for partition in self.partitions)

    @property
    def bytes_most(self) -> int:
        """Bytes to read when every window has to be extended to its log start."""
        return sum(partition.bytes_most for partition in self.partitions)
