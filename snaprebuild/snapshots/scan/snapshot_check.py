"""Reads the snapshot files of one partition and compares them: some do not parse, some cannot be correct.

No segment is read, so this proves little. An entry above the file's own name is certainly wrong. An empty file is almost certainly wrong
if a lower snapshot has an entry that had not expired. ``verify`` proves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, StrEnum
from functools import cache, partial
from typing import NamedTuple

import msgspec
import numpy as np

from formats import limits
from formats.errors import FormatError
from formats.partition.producer_snapshot import ENTRY_BYTES, ENTRY_DTYPE, HEADER_BYTES, check_snapshot
from formats.partition.time_index import TIME_INDEX_ENTRY, last_timestamp_hint
from snaprebuild.errors import ChangedFileError, GoneFileError, ReadFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, pluralize
from snaprebuild.published import Int64, Natural, Part
from snaprebuild.snapshots.engine.log_facts import check_deadline
from snaprebuild.snapshots.engine.snapshot_file import read_in_flux
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, SegmentFiles
from snaprebuild.storage.thread_pool import map_in_threads

__all__ = ["NewestSnapshot", "ReadOutcome", "SnapshotFile", "check_snapshots", "suspect_finding"]

NOTHING = 2**63 - 1
"""Above every offset: a snapshot without entries names none."""

BATCH_BYTES = 16 << 20
"""Bytes of files whose entries are compared together: enough to make numpy's cost per call small, however many files there are."""

TIME_ENTRY_BYTES: int = TIME_INDEX_ENTRY.sizeof()

NO_BODY = memoryview(b"")

EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")
"""The bytes that every broker writes if there are no entries."""


class ReadOutcome(Enum):
    """The outcome of reading a snapshot file."""

    PARSED = "parsed"
    CORRUPT = "corrupt"
    """A broker would delete it when it loads it."""
    UNREADABLE = "unreadable"
    """The file could not be read by this program."""
    IN_FLUX = "in flux"
    """A broker is writing the file."""


class SuspectReason(StrEnum):
    """Why a snapshot is not taken as it is; except of a corrupt one, the reason of a finding ``suspect-snapshot``."""

    CORRUPT = "corrupt"
    OTHER_OFFSET = "other-offset"
    PRODUCER_TWICE = "producer-twice"
    TRANSACTION_TWICE = "transaction-twice"
    EMPTY = "false-empty"


class Suspicion(NamedTuple):
    """The fault or suspicion of a snapshot.

    Attributes:
        reason: as a word.
        text: as a sentence.
        expired_from_ms: the moment, ms since 1970, from which a broker drops each producer that raises the suspicion; None for never.
    """

    reason: SuspectReason
    text: str
    expired_from_ms: int | None = None


class NewestSnapshot(Part, frozen=True):
    """The producers of the newest snapshot of a partition: a broker that stopped cleanly loads it."""

    offset: Natural
    entries: Natural
    least_offset: Natural | None
    """The least offset that an entry names; null if none does."""
    newest_timestamp_ms: Int64 | None
    """Newest timestamp of all entries; null without any."""
    first_open_offset: Natural | None
    """First offset of the oldest open transaction; null without one."""


class SnapshotFile(msgspec.Struct):
    """One snapshot file.

    Attributes:
        offset: from its name.
        file: name, size, owner.
        outcome: of reading it.
        entries: count of producers; 0 where it was not parsed.
        suspicions: its faults, and what contradicts it.
        error: the fault of reading or parsing.
        least_offset: the least offset that an entry names (last batch or open transaction), ``NOTHING`` without any.
        newest_timestamp_ms: of all entries; -1 without any.
        greatest_producer_id: of all entries; -1 without any.
        first_open_offset: where the oldest open transaction begins; None when none is open.
    """

    offset: int
    file: ListedFile
    outcome: ReadOutcome = ReadOutcome.PARSED
    entries: int = 0
    suspicions: list[Suspicion] = msgspec.field(default_factory=list)
    error: FormatError | ReadFailedError | ChangedFileError | None = None
    least_offset: int = NOTHING
    newest_timestamp_ms: int = -1
    greatest_producer_id: int = -1
    first_open_offset: int | None = None

    @property
    def parses(self) -> bool:
        """Whether a broker could load it."""
        return self.outcome is ReadOutcome.PARSED

    @property
    def is_empty(self) -> bool:
        """Parses and has no entry."""
        return self.parses and not self.entries

    @property
    def is_suspect(self) -> bool:
        """Parses, and something contradicts it."""
        return self.parses and bool(self.suspicions)

    @property
    def expired_from_ms(self) -> int | None:
        """The moment, ms since 1970, from which a suspect snapshot is harmless if it lacks no other producers; None for never."""
        moments = [each.expired_from_ms for each in self.suspicions]
        known = [moment for moment in moments if moment is not None]
        if known and len(known) == len(moments):
            return max(known)
        return None

    def newest(self) -> NewestSnapshot:
        """The facts of the newest snapshot of a partition."""
        return NewestSnapshot(
            offset=self.offset,
            entries=self.entries,
            least_offset=self.least_offset if 0 <= self.least_offset < NOTHING else None,
            newest_timestamp_ms=self.newest_timestamp_ms if self.entries else None,
            first_open_offset=self.first_open_offset,
        )


