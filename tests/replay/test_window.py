"""The window: where it begins, what a witness may be believed, what stays open. Each condition has an example that needs it.

Every example is a small log in two parts, below the window and inside it. Its state is the specification fold over both. The proof as a
whole is tested in ``tests/snapshots/test_replay_window.py``, against full replays of thousands of generated logs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest
from effects import array_of, effect_of, state_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from reference_producer_state import EmptyControlBatch, ProducerState
from simulated_broker import EXPIRATION_MS, Client, Entries, loaded
from strategies import CONTROL, LogBatch, batch_of, header_of

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect
from snaprebuild.replay.window import (
    GAPS_LISTED_MAX,
    WindowState,
    expired_mask,
    is_expired,
    same_when_loaded,
    settle,
    window_start,
    witness_fault,
)

NOW = 1_000_000
OLD, YOUNG = NOW - 2 * EXPIRATION_MS, NOW - 10
CLOCK = {"as_of_ms": NOW, "expiration_ms": EXPIRATION_MS}


def fold(batches: Iterable[LogBatch]) -> Entries:
    state = ProducerState()
    list(state.append(batch.meaning for batch in batches if batch.meaning is not None))
    return dict(state.entries)


def entries_in(array: np.ndarray) -> Entries:
    found = {row[0]: ProducerEntry(*row) for row in array.tolist()}
    assert list(found) == sorted(found)
    assert len(found) == len(array)
    return found


@dataclass
class Log:
    """A log with a window and a boundary in it.

    Attributes:
        batches: all of them.
        window, boundary: counts of batches below.
    """

    batches: list[LogBatch] = field(default_factory=list)
    window: int = 0
    boundary: int = 0
    end: int = 0

    def data(self, client: Client, timestamp: int = YOUNG, count: int = 1) -> int:
        return self.add(client.data(self.end, count, timestamp))

    def marker(self, client: Client, timestamp: int = YOUNG, coordinator_epoch: int = 4) -> int:
        return self.add(client.marker(self.end, timestamp, coordinator_epoch, commit=True))

    def add(self, batch: LogBatch) -> int:
        self.batches.append(batch)
        self.end = batch.header.last_offset + 1
        return batch.header.base_offset

    def begin_window(self) -> None:
        self.window = len(self.batches)

    def set_boundary(self) -> None:
        self.boundary = len(self.batches)

    @property
    def window_offset(self) -> int:
        return self.batches[self.window].header.base_offset

    @property
    def prefix(self) -> SegmentEffect:
        return effect_of(self.batches[self.window : self.boundary])

    @property
    def total(self) -> SegmentEffect:
        return effect_of(self.batches[self.window :])

    @property
    def truth(self) -> Entries:
        """At the boundary, as a broker loads it now."""
        return loaded(fold(self.batches[: self.boundary]).values(), NOW)

    @property
    def witness(self) -> Entries:
        """State of a broker at the end, expired entries and all."""
        return fold(self.batches)

    def fault(self, witness: Entries | None = None, *, first_offset: int = 0) -> str | None:
        entries = self.witness if witness is None else witness
        return witness_fault(
            self.total, state_of(entries.values()), window_offset=self.window_offset, first_offset=first_offset, **CLOCK
        )

    def settled(self, witness: Entries | None = None) -> WindowState:
        entries = self.witness if witness is None else witness
        return settle(self.prefix, self.total, state_of(entries.values()), **CLOCK)

    def alone(self) -> WindowState:
        """Without any witness."""
        return settle(self.prefix, self.total, IDENTITY, **CLOCK)


Step = Callable[[Log], object]
WINDOW: Step = Log.begin_window
BOUNDARY: Step = Log.set_boundary


def writes(client: Client, timestamp: int = YOUNG, count: int = 1) -> Step:
    """A batch of data."""
    return lambda log: log.data(client, timestamp, count)


def closes(client: Client, timestamp: int = YOUNG, coordinator_epoch: int = 4) -> Step:
    """A marker."""
    return lambda log: log.marker(client, timestamp, coordinator_epoch)


def leaves_nothing(log: Log) -> None:
    """An empty control batch of producer 9."""
    header = header_of(log.end, attributes=CONTROL, producer_id=9, producer_epoch=1, record_count=0)
    log.add(batch_of(header, b"", EmptyControlBatch(9)))


def log_of(*steps: Step) -> Log:
    """A log in which all of this happens, one after the other."""
    log = Log()
    for step in steps:
        step(log)
    return log


def gaps(state: WindowState) -> set[tuple[str, int]]:
    assert state.gap_count == len(state.gaps)
    return {(gap.name, gap.producer_id) for gap in state.gaps}


def idempotent(producer_id: int = 7, **fields: int) -> Client:
    return Client(producer_id, is_transactional=False, **fields)


def transactional(producer_id: int = 9, **fields: int) -> Client:
    return Client(producer_id, is_transactional=True, **{"epoch": 1, **fields})


# ---------------------------------------------------------------------------------------------------------------- where it begins


@pytest.mark.parametrize(
    ("largest", "index"),
    [
        ([], 0),
        ([OLD, OLD], 2),
        ([OLD, YOUNG, OLD, YOUNG], 1),
        ([YOUNG, OLD], 0),
        ([OLD, OLD, YOUNG], 2),
        ([OLD, NOW + 10**9, OLD], 1),
        ([-1, -1, YOUNG], 2),
        ([OLD, None, OLD], 1),
        ([NOW - EXPIRATION_MS, NOW - EXPIRATION_MS + 1], 1),
    ],
)
def test_window_begins_at_the_earliest_young_segment(largest: list[int | None], index: int) -> None:
    assert window_start(largest, NOW, EXPIRATION_MS) == index


# ---------------------------------------------------------------------------------------------------------------- expiry

entries = st.lists(
    st.builds(
        ProducerEntry,
        st.integers(0, 5),
        epoch=st.integers(0, 1),
        timestamp=st.sampled_from((-1, 0, OLD, NOW - EXPIRATION_MS, NOW - EXPIRATION_MS + 1, YOUNG, NOW + 10**9)),
        current_txn_first_offset=st.sampled_from((-1, -1, 0, 5)),
    ),
    unique_by=lambda entry: entry.producer_id,
    max_size=4,
)


@given(entries)
def test_expired_as_kafka_sees_it(found: list[ProducerEntry]) -> None:
    assert expired_mask(array_of(found), NOW, EXPIRATION_MS).tolist() == [is_expired(it, NOW, EXPIRATION_MS) for it in found]


@given(entries, entries, st.randoms(use_true_random=False))
def test_same_when_loaded(one: list[ProducerEntry], other: list[ProducerEntry], rng: object) -> None:
    """They are compared as maps, whatever the order, after the filter of ``loadFromSnapshot`` on both sides."""
    same = loaded(one, NOW) == loaded(other, NOW)
    assert same_when_loaded(array_of(one), array_of(other), NOW, EXPIRATION_MS) is same
    assert same_when_loaded(array_of(one), array_of(reversed(one)), NOW, EXPIRATION_MS)
    assert same_when_loaded(array_of(one), array_of(loaded(one, NOW).values()), NOW, EXPIRATION_MS)


# ---------------------------------------------------------------------------------------------------------------- the four gaps


def test_g1_batch_that_a_marker_keeps() -> None:
    """A marker keeps the one batch of an epoch: the window alone would write an entry without it, and refuse a live producer."""
    client = transactional(sequence=5)
    log = log_of(writes(client, OLD), WINDOW, closes(client), BOUNDARY)
    assert log.truth[9].last_sequence == 5
    assert entries_in(log.alone().entries)[9].last_sequence == -1
    assert gaps(log.alone()) == {("G1", 9)}
    assert gaps(log.settled()) == {("G1", 9)}
    log.data(client)
    log.set_boundary()
    assert gaps(log.settled()) == set()
    assert entries_in(log.settled().entries) == log.truth


def test_g1_empty_control_batch_alone() -> None:
    log = log_of(writes(transactional(), OLD), WINDOW, leaves_nothing, BOUNDARY)
    assert log.truth[9].current_txn_first_offset == 0
    assert gaps(log.settled()) == {("G1", 9)}


def test_g2_transaction_that_continues_in_the_window() -> None:
    """The window would let it begin at its first batch there; while it is open the witness names the true one."""
    client = transactional()
    log = log_of(closes(client, OLD), writes(client, OLD), WINDOW, writes(client), BOUNDARY, writes(client))
    assert entries_in(log.alone().entries)[9].current_txn_first_offset == log.window_offset
    assert gaps(log.alone()) == {("G2", 9), ("G4", 9)}
    assert log.fault() is None
    assert gaps(log.settled()) == set()
    assert entries_in(log.settled().entries) == log.truth
    assert log.truth[9].current_txn_first_offset == log.batches[1].header.base_offset
    log.marker(client)
    assert log.fault() is None
    assert gaps(log.settled()) == {("G2", 9), ("G4", 9)}, "closed behind the boundary: the witness says nothing any more"
    log.data(client)
    assert log.fault() is None
    assert gaps(log.settled()) == {("G2", 9), ("G4", 9)}, "what it says is of the next transaction"


def test_g3_transaction_without_a_batch_in_the_window() -> None:
    """Nothing in the window shows it; its marker after the boundary does, and while it is open the witness does."""
    client = transactional()
    below = (closes(client, OLD), writes(client, OLD))
    log = log_of(*below, WINDOW, writes(idempotent()), BOUNDARY, writes(idempotent(sequence=1)))
    assert gaps(log.alone()) == set(), "not visible"
    assert 9 in log.truth
    assert 9 not in entries_in(log.alone().entries)
    assert log.fault() is None
    assert gaps(log.settled()) == set()
    assert entries_in(log.settled().entries) == log.truth
    log.marker(client)
    assert log.fault() is None
    assert gaps(log.settled()) == {("G3", 9)}


def test_g4_coordinator_epoch_below_the_window() -> None:
    client = transactional()
    log = log_of(closes(client, OLD, coordinator_epoch=6), WINDOW, writes(client), BOUNDARY)
    assert log.truth[9].coordinator_epoch == 6
    assert entries_in(log.alone().entries)[9].coordinator_epoch == -1
    assert ("G4", 9) in gaps(log.alone())
    assert gaps(log.settled()) == set()
    assert entries_in(log.settled().entries) == log.truth
    assert log.truth[9].current_txn_first_offset == log.window_offset
    # A marker after the boundary hides what the witness knew, and one that expired has forgotten it.
    forgetful = {9: replace(log.witness[9], coordinator_epoch=-1)}
    assert log.fault(forgetful) is None
    assert gaps(log.settled(forgetful)) == {("G4", 9)}
    log.marker(client, coordinator_epoch=8)
    assert ("G4", 9) in gaps(log.settled())


def test_g4_is_no_gap_of_a_producer_that_writes_outside_of_transactions() -> None:
    client = idempotent(sequence=3)
    log = log_of(writes(client, OLD), WINDOW, writes(client), BOUNDARY, writes(client))
    for state in (log.alone(), log.settled()):
        assert gaps(state) == set()
        assert entries_in(state.entries) == log.truth


def test_g4_of_a_new_producer_whose_first_transaction_was_empty() -> None:
    """Epoch 0 and sequence 0 is its first batch, but an empty transaction left a marker before."""
    client = transactional(epoch=0)
    below = closes(client, OLD, coordinator_epoch=6)
    log = log_of(below, WINDOW, writes(client), BOUNDARY, closes(client, coordinator_epoch=7))
    assert log.truth[9].coordinator_epoch == 6
    assert gaps(log.settled()) == {("G4", 9)}, "its transaction cannot have begun before its first batch"


def test_g4_of_a_silent_producer_with_an_open_transaction() -> None:
    """Its entry is the witness's; where that has no coordinator epoch, the broker may have forgotten it before."""
    log = log_of(writes(transactional(), OLD), WINDOW, writes(idempotent()), BOUNDARY)
    assert log.truth[9].coordinator_epoch == -1
    assert gaps(log.settled()) == {("G4", 9)}
    known = {**log.witness, 9: replace(log.witness[9], coordinator_epoch=2)}
    assert gaps(log.settled(known)) == set()
    assert entries_in(log.settled(known).entries)[9] == known[9]


