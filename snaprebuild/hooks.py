"""API for uploaders and backup tools: the snapshot that belongs to a segment, or a refusal with the reason.

A segment is uploaded together with the producer snapshot at its next base offset (``RemoteLogManager.copyLogSegment`` takes
``producerStateManager.fetchSnapshot(nextSegmentOffset)``). ``ensure_snapshot`` returns its bytes: those on disk if the log proves
them correct, else those of a replay.
It only reads, also while the broker runs, keeps no state between calls, configures no logging, and may be called from several
threads at once.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np

from formats.errors import FormatError
from formats.limits import SNAPSHOT_BYTES_MAX
from formats.partition.file_names import FileKind, parse_file_name, snapshot_file_name, snapshot_temporary_file_name
from formats.partition.producer_snapshot import read_entries
from snaprebuild.errors import ReadFailedError, RefusedError, SnapshotRefusedError, UsageError
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.engine.partition_replay import Clock, ReplayFrom
from snaprebuild.snapshots.ensure_snapshot import (
    BoundaryRequest,
    EnsuredSnapshot,
    Origin,
    ValidatedSnapshot,
    Validity,
    replay_to_boundary,
)
from snaprebuild.snapshots.rebuild.writer import create_or_wait
from snaprebuild.snapshots.source.source import PartitionSource, opened_partition
from snaprebuild.storage.store import USUAL_S3, S3Settings, Store, absolute
from snaprebuild.storage.stores import store_of
from snaprebuild.tier.upload.prepare import PreparedUpload, prepare_segment

__all__ = [
    "EnsuredSnapshot",
    "Origin",
    "PreparedUpload",
    "ValidatedSnapshot",
    "Validity",
    "ensure_snapshot",
    "prepare_upload",
    "validate_snapshot",
]


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
    source: PartitionSource | None = None,
) -> EnsuredSnapshot:
    """Returns the snapshot at the next base offset of a segment, proven by the log, or refuses.

    Args:
        partition_dir: the partition's directory, ``<topic>-<partition>``, or ``s3://BUCKET/PREFIX`` as text. Nothing is written into it.
        next_base_offset: base offset of the segment after the one to upload, or the log end offset.
        after: an earlier result for this partition, from which the replay resumes, so that each segment is read only once. The
            result is that of a whole replay. It is ignored if its offset is not below, or if the log is no longer the one that was
            replayed. For the part that it covers, the arguments of the earlier call count.
        as_of_ms: moment at which producers expire, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms`` of the broker; less than it uses loses producers.
        replay_from: ``auto``, ``window`` or ``log-start`` (docs/concepts/confidence.md).
        check_crc: compute the checksum of every batch.
        allow_unproven: accept a result that is UNPROVEN.
        allow_unsound: also accept a result that is UNSOUND.
        byte_budget: refuse before more bytes of segments than this would be read; None for no limit. Small files are not counted.
        deadline: refuse once ``time.monotonic()`` is past this, checked before each block of 8 MiB; None for none.
        out: directory, or ``s3://BUCKET/PREFIX`` as text, into which the file is written as well, whole or not at all; not in a log
            directory. None writes nothing.
        jobs: processes that read segments; 1 reads in this one.
        s3: how object stores are reached; None for the settings of the environment and the SDK.
        source: the partition as it was listed before; None to list its directory. A segment that has changed since is refused.

    Returns:
        The snapshot.

    Raises:
        SnapshotRefusedError: no reliable snapshot, a limit, or another file under its name in ``out``.
        UsageError: an argument makes no sense: no such directory or prefix, no boundary of the log, a negative limit.
        ReadFailedError: a file cannot be read.
        WriteFailedError, OutcomeUnknownError: the file in ``out`` cannot be written.
    """
    request = BoundaryRequest(
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
        source,
    )
    _check_numbers(expiration_ms, jobs, byte_budget)
    ensured = replay_to_boundary(
        request, jobs, lambda work: work.ensured(allow_unproven=allow_unproven, allow_unsound=allow_unsound)
    )
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
    source: PartitionSource | None = None,
) -> PreparedUpload:
    """Returns everything that is uploaded with a closed segment, consistent with one another, or refuses.

    That is the segment, its indexes, the leader epochs, and the producer snapshot at its end, which is rebuilt if the one on disk
    is missing or wrong. A segment is refused if a broker would not upload it, or not yet (``UploadRefusedError.reason``), or if its
    files contradict each other.
    Nothing is written. With a neighbour's snapshot (``after``) one segment is replayed. The uploader must call ``check_unchanged``
    of the result once more, just before the upload is called complete.

    Args:
        segment: path of its ``.log``, or ``s3://BUCKET/KEY`` as text.
        after: the snapshot of an earlier result for this partition (``PreparedUpload.snapshot``), from which the replay resumes.
        topic_id: Kafka's text of it, required if there is no ``partition.metadata``; if there is one, both must be equal.
        high_watermark: offset up to which the log is replicated; None for that in ``replication-offset-checkpoint`` of the log
            directory.
        as_of_ms: moment at which producers expire, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms`` of the broker; less than it uses loses producers.
        allow_unproven: accept a snapshot that is UNPROVEN.
        byte_budget: refuse before more bytes of segments than this would be replayed; None for no limit.
        deadline: refuse once ``time.monotonic()`` is past this; None for none.
        jobs: processes that read segments; 1 reads in this one.
        s3: how object stores are reached; None for the settings of the environment and the SDK.
        source: as for ``ensure_snapshot``: without it the directory is listed once for each segment.

    Returns:
        The files to upload, and the facts for their metadata record.

    Raises:
        UploadRefusedError: the segment may not be uploaded, or not yet.
        SnapshotRefusedError: there is no reliable snapshot, or a limit is reached.
        UsageError: an argument makes no sense, or there is no such segment.
        ReadFailedError: a file cannot be read.
    """
    settings = USUAL_S3 if s3 is None else s3

    def ensure(partition: PartitionSource, offset: int) -> EnsuredSnapshot:
        return ensure_snapshot(
            partition.directory.path,
            offset,
            after=after,
            as_of_ms=as_of_ms,
            expiration_ms=expiration_ms,
            allow_unproven=allow_unproven,
            byte_budget=byte_budget,
            deadline=deadline,
            jobs=jobs,
            s3=settings,
            source=partition,
        )

    return prepare_segment(
        os.fspath(segment),
        ensure,
        topic_id=topic_id,
        high_watermark=high_watermark,
        deadline=deadline,
        settings=settings,
        source=source,
    )


def validate_snapshot(
    partition: str | os.PathLike[str],
    snapshot: bytes | str | os.PathLike[str],
    next_base_offset: int | None = None,
    *,
    after: EnsuredSnapshot | ValidatedSnapshot | None = None,
    as_of_ms: int | None = None,
    expiration_ms: int = DEFAULT_EXPIRATION_MS,
    replay_from: ReplayFrom | str = ReplayFrom.AUTO,
    check_crc: bool = True,
    byte_budget: int | None = None,
    deadline: float | None = None,
    jobs: int = 1,
    s3: S3Settings | None = None,
) -> ValidatedSnapshot:
    """Checks whether a snapshot, wherever it comes from, is the one that belongs to a segment, as the log proves it.

    A wrong one is reported and not repaired: ``ensure_snapshot`` returns the right one.

    Args:
        partition: the partition's directory, or the path of the segment's ``.log`` in it, or either as ``s3://BUCKET/...`` as text.
        snapshot: the whole file as bytes, or its path.
        next_base_offset: the boundary, as for ``ensure_snapshot``; None only if ``partition`` is a segment: the end of that
            segment.
        after: an earlier result for this partition, also of ``ensure_snapshot``, from which the replay resumes.
        as_of_ms: moment at which producers expire, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms`` of the broker.
        replay_from: as for ``ensure_snapshot``.
        check_crc: compute the checksum of every batch.
        byte_budget: refuse before more bytes of segments than this would be read; None for no limit.
        deadline: refuse once ``time.monotonic()`` is past this; None for none.
        jobs: processes that read segments; 1 reads in this one.
        s3: how object stores are reached; None for the settings of the environment and the SDK.

    Returns:
        The verdict with its reasons. A snapshot that does not parse gets its verdict without reading the log.

    Raises:
        SnapshotRefusedError: a limit is reached, or the directory is no source.
        UsageError: an argument makes no sense: no such directory, no boundary of the log, a negative limit.
        ReadFailedError: a file cannot be read, or the snapshot does not exist.
    """
    settings = USUAL_S3 if s3 is None else s3
    _check_numbers(expiration_ms, jobs, byte_budget)
    mode = _replay_from(replay_from)
    source, directory, offset = _boundary(absolute(os.fspath(partition)), next_base_offset, settings, deadline)
    try:
        entries = _entries_of(snapshot, settings)
    except FormatError as error:
        return ValidatedSnapshot(offset, Validity.CORRUPT, (str(error),))
    clock = Clock(int(time.time() * 1000) if as_of_ms is None else as_of_ms, expiration_ms)
    point = None if after is None else after.point
    request = BoundaryRequest(directory, offset, clock, mode, check_crc, byte_budget, deadline, None, point, settings, source)
    return replay_to_boundary(request, jobs, lambda work: work.validated(entries))


def _replay_from(value: ReplayFrom | str) -> ReplayFrom:
    try:
        return ReplayFrom(value)
    except ValueError:
        names = ", ".join(each.value for each in ReplayFrom)
        raise UsageError(f"replay_from: expected one of {names}, found {value!r}") from None


def _check_numbers(expiration_ms: int, jobs: int, byte_budget: int | None) -> None:
    if expiration_ms < 1 or jobs < 1 or (byte_budget is not None and byte_budget < 0):
        raise UsageError("expected an expiration and jobs of 1 or more, and a budget of 0 or more")


def _written(ensured: EnsuredSnapshot, out: str, store: Store) -> EnsuredSnapshot:
    """Writes the file to another directory; one with the same bytes may be there."""
    name = snapshot_file_name(ensured.offset)
    path, temporary = os.path.join(out, name), snapshot_temporary_file_name(ensured.offset)
    try:
        store.prepare_writes(out)
    except RefusedError as error:
        raise SnapshotRefusedError(error.message, path=error.path, bytes_read=ensured.bytes_read) from error
    if not create_or_wait(lambda: store.create(out, name, ensured.data, owner=None, temporary_name=temporary)):
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


def _boundary(
    path: str, next_base_offset: int | None, settings: S3Settings, deadline: float | None
) -> tuple[PartitionSource | None, str, int]:
    """The partition if it had to be listed, its directory, and the boundary."""
    known = parse_file_name(os.path.basename(path))
    base_offset = known.offset if known is not None and known.kind is FileKind.LOG else None
    directory = path if base_offset is None else os.path.dirname(path)
    if next_base_offset is not None:
        return None, directory, next_base_offset
    if base_offset is None:
        raise UsageError("next_base_offset: needed where no segment is named", path=path)
    try:
        source = opened_partition(directory, settings)
    except RefusedError as error:
        raise UsageError("is no segment of a partition directory", path=path) from error
    bases = [each.base_offset for each in source.directory.segments]
    if base_offset not in bases:
        raise UsageError("is no segment of a partition directory", path=path)
    following = bases.index(base_offset) + 1
    end = bases[following] if following < len(bases) else log_end_offset(source.directory, deadline)
    return source, directory, end


def _entries_of(snapshot: bytes | str | os.PathLike[str], settings: S3Settings) -> np.ndarray:
    """Raises FormatError if it does not parse, ReadFailedError if it cannot be read."""
    if isinstance(snapshot, bytes):
        return read_entries(snapshot, file="the snapshot")
    path = absolute(os.fspath(snapshot))
    data = store_of(path, settings).read_small(path, SNAPSHOT_BYTES_MAX)
    if data is None:
        raise ReadFailedError("does not exist", path=path)
    return read_entries(data, file=path)
