"""The door for uploaders and backup tools: the snapshot that belongs to a segment, or a refusal that says why.

A segment goes to the tier together with the producer snapshot at its next base offset (``RemoteLogManager.copyLogSegment`` takes
``producerStateManager.fetchSnapshot(nextSegmentOffset)``). ``ensure_snapshot`` gives its bytes: those on disk where the log proves them
right, else those that a replay gives. It reads only, beside a live broker too, keeps no state between calls, configures no logging, and may
be called from several threads at once.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace

from formats.errors import FormatError
from formats.file_names import snapshot_file_name, snapshot_temporary_file_name
from formats.limits import SNAPSHOT_BYTES_MAX
from formats.producer_snapshot import read_entries, write_entries
from snaprebuild.errors import ReadFailedError, RefusedError, SnaprebuildError, SnapshotRefusedError, UsageError
from snaprebuild.operations.boundary_work import BoundaryWork
from snaprebuild.operations.ensured_snapshot import EnsuredSnapshot, Origin
from snaprebuild.operations.log_facts import log_end_offset, window_index
from snaprebuild.operations.plan import check_output, stop_index
from snaprebuild.operations.prepare_upload import prepare_segment
from snaprebuild.operations.prepared_upload import PreparedUpload
from snaprebuild.operations.replay_partition import BoundaryState, Clock, PartitionReplay, ReplayFrom, ReplayPoint
from snaprebuild.operations.schedule import run
from snaprebuild.operations.source import PartitionSource, check_segments_are_files, open_source
from snaprebuild.operations.write_out import create_in_turn
from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.difference import SnapshotStatus, impossible_entries
from snaprebuild.replay.producer_state import DEFAULT_EXPIRATION_MS
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.storage.log_dir import store_of
from snaprebuild.storage.store import USUAL_S3, S3Settings, Store, absolute

__all__ = ["EnsuredSnapshot", "Origin", "PreparedUpload", "ensure_snapshot", "prepare_upload"]


def ensure_snapshot(
    partition_dir: str | os.PathLike[str],
    next_base_offset: int,
    *,
    after: EnsuredSnapshot | None = None,
    as_of_ms: int | None = None,
    expiration_ms: int = DEFAULT_EXPIRATION_MS,
    replay_from: ReplayFrom | str = ReplayFrom.AUTO,
    check_crc: bool = True,
    allow_unproven: bool = False,
    allow_unsound: bool = False,
    byte_budget: int | None = None,
    deadline: float | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    s3: S3Settings | None = None,
) -> EnsuredSnapshot:
    """Gives the snapshot at the next base offset of a segment, proven by the log, or refuses.

    Args:
        partition_dir: the partition's directory, ``<topic>-<partition>``, or ``s3://BUCKET/PREFIX`` as text. Nothing is written into it.
        next_base_offset: base offset of the segment behind the one to upload, or the log end offset.
        after: an earlier result for this partition, which the replay goes on from: whoever asks for one boundary after the other has each
            segment read once, and gets what a whole replay gives. Passed over where it lies not below, or where the log is no longer the
            one that was replayed. The arguments of the earlier call count for what it read.
        as_of_ms: moment at which producers expire, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms`` of the broker; less than it uses loses producers.
        replay_from: ``auto``, ``window`` or ``log-start`` (docs/evidence.md).
        check_crc: compute the checksum of every batch.
        allow_unproven: take a result that is UNPROVEN.
        allow_unsound: take one that is UNSOUND, too.
        byte_budget: refuse before more bytes of segments than this would be read; None for no limit. Small files are not counted.
        deadline: refuse once ``time.monotonic()`` is past this, asked before each block of 8 MiB; None for none.
        out: directory, or ``s3://BUCKET/PREFIX`` as text, that the file is written to as well, whole or not at all; it lies in no log
            directory. None writes nothing.
        jobs: processes that read segments; 1 reads in this one.
        s3: how object stores are reached; None for what the environment and the SDK say.

    Returns:
        The snapshot.

    Raises:
        SnapshotRefusedError: no snapshot that may be relied on, a limit, or another file under its name in ``out``.
        UsageError: an argument makes no sense: no such directory or prefix, no boundary of the log, a negative limit.
        ReadFailedError: a file cannot be read.
        WriteFailedError, OutcomeUnknownError: the file in ``out`` cannot be written.
    """
    request = _Request(
        absolute(os.fspath(partition_dir)),
        next_base_offset,
        Clock(int(time.time() * 1000) if as_of_ms is None else as_of_ms, expiration_ms),
        _replay_from(replay_from),
        check_crc,
        byte_budget,
        deadline,
        None if out is None else absolute(os.fspath(out)),
        None if after is None else after.point,
        USUAL_S3 if s3 is None else s3,
    )
    if expiration_ms < 1 or jobs < 1 or (byte_budget is not None and byte_budget < 0):
        raise UsageError("expected an expiration and jobs of 1 or more, and a budget of 0 or more")
    work: _EnsureWork | None = None
    try:
        work = _opened(request)
        run([work], jobs)
        if work.failure is not None:
            raise work.failure
        ensured = work.ensured(allow_unproven=allow_unproven, allow_unsound=allow_unsound)
    except SnapshotRefusedError:
        raise
    except (RefusedError, FormatError) as error:
        message, path = (error.message, error.path) if isinstance(error, RefusedError) else (str(error), request.directory)
        raise SnapshotRefusedError(message, path=path, bytes_read=0 if work is None else work.bytes_read) from error
    return ensured if request.out is None else _written(ensured, request.out, store_of(request.out, request.s3))


def prepare_upload(
    segment: str | os.PathLike[str],
    *,
    after: EnsuredSnapshot | None = None,
    topic_id: str | None = None,
    high_watermark: int | None = None,
    as_of_ms: int | None = None,
    expiration_ms: int = DEFAULT_EXPIRATION_MS,
    allow_unproven: bool = False,
    byte_budget: int | None = None,
    deadline: float | None = None,
    jobs: int = 1,
    s3: S3Settings | None = None,
) -> PreparedUpload:
    """Gives everything that goes to remote storage with a closed segment, consistent with one another, or refuses.

    The segment, its indexes, the leader epochs, and the producer snapshot at its end, rebuilt where the one on disk is missing or wrong.
    Refused is what a broker would not upload, or not yet (``UploadRefusedError.reason`` tells), and what contradicts itself. Nothing is
    written. With a neighbour's snapshot (``after``) one segment is replayed. Whoever uploads calls ``check_unchanged`` of the result once
    more, just before the upload is called complete.

    Args:
        segment: path of its ``.log``, or ``s3://BUCKET/KEY`` as text.
        after: the snapshot of an earlier result for this partition (``PreparedUpload.snapshot``), which the replay goes on from.
        topic_id: Kafka's text of it, needed where there is no ``partition.metadata``; where there is one, both must say the same.
        high_watermark: offset up to which the log is replicated; None for what ``replication-offset-checkpoint`` of the log directory says.
        as_of_ms: moment at which producers expire, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms`` of the broker; less than it uses loses producers.
        allow_unproven: take a snapshot that is UNPROVEN.
        byte_budget: refuse before more bytes of segments than this would be replayed; None for no limit.
        deadline: refuse once ``time.monotonic()`` is past this; None for none.
        jobs: processes that read segments; 1 reads in this one.
        s3: how object stores are reached; None for what the environment and the SDK say.

    Returns:
        What is to be sent, and what is to be said of it.

    Raises:
        UploadRefusedError: the segment may not be uploaded, or not yet.
        SnapshotRefusedError: there is no snapshot that may be relied on, or a limit is reached.
        UsageError: an argument makes no sense, or there is no such segment.
        ReadFailedError: a file cannot be read.
    """
    settings = USUAL_S3 if s3 is None else s3

    def ensure(directory: str, offset: int) -> EnsuredSnapshot:
        return ensure_snapshot(
            directory,
            offset,
            after=after,
            as_of_ms=as_of_ms,
            expiration_ms=expiration_ms,
            allow_unproven=allow_unproven,
            byte_budget=byte_budget,
            deadline=deadline,
            jobs=jobs,
            s3=settings,
        )

    return prepare_segment(
        os.fspath(segment), ensure, topic_id=topic_id, high_watermark=high_watermark, deadline=deadline, settings=settings
    )


def _replay_from(value: ReplayFrom | str) -> ReplayFrom:
    try:
        return ReplayFrom(value)
    except ValueError:
        names = ", ".join(each.value for each in ReplayFrom)
        raise UsageError(f"replay_from: expected one of {names}, found {value!r}") from None


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of ``ensure_snapshot``, checked."""

    directory: str
    offset: int
    clock: Clock
    mode: ReplayFrom
    check_crc: bool
    byte_budget: int | None
    deadline: float | None
    out: str | None
    after: ReplayPoint | None
    s3: S3Settings


