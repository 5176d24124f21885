"""The rule for the snapshot at the first offset, producer by producer and batch by batch, as docs/concepts/confidence.md has it.

It is written for reading, and shares nothing with ``snaprebuild.replay.base_judge``, which is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reference_producer_state import DataBatch, Marker, ProducerState
from simulated_broker import Entries
from strategies import LogBatch

from formats.partition.producer_snapshot import ProducerEntry
from formats.partition.transaction_index import AbortedTransaction

DAY_MS = 86_400_000
LAST_SEQUENCE = 2**31 - 1


@dataclass(frozen=True)
class Event:
    """A batch of a producer, and the largest timestamp of all batches up to it."""

    batch: DataBatch | Marker
    offset: int
    newest: int

    @property
    def batch_time(self) -> int:
        return self.batch.max_timestamp if isinstance(self.batch, DataBatch) else self.batch.timestamp

    @property
    def data(self) -> DataBatch | None:
        return self.batch if isinstance(self.batch, DataBatch) else None

    @property
    def marker(self) -> Marker | None:
        return self.batch if isinstance(self.batch, Marker) else None


@dataclass
class Left:
    """The part of the base that a producer's entry still has after some of its batches."""

    nothing_yet: bool = True
    batch: str = "kept"
    marker_epoch: int = -1
    unmarked: bool = True
    opened: int = -1

    def take(self, event: Event) -> None:
        self.nothing_yet = False
        if event.data is not None:
            self.batch = "written"
            if event.data.is_transactional and self.opened < 0 and self.unmarked:
                self.opened = event.offset
        elif self.batch == "kept":
            self.batch, self.marker_epoch = "if epoch", event.batch.epoch
        elif self.batch == "if epoch" and event.batch.epoch != self.marker_epoch:
            self.batch = "written"
        if event.marker is not None:
            self.unmarked = False

    def keeps(self, base: ProducerEntry) -> bool:
        return self.batch == "kept" or (self.batch == "if epoch" and self.marker_epoch == base.epoch)

    def clears(self, base: ProducerEntry) -> bool:
        return self.batch == "if epoch" and self.marker_epoch != base.epoch


