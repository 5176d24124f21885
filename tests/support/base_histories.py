"""Histories of logs whose beginning was deleted, and snapshots at their first offset that are right, or wrong in some way.

The history is that of a simulated broker, whose states are known. Its clients number their batches, bump epochs, are fenced, end empty
transactions, expire and come back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from base_rules import Rule, as_loaded
from index_reference import write_transaction_index
from log_dirs import snapshot_name
from msgspec.structs import replace
from reference_producer_state import InvalidTransactionStateError, ProducerState
from replays import put_snapshot
from simulated_broker import EXPIRATION_MS, START_MS, Client, Entries, SimulatedBroker, listed
from strategies import LogBatch

from formats.partition.producer_snapshot import ProducerEntry
from formats.partition.transaction_index import AbortedTransaction
from snaprebuild.replay.window import Clock, is_expired
from snaprebuild.snapshots.engine.first_snapshot import FirstSnapshot
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, PartitionReplay, ReplayFrom
from snaprebuild.snapshots.engine.segment_reader import Pieces, read_segment, read_tasks

GHOST = 1 << 40
"""A producer that never was."""


@dataclass
class Broker(SimulatedBroker):
    """With clocks of clients that differ from its own by little: by how much a producer is old does not depend on them."""

    indexes: dict[int, list[AbortedTransaction]] = field(default_factory=dict)

    def _client_time(self) -> int:
        return self.clock + self.rng.choice((0, 0, 0, -15, 15))

    def _data(self, client: Client) -> LogBatch:
        """A broker that knows the producer by a marker alone takes sequence 0 (``ProducerAppendInfo.checkSequence``)."""
        entry = self.live.entries.get(client.producer_id)
        if entry is not None and entry.epoch == client.epoch and entry.last_offset < 0 and client.sequence > 0:
            client.restart()
        return super()._data(client)

    def index_entries(self, deleted: int) -> dict[int, list[AbortedTransaction]]:
        """The transaction indexes of the segments that are left, by base offset."""
        state, found = ProducerState(), dict[int, list[AbortedTransaction]]()
        for number, segment in enumerate(self.segments):
            for batch in segment.batches:
                for closed in state.append([] if batch.meaning is None else [batch.meaning]):
                    others = [first for first, key in state.ongoing.items() if key != closed.producer_id]
                    stable = min(others, default=closed.last_offset + 1)
                    if closed.is_aborted and number >= deleted:
                        entry = AbortedTransaction(0, closed.producer_id, closed.first_offset, closed.last_offset, stable)
                        found.setdefault(segment.base_offset, []).append(entry)
        return found


@dataclass(frozen=True)
class History:
    """A log from its first retained offset on, and what is true of it.

    Attributes:
        broker: that wrote it.
        deleted: count of segments that are gone.
        indexes: transaction indexes that are there, by base offset.
    """

    broker: Broker
    deleted: int
    indexes: dict[int, list[AbortedTransaction]]

    @property
    def first_offset(self) -> int:
        return self.broker.segments[self.deleted].base_offset

    @property
    def boundaries(self) -> list[int]:
        return self.broker.boundaries[self.deleted :]

    def live(self, offset: int) -> Entries:
        """The entries that the broker had there, without those that it had forgotten."""
        return self.broker.segments[self.broker.boundaries.index(offset)].live

    def whole(self, offset: int) -> Entries:
        """The fold from offset 0."""
        return self.broker.segments[self.broker.boundaries.index(offset)].whole

    def clock(self, offset: int) -> int:
        """The broker's, when the segment after the boundary begins: it writes a snapshot then."""
        number = self.broker.boundaries.index(offset)
        following = self.broker.segments[number + 1 : number + 2]
        stamps = [batch.header.max_timestamp for segment in following for batch in segment.batches[:1]]
        return max([self.broker.segments[number].clock, *stamps])

    def on(self, base: Entries, start: int | None = None) -> dict[int, Entries]:
        """The fold of what is retained on some entries, by boundary; up to a batch at which Kafka throws."""
        state, found = ProducerState(), dict[int, Entries]()
        state.load(base.values(), 0, EXPIRATION_MS)
        segments = self.broker.segments[self.deleted if start is None else start :]
        ends = self.broker.boundaries[self.deleted if start is None else start :]
        try:
            for segment, offset in zip(segments, ends, strict=True):
                list(state.append(batch.meaning for batch in segment.batches if batch.meaning is not None))
                found[offset] = dict(state.entries)
        except InvalidTransactionStateError:
            pass
        return found

    def rule(self, base: Base) -> Rule:
        """The rule over it."""
        segments = [(each.base_offset, each.batches) for each in self.broker.segments[self.deleted :]]
        evidence = {at: found for at, found in base.snapshots.items() if at not in base.ours}
        indexes = [entry for entries in self.indexes.values() for entry in entries]
        end = self.broker.end_offset
        return Rule(self.first_offset, base.entries, segments, end, evidence, indexes, EXPIRATION_MS, self.broker.clock)


