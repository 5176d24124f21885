"""The replay of a partition: what each class claims holds, whatever the log and whoever wrote the snapshots beside it.

Truth is the fold of ``producer_state`` over the batches as they were generated, from offset 0; it shares no line with the code under test.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_dirs import snapshot_bytes, snapshot_name
from manifests import FIXTURES, PartitionFixture, partition_fixtures
from simulated_broker import EXPIRATION_MS, Client, Entries, SimulatedBroker, listed, loaded
from strategies import CONTROL, LogBatch, batch_of, header_of, message_of

from formats.producer_snapshot import ProducerEntry
from snaprebuild.operations.evidence import Clock
from snaprebuild.operations.replay_partition import BoundaryState, PartitionReplay, ReplayFrom
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.producer_state import ProducerState, is_expired
from snaprebuild.replay.segment_summary import SegmentSummary, summarise_segment
from snaprebuild.replay.window import window_start
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.segment_file import SegmentFile

PROVEN = (SnapshotClass.LOAD_EQUIVALENT, SnapshotClass.SUPERSET_SAFE)
WEAK = (SnapshotClass.UNPROVEN, SnapshotClass.UNSOUND)
EXACT, EXACT_FROM_LOG_START = SnapshotClass.EXACT, SnapshotClass.EXACT_FROM_LOG_START
UNSOUND, UNPROVEN = SnapshotClass.UNSOUND, SnapshotClass.UNPROVEN
FIXTURE_AS_OF_MS = 1_795_266_500_000
DAY_MS = 86_400_000
EXAMPLES = max(settings.get_profile(settings.get_current_profile_name()).max_examples, 300)
"""So many that what must be reached is reached; the floors below are a quarter of what is usual."""
SEEDS = st.integers(0, 2**64 - 1)


# ---------------------------------------------------------------------------------------------------------------- driving it


@dataclass
class Run:
    """A replay that was driven to its end.

    Attributes:
        replay: it.
        states: in the order handed out.
        extensions: how often it asked for more.
    """

    replay: PartitionReplay
    states: list[BoundaryState] = field(default_factory=list)
    extensions: int = 0

    @property
    def classes(self) -> dict[int, SnapshotClass]:
        return {state.offset: state.judgement.snapshot_class for state in self.states}

    def at(self, offset: int) -> BoundaryState:
        (state,) = [state for state in self.states if state.offset == offset]
        return state


def summary_of(directory: PartitionDir, index: int) -> SegmentSummary:
    segment = directory.segments[index]
    with SegmentFile(directory.file_path(segment.log.name)) as source:
        return summarise_segment(source, segment.base_offset)


def run(
    directory: PartitionDir,
    mode: ReplayFrom = ReplayFrom.AUTO,
    *,
    as_of_ms: int = 0,
    expiration_ms: int = EXPIRATION_MS,
    window: int = 0,
    stop: int | None = None,
    first_wanted: int = 0,
) -> Run:
    """As the scheduler does: segments in the order asked for, and again until no more are asked for, or the replay has ended."""
    stop = len(directory.segments) if stop is None else stop
    result = Run(PartitionReplay(directory, mode, Clock(as_of_ms, expiration_ms), window, stop, first_wanted))
    wanted = result.replay.begin()
    while wanted and result.replay.damage is None:
        for index in wanted:
            result.states += result.replay.take(index, summary_of(directory, index))
            if result.replay.damage is not None:
                break
        else:
            wanted = result.replay.more()
            result.extensions += bool(wanted)
    result.states += result.replay.finish()
    offsets = [state.offset for state in result.states]
    assert len(set(offsets)) == len(offsets), "no boundary twice"
    return result


def entries_in(array: np.ndarray) -> Entries:
    return {row[0]: ProducerEntry(*row) for row in array.tolist()}


@dataclass
class Case:
    """A directory of a simulated broker, and what is asked of it.

    Attributes:
        broker: that wrote it.
        deleted: count of segments that are gone.
        witness: boundary of the surviving snapshot.
        window: first segment with a young timestamp.
        stop, first_wanted, as_of_ms: as the replay gets them.
    """

    broker: SimulatedBroker
    deleted: int
    witness: int
    window: int
    stop: int
    first_wanted: int
    as_of_ms: int

    @property
    def ends(self) -> list[int]:
        return self.broker.boundaries[self.deleted :]

    @property
    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.broker.segments[self.deleted :]]

    def truth(self, offset: int) -> Entries:
        return self.broker.segments[self.broker.boundaries.index(offset)].whole

    def live(self, offset: int) -> Entries:
        return self.broker.segments[self.broker.boundaries.index(offset)].live

    def touched(self, low: int, high: int) -> set[int]:
        """Producers with a batch in a range of offsets."""
        batches = itertools.chain.from_iterable(segment.batches for segment in self.broker.segments)
        return {batch.header.producer_id for batch in batches if low <= batch.header.base_offset < high} - {-1}

    def run(self, directory: PartitionDir, mode: ReplayFrom = ReplayFrom.AUTO) -> Run:
        return run(directory, mode, as_of_ms=self.as_of_ms, window=self.window, stop=self.stop, first_wanted=self.first_wanted)


def case_of(seed: int, *, may_delete: bool = True) -> Case:
    """A log that became old in its middle, and a question that the window might answer."""
    rng = random.Random(~seed)
    is_steady = rng.random() < 0.4
    count = rng.randrange(8, 16) if is_steady else rng.randrange(4, 14)
    broker = SimulatedBroker(seed, count, leap_at=rng.randrange(count // 2 if is_steady else 1, count - 1), is_steady=is_steady)
    deleted = rng.randrange(1, count - 1) if may_delete and rng.random() < 0.25 else 0
    left = broker.segments[deleted:]
    as_of_ms = broker.clock + rng.choice((0, 0, 0, 10, EXPIRATION_MS // 2, 2 * EXPIRATION_MS))
    window = window_start([segment.largest_timestamp for segment in left], as_of_ms, EXPIRATION_MS)
    first = min(window + 1, len(left))
    behind = rng.randrange(first, len(left) + 1)  # the witness stands behind the segment before this one
    ends = broker.boundaries[deleted:]
    wanted = rng.choice(ends[first - 1 : behind]) if rng.random() < 0.9 else ends[0]
    return Case(broker, deleted, ends[behind - 1], window, behind if behind < len(left) else len(left), wanted, as_of_ms)


def difference(case: Case, state: BoundaryState) -> set[int]:
    """Producers whose entry, loaded now, is not the true one.

    Of a producer whose batches were deleted the retained log may know nothing; such a one may be absent, but not wrong.
    """
    got, true = loaded(entries_in(state.entries).values(), case.as_of_ms), loaded(case.truth(state.offset).values(), case.as_of_ms)
    wrong = {producer for producer in got.keys() | true.keys() if got.get(producer) != true.get(producer)}
    if case.deleted:
        retained = loaded(case.broker.retained(case.deleted)[case.ends.index(state.offset)].values(), case.as_of_ms)
        wrong -= {producer for producer in wrong if producer not in got and producer not in retained}
    return wrong


def check(case: Case, result: Run, reached: Counter[str]) -> None:
    """Every claim that was made holds."""
    for state in result.states:
        if state.offset < case.first_wanted:
            continue
        klass = state.judgement.snapshot_class
        reached[klass.value] += 1
        if klass in PROVEN:
            assert not difference(case, state)
            has_expired = len(loaded(entries_in(state.entries).values(), case.as_of_ms)) < len(state.entries)
            assert has_expired is (klass is SnapshotClass.SUPERSET_SAFE)
        elif klass is EXACT and not case.deleted:
            assert entries_in(state.entries) == case.truth(state.offset)
        elif klass is EXACT_FROM_LOG_START:
            assert entries_in(state.entries) == case.broker.retained(case.deleted)[case.ends.index(state.offset)]
        else:
            assert klass is EXACT, "nothing stays unproven that the bytes on disk could settle"
    if result.replay.start_index:
        reached["window"] += 1
        reached["extended by some"] += result.extensions > 0
        reached["extended twice"] += result.extensions > 1
    elif case.window:
        reached["gave up"] += result.extensions > 0


# ---------------------------------------------------------------------------------------------------------------- auto is sound


def test_auto_is_sound(tmp_path: Path) -> None:
    """Of every boundary that is called load-equivalent, a broker that loads it has what the whole log gives."""
    reached: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(SEEDS)
    def holds(seed: int) -> None:
        case = case_of(seed)
        rng = random.Random(seed ^ 1)
        snapshots = {case.witness: case.live(case.witness) if rng.random() < 0.7 else case.broker.forget(case.witness)}
        for offset in case.ends:
            if offset < case.witness and rng.random() < 0.2:
                snapshots[offset] = case.live(offset)
        directory = case.broker.write(tmp_path / "t-0", {at: entries.values() for at, entries in snapshots.items()}, case.deleted)
        try:
            result = case.run(directory)
        finally:
            shutil.rmtree(tmp_path / "t-0")
        assert {state.offset for state in result.states} >= {
            offset for offset in case.ends if case.first_wanted <= offset <= case.witness
        }
        check(case, result, reached)

    holds()
    assert reached["LOAD_EQUIVALENT"] >= EXAMPLES * 0.06
    assert reached["SUPERSET_SAFE"] >= EXAMPLES * 0.08
    assert reached["EXACT"] >= EXAMPLES * 0.3
    assert reached["EXACT_FROM_LOG_START"] >= EXAMPLES * 0.06
    assert reached["window"] >= EXAMPLES * 0.08
    assert reached["extended by some"] >= EXAMPLES * 0.003
    assert reached["gave up"] >= EXAMPLES * 0.06


def test_exact_on_a_trusted_first_snapshot(tmp_path: Path) -> None:
    """With a confirmed snapshot at the first offset: the fold of what is retained, begun on it as a broker would."""
    reached: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(SEEDS)
    def holds(seed: int) -> None:
        rng = random.Random(~seed)
        broker = SimulatedBroker(seed, rng.randrange(3, 9))
        deleted = rng.randrange(1, len(broker.segments))
        base = broker.segments[deleted - 1].live
        left = broker.segments[deleted:]
        ends = broker.boundaries[deleted:]
        snapshots = {left[0].base_offset: base.values()}
        for segment, offset in zip(left, ends, strict=True):
            if rng.random() < 0.4:
                snapshots[offset] = segment.live.values()
        directory = broker.write(tmp_path / "t-0", snapshots, deleted)
        try:
            result = run(directory, as_of_ms=broker.clock)
        finally:
            shutil.rmtree(tmp_path / "t-0")
        state = ProducerState()
        state.load(base.values(), 0, EXPIRATION_MS)
        for segment, offset, retained in zip(left, ends, broker.retained(deleted), strict=True):
            list(state.append(batch.meaning for batch in segment.batches if batch.meaning is not None))
            found = result.at(offset)
            klass = found.judgement.snapshot_class
            reached[klass.value] += 1
            assert klass in (EXACT, EXACT_FROM_LOG_START)
            assert entries_in(found.entries) == (state.entries if klass is EXACT else retained)
            assert found.is_complete is (klass is EXACT)
            if klass is EXACT and base == broker.segments[deleted - 1].whole:
                reached["nobody forgotten"] += 1
                assert state.entries == segment.whole

    holds()
    assert reached["EXACT"] >= EXAMPLES * 0.5
    assert reached["EXACT_FROM_LOG_START"] >= EXAMPLES * 0.2
    assert reached["nobody forgotten"] >= EXAMPLES * 0.2


# ---------------------------------------------------------------------------------------------------------------- liars


def false_empty(case: Case, rng: random.Random) -> Entries | None:
    return {}


def stale(case: Case, rng: random.Random) -> Entries | None:
    """Of an earlier boundary, or of the first offset."""
    earlier = [offset for offset in case.ends if offset < case.witness]
    return case.live(rng.choice(earlier)) if earlier else None


def lacking(case: Case, rng: random.Random) -> Entries | None:
    """Without one producer that has a batch in the window."""
    entries = dict(case.live(case.witness))
    there = sorted(case.touched(case.bases[case.window], case.witness) & entries.keys()) if case.window < len(case.bases) else []
    if not there:
        return None
    del entries[rng.choice(there)]
    return entries


def lying(case: Case, rng: random.Random) -> Entries | None:
    """Wrong in one field of a producer that has a batch in the window; not in those where no batch can contradict."""
    entries = dict(case.live(case.witness))
    there = sorted(case.touched(case.bases[case.window], case.witness) & entries.keys()) if case.window < len(case.bases) else []
    if not there:
        return None
    producer = rng.choice(there)
    entry = entries[producer]
    name = rng.choice(("epoch", "last_sequence", "last_offset", "offset_delta", "timestamp", "current_txn_first_offset"))
    if name == "current_txn_first_offset":
        # Anywhere in the window but at a batch of its own; below it nothing would contradict.
        own = {
            batch.header.base_offset
            for segment in case.broker.segments
            for batch in segment.batches
            if batch.header.producer_id == producer
        }
        wrong = [-1, *(at for at in range(case.bases[case.window], case.witness) if at not in own)]
    else:
        wrong = [getattr(entry, name) + step for step in (-1, 1)]
    wrong = [value for value in wrong if value != getattr(entry, name)]
    if not wrong:
        return None
    entries[producer] = replace(entry, **{name: rng.choice(wrong)})
    return entries


@pytest.mark.parametrize("lie", [false_empty, stale, lacking, lying])
def test_a_witness_that_the_window_contradicts_is_not_believed(
    lie: Callable[[Case, random.Random], Entries | None], tmp_path: Path
) -> None:
    reached: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(SEEDS)
    def holds(seed: int) -> None:
        case = case_of(seed)
        entries = lie(case, random.Random(seed ^ 2))
        if entries is None or loaded(entries.values(), case.as_of_ms) == loaded(case.live(case.witness).values(), case.as_of_ms):
            return
        reached["lies"] += 1
        directory = case.broker.write(tmp_path / "t-0", {case.witness: entries.values()}, case.deleted)
        try:
            result = case.run(directory)
        finally:
            shutil.rmtree(tmp_path / "t-0")
        check(case, result, reached)
        reached["uncovered"] += result.replay.start_index == 0 and result.extensions > 0

    holds()
    assert reached["lies"] >= EXAMPLES * 0.2
    assert reached["uncovered"] >= EXAMPLES * 0.05


def descendant(case: Case, lost_at: int) -> Entries:
    """What a broker saves at the witness that found nothing at ``lost_at``, and went on from there."""
    state = ProducerState()
    for segment in case.broker.segments:
        if segment.base_offset >= lost_at and segment.base_offset < case.witness:
            list(state.append(batch.meaning for batch in segment.batches if batch.meaning is not None))
    return dict(state.entries)


def test_a_witness_that_comes_from_a_false_empty_snapshot_which_is_still_there_is_not_believed(tmp_path: Path) -> None:
    """Rebuild A and C of the bundled vectors: an empty file, believed by a broker, and everything that it wrote later."""
    reached: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(SEEDS)
    def holds(seed: int) -> None:
        case = case_of(seed)
        lost_at = random.Random(seed ^ 3).choice([offset for offset in (*case.bases, case.ends[-1]) if offset < case.witness])
        entries = descendant(case, lost_at)
        if loaded(entries.values(), case.as_of_ms) == loaded(case.truth(case.witness).values(), case.as_of_ms):
            return
        reached["lies"] += 1
        directory = case.broker.write(tmp_path / "t-0", {case.witness: entries.values(), lost_at: ()}, case.deleted)
        try:
            result = case.run(directory)
        finally:
            shutil.rmtree(tmp_path / "t-0")
        assert result.replay.start_index == 0
        if case.deleted == 0 or lost_at > case.bases[0]:
            check(case, result, reached)

    holds()
    assert reached["lies"] >= EXAMPLES * 0.2


def test_a_witness_from_a_lost_state_of_which_no_trace_is_left(tmp_path: Path) -> None:
    """What the window contradicts is found; what it cannot contradict is exactly what the docstring of ``replay.window`` names."""
    reached: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(SEEDS)
    def holds(seed: int) -> None:
        case = case_of(seed, may_delete=False)
        lost_at = random.Random(seed ^ 3).choice([offset for offset in (*case.bases, case.ends[-1]) if offset < case.witness])
        directory = case.broker.write(tmp_path / "t-0", {case.witness: descendant(case, lost_at).values()})
        try:
            result = case.run(directory)
        finally:
            shutil.rmtree(tmp_path / "t-0")
        for state in result.states:
            if state.offset < case.first_wanted or state.judgement.snapshot_class not in PROVEN:
                continue
            reached["proven"] += 1
            start = case.bases[result.replay.start_index]
            got = entries_in(state.entries)
            for producer in difference(case, state):
                reached["undetectable"] += 1
                true = case.truth(state.offset)[producer]
                # Its transaction began below the window, and nothing that happened there to it was still known at lost_at.
                assert -1 < true.current_txn_first_offset < start
                assert true.current_txn_first_offset < lost_at
                if producer in got:
                    first = min(
                        batch.header.base_offset
                        for segment in case.broker.segments[result.replay.start_index :]
                        for batch in segment.batches
                        if batch.header.producer_id == producer
                    )
                    assert got[producer].current_txn_first_offset == first

    holds()
    assert reached["proven"] >= EXAMPLES * 0.3


class Hand:
    """A log made batch by batch."""

    def __init__(self) -> None:
        self.segments: list[tuple[int, list[bytes]]] = [(0, [])]
        self.end = 0

    def add(self, batch: LogBatch) -> LogBatch:
        self.segments[-1][1].append(batch.data)
        self.end = batch.header.last_offset + 1
        return batch

    def data(self, client: Client, timestamp: int, count: int = 1) -> int:
        return self.add(client.data(self.end, count, timestamp)).header.base_offset

    def marker(self, client: Client, timestamp: int, *, coordinator_epoch: int = 1, commit: bool = True) -> int:
        return self.add(client.marker(self.end, timestamp, coordinator_epoch, commit=commit)).header.base_offset

    def roll(self, base_offset: int | None = None) -> int:
        self.end = self.end if base_offset is None else base_offset
        self.segments.append((self.end, []))
        return self.end

    def write(self, directory: Path, snapshots: dict[int, Iterable[ProducerEntry]] | None = None) -> PartitionDir:
        directory.mkdir(parents=True)
        for base, batches in self.segments:
            (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
        for offset, entries in (snapshots or {}).items():
            put_snapshot(directory, offset, entries)
        return listed(directory)


def put_snapshot(directory: Path, offset: int, entries: Iterable[ProducerEntry]) -> None:
    (directory / snapshot_name(offset)).write_bytes(snapshot_bytes(entries))


NOW = 1_000_000
OLD, YOUNG = NOW - 2 * EXPIRATION_MS, NOW - 10


def test_undetectable_an_open_transaction_that_the_witness_lacks(tmp_path: Path) -> None:
    """By design: no batch of producer 9 lies in the window, so that nothing there tells of the transaction that a broker forgot."""
    log = Hand()
    log.data(Client(9, is_transactional=True, epoch=1), OLD)
    log.roll()
    idempotent = Client(7, is_transactional=False)
    log.data(idempotent, YOUNG)
    boundary = log.roll()
    log.data(idempotent, YOUNG)
    live = ProducerEntry(7, 0, 1, 2, 0, YOUNG)
    honest = ProducerEntry(9, 1, 0, 0, 0, OLD, 4, 0)
    told = log.write(tmp_path / "honest" / "t-0", {log.end: [live, honest]})
    silent = log.write(tmp_path / "silent" / "t-0", {log.end: [live]})
    for directory, known in ((told, {7, 9}), (silent, {7})):
        result = run(directory, as_of_ms=NOW, window=1, first_wanted=boundary)
        assert result.replay.start_index == 1
        assert result.classes[boundary] is SnapshotClass.LOAD_EQUIVALENT
        assert set(entries_in(result.at(boundary).entries)) == known


def test_undetectable_a_transaction_that_begins_too_late_in_the_witness(tmp_path: Path) -> None:
    """By design: a broker that lost its state below the window took the first batch behind the loss for the beginning."""
    log = Hand()
    client = Client(9, is_transactional=True, epoch=1)
    log.data(client, OLD)
    log.roll()
    continued = log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    for first in (0, continued):
        witness = ProducerEntry(9, 1, 2, 2, 0, YOUNG, 4, first)
        directory = log.write(tmp_path / str(first) / "t-0", {log.end: [witness]})
        result = run(directory, as_of_ms=NOW, window=1, first_wanted=boundary)
        assert result.classes[boundary] is SnapshotClass.LOAD_EQUIVALENT
        assert entries_in(result.at(boundary).entries)[9].current_txn_first_offset == first


def test_replay_goes_back_until_the_previous_marker_is_found(tmp_path: Path) -> None:
    """Segments 10 and 11 are young. What the transaction in 10 needs stands in 5: replay begins at 9, at 8, at 6, and then at 3."""
    log, client = Hand(), Client(9, is_transactional=True, epoch=1)
    everything = []
    for index in range(12):
        if index:
            boundary = log.roll()
        timestamp = OLD if index < 10 else YOUNG
        everything.append(log.add(Client(100 + index, is_transactional=False).data(log.end, 1, timestamp)))
        if index == 5:
            everything.append(log.add(client.marker(log.end, OLD, 6, commit=True)))
        if index == 10:
            everything.append(log.add(client.data(log.end, 1, YOUNG)))
            truth = ProducerState()
            list(truth.append(batch.meaning for batch in everything if batch.meaning is not None))
    everything.append(log.add(client.marker(log.end, YOUNG, 7, commit=True)))
    whole = ProducerState()
    list(whole.append(batch.meaning for batch in everything if batch.meaning is not None))
    directory = log.write(tmp_path / "t-0", {log.end: loaded(whole.entries.values(), NOW).values()})
    result = run(directory, as_of_ms=NOW, window=10, first_wanted=boundary)
    assert (result.replay.start_index, result.extensions) == (3, 4)
    assert result.replay.start_reason.startswith("extended back: producer 9")
    state = result.at(boundary)
    assert state.judgement.snapshot_class is SnapshotClass.SUPERSET_SAFE
    assert loaded(entries_in(state.entries).values(), NOW) == loaded(truth.entries.values(), NOW)
    assert entries_in(state.entries)[9].coordinator_epoch == 6
    assert set(entries_in(state.entries)) == {9, *range(103, 111)}
    # At the log end the marker says all: nothing more than the window is needed.
    at_end = run(directory, as_of_ms=NOW, window=10, first_wanted=log.end)
    assert (at_end.replay.start_index, at_end.extensions) == (10, 0)
    assert entries_in(at_end.at(log.end).entries) == loaded(whole.entries.values(), NOW)


def test_a_witness_whose_broker_left_a_wrong_snapshot_inside_the_window_is_not_believed(tmp_path: Path) -> None:
    """What was written later may come from it, as in rebuild C of the bundled vectors, even if nothing in the window shows that."""
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(Client(6, is_transactional=False), OLD)
    log.roll()
    log.data(client, YOUNG)
    inside = log.roll()
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    for sequence, start in ((0, 1), (1, 0)):
        snapshots = {inside: [ProducerEntry(7, 0, sequence, 1, 0, YOUNG)], log.end: [ProducerEntry(7, 0, 2, 3, 0, YOUNG)]}
        directory = log.write(tmp_path / str(sequence) / "t-0", snapshots)
        result = run(directory, as_of_ms=NOW, window=1, first_wanted=boundary)
        assert result.replay.start_index == start
        assert (f"the snapshot at {inside} is wrong" in result.replay.start_reason) is (start == 0)


def test_a_witness_that_no_broker_can_have_written_is_not_believed(tmp_path: Path) -> None:
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(Client(6, is_transactional=False), OLD)
    log.roll()
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    right = ProducerEntry(7, 0, 1, 2, 0, YOUNG)
    directory = log.write(tmp_path / "t-0", {log.end: [replace(right, last_sequence=9), right]})
    result = run(directory, as_of_ms=NOW, window=1, first_wanted=boundary)
    assert result.replay.start_index == 0
    assert "no readable snapshot behind the window" in result.replay.start_reason


def test_a_snapshot_that_lies_behind_what_is_replayed_is_no_witness(tmp_path: Path) -> None:
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(Client(6, is_transactional=False), OLD)
    for _ in range(3):
        log.roll()
        log.data(client, YOUNG)
    witness = [ProducerEntry(7, 0, 2, 3, 0, YOUNG)]
    directory = log.write(tmp_path / "t-0", {log.end: witness})
    whole = run(directory, as_of_ms=NOW, window=1, first_wanted=2)
    assert (whole.replay.start_index, whole.classes[2]) == (1, SnapshotClass.LOAD_EQUIVALENT)
    short = run(directory, as_of_ms=NOW, window=1, first_wanted=2, stop=3)
    assert "lies behind what was replayed" in short.replay.start_reason
    assert short.classes == {1: EXACT, 2: EXACT, 3: EXACT}


# ---------------------------------------------------------------------------------------------------------------- the window by its letter


def test_window_mode_claims_nothing_that_is_not_proven(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(SEEDS)
    def holds(seed: int) -> None:
        case = case_of(seed)
        has_witness = random.Random(seed ^ 4).random() < 0.5
        snapshots = {case.witness: case.live(case.witness).values()} if has_witness else {}
        directory = case.broker.write(tmp_path / "t-0", snapshots, case.deleted)
        try:
            result = case.run(directory, ReplayFrom.WINDOW)
        finally:
            shutil.rmtree(tmp_path / "t-0")
        assert result.extensions == 0
        assert [state.offset for state in result.states] == case.ends[: case.stop]
        start = result.replay.start_index
        assert start == min(case.window, case.stop, len(case.bases) - 1)
        if start == 0:
            return
        for index, state in enumerate(result.states):
            klass = state.judgement.snapshot_class
            assert not state.is_complete
            if index < start:
                assert (klass, len(state.entries)) == (UNPROVEN, 0)
                reached["below"] += 1
            elif klass in PROVEN:
                assert has_witness
                assert not difference(case, state)
                reached["proven"] += 1
            else:
                assert klass in WEAK
                if not has_witness:
                    assert "nothing proves what lies below the window: no readable snapshot" in state.judgement.reasons[0]
                gaps = {reason[-3:-1] for reason in state.judgement.reasons if reason.endswith(")")} & {"G1", "G2", "G3", "G4"}
                assert (klass is UNSOUND) == bool(gaps - {"G4"})
                reached.update(gaps)
                # Where no gap is named for a producer of the window, its entry is right all the same.
                named = {int(reason.split()[1][:-1]) for reason in state.judgement.reasons if reason.startswith("producer ")}
                if len(state.judgement.reasons) < 10:
                    seen = case.touched(case.bases[start], state.offset)
                    assert not (difference(case, state) & seen) - named

    holds()
    assert all(reached[name] for name in ("below", "proven", "G1", "G2", "G3", "G4")), reached


# ---------------------------------------------------------------------------------------------------------------- bundled


def lost_state() -> dict[str, dict[str, list[dict[str, int]]]]:
    manifest = json.loads((FIXTURES / "follower-lost-state" / "manifest.json").read_text())
    found: dict[str, dict[str, list[dict[str, int]]]] = manifest["per_snapshot_offset"]
    return found


@pytest.mark.parametrize("as_of_ms", [FIXTURE_AS_OF_MS, FIXTURE_AS_OF_MS + 30 * DAY_MS])
@pytest.mark.parametrize("gone", [(), (508,), (561, 624, 676, 727, 790), (508, 561, 624, 676, 727, 790)])
def test_true_first_snapshot_of_a_tiered_leader_makes_everything_exact(
    gone: tuple[int, ...], as_of_ms: int, tmp_path: Path
) -> None:
    """Kafka's answer over the whole log, of which this replica has only the end, with any of its snapshots gone."""
    path = Path(shutil.copytree(FIXTURES / "follower-lost-state/node1/payments-0", tmp_path / "payments-0"))
    for offset in gone:
        (path / f"{offset:020d}.snapshot").unlink()
    result = run(listed(path), as_of_ms=as_of_ms, expiration_ms=DAY_MS)
    right = {int(offset): {ProducerEntry(**entry) for entry in about["right_entries"]} for offset, about in lost_state().items()}
    assert set(right) == {561, 624, 676, 727, 790, 833}
    assert set(result.classes) == {508, *right}
    assert set(result.classes.values()) == {EXACT}
    for offset, entries in right.items():
        assert set(entries_in(result.at(offset).entries).values()) == entries
    from_start = run(listed(path), ReplayFrom.LOG_START, as_of_ms=as_of_ms, expiration_ms=DAY_MS)
    assert set(from_start.classes.values()) == {EXACT_FROM_LOG_START}
    assert set(entries_in(from_start.at(833).entries).values()) < right[833]


