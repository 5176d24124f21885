"""Snapshot files at the start of a broker: Kafka's scenarios, and whole starts of Kafka 4.3.1."""

import time
from typing import Any

import pytest
from budgets import scaled
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_vectors import SCENARIOS, STRAYS, entries_of

from formats.errors import FormatError
from formats.partition.producer_snapshot import ProducerEntry, parse_snapshot
from snaprebuild.replay.broker_start import BrokerStart, LoadedLog, SnapshotFiles, SnapshotOrigin, broker_start

KEPT, EMPTY, REBUILT = SnapshotOrigin.KEPT, SnapshotOrigin.EMPTY, SnapshotOrigin.REBUILT

# The partition of which the whole starts below were made: kafka4-mixed, mixed-0.
BASES = (0, 687, 1231, 1805, 2430, 3017, 3586, 4142, 4710, 5223, 5737, 6261, 6776, 7350, 7875)
END = 8334


def parsed(data: str) -> set[ProducerEntry] | None:
    try:
        return set(parse_snapshot(bytes.fromhex(data)))
    except FormatError:
        return None


def record_end(segment: dict[str, Any]) -> int:
    last = segment["batches"][-1]
    return last["baseOffset"] + last["lastOffsetDelta"] + 1


def run(scenario: dict[str, Any]) -> SnapshotFiles:
    """The part of a start that the scenario is about: recovery of each segment (F), the final rebuild (the others)."""
    before = {each["offset"]: parsed(each["hex"]) for each in scenario["preexistingSnapshots"]}
    files = SnapshotFiles({offset: entries is not None for offset, entries in before.items()})
    bases = [segment["baseOffset"] for segment in scenario["segments"]]
    if scenario["name"] == "rebuild_F":
        for segment in scenario["segments"]:
            files.recover_segment(bases, scenario["logStartOffset"], segment["baseOffset"], record_end(segment))
    else:
        files.rebuild(bases, scenario["logStartOffset"], scenario["logEndOffset"], trusts_stop=scenario["cleanShutdown"])
    return files


@pytest.mark.parametrize("name", SCENARIOS)
def test_rebuild_scenario_leaves_the_files_that_kafka_left(name: str) -> None:
    scenario = SCENARIOS[name]
    expected = {each["offset"]: set(entries_of(each["entries"])) for each in scenario["expectedSnapshots"]}
    before = {each["offset"]: parsed(each["hex"]) for each in scenario["preexistingSnapshots"]}
    files = run(scenario).files
    assert sorted(files) == sorted(expected)
    for offset, origin in files.items():
        assert (origin is EMPTY) == (expected[offset] == set())
        assert (origin is KEPT) == (offset in before and before[offset] == expected[offset])


def test_rebuild_d_loads_the_older_snapshot_when_the_newest_is_corrupt() -> None:
    files = run(SCENARIOS["rebuild_D"])
    assert (files.corrupt, files.loaded, files.replay_from_offset) == ([20], 10, 10)


def test_rebuild_c_trusts_the_snapshot_that_is_there() -> None:
    files = run(SCENARIOS["rebuild_C"])
    assert (files.loaded, files.replay_from_offset, files.files[20]) == (20, 20, KEPT)


@pytest.mark.parametrize("name", STRAYS)
def test_stray_scenario(name: str) -> None:
    scenario = STRAYS[name]
    files = SnapshotFiles(dict.fromkeys(scenario["snapshotOffsets"], True))
    files.remove_stray(scenario["segmentBaseOffsets"])
    assert sorted(files.files) == scenario["afterRemoveStray"]
    files.truncate_and_reload(0, 40)
    assert sorted(files.files) == scenario["afterTruncateAndReload_0_40"]
    assert sorted([*files.files, *files.stray, *files.out_of_range]) == scenario["snapshotOffsets"]


def kept(start: BrokerStart) -> tuple[int, ...]:
    """Offsets of files that are there before and after, untouched."""
    return tuple(offset for offset, origin in start.after if origin is KEPT)


def test_clean_stop_without_snapshots_gives_empty_ones_as_seen_on_a_broker() -> None:
    # Kafka 4.3.1 logged "Wrote producer snapshot at offset 7045 / 7637 / 8231 with 0 producer ids" for this partition (kafka27-mixed).
    start = broker_start(LoadedLog((0, 583, 1151, 7045, 7637), 0, 8231, {}, True))
    assert start.after == ((7045, EMPTY), (7637, EMPTY), (8231, EMPTY))
    assert start.written_empty == (7045, 7637, 8231)
    assert (start.loaded, start.replay_from_offset) == (None, None)


# The offsets below are the names of the files that `UnifiedLog.create` of Kafka 4.3.1 left in copies of the partition.


