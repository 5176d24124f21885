"""Library for uploaders and backup tools: the snapshot that belongs to a segment, or a refusal with the reason.

Remote storage holds a segment together with the producer snapshot at its next base offset (``RemoteLogManager.copyLogSegment`` takes
``producerStateManager.fetchSnapshot(nextSegmentOffset)``). ``LogDir`` has the partitions of a log directory. ``Partition`` lists a
directory once, and has the rolled segments with these snapshots. ``ensure_snapshot``, ``validate_snapshot`` and ``prepare_upload``
answer one question each. The bytes are those of the file on disk if the log proves it correct, else those of a replay.

Everything only reads, also while the broker runs, configures no logging, and may be called from several threads. Only a ``Partition``
keeps state between calls.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from threading import Lock
from types import TracebackType

import numpy as np
from msgspec import structs

from formats.errors import FormatError
from formats.limits import INT64_MAX, SNAPSHOT_BYTES_MAX
from formats.partition.file_names import FileKind, parse_file_name, snapshot_file_name, snapshot_temporary_file_name
from formats.partition.partition_metadata import uuid_from_text
from formats.partition.producer_snapshot import read_entries
from snaprebuild.argument_checks import check_instance, check_number, check_offset, check_path, check_seconds, check_text, optional
from snaprebuild.argument_names import names_arguments, with_arguments
from snaprebuild.documents.envelope import reported
from snaprebuild.errors import ReadFailedError, RefusalReason, RefusedError, SnapshotRefusedError, UsageError
from snaprebuild.findings import Finding, ReportedFinding, pluralize
from snaprebuild.snapshots.destination.rebuilt_snapshot import create_or_wait
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.engine.partition_replay import ReplayCheckpoint
from snaprebuild.snapshots.ensure_snapshot import (
    DEFAULT_OPTIONS,
    BoundaryRequest,
    EnsuredSnapshot,
    OneBoundaryTask,
    Origin,
    ReplayOptions,
    SummaryCache,
    replay_to_boundary,
    run_of,
)
from snaprebuild.snapshots.refusals import opened_or_refused, refusal_reason
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, Source, open_source
from snaprebuild.snapshots.validated_snapshot import ValidatedSnapshot, Validity
from snaprebuild.storage.partition_dir import SegmentFiles
from snaprebuild.storage.partition_names import TopicKind
from snaprebuild.storage.store import S3Settings, absolute
from snaprebuild.storage.store_path import StorePath, path_of, store_of
from snaprebuild.tier.upload.prepare import PreparedUpload, candidates, prepare_segment

__all__ = [
    "EnsuredSnapshot",
    "LogDir",
    "Origin",
    "Partition",
    "PreparedUpload",
    "ReplayOptions",
    "Segment",
    "ValidatedSnapshot",
    "Validity",
    "ensure_snapshot",
    "prepare_upload",
    "validate_snapshot",
]

FilePath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""A path on this machine in any form that ``open`` takes, or ``s3://BUCKET/PREFIX`` as text."""