def test_unconfirmed_first_snapshot_is_not_used(tmp_path: Path) -> None:
    """No later one is there, or one that it does not lead to."""
    source = FIXTURES / "follower-lost-state/node1/payments-0"
    alone = Path(shutil.copytree(source, tmp_path / "alone" / "payments-0"))
    for path in alone.glob("*.snapshot"):
        if path.stem != f"{456:020d}":
            path.unlink()
    contradicted = Path(shutil.copytree(source, tmp_path / "contradicted" / "payments-0"))
    shutil.copy(FIXTURES / f"follower-lost-state/node2/payments-0/{676:020d}.snapshot", contradicted)
    for path, why in ((alone, "no later snapshot confirms"), (contradicted, "does not lead to the one at 676")):
        result = run(listed(path), as_of_ms=FIXTURE_AS_OF_MS, expiration_ms=DAY_MS)
        assert set(result.classes.values()) == {EXACT_FROM_LOG_START}
        assert all(any(why in reason for reason in state.judgement.reasons) for state in result.states)


def test_first_snapshot_on_which_no_broker_could_go_on_is_not_used(tmp_path: Path) -> None:
    """It claims a transaction of a producer that then writes outside of it; a later snapshot repeats the lie."""
    log = Hand()
    log.segments, log.end = [(10, [])], 10
    client = Client(7, is_transactional=False, sequence=3)
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(Client(8, is_transactional=False), YOUNG)
    last = log.roll()
    log.data(Client(8, is_transactional=False, sequence=1), YOUNG)
    lie = ProducerEntry(7, 0, 2, 9, 0, YOUNG, current_txn_first_offset=4)
    later = replace(lie, last_sequence=3, last_offset=10)
    directory = log.write(tmp_path / "t-0", {10: [lie], boundary: [later]})
    result = run(directory, as_of_ms=NOW)
    assert result.classes == dict.fromkeys((boundary, last, log.end), EXACT_FROM_LOG_START)
    assert result.replay.damage is None
    assert any("no broker could go on at 10" in reason for reason in result.at(boundary).judgement.reasons)