def _opened(request: _Request) -> _EnsureWork:
    """The partition, and where its replay begins and ends."""
    source = open_source([request.directory], settings=request.s3)
    if not source.partitions or source.partitions[0].directory.path != request.directory:
        why = "; ".join(finding.message for finding in source.findings) or "is no partition directory"
        raise SnapshotRefusedError(why, path=request.directory)
    partition = source.partitions[0]
    directory = partition.directory
    check_segments_are_files(directory)
    if request.out is not None:
        check_output(request.out, [request.out], [partition], store_of(request.out, request.s3))
    bases = [segment.base_offset for segment in directory.segments]
    is_log_end = request.offset not in bases[1:]
    if not bases or request.offset < 1 or (is_log_end and request.offset <= bases[-1]):
        raise UsageError(f"{request.offset} is neither the base offset of a later segment nor the log end", path=directory.path)
    # The end of the last segment is read only where it matters: without an index that is all of it.
    if is_log_end:
        _check_budget(request, directory.segments[-1].size_bytes)
    end = log_end_offset(directory, request.deadline) if is_log_end else 0
    if is_log_end and request.offset != end:
        message = f"{request.offset} is neither the base offset of a later segment nor the log end, which is {end}"
        raise UsageError(message, path=directory.path)
    window = 0 if request.mode is ReplayFrom.LOG_START else window_index(partition, request.clock)
    stop = len(bases) if is_log_end else stop_index(directory, request.mode, request.offset)
    resumed = request.after
    if resumed is not None and (resumed.offset >= request.offset or resumed.index_in(directory) is None):
        resumed = None
    replay = PartitionReplay(directory, request.mode, request.clock, window, stop, request.offset, end, resumed)
    if not is_log_end and (resumed is not None or (bases[0] == 0 and replay.start()[0] == 0)):
        # From the beginning of the log on nothing has to be proven by what lies behind the boundary.
        replay.window_index, replay.stop_index = 0, bases.index(request.offset)
    return _EnsureWork(request, partition, replay)