class LogDir:
    """The partitions of a log directory, listed once: ``for partition in LogDir(path)``, in the order of their paths.

    ``len`` is the number of partitions. Each iteration makes new ``Partition`` objects, which have read nothing yet.

    Attributes:
        path: of the directory.
        options: those of the caller, for all of the partitions.
        findings: what is no source of snapshots, and why: directories that a broker deletes or moves, and what cannot be listed. Empty if
            every directory of a partition is among the partitions.
    """

    @names_arguments
    def __init__(self, path: FilePath, options: ReplayOptions = DEFAULT_OPTIONS) -> None:
        """Lists the directory.

        Args:
            path: a log directory, any directory above some, or ``s3://BUCKET/PREFIX`` as text. Nothing is written into it.
            options: for all of its segments.

        Raises:
            UsageError: there is no such directory.
            ReadFailedError: an object store cannot be listed.
        """
        self.path = absolute(check_path("path", path))
        self.options = _checked_options(options)
        self._run = run_of(options)
        source = open_source([self.path], run=self._run)
        self._sources = tuple(each for each in source.partitions if each.topic_kind is not TopicKind.CLUSTER_METADATA)
        self.findings: tuple[ReportedFinding, ...] = tuple(map(_reported, source.findings))

    def __iter__(self) -> Iterator[Partition]:
        return (Partition._of(source, self.options, self._run) for source in self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __repr__(self) -> str:
        return f"LogDir({self.path!r}, {pluralize(len(self), 'partition')})"


class Partition:
    """A partition directory, listed once: ``for segment in Partition(path)`` gives its rolled segments.

    Each segment is read at most once, whichever snapshots are asked for. Use it in a ``with`` statement: what was read of each segment
    stays in memory until the end of the block, about 100 bytes for each producer in each segment. Calls of several threads wait for
    each other. ``len`` is the number of rolled segments.

    Attributes:
        path: of the directory.
        topic: its name.
        partition: its number.
        topic_partition: its name, such as ``orders-0``.
        options: those of the caller. Without ``as_of_ms`` producers expire at the time when the directory was listed.
    """

    @names_arguments
    def __init__(self, directory: FilePath, options: ReplayOptions = DEFAULT_OPTIONS) -> None:
        """Lists the directory.

        Args:
            directory: ``<topic>-<partition>``, or ``s3://BUCKET/PREFIX`` as text. Nothing is written into it.
            options: for all of its segments.

        Raises:
            UsageError: there is no such directory, or it is not the directory of one partition of a topic.
            SnapshotRefusedError: a broker deletes or moves the directory, or its compaction was interrupted.
            ReadFailedError: it cannot be listed.
        """
        run = run_of(_checked_options(options))
        self._begin(opened_or_refused(absolute(check_path("directory", directory)), run), options, run)

    @classmethod
    def _of(cls, source: PartitionSource, options: ReplayOptions, run: Run) -> Partition:
        """A partition that is listed already."""
        partition = cls.__new__(cls)
        partition._begin(source, options, run)
        return partition

    def _begin(self, source: PartitionSource, options: ReplayOptions, run: Run) -> None:
        self.path = source.directory.path
        self.topic = source.directory.name.topic
        self.partition = source.directory.name.partition
        self.topic_partition = source.directory.topic_partition
        self.options = options
        self._run = run
        self._source = source
        self._summaries: SummaryCache = {}
        self._last: ReplayCheckpoint | None = None
        self._lock = Lock()

    def __enter__(self) -> Partition:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._summaries = {}
        self._last = None

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.rolled_segments())

    def __len__(self) -> int:
        return len(candidates(self._source))

    def __repr__(self) -> str:
        return f"Partition({self.path!r}, {pluralize(len(self), 'rolled segment')})"

    @property
    def log_start_offset(self) -> int:
        """The first offset that a broker serves: that of the checkpoint, or the base offset of the first segment."""
        return self._source.log_start_offset

    @cached_property
    @names_arguments
    def log_end_offset(self) -> int:
        """The end of the last whole batch; read from the end of the last segment at the first access.

        Raises:
            ReadFailedError: the last segment cannot be read.
            SnapshotRefusedError: it changed while it was read, or is damaged.
        """
        directory = self._source.directory
        try:
            return log_end_offset(directory)
        except (RefusedError, FormatError) as error:
            raise SnapshotRefusedError(str(error), path=directory.path, reason=refusal_reason(error)) from error

    @cached_property
    @names_arguments
    def last_stable_offset(self) -> int | None:
        """The offset that no open transaction is below, as the small files show it at the first access; None if they do not.

        The files show it only after a clean stop with everything replicated: then the snapshot at the log end names each open
        transaction. It is None while a broker runs, after an unclean stop, and in a copy without ``.kafka_cleanshutdown``. It is None
        while the high watermark is below the log end, too: a transaction whose marker is not replicated holds the offset.
        ``snaprebuild inspect transactions`` replays the log for it.
        """
        from snaprebuild.snapshots.scan.scan import scan_source  # loads all rules of a start

        (scanned,) = scan_source(Source((self._source,), (), facts=self._run.facts)).partitions
        return scanned.last_stable_offset

    def rolled_segments(self) -> tuple[Segment, ...]:
        """The segments that are rolled, and not below the log start offset, by base offset.

        Whether a broker would upload one is what ``Segment.prepare_upload`` judges: not above the last stable offset, for example.
        """
        directory = self._source.directory
        ends = {each.base_offset: following.base_offset for each, following in pairwise(directory.segments)}
        return tuple(self._segment(each, ends[each.base_offset]) for each in candidates(self._source))

    def _segment(self, files: SegmentFiles, next_base_offset: int) -> Segment:
        directory = self._source.directory
        base = files.base_offset
        has_transaction_index = files.transaction_index is not None
        return Segment(
            base_offset=base,
            next_base_offset=next_base_offset,
            size_bytes=files.size_bytes,
            log_path=directory.file_path(files.log.name),
            offset_index_path=None if files.offset_index is None else directory.file_path(files.offset_index),
            time_index_path=None if files.time_index is None else directory.file_path(files.time_index),
            transaction_index_path=directory.transaction_index_path(base) if has_transaction_index else None,
            has_snapshot=directory.snapshot_at(next_base_offset) is not None,
            _partition=self,
        )

    def _ensured(self, source: PartitionSource, offset: int, max_bytes: int | None, deadline: float | None) -> EnsuredSnapshot:
        with self._lock:
            run = structs.replace(self._run, deadline=deadline)
            request = BoundaryRequest(
                self.path, offset, self.options, run, max_bytes, after=self._last, source=source, summaries=self._summaries
            )
            ensured = _ensured(request)
            self._last = ensured.point or self._last
        return ensured