@dataclass
class Rule:
    """The rule over one log.

    Attributes:
        offset: of the base.
        base: its entries.
        segments: base offset and batches of each, from the base on.
        end: offset after the last batch.
        snapshots: the later ones, by offset, without those that are ours.
        indexes: entries of the transaction indexes.
        expiration_ms: of producers.
        as_of_ms: the moment of the run.
    """

    offset: int
    base: Entries
    segments: Sequence[tuple[int, Sequence[LogBatch]]]
    end: int
    snapshots: Mapping[int, Entries]
    indexes: Iterable[AbortedTransaction]
    expiration_ms: int
    as_of_ms: int
    refuted: set[str] = field(default_factory=set)
    evidence: int = 0

    def __post_init__(self) -> None:
        least = min(self.expiration_ms, DAY_MS)
        self.slack = least // 24
        self.limit = least - self.slack
        self.base = {key: as_loaded(entry) for key, entry in self.base.items()}
        self.events: dict[int, list[Event]] = {}
        self.newest_before: dict[int, int] = {}
        newest = -1
        for base_offset, batches in self.segments:
            self.newest_before[base_offset] = newest
            for batch in batches:
                newest = max(newest, batch.header.max_timestamp)
                if isinstance(batch.meaning, DataBatch | Marker):
                    event = Event(batch.meaning, batch.header.base_offset, newest)
                    self.events.setdefault(batch.header.producer_id, []).append(event)
        self.newest = newest
        self.appearing: set[int] = set()
        self.confirmed: dict[int, set[str]] = {producer: set() for producer in self.base}
        for producer, entry in self.base.items():
            self.by_events(entry, self.events.get(producer, []))
        for aborted in self.indexes:
            self.by_index(aborted)
        self.valid = {at: found for at, found in sorted(self.snapshots.items()) if self.agrees(at, found)}
        for at, found in self.valid.items():
            self.by_snapshot(at, found)
        self.evidence = len(self.valid)
        self.open_absent = {key for key, events in self.events.items() if key not in self.base and not self.is_absent(key, events)}
        self.open_absent |= self.appearing
        fresh = {key for key, events in self.events.items() if is_fresh(events[0])}
        self.is_lost = not self.base and bool(self.open_absent - fresh)

    def is_old(self, entry: ProducerEntry, now: int) -> bool:
        return entry.timestamp < 0 or now - entry.timestamp >= self.limit

    def may_be_gone(self, entry: ProducerEntry, now: int) -> bool:
        return entry.current_txn_first_offset < 0 and self.is_old(entry, now)

    # ------------------------------------------------------------------------------------------------------------ the log

    def by_events(self, base: ProducerEntry, events: list[Event]) -> None:
        if not events or base.epoch < 0:
            return
        confirmed = self.confirmed[base.producer_id]
        first = events[0]
        data_at = next((at for at, event in enumerate(events) if event.data is not None), None)
        data = None if data_at is None else events[data_at]
        marker = next((event.marker for event in events if event.marker is not None), None)
        gone = self.may_be_gone(base, first.newest)
        begins_again = data is not None and data.data is not None and data.data.base_sequence == 0
        if first.batch.epoch < base.epoch and not gone and not begins_again:
            self.refuted.add("lower-epoch")
        if data is not None and data.data is not None:
            assert data_at is not None
            sequence, epoch = data.data.base_sequence, data.data.epoch
            if data is first and epoch > base.epoch and sequence > 0 and not gone:
                self.refuted.add("sequence-of-new-epoch")
            is_one_epoch = all(event.batch.epoch == first.batch.epoch for event in events[: data_at + 1])
            is_raised = first is not data and first.batch.epoch > base.epoch
            last = -1 if is_raised else base.last_sequence
            if is_one_epoch and (first.batch.epoch == base.epoch or is_raised):
                follows = sequence == (0 if last == LAST_SEQUENCE else last + 1)
                old = self.is_old(base, data.newest) and (first is not data or base.current_txn_first_offset < 0)
                if not follows and sequence > 0 and not old:
                    self.refuted.add("sequence")
                if follows and last != LAST_SEQUENCE:
                    confirmed.add("cleared" if is_raised else "sequence")
        if first.data is not None and not first.data.is_transactional:
            if base.current_txn_first_offset >= 0 or base.coordinator_epoch >= 0:
                self.refuted.add("transaction")
            if base.current_txn_first_offset < 0:
                confirmed.add("transaction")
            if base.coordinator_epoch < 0:
                confirmed.add("coordinator")
        if marker is not None and marker.coordinator_epoch < base.coordinator_epoch and not gone:
            self.refuted.add("coordinator-epoch")

    def by_index(self, entry: AbortedTransaction) -> None:
        events = self.events.get(entry.producer_id, [])
        marker = next((event.marker for event in events if event.marker is not None), None)
        if marker is None or marker.is_commit or marker.offset != entry.last_offset:
            return
        claimed = {each.current_txn_first_offset for each in self.base.values()}
        if entry.last_stable_offset < self.offset and entry.last_stable_offset not in claimed:
            self.refuted.add("transaction")
        if entry.first_offset < self.offset:
            base = self.base.get(entry.producer_id)
            if base is not None and base.current_txn_first_offset == entry.first_offset:
                self.confirmed[entry.producer_id].add("transaction")
            else:
                self.refuted.add("transaction")

    # ------------------------------------------------------------------------------------------------------------ later snapshots

    def written(self, at: int) -> int:
        """Not earlier than a snapshot was written."""
        newest = max((before for base, before in self.newest_before.items() if base == at), default=self.newest)
        following = next((batches for base, batches in self.segments if base == at), None)
        if following is None:
            return max(newest, self.as_of_ms)
        own = -1
        for batch in following:
            own = max(own, batch.header.max_timestamp)
            if batch.meaning is not None:
                break
        return max(newest, own)

    def log_alone(self, at: int) -> Entries:
        state = ProducerState()
        for _, batches in self.segments:
            for batch in batches:
                if batch.header.base_offset < at and batch.meaning is not None:
                    list(state.append([batch.meaning]))
        return dict(state.entries)

    def agrees(self, at: int, found: Entries) -> bool:
        """The generated ones hold nothing wrong that the log fixes, but may lack what their broker forgot."""
        now = self.written(at)
        return all(key in found or self.may_be_gone(entry, now) for key, entry in self.log_alone(at).items())

    def left(self, producer: int, at: int) -> Left:
        left = Left()
        for event in self.events.get(producer, []):
            if event.offset < at:
                left.take(event)
        return left

    def by_snapshot(self, at: int, found: Entries) -> None:
        now = self.written(at)
        for producer, base in self.base.items():
            later, left = found.get(producer), self.left(producer, at)
            if later is None:
                if left.nothing_yet and not self.may_be_gone(base, now):
                    self.refuted.add("later-snapshot")
            else:
                self.compare(base, as_loaded(later), left, at)
        for producer, later in found.items():
            left = self.left(producer, at)
            was_there = (
                0 <= later.last_offset < self.offset
                or 0 <= later.current_txn_first_offset < self.offset
                or left.nothing_yet
                or (left.unmarked and later.coordinator_epoch >= 0)
            )
            if producer in self.base or not was_there:
                continue
            if not self.may_be_gone(later, now):
                self.refuted.add("later-snapshot")
            else:
                self.appearing.add(producer)

    def compare(self, base: ProducerEntry, later: ProducerEntry, left: Left, at: int) -> None:
        confirmed, refuted = self.confirmed[base.producer_id], False
        events = self.events.get(base.producer_id, [])
        first_data = next((event.data for event in events if event.data is not None), None)
        begins_again = first_data is not None and first_data.base_sequence == 0 and base.current_txn_first_offset < 0
        forgotten = not left.nothing_yet and (self.may_be_gone(base, events[0].newest) or begins_again)
        below = [event for event in events if event.offset < at]
        between = bool(below) and not left.unmarked and self.is_old(base, max(events[0].newest, below[-1].batch_time))
        if left.nothing_yet:
            refuted |= (base.epoch, base.timestamp) != (later.epoch, later.timestamp)
            if base.timestamp == later.timestamp:
                confirmed.add("timestamp")
        if left.keeps(base):
            numbers = [(each.last_sequence, each.last_offset, each.offset_delta) for each in (base, later)]
            if numbers[0] != numbers[1] and not ((forgotten or between) and later.last_offset < 0):
                refuted = True
            if base.last_sequence == later.last_sequence and (not left.nothing_yet or base.epoch == later.epoch):
                confirmed.add("sequence")
            if numbers[0][1:] == numbers[1][1:]:
                confirmed.add("batch")
        if left.clears(base):
            refuted |= later.last_offset >= 0
            if later.last_offset < 0:
                confirmed.add("cleared")
        if left.unmarked:
            if base.coordinator_epoch == later.coordinator_epoch:
                confirmed.add("coordinator")
            elif not (forgotten and later.coordinator_epoch < 0):
                refuted = True
            opened = base.current_txn_first_offset if base.current_txn_first_offset >= 0 else left.opened
            if opened != later.current_txn_first_offset:
                refuted = True
            elif base.current_txn_first_offset >= 0 or left.opened < 0:
                confirmed.add("transaction")
        if refuted:
            self.refuted.add("later-snapshot")

    # ------------------------------------------------------------------------------------------------------------ boundaries

    def is_absent(self, producer: int, events: list[Event]) -> bool:
        data = events[0].data
        if data is None or data.base_sequence != 0:
            return False
        if data.epoch == 0 and not data.is_transactional:
            return True
        if is_fresh(events[0]) and any(self.is_unmarked_in(producer, at) for at in self.valid if at > events[0].offset):
            return True
        return any(at <= events[0].offset and producer not in found for at, found in self.valid.items())

    def is_unmarked_in(self, producer: int, at: int) -> bool:
        found = self.valid[at].get(producer)
        return found is not None and found.coordinator_epoch < 0 and self.left(producer, at).unmarked

    def open_at(self, at: int) -> set[int]:
        """Producers that are open at a boundary."""
        found = {producer for producer in self.base if self.is_open(producer, self.left(producer, at))}
        for producer in self.open_absent:
            left = self.left(producer, at)
            first = next(iter(self.events.get(producer, [])), None)
            is_plain = first is not None and first.offset < at and first.data is not None and not first.data.is_transactional
            if left.batch != "written" or (left.unmarked and not is_plain):
                found.add(producer)
        return found

    def is_open(self, producer: int, left: Left) -> bool:
        base, has = self.base[producer], self.confirmed[producer]
        return (
            (left.nothing_yet and not {"sequence", "batch", "timestamp"} <= has)
            or (left.keeps(base) and not {"sequence", "batch"} <= has)
            or (left.clears(base) and not {"sequence", "cleared"} & has)
            or (left.unmarked and not {"coordinator", "transaction"} <= has)
        )

    def claims_at(self, at: int) -> set[int]:
        """Producers for which the base claims an open transaction that nothing confirms."""
        return {
            producer
            for producer in self.open_at(at) & self.base.keys()
            if self.base[producer].current_txn_first_offset >= 0
            and self.left(producer, at).unmarked
            and "transaction" not in self.confirmed[producer]
        }

    def lacks_none_at(self, at: int) -> bool:
        """Whether a silent producer that the base lacks is known to be absent here: it may have expired before the next snapshot."""
        ends = [*(base for base, _ in self.segments[1:]), self.end]
        newest = {end: self.newest_before.get(end, self.newest) for end in ends}
        below = max([newest[ends[0]], *(entry.timestamp for entry in self.base.values())])
        for end in ends:
            if end > at:
                break
            if newest[end] - below >= self.expiration_ms + self.slack:
                return True
            if any(found == end or self.written(found) - newest[end] <= self.slack for found in self.valid):
                return True
        return False

    def class_at(self, at: int) -> str:
        """The class at a boundary of a log without damage."""
        if self.refuted:
            return "EXACT_FROM_LOG_START"
        if self.claims_at(at):
            return "UNPROVEN"
        is_complete = self.evidence and not self.is_lost and not self.open_at(at) and self.lacks_none_at(at)
        return "EXACT" if is_complete else "EXACT_FROM_LOG_START"


def is_fresh(event: Event) -> bool:
    """The first data that the producer ever wrote; logs here end below offset 2^31."""
    return event.data is not None and (event.data.epoch, event.data.base_sequence) == (0, 0)


def as_loaded(entry: ProducerEntry) -> ProducerEntry:
    """The entry that a broker has after loading this one."""
    from msgspec.structs import replace

    return entry if entry.last_offset >= 0 else replace(entry, last_sequence=-1, last_offset=-1, offset_delta=0)
