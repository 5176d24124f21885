"""Each rule of our replays is broken in turn: a few hundred generated logs have to notice."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest
from broken_code import broken
from broken_replays import BROKEN_RULES, BrokenRule
from compare import completed_by, generated
from fold_by_rules import fold
from kafka_classpath import KAFKA_VERSION
from oracle import CompletedTransaction
from ours import ENGINES, States, specification_completed
from strategies import GeneratedPartition

pytestmark = pytest.mark.full

LOGS = 500


@dataclass(frozen=True)
class Sample:
    """A log, and what it comes to by the rules, which share nothing with what is broken here."""

    directory: Path
    states: States
    completed: list[CompletedTransaction]

    def is_noticed(self, engines: Collection[str] = ENGINES) -> bool:
        """Ours make something else of it, or fail."""
        try:
            if any(ENGINES[engine](self.directory) != self.states for engine in engines):
                return True
            return "specification" in engines and specification_completed(self.directory) != self.completed
        except Exception:  # of whatever kind: a broken rule may break anything
            return True


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    root, found = tmp_path_factory.mktemp("samples"), list[Sample]()

    def take(partition: GeneratedPartition) -> None:
        directory = partition.write(root / f"log-{len(found)}" / "generated-0")
        folded = fold(directory)
        found.append(Sample(directory, folded.by_batch, completed_by(KAFKA_VERSION, folded)))

    generated(take, LOGS, seed=3)
    return found


def test_nothing_is_noticed_as_it_is(samples: list[Sample]) -> None:
    assert len(samples) == LOGS
    assert [sample.directory for sample in samples if sample.is_noticed()] == []


@pytest.mark.parametrize("rule", BROKEN_RULES, ids=lambda rule: rule.name)
def test_a_broken_rule_is_noticed(samples: list[Sample], rule: BrokenRule) -> None:
    with broken(rule):
        assert any(sample.is_noticed(rule.engines) for sample in samples)
    assert not samples[0].is_noticed()
