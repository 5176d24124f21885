"""The fold: what each batch does to the producer state of a partition, batch by batch.

This is the specification, written like Kafka's classes and checked against their answers. ``segment_effect`` is the same as an
associative value, which production uses. The origin is always REPLICATION: a log that is recovered is not validated.

Source: ``ProducerAppendInfo``, ``ProducerStateEntry``, ``ProducerStateManager``, ``LogSegment.recover``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from formats.log.batch_headers import HeaderBlock
from formats.log.control_record import ControlRecordType
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.window import is_expired

__all__ = [
    "CompletedTransaction",
    "DataBatch",
    "EmptyControlBatch",
    "InvalidTransactionStateError",
    "Marker",
    "ProducerState",
    "producer_batches",
]


@dataclass(frozen=True, slots=True)
class DataBatch:
    """A batch of data records with a producer id >= 0."""

    producer_id: int
    epoch: int
    base_sequence: int
    base_offset: int
    last_offset_delta: int
    max_timestamp: int
    is_transactional: bool


@dataclass(frozen=True, slots=True)
class Marker:
    """A control batch that ends a transaction. ``timestamp`` is the record's."""

    producer_id: int
    epoch: int
    offset: int
    timestamp: int
    coordinator_epoch: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class EmptyControlBatch:
    """A control batch whose records were compacted away."""

    producer_id: int