def _check_budget(request: _Request, wanted_bytes: int, bytes_read: int = 0) -> None:
    if request.byte_budget is not None and wanted_bytes > request.byte_budget:
        message = f"{wanted_bytes} bytes of segments would have to be read, and the budget is {request.byte_budget}"
        raise SnapshotRefusedError(message, path=request.directory, bytes_read=bytes_read)


class _EnsureWork(BoundaryWork):
    """The replay of one partition up to the one boundary that is wanted."""

    def __init__(self, request: _Request, partition: PartitionSource, replay: PartitionReplay) -> None:
        super().__init__(partition, replay, check_crc=request.check_crc, deadline=request.deadline)
        self.failure: SnaprebuildError | FormatError | None = None
        self._request = request
        self._state: BoundaryState | None = None
        self._point: ReplayPoint | None = None

    def asked(self, indices: list[int]) -> None:
        segments = self.source.directory.segments
        _check_budget(self._request, self.bytes_read + sum(segments[index].size_bytes for index in indices), self.bytes_read)

    def take(self, summary: SegmentSummary) -> bool:
        return super().take(summary) and self._state is None

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        self.failure = error

    def finish(self) -> None:
        if self._state is None:
            super().finish()

    def boundary(self, state: BoundaryState) -> None:
        if state.offset == self._request.offset:
            self._state, self._point = state, self.replay.point(state)

    def refusal(self, reason: str, judgement: Judgement | None = None) -> SnapshotRefusedError:
        """A refusal that tells what was read."""
        return SnapshotRefusedError(
            reason,
            path=self.source.directory.path,
            bytes_read=self.bytes_read,
            snapshot_class=None if judgement is None else judgement.snapshot_class.value,
            reasons=() if judgement is None else judgement.reasons,
        )

    def ensured(self, *, allow_unproven: bool, allow_unsound: bool) -> EnsuredSnapshot:
        """The snapshot on disk where it is proven right, else what the replay gave.

        Raises:
            SnapshotRefusedError: neither may be relied on.
        """
        state = self._state
        if state is None:
            damage = self.replay.damage
            raise self.refusal(
                "the log changed while it was read" if damage is None else f"{damage.reason}: no broker gets past it"
            )
        judgement = state.judgement
        klass = judgement.snapshot_class
        if (klass is SnapshotClass.UNSOUND and not allow_unsound) or (klass is SnapshotClass.UNPROVEN and not allow_unproven):
            raise self.refusal(f"it would be {klass.value}: {judgement.reasons[0]}", judgement)
        found = self._on_disk(state)
        if isinstance(found, EnsuredSnapshot):
            return found
        impossible = impossible_entries(state.entries, state.offset)
        if impossible is not None:
            raise self.refusal(f"the log leads to a state that no snapshot can hold: {impossible}", judgement)
        reasons = judgement.reasons if found is None else (*judgement.reasons, f"the file on disk is not taken: {found}")
        data = write_entries(state.entries)
        return self._ensured(data, None, Origin.REBUILT, Judgement(klass, reasons), len(state.entries))

    def _ensured(self, data: bytes, path: str | None, origin: Origin, judgement: Judgement, entries: int) -> EnsuredSnapshot:
        klass, reasons = judgement.snapshot_class, judgement.reasons
        assert self._state is not None
        index = self.cross.transaction_index(self._state)
        fault = None if index is None else index.message
        offset, read = self._request.offset, self.bytes_read
        return EnsuredSnapshot(offset, data, path, origin, klass, reasons, entries, read, self._point, fault)

    def _on_disk(self, state: BoundaryState) -> EnsuredSnapshot | str | None:
        """The file on disk, if it is proven right; else why it is not taken, or None where there is none."""
        directory = self.source.directory
        path = directory.file_path(snapshot_file_name(state.offset))
        listed = dict(directory.snapshots).get(state.offset)
        if listed is not None and listed.identity.size_bytes > SNAPSHOT_BYTES_MAX:
            return f"has {listed.identity.size_bytes} bytes, more than the limit of {SNAPSHOT_BYTES_MAX}"
        try:
            data = directory.store.read_small(path, SNAPSHOT_BYTES_MAX)
            if data is None:
                return None
            entries = read_entries(data, file=path)
        except FormatError as error:
            return str(error)
        except ReadFailedError as error:
            if error.errno is not None or not directory.store.is_local:
                raise
            return error.message  # no regular file
        comparison = self.cross.judge(state, entries)
        judgement = state.judgement
        if comparison.status is SnapshotStatus.EQUAL_AFTER_EXPIRY:
            judgement = Judgement(SnapshotClass.LOAD_EQUIVALENT, (comparison.reason, *judgement.reasons))
        elif comparison.status is not SnapshotStatus.EQUAL:
            return f"{comparison.status.value.replace('_', ' ')}: {comparison.reason}"
        return self._ensured(data, path, Origin.ON_DISK, judgement, len(entries))


def _written(ensured: EnsuredSnapshot, out: str, store: Store) -> EnsuredSnapshot:
    """Writes the file to another directory; one with the same bytes may be there."""
    name = snapshot_file_name(ensured.offset)
    path, temporary = os.path.join(out, name), snapshot_temporary_file_name(ensured.offset)
    try:
        store.prepare_writes(out)
    except RefusedError as error:
        raise SnapshotRefusedError(error.message, path=error.path, bytes_read=ensured.bytes_read) from error
    if not create_in_turn(lambda: store.create(out, name, ensured.data, owner=None, temporary_name=temporary)):
        try:
            with store.open_bytes(path) as found:
                is_same = found.size_bytes == len(ensured.data) and store.read_small(path, len(ensured.data)) == ensured.data
        except ReadFailedError as error:
            if error.errno is not None or not store.is_local:
                raise
            is_same = False
        if not is_same:
            raise SnapshotRefusedError(
                "another file of this name is there",
                path=path,
                bytes_read=ensured.bytes_read,
                snapshot_class=ensured.snapshot_class.value,
                reasons=ensured.reasons,
            )
    return replace(ensured, path=path)