def check_snapshots(
    directory: PartitionDir,
    boundaries: Sequence[int],
    expiration_ms: int,
    *,
    may_lack_data: bool,
    is_bootstrapped: bool,
    is_broker_running: bool = False,
    deadline: float | None = None,
) -> list[SnapshotFile]:
    """Reads every snapshot of a partition.

    Args:
        directory: the listing.
        boundaries: offsets at which an empty snapshot would mislead: the segment boundaries and the log end.
        expiration_ms: how old a producer may be before its absence is normal.
        may_lack_data: the topic is compacted or internal: nothing on disk need explain a snapshot, so empty ones are never suspected.
        is_bootstrapped: the log start is below the first segment: the data before it is in the tier.
        is_broker_running: a broker holds the log directory, and may be writing a snapshot.
        deadline: a ``time.monotonic()`` after which no further file is read; None for none.

    Returns:
        One value for each file, by offset. A file that cannot be read or parsed has an ``outcome``.

    Raises:
        GoneFileError: one is gone, so the listing is old.
        DeadlinePassedError: the deadline has passed.
    """
    checked = [SnapshotFile(offset, file) for offset, file in directory.snapshots]
    read = partial(_body, directory, is_broker_running=is_broker_running, deadline=deadline)
    batch: list[tuple[SnapshotFile, memoryview]] = []
    batch_bytes = 0
    for snapshot, body in zip(checked, _bodies(directory, read, checked), strict=True):
        if body:
            batch.append((snapshot, body))
            batch_bytes += len(body)
        if batch_bytes >= BATCH_BYTES:
            _check_entries(batch)
            batch = []
            batch_bytes = 0
    if batch:
        _check_entries(batch)
    if not may_lack_data and any(snapshot.is_empty for snapshot in checked):
        _suspect_empty_ones(directory, checked, frozenset(boundaries), expiration_ms, is_bootstrapped)
    return checked


def suspect_finding(path: str, offset: int, suspicion: Suspicion, severity: Severity = Severity.FINDING) -> Finding:
    """The finding about a snapshot that parses and cannot be correct.

    Args:
        path: of the file.
        offset: from its name.
        suspicion: what contradicts it.
        severity: of the finding.
    """
    reason = suspicion.reason.value
    return Finding("suspect-snapshot", severity, path, suspicion.text, offset, reason, cause=FindingCause.SUSPECT_SNAPSHOT)


def _bodies(
    directory: PartitionDir, read: Callable[[SnapshotFile], memoryview], checked: Sequence[SnapshotFile]
) -> Iterable[memoryview]:
    if directory.store.is_local:
        return map(read, checked)
    # Each of an object is a request, which mostly waits.
    return map_in_threads(read, checked, lambda each: each.file.identity.size_bytes)