def test_snapshots_behind_damage_do_not_speak_against_the_first_one(tmp_path: Path) -> None:
    log = Hand()
    log.segments, log.end = [(10, [])], 10
    client = Client(7, is_transactional=False, sequence=3)
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    torn = log.roll()
    log.data(client, YOUNG)
    right = {
        at: [ProducerEntry(7, 0, at - 8, at - 1, 0, YOUNG), ProducerEntry(3, 0, 0, 2, 0, YOUNG)]
        for at in (10, boundary, torn, log.end)
    }
    log.write(tmp_path / "t-0", right)
    path = tmp_path / "t-0" / f"{boundary:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    result = run(listed(path.parent), as_of_ms=NOW)
    assert result.classes == {boundary: EXACT}
    assert result.replay.damage is not None


def test_false_empty_first_snapshot_of_a_follower_adds_nothing() -> None:
    directory = listed(FIXTURES / "follower-lost-state/node2/payments-0")
    result = run(directory, as_of_ms=FIXTURE_AS_OF_MS, expiration_ms=DAY_MS)
    assert set(result.classes.values()) == {EXACT_FROM_LOG_START}
    assert any("empty or unreadable" in reason for reason in result.at(624).judgement.reasons)


def test_wrong_first_snapshot_is_not_confirmed_by_snapshots_of_which_all_has_expired(tmp_path: Path) -> None:
    """Compared after expiry alone, nothing would be left to differ."""
    path = Path(shutil.copytree(FIXTURES / "follower-lost-state/node1/payments-0", tmp_path / "payments-0"))
    manifest = json.loads((FIXTURES / "follower-lost-state/manifest.json").read_text())
    right = [ProducerEntry(**entry) for entry in manifest["leader"]["snapshots"][f"{456:020d}.snapshot"]["entries"]]
    put_snapshot(path, 456, [replace(right[0], last_sequence=right[0].last_sequence - 1), *right[1:]])
    result = run(listed(path), as_of_ms=FIXTURE_AS_OF_MS + 30 * DAY_MS, expiration_ms=DAY_MS)
    assert set(result.classes.values()) == {EXACT_FROM_LOG_START}