@dataclass(frozen=True, slots=True, repr=False)
class Segment:
    """A rolled segment of a ``Partition``, as it was listed.

    Attributes:
        base_offset: of its first batch, which its file is named after.
        next_base_offset: base offset of the next segment, at which the snapshot of this one belongs.
        size_bytes: of the ``.log``.
        log_path: of the ``.log``.
        offset_index_path: of the ``.index``; None if there is none, as for the other indexes.
        time_index_path: of the ``.timeindex``.
        transaction_index_path: of the ``.txnindex``; most segments have none.
        has_snapshot: the directory has a file for the snapshot. Whether it is correct is unknown before ``snapshot`` is called.
    """

    base_offset: int
    next_base_offset: int
    size_bytes: int
    log_path: str
    offset_index_path: str | None
    time_index_path: str | None
    transaction_index_path: str | None
    has_snapshot: bool
    _partition: Partition = field(repr=False)

    def __repr__(self) -> str:
        return f"Segment({self.log_path!r}, offsets {self.base_offset} to {self.next_base_offset - 1})"

    @names_arguments
    def snapshot(self, *, max_bytes: int | None = None, timeout_s: float | None = None) -> EnsuredSnapshot:
        """Returns the producer snapshot of this segment, proven by the log, or refuses.

        It does not ask whether a broker would upload the segment: ``prepare_upload`` does.

        Args:
            max_bytes: as for ``ensure_snapshot``.
            timeout_s: as for ``ensure_snapshot``. What was read by then is not read again.

        Raises:
            SnapshotRefusedError, UsageError, ReadFailedError: as ``ensure_snapshot``.
        """
        deadline = _deadline(max_bytes, timeout_s)
        return self._partition._ensured(self._partition._source, self.next_base_offset, max_bytes, deadline)

    @names_arguments
    def prepare_upload(
        self,
        *,
        topic_id: str | None = None,
        high_watermark: int | None = None,
        max_bytes: int | None = None,
        timeout_s: float | None = None,
    ) -> PreparedUpload:
        """Returns everything that goes to remote storage with this segment, or refuses: see the function ``prepare_upload``.

        Args:
            topic_id: as for ``prepare_upload``.
            high_watermark: as for ``prepare_upload``.
            max_bytes: as for ``ensure_snapshot``.
            timeout_s: as for ``ensure_snapshot``.

        Raises:
            UploadRefusedError, SnapshotRefusedError, UsageError, ReadFailedError: as ``prepare_upload``.
        """
        partition = self._partition
        _check_upload_options(partition.options)
        deadline = _deadline(max_bytes, timeout_s)
        return prepare_segment(
            self.log_path,
            lambda source, offset: partition._ensured(source, offset, max_bytes, deadline),
            topic_id=_checked_topic_id(topic_id),
            high_watermark=_checked_high_watermark(high_watermark),
            run=structs.replace(partition._run, deadline=deadline),
            source=partition._source,
        )


