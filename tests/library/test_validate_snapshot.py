"""``validate_snapshot``: what is said of right snapshots, and of each way to be wrong."""

import dataclasses
import itertools
from pathlib import Path

import pytest
from budgets import first_of
from log_dirs import EMPTY_SNAPSHOT, batch, copy_of, flip, snapshot_bytes, snapshot_name, tree, truth, write_partition
from manifests import FIXTURES, PartitionFixture
from msgspec.structs import replace

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild import (
    ReadFailedError,
    ReplayOptions,
    SnapshotClass,
    SnapshotRefusedError,
    UsageError,
    Validity,
    ensure_snapshot,
    validate_snapshot,
)

EARLY = ReplayOptions(as_of_ms=0)
"""A time at which nothing had expired."""

METADATA = "__cluster_metadata-0"
"""Not a partition of a topic: the library refuses it."""

BEGAN_MS = 1_700_000_000_000
MIXED = FIXTURES / "kafka27-mixed" / "logs" / "mixed-0"
TRUTH = truth("kafka27-mixed", "mixed-0")
WRONG = {Validity.FALSE_EMPTY, Validity.MISSING_PRODUCERS, Validity.WRONG, Validity.CORRUPT}


def test_what_kafka_wrote_is_never_called_wrong(partition_fixture: PartitionFixture) -> None:
    """Kafka's own classes say what is right, also of damaged and compacted logs, which prove nothing."""
    if partition_fixture.partition == METADATA:
        with pytest.raises(UsageError, match="is the metadata log of the cluster"):
            validate_snapshot(partition_fixture.directory, EMPTY_SNAPSHOT, partition_fixture.segments[0].snapshot_offset)
        return
    for segment in partition_fixture.segments:
        if segment.snapshot_offset == 0:
            continue
        right = snapshot_bytes(segment.entries)
        found = validate_snapshot(
            partition_fixture.directory, right, segment.snapshot_offset, options=dataclasses.replace(EARLY, replay_from="log-start")
        )
        assert found.validity in (Validity.EQUAL, Validity.UNPROVEN), found.reasons
        assert found.reasons
        is_trusted = found.snapshot_class not in (None, SnapshotClass.UNPROVEN, SnapshotClass.UNSOUND)
        assert (found.validity is Validity.EQUAL) == is_trusted
        if is_trusted:
            assert found.entries == found.expected_entries == len(segment.entries)


@pytest.mark.parametrize("fixture", first_of(["kafka27-mixed", "kafka4-mixed"]))
def test_healthy_logs_prove_every_right_snapshot_and_no_empty_one(fixture: str) -> None:
    directories = [each for each in (FIXTURES / fixture / "logs").glob("*-0") if not each.name.startswith("__")]
    assert directories
    for directory in directories:
        for offset, entries in truth(fixture, directory.name).items():
            if offset == 0:
                continue
            found = validate_snapshot(directory, snapshot_bytes(entries), offset, options=EARLY)
            assert (found.validity, found.offset) == (Validity.EQUAL, offset), found.reasons
            empty = validate_snapshot(directory, EMPTY_SNAPSHOT, offset, options=EARLY)
            assert empty.validity is (Validity.FALSE_EMPTY if entries else Validity.EQUAL), (directory, offset)


ENTRIES = sorted(TRUTH[2181], key=lambda entry: entry.producer_id)
ONE = ENTRIES[3]


def with_one(entry: ProducerEntry) -> bytes:
    return snapshot_bytes([entry, *(each for each in ENTRIES if each is not ONE)])


@pytest.mark.parametrize(
    ("data", "validity", "reason"),
    [
        pytest.param(snapshot_bytes(ENTRIES), Validity.EQUAL, "equal", id="right"),
        pytest.param(snapshot_bytes(ENTRIES[::-1]), Validity.EQUAL, "equal", id="in another order"),
        pytest.param(EMPTY_SNAPSHOT, Validity.FALSE_EMPTY, "contradicts", id="empty"),
        pytest.param(b"", Validity.CORRUPT, "expected", id="no bytes"),
        pytest.param(snapshot_bytes(ENTRIES)[:-1], Validity.CORRUPT, "expected", id="torn"),
        pytest.param(snapshot_bytes(ENTRIES)[:-1] + b"\x07", Validity.CORRUPT, "expected", id="bad checksum"),
        pytest.param(snapshot_bytes(ENTRIES[1:]), Validity.MISSING_PRODUCERS, "contradicts", id="one is missing"),
        pytest.param(with_one(replace(ONE, last_offset=2181)), Validity.CORRUPT, "at or above 2181", id="of a later offset"),
        pytest.param(with_one(replace(ONE, last_offset=ONE.last_offset - 1)), Validity.WRONG, "contradicts", id="older state"),
        pytest.param(with_one(replace(ONE, epoch=ONE.epoch + 1)), Validity.WRONG, "contradicts", id="epoch"),
        pytest.param(
            snapshot_bytes([*ENTRIES, replace(ONE, producer_id=777, current_txn_first_offset=-1)]),
            Validity.WRONG,
            "contradicts",
            id="nobody wrote so",
        ),
    ],
)
def test_each_way_to_be_wrong(data: bytes, validity: Validity, reason: str, tmp_path: Path) -> None:
    found = validate_snapshot(MIXED, data, 2181, options=EARLY)
    assert found.validity is validity, found.reasons
    assert reason in found.reasons[0]
    (tmp_path / "any-name").write_bytes(data)
    assert validate_snapshot(MIXED, tmp_path / "any-name", 2181, options=EARLY).validity is validity
    if validity in (Validity.FALSE_EMPTY, Validity.MISSING_PRODUCERS, Validity.WRONG):
        assert found.costs
        assert all(cost.startswith("producer ") for cost in found.costs)
    if not data or validity is Validity.EQUAL:
        assert found.costs == ()