@pytest.mark.parametrize("mode", [ReplayFrom.AUTO, ReplayFrom.LOG_START])
def test_bundled_partitions_at_every_boundary(partition_fixture: PartitionFixture, mode: ReplayFrom) -> None:
    """Kafka's entries, and no class better than the partition deserves."""
    directory = listed(partition_fixture.directory)
    result = run(directory, mode, as_of_ms=FIXTURE_AS_OF_MS, expiration_ms=DAY_MS)
    first = partition_fixture.segments[0].base_offset
    for part in partition_fixture.segments:
        if part.snapshot_offset == 0 or (part is partition_fixture.segments[-1] and part.batches == 0):
            continue
        state = result.at(part.snapshot_offset)
        assert frozenset(entries_in(state.entries).values()) == part.entries
        klass = state.judgement.snapshot_class
        if partition_fixture.partition == "bad-crc-0" and klass is UNSOUND:
            assert any("checksum" in reason for reason in state.judgement.reasons)
        elif "compacted" not in partition_fixture.partition and not partition_fixture.partition.startswith("__"):
            assert klass is (EXACT_FROM_LOG_START if first else EXACT) or (first and klass is EXACT)


WINDOWED = [
    ("kafka27-mixed", "logappend-0"),
    ("kafka4-mixed", "logappend-0"),
    ("kafka27-mixed", "deleted-0"),
    ("kafka4-mixed", "deleted-0"),
]