@dataclass(frozen=True)
class Base:
    """A snapshot at the first offset, and the later ones next to it.

    Attributes:
        kind: what it is.
        snapshots: by offset.
        ours: offsets of snapshots that this program wrote.
        is_right: the broker wrote it, and nothing about it is wrong.
        lost: producers of which its broker had lost the state.
    """

    kind: str
    entries: Entries
    snapshots: dict[int, Entries]
    ours: frozenset[int] = frozenset()
    is_right: bool = False
    lost: frozenset[int] = frozenset()


def history_of(seed: int, clock: int = START_MS) -> History:
    """The history of a seed, from a moment on."""
    rng = random.Random(~seed)
    broker = Broker(seed, rng.randrange(3, 9), is_steady=rng.random() < 0.3, clock=clock)
    deleted = rng.randrange(1, len(broker.segments))
    indexes = broker.index_entries(deleted) if rng.random() < 0.7 else {}
    return History(broker, deleted, indexes)


def bases_of(history: History, seed: int) -> Iterator[Base]:
    """A right one, and some that are wrong."""
    rng = random.Random(seed)
    right = dict(history.live(history.first_offset))
    share = rng.choice((0.3, 0.7, 1.0))
    later = {at: dict(history.live(at)) for at in history.boundaries if rng.random() < share}
    yield Base("right", right, later, is_right=True)
    kinds = rng.sample(sorted(WRONG), 3)
    for kind in kinds:
        changed = WRONG[kind](dict(right), history.first_offset, rng)
        if changed is not None and changed != right:
            yield Base(kind, changed, later)
    for make in (_lost, _repaired):
        made = make(history, later, rng)
        if made is not None and rng.random() < 0.5:
            yield made


def _lost(history: History, later: dict[int, Entries], rng: random.Random) -> Base | None:
    """Its broker began empty somewhere below, and all of its later snapshots agree."""
    start = rng.randrange(history.deleted + 1)
    since = history.on({}, start)
    if len(since) < len(history.broker.segments) - start:
        return None
    base = since[history.first_offset] if start < history.deleted else {}
    right, whole = history.live(history.first_offset), history.whole(history.first_offset)
    lost = frozenset(key for key in {*right, *base} if base.get(key) not in (right.get(key), whole.get(key)))
    return Base("lost state", base, {at: since[at] for at in later}, lost=lost)


def _repaired(history: History, later: dict[int, Entries], rng: random.Random) -> Base | None:
    """This program wrote the later snapshots, from a base that is wrong."""
    changed = WRONG[rng.choice(sorted(WRONG))](dict(history.live(history.first_offset)), history.first_offset, rng)
    made = {} if changed is None else history.on(changed)
    ends = [at for at in later if at in made]
    if changed is None or not ends:
        return None
    kept = rng.choice(ends)
    mixed = {at: (later[at] if at == kept and rng.random() < 0.3 else made[at]) for at in ends}
    ours = frozenset(at for at in ends if mixed[at] is made[at])
    return Base("repaired before", changed, mixed, ours)


Change = Callable[[Entries, int, random.Random], Entries | None]


def _field(name: str, *deltas: int) -> Change:
    """One entry with another value of a field."""

    def change(entries: Entries, offset: int, rng: random.Random) -> Entries | None:
        if not entries:
            return None
        key = rng.choice(sorted(entries))
        value = getattr(entries[key], name) + rng.choice(deltas)
        if value < -1 or (name in ("last_offset", "last_sequence", "offset_delta") and entries[key].last_offset < 0):
            return None
        if name == "last_offset" and not 0 <= value < offset:
            return None
        return entries | {key: replace(entries[key], **{name: value})}

    return change


