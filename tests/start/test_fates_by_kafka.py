"""The model of the start and Kafka's own ``LogManager`` agree on each state and release of ``tests/broker/start_fates.toml``."""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from start_states import STATES, StartState
from start_states.expected import Fate as ByKafka
from start_states.expected import expected_fates

from formats.broker.broker_files import read_properties
from formats.partition.file_names import DirectoryForm
from snaprebuild.broker.broker_facts import log_dir_facts, read_broker_facts
from snaprebuild.broker.duplicate_logs import future_in_two_places, log_dir_listed_twice, partition_in_two_places
from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.log_dir_fates import log_dir_fates
from snaprebuild.broker.partition_facts import FactsReader
from snaprebuild.broker.partition_fates import partition_fates
from snaprebuild.broker.releases import parse_release
from snaprebuild.broker.start_facts import Assignment, BrokerFacts, LogDirFacts, PartitionFacts, Shutdown
from snaprebuild.errors import UsageError
from snaprebuild.storage.log_dir import LogDir, find_partitions
from snaprebuild.storage.partition_dir import PartitionDir

SHORTER = (FateKind.EMPTIED, FateKind.RECORDS_CUT, FateKind.END_LOST, FateKind.CATCHES_UP)

DELETED_LINE, SET_ASIDE_LINE = "Deleting stray partition", "has been marked as stray"
"""What Kafka logs when it deletes a stray, and when it sets one aside."""


@dataclass(frozen=True)
class Outcome:
    """What can be compared.

    Attributes:
        broker: starts, exits, exits-once.
        offline: names of log directories.
        strays: partitions that are set aside.
        deleted: partitions that are deleted as strays.
        shorter: partitions that end below what their checkpoints say, or are emptied.
    """

    broker: str
    offline: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    shorter: tuple[str, ...] = ()


def by_kafka(root: Path, fate: ByKafka, state: StartState) -> Outcome:
    """The outcome by the table."""
    if fate["broker"] == "exits":
        return Outcome("exits-once" if fate["second_start"]["broker"] == "starts" else "exits")
    if fate["broker"] == "halts":
        return Outcome("starts", tuple(sorted(set(state.log_dirs))))
    offline = {*fate.get("offline", ()), *fate.get("offline_when_first_read", ())}
    before = {path.name.partition(".")[0] for path in root.glob("*/*-stray")}
    named_stray = {Path(path).name.partition(".")[0] for path in fate["partitions"] if path.endswith(".*-stray")}
    strays = named_stray - before
    deleted = set(fate.get("strays_to_delete", ()))
    shorter = {
        Path(path).name
        for path, partition in fate["partitions"].items()
        if partition["fate"] == "loaded"
        and (partition["end"] < _checkpointed_end(root / path) or _is_emptied(partition, root / path))
    }
    return _started(offline, strays, deleted, shorter)


def _started(offline: set[str], strays: set[str], deleted: set[str], shorter: set[str]) -> Outcome:
    return Outcome(
        "starts",
        offline=tuple(sorted(offline)),
        strays=tuple(sorted(strays)),
        deleted=tuple(sorted(deleted)),
        shorter=tuple(sorted(shorter - strays - deleted)),
    )


def _checkpointed_end(partition: Path) -> int:
    """What the recovery point and the high watermark say; 0 without them."""
    topic, _, number = partition.name.rpartition("-")
    ends = [0]
    for name in ("recovery-point", "replication"):
        path = partition.parent / f"{name}-offset-checkpoint"
        lines = path.read_text().splitlines() if path.exists() else []
        ends += [int(line.split()[2]) for line in lines if line.startswith(f"{topic} {number} ")]
    return max(ends)


def _is_emptied(partition: ByKafka, directory: Path) -> bool:
    return bool(partition["start"] == partition["end"]) and any(log.stat().st_size for log in directory.glob("*.log"))


class Reading:
    """What is on disk, which is the same for all releases: each directory is read once."""

    def __init__(self, root: Path, state: StartState) -> None:
        self.root = root
        self.state = state
        self._facts: dict[str, PartitionFacts] = {}

    @functools.cached_property
    def log_dirs(self) -> list[LogDir]:
        return find_partitions([str(self.root / name) for name in self.state.log_dirs]).log_dirs

    def facts(self, partition: PartitionDir, log_dir: LogDir) -> PartitionFacts:
        if partition.path not in self._facts:
            self._facts[partition.path] = _facts(partition, log_dir, self.state)
        return self._facts[partition.path]


def by_model(reading: Reading, release: str) -> Outcome:
    """The outcome by the fates that the model finds."""
    log_dirs, state = reading.log_dirs, reading.state
    properties = read_properties("".join(f"{name}={value}\n" for name, value in state.settings.items()).encode())
    broker = read_broker_facts([each.state for each in log_dirs], properties, parse_release(release))
    fates = [fate for log_dir in log_dirs for fate in _fates(log_dir, broker, reading)]
    fates += _broker_fates(reading, broker)
    kinds: dict[FateKind, set[str]] = {}
    for fate in fates:
        kinds.setdefault(fate.kind, set()).add(fate.subject)
    if FateKind.NO_START in kinds:
        return Outcome("exits")
    if FateKind.FAILS_ONCE in kinds:
        return Outcome("exits-once")
    removed = [fate for fate in fates if fate.kind in (FateKind.STRAY, FateKind.OLD_REPLICA, FateKind.STRAY_DELETED)]
    deleted = {fate.subject for fate in removed if fate.log_line == DELETED_LINE}
    strays = {fate.subject for fate in removed if fate.log_line == SET_ASIDE_LINE}
    offline = {_log_dir_of(subject, log_dirs) for subject in kinds.get(FateKind.OFFLINE, ())}
    shorter = {each for kind in SHORTER for each in kinds.get(kind, ())}
    return _started(offline, strays, deleted, shorter)