@pytest.mark.parametrize("partition", WINDOWED, ids="-".join)
def test_windows_of_bundled_partitions(partition: tuple[str, str]) -> None:
    """Real logs of some seconds under expirations of seconds: what a broker's snapshot proves is what Kafka's classes gave."""
    (about,) = [each for each in partition_fixtures() if (each.fixture, each.partition) == partition]
    directory = listed(about.directory)
    largest = [part.max_timestamp for part in about.segments]
    bases = [part.base_offset for part in about.segments]
    right = {part.snapshot_offset: part.entries for part in about.segments}
    reached: Counter[str] = Counter()
    for expiration_ms, at in itertools.product(range(200, 20_000, 800), [offset for offset, _ in directory.snapshots]):
        as_of_ms = max(largest)
        window = window_start(largest, as_of_ms, expiration_ms)
        stop = bases.index(at) if at in bases else len(bases)
        for wanted in (offset for offset in right if offset <= at):
            result = run(directory, as_of_ms=as_of_ms, expiration_ms=expiration_ms, window=window, stop=stop, first_wanted=wanted)
            reached["window"] += result.replay.start_index > 0
            reached["extended"] += result.extensions > 0
            for state in result.states:
                klass = state.judgement.snapshot_class
                found = frozenset(entries_in(state.entries).values())
                if state.offset >= wanted and klass in PROVEN:
                    reached["proven"] += 1
                    assert kept(found, as_of_ms, expiration_ms) == kept(right[state.offset], as_of_ms, expiration_ms)
                elif state.offset >= wanted:
                    assert (klass, found) == (EXACT, right[state.offset])
    assert reached["extended"] > 0, reached
    if partition[0] == "kafka4-mixed":
        assert reached["window"] > 0, reached
        assert reached["proven"] > 0, reached