def test_the_snapshot_of_another_boundary() -> None:
    for (offset, entries), (_, others) in itertools.permutations(list(TRUTH.items())[1:6], 2):
        found = validate_snapshot(MIXED, snapshot_bytes(others), offset, options=EARLY)
        assert (found.validity in WRONG) == (entries != others)


def test_the_boundary_of_a_segment() -> None:
    for base, following in itertools.pairwise(sorted(int(path.stem) for path in MIXED.glob("*.log"))):
        found = validate_snapshot(MIXED / f"{base:020d}.log", snapshot_bytes(TRUTH[following]), options=EARLY)
        assert (found.offset, found.validity) == (following, Validity.EQUAL)
    at_end = validate_snapshot(str(MIXED / f"{7637:020d}.log"), snapshot_bytes(TRUTH[8231]), options=EARLY)
    assert (at_end.offset, at_end.validity) == (8231, Validity.EQUAL)
    named = validate_snapshot(MIXED / f"{7045:020d}.log", snapshot_bytes(TRUTH[8231]), 8231, options=EARLY)
    assert (named.offset, named.validity) == (8231, Validity.EQUAL)


def test_one_after_the_other_reads_each_segment_once() -> None:
    validated = None
    for base, following in itertools.pairwise(sorted(int(path.stem) for path in MIXED.glob("*.log"))):
        validated = validate_snapshot(MIXED, snapshot_bytes(TRUTH[following]), following, after=validated, options=EARLY)
        assert validated.validity is Validity.EQUAL
        assert validated.read_bytes == (MIXED / f"{base:020d}.log").stat().st_size
    ensured = ensure_snapshot(MIXED, 2181, options=EARLY)
    behind = validate_snapshot(MIXED, EMPTY_SNAPSHOT, 2596, after=ensured, options=EARLY)
    assert behind.validity is Validity.FALSE_EMPTY
    assert behind.read_bytes == (MIXED / f"{2181:020d}.log").stat().st_size


def test_what_expired_may_be_there_or_not(tmp_path: Path) -> None:
    """A broker writes expired entries, and drops them when it loads a snapshot: both are right."""
    data = batch(0, count=5, producer_id=1, timestamp=BEGAN_MS) + batch(5, count=5, producer_id=2, timestamp=BEGAN_MS + 90_000_000)
    directory = write_partition(tmp_path / "t-0", {0: data, 10: b""})
    old, young = ProducerEntry(1, 0, 4, 4, 4, BEGAN_MS, -1, -1), ProducerEntry(2, 0, 4, 9, 4, BEGAN_MS + 90_000_000, -1, -1)
    for entries in ((old, young), (young,)):
        assert (
            validate_snapshot(
                directory, snapshot_bytes(entries), 10, options=ReplayOptions(as_of_ms=BEGAN_MS + 90_000_000)
            ).validity
            is Validity.EQUAL
        )
    assert (
        validate_snapshot(directory, snapshot_bytes([old]), 10, options=ReplayOptions(as_of_ms=BEGAN_MS + 90_000_000)).validity
        is Validity.MISSING_PRODUCERS
    )


def test_damage_below_proves_nothing(tmp_path: Path) -> None:
    mixed = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    flip(mixed / f"{1151:020d}.log", 61 + 20)
    for data in (snapshot_bytes(TRUTH[2181]), EMPTY_SNAPSHOT):
        found = validate_snapshot(mixed, data, 2181, options=EARLY)
        assert (found.validity, found.snapshot_class) == (Validity.UNPROVEN, SnapshotClass.UNSOUND)
    flip(mixed / f"{1151:020d}.log", 16)  # the magic: no broker gets past it
    found = validate_snapshot(mixed, EMPTY_SNAPSHOT, 2181, options=EARLY)
    assert (found.validity, found.snapshot_class) == (Validity.UNPROVEN, None)
    assert "no replay gets past it" in found.reasons[0]
    assert validate_snapshot(mixed, EMPTY_SNAPSHOT, 1151, options=EARLY).validity is Validity.FALSE_EMPTY


def test_limits_and_what_makes_no_sense(tmp_path: Path) -> None:
    right = snapshot_bytes(TRUTH[2181])
    with pytest.raises(SnapshotRefusedError, match="max_bytes is"):
        validate_snapshot(MIXED, right, 2181, max_bytes=1_000)
    with pytest.raises(SnapshotRefusedError, match="deadline"):
        validate_snapshot(MIXED, right, 2181, timeout_s=0)
    for arguments, said in (
        ((MIXED, right), "next_base_offset is needed"),
        ((MIXED, right, 2182), "neither the base offset"),
        ((MIXED / f"{5:020d}.log", right), "is no segment"),
        ((tmp_path / "nowhere-0", right, 5), "does not exist"),
    ):
        with pytest.raises(UsageError, match=said):
            validate_snapshot(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ReadFailedError, match="does not exist"):
        validate_snapshot(MIXED, tmp_path / "nowhere", 2181)
    before = tree(MIXED)
    validate_snapshot(MIXED, MIXED / snapshot_name(7045), 7045)
    assert tree(MIXED) == before
