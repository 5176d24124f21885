"""The four destinations of snapshots. ``RebuildRequest.destination`` is one of them, and nothing else asks where a request writes.

``InPlace`` writes into the log directories of a stopped broker, and ``NextToBroker`` into those of a running one. ``Below`` writes to a
directory that no broker reads, and ``Staged`` to directories from which ``install`` links.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding
from snaprebuild.snapshots.destination.boundary_result import BoundaryResult
from snaprebuild.snapshots.destination.output_directory import check_output, staged_directories, target_directories
from snaprebuild.snapshots.destination.placement_rules import (
    TOPIC_ID_ZERO,
    check_running_brokers,
    reason_against_writing_in_place,
    reason_against_writing_while_running,
)
from snaprebuild.snapshots.destination.rebuilt_snapshot import RebuiltSnapshot
from snaprebuild.snapshots.destination.snapshot_writers import (
    InPlaceWriter,
    NextToBrokerWriter,
    OutWriter,
    StageWriter,
    WriterSettings,
)
from snaprebuild.snapshots.source.boundary_needs import LeftOutReason, reason_not_needed
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes
from snaprebuild.storage.local.hard_links import check_links
from snaprebuild.storage.store import S3Settings, is_object
from snaprebuild.storage.store_path import path_of

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_request import RebuildRequest
    from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult

__all__ = ["Below", "Destination", "InPlace", "NextToBroker", "SnapshotWriter", "Staged"]


class SnapshotWriter(Protocol):
    """Writes the snapshots of one partition; several calls may run at once."""

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """Writes a snapshot if it is due.

        Raises:
            AlreadyExistsError: a file of this name appeared meanwhile.
            StorageError: it cannot be written, or an existing file cannot be read.
            RefusedError: nothing may be written here any more.
        """


class Destination(Protocol):
    """Where the snapshots of a request go, and everything that depends on it.

    Attributes:
        is_for_broker: a broker is to use the snapshots: they are in its log directory after this run, or after ``install``.
        writes_into_log_dirs: this run writes into the log directories.
        locks_log_dirs: this run holds the lock of each log directory, so that no broker starts while it writes.
        while_broker_runs: the broker may run, and may write meanwhile: segments above the last boundary are not read.
        installed_later: ``install`` gives the snapshots their names, after a clean stop. Segments that are rolled until then are replayed
            from the last snapshot.
    """

    is_for_broker: ClassVar[bool]
    writes_into_log_dirs: ClassVar[bool]
    locks_log_dirs: ClassVar[bool]
    while_broker_runs: ClassVar[bool]
    installed_later: ClassVar[bool]

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories outside of the log directories that this run writes to."""

    @property
    def receipt_directory(self) -> str | None:
        """Where the receipt goes if nothing else is asked for; None for the usual places."""

    def check(self, request: RebuildRequest) -> None:
        """Refuses the options of a request that do not fit.

        Raises:
            UsageError: one does not.
        """

    def targets(self, source: Source, s3: S3Settings) -> dict[str, str]:
        """The directory for the snapshots of each partition, by path of the partition.

        Raises:
            RefusedError: one is in a directory of a broker, which would not start with it.
            UsageError: one is no directory, or a link from there to a partition is impossible.
            ReadFailedError: one cannot be listed.
        """

    def broker_notes(self, source: Source) -> list[Finding]:
        """Notes about the brokers that run on the log directories.

        Raises:
            RefusedError: the brokers must run, and one does not, or one would delete what is written.
        """

    def reason_against(
        self, request: RebuildRequest, partition: PartitionSource, offset: int, *, is_log_end: bool
    ) -> LeftOutReason | None:
        """Why no snapshot may be written for a boundary, or None.

        Args:
            request: its options.
            partition: with the boundary.
            offset: of the boundary.
            is_log_end: it is the log end offset.
        """

    def prepare_writes(self, log_dirs: Sequence[str], s3: S3Settings) -> None:
        """Checks, before anything is read or written, that existing files cannot be replaced.

        Args:
            log_dirs: of the partitions that have boundaries to write.
            s3: how object stores are reached.

        Raises:
            RefusedError: a store would replace existing objects, or the file system has no hard links.
            StorageError: a store does not answer.
        """

    def writer(self, result: PartitionResult, request: RebuildRequest, settings: WriterSettings) -> SnapshotWriter:
        """The writer of the snapshots of a partition.

        Args:
            result: of the partition; findings go there.
            request: its options.
            settings: of the run.
        """