def kept(entries: Iterable[ProducerEntry], as_of_ms: int, expiration_ms: int) -> set[ProducerEntry]:
    return {entry for entry in entries if not is_expired(entry, as_of_ms, expiration_ms)}


# ---------------------------------------------------------------------------------------------------------------- damage


def four_segments() -> tuple[Hand, Client]:
    """Bases 0, 2, 4, 6; log end 8; two batches each of one producer."""
    log, client = Hand(), Client(7, is_transactional=False)
    for index in range(4):
        if index:
            log.roll()
        log.data(client, YOUNG)
        log.data(client, YOUNG)
    return log, client


MODES = pytest.mark.parametrize("mode", [ReplayFrom.AUTO, ReplayFrom.LOG_START])


def damaged(tmp_path: Path, base: int, change: Callable[[bytes], bytes], mode: ReplayFrom) -> Run:
    log, _ = four_segments()
    directory = log.write(tmp_path / "t-0")
    path = tmp_path / "t-0" / f"{base:020d}.log"
    path.write_bytes(change(path.read_bytes()))
    return run(listed(Path(directory.path)), mode, as_of_ms=NOW)


@MODES
@pytest.mark.parametrize("tail", [1, 16, 17, 18, 60])
def test_torn_last_segment_ends_the_log_earlier(tail: int, mode: ReplayFrom, tmp_path: Path) -> None:
    result = damaged(tmp_path, 6, lambda data: data + data[:tail], mode)
    assert result.replay.damage is None
    assert result.classes == dict.fromkeys((2, 4, 6, 8), EXACT)
    assert result.at(8).is_log_end
    assert any("torn" in reason for reason in result.at(8).judgement.reasons)
    cut = damaged(tmp_path / "cut", 6, lambda data: data[:-1], mode)
    assert cut.classes == dict.fromkeys((2, 4, 6, 7), EXACT)


