"""Compares our states with Kafka's, at every boundary of generated logs and of real partition directories.

Generated logs come from the Hypothesis strategy that the unit tests use. Each is replayed by the classes of every release that is asked,
by ours, and by rules that are counted (``fold_by_rules``). All must agree, and every rule must be met often enough.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
from fold_by_rules import RULES, Folded, fold
from hypothesis import HealthCheck, Phase, given, settings
from kafka_classpath import KAFKA_VERSION
from oracle import CompletedTransaction, Entry, Oracle, Replay
from ours import ENGINES, specification_completed
from strategies import GeneratedPartition, partitions

States = Mapping[int, Mapping[int, Entry]]
StatesOf = Callable[[Path], States]


@dataclass
class Report:
    """Result of a comparison with a release. ``differences`` is empty when everything agreed."""

    logs: int = 0
    boundaries: int = 0
    entries: int = 0
    completed: int = 0
    stopped: int = 0
    replays_differ: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, recover: Replay, kafka: States, rebuilt: States) -> None:
        """Adds Kafka's states of one more log."""
        self.logs += 1
        self.boundaries += len(kafka)
        self.entries += sum(len(state) for state in kafka.values())
        self.completed += len(recover.completed)
        self.stopped += recover.stopped is not None
        self.replays_differ += kafka != rebuilt


def kafka_states(recover: Replay, rebuild: Replay) -> dict[int, dict[int, Entry]]:
    """The states that ours must equal: Kafka's replay batch by batch. With a flipped bit in the data it is the replay that does not
    look at checksums, since headers alone give the state. Damage to the data is another finding."""
    bad_crc = recover.stopped is not None and "stored crc" in recover.stopped.error
    return boundary_states(rebuild if bad_crc else recover)


def boundary_states(replay: Replay) -> dict[int, dict[int, Entry]]:
    """Kafka's states without the one at which `LogSegment.recover` would cut a damaged segment: that is no boundary of the log."""
    whole = replay.boundaries
    if replay.stopped is not None and replay.stopped.truncated:
        whole = whole[:-1]
    return {boundary.snapshot_offset: boundary.state for boundary in whole}


def differences(kafka: States, other: States, who: str = "ours") -> list[str]:
    """One line for each boundary or producer on which the two do not agree."""
    found = []
    for boundary in sorted(kafka.keys() | other.keys()):
        if boundary not in other or boundary not in kafka:
            found.append(f"boundary {boundary}: only {'Kafka' if boundary in kafka else who} has a state")
            continue
        theirs, mine = kafka[boundary], other[boundary]
        for producer_id in sorted(theirs.keys() | mine.keys()):
            if theirs.get(producer_id) != mine.get(producer_id):
                found.append(f"boundary {boundary}: Kafka {theirs.get(producer_id)}, {who} {mine.get(producer_id)}")
    return found


def generated(take: Callable[[GeneratedPartition], None], logs: int, seed: int) -> None:
    """Hands out logs of the strategy of the unit tests: the same seed gives the same again, with the same release of Hypothesis."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=logs,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(partitions())
    def each(partition: GeneratedPartition) -> None:
        take(partition)

    each()


def completed_by(version: str, folded: Folded) -> list[CompletedTransaction]:
    """The transactions that a release takes for completed. Before 2.8 a marker that closes nothing counts for one (KAFKA-10702);
    the entries of producers are the same. Nothing else differs between releases, where a log is replayed."""
    if tuple(map(int, version.split(".")[:2])) < (2, 8):
        return folded.completed
    return [each for each in folded.completed if each not in folded.orphans]


def compare_generated(oracle: Oracle, directory: Path, folded: Folded, ours: Mapping[str, States], report: Report) -> None:
    """Adds a generated log to the report of a release: its two replays are those of the rules, and ours is the one by the batch."""
    recover, rebuild = oracle.replay(directory, "recover"), oracle.replay(directory, "rebuild")
    kafka, rebuilt = boundary_states(recover), boundary_states(rebuild)
    report.add(recover, kafka, rebuilt)
    found = [line for engine, states in ours.items() for line in differences(kafka, states, engine)]
    found += differences(kafka, folded.by_batch, "the rules by the batch")
    found += differences(rebuilt, folded.by_segment, "the rules by the segment")
    undecided = {each.snapshot_offset: each.first_undecided_offset for each in recover.boundaries if each.snapshot_offset in kafka}
    if undecided != folded.undecided:
        found.append(f"first undecided offsets: Kafka {undecided}, the rules {folded.undecided}")
    completed = completed_by(oracle.version, folded)
    if list(recover.completed) != completed:
        found.append(f"completed transactions: Kafka {recover.completed}, the rules {completed}")
    report.differences += [f"{directory}: {line}" for line in found]


def compare_directory(oracle: Oracle, directory: Path, engines: Mapping[str, StatesOf], report: Report) -> list[str]:
    """Adds a real partition directory to the report. Where an epoch came back, Kafka's two replays may differ; ours follows the one by the
    batch."""
    recover, rebuild = oracle.replay(directory, "recover"), oracle.replay(directory, "rebuild")
    kafka = kafka_states(recover, rebuild)
    report.add(recover, kafka, boundary_states(rebuild))
    found = [line for engine, states in engines.items() for line in differences(kafka, states(directory), engine)]
    report.differences += [f"{directory}: {line}" for line in found]
    return found


class Comparison:
    """Compares any number of generated logs with any number of releases. Logs that differ stay below ``root``, all of them if
    ``keep``."""

    def __init__(self, oracles: Sequence[Oracle], engines: Sequence[str], root: Path, *, keep: bool = False) -> None:
        self.reports = {oracle.version: Report() for oracle in oracles}
        self.hits: Counter[str] = Counter()
        self.logs = 0
        self._oracles, self._engines = oracles, engines
        self._root, self._keep = root, keep

    def from_strategy(self, logs: int, seed: int) -> None:
        """Compares logs from the strategy of the unit tests."""
        before = self.logs
        generated(lambda partition: self.take(partition.write), logs, seed)
        assert self.logs == before + logs, f"{self.logs - before} logs were generated"

    def take(self, write: Callable[[Path], object]) -> None:
        """Compares what ``write`` makes of a directory that is not there yet."""
        self.logs += 1
        directory = self._root / f"log-{self.logs}" / "generated-0"
        write(directory)
        folded = fold(directory)
        assert folded.hits.keys() <= set(RULES), folded.hits.keys() - set(RULES)
        self.hits += folded.hits
        ours = {engine: ENGINES[engine](directory) for engine in self._engines}
        known = sum(len(report.differences) for report in self.reports.values())
        for oracle in self._oracles:
            compare_generated(oracle, directory, folded, ours, self.reports[oracle.version])
        mine, rules = specification_completed(directory), completed_by(KAFKA_VERSION, folded)
        if mine != rules:
            for report in self.reports.values():
                report.differences.append(f"{directory}: completed transactions: ours {mine}, the rules {rules}")
        if not self._keep and known == sum(len(report.differences) for report in self.reports.values()):
            shutil.rmtree(directory.parent)

    def fewest(self, least: int) -> list[str]:
        """Rules that were met less often."""
        return [rule for rule in RULES if self.hits[rule] < least]