def _fates(log_dir: LogDir, broker: BrokerFacts, reading: Reading) -> list[Fate]:
    found = log_dir_fates(_log_dir_facts(log_dir), broker)
    for partition in log_dir.partitions:
        found += partition_fates(reading.facts(partition, log_dir), broker)
    return found


def _broker_fates(reading: Reading, broker: BrokerFacts) -> list[Fate]:
    """Of all directories together."""
    plain = [
        reading.facts(each, log_dir)
        for log_dir in reading.log_dirs
        for each in log_dir.partitions
        if each.name.form is DirectoryForm.PLAIN
    ]
    return [
        *partition_in_two_places(plain, broker),
        *future_in_two_places(map(_log_dir_facts, reading.log_dirs)),
        *log_dir_listed_twice([str(reading.root / name) for name in reading.state.log_dirs], broker),
    ]


def _shutdown(log_dir: LogDir) -> Shutdown:
    return Shutdown.CLEAN if log_dir.state.was_shut_down_cleanly else Shutdown.UNCLEAN


def _log_dir_facts(log_dir: LogDir) -> LogDirFacts:
    return log_dir_facts(log_dir.state, _shutdown(log_dir), len(log_dir.partitions))


def _facts(partition: PartitionDir, log_dir: LogDir, state: StartState) -> PartitionFacts:
    name = partition.topic_partition
    facts = FactsReader(partition, log_dir.state, _shutdown(log_dir)).read(is_served=name != "__cluster_metadata-0")
    return facts if state.zookeeper else msgspec.structs.replace(facts, assignment=_assignment(name, state))


def _assignment(topic_partition: str, state: StartState) -> Assignment:
    topic, _, number = topic_partition.rpartition("-")
    if topic not in state.topics:
        return Assignment(topic_id=None, is_replica=False, is_current=True)
    topic_id, replicas, _ = state.topics[topic]
    data = base64.urlsafe_b64decode(f"{topic_id}==")
    return Assignment(topic_id=data, is_replica=number == "0" and 1 in replicas, is_current=True)


def _log_dir_of(subject: str, log_dirs: list[LogDir]) -> str:
    """The name of the log directory that a fate is about."""
    for log_dir in log_dirs:
        if subject == log_dir.state.path or subject in {each.topic_partition for each in log_dir.partitions}:
            return Path(log_dir.state.path).name
    raise AssertionError(subject)


ALL = ("2.8.2", "3.6.1", "3.6.2", "3.7.0", "3.7.2", "3.9.2", "4.3.1", "4.4.0")
DIFFERENT: dict[str, tuple[str, ...]] = {
    # The harness starts no cleaner, which is what reads the file.
    "cleaner-offsets-garbage": ALL,
    # A command names log directories that are there.
    **dict.fromkeys(("log-dir-is-a-file", "one-log-dir-is-a-file", "log-dir-missing"), ALL),
    # The image assigns the partition to the directory of its future copy, which takes its place.
    "future-next-to-partition": ("3.7.2", "3.9.2", "4.3.1", "4.4.0"),
    # Recovery from the recovery point on finds what the end of the log does not show.
    **dict.fromkeys(("bad-checksum-in-last-segment-killed", "bad-checksum-above-recovery-point-killed"), ALL),
    **dict.fromkeys(("plain-write-in-transaction-clean", "plain-write-in-transaction-killed"), ALL),
    **dict.fromkeys((f"offsets-out-of-order-{each}" for each in ("killed", "index-missing", "transaction-index-bad")), ALL),
    # A version of partition.metadata that releases before 3.7 refuse.
    "topic-id-file-newer-version": ALL[:3],
    # The broker reads meta.properties before LogManager does; the model takes the kind of cluster from it.
    "meta-properties-garbage": ("3.7.0", "3.7.2", "3.9.2", "4.3.1", "4.4.0"),
}
"""States, and the releases for which the model and Kafka do not agree, or cannot be compared. A new one fails."""


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_the_model_says_what_kafka_does(state: StartState, tmp_path: Path) -> None:
    """An entry of ``DIFFERENT`` that is not needed any more fails, too."""
    state.build(tmp_path)
    reading = Reading(tmp_path, state)
    different = {}
    for row, release, fate in FATES:
        if row is state:
            expected = by_kafka(tmp_path, fate, state)
            found = _found(reading, release)
            if expected != found:
                different[release] = (expected, found)
    assert tuple(sorted(different)) == DIFFERENT.get(state.name, ()), different


def _found(reading: Reading, release: str) -> Outcome | str:
    try:
        return by_model(reading, release)
    except UsageError as error:
        return str(error)


FATES = tuple(expected_fates())
