"""Compares our states with Kafka's, at every boundary of generated logs and of real partition directories.

Generated logs come of the Hypothesis strategy that the unit tests use, or, longer ones, of a writer that shares nothing with the code under
test. Each is replayed by the classes of every release that is asked, by ours, and by rules that are counted (``fold_by_rules``): all
have to agree, and every rule has to be met often enough.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import hypothesis
from fold_by_rules import RULES, Folded, fold
from hypothesis import HealthCheck, Phase, given, settings
from kafka_classpath import KAFKA_VERSION, REPLAYED
from log_writer import write_random_log
from oracle import CompletedTransaction, Entry, Oracle, Replay
from ours import ENGINES, specification_completed
from strategies import GeneratedPartition, partitions

States = Mapping[int, Mapping[int, Entry]]
StatesOf = Callable[[Path], States]
DIFFERENCES_SHOWN = 5
LOGS, LOGS_FOR_A_HIT = 10_000, 100


@dataclass
class Report:
    """What a comparison with a release did. ``differences`` is empty when everything agreed."""

    logs: int = 0
    boundaries: int = 0
    entries: int = 0
    completed: int = 0
    stopped: int = 0
    replays_differ: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, recover: Replay, kafka: States, rebuilt: States) -> None:
        """What Kafka made of one more log."""
        self.logs += 1
        self.boundaries += len(kafka)
        self.entries += sum(len(state) for state in kafka.values())
        self.completed += len(recover.completed)
        self.stopped += recover.stopped is not None
        self.replays_differ += kafka != rebuilt


def kafka_states(recover: Replay, rebuild: Replay) -> dict[int, dict[int, Entry]]:
    """What our states must equal: Kafka's replay batch by batch. With a flipped bit in the data it is the one that does not look
    at checksums, since the state is that of the headers; that the data is damaged is another finding."""
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
    """What a release takes for completed transactions. Before 2.8 a marker that closes nothing counts for one (KAFKA-10702); the entries of
    producers are the same. Nothing else differs between releases, where a log is replayed."""
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
    """Of any number of generated logs with any number of releases. Logs that differ stay below ``root``, all of them if ``keep``."""

    def __init__(self, oracles: Sequence[Oracle], engines: Sequence[str], root: Path, *, keep: bool = False) -> None:
        self.reports = {oracle.version: Report() for oracle in oracles}
        self.hits: Counter[str] = Counter()
        self.logs = 0
        self._oracles, self._engines = oracles, engines
        self._root, self._keep = root, keep

    def from_strategy(self, logs: int, seed: int) -> None:
        """Of the strategy of the unit tests."""
        before = self.logs
        generated(lambda partition: self.take(partition.write), logs, seed)
        assert self.logs == before + logs, f"{self.logs - before} logs were generated"

    def from_writer(self, logs: int, seed: int) -> None:
        """Of the writer of bytes: each has a seed of its own."""
        for each in range(seed, seed + logs):
            self.take(partial(write_random_log, seed=each))

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


def told(reports: Mapping[str, Report]) -> str:
    """A table, a line for each release."""
    lines = ["| Kafka | logs | boundaries | producers there | transactions completed | logs at which Kafka throws |"]
    lines[0] += " logs in which its two replays differ | differences to ours |"
    lines.append("|---|---|---|---|---|---|---|---|")
    for version, each in reports.items():
        counts = (
            each.logs,
            each.boundaries,
            each.entries,
            each.completed,
            each.stopped,
            each.replays_differ,
            len(each.differences),
        )
        lines.append(f"| {version} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="compare-with-kafka", description=__doc__)
    parser.add_argument("directory", nargs="*", type=Path, help="partition directories to compare; without any: generated logs")
    parser.add_argument("--logs", type=int, default=LOGS, help="number of generated logs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the generator, or of the writer's first log (default: %(default)s)")
    parser.add_argument(
        "--writer", action="store_true", help="logs of the writer of bytes, in place of the strategy of the unit tests"
    )
    parser.add_argument("--least", type=int, help="fail where a rule is met less often (default: once in a hundred logs)")
    parser.add_argument("--out", type=Path, help="write the logs below this directory and keep them all")
    known = ", ".join(REPLAYED)
    parser.add_argument("--kafka-version", action="append", metavar="VERSION", help=f"may be given again; default: {known}")
    parser.add_argument("--engine", choices=sorted(ENGINES), help="one of our replays (default: all)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    root = options.out or Path(tempfile.mkdtemp(prefix="compare-with-kafka-"))
    engines = [options.engine] if options.engine else sorted(ENGINES)
    write, missed = sys.stdout.write, []
    with contextlib.ExitStack() as running:
        oracles = [running.enter_context(Oracle(version)) for version in options.kafka_version or REPLAYED]
        if options.directory:
            reports = {oracle.version: Report() for oracle in oracles}
            for oracle in oracles:
                for directory in options.directory:
                    chosen = {engine: ENGINES[engine] for engine in engines}
                    compare_directory(oracle, directory, chosen, reports[oracle.version])
        else:
            comparison = Comparison(oracles, engines, root, keep=options.out is not None)
            (comparison.from_writer if options.writer else comparison.from_strategy)(options.logs, options.seed)
            reports, least = comparison.reports, options.logs // LOGS_FOR_A_HIT if options.least is None else options.least
            write("| rule | batches |\n|---|---|\n" + "".join(f"| {rule} | {comparison.hits[rule]:,} |\n" for rule in RULES) + "\n")
            missed = comparison.fewest(least)
    write(told(reports))
    write(f"\n{time.monotonic() - started:.0f} s; Hypothesis {hypothesis.__version__}, seed {options.seed}\n")
    for rule in missed:
        write(f"MET LESS THAN {least} TIMES: {rule}\n")
    different = [f"Kafka {version}: {line}" for version, report in reports.items() for line in report.differences]
    for line in different[:DIFFERENCES_SHOWN]:
        write(f"DIFFERENT {line}\n")
    if different:
        write(f"{len(different)} differences; the logs are kept\n")
    elif options.out is None:
        shutil.rmtree(root)
    if not different and not missed:
        write("ours and Kafka's agree at every boundary\n")
    return 1 if different or missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