@MODES
@pytest.mark.parametrize("zeros", [1, 16, 17, 18, 100, 1 << 20])
def test_zeros_behind_the_last_batch_are_tolerated_however_few(zeros: int, mode: ReplayFrom, tmp_path: Path) -> None:
    result = damaged(tmp_path, 6, lambda data: data + bytes(zeros), mode)
    assert result.replay.damage is None
    assert result.classes == dict.fromkeys((2, 4, 6, 8), EXACT)
    assert any("zero-filled" in reason for reason in result.at(8).judgement.reasons)
    assert not any("zero" in reason for reason in result.at(6).judgement.reasons)


@MODES
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + data[:5],
        lambda data: data + bytes(3),
        lambda data: data + bytes(300),
        lambda data: data + b"\xff" * 100,
    ],
    ids=["torn", "torn-few", "zeros-few", "zeros", "corrupt"],
)
def test_earlier_segment_that_does_not_end_whole_ends_everything(
    change: Callable[[bytes], bytes], mode: ReplayFrom, tmp_path: Path
) -> None:
    result = damaged(tmp_path, 2, change, mode)
    assert result.replay.damage is not None
    assert result.replay.damage.offset in (3, 4)
    assert result.classes == {2: EXACT}


@MODES
def test_corrupt_end_of_the_last_segment(mode: ReplayFrom, tmp_path: Path) -> None:
    """A broker throws there or truncates: no log end is handed out."""
    result = damaged(tmp_path, 6, lambda data: data + b"\xff" * 100, mode)
    assert result.replay.damage is not None
    assert result.replay.damage.offset == 8
    assert result.classes == dict.fromkeys((2, 4, 6), EXACT)


@MODES
def test_wrong_checksum_makes_everything_above_unsound(mode: ReplayFrom, tmp_path: Path) -> None:
    result = damaged(tmp_path, 2, lambda data: data[:30] + bytes((data[30] ^ 1,)) + data[31:], mode)
    assert result.replay.damage is None
    assert result.classes == {2: EXACT, 4: UNSOUND, 6: UNSOUND, 8: UNSOUND}
    assert all("checksum" in result.at(offset).judgement.reasons[0] for offset in (4, 6, 8))


