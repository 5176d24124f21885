"""A sample of the histories of ``base_histories``: Kafka's own classes say what is true, and what their replay from a base is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from base_histories import Base, History, Replays, bases_of, history_of, wrong_entries
from budgets import each_seed
from oracle import Oracle, Replay
from replays import entries_in
from simulated_broker import Entries

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.classes import SnapshotClass

HISTORIES = 40


def states_of(replay: Replay) -> dict[int, Entries]:
    return {offset: {key: ProducerEntry(*entry) for key, entry in state.items()} for offset, state in replay.states.items()}


@pytest.mark.kafka
def test_what_is_exact_is_what_kafka_has(oracle: Oracle, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()

    def kafkas(history: History, replays: Replays, base: Base) -> dict[int, Entries]:
        path = replays.write_base(base)
        return states_of(oracle.replay(replays.path, "recover", path))

    @each_seed(HISTORIES)
    def holds(seed: int) -> None:
        history = history_of(seed)
        place = tmp_path / str(seed)
        history.broker.write(place / "whole" / "t-0", {})
        whole = states_of(oracle.replay(place / "whole" / "t-0", "recover"))
        replays = Replays(history, place / "left")
        alone = states_of(oracle.replay(replays.path, "recover"))
        on_right: dict[int, Entries] = {}
        for base in bases_of(history, seed):
            on_base = kafkas(history, replays, base)
            on_right = on_right or on_base
            assert on_base == {at: state for at, state in history.on(base.entries).items() if at in on_base}, base.kind
            _, states = replays.run(base)
            for offset, state in states.items():
                klass = state.judgement.snapshot_class
                counts[klass.value] += 1
                folds = [whole[offset], on_right[offset], history.live(offset)]
                if klass is not SnapshotClass.EXACT:
                    folds += [alone[offset], on_base.get(offset, {})]
                wrong = wrong_entries(history, offset, entries_in(state.entries), folds)
                if klass is SnapshotClass.EXACT and base.kind == "lost state":
                    wrong -= base.lost
                assert not wrong or klass is SnapshotClass.UNPROVEN, (base.kind, offset, klass, wrong)

    holds()
    assert counts["EXACT"] > HISTORIES
    assert counts["EXACT_FROM_LOG_START"] > HISTORIES