def test_expired_entry_of_which_the_coordinator_epoch_is_not_known() -> None:
    """Left out; one whose transaction may be open is a gap, however old."""
    log = log_of(WINDOW, writes(transactional(), OLD), writes(idempotent()), BOUNDARY)
    assert gaps(log.alone()) == {("G2", 9), ("G4", 9)}
    closed = log_of(WINDOW, writes(idempotent(8, sequence=4), OLD), writes(idempotent()), BOUNDARY)
    assert gaps(closed.alone()) == set()
    assert set(entries_in(closed.alone().entries)) == {7, 8}


# ----------------------------------------------------------------------------------------------------------------- after the boundary


def test_producers_that_come_up_behind_the_boundary() -> None:
    """A first batch is no gap. Of the others older batches may exist, and only a time index shows how old they are; none was open."""
    behind = (transactional(20, epoch=0), idempotent(21, sequence=8, epoch=2), transactional(22, sequence=3))
    log = log_of(WINDOW, writes(idempotent()), BOUNDARY, *map(writes, behind))
    witness = {**log.witness, 22: replace(log.witness[22], coordinator_epoch=1)}
    assert log.fault(witness) is None
    assert gaps(log.settled(witness)) == {("G5", 21), ("G5", 22)}
    assert entries_in(log.settled(witness).entries) == log.truth
    assert gaps(log.alone()) == {("G3", 22), ("G5", 21)}
    earlier = {**witness, 22: replace(witness[22], current_txn_first_offset=-1)}
    assert gaps(log.settled(earlier)) == {("G3", 22), ("G5", 21)}


