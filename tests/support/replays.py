"""Replays that tests drive to their end, over logs of a simulated broker or made batch by batch, and what must hold of every claim.

The right state is the fold of ``reference_producer_state`` over the batches as they were generated, from offset 0.
It shares no line with the code under test.
"""

import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
from log_dirs import snapshot_bytes, snapshot_name
from simulated_broker import EXPIRATION_MS, Client, Entries, SimulatedBroker, listed, loaded
from strategies import LogBatch

from formats.log.batch_headers import HeaderReader
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import Clock, window_start
from snaprebuild.snapshots.engine import log_facts
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, PartitionReplay, ReplayFrom, replay_window
from snaprebuild.snapshots.engine.segment_reader import read_segment, read_tasks
from snaprebuild.snapshots.source.source import PartitionSource, open_source
from snaprebuild.storage.partition_dir import PartitionDir

PROVEN = (SnapshotClass.LOAD_EQUIVALENT, SnapshotClass.SUPERSET_SAFE)
WEAK = (SnapshotClass.UNPROVEN, SnapshotClass.UNSOUND)
EXACT, EXACT_FROM_LOG_START = SnapshotClass.EXACT, SnapshotClass.EXACT_FROM_LOG_START
UNSOUND, UNPROVEN = SnapshotClass.UNSOUND, SnapshotClass.UNPROVEN
FIXTURE_AS_OF_MS = 1_795_266_500_000
DAY_MS = 86_400_000


@dataclass
class Run:
    """A replay that was driven to its end.

    Attributes:
        replay: it.
        states: in the order handed out.
        extensions: how often it went further back.
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


def run(
    directory: PartitionDir,
    mode: ReplayFrom = ReplayFrom.AUTO,
    *,
    as_of_ms: int = 0,
    expiration_ms: int = EXPIRATION_MS,
    window: int = 0,
    stop: int | None = None,
    first_wanted: int = 0,
    cuts: Sequence[int] = (),
) -> Run:
    """Replays like the scheduler: segments in the order asked for, and again until no more are asked for, or the replay has
    ended."""
    stop = len(directory.segments) if stop is None else stop
    result = Run(
        PartitionReplay(
            directory=directory,
            mode=mode,
            clock=Clock(as_of_ms, expiration_ms),
            window_index=window,
            stop_index=stop,
            first_wanted=first_wanted,
        )
    )
    wanted = result.replay.begin()
    while wanted and result.replay.damage is None:
        tasks = read_tasks(directory, wanted, check_crc=True, cuts=cuts, with_first_events=result.replay.judges_base)
        for index, summary in ((index, piece) for index, task in zip(wanted, tasks, strict=True) for piece in read_segment(task)):
            result.states += result.replay.take(index, summary)
            if result.replay.damage is not None:
                break
        else:
            start = result.replay.start_index
            wanted = result.replay.more()
            result.extensions += result.replay.start_index != start
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
        return self.broker.folded(offset)

    def live(self, offset: int) -> Entries:
        return self.broker.segments[self.broker.boundaries.index(offset)].live

    def touched(self, low: int, high: int) -> set[int]:
        """Producers with a batch in a range of offsets."""
        batches = itertools.chain.from_iterable(segment.batches for segment in self.broker.segments)
        return {batch.header.producer_id for batch in batches if low <= batch.header.base_offset < high} - {-1}

    def replayed(
        self, snapshots: Mapping[int, Iterable[ProducerEntry]], mode: ReplayFrom = ReplayFrom.AUTO, cuts: Sequence[int] = ()
    ) -> Run:
        """The replay of its directory with these snapshots next to the log; no file of it is left."""
        with tempfile.TemporaryDirectory() as place:
            return self.run(self.broker.write(Path(place) / "t-0", snapshots, self.deleted), mode, cuts)

    def run(self, directory: PartitionDir, mode: ReplayFrom = ReplayFrom.AUTO, cuts: Sequence[int] = ()) -> Run:
        return run(
            directory, mode, as_of_ms=self.as_of_ms, window=self.window, stop=self.stop, first_wanted=self.first_wanted, cuts=cuts
        )


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
    behind = rng.randrange(first, len(left) + 1)  # the witness is at the end of the segment before this one
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
        retained = loaded(case.broker.folded(state.offset, case.deleted).values(), case.as_of_ms)
        wrong -= {producer for producer in wrong if producer not in got and producer not in retained}
    return wrong


def check(case: Case, result: Run, reached: Counter[str]) -> None:
    """Every claim that was made holds."""
    for state in result.states:
        if state.offset < case.first_wanted:
            continue
        klass = state.judgement.snapshot_class
        reached[f"cut {klass.value}" if state.is_cut else klass.value] += 1
        if klass in PROVEN:
            assert not difference(case, state)
            has_expired = len(loaded(entries_in(state.entries).values(), case.as_of_ms)) < len(state.entries)
            assert has_expired is (klass is SnapshotClass.SUPERSET_SAFE)
        elif klass is EXACT and not case.deleted:
            assert entries_in(state.entries) == case.truth(state.offset)
        elif klass is EXACT_FROM_LOG_START:
            assert entries_in(state.entries) == case.broker.folded(state.offset, case.deleted)
        else:
            assert klass is EXACT, "nothing stays unproven that the bytes on disk could settle"
    if result.replay.start_index:
        reached["window"] += 1
        reached["extended by some"] += result.extensions > 0
        reached["extended twice"] += result.extensions > 1
    elif case.window:
        reached["gave up"] += result.extensions > 0


class Hand:
    """A log made batch by batch.

    Args:
        start: where it begins.
    """

    def __init__(self, start: int = 0) -> None:
        self.segments: list[tuple[int, list[bytes]]] = [(start, [])]
        self.end = start

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


def largest_timestamp(partition: PartitionSource, index: int, deadline: float | None = None) -> int:
    """The largest timestamp from the headers of a segment, for ``log_facts.largest_timestamp_hint``: logs that are made here have
    no time index."""
    with partition.directory.open_segment(partition.directory.segments[index], deadline) as source:
        return max((int(block.column("max_timestamp").max()) for block in HeaderReader(source)), default=-1)


def windowed(partition_dir: Path, first_wanted: int | None = None) -> Run:
    """A replay that begins where those of the commands begin.

    Args:
        partition_dir: in a log directory, whose checkpoints count.
        first_wanted: None for the first boundary above the log start.
    """
    (partition,) = open_source([str(partition_dir)]).partitions
    directory = partition.directory
    with patch.object(log_facts, "largest_timestamp_hint", largest_timestamp):
        window = replay_window(partition, ReplayFrom.AUTO, Clock(NOW, EXPIRATION_MS))
    wanted = first_wanted if first_wanted is not None else partition.log_start_offset + 1
    return run(directory, as_of_ms=NOW, window=window, first_wanted=wanted)
