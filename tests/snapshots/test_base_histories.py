"""The snapshot at the first offset, over generated histories: what is proven is true, and what is right raises no alarm."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from base_histories import Base, History, Replays, accepted_states, bases_of, history_of, wrong_entries
from budgets import TIER, each_seed, scaled
from replays import entries_in

from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.engine.boundary_state import BoundaryState
from snaprebuild.snapshots.engine.first_snapshot import FirstSnapshot

HISTORIES = scaled(500) if TIER != "quick" else 20
"""With four to five bases each: more than 2,000 cases in the full tier."""


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
            wrong = wrong_entries(
                history,
                offset,
                entries_in(state.entries),
                accepted_states(history, base, offset, is_exact=klass is SnapshotClass.EXACT),
            )
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
