"""Answers about remote storage against Kafka's own RemoteLogManager and log, on a real leader's files, whole and changed at random."""

import dataclasses
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka_classpath import java_output
from log_dirs import batch, batch_positions, record, write_partition
from manifests import FIXTURES
from msgspec.structs import replace
from ours import answers_of_leader

from formats.log.record_batch import parse_batch_header
from formats.log.records import read_records
from formats.partition.checkpoint_file import LeaderEpochEntry, write_leader_epoch_checkpoint
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentUpdate, read_remote_log_record, write_remote_log_record

FIXTURE = FIXTURES / "follower-lost-state"
MANIFEST = json.loads((FIXTURE / "manifest.json").read_text())
SPECIAL = [-1, -2, -3, -4, -5, -6]

pytestmark = pytest.mark.kafka


@dataclass
class Case:
    """A leader: its partition directory, its store, and the values of its metadata log."""

    directory: Path
    store: Path
    values: list[bytes]

    def write_metadata(self) -> Path:
        """The metadata log as a partition of its own."""
        log = b"".join(batch(offset, records=[record(value)]) for offset, value in enumerate(self.values))
        return write_partition(self.directory.parent.parent / "metadata" / "__remote_log_metadata-0", {0: log}).parent

    def first_base(self) -> int:
        return min(int(path.name[:20]) for path in self.directory.glob("*.log"))


def real_values() -> list[bytes]:
    """The records of the metadata log."""
    log = FIXTURE / "node1" / "__remote_log_metadata-0" / f"{0:020d}.log"
    data, starts = log.read_bytes(), batch_positions(log)
    batches = [data[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    values = [each.value for one in batches for each in read_records(parse_batch_header(one), one)]
    assert len(values) == len(MANIFEST["rlmm_records"])
    return values


def copied(tmp_path: Path, values: list[bytes]) -> Case:
    log_dir = tmp_path / "node1"
    shutil.copytree(FIXTURE / "node1" / "payments-0", log_dir / "payments-0")
    for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown", "meta.properties"):
        shutil.copy2(FIXTURE / "node1" / name, log_dir / name)
    shutil.copytree(FIXTURE / "remote", tmp_path / "remote")
    return Case(log_dir / "payments-0", tmp_path / "remote", values)


def changed(case: Case, chosen: random.Random) -> None:
    """Fewer segments on disk, leader epochs, copies that were never finished or are of another lineage, and an order of its own."""
    bases = sorted(int(path.name[:20]) for path in case.directory.glob("*.log"))
    for base in bases[: chosen.randrange(len(bases))]:
        for path in case.directory.glob(f"{base:020d}.*"):
            path.unlink()
    starts = sorted({0, *chosen.sample(range(1, 830), chosen.randrange(5))})
    own = [LeaderEpochEntry(2 * number + chosen.randrange(2), start) for number, start in enumerate(starts)]
    (case.directory / "leader-epoch-checkpoint").write_bytes(write_leader_epoch_checkpoint(own))
    finished, others = [], []
    for value in case.values:
        record = read_remote_log_record(value)
        if isinstance(record, RemoteSegment):
            lineage = own if chosen.random() < 0.7 else [replace(each, epoch=each.epoch + chosen.randrange(2)) for each in own]
            inside = tuple(each for each in lineage if record.start_offset < each.start_offset <= record.end_offset)
            before = [each for each in lineage if each.start_offset <= record.start_offset][-1]
            record = dataclasses.replace(record, leader_epochs=(replace(before, start_offset=record.start_offset), *inside))
            others.append(write_remote_log_record(record))
        elif isinstance(record, RemoteSegmentUpdate) and chosen.random() < 0.8:
            finished.append(value)
    if chosen.random() < 0.3:
        chosen.shuffle(finished)
    case.values = [*others, *finished]


def theirs(case: Case, timestamps: list[int], offsets: list[int], deleted: int) -> list[str]:
    caches = case.store.parent / "caches"
    caches.mkdir()
    lines = [f"M {value.hex()}" for value in case.values]
    lines += [*(f"T {each}" for each in timestamps), *(f"W {each}" for each in offsets), f"D {deleted}"]
    arguments = (case.directory, 0, case.store, MANIFEST["topic_id"], caches)
    return java_output("FoldedMetadata", "TieredLeader", arguments=arguments, lines=lines)


@pytest.mark.parametrize("seed", range(4))
def test_kafka_answers_the_same(seed: int, tmp_path: Path) -> None:
    """Seed 0 is the leader as it is."""
    chosen = random.Random(seed)
    case = copied(tmp_path, real_values())
    if seed:
        changed(case, chosen)
    times = sorted(
        {each for copy in MANIFEST["remote_segments"] for each in (copy["max_timestamp_ms"], copy["max_timestamp_ms"] + 1)}
        | {chosen.randint(1795266407000, 1795266438000) for _ in range(60)}
    )
    offsets = [*range(0, case.first_base(), 13), case.first_base() - 1] if case.first_base() else []
    timestamps = [*SPECIAL, 0, *times]
    answers, copies, deleted_below = answers_of_leader(case.directory, case.store, case.write_metadata(), timestamps, offsets)
    log_start = answers[-2][0]
    offsets = [each for each in offsets if each >= log_start]
    deleted = chosen.randint(log_start + 1, 833)
    left, gone = deleted_below(deleted)
    reported = iter(theirs(case, timestamps, offsets, deleted))
    wrong = {}
    for each in timestamps:
        kafka = tuple(map(int, next(reported).split()))
        if each == -6 and kafka[0] >= answers[-1][0]:
            kafka = (-1, -1, -1)  # what a leader holds back from a follower, as Partition and not the log does it
        if answers[each] != kafka:
            wrong[each] = (answers[each], kafka)
    for each in offsets:
        kafka_copy = next(reported)
        if copies[each] != kafka_copy:
            wrong[each] = (copies[each], kafka_copy)
    left_by_kafka, _, gone_by_kafka = next(reported).partition(" ")
    assert (left, gone) == (set(map(int, left_by_kafka.split(","))), set(filter(None, gone_by_kafka.split(",")))), deleted
    assert not wrong, list(wrong.items())[:5]