@names_arguments
def ensure_snapshot(
    partition_dir: FilePath,
    next_base_offset: int,
    *,
    options: ReplayOptions = DEFAULT_OPTIONS,
    after: EnsuredSnapshot | None = None,
    max_bytes: int | None = None,
    timeout_s: float | None = None,
    out: FilePath | None = None,
) -> EnsuredSnapshot:
    """Returns the snapshot at the next base offset of a segment, or refuses.

    It is the file on disk, which Kafka would upload, unless something contradicts it. Else it is the result of a replay. The result has
    its class, and never fewer live producers than the file. For one segment after another use ``Partition``.

    Args:
        partition_dir: the partition's directory, ``<topic>-<partition>``, or ``s3://BUCKET/PREFIX`` as text. Nothing is written into it.
        next_base_offset: base offset of the segment after the one to upload, or the log end offset.
        options: how to replay, and what to accept.
        after: an earlier result for this partition. The replay resumes from it, with the same result as a whole replay. It is ignored if
            its offset is not below this one, or if the log is no longer the one that was replayed. The options of the earlier call count
            for what it read.
        max_bytes: refuse before more bytes of segments than this would be read; None for no limit. Small files are not counted.
        timeout_s: refuse after this many seconds, checked before each block of 8 MiB; None for no limit.
        out: a directory, or ``s3://BUCKET/PREFIX`` as text, that the file is also written to, whole or not at all. It must not be in a log
            directory. None writes nothing.

    Returns:
        The snapshot.

    Raises:
        SnapshotRefusedError: no snapshot may be relied on, a limit was reached, or ``out`` has another file under this name.
        UsageError: there is no such directory, it is not the directory of one partition, the offset is not a boundary of the log, or a
            limit is negative.
        ReadFailedError: a file cannot be read.
        WriteFailedError, OutcomeUnknownError: the file in ``out`` cannot be written.
    """
    request = BoundaryRequest(
        directory=absolute(check_path("partition_dir", partition_dir)),
        offset=check_offset("next_base_offset", next_base_offset),
        options=_checked_options(options),
        run=run_of(options, _deadline(max_bytes, timeout_s)),
        max_bytes=max_bytes,
        out=None if out is None else absolute(check_path("out", out)),
        after=_point(after, EnsuredSnapshot),
    )
    ensured = _ensured(request)
    return ensured if request.out is None else _written(ensured, path_of(request.out, options.s3))


@names_arguments
def prepare_upload(
    segment: FilePath,
    *,
    options: ReplayOptions = DEFAULT_OPTIONS,
    after: EnsuredSnapshot | None = None,
    topic_id: str | None = None,
    high_watermark: int | None = None,
    max_bytes: int | None = None,
    timeout_s: float | None = None,
    source: PartitionSource | None = None,
) -> PreparedUpload:
    """Returns everything that goes to remote storage with a rolled segment, all of one moment, or refuses.

    That is the segment, its indexes, the leader epochs, and the producer snapshot at its end, rebuilt if the one on disk is missing or
    wrong. ``UploadRefusedError.reason`` names why a broker would not upload the segment, or not yet, or which files contradict each other.
    Nothing is written. Call ``check_unchanged`` of the result again, just before the upload is declared complete.

    Args:
        segment: path of its ``.log``, or ``s3://BUCKET/KEY`` as text.
        options: how to replay. ``allow_unsound``, ``check_crc=False`` and another ``replay_from`` than ``auto`` are refused.
        after: the snapshot of an earlier result for this partition (``PreparedUpload.snapshot``), which the replay resumes from.
        topic_id: in Kafka's text form, needed if there is no ``partition.metadata``. If there is one, both must be the same.
        high_watermark: the log is replicated up to this offset; None for the ``replication-offset-checkpoint`` of the log directory.
        max_bytes: as for ``ensure_snapshot``.
        timeout_s: as for ``ensure_snapshot``.
        source: the partition, if it is listed already; None to list the directory.

    Returns:
        The bytes and the metadata of the upload.

    Raises:
        UploadRefusedError: the segment may not be uploaded, or not yet.
        SnapshotRefusedError: no snapshot may be relied on, or a limit was reached.
        UsageError: there is no such segment, or an argument makes no sense.
        ReadFailedError: a file cannot be read.
    """
    _check_upload_options(_checked_options(options))
    path = check_path("segment", segment)
    topic_id = _checked_topic_id(topic_id)
    high_watermark = _checked_high_watermark(high_watermark)
    source = optional(check_instance(PartitionSource))("source", source)
    run = run_of(options, _deadline(max_bytes, timeout_s))
    point = _point(after, EnsuredSnapshot)

    def ensure(partition: PartitionSource, offset: int) -> EnsuredSnapshot:
        directory = partition.directory.path
        request = BoundaryRequest(directory, offset, options, run, max_bytes, after=point, source=partition)
        return _ensured(request)

    return prepare_segment(
        path,
        ensure,
        topic_id=topic_id,
        high_watermark=high_watermark,
        run=run,
        source=source,
    )