MANY = dict.fromkeys((7, 687, 1231, 1238, 2430, 2437, 3017, 3586, 5230, 6261, 6783, 7357, 7882, 8334), True) | dict.fromkeys(
    (1805, 3024, 4149, 5744, 6776, 7350), False
)
WITHOUT_5737 = frozenset({5737})
TWO = {1231: True, 8334: True}
WHOLE_STARTS = {
    # Segments, snapshots, facts; files that are left, those of them that were not touched.
    "with strays": (
        LoadedLog(BASES, 0, END, dict.fromkeys((1231, 2430, 2437, 3024, 5230, 6776, 7882), True) | {687: False}, True, 8334),
        (687, 1231, 2430, 6776, 7882, 8334),
        (687, 1231, 2430, 6776, 7882),
    ),
    # It loses the snapshots above.
    "without an index in the middle": (
        LoadedLog(BASES, 0, END, MANY, True, 7355, WITHOUT_5737),
        (687, 1231, 1805, 2430, 3017, 3586, 5737, 6261, 7350, 7875, 8334),
        (687, 1231, 1805, 2430, 3017, 3586),
    ),
    # It writes at the two bases below.
    "without an index, with few snapshots": (
        LoadedLog(BASES, 0, END, {1231: True, 8334: True}, True, 8334, WITHOUT_5737),
        (1231, 4710, 5223, 5737, 6261, 7350, 7875, 8334),
        (1231,),
    ),
    "unclean, from recovery point 0": (LoadedLog(BASES, 0, END, {1231: True, 1300: True}, False, 0), (*BASES[1:], END), ()),
    # The segment that holds the recovery point is recovered, and so is the state at its base.
    "unclean, from a recovery point": (LoadedLog(BASES, 0, END, {}, False, 6300), (6261, 6776, 7350, 7875, 8334), ()),
    "with a corrupt file that it does not load": (
        LoadedLog(BASES[9:], 0, END, {7350: False, 8334: True}, True),
        (7350, 8334),
        (7350, 8334),
    ),
    "with a snapshot at the log start": (LoadedLog(BASES[2:], 1231, END, TWO, True), (8334,), (8334,)),
    # A log start below the first segment counts only with remote storage.
    "with a log start below": (LoadedLog(BASES[2:], 0, END, TWO, True), (8334,), (8334,)),
    "with a log start below, tiered": (LoadedLog(BASES[2:], 0, END, TWO, True, is_tiered=True), (1231, 8334), (1231, 8334)),
    # "Deleting all segments because logEndOffset (30000) is smaller than logStartOffset 50000": then an empty file at the log start.
    "ended below its log start": (LoadedLog(BASES, 9000, END, {687: True, 8334: True, 9000: False}, True, END), (9000,), ()),
    "ended below its log start, unclean": (LoadedLog(BASES, 9000, END, {687: True, 8334: True, 9000: False}, False, END), (), ()),
    "without data": (LoadedLog((0,), 0, 0, {}, True), (), ()),
    "without data, unclean": (LoadedLog((0,), 0, 0, {}, False), (), ()),
}


@pytest.mark.parametrize("name", WHOLE_STARTS)
def test_whole_starts(name: str) -> None:
    """By our code, and by the steps as in Kafka's code, which are the reference of the test of any start."""
    log, left, untouched = WHOLE_STARTS[name]
    for start in (broker_start(log), Plain(dict(log.snapshots)).start(log)):
        assert tuple(offset for offset, _ in start.after) == left
        assert kept(start) == untouched


def test_what_a_start_with_strays_removes_and_loads() -> None:
    start = broker_start(WHOLE_STARTS["with strays"][0])
    assert start.stray == (2437, 3024, 5230)
    assert (start.loaded, start.rebuilt, start.corrupt) == (7882, (8334,), ())


def test_log_without_segments_is_an_error() -> None:
    with pytest.raises(ValueError, match="without segments"):
        broker_start(LoadedLog((), 0, 0, {}, True))


