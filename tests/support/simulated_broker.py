"""A simulated broker and its clients: logs that real clients could write, and the state that the live broker holds and saves.

Idempotent clients number their batches and bump their epoch. Transactional ones of both versions (KIP-890) begin, commit, abort, are
fenced, end empty transactions, fall silent, and now and then leave one hanging. Time passes in small steps and in leaps; clients' clocks
are wrong. The broker forgets expired producers by its own clock, as its periodic task and its restarts do, and what comes back has lost
what the broker forgot.

Two states are kept. ``whole`` is the fold from offset 0, by ``reference_producer_state``; ``live``
is what the broker knows.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from control_records import build_end_transaction_marker
from log_dirs import snapshot_bytes, snapshot_name
from reference_producer_state import DataBatch, Marker, ProducerState
from strategies import CONTROL, TRANSACTIONAL, GeneratedLog, LogBatch, batch_of, header_of

from formats.partition.file_names import parse_partition_dir_name
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.window import is_expired
from snaprebuild.storage.partition_dir import PartitionDir, list_partition_dir

EXPIRATION_MS = 1000
START_MS = 1_000_000

Entries = dict[int, ProducerEntry]


def loaded(entries: Iterable[ProducerEntry], now_ms: int) -> Entries:
    """The entries that a broker keeps when it loads these."""
    return {entry.producer_id: entry for entry in entries if not is_expired(entry, now_ms, EXPIRATION_MS)}


@dataclass
class Client:
    """A producer. Sequences begin at 0 in each epoch."""

    producer_id: int
    is_transactional: bool
    is_bumping: bool = False
    """Its markers carry the next epoch (transaction version 2)."""
    has_sequences: bool = True
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False

    def data(self, offset: int, count: int, timestamp: int) -> LogBatch:
        sequence = self.sequence if self.has_sequences else -1
        header = header_of(
            offset,
            attributes=TRANSACTIONAL if self.is_transactional else 0,
            last_offset_delta=count - 1,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            record_count=count,
        )
        self.sequence += count
        meaning = DataBatch(self.producer_id, self.epoch, sequence, offset, count - 1, timestamp, self.is_transactional)
        return batch_of(header, b"", meaning)

    def restart(self) -> None:
        self.epoch += 1
        self.sequence = 0

    def marker(self, offset: int, timestamp: int, coordinator_epoch: int, *, commit: bool, fence: bool = False) -> LogBatch:
        if self.is_bumping or fence:
            self.restart()
        self.is_open = False
        header = header_of(
            offset,
            attributes=CONTROL | TRANSACTIONAL,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )
        record = build_end_transaction_marker(commit=commit, coordinator_epoch=coordinator_epoch)
        return batch_of(header, [record], Marker(self.producer_id, self.epoch, offset, timestamp, coordinator_epoch, commit))


def idempotent_log(offsets: Iterable[int]) -> GeneratedLog:
    """A batch of one record at each offset, all of producer 7."""
    client = Client(7, is_transactional=False)
    return GeneratedLog(tuple(client.data(offset, 1, 5) for offset in offsets))


@dataclass
class Segment:
    """A segment, and both states at its end."""

    base_offset: int
    batches: list[LogBatch] = field(default_factory=list)
    whole: Entries = field(default_factory=dict)
    live: Entries = field(default_factory=dict)
    clock: int = 0

    @property
    def data(self) -> bytes:
        return b"".join(batch.data for batch in self.batches)

    @property
    def largest_timestamp(self) -> int:
        return max((batch.header.max_timestamp for batch in self.batches), default=-1)


@dataclass
class SimulatedBroker:
    """Plays a log of ``segments`` segments. Everything follows from ``seed``."""

    seed: int
    segments_wanted: int = 8
    leap_at: int | None = None
    """Before this segment time leaps by more than the expiration, so that most of what is below is old."""
    is_steady: bool = False
    """Few clients that stay and finish their transactions soon: what is below a window is found a segment or two further back."""
    segments: list[Segment] = field(default_factory=list)
    clock: int = START_MS
    end_offset: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.whole, self.live = ProducerState(), ProducerState()
        self.coordinator_epoch = self.rng.randrange(3)
        self.clients: list[Client] = []
        self.next_producer_id = self.rng.choice((0, 7, 1 << 33))
        leaps = {self.rng.randrange(1, max(self.segments_wanted, 2)) for _ in range(self.rng.randrange(3))}
        for index in range(self.segments_wanted):
            self.segments.append(Segment(self.end_offset))
            if index in leaps:
                self.clock += self.rng.choice((EXPIRATION_MS // 2, EXPIRATION_MS, 3 * EXPIRATION_MS))
            if index == self.leap_at:
                self.clock += 3 * EXPIRATION_MS
            for _ in range(self.rng.randrange(1, 9)):
                self._step()
            self._close()

    @property
    def log(self) -> GeneratedLog:
        """All segments as one."""
        return GeneratedLog(tuple(batch for segment in self.segments for batch in segment.batches))

    def _close(self) -> None:
        segment = self.segments[-1]
        segment.whole, segment.live, segment.clock = dict(self.whole.entries), dict(self.live.entries), self.clock

    def _step(self) -> None:
        rng = self.rng
        self.clock += rng.choice((0, 1, 10, 40, 120))
        if rng.random() < 0.3:
            self.live.remove_expired(self.clock, EXPIRATION_MS)
        if rng.random() < 0.05:
            self.coordinator_epoch += 1
        if len(self.clients) < (3 if self.is_steady else 1) or (not self.is_steady and rng.random() < 0.12):
            self.clients.append(self._arrival())
        if len(self.clients) > 1 and rng.random() < (0.005 if self.is_steady else 0.1):
            self.clients.pop(rng.randrange(len(self.clients)))  # it falls silent, perhaps inside a transaction
        if rng.random() < 0.05:
            count = rng.randrange(1, 4)
            header = header_of(self.end_offset, last_offset_delta=count - 1, record_count=count, max_timestamp=self._client_time())
            self._append(batch_of(header, b""))
            return
        client = rng.choice(self.clients)
        self._append(self._transactional_step(client) if client.is_transactional else self._idempotent_step(client))

    def _arrival(self) -> Client:
        rng = self.rng
        self.next_producer_id += rng.randrange(1, 3)
        is_transactional = rng.random() < 0.6
        client = Client(self.next_producer_id, is_transactional)
        if is_transactional:
            client.is_bumping = rng.random() < 0.4
            client.has_sequences = rng.random() > 0.1
            client.epoch = rng.choice((0, 0, 3))  # its id may have been used on other partitions before
        return client

    def _client_time(self) -> int:
        skew = self.rng.choice((0, 0, 0, 0, 0, -30, 30, -EXPIRATION_MS // 2, -2 * EXPIRATION_MS, 5 * EXPIRATION_MS, None))
        return -1 if skew is None else self.clock + skew

    def _data(self, client: Client) -> LogBatch:
        return client.data(self.end_offset, self.rng.choice((1, 1, 2, 5)), self._client_time())

    def _idempotent_step(self, client: Client) -> LogBatch:
        if self.rng.random() < 0.08:
            client.restart()
        return self._data(client)

    def _transactional_step(self, client: Client) -> LogBatch:
        draw = self.rng.random()
        if client.is_open:
            if draw < 0.5:
                return self._data(client)
            return self._marker(client, fence=draw > 0.9)
        if draw < 0.15:
            return self._marker(client)  # a transaction without any batch in this partition
        if draw < 0.2 and not client.is_bumping and not self.is_steady:
            return self._data(client)  # too late, after its marker: it hangs until the next one
        if draw < 0.3:
            client.restart()
        client.is_open = True
        return self._data(client)

    def _marker(self, client: Client, *, fence: bool = False) -> LogBatch:
        # Coordinators' clocks are those of brokers: nearly right.
        timestamp = self.clock + self.rng.choice((0, 0, 0, -5, 5))
        return client.marker(self.end_offset, timestamp, self.coordinator_epoch, commit=self.rng.random() < 0.5, fence=fence)

    def _append(self, batch: LogBatch) -> None:
        self.segments[-1].batches.append(batch)
        self.end_offset = batch.header.last_offset + 1
        for state in (self.whole, self.live):
            list(state.append([] if batch.meaning is None else [batch.meaning]))

    # ------------------------------------------------------------------------------------------------------------ what is there

    @property
    def boundaries(self) -> list[int]:
        """The offset after each segment."""
        return [*(segment.base_offset for segment in self.segments[1:]), self.end_offset]

    def forget(self, offset: int) -> Entries:
        """The whole state at a boundary without what the live broker may have swept until then, decided anew."""
        segment = self.segments[self.boundaries.index(offset)]
        return {
            key: entry
            for key, entry in segment.whole.items()
            if not is_expired(entry, segment.clock, EXPIRATION_MS) or self.rng.random() < 0.5
        }

    def folded(self, offset: int, deleted: int = 0) -> Entries:
        """The fold of every batch that ends below ``offset``, or of what is left of them when the first segments are gone."""
        state = ProducerState()
        for batch in (batch for segment in self.segments[deleted:] for batch in segment.batches):
            if batch.header.last_offset < offset and batch.meaning is not None:
                list(state.append([batch.meaning]))
        return dict(state.entries)

    def write(self, directory: Path, snapshots: Mapping[int, Iterable[ProducerEntry]], deleted: int = 0) -> PartitionDir:
        """A partition directory without the first ``deleted`` segments."""
        directory.mkdir(parents=True)
        for segment in self.segments[deleted:]:
            (directory / f"{segment.base_offset:020d}.log").write_bytes(segment.data)
        for offset, entries in snapshots.items():
            (directory / snapshot_name(offset)).write_bytes(snapshot_bytes(entries))
        return listed(directory)


def listed(directory: Path) -> PartitionDir:
    """A partition directory as the program lists it."""
    name = parse_partition_dir_name(directory.name)
    assert name is not None
    return list_partition_dir(str(directory), name)