def _transaction(entries: Entries, offset: int, rng: random.Random) -> Entries | None:
    """An open transaction that is forgotten, invented, or begins elsewhere."""
    if not entries:
        return None
    key = rng.choice(sorted(entries))
    taken = {each.current_txn_first_offset for each in entries.values()}
    free = [at for at in range(offset) if at not in taken]
    first = -1 if entries[key].current_txn_first_offset >= 0 and rng.random() < 0.6 else rng.choice(free or [-1])
    return entries | {key: replace(entries[key], current_txn_first_offset=first)}


def _incomplete(entries: Entries, offset: int, rng: random.Random) -> Entries | None:
    if not entries:
        return None
    del entries[rng.choice(sorted(entries))]
    return entries


def _ghost(entries: Entries, offset: int, rng: random.Random) -> Entries | None:
    stamp = max((entry.timestamp for entry in entries.values()), default=1_000_000)
    return entries | {GHOST: ProducerEntry(GHOST, 1, 4, offset - 1, 0, stamp, rng.choice((-1, 2)), -1)}


WRONG: dict[str, Change] = {
    "epoch": _field("epoch", -1, 1, 2),
    "sequence": _field("last_sequence", -1, 1, 5),
    "last offset": _field("last_offset", -1, -2, 1),
    "delta": _field("offset_delta", 1, 3),
    "timestamp": _field("timestamp", -7, 9, -2 * EXPIRATION_MS),
    "coordinator epoch": _field("coordinator_epoch", -1, 1, 3),
    "transaction": _transaction,
    "incomplete": _incomplete,
    "ghost": _ghost,
}


# ------------------------------------------------------------------------------------------------------------------------ replays


class Replays:
    """Replays one log on many bases; its segments are read once."""

    def __init__(self, history: History, place: Path) -> None:
        self.history = history
        self.path = place / "t-0"
        history.broker.write(self.path, {}, history.deleted)
        for base_offset, entries in history.indexes.items():
            (self.path / f"{base_offset:020d}.txnindex").write_bytes(write_transaction_index(entries))
        directory = listed(self.path)
        tasks = read_tasks(directory, range(len(directory.segments)), check_crc=False, with_first_events=True)
        self.summaries: list[Pieces] = [read_segment(task) for task in tasks]

    def write_base(self, base: Base) -> Path:
        """Writes a base and the snapshots next to it, in place of those that are there. Returns its path."""
        for path in self.path.glob("*.snapshot"):
            path.unlink()
        put_snapshot(self.path, self.history.first_offset, base.entries.values())
        for offset, entries in base.snapshots.items():
            put_snapshot(self.path, offset, entries.values())
        return self.path / snapshot_name(self.history.first_offset)

    def run(self, base: Base) -> tuple[FirstSnapshot, dict[int, BoundaryState]]:
        """The replay on a base: the verdict on it, and the state at each boundary."""
        self.write_base(base)
        directory = listed(self.path)
        clock = Clock(self.history.broker.clock, EXPIRATION_MS)
        replay = PartitionReplay(
            directory=directory,
            mode=ReplayFrom.AUTO,
            clock=clock,
            window_index=0,
            stop_index=len(directory.segments),
            first_wanted=0,
            written_by_us=base.ours,
        )
        states: list[BoundaryState] = []
        for index in replay.begin():
            for summary in self.summaries[index]:
                states += replay.take(index, summary)
        assert not replay.more()
        states += replay.finish()
        assert replay.first_snapshot is not None
        return replay.first_snapshot, {state.offset: state for state in states}


def accepted_states(history: History, base: Base, offset: int, *, is_exact: bool) -> list[Entries]:
    """The true states, and where the class allows it, Kafka's own from the first offset.

    True is the fold from offset 0, and what the broker had, which may have forgotten a producer meanwhile.
    """
    folds = [history.whole(offset), history.live(offset), history.on(history.live(history.first_offset))[offset]]
    if not is_exact:
        folds += [history.on({}).get(offset, {}), history.on(base.entries).get(offset, {})]
    return folds


def wrong_entries(history: History, offset: int, found: Entries, folds: list[Entries]) -> set[int]:
    """Producers whose entry is in none of these states."""
    wrong = set()
    for key in {*found, *history.live(offset)}:
        accepted = [None if key not in fold else as_loaded(fold[key]) for fold in folds]
        entry: ProducerEntry | None = found.get(key)
        true = history.live(offset).get(key)
        has_expired = true is not None and is_expired(true, history.clock(offset), EXPIRATION_MS)
        if entry not in accepted and not (entry is None and has_expired):
            wrong.add(key)
    return wrong