@names_arguments
def validate_snapshot(
    partition: FilePath,
    snapshot: bytes | str | os.PathLike[str] | os.PathLike[bytes],
    next_base_offset: int | None = None,
    *,
    options: ReplayOptions = DEFAULT_OPTIONS,
    after: EnsuredSnapshot | ValidatedSnapshot | None = None,
    max_bytes: int | None = None,
    timeout_s: float | None = None,
) -> ValidatedSnapshot:
    """Compares a snapshot from anywhere with the log of a partition.

    A wrong one is reported and not repaired: ``ensure_snapshot`` returns the right one.

    Args:
        partition: the partition's directory, or the path of the segment's ``.log`` in it, or either as ``s3://BUCKET/...`` as text.
        snapshot: the whole file as bytes, or its path.
        next_base_offset: as for ``ensure_snapshot``. None only if ``partition`` is a segment: then the snapshot belongs to its end.
        options: how to replay; ``allow_unproven`` and ``allow_unsound`` have no effect.
        after: an earlier result for this partition, also one of ``ensure_snapshot``, which the replay resumes from.
        max_bytes: as for ``ensure_snapshot``.
        timeout_s: as for ``ensure_snapshot``.

    Returns:
        The verdict with its reasons. A snapshot that does not parse is judged without reading the log.

    Raises:
        SnapshotRefusedError: a limit was reached, or the directory may not be a source.
        UsageError: there is no such directory, it is not the directory of one partition, the offset is not a boundary of the log, or a
            limit is negative.
        ReadFailedError: a file cannot be read, or the snapshot does not exist.
    """
    run = run_of(_checked_options(options), _deadline(max_bytes, timeout_s))
    point = _point(after, EnsuredSnapshot, ValidatedSnapshot)
    if not isinstance(snapshot, bytes):
        snapshot = check_path("snapshot", snapshot)
    source, directory, offset = _boundary(absolute(check_path("partition", partition)), next_base_offset, run)
    try:
        entries = _entries_of(snapshot, options.s3)
    except FormatError as error:
        return ValidatedSnapshot(offset, Validity.CORRUPT, (str(error),))
    request = BoundaryRequest(directory, offset, options, run, max_bytes, after=point, source=source)
    validated = replay_to_boundary(request, lambda task: task.validated(entries))
    return replace(validated, reasons=tuple(map(with_arguments, validated.reasons)))


def _ensured(request: BoundaryRequest) -> EnsuredSnapshot:
    """The snapshot at a boundary, whose reasons name arguments."""
    ensured = replay_to_boundary(request, OneBoundaryTask.ensured)
    return replace(ensured, reasons=tuple(map(with_arguments, ensured.reasons)))


def _reported(finding: Finding) -> ReportedFinding:
    """The finding as in documents; its message names arguments."""
    return structs.replace(reported(finding), message=with_arguments(finding.message))


def _deadline(max_bytes: int | None, timeout_s: float | None) -> float | None:
    """The ``time.monotonic()`` at which the time of a call ends; None without an end."""
    if max_bytes is not None:
        check_number("max_bytes", max_bytes, 0, INT64_MAX)
    if timeout_s is None:
        return None
    seconds = check_seconds("timeout_s", timeout_s)
    return None if seconds == math.inf else time.monotonic() + seconds


def _checked_options(options: ReplayOptions) -> ReplayOptions:
    return check_instance(ReplayOptions)("options", options)