def test_empty_control_batch_behind_the_boundary() -> None:
    """It neither closes nor opens a transaction: one may have been open all the time, or closed by a marker that was compacted."""
    log = log_of(WINDOW, writes(idempotent()), BOUNDARY, leaves_nothing)
    assert gaps(log.settled()) == {("G3", 9)}


def test_transaction_that_the_witness_lets_begin_below_the_window() -> None:
    """The producer appears after the boundary: its transaction was open at the boundary."""
    client = transactional()
    log = log_of(closes(client, OLD), writes(client, OLD), WINDOW, writes(idempotent()), BOUNDARY, writes(client))
    assert log.fault() is None
    assert gaps(log.settled()) == {("G3", 9)}
    # Closed and begun again after the boundary: what was closed may have been open at it.
    log.marker(client)
    log.data(client)
    assert log.fault() is None
    assert gaps(log.settled()) == {("G3", 9)}


def test_gaps_of_a_kind_are_listed_up_to_a_number() -> None:
    log = log_of(WINDOW, *(closes(transactional(producer)) for producer in range(GAPS_LISTED_MAX + 20)), BOUNDARY)
    state = log.alone()
    assert (state.gap_count, len(state.gaps)) == (GAPS_LISTED_MAX + 20, GAPS_LISTED_MAX)