class _ForBroker:
    """Snapshots for log directories: what the destinations in and for them have in common."""

    is_for_broker: ClassVar[bool] = True
    receipt_directory: ClassVar[None] = None

    @property
    def directories(self) -> tuple[str, ...]:
        return ()

    def check(self, request: RebuildRequest) -> None:
        """Every option fits."""

    def targets(self, source: Source, s3: S3Settings) -> dict[str, str]:
        return target_directories(None, source.partitions)

    def broker_notes(self, source: Source) -> list[Finding]:
        return live_broker_notes(source)

    def prepare_writes(self, log_dirs: Sequence[str], s3: S3Settings) -> None:
        for log_dir in log_dirs:
            path_of(log_dir, s3).prepare_writes()


@dataclass(frozen=True, slots=True)
class InPlace(_ForBroker):
    """Next to the segments, in the log directories of a broker that is stopped."""

    writes_into_log_dirs: ClassVar[bool] = True
    locks_log_dirs: ClassVar[bool] = True
    while_broker_runs: ClassVar[bool] = False
    installed_later: ClassVar[bool] = False

    def reason_against(
        self, request: RebuildRequest, partition: PartitionSource, offset: int, *, is_log_end: bool
    ) -> LeftOutReason | None:
        """Why no snapshot may be written for a boundary, or None."""
        reason = reason_against_writing_in_place(partition, offset, is_log_end=is_log_end)
        return reason or _reason_of_topic_id(request, partition)

    def writer(self, result: PartitionResult, request: RebuildRequest, settings: WriterSettings) -> SnapshotWriter:
        """The writer of the snapshots of a partition."""
        return InPlaceWriter(result, request, settings)


@dataclass(frozen=True, slots=True)
class NextToBroker(_ForBroker):
    """Next to the segments while the broker runs (``--broker-running``): it uses the snapshots after its next start."""

    writes_into_log_dirs: ClassVar[bool] = True
    locks_log_dirs: ClassVar[bool] = False
    while_broker_runs: ClassVar[bool] = True
    installed_later: ClassVar[bool] = False

    def check(self, request: RebuildRequest) -> None:
        """Refuses the options of a request that do not fit (``UsageError``)."""
        _check_running_broker(request, request.paths, "--broker-running")

    def broker_notes(self, source: Source) -> list[Finding]:
        """Notes about the brokers that run on the log directories."""
        return check_running_brokers(source)

    def reason_against(
        self,
        request: RebuildRequest,
        partition: PartitionSource,
        offset: int,
        *,
        is_log_end: bool,  # the active segment is refused whatever its end
    ) -> LeftOutReason | None:
        """Why no snapshot may be written for a boundary, or None."""
        return reason_against_writing_while_running(partition, offset) or _reason_of_topic_id(request, partition)

    def writer(self, result: PartitionResult, request: RebuildRequest, settings: WriterSettings) -> SnapshotWriter:
        """The writer of the snapshots of a partition."""
        return NextToBrokerWriter(result, request, settings)


