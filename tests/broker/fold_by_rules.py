"""The producer state by rules that each have a name: which batch of a log meets which, and the states that come of it.

Made to count what generated logs reach, and to tell what Kafka's two replays have to give. It reads bytes by itself, and shares nothing
with the code under test. Its states are compared with those of Kafka's own classes, log by log.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from oracle import CompletedTransaction, Entry

TRANSACTIONAL, CONTROL, LOG_APPEND_TIME, COMPRESSED = 0x10, 0x20, 0x08, 0x07
SEQUENCES = 1 << 31
LAST_EPOCH = 2**15 - 1
ABORT, COMMIT = 0, 1
END_OF_1970, BEGIN_OF_9999 = 31_536_000_000, 253_370_764_800_000

RULES = (
    # which batches count
    "batch: magic 0 or 1, passed over",
    "batch: without producer id, passed over",
    "batch: control batch of KRaft, without producer id, passed over",
    "batch: producer id 0 counts like any",
    "batch: of 1970 (timestamp of the producer)",
    "batch: of 9999 (timestamp of the producer)",
    # data: ProducerAppendInfo.appendDataBatch, ProducerStateEntry.addBatch
    "data: of an unknown producer",
    "data: older epoch is taken",
    "data: newer epoch is taken",
    "data: same epoch, sequence follows",
    "data: same epoch, sequence that does not follow is taken",
    "data: without sequence, last sequence is -1",
    "data: sequence ends at 2^31 - 1",
    "data: sequence wraps to 0",
    "data: fewer records than offsets, offsets count (compacted)",
    "data: no record left, the header counts (compacted)",
    "data: no record left, opens a transaction (compacted)",
    "data: timestamp goes back",
    "data: timestamp -1 is stored",
    "data: log append time",
    "data: opens a transaction",
    "data: goes on in its transaction",
    "data: goes on in a transaction that another epoch opened",
    "data: outside of its open transaction, Kafka throws",
    "data: outside of one that was opened in an earlier segment, Kafka throws",
    "data: coordinator epoch survives another epoch",
    # control batches: ProducerAppendInfo.append, appendEndTxnMarker
    "control: no record, unknown producer, entry of empty values",
    "control: no record, known producer, nothing changes",
    "control: no record, transaction stays open",
    "control: only the first record is read",
    "control: of another type with a producer id, Kafka throws",
    "control: key of a later version",
    "control: key of a negative version, Kafka throws",
    "control: key too short, Kafka throws",
    "control: value of a later version, what is added is not read",
    "control: value of a negative version, Kafka throws",
    "control: value too short, Kafka throws",
    "marker: without the transactional bit, counts all the same",
    "marker: commits the open transaction",
    "marker: aborts the open transaction",
    "marker: of a transaction that another epoch opened",
    "marker: no transaction open, known producer",
    "marker: no transaction open, unknown producer, entry without batch",
    "marker: same epoch keeps the batch",
    "marker: newer epoch drops the batch",
    "marker: older epoch is taken and drops the batch",
    "marker: drops a batch that a marker of its own epoch kept",
    "marker: newer coordinator epoch is taken",
    "marker: older coordinator epoch is taken",
    "marker: timestamp is that of the record",
    "marker: log append time, timestamp is that of the header",
    "marker: timestamp goes back",
    # transaction.version 2
    "version 2: marker of the next epoch ends the transaction and drops the batch",
    "version 2: next transaction begins with sequence 0",
    "version 2: marker reaches the last epoch",
    # append infos of more than one batch
    "chunk: epoch leaves and comes back within a segment",
    "chunk: and no batch follows, so that Kafka's replays differ",
)
"""In the order of the rules in the classes of Kafka."""


class Batch(NamedTuple):
    """A whole batch. ``records`` as they lie there."""

    magic: int
    base_offset: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    epoch: int
    base_sequence: int
    record_count: int
    records: bytes

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


class ThrownError(Exception):
    """Kafka throws at a batch."""


@dataclass
class Folded:
    """The result of a log.

    Attributes:
        by_batch: states as LogSegment.recover leaves them, by boundary; none at or above a batch at which Kafka throws.
        by_segment: as UnifiedLog.rebuildProducerState leaves them.
        undecided: first offset of the oldest open transaction, by boundary.
        completed: transactions that a marker closed, and markers that closed nothing.
        orphans: of ``completed`` those that closed nothing: Kafka before 2.8 counted them (KAFKA-10702).
        hits: how many batches met each rule.
    """

    by_batch: dict[int, dict[int, Entry]] = field(default_factory=dict)
    by_segment: dict[int, dict[int, Entry]] = field(default_factory=dict)
    undecided: dict[int, int | None] = field(default_factory=dict)
    completed: list[CompletedTransaction] = field(default_factory=list)
    orphans: set[CompletedTransaction] = field(default_factory=set)
    hits: Counter[str] = field(default_factory=Counter)

    @property
    def replays_differ(self) -> bool:
        return self.by_batch != self.by_segment


def fold(directory: Path) -> Folded:
    """Folds the segments of a partition directory from empty state."""
    files = sorted(directory.glob("[0-9]" * 20 + ".log"))
    bases = [int(file.stem) for file in files]
    folding = _Fold()
    for file, next_base in zip(files, [*bases[1:], None], strict=True):
        end = int(file.stem)
        folding.begin_segment()
        try:
            for batch in batches_in(file.read_bytes()):
                folding.take(batch)
                end = batch.base_offset + batch.last_offset_delta + 1
        except ThrownError:
            break
        folding.end_segment(end if next_base is None else next_base)
    return folding.folded


def batches_in(data: bytes) -> Iterator[Batch]:
    """The whole batches of a segment; a torn one ends it."""
    at = 0
    while at + 17 <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, at)
        end, magic = at + 12 + length, data[at + 16]
        if end > len(data):
            return
        if magic < 2:
            yield Batch(magic, base_offset, data[at + 17] & COMPRESSED, 0, -1, -1, -1, -1, -1, -1, b"")
        else:
            yield Batch(magic, base_offset, *struct.unpack_from(">hiqqqhii", data, at + 21), data[at + 61 : end])
        at = end


def first_record(batch: Batch) -> tuple[int, bytes, bytes]:
    """Timestamp delta, key and value of the first record, which is not compressed."""
    assert not batch.attributes & COMPRESSED
    data, at = batch.records, 0

    def varint() -> int:
        nonlocal at
        raw = shift = 0
        while True:
            byte = data[at]
            raw |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)

    def part() -> bytes:
        nonlocal at
        size = varint()
        at += max(size, 0)
        return data[at - max(size, 0) : at]

    varint()  # length
    at += 1  # attributes
    timestamp_delta = varint()
    varint()  # offset delta
    return timestamp_delta, part(), part()


class _Fold:
    def __init__(self) -> None:
        self.folded = Folded()
        self.entries: dict[int, Entry] = {}
        self.by_segment: dict[int, Entry] = {}
        self.infos: dict[int, Entry] = {}
        self.opened_by: dict[int, int] = {}
        """Epoch that opened the transaction, by producer."""
        self.opened_here: set[int] = set()
        """Producers that opened a transaction within the segment."""
        self.kept_by_marker: set[int] = set()
        """Producers whose last batch was the marker that kept the one before it."""
        self.was_bumped: set[int] = set()
        """Producers whose last batch was the marker of a transaction of version 2."""
        self.epochs: dict[int, list[int]] = {}
        """Epochs of each producer within the segment, first the one with which it came in."""

    def hit(self, rule: str, *, when: bool = True) -> None:
        if when:
            self.folded.hits[rule] += 1

    # ---- segments ----

    def begin_segment(self) -> None:
        self.infos, self.epochs, self.opened_here = {}, {}, set()

    def end_segment(self, boundary: int) -> None:
        """The append info of each producer is merged: its batch, if it has one, else the one before, if the epoch is the same."""
        for producer_id, info in self.infos.items():
            before = self.by_segment.get(producer_id, unknown(producer_id))
            keeps = info.last_offset < 0 <= before.last_offset and info.epoch == before.epoch
            merged = with_batch_of(info, before) if keeps else info
            is_other = keeps and merged != self.entries[producer_id]
            self.hit("chunk: and no batch follows, so that Kafka's replays differ", when=is_other)
            self.by_segment[producer_id] = merged
        folded = self.folded
        folded.by_batch[boundary] = dict(self.entries)
        folded.by_segment[boundary] = dict(self.by_segment)
        firsts = [each.current_txn_first_offset for each in self.entries.values() if each.current_txn_first_offset >= 0]
        folded.undecided[boundary] = min(firsts, default=None)

    # ---- batches ----

    def take(self, batch: Batch) -> None:
        if batch.magic < 2:
            self.hit("batch: magic 0 or 1, passed over")
            return
        if batch.producer_id < 0:
            kind = "control batch of KRaft, without producer id" if batch.is_control else "without producer id"
            self.hit(f"batch: {kind}, passed over")
            return
        self.hit("batch: producer id 0 counts like any", when=batch.producer_id == 0)
        entry = self.entries.get(batch.producer_id, unknown(batch.producer_id))
        is_known = batch.producer_id in self.entries
        if not batch.is_control:
            self.count_data(entry, batch, is_known=is_known)
            after = after_data
        elif batch.record_count == 0:
            self.count_empty(entry, is_known=is_known)
            after = after_nothing
        else:
            self.count_marker(entry, batch, is_known=is_known)
            after = after_marker
        self.entries[batch.producer_id] = new = after(entry, batch)
        info = self.infos.get(batch.producer_id)
        if info is None:
            info = without_batch(self.by_segment.get(batch.producer_id, unknown(batch.producer_id)))
        self.infos[batch.producer_id] = after(info, batch)
        self.hit("batch: of 1970 (timestamp of the producer)", when=0 <= new.timestamp < END_OF_1970)
        self.hit("batch: of 9999 (timestamp of the producer)", when=new.timestamp >= BEGIN_OF_9999)
        self.note_epoch(entry, new)

    def note_epoch(self, entry: Entry, new: Entry) -> None:
        seen = self.epochs.setdefault(new.producer_id, [entry.epoch])
        if new.epoch != entry.epoch:
            self.hit("chunk: epoch leaves and comes back within a segment", when=new.epoch in seen)
            seen.append(new.epoch)

    def count_data(self, entry: Entry, batch: Batch, *, is_known: bool) -> None:
        hit, first = self.hit, entry.current_txn_first_offset
        if first >= 0 and not batch.is_transactional:
            hit("data: outside of its open transaction, Kafka throws")
            is_earlier = batch.producer_id not in self.opened_here
            hit("data: outside of one that was opened in an earlier segment, Kafka throws", when=is_earlier)
            raise ThrownError
        has_sequence, is_same = batch.base_sequence >= 0, is_known and batch.epoch == entry.epoch
        last = batch.base_sequence + batch.last_offset_delta
        follows = batch.base_sequence == (entry.last_sequence + 1) % SEQUENCES
        hit("data: of an unknown producer", when=not is_known)
        hit("data: older epoch is taken", when=batch.epoch < entry.epoch)
        hit("data: newer epoch is taken", when=is_known and batch.epoch > entry.epoch)
        hit("data: same epoch, sequence follows", when=is_same and has_sequence and follows)
        hit("data: same epoch, sequence that does not follow is taken", when=is_same and has_sequence and not follows)
        hit("data: without sequence, last sequence is -1", when=not has_sequence)
        hit("data: sequence ends at 2^31 - 1", when=has_sequence and last == SEQUENCES - 1)
        hit("data: sequence wraps to 0", when=has_sequence and last >= SEQUENCES)
        hit("data: fewer records than offsets, offsets count (compacted)", when=0 < batch.record_count <= batch.last_offset_delta)
        hit("data: no record left, the header counts (compacted)", when=batch.record_count == 0)
        opens = first < 0 and batch.is_transactional
        hit("data: no record left, opens a transaction (compacted)", when=opens and batch.record_count == 0)
        hit("data: timestamp goes back", when=batch.max_timestamp < entry.timestamp)
        hit("data: timestamp -1 is stored", when=batch.max_timestamp == -1)
        hit("data: log append time", when=bool(batch.attributes & LOG_APPEND_TIME))
        hit("data: opens a transaction", when=opens)
        if first >= 0:
            is_of_another = self.opened_by[batch.producer_id] != batch.epoch
            hit(f"data: goes on in {'a transaction that another epoch opened' if is_of_another else 'its transaction'}")
        hit("data: coordinator epoch survives another epoch", when=entry.coordinator_epoch >= 0 and batch.epoch != entry.epoch)
        was_bumped = batch.producer_id in self.was_bumped
        hit(
            "version 2: next transaction begins with sequence 0", when=was_bumped and opens and is_same and batch.base_sequence == 0
        )
        self.was_bumped.discard(batch.producer_id)
        self.kept_by_marker.discard(batch.producer_id)
        if opens:
            self.opened_by[batch.producer_id] = batch.epoch
            self.opened_here.add(batch.producer_id)

    def count_empty(self, entry: Entry, *, is_known: bool) -> None:
        if not is_known:
            self.hit("control: no record, unknown producer, entry of empty values")
            return
        self.hit("control: no record, known producer, nothing changes")
        self.hit("control: no record, transaction stays open", when=entry.current_txn_first_offset >= 0)

    def count_marker(self, entry: Entry, batch: Batch, *, is_known: bool) -> None:
        hit = self.hit
        delta, key, value = first_record(batch)
        if len(key) < 4:
            hit("control: key too short, Kafka throws")
            raise ThrownError
        key_version, kind = struct.unpack_from(">hh", key)
        if key_version < 0:
            hit("control: key of a negative version, Kafka throws")
            raise ThrownError
        if kind not in (ABORT, COMMIT):
            hit("control: of another type with a producer id, Kafka throws")
            raise ThrownError
        (version,) = struct.unpack_from(">h", value)
        if version < 0:
            hit("control: value of a negative version, Kafka throws")
            raise ThrownError
        if len(value) < 6:
            hit("control: value too short, Kafka throws")
            raise ThrownError
        (coordinator_epoch,) = struct.unpack_from(">i", value, 2)
        hit("control: key of a later version", when=key_version > 0)
        hit("control: value of a later version, what is added is not read", when=version > 0 and len(value) > 6)
        hit("control: only the first record is read", when=batch.record_count > 1)
        hit("marker: without the transactional bit, counts all the same", when=not batch.is_transactional)
        self.count_end(entry, batch, is_known=is_known, is_abort=kind == ABORT)
        has_batch = entry.last_offset >= 0
        hit("marker: same epoch keeps the batch", when=has_batch and batch.epoch == entry.epoch)
        hit("marker: newer epoch drops the batch", when=has_batch and batch.epoch > entry.epoch)
        hit("marker: older epoch is taken and drops the batch", when=has_batch and batch.epoch < entry.epoch)
        was_kept, is_kept = batch.producer_id in self.kept_by_marker, has_batch and batch.epoch == entry.epoch
        hit("marker: drops a batch that a marker of its own epoch kept", when=was_kept and not is_kept)
        if is_kept:
            self.kept_by_marker.add(batch.producer_id)
        else:
            self.kept_by_marker.discard(batch.producer_id)
        hit("marker: newer coordinator epoch is taken", when=0 <= entry.coordinator_epoch < coordinator_epoch)
        hit("marker: older coordinator epoch is taken", when=coordinator_epoch < entry.coordinator_epoch)
        is_log_append_time = bool(batch.attributes & LOG_APPEND_TIME)
        own = batch.base_timestamp + delta
        hit("marker: timestamp is that of the record", when=not is_log_append_time and own != batch.max_timestamp)
        hit("marker: log append time, timestamp is that of the header", when=is_log_append_time and own != batch.max_timestamp)
        hit("marker: timestamp goes back", when=(batch.max_timestamp if is_log_append_time else own) < entry.timestamp)

    def count_end(self, entry: Entry, batch: Batch, *, is_known: bool, is_abort: bool) -> None:
        hit, producer_id, first = self.hit, batch.producer_id, entry.current_txn_first_offset
        is_open, is_next = first >= 0, is_known and batch.epoch == entry.epoch + 1
        hit(f"marker: {'aborts' if is_abort else 'commits'} the open transaction", when=is_open)
        hit("marker: no transaction open, known producer", when=is_known and not is_open)
        hit("marker: no transaction open, unknown producer, entry without batch", when=not is_known)
        hit(
            "version 2: marker of the next epoch ends the transaction and drops the batch",
            when=is_open and is_next and entry.last_offset >= 0,
        )
        hit("version 2: marker reaches the last epoch", when=is_next and batch.epoch == LAST_EPOCH)
        self.was_bumped.discard(producer_id)
        if is_open:
            hit("marker: of a transaction that another epoch opened", when=self.opened_by[producer_id] != batch.epoch)
            if is_next:
                self.was_bumped.add(producer_id)
        others = [
            each.current_txn_first_offset
            for each in self.entries.values()
            if each.current_txn_first_offset >= 0 and each.producer_id != producer_id
        ]
        stable = min(others, default=batch.base_offset + 1)
        ended = CompletedTransaction(producer_id, first if is_open else batch.base_offset, batch.base_offset, is_abort, stable)
        self.folded.completed.append(ended)
        if not is_open:
            self.folded.orphans.add(ended)


# ---- what a batch does to an entry ----


def unknown(producer_id: int) -> Entry:
    """``ProducerStateEntry.empty``."""
    return Entry(producer_id, -1, -1, -1, 0, -1, -1, -1)


def without_batch(entry: Entry) -> Entry:
    """The entry with which an append info begins."""
    return entry._replace(last_sequence=-1, last_offset=-1, offset_delta=0)


def with_batch_of(entry: Entry, other: Entry) -> Entry:
    """The batch of the other."""
    return entry._replace(last_sequence=other.last_sequence, last_offset=other.last_offset, offset_delta=other.offset_delta)


def after_nothing(entry: Entry, batch: Batch) -> Entry:
    """A control batch without records."""
    return entry


def after_data(entry: Entry, batch: Batch) -> Entry:
    """A batch of data in its transaction, or without one."""
    last = batch.base_sequence + batch.last_offset_delta
    opens = batch.is_transactional and entry.current_txn_first_offset < 0
    return entry._replace(
        epoch=batch.epoch,
        last_sequence=-1 if batch.base_sequence == -1 else last % SEQUENCES,
        last_offset=batch.base_offset + batch.last_offset_delta,
        offset_delta=batch.last_offset_delta,
        timestamp=batch.max_timestamp,
        current_txn_first_offset=batch.base_offset if opens else entry.current_txn_first_offset,
    )


def after_marker(entry: Entry, batch: Batch) -> Entry:
    """A marker."""
    delta, _, value = first_record(batch)
    is_log_append_time = batch.attributes & LOG_APPEND_TIME
    kept = entry if batch.epoch == entry.epoch else without_batch(entry)
    return kept._replace(
        epoch=batch.epoch,
        timestamp=batch.max_timestamp if is_log_append_time else batch.base_timestamp + delta,
        coordinator_epoch=struct.unpack_from(">i", value, 2)[0],
        current_txn_first_offset=-1,
    )