# ---------------------------------------------------------------------------------------------------------------- the witness


def busy() -> tuple[Log, Entries]:
    """In the window: 1 idempotent, 2 closed, 3 bumped, 4 only a marker, 5 open from below, 6 open inside; 8 is silent there."""
    below, silent, for_marker = transactional(5), transactional(8), transactional(4, sequence=6)
    closed, bumped, inside = transactional(2), transactional(3, is_bumping=True), transactional(6)
    log = log_of(
        *(closes(below, OLD, coordinator_epoch=2), writes(below, OLD), writes(for_marker, OLD)),
        *(closes(silent, OLD, coordinator_epoch=2), writes(silent, OLD)),
        WINDOW,
        writes(idempotent(1, sequence=10), count=3),
        *(writes(closed), closes(closed, coordinator_epoch=3), writes(bumped), closes(bumped, coordinator_epoch=3)),
        *(closes(for_marker, coordinator_epoch=3), writes(below), closes(inside, coordinator_epoch=3)),
        *(writes(inside), writes(inside)),
        BOUNDARY,
    )
    witness = log.witness
    assert set(witness) == {1, 2, 3, 4, 5, 6, 8}
    assert witness[5].current_txn_first_offset < log.window_offset < witness[6].current_txn_first_offset
    assert (witness[3].last_offset, witness[4].last_offset) == (-1, 2)
    return log, witness


BUSY, RIGHT = busy()


@pytest.mark.parametrize("producer", sorted(set(RIGHT) - {8}))
def test_a_witness_that_lacks_a_live_producer_of_the_window(producer: int) -> None:
    fault = BUSY.fault({key: entry for key, entry in RIGHT.items() if key != producer})
    assert fault is not None
    assert f"lacks producer {producer}" in fault