def _checked_topic_id(topic_id: str | None) -> str | None:
    """The text of an id; None for that of ``partition.metadata``."""
    if topic_id is None:
        return None
    try:
        uuid_from_text(check_text("topic_id", topic_id))
    except FormatError as error:
        raise UsageError(f"topic_id: {error.message}") from error
    return topic_id


def _checked_high_watermark(high_watermark: int | None) -> int | None:
    return optional(check_offset)("high_watermark", high_watermark)


def _point(
    after: EnsuredSnapshot | ValidatedSnapshot | None, *kinds: type[EnsuredSnapshot | ValidatedSnapshot]
) -> ReplayCheckpoint | None:
    """Where the replay of an earlier result ended; None without one."""
    return None if after is None else check_instance(*kinds)("after", after).point


def _check_upload_options(options: ReplayOptions) -> None:
    """Brokers read from remote storage what is uploaded: nothing weaker than a broker would upload goes there."""
    if options.allow_unsound or not options.check_crc or options.replay_from != DEFAULT_OPTIONS.replay_from:
        raise UsageError("prepare_upload takes neither allow_unsound, nor check_crc=False, nor another replay_from than auto")


def _written(ensured: EnsuredSnapshot, out: StorePath) -> EnsuredSnapshot:
    """Writes the file to another directory; one with the same bytes may be there."""
    file = out.below(snapshot_file_name(ensured.offset))
    temporary = snapshot_temporary_file_name(ensured.offset)
    try:
        out.prepare_writes()
    except RefusedError as error:
        raise SnapshotRefusedError(
            error.message, path=error.path, reason=RefusalReason.OUTPUT, read_bytes=ensured.read_bytes
        ) from error
    if not create_or_wait(lambda: file.create(ensured.data, owner=None, temporary_name=temporary)):
        try:
            with file.open(may_grow=True) as existing:
                is_same = existing.size_bytes == len(ensured.data) and file.read_small(len(ensured.data)) == ensured.data
        except ReadFailedError as error:
            if error.errno is not None or not out.is_local:
                raise
            is_same = False
        if not is_same:
            raise SnapshotRefusedError(
                "another file of this name is there",
                path=file.path,
                reason=RefusalReason.OUTPUT,
                read_bytes=ensured.read_bytes,
                snapshot_class=ensured.snapshot_class.value,
                reasons=ensured.reasons,
            )
    return replace(ensured, path=file.path)


def _boundary(path: str, next_base_offset: int | None, run: Run) -> tuple[PartitionSource | None, str, int]:
    """The partition if it had to be listed, its directory, and the boundary."""
    file_name = parse_file_name(os.path.basename(path))
    base_offset = file_name.offset if file_name is not None and file_name.kind is FileKind.LOG else None
    directory = path if base_offset is None else os.path.dirname(path)
    if next_base_offset is not None:
        return None, directory, check_offset("next_base_offset", next_base_offset)
    if base_offset is None:
        raise UsageError("next_base_offset is needed, because this is not the path of a segment", path=path)
    source = opened_or_refused(directory, run)
    bases = source.directory.base_offsets
    if bases and base_offset < bases[0]:
        message = f"is deleted: the log start offset is {source.log_start_offset}"
        raise SnapshotRefusedError(message, path=path, reason=RefusalReason.BELOW_LOG_START)
    if base_offset not in bases:
        raise UsageError("is no segment of a partition directory", path=path)
    following = bases.index(base_offset) + 1
    try:
        end = bases[following] if following < len(bases) else log_end_offset(source.directory, run.deadline)
    except (RefusedError, FormatError) as error:
        raise SnapshotRefusedError(str(error), path=path, reason=refusal_reason(error)) from error
    return source, directory, end


def _entries_of(snapshot: bytes | str, stores: S3Settings) -> np.ndarray:
    """Raises FormatError if it does not parse, ReadFailedError if it cannot be read."""
    if isinstance(snapshot, bytes):
        return read_entries(snapshot, file="the snapshot")
    path = absolute(snapshot)
    data = store_of(path, stores).read_small(path, SNAPSHOT_BYTES_MAX)
    if data is None:
        raise ReadFailedError("does not exist", path=path)
    return read_entries(data, file=path)