def _body(directory: PartitionDir, snapshot: SnapshotFile, *, is_broker_running: bool, deadline: float | None) -> memoryview:
    """The bytes of the entries; empty without any, and where reading failed."""
    check_deadline(deadline, directory.path)
    path = directory.file_path(snapshot.file.name)

    def read() -> tuple[bytes, int]:
        data = directory.file(snapshot.file.name).read_small(limits.SNAPSHOT_BYTES_MAX)
        if data is None:
            raise GoneFileError("is gone since it was listed", path=path)
        return data, 0 if data == EMPTY_SNAPSHOT else check_snapshot(data, file=path)

    try:
        data, snapshot.entries = read_in_flux(read, directory, snapshot.file, is_broker_running=is_broker_running)
    except GoneFileError:
        raise
    except ChangedFileError as error:
        snapshot.outcome = ReadOutcome.IN_FLUX
        snapshot.error = error
        return NO_BODY
    except ReadFailedError as error:
        snapshot.outcome = ReadOutcome.UNREADABLE
        snapshot.error = error
        return NO_BODY
    except FormatError as error:
        snapshot.outcome = ReadOutcome.CORRUPT
        snapshot.error = error
        why = f"a broker cannot load it: {error.what}: expected {error.expected}, found {error.found}"
        snapshot.suspicions.append(Suspicion(SuspectReason.CORRUPT, why))
        return NO_BODY
    return memoryview(data)[HEADER_BYTES : HEADER_BYTES + snapshot.entries * ENTRY_BYTES]


def _check_entries(batch: list[tuple[SnapshotFile, memoryview]]) -> None:
    """All entries of a batch of files at once: a file has few, and numpy asks its price per call."""
    entries = np.frombuffer(b"".join(body for _, body in batch), ENTRY_DTYPE)
    counts = np.array([snapshot.entries for snapshot, _ in batch])
    starts = np.cumsum(counts) - counts
    names = np.repeat(np.array([snapshot.offset for snapshot, _ in batch], np.int64), counts)
    last = entries["last_offset"].astype(np.int64)
    first_open = entries["current_txn_first_offset"].astype(np.int64)
    opened = np.where(first_open >= 0, first_open, NOTHING)
    least = np.minimum.reduceat(np.minimum(np.where(last >= 0, last, NOTHING), opened), starts)
    least_open = np.minimum.reduceat(opened, starts)
    newest = np.maximum.reduceat(entries["timestamp"].astype(np.int64), starts)
    greatest_id = np.maximum.reduceat(entries["producer_id"].astype(np.int64), starts)
    above = np.logical_or.reduceat((last >= names) | (first_open >= names), starts)
    twice = _have_twins(entries["producer_id"].astype(np.int64), starts, counts)
    opened_twice = _have_twins(first_open, starts, counts, least=0)
    for index, (snapshot, _) in enumerate(batch):
        snapshot.least_offset = int(least[index])
        snapshot.newest_timestamp_ms = int(newest[index])
        snapshot.greatest_producer_id = int(greatest_id[index])
        snapshot.first_open_offset = None if least_open[index] == NOTHING else int(least_open[index])
        shown = zip(_WRONG_ENTRIES, (above[index], twice[index], opened_twice[index]), strict=True)
        snapshot.suspicions += [suspicion for suspicion, is_so in shown if is_so]


_WRONG_ENTRIES = (
    Suspicion(SuspectReason.OTHER_OFFSET, "an entry names an offset at or above the file's own: it belongs to another offset"),
    Suspicion(
        SuspectReason.PRODUCER_TWICE,
        "a producer id is there twice: the broker keeps the last entry, and each open transaction for good",
    ),
    Suspicion(
        SuspectReason.TRANSACTION_TWICE,
        "two open transactions begin at the same offset: the second marker keeps the broker from loading the log",
    ),
)


def _have_twins(values: np.ndarray, starts: np.ndarray, counts: np.ndarray, least: int = -(2**63)) -> np.ndarray:
    """For each file whether it has one of its values twice; values below ``least`` do not count. Sorts ``values`` file by file."""
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        values[start : start + count].sort()
    twins = np.zeros(len(values), dtype=bool)
    np.equal(values[1:], values[:-1], out=twins[1:])
    twins[starts] = False  # the value before belongs to another file
    twins &= values >= least
    found: np.ndarray = np.logical_or.reduceat(twins, starts)
    return found