def wrong_fields() -> list[tuple[int, str, int]]:
    inside = BUSY.window_offset
    found = [(producer, name, step) for producer in sorted(set(RIGHT) - {8}) for name in ("epoch", "timestamp") for step in (-1, 1)]
    for producer in (1, 2, 5, 6):
        found += [(producer, name, step) for name in ("last_sequence", "last_offset", "offset_delta") for step in (-1, 1)]
    found += [(producer, "coordinator_epoch", step) for producer in (2, 3, 4, 6) for step in (-1, 1)]
    found += [(1, "coordinator_epoch", 3)]
    # A batch where a bumped epoch left none, and one inside the window where there is only a marker.
    found += [(3, "last_offset", 1), (4, "last_offset", inside - RIGHT[4].last_offset)]
    # Transactions that are closed, were never begun, or are forgotten; and wrong beginnings, below and above the true one.
    found += [(producer, "current_txn_first_offset", 1 + offset) for producer in (1, 2, 3, 4) for offset in (0, inside)]
    found += [(6, "current_txn_first_offset", step) for step in (-1, 1, -1 - RIGHT[6].current_txn_first_offset)]
    found += [(6, "current_txn_first_offset", -RIGHT[6].current_txn_first_offset)]
    found += [
        (5, "current_txn_first_offset", step) for step in (-1 - RIGHT[5].current_txn_first_offset, inside - 1, inside, inside + 1)
    ]
    return found


@pytest.mark.parametrize(("producer", "name", "step"), wrong_fields())
def test_a_witness_that_contradicts_a_batch_of_the_window(producer: int, name: str, step: int) -> None:
    wrong = {**RIGHT, producer: replace(RIGHT[producer], **{name: getattr(RIGHT[producer], name) + step})}
    fault = BUSY.fault(wrong)
    assert fault is not None
    assert f"contradicts the replay for producer {producer}" in fault


def test_fields_in_which_no_batch_of_the_window_contradicts_a_witness() -> None:
    """The complete list of what is believed of producers with a batch in the window."""
    first_inside = next(batch.header.base_offset for batch in BUSY.batches[BUSY.window :] if batch.header.producer_id == 5)
    for producer, changes in (
        (5, {"coordinator_epoch": 9}),
        (5, {"current_txn_first_offset": 0}),
        (5, {"current_txn_first_offset": first_inside}),
        (4, {"last_offset": -1, "last_sequence": -1}),
        (4, {"last_offset": 1}),
        (4, {"last_sequence": 77}),
        (4, {"offset_delta": 1}),
    ):
        assert BUSY.fault({**RIGHT, producer: replace(RIGHT[producer], **changes)}) is None


def test_a_window_without_a_live_producer_confirms_nothing() -> None:
    log = log_of(WINDOW, writes(idempotent(8), OLD), BOUNDARY)
    assert "no live producer" in str(log.fault())
    assert "no live producer" in str(log.fault({}))


def test_a_silent_producer_cannot_have_a_batch_in_the_window() -> None:
    silent = (closes(transactional(8), OLD), writes(transactional(8), OLD))
    log = log_of(*silent, WINDOW, writes(idempotent()), writes(idempotent(sequence=1)), BOUNDARY)
    assert log.fault() is None
    inside = log.window_offset
    for change in ({"last_offset": inside}, {"current_txn_first_offset": inside + 1}):
        assert "names an offset inside it" in str(log.fault({**log.witness, 8: replace(log.witness[8], **change)}))


def test_a_silent_producer_is_old_or_has_a_transaction_open_or_was_deleted() -> None:
    """Else the window began too late, or the witness is wrong."""
    log = log_of(writes(idempotent(6), OLD), writes(idempotent(8), OLD), WINDOW, writes(idempotent()), BOUNDARY)
    witness = log.witness
    assert log.fault() is None
    young = {**witness, 8: replace(witness[8], timestamp=YOUNG)}
    assert "young and has no batch" in str(log.fault(young))
    assert "young and has no batch" in str(log.fault(young, first_offset=1))
    assert log.fault(young, first_offset=2) is None
    without = {**witness, 8: ProducerEntry(8, 1, timestamp=YOUNG, coordinator_epoch=2)}
    assert "young and has no batch" in str(log.fault(without))
    assert log.fault(without, first_offset=1) is None
    opened = {**witness, 8: replace(young[8], current_txn_first_offset=1)}
    assert log.fault(opened) is None
    assert entries_in(log.settled(young).entries)[8] == young[8]