ProducerBatch = DataBatch | Marker | EmptyControlBatch


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that a marker closed: offsets of its first data record and of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class InvalidTransactionStateError(Exception):
    """A batch on which Kafka throws in every origin, so that no broker can load this log.

    Attributes:
        offset: base offset of the batch.
        reason: the exception of Kafka and what caused it.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"offset {self.offset}: {self.reason}"


def _last_sequence_of(base_sequence: int, last_offset_delta: int) -> int:
    """``DefaultRecordBatch.incrementSequence``. The reference shares no arithmetic with the code that is compared with it."""
    if base_sequence == -1:
        return -1
    last = base_sequence + last_offset_delta
    return last - 2**31 if last > 2**31 - 1 else last


@dataclass(slots=True)
class ProducerState:
    """The producer state of one partition.

    Attributes:
        entries: by producer id.
        ongoing: first offset -> producer id of every open transaction (``ongoingTxns``).
        unreplicated: first offset -> marker offset of completed transactions above the high watermark (``unreplicatedTxns``).
    """

    entries: dict[int, ProducerEntry] = field(default_factory=dict)
    ongoing: dict[int, int] = field(default_factory=dict)
    unreplicated: dict[int, int] = field(default_factory=dict)

    def load(self, entries: Iterable[ProducerEntry], now_ms: int, expiration_ms: int) -> None:
        """Takes the entries of a snapshot file in its order (``loadFromSnapshot``, ``loadProducerEntry``)."""
        for loaded in entries:
            if is_expired(loaded, now_ms, expiration_ms):
                continue
            entry = loaded
            if entry.last_offset < 0:
                entry = replace(entry, last_sequence=-1, last_offset=-1, offset_delta=0)
            if entry.current_txn_first_offset < 0:
                entry = replace(entry, current_txn_first_offset=-1)
            self.entries[entry.producer_id] = entry
            if entry.current_txn_first_offset >= 0:
                # A second entry of the same producer replaces the first in the map, but not in here: Kafka pins the offset for good.
                self.ongoing[entry.current_txn_first_offset] = entry.producer_id

    def append(self, batches: Iterable[ProducerBatch]) -> Iterator[CompletedTransaction]:
        """Folds batch by batch, as ``LogSegment.recover`` does. Yields each transaction when its marker is met.

        Raises:
            InvalidTransactionStateError: a batch on which Kafka throws.
        """
        for batch in batches:
            completed = self._apply(batch)
            if completed is not None:
                yield completed
                self._complete(completed)

    def append_chunk(self, batches: Iterable[ProducerBatch]) -> list[CompletedTransaction]:
        """Folds all batches through one append info per producer, as ``UnifiedLog.rebuildProducerState`` does with a segment.

        The result differs from ``append`` in one case only: where a producer's epoch leaves and returns and no data batch follows, the
        batch that was there before survives.
        """
        before = dict(self.entries)
        completed = list(self.append(batches))
        for producer_id, entry in self.entries.items():
            old = before.get(producer_id)
            if old is not None and entry.last_offset < 0 <= old.last_offset and entry.epoch == old.epoch:
                batch = {name: getattr(old, name) for name in ("last_sequence", "last_offset", "offset_delta")}
                self.entries[producer_id] = replace(entry, **batch)
        return completed

    def _apply(self, batch: ProducerBatch) -> CompletedTransaction | None:
        entry = self.entries.get(batch.producer_id, ProducerEntry(batch.producer_id))
        match batch:
            case EmptyControlBatch():
                # No field changes, but an unknown producer gets an entry of empty values, which is written to snapshots.
                self.entries[batch.producer_id] = entry
                return None
            case DataBatch():
                self.entries[batch.producer_id] = self._after_data(entry, batch)
                return None
            case Marker():
                self.entries[batch.producer_id] = _after_marker(entry, batch)
                if entry.current_txn_first_offset < 0:
                    return None
                return CompletedTransaction(batch.producer_id, entry.current_txn_first_offset, batch.offset, not batch.is_commit)

    def _after_data(self, entry: ProducerEntry, batch: DataBatch) -> ProducerEntry:
        """``ProducerAppendInfo.appendDataBatch``. Epochs and sequences are not compared: a replica only warns."""
        first = entry.current_txn_first_offset
        if first >= 0 and not batch.is_transactional:
            reason = f"InvalidTxnStateException: producer {batch.producer_id} writes outside of its transaction that is open from {first}"
            raise InvalidTransactionStateError(batch.base_offset, reason)
        if first < 0 and batch.is_transactional:
            first = batch.base_offset
            self.ongoing[first] = batch.producer_id
        return replace(
            entry,
            epoch=batch.epoch,
            last_sequence=_last_sequence_of(batch.base_sequence, batch.last_offset_delta),
            last_offset=batch.base_offset + batch.last_offset_delta,
            offset_delta=batch.last_offset_delta,
            timestamp=batch.max_timestamp,
            current_txn_first_offset=first,
        )

    def _complete(self, completed: CompletedTransaction) -> None:
        """``ProducerStateManager.completeTxn``."""
        if self.ongoing.pop(completed.first_offset, None) is None:
            reason = (
                f"IllegalArgumentException: completed transaction that began at {completed.first_offset} is not in the ongoing ones"
            )
            raise InvalidTransactionStateError(completed.last_offset, reason)
        self.unreplicated[completed.first_offset] = completed.last_offset

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The offset that ``.txnindex`` records with an aborted transaction, called before it is completed: no other transaction is
        open below."""
        others = (first for first, producer_id in self.ongoing.items() if producer_id != completed.producer_id)
        return min(others, default=completed.last_offset + 1)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forgets completed transactions whose marker is below the high watermark."""
        self.unreplicated = {first: last for first, last in self.unreplicated.items() if last >= high_watermark}

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """The periodic task of a running broker (``removeExpiredProducers``)."""
        self.entries = {key: entry for key, entry in self.entries.items() if not is_expired(entry, now_ms, expiration_ms)}

    @property
    def first_undecided_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        return min(self.ongoing, default=None)

    @property
    def first_unstable_offset(self) -> int | None:
        """The last stable offset is here, when there is one: the oldest transaction that is open or not yet replicated."""
        return min((*self.ongoing, *self.unreplicated), default=None)


def _after_marker(entry: ProducerEntry, marker: Marker) -> ProducerEntry:
    """``ProducerAppendInfo.appendEndTxnMarker``: the data batch survives only an equal epoch; commit and abort are alike."""
    after = replace(
        entry,
        epoch=marker.epoch,
        timestamp=marker.timestamp,
        coordinator_epoch=marker.coordinator_epoch,
        current_txn_first_offset=-1,
    )
    if marker.epoch != entry.epoch:
        after = replace(after, last_sequence=-1, last_offset=-1, offset_delta=0)
    return after


def producer_batches(block: HeaderBlock) -> Iterator[ProducerBatch]:
    """The batches of a block that have a producer id, in log order. Those of magic 0 and 1, and KRaft's, have none."""
    markers = {
        row: (type_id, epoch, timestamp)
        for row, type_id, epoch, timestamp in zip(
            block.control.tolist(),
            block.marker_type.tolist(),
            block.marker_coordinator_epoch.tolist(),
            block.marker_timestamp.tolist(),
            strict=True,
        )
    }
    for row, header in enumerate(block.headers()):
        if header.producer_id < 0:
            continue
        if not header.is_control:
            yield DataBatch(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp,
                header.is_transactional,
            )
        elif row in markers:
            type_id, coordinator_epoch, timestamp = markers[row]
            commit = type_id == ControlRecordType.COMMIT
            # The marker's own offset is that of its record; a control batch holds one, so that is also the base offset.
            yield Marker(header.producer_id, header.producer_epoch, header.base_offset, timestamp, coordinator_epoch, commit)
        else:
            yield EmptyControlBatch(header.producer_id)