class Plain:
    """The steps as in Kafka's code, each of which looks at every file: what a start must lead to."""

    def __init__(self, snapshots: dict[int, bool]) -> None:
        self.parses = dict(snapshots)
        self.origin = dict.fromkeys(snapshots, KEPT)
        self.gone: dict[str, set[int]] = {"stray": set(), "out_of_range": set(), "corrupt": set()}

    def delete(self, offsets: set[int], why: str) -> None:
        self.gone[why] |= {offset for offset in offsets if self.origin.pop(offset) is KEPT}

    def remove_stray(self, bases: tuple[int, ...]) -> None:
        stray = self.origin.keys() - set(bases)
        self.delete({offset for offset in stray if offset != max(stray) or offset < max(bases)}, "stray")

    def take(self) -> None:
        if self.map_end > self.last:
            self.origin[self.map_end], self.parses[self.map_end], self.last = REBUILT, True, self.map_end

    def rebuild(self, bases: tuple[int, ...], log_start: int, end: int, *, clean: bool) -> None:
        self.map_end = self.last = 0
        self.loaded = self.replay_from_offset = None
        wanted = [*bases[-2:], end]
        if clean and not self.origin:
            for self.map_end in wanted:
                self.take()
            self.origin = dict.fromkeys(self.origin, EMPTY)
            return
        was_empty = self.map_end >= end
        self.delete({offset for offset in self.origin if offset > end or offset <= log_start}, "out_of_range")
        if end != self.map_end:
            while self.origin and not self.parses[max(self.origin)]:
                self.delete({max(self.origin)}, "corrupt")
            self.loaded = max(self.origin, default=None)
            self.map_end = self.last = log_start if self.loaded is None else self.loaded
        else:
            self.map_end, self.last = max(self.map_end, log_start), max(self.origin, default=log_start)
        if end > self.map_end and not was_empty:
            self.replay_from_offset = max(self.map_end, log_start)
            floor = max((base for base in bases if base <= self.map_end), default=-1)
            for base in (base for base in bases if floor <= base < end):
                self.map_end = max(base, self.map_end, log_start)
                if base in wanted:
                    self.take()
        self.map_end = end
        self.take()

    def start(self, log: LoadedLog) -> BrokerStart:
        bases = log.base_offsets
        ends = dict(zip(bases, (*bases[1:], log.log_end_offset), strict=True))
        unflushed = max((base for base in bases if base <= log.recovery_point), default=bases[0])
        recovered = [(bases[:at], base) for at, base in enumerate(bases) if base in log.without_index]
        recovered += [(bases, base) for base in bases if base >= unflushed and not log.is_clean]
        for loaded, base in recovered:
            self.rebuild(loaded, log.checkpointed_log_start_offset, base, clean=False)
            self.map_end = ends[base]
            self.take()
        end = log.log_end_offset
        if end < log.checkpointed_log_start_offset:
            self.delete({*self.origin}, "out_of_range")
            bases, end = (log.checkpointed_log_start_offset,), log.checkpointed_log_start_offset
        self.remove_stray(bases)
        log_start = log.checkpointed_log_start_offset if log.is_tiered else max(log.checkpointed_log_start_offset, bases[0])
        self.rebuild(bases, log_start, end, clean=log.is_clean)
        gone = {why: tuple(sorted(offsets)) for why, offsets in self.gone.items()}
        return BrokerStart(
            tuple(sorted(self.origin.items())), **gone, loaded=self.loaded, replay_from_offset=self.replay_from_offset
        )


@st.composite
def loaded_logs(draw: st.DrawFn) -> LoadedLog:
    bases = tuple(sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=8))))
    snapshots = st.dictionaries(st.sampled_from(bases) | st.integers(0, 90), st.booleans(), max_size=12)
    return LoadedLog(
        base_offsets=bases,
        checkpointed_log_start_offset=draw(st.sampled_from((0, bases[0])) | st.integers(0, 70)),
        log_end_offset=bases[-1] + draw(st.integers(0, 20)),
        snapshots=draw(snapshots),
        is_clean=draw(st.booleans()),
        recovery_point=draw(st.integers(0, 80)),
        without_index=frozenset(draw(st.sets(st.sampled_from(bases), max_size=3))),
        is_tiered=draw(st.booleans()),
    )


@settings(max_examples=scaled(300))
@given(loaded_logs())
def test_any_start_equals_its_steps(log: LoadedLog) -> None:
    assert broker_start(log) == Plain(dict(log.snapshots)).start(log)


def test_the_steps_themselves_leave_the_files_that_kafka_left() -> None:
    """The reference of the test above: Kafka's scenarios."""
    for name in "ABCDE":
        scenario = SCENARIOS[f"rebuild_{name}"]
        plain = Plain({each["offset"]: parsed(each["hex"]) is not None for each in scenario["preexistingSnapshots"]})
        bases = tuple(segment["baseOffset"] for segment in scenario["segments"])
        plain.rebuild(bases, scenario["logStartOffset"], scenario["logEndOffset"], clean=scenario["cleanShutdown"])
        assert sorted(plain.origin) == [each["offset"] for each in scenario["expectedSnapshots"]]


@pytest.mark.night
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_log_of_very_many_segments_takes_no_time(is_clean: bool) -> None:
    """Each of them is recovered, after an unclean stop or without its index. Looking at every file each time would take a minute."""
    bases = tuple(range(0, 400_000, 10))
    snapshots = dict.fromkeys(bases[1:], True)
    started_at = time.process_time()
    start = broker_start(LoadedLog(bases, 0, 400_000, snapshots, is_clean, without_index=frozenset(bases if is_clean else ())))
    assert time.process_time() - started_at < 10
    assert [offset for offset, _ in start.after] == [*bases[1:], 400_000]
