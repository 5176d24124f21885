"""Stores of orderly clients, whose clocks are right: copies of segments with the snapshots of a broker that never lost anything.

The right state at each boundary is the fold of ``reference_producer_state`` from offset 0, which shares no line with the code under test.
"""

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

from log_dirs import snapshot_bytes
from msgspec.structs import replace
from reference_producer_state import ProducerState
from simulated_broker import Client
from strategies import LogBatch
from tiers import TOPIC_ID, Copy, epochs_text, id_text, write_tier

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.producer_snapshot import ProducerEntry
from formats.remote.aiven_manifest import SegmentIndex
from formats.remote.aiven_upload import plain_indexes, plain_manifest
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentId, SegmentState, TopicIdPartition

START_MS = 1_795_000_000_000
MINUTE_MS = 60_000
DAY_MS = 86_400_000
SEGMENTS = 7

Entries = dict[int, ProducerEntry]


@dataclass
class Store:
    """Segments with the right snapshot at the end of each.

    Attributes:
        bases: of the segments.
        segments: their batches.
        states: the right entries at their ends.
        times: largest timestamp below their ends.
    """

    bases: list[int] = field(default_factory=list)
    segments: list[list[LogBatch]] = field(default_factory=list)
    states: list[Entries] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    @property
    def as_of_ms(self) -> int:
        return self.times[-1] + MINUTE_MS

    def data(self, number: int) -> bytes:
        return b"".join(batch.data for batch in self.segments[number])

    def write(self, root: Path, snapshots: list[Entries], deleted: int = 0) -> Path:
        """Without the first ``deleted`` segments."""
        copies = []
        for number in range(deleted, len(self.bases)):
            base, newest = self.bases[number], max(self.segments[number], key=lambda batch: batch.header.max_timestamp).header
            snapshot = snapshot_bytes(snapshots[number].values())
            copies.append(Copy(base, self.data(number), ((3, 0),), snapshot, newest.max_timestamp, newest.last_offset - base))
        return write_tier(root, "t", 0, copies)

    def write_aiven(self, root: Path, snapshots: list[Entries], deleted: int = 0) -> None:
        """In the layout of Aiven's plugin, without the first ``deleted`` segments."""
        partition = TopicIdPartition("t", TOPIC_ID, 0)
        directory = root / f"t-{id_text(TOPIC_ID)}" / "0"
        directory.mkdir(parents=True)
        for number in range(deleted, len(self.bases)):
            base, data = self.bases[number], self.data(number)
            newest = max(self.segments[number], key=lambda batch: batch.header.max_timestamp).header
            last = self.segments[number][-1].header.last_offset
            segment_id = bytes((number + 1,)) * 16
            segment = RemoteSegment(
                id=RemoteSegmentId(partition, segment_id),
                segment_id=segment_id,
                start_offset=base,
                end_offset=last,
                broker_id=1,
                max_timestamp_ms=newest.max_timestamp,
                event_timestamp_ms=newest.max_timestamp,
                leader_epochs=(LeaderEpochEntry(3, base),),
                size_bytes=len(data),
                custom_metadata=None,
                state=SegmentState.COPY_SEGMENT_STARTED,
                txn_index_empty=True,
            )
            indexes = {
                SegmentIndex.OFFSET: b"",
                SegmentIndex.TIMESTAMP: struct.pack(">qi", newest.max_timestamp, newest.last_offset - base),
                SegmentIndex.PRODUCER_SNAPSHOT: snapshot_bytes(snapshots[number].values()),
                SegmentIndex.LEADER_EPOCH: epochs_text([(3, 0)]).encode(),
                SegmentIndex.TRANSACTION: None,
            }
            stem = directory / f"{base:020d}-{id_text(segment_id)}"
            stem.with_suffix(".log").write_bytes(data)
            stem.with_suffix(".indexes").write_bytes(plain_indexes(indexes))
            stem.with_suffix(".rsm-manifest").write_bytes(plain_manifest(segment, 1 << 20, indexes))


def generated_store(seed: int, *, has_transactions: bool = False, expires: bool = False, first_epoch: int = 0) -> Store:
    """A log of eight clients. Two write at first only; with ``expires`` they are forgotten on the second of three days."""
    rng, store, state, clock, offset = random.Random(seed), Store(), ProducerState(), START_MS, 0
    clients = [
        Client(1000 + number, is_transactional=has_transactions and number % 4 == 1, epoch=first_epoch) for number in range(8)
    ]
    for number in range(SEGMENTS):
        store.bases.append(offset)
        batches: list[LogBatch] = []
        writers = clients if number == 0 else rng.sample(clients[2:], 4)
        for client in [*writers, *rng.choices(clients[2:] if number else clients, k=6)]:
            clock += rng.choice((MINUTE_MS, 2 * MINUTE_MS))
            steps = [client.data(offset, rng.choice((1, 2, 4)), clock)]
            if client.is_transactional:
                steps.append(client.marker(steps[0].header.last_offset + 1, clock + 1, 3, commit=True))
            for step in steps:
                batches.append(step)
                offset = step.header.last_offset + 1
                assert step.meaning is not None
                list(state.append([step.meaning]))
        if expires and number in (2, 4):
            clock += DAY_MS
        if expires:
            state.remove_expired(max(batch.header.max_timestamp for batch in batches), DAY_MS)
        store.segments.append(batches)
        store.states.append(dict(state.entries))
        store.times.append(max(batch.header.max_timestamp for each in store.segments for batch in each))
    return store


def without(entries: Entries, producer: int) -> Entries:
    return {key: entry for key, entry in entries.items() if key != producer}


def changed(entries: Entries, producer: int, **fields: int) -> Entries:
    return {**entries, producer: replace(entries[producer], **fields)}


FAULTS = (
    *("empty", "a silent producer is missing", "a silent producer is missing from here on", "a writing producer is missing"),
    *("sequence", "epoch", "older sequence", "timestamp", "open transaction", "stale", "invented producer", "older batch"),
)
"""Faults of one snapshot, or of all from one on."""


def spoilt(store: Store, place: int, fault: str) -> list[Entries]:
    """The snapshots with a fault at a place."""
    states = [dict(each) for each in store.states]
    own = states[place]
    silent, writing = min(own), max(own, key=lambda key: own[key].last_offset)
    match fault:
        case "empty":
            states[place] = {}
        case "a silent producer is missing":
            states[place] = without(own, silent)
        case "a silent producer is missing from here on":
            states[place:] = [without(each, silent) for each in states[place:]]
        case "a writing producer is missing":
            states[place] = without(own, writing)
        case "sequence":
            states[place] = changed(own, writing, last_sequence=own[writing].last_sequence + 1)
        case "older sequence":
            states[place] = changed(own, silent, last_sequence=own[silent].last_sequence + 5)
        case "epoch":
            states[place] = changed(own, silent, epoch=own[silent].epoch + 1)
        case "timestamp":
            states[place] = changed(own, silent, timestamp=own[silent].timestamp - 1)
        case "open transaction":
            states[place] = changed(own, silent, current_txn_first_offset=own[silent].last_offset)
        case "stale":
            states[place] = dict(store.states[place - 1]) if place else {}
        case "invented producer":
            states[place] = {**own, 77: replace(own[silent], producer_id=77)}
        case "older batch":
            states[place] = changed(own, writing, last_offset=0, last_sequence=0)
    return states