@MODES
def test_batch_on_which_every_broker_throws(mode: ReplayFrom, tmp_path: Path) -> None:
    """Boundaries below it are fine, none at or above it is made, however far behind its transaction it stands."""
    log = Hand()
    client = Client(7, is_transactional=True)
    log.data(client, YOUNG)
    first = log.roll()
    log.data(Client(8, is_transactional=False), YOUNG)
    second = log.roll()
    client.is_transactional = False
    failing = log.data(client, YOUNG)
    log.roll()
    log.data(Client(8, is_transactional=False, sequence=1), YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {first: EXACT, second: EXACT}
    assert result.replay.damage is not None
    assert result.replay.damage.offset == failing
    assert "InvalidTxnStateException" in result.replay.damage.reason


def test_damage_in_the_window_sends_auto_to_the_first_segment(tmp_path: Path) -> None:
    log = Hand()
    log.data(Client(6, is_transactional=False), OLD)
    log.roll()
    client = Client(7, is_transactional=False)
    log.data(client, YOUNG)
    boundary = log.roll()
    log.data(client, YOUNG)
    log.write(tmp_path / "t-0", {log.end: [ProducerEntry(7, 0, 1, 2, 0, YOUNG)]})
    path = tmp_path / "t-0" / f"{boundary:020d}.log"
    data = bytearray(path.read_bytes())
    healthy = run(listed(path.parent), as_of_ms=NOW, window=1, first_wanted=boundary)
    assert (healthy.replay.start_index, healthy.classes[boundary]) == (1, SnapshotClass.LOAD_EQUIVALENT)
    data[30] ^= 1  # its base timestamp, which is in no entry: only the checksum tells
    path.write_bytes(data)
    result = run(listed(path.parent), as_of_ms=NOW, window=1, first_wanted=boundary)
    assert result.replay.start_index == 0
    assert result.classes == {1: EXACT, boundary: EXACT, log.end: UNSOUND}
    by_letter = run(listed(path.parent), ReplayFrom.WINDOW, as_of_ms=NOW, window=1, first_wanted=boundary)
    assert by_letter.classes == {1: UNPROVEN, boundary: UNPROVEN, log.end: UNSOUND}


# ---------------------------------------------------------------------------------------------------------------- shapes


@MODES
def test_gap_between_segments(mode: ReplayFrom, tmp_path: Path) -> None:
    """The boundary is the base offset of the next segment, whatever lies before it; from the hole on it may be wrong."""
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(client, YOUNG)
    log.roll(5)
    log.data(client, YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {5: UNSOUND, 6: UNSOUND}
    assert entries_in(result.at(5).entries)[7].last_offset == 0


@MODES
def test_overlapping_segments(mode: ReplayFrom, tmp_path: Path) -> None:
    """The state at the next base already holds what lies behind it: told there, not one segment later."""
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(client, YOUNG)
    log.data(client, YOUNG)
    log.roll(1)
    log.data(client, YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {1: UNSOUND, 2: UNSOUND}
    assert "behind the base 1 of the next one" in result.at(1).judgement.reasons[0]


@MODES
def test_first_batch_below_the_base_of_its_segment(mode: ReplayFrom, tmp_path: Path) -> None:
    for count, offsets in ((1, {1: EXACT}), (3, {1: EXACT, 3: UNSOUND})):
        log, client = Hand(), Client(7, is_transactional=False)
        log.data(client, YOUNG)
        log.roll()
        log.end = 0
        log.data(client, YOUNG, count)
        assert run(log.write(tmp_path / str(count) / "t-0"), mode, as_of_ms=NOW).classes == offsets


@MODES
@pytest.mark.parametrize("rest", [b"", bytes(1000), b"\0" * 10, b"\1" * 30, b"\xff" * 30])
def test_last_segment_without_a_batch(rest: bytes, mode: ReplayFrom, tmp_path: Path) -> None:
    """One boundary, at its base, once, whether the file is empty or was only laid out."""
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(client, YOUNG)
    base = log.roll()
    log.segments[-1][1].append(rest)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {base: EXACT}
    assert (result.replay.damage is None) is (rest[:1] != b"\xff")


@MODES
@pytest.mark.parametrize("rest", [b"", bytes(1000)])
def test_single_empty_segment(rest: bytes, mode: ReplayFrom, tmp_path: Path) -> None:
    at_zero = Hand()
    at_zero.segments[0][1].append(rest)
    assert run(at_zero.write(tmp_path / "zero" / "t-0"), mode, as_of_ms=NOW).states == []
    behind = Hand()
    behind.segments = [(9, [rest])]
    # Its own snapshot does not confirm itself.
    for name, snapshots in (("bare", {}), ("told", {9: [ProducerEntry(7, 0, 0, 8, 0, YOUNG)]})):
        result = run(behind.write(tmp_path / name / "t-0", snapshots), mode, as_of_ms=NOW)
        assert result.classes == {9: EXACT_FROM_LOG_START}
        assert len(result.at(9).entries) == 0
        assert result.at(9).is_log_end


@MODES
@pytest.mark.parametrize("magic", [0, 1])
def test_first_segment_of_old_messages(magic: int, mode: ReplayFrom, tmp_path: Path) -> None:
    """A wrapper stands at the offset of its last message: what it wraps is no hole, and the log end is behind it."""
    log = Hand()
    log.add(message_of(magic, 4, b"five of them", attributes=1))
    boundary = log.roll()
    log.add(message_of(magic, 7, b"three", attributes=1))
    log.data(Client(7, is_transactional=False), YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert boundary == 5
    assert result.classes == {5: EXACT, 9: EXACT}
    assert entries_in(result.at(9).entries) == {7: ProducerEntry(7, 0, 0, 8, 0, YOUNG)}
    assert len(result.at(5).entries) == 0


@MODES
def test_compacted_log_is_unsound_from_there_on(mode: ReplayFrom, tmp_path: Path) -> None:
    for number, batch in enumerate(
        (
            batch_of(header_of(1, last_offset_delta=4, record_count=2), b""),
            batch_of(header_of(1, attributes=CONTROL, producer_id=7, producer_epoch=0, record_count=0), b""),
            batch_of(header_of(3), b""),
        )
    ):
        log = Hand()
        log.data(Client(7, is_transactional=False), YOUNG)
        first = log.roll()
        log.add(batch)
        result = run(log.write(tmp_path / str(number) / "t-0"), mode, as_of_ms=NOW)
        assert result.classes == {first: EXACT, log.end: UNSOUND}


def test_doubts_of_a_long_compacted_log_are_not_repeated_at_every_boundary(tmp_path: Path) -> None:
    log = Hand()
    for _ in range(40):
        log.add(batch_of(header_of(log.end, last_offset_delta=4, record_count=2), b""))
        log.roll()
    log.data(Client(7, is_transactional=False), YOUNG)
    result = run(log.write(tmp_path / "t-0"), as_of_ms=NOW)
    assert len(result.at(log.end).judgement.reasons) == 11
    assert result.at(log.end).judgement.reasons[-1] == "and 30 more"


@MODES
def test_epoch_that_goes_down_leaves_it_unproven(mode: ReplayFrom, tmp_path: Path) -> None:
    log, client = Hand(), Client(7, is_transactional=False, epoch=3)
    log.data(client, YOUNG)
    first = log.roll()
    client.epoch = 2
    log.data(client, YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {first: EXACT, log.end: UNPROVEN}
