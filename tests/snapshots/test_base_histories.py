"""The snapshot at the first offset, over generated histories: what is proven is true, and what is right raises no alarm."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from base_histories import Base, History, bases_of, history_of
from base_rules import as_loaded
from budgets import TIER, each_seed, scaled
from log_dirs import snapshot_name
from replays import entries_in, put_snapshot
from simulated_broker import EXPIRATION_MS, Entries, listed

from formats.partition.producer_snapshot import ProducerEntry
from formats.partition.transaction_index import write_transaction_index
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import is_expired
from snaprebuild.snapshots.engine.boundary_state import BoundaryState
from snaprebuild.snapshots.engine.first_snapshot import FirstSnapshot
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay, ReplayFrom
from snaprebuild.snapshots.engine.segment_reader import Pieces, read_segment, read_tasks
from snaprebuild.snapshots.engine.window_proof import Clock

HISTORIES = scaled(500) if TIER != "quick" else 20
"""With four to five bases each: more than 2,000 cases in the full tier."""


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

    def run(self, base: Base) -> tuple[FirstSnapshot, dict[int, BoundaryState]]:
        for path in self.path.glob("*.snapshot"):
            path.unlink()
        put_snapshot(self.path, self.history.first_offset, base.entries.values())
        for offset, entries in base.snapshots.items():
            put_snapshot(self.path, offset, entries.values())
        directory = listed(self.path)
        assert directory.snapshot_at(self.history.first_offset) is not None, snapshot_name(self.history.first_offset)
        clock = Clock(self.history.broker.clock, EXPIRATION_MS)
        replay = PartitionReplay(directory, ReplayFrom.AUTO, clock, 0, len(directory.segments), 0, written_by_us=base.ours)
        states = []
        for index in replay.begin():
            for summary in self.summaries[index]:
                states += replay.take(index, summary)
        assert not replay.more()
        states += replay.finish()
        assert replay.first_snapshot is not None
        return replay.first_snapshot, {state.offset: state for state in states}


def wrong_entries(history: History, base: Base, offset: int, found: Entries, is_exact: bool) -> set[int]:
    """Producers whose entry is neither the true one nor, where the class allows it, Kafka's own from the first offset.

    The true one is that of the fold from offset 0, or of the broker, which may have forgotten a producer meanwhile.
    """
    folds = [history.whole(offset), history.live(offset), history.on(history.live(history.first_offset))[offset]]
    if not is_exact:
        folds += [history.on({}).get(offset, {}), history.on(base.entries).get(offset, {})]
    wrong = set()
    for key in {*found, *history.live(offset)}:
        accepted = [None if key not in fold else as_loaded(fold[key]) for fold in folds]
        entry: ProducerEntry | None = found.get(key)
        true = history.live(offset).get(key)
        has_expired = true is not None and is_expired(true, history.clock(offset), EXPIRATION_MS)
        if entry not in accepted and not (entry is None and has_expired):
            wrong.add(key)
    return wrong


def test_a_first_snapshot_in_any_history() -> None:
    """The result is that of the rule, entry by entry; what is EXACT is true; a right snapshot is never contradicted."""
    counts: Counter[str] = Counter()
    found, alarms = Counter[str](), Counter[str]()

    @each_seed(HISTORIES)
    def holds(seed: int) -> None:
        history = history_of(seed)
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
            replays = Replays(history, Path(place))
            for base in bases_of(history, seed):
                counts["cases"] += 1
                counts[base.kind] += 1
                first, states = replays.run(base)
                check(history, base, first, states)
                is_contradicted = first.verdict is not None and first.verdict.is_refuted
                (alarms if base.is_right else found)[base.kind] += is_contradicted
                if base.is_right:
                    counts["right and exact"] += sum(
                        each.judgement.snapshot_class is SnapshotClass.EXACT for each in states.values()
                    )
                    counts["boundaries of right ones"] += len(states)

    def check(history: History, base: Base, first: FirstSnapshot, states: dict[int, BoundaryState]) -> None:
        rule = history.rule(base)
        assert first.verdict is not None, base.kind
        refuted = {each.rule.value for each in first.verdict.refutations} - {"kafka-throws"}
        if len(history.on(base.entries)) == len(states):
            assert refuted == rule.refuted, base.kind
        else:  # Kafka throws on it: what is above that batch is no evidence
            assert refuted, base.kind
            assert refuted <= rule.refuted, base.kind
        if base.is_right:
            assert not first.verdict.is_refuted, (base.kind, first.reason)
        for offset, state in states.items():
            klass = state.judgement.snapshot_class
            counts[klass.value] += 1
            assert klass.value == rule.class_at(offset), (base.kind, offset, state.judgement.reasons)
            if state.make_base is not None:
                assert set(state.make_base().state.open_ids.tolist()) == rule.open_at(offset), (base.kind, offset)
            if klass is SnapshotClass.UNPROVEN:
                continue
            wrong = wrong_entries(history, base, offset, entries_in(state.entries), klass is SnapshotClass.EXACT)
            if klass is SnapshotClass.EXACT and base.kind == "lost state":
                wrong -= base.lost  # the later snapshots have what the broker of this one had: a limit of the rule
            assert not wrong, (base.kind, offset, klass, wrong)

    holds()
    assert not alarms.total()
    assert counts["EXACT"] > counts["cases"] // 4
    assert found.total() > counts["cases"] // 8
    print(f"{counts['cases']} cases; contradicted: {dict(found)}; alarms on right ones: {alarms.total()}; {dict(counts)}")  # noqa: T201


@pytest.mark.parametrize("seed", range(3))
def test_a_history_has_bases_of_many_kinds(seed: int) -> None:
    history = history_of(random.Random(seed).getrandbits(64))
    kinds = [base.kind for base in bases_of(history, seed)]
    assert kinds[0] == "right"
    assert len(kinds) == len(set(kinds))
