"""Free cross-checks while a partition is replayed: it is compared with surviving snapshots and ``.txnindex`` files.

What a segment itself shows is taken here, too: bad checksums, offsets out of order, and the producers above the newest snapshot.
"""

from __future__ import annotations

import bisect

import msgspec
import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.limits import INDEX_BYTES_MAX
from formats.partition.producer_snapshot import ENTRY_DTYPE
from formats.partition.transaction_index import AbortedTransaction, read_transaction_index
from snaprebuild.errors import ChangedFileError, ReadFailedError, RefusedError
from snaprebuild.findings import Finding, FindingCause, Severity, pluralize
from snaprebuild.replay.difference import Comparison, ComparisonStatus, Knowledge, compare, contradicted_producers
from snaprebuild.replay.segment_effect import aborted_in, entries_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock, same_when_loaded
from snaprebuild.snapshots.engine.partition_replay import BoundaryState
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.log_dir import ClusterKind, kind_of
from snaprebuild.storage.partition_dir import ListedFile

__all__ = [
    "CrossCheck",
    "LaterProducers",
    "ListedDifferences",
    "last_entries",
    "segment_findings",
]

DIFFERENCES_OF_A_RUN_MAX = 10_000
"""Differing entries that the result of a run lists, of all snapshots together; all are counted. About 4 MB of JSON."""


def segment_findings(source: PartitionSource, index: int, summary: SegmentSummary) -> list[Finding]:
    """Findings of damage, from the summary of a segment or of a part of it."""
    findings = [_bad_checksum(source, index, summary)] if summary.facts.bad_crc_count else []
    if summary.facts.disorder_offset is not None:
        findings.append(_disorder(source, index, summary.facts.disorder_offset))
    return findings


def _bad_checksum(source: PartitionSource, index: int, summary: SegmentSummary) -> Finding:
    """Batches of a segment whose checksum differs."""
    position, offset = summary.facts.bad_crc[0]
    path = source.directory.file_path(source.directory.segments[index].log.name)
    count = pluralize(summary.facts.bad_crc_count, "such batch", "such batches")
    message = f"the checksum of the batch at byte {position} differs ({count} in this segment)"
    return Finding("bad-checksum", Severity.DAMAGED, path, message, offset, cause=FindingCause.BROKEN_BATCHES)


def _disorder(source: PartitionSource, index: int, offset: int) -> Finding:
    """Offsets of a segment that do not ascend; the checksum of a batch does not cover its base offset."""
    path = source.directory.file_path(source.directory.segments[index].log.name)
    return Finding(
        "disordered-offsets",
        Severity.DAMAGED,
        path,
        f"the batch at offset {offset} does not follow the one before it",
        offset,
        cause=FindingCause.BROKEN_BATCHES,
    )