def _suspect_empty_ones(
    directory: PartitionDir,
    checked: list[SnapshotFile],
    boundaries: frozenset[int],
    expiration_ms: int,
    is_bootstrapped: bool,
) -> None:
    times = _WritingTimes(directory)
    _look_above(checked, boundaries, expiration_ms, times)
    _look_below(directory, checked, boundaries, expiration_ms, times)
    if is_bootstrapped and directory.segments and any(snapshot.entries for snapshot in checked):
        first_base = directory.segments[0].base_offset
        for snapshot in checked:
            if snapshot.is_empty and snapshot.offset == first_base:
                # `TierStateMachine.buildRemoteLogAuxState` throws the restored snapshot away and leaves an empty one.
                why = "is empty where the log was taken over from remote storage: the producers of the data before it are lost"
                snapshot.suspicions.append(Suspicion(SuspectReason.EMPTY, why))


class _WritingTimes:
    """Bounds of the time at which snapshots were written, which no snapshot has."""

    def __init__(self, directory: PartitionDir) -> None:
        self._segments = {segment.base_offset: segment for segment in directory.segments}
        self.first_time = cache(partial(_first_time, directory))

    def latest(self, snapshot: SnapshotFile) -> int:
        """A moment before which a snapshot was written, ms since 1970, and so were all batches below it.

        That is not later than its modification time (a copy only makes that later), and not later than the first timestamp of the
        segment at its offset.
        """
        modified = snapshot.file.identity.modified_ns // 1_000_000
        following = self._segments.get(snapshot.offset)
        first = None if following is None else self.first_time(following)
        return modified if first is None else min(modified, first)


def _look_above(checked: list[SnapshotFile], boundaries: frozenset[int], expiration_ms: int, times: _WritingTimes) -> None:
    """Later snapshots that know of something below an empty one."""
    least = NOTHING
    least_open = NOTHING
    for snapshot in reversed(checked):
        if snapshot.is_empty and snapshot.offset in boundaries and least < snapshot.offset:
            why = f"is empty, but a later snapshot knows of offset {least}, which is below it"
            expired_from_ms = times.latest(snapshot) + expiration_ms if least_open >= snapshot.offset else None
            snapshot.suspicions.append(Suspicion(SuspectReason.EMPTY, why, expired_from_ms))
        least = min(least, snapshot.least_offset)
        if snapshot.first_open_offset is not None:
            least_open = min(least_open, snapshot.first_open_offset)


def _look_below(
    directory: PartitionDir,
    checked: list[SnapshotFile],
    boundaries: frozenset[int],
    expiration_ms: int,
    times: _WritingTimes,
) -> None:
    """Marks empty snapshots above producers that were too young to have expired when the empty one was written.

    A log that was idle for days, whose producers expired, raises no suspicion.
    """
    segments = directory.segments
    older: SnapshotFile | None = None
    with_aborted: SegmentFiles | None = None
    index = 0
    for snapshot in checked:
        while index < len(segments) and segments[index].base_offset < snapshot.offset:
            if segments[index].transaction_index:
                with_aborted = segments[index]
            index += 1
        if snapshot.entries:
            older = snapshot
        elif snapshot.is_empty and snapshot.offset in boundaries and (older or with_aborted):
            now = times.latest(snapshot)
            if older is not None and _is_young(older.newest_timestamp_ms, now, expiration_ms):
                why = f"is empty, but the one at {older.offset} has {pluralize(older.entries, 'entry', 'entries')} that had not expired"
                if older.first_open_offset is None:
                    expired_from_ms = older.newest_timestamp_ms + expiration_ms
                else:
                    expired_from_ms = None
                snapshot.suspicions.append(Suspicion(SuspectReason.EMPTY, why, expired_from_ms))
            elif with_aborted is not None and _is_young(times.first_time(with_aborted), now, expiration_ms):
                place = f"the segment at {with_aborted.base_offset}"
                why = f"is empty, but {place} lists aborted transactions whose producers had not expired"
                snapshot.suspicions.append(Suspicion(SuspectReason.EMPTY, why, now + expiration_ms))


def _is_young(timestamp: int | None, now: int, expiration_ms: int) -> bool:
    return timestamp is None or now - timestamp < expiration_ms


def _first_time(directory: PartitionDir, segment: SegmentFiles) -> int | None:
    """A time early in a segment, ms; None where its time index does not have it."""
    if segment.time_index is None:
        return None
    try:
        data = directory.file(segment.time_index).read_small(limits.INDEX_BYTES_MAX)
    except (ReadFailedError, ChangedFileError):
        return None
    return None if data is None else last_timestamp_hint(data[:TIME_ENTRY_BYTES])
