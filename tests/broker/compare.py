"""Compares our states with Kafka's, at every boundary of random logs and of real partition directories."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_classpath import KAFKA_VERSION
from log_writer import write_random_log
from oracle import Entry, Oracle, Replay
from ours import ENGINES

States = Mapping[int, Mapping[int, Entry]]
StatesOf = Callable[[Path], States]
DIFFERENCES_SHOWN = 5


@dataclass
class Report:
    """What a comparison did. ``differences`` is empty when everything agreed."""

    logs: int = 0
    boundaries: int = 0
    entries: int = 0
    stopped: int = 0
    features: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


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


def differences(kafka: States, ours: States) -> list[str]:
    """One line for each boundary or producer on which the two do not agree."""
    found = []
    for boundary in sorted(kafka.keys() | ours.keys()):
        if boundary not in ours or boundary not in kafka:
            found.append(f"boundary {boundary}: only {'Kafka' if boundary in kafka else 'ours'} has a state")
            continue
        theirs, mine = kafka[boundary], ours[boundary]
        for producer_id in sorted(theirs.keys() | mine.keys()):
            if theirs.get(producer_id) != mine.get(producer_id):
                found.append(f"boundary {boundary}: Kafka {theirs.get(producer_id)}, ours {mine.get(producer_id)}")
    return found


def compare_directory(
    oracle: Oracle, directory: Path, states: StatesOf | None, report: Report, *, replays_differ: bool
) -> list[str]:
    """Adds one partition directory to the report. Kafka's two replays must agree with each other, too, unless ``replays_differ``."""
    recover = oracle.replay(directory, "recover")
    rebuild = oracle.replay(directory, "rebuild")
    kafka = kafka_states(recover, rebuild)
    report.logs += 1
    report.boundaries += len(kafka)
    report.entries += sum(len(state) for state in kafka.values())
    report.stopped += recover.stopped is not None
    found = []
    if not replays_differ and kafka != boundary_states(rebuild):
        found.append("Kafka's rebuild and recover differ, and the log gives no reason")
    if states is not None:
        found += differences(kafka, states(directory))
    report.differences += [f"{directory}: {line}" for line in found]
    return found


def compare_random_logs(
    oracle: Oracle, states: StatesOf | None, *, first_seed: int, logs: int, root: Path, keep: bool = False
) -> Report:
    """Writes ``logs`` logs under ``root`` and compares each. A log that differs stays; the others too if ``keep``."""
    report = Report()
    for seed in range(first_seed, first_seed + logs):
        log = write_random_log(root / f"seed-{seed}" / "random-0", seed)
        report.features += Counter(set(log.features))
        found = compare_directory(oracle, log.directory, states, report, replays_differ=log.replays_differ)
        if not found and not keep:
            shutil.rmtree(log.directory.parent)
    return report


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="compare-with-kafka", description=__doc__)
    parser.add_argument("directory", nargs="*", type=Path, help="partition directories to compare; without any: random logs")
    parser.add_argument("--logs", type=int, default=1000, help="number of random logs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first (default: %(default)s); the next has the next seed")
    parser.add_argument("--out", type=Path, help="write the random logs below this directory and keep them all")
    parser.add_argument("--kafka-version", default=KAFKA_VERSION, help="default: %(default)s")
    parser.add_argument(
        "--engine", choices=sorted(ENGINES), default="segment effects", help="which of our replays (default: %(default)s)"
    )
    parser.add_argument("--kafka-only", action="store_true", help="do not ask our code: only Kafka's two replays are compared")
    options = parser.parse_args(arguments)
    states = None if options.kafka_only else ENGINES[options.engine]
    started = time.monotonic()
    root = options.out or Path(tempfile.mkdtemp(prefix="compare-with-kafka-"))
    with Oracle(options.kafka_version) as oracle:
        if options.directory:
            report = Report()
            for directory in options.directory:
                # Real logs: where an epoch came back, Kafka's two replays may differ; ours follows the per-batch one.
                compare_directory(oracle, directory, states, report, replays_differ=True)
        else:
            keep = options.out is not None
            report = compare_random_logs(oracle, states, first_seed=options.seed, logs=options.logs, root=root, keep=keep)
        version = oracle.version
    write = sys.stdout.write
    for feature, logs in sorted(report.features.items()):
        write(f"  {logs:6} logs with {feature}\n")
    write(f"Kafka {version}: {report.logs} logs, {report.boundaries} boundaries, {report.entries} entries; ")
    write(f"Kafka threw in {report.stopped}; {time.monotonic() - started:.1f} s\n")
    for line in report.differences[:DIFFERENCES_SHOWN]:
        write(f"DIFFERENT {line}\n")
    if report.differences:
        write(f"{len(report.differences)} differences; the logs are kept\n")
        return 1
    if options.out is None:
        shutil.rmtree(root)
    write("Kafka's two replays agree\n" if options.kafka_only else "ours and Kafka's agree at every boundary\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