class CrossCheck(msgspec.Struct):
    """Compares what is on disk with each boundary that the replay hands out."""

    source: PartitionSource
    clock: Clock
    _index_is_unusable: bool = False

    def snapshot(self, state: BoundaryState, listed: ListedFile | None = None) -> Comparison | None:
        """Compares the snapshot at this boundary or cut with the replay; None without one.

        Args:
            state: the boundary or cut.
            listed: which one, if several have its offset; None for the first.

        Raises:
            ReadFailedError: it cannot be read.
            ChangedFileError: its broker is writing it.
        """
        is_running = self.source.is_broker_running
        try:
            entries = read_snapshot_file(self.source.directory, state.offset, listed, is_broker_running=is_running)
        except FormatError as error:
            return Comparison.corrupt(str(error), expected_entries=len(state.entries))
        return None if entries is None else self.judge(state, entries)

    def contradicted_producers(self, state: BoundaryState, entries: np.ndarray) -> np.ndarray:
        """The ids of all producers of a snapshot whose entries the log contradicts: int64, ascending."""
        return contradicted_producers(state.effect, entries, self._knowledge(state))

    def judge(self, state: BoundaryState, entries: np.ndarray) -> Comparison:
        """Compares the entries of a snapshot at this boundary or cut with the replay."""
        knowledge = self._knowledge(state)
        batch_offset = state.segment.cut_batch_offset
        if batch_offset is not None and knowledge.unproven_reason is None:
            reason = f"no broker writes a snapshot here: {state.offset} is inside the batch that begins at {batch_offset}"
            return Comparison.corrupt(reason, expected_entries=len(state.entries), found_entries=len(entries))
        comparison = compare(state.effect, entries, state.offset, knowledge)
        if comparison.status is ComparisonStatus.UNVERIFIABLE and state.judgement.snapshot_class.holds_for_an_expiration:
            return self._as_settled(state, entries, comparison)
        return comparison

    def _as_settled(self, state: BoundaryState, entries: np.ndarray, comparison: Comparison) -> Comparison:
        """The window alone does not have what the snapshot after it settled."""
        if not same_when_loaded(state.entries, entries, self.clock.as_of_ms, self.clock.expiration_ms):
            return comparison
        status = ComparisonStatus.EQUAL_AFTER_EXPIRY
        reason = "the only differences are entries that may have expired"
        return Comparison(
            status=status,
            proven_wrong=False,
            expected_entries=len(state.entries),
            found_entries=len(entries),
            difference_count=0,
            differences=(),
            reason=reason,
            excused_count=comparison.excused_count + comparison.difference_count,
        )

    def _knowledge(self, state: BoundaryState) -> Knowledge:
        unproven_reason = None
        if self.source.is_compacted:
            unproven_reason = "the topic is compacted: the batches that would show it may be gone"
        elif not state.log_judgement.snapshot_class.is_allowed_in_place:
            # The log on disk contradicts a snapshot, whatever is unknown below its first segment.
            unproven_reason = f"the replay itself is {state.log_judgement.snapshot_class.value}: {state.log_judgement.reasons[0]}"
        return Knowledge(
            is_complete=state.is_complete,
            unproven_reason=unproven_reason,
            first_offset=state.replayed_from_offset,
            log_start_offset=self.source.log_start_offset,
            as_of_ms=self.clock.as_of_ms,
            expiration_ms=self.clock.expiration_ms,
        )

    def transaction_index(self, state: BoundaryState) -> Finding | None:
        """Compares the ``.txnindex`` of the segment that ends here with the aborted transactions of the replay; a finding if not equal."""
        if state.closes is None or self._index_is_unusable or self.source.is_compacted:
            return None
        if state.is_unsound:
            self._index_is_unusable = True
            return None
        directory = self.source.directory
        segment = directory.segment_at(state.segment.base_offset)
        if segment is not None and segment.until_offset is not None:
            return None  # it also lists what does not count
        has_index = segment is not None and segment.transaction_index is not None
        if (not len(state.closes) and not has_index) or not state.is_complete:
            return None
        expected = aborted_in(state.closes.without_orphans(), state.prefix.open_first_offset)
        if not expected and not has_index:
            return None  # as it was listed; that spares a call, or a request, for each segment
        path = directory.transaction_index_path(state.segment.base_offset)
        try:
            data = directory.store.read_small(path, INDEX_BYTES_MAX)
            present = [] if data is None else list(read_transaction_index(data, file=path))
        except ChangedFileError:
            return None  # the broker appends to it: a later run compares it
        except (FormatError, ReadFailedError) as error:
            return Finding(
                "unreadable-transaction-index",
                Severity.FINDING,
                path,
                error.message,
                state.offset,
                is_unread=True,
                cause=FindingCause.TRANSACTION_INDEX,
            )
        at = _first_difference(present, expected)
        if at is None or self._is_of_another_moment(state, is_prefix=at == min(len(present), len(expected))):
            return None
        counts = f"{len(present)} instead of {len(expected)}, first difference at {at}"
        message = f"does not list the aborted transactions of its segment: {counts}"
        return Finding(
            "transaction-index-differs", Severity.FINDING, path, message, state.offset, cause=FindingCause.TRANSACTION_INDEX
        )

    def _is_of_another_moment(self, state: BoundaryState, *, is_prefix: bool) -> bool:
        """Whether a broker at work explains the difference.

        It appends a marker to the active segment first, and updates the index then (``UnifiedLog.append``); after a crash it makes that
        index anew. When it deletes a segment, the log goes before its indexes (``LogSegment.changeFileSuffixes``).
        """
        log_dir = self.source.log_dir
        if log_dir.was_shut_down_cleanly or not log_dir.is_broker_directory or not log_dir.store.is_local:
            return False
        if state.is_log_end and is_prefix:
            return True
        segment = self.source.directory.segment_at(state.segment.base_offset)
        try:
            if segment is not None:
                self.source.directory.open_segment(segment).close()
        except (ReadFailedError, RefusedError):
            return True  # gone since it was read, or another one
        return False


