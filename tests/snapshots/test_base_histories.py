"""The snapshot at the first offset, over generated histories: what is proven is true, and what is right raises no alarm."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from base_histories import Base, History, Replays, accepted_states, bases_of, history_of, wrong_entries
from budgets import TIER, each_seed
from replays import entries_in

from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.engine.first_snapshot import FirstSnapshot
from snaprebuild.snapshots.engine.partition_replay import BoundaryState

HISTORIES = 10 if TIER == "quick" else 250
"""Histories of each start, with four to five bases each: together more than 2,000 cases in the full tier."""

NEW_HISTORIES = 5_000
"""In the night tier, from a start that differs each time, or that ``TEST_SEED`` names: more than 20,000 cases."""

SEEDS_OF_FAULTS = (1750415669873120653, 2284069548273776482)
"""Histories that showed a fault of the rule, or of this test."""


class Histories:
    """Replays histories on their bases, and counts what was found."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.alarms: Counter[str] = Counter()

    def check_seed(self, seed: int) -> None:
        counts, history = self.counts, history_of(seed)
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
            replays = Replays(history, Path(place))
            for base in bases_of(history, seed):
                counts["cases"] += 1
                counts[base.kind] += 1
                first, states = replays.run(base)
                self.check(history, base, first, states)
                is_contradicted = first.verdict is not None and first.verdict.is_refuted
                (self.alarms if base.is_right else self.found)[base.kind] += is_contradicted
                if base.is_right:
                    counts["right and exact"] += sum(
                        each.judgement.snapshot_class is SnapshotClass.EXACT for each in states.values()
                    )
                    counts["boundaries of right ones"] += len(states)

    def check(self, history: History, base: Base, first: FirstSnapshot, states: dict[int, BoundaryState]) -> None:
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
            self.counts[klass.value] += 1
            assert klass.value == rule.class_at(offset), (base.kind, offset, state.judgement.reasons)
            if state.make_base is not None:
                assert set(state.make_base().state.open_ids.tolist()) == rule.open_at(offset), (base.kind, offset)
            if klass is SnapshotClass.UNPROVEN:
                continue
            wrong = wrong_entries(
                history,
                offset,
                entries_in(state.entries),
                accepted_states(history, base, offset, is_exact=klass is SnapshotClass.EXACT),
            )
            if klass is SnapshotClass.EXACT and base.kind == "lost state":
                wrong -= base.lost  # the later snapshots have what the broker of this one had: a limit of the rule
            assert not wrong, (base.kind, offset, klass, wrong)

    def check_counts(self) -> None:
        counts = self.counts
        assert not self.alarms.total()
        assert counts["EXACT"] > counts["cases"] // 4
        assert self.found.total() > counts["cases"] // 8
        total = f"{counts['cases']} cases; contradicted: {dict(self.found)}; alarms on right ones: {self.alarms.total()}"
        print(f"{total}; {dict(counts)}")  # noqa: T201


@pytest.mark.parametrize("start", [20, 777])
def test_a_first_snapshot_in_any_history(start: int) -> None:
    """The result is that of the rule, entry by entry; what is EXACT is true; a right snapshot is never contradicted."""
    histories = Histories()
    each_seed(HISTORIES, start=start)(histories.check_seed)()
    histories.check_counts()


@pytest.mark.parametrize("seed", SEEDS_OF_FAULTS)
def test_histories_that_showed_faults(seed: int) -> None:
    Histories().check_seed(seed)


@pytest.mark.night
def test_a_first_snapshot_in_new_histories() -> None:
    """New histories follow the rules of the fixed ones. A failure names the start and the seed."""
    start = int(os.environ.get("TEST_SEED") or random.SystemRandom().getrandbits(32))
    histories = Histories()
    each_seed(NEW_HISTORIES, start=start)(histories.check_seed)()
    histories.check_counts()


@pytest.mark.parametrize("seed", range(3))
def test_a_history_has_bases_of_many_kinds(seed: int) -> None:
    history = history_of(random.Random(seed).getrandbits(64))
    kinds = [base.kind for base in bases_of(history, seed)]
    assert kinds[0] == "right"
    assert len(kinds) == len(set(kinds))