@dataclass(frozen=True, slots=True)
class Staged(_ForBroker):
    """Outside of the log directories, on their file systems, for ``install`` (``stage --to``).

    Attributes:
        stages: the directories, one on each file system; the staged plan is in the first.
    """

    stages: tuple[str, ...]

    writes_into_log_dirs: ClassVar[bool] = False
    locks_log_dirs: ClassVar[bool] = False
    while_broker_runs: ClassVar[bool] = True
    installed_later: ClassVar[bool] = True

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories outside of the log directories that this run writes to."""
        return self.stages

    def check(self, request: RebuildRequest) -> None:
        """Refuses the options of a request that do not fit (``UsageError``)."""
        _check_running_broker(request, (*request.paths, *self.stages), "--to")
        if request.drop_expired:
            raise UsageError("--to: later segments are replayed from the staged state, so no entry may be dropped from it")
        if not all(self.stages):
            raise UsageError("--to: the path is empty")

    def targets(self, source: Source, s3: S3Settings) -> dict[str, str]:
        """The directory for the snapshots of each partition, by path of the partition."""
        return staged_directories(self.stages, source)

    def reason_against(
        self, request: RebuildRequest, partition: PartitionSource, offset: int, *, is_log_end: bool
    ) -> LeftOutReason | None:
        """Why no snapshot may be staged for a boundary, or None. The snapshots get their names after a clean stop."""
        reason = reason_against_writing_in_place(partition, offset, is_log_end=is_log_end, before_stop=True)
        return reason or _reason_of_topic_id(request, partition)

    def prepare_writes(self, log_dirs: Sequence[str], s3: S3Settings) -> None:
        """Checks, before anything is read or written, that existing files cannot be replaced. A directory that gets none is absent."""
        for number, directory in enumerate(self.stages if log_dirs else ()):
            if number == 0 or os.path.isdir(directory):
                check_links(directory)
        _ForBroker.prepare_writes(self, log_dirs, s3)

    def writer(self, result: PartitionResult, request: RebuildRequest, settings: WriterSettings) -> SnapshotWriter:
        """The writer of the snapshots of a partition."""
        return StageWriter(result, request, settings)


@dataclass(frozen=True, slots=True)
class Below:
    """Below a directory that no broker reads (``--out``), on this machine or in an object store.

    Attributes:
        directory: path, or location of a prefix.
    """

    directory: str

    is_for_broker: ClassVar[bool] = False
    writes_into_log_dirs: ClassVar[bool] = False
    locks_log_dirs: ClassVar[bool] = False
    while_broker_runs: ClassVar[bool] = False
    installed_later: ClassVar[bool] = False

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories outside of the log directories that this run writes to."""
        return (self.directory,)

    @property
    def receipt_directory(self) -> str:
        """Where the receipt goes if --receipt names no place."""
        return self.directory

    def check(self, request: RebuildRequest) -> None:
        """Refuses the options of a request that do not fit (``UsageError``)."""
        if request.set_aside:
            raise UsageError(
                "--set-aside renames files in the log directories, and --out does not change those: use only one of them"
            )

    def targets(self, source: Source, s3: S3Settings) -> dict[str, str]:
        """The directory for the snapshots of each partition, by path of the partition."""
        targets = target_directories(self.directory, source.partitions)
        check_output(path_of(self.directory, s3), targets.values(), source.partitions)
        return targets

    def broker_notes(self, source: Source) -> list[Finding]:
        """Notes about the brokers that run on the log directories."""
        return live_broker_notes(source)

    def reason_against(
        self, request: RebuildRequest, partition: PartitionSource, offset: int, *, is_log_end: bool
    ) -> LeftOutReason | None:
        """Why no snapshot is written, or None: only damage of the log counts, and nothing if all boundaries are requested."""
        if request.boundaries == "all":
            return None
        return reason_not_needed(partition, offset, is_log_end=is_log_end)

    def prepare_writes(self, log_dirs: Sequence[str], s3: S3Settings) -> None:
        """Checks, before anything is read or written, that existing files cannot be replaced."""
        if log_dirs:
            path_of(self.directory, s3).prepare_writes()

    def writer(self, result: PartitionResult, request: RebuildRequest, settings: WriterSettings) -> SnapshotWriter:
        """The writer of the snapshots of a partition."""
        return OutWriter(result, request, settings)


def _reason_of_topic_id(request: RebuildRequest, partition: PartitionSource) -> LeftOutReason | None:
    if partition.uploads_under_id_zero and not request.accept_topic_id_zero:
        return TOPIC_ID_ZERO
    return None


def _check_running_broker(request: RebuildRequest, paths: Sequence[str], option: str) -> None:
    """Refuses options that do not fit a broker that runs."""
    if request.set_aside:
        raise UsageError(f"--set-aside needs a broker that is stopped: not with {option}")
    if request.boundaries != "missing":
        raise UsageError(f"{option} is for snapshots that are missing: not with --boundaries {request.boundaries}")
    if any(map(is_object, paths)):
        raise UsageError(f"{option}: no broker runs on an object store")