class ListedDifferences:
    """Keeps what the comparisons of a run list together within ``DIFFERENCES_OF_A_RUN_MAX``.

    The first snapshots in the order of the result keep their lists: which partition is done first is chance, what is listed must not be.
    """

    def __init__(self) -> None:
        self._listing: list[tuple[int, int, Comparison]] = []
        self._count = 0

    def add(self, place: int, offset: int, comparison: Comparison) -> None:
        """Adds a comparison that will be kept, and cuts lists short, from the last one back, if there is no room.

        Args:
            place: of its partition in the result.
            offset: of the snapshot.
            comparison: which may lose differences from its list, now or later.
        """
        if not comparison.differences:
            return
        bisect.insort(self._listing, (place, offset, comparison), key=lambda each: each[:2])
        self._count += len(comparison.differences)
        while self._count > DIFFERENCES_OF_A_RUN_MAX:
            last = self._listing[-1][2]
            listed = last.differences[: max(len(last.differences) - (self._count - DIFFERENCES_OF_A_RUN_MAX), 0)]
            self._count -= len(last.differences) - len(listed)
            last.differences = listed
            if not listed:
                self._listing.pop()


def _first_difference(present: list[AbortedTransaction], expected: list[AbortedTransaction]) -> int | None:
    """Index in the file of the first entry that no broker can have written here, or None.

    Brokers up to 2.7 also list an abort marker that closed nothing, as a transaction that begins at its marker (KAFKA-10702). A broker
    that appends several batches at once, as a follower does, takes the last stable offset after the last of them. If nothing was open, it
    then names the first transaction that began after the marker, instead of the offset after the marker (``UnifiedLog.append``).
    """
    waiting = iter(expected)
    for at, entry in enumerate(present):
        if entry.first_offset == entry.last_offset:
            continue
        due = next(waiting, None)
        if due is None or replace(entry, last_stable_offset=due.last_stable_offset) != due:
            return at
        if entry.last_stable_offset != due.last_stable_offset and not (
            due.last_stable_offset == due.last_offset + 1 < entry.last_stable_offset
        ):
            return at
    return None if next(waiting, None) is None else len(present)


# ---------------------------------------------------------------------------------------------------- producers above the newest snapshot

ROWS_MAX = 1 << 16
"""Entries of several segments that are kept before those of equal producers are joined."""


class LaterProducers:
    """Takes the segments of a replay, or their pieces, in order.

    They are the producers of the batches above the newest snapshot, which no file on disk names. Their ids are compared with the next one
    of the cluster (``cluster.scan_producer_ids``); with ZooKeeper no metadata log has that. The entries are no state: they have the ids,
    the time of the last batch, and whether a transaction is open.
    """

    def __init__(self, source: PartitionSource) -> None:
        """Begins with none."""
        self._newest = max(source.directory.snapshot_offsets, default=-1)
        self._is_wanted = kind_of(source.log_dir.meta) is ClusterKind.KRAFT
        self._parts: list[np.ndarray] = []
        self._rows = 0
        self._rows_max = ROWS_MAX

    def take(self, summary: SegmentSummary) -> None:
        """Keeps the producers of a segment, or of a piece, that ends above the newest snapshot."""
        if not self._is_wanted or summary.facts.next_offset <= self._newest or not len(summary.effect):
            return
        effect = summary.effect
        self._parts.append(entries_of(effect)[effect.assigned])
        self._rows += len(self._parts[-1])
        if self._rows > self._rows_max:
            self._parts = [last_entries(*self._parts)]
            self._rows = len(self._parts[0])
            self._rows_max = max(ROWS_MAX, 2 * self._rows)

    def taken(self) -> bytes:
        """Entries of ``ENTRY_DTYPE``, one for each producer, as bytes. The value is empty afterwards."""
        data = last_entries(*self._parts).tobytes() if self._parts else b""
        self._parts = []
        return data


def last_entries(*parts: np.ndarray) -> np.ndarray:
    """The last entry of each producer, by id; entries of ``ENTRY_DTYPE`` in the order of the log."""
    entries = np.concatenate(parts, dtype=ENTRY_DTYPE)  # which would change the order of their bytes
    _, last = np.unique(entries["producer_id"][::-1], return_index=True)
    latest: np.ndarray = entries[::-1][last]
    return latest
