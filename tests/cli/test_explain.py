"""``inspect explain`` as a user runs it: every producer of the bundled directories, each kind of question, and damaged logs."""

import struct
from pathlib import Path

import pytest
from command import Run, in_json, nonzero, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, batch, copy_of, cut, flip, snapshot_bytes, snapshot_name, tree, truth, write_partition
from manifests import FIXTURES, PartitionFixture, partition_fixtures
from msgspec.structs import asdict

from formats.partition.producer_snapshot import ProducerEntry

AS_OF = "1795261244275"
"""The greatest timestamp of kafka27-mixed: nothing that was written within the day before has expired."""

EXPLAINED = [each for each in partition_fixtures() if each.fixture in ("kafka27-mixed", "kafka4-compacted", "txn-state4")]


def asked(path: object, producer_id: int, *arguments: object) -> Run:
    return in_json("inspect explain", path, "--producer-id", producer_id, *arguments)


@pytest.mark.parametrize("fixture", EXPLAINED, ids=str)
def test_the_entry_is_kafkas_and_each_field_has_its_batch(fixture: PartitionFixture) -> None:
    """A producer of every partition at the log end, one with an open transaction first, and one in the middle."""
    before = tree(fixture.directory)
    for segment in (fixture.segments[-1], fixture.segments[len(fixture.segments) // 2]):
        for entry in sorted(segment.entries, key=lambda entry: (-entry.current_txn_first_offset, -entry.last_offset))[:1]:
            run = asked(fixture.directory, entry.producer_id, "--offset", segment.snapshot_offset, "--as-of", "0")
            assert run.exit_code in (0, 1), run.stderr
            (found,) = run.document["partitions"]
            assert found["offset"] == segment.snapshot_offset
            if found["base_snapshot_offset"] is None:
                assert found["entry"] == asdict(entry)
            for batch_of_field in found["set_by"].values():
                data = (fixture.directory / batch_of_field["segment"]).read_bytes()[batch_of_field["position_bytes"] :]
                assert struct.unpack_from(">q", data) == (batch_of_field["base_offset"],)
                assert struct.unpack_from(">q", data, 43) == (entry.producer_id,)
    assert tree(fixture.directory) == before


def answers(run: Run) -> dict[str, tuple[str, str]]:
    (found,) = run.document["partitions"]
    return {each["batch"]: (each["running"]["answer"], each["restarted"]["answer"]) for each in found["answers"]}


MIXED = "fixtures/kafka27-mixed/logs/mixed-0"


def test_the_answers_before_and_after_a_start() -> None:
    run = asked(MIXED, 33, "--as-of", AS_OF)
    assert run.exit_code == 0
    held = run.partition("mixed-0")["in_memory"]
    assert held == [{"first_sequence": at, "last_sequence": at, "first_offset": 6913 + at} for at in range(2, 7)]
    acknowledged = [each["running"]["first_offset"] for each in run.partition("mixed-0")["answers"]]
    assert acknowledged == [None, 6919, 6915, None, None]
    assert answers(run) == {
        "the next one": ("accepted", "accepted"),
        "the last one again": ("duplicate", "duplicate"),
        "the one 4 before it again": ("duplicate", "OutOfOrderSequenceException"),
        "one after a gap": ("OutOfOrderSequenceException", "OutOfOrderSequenceException"),
        "the first of a new epoch": ("accepted", "accepted"),
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(("--sequence", 0), ("duplicate", "OutOfOrderSequenceException")), (("--epoch", 1), ("accepted", "accepted"))],
)
def test_a_batch_that_is_asked_about(arguments: tuple[object, ...], expected: tuple[str, str]) -> None:
    """Producer 1 wrote sequences 0 to 10 and 11 to 14, in epoch 0."""
    assert answers(asked(MIXED, 1, "--as-of", AS_OF, *arguments)) == {"as asked": expected}


def test_an_expired_producer_is_forgotten() -> None:
    run = asked(MIXED, 1, "--as-of", "2200-01-01")
    found = run.partition("mixed-0")
    assert found["expired"]
    (entry,) = (each for each in truth("kafka27-mixed", "mixed-0")[8231] if each.producer_id == 1)
    assert found["expires_at_ms"] == entry.timestamp + 86_400_000
    assert set(answers(run).values()) == {("accepted", "accepted")}, "an idempotent producer has no transaction version"
    old = asked(MIXED, 1, "--as-of", "2200-01-01", "--kafka-release", "2.4.1", "--sequence", 15)
    assert answers(old) == {"as asked": ("UnknownProducerIdException", "UnknownProducerIdException")}
    assert not asked(MIXED, 1, "--as-of", "2200-01-01", "--expiration-ms", 2**62).partition("mixed-0")["expired"]


def test_the_last_epoch_has_no_new_one(tmp_path: Path) -> None:
    data = batch(0, producer_id=7, epoch=2**15 - 1, timestamp=10)
    directory = write_partition(tmp_path / "t-0", {0: data})
    found = answers(asked(directory, 7, "--as-of", "0", "--kafka-release", "2.6"))
    assert set(found) == {"the next one", "the last one again", "one after a gap", "the first of an older epoch"}
    assert found["the first of an older epoch"] == ("ProducerFencedException",) * 2


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("configured", "arguments", "expected"),
    [
        (None, ("--kafka-release", "3.4"), DAY_MS),
        (None, ("--kafka-release", "3.3"), 7 * DAY_MS),
        (None, ("--kafka-release", "2.7", "--expiration-ms", 5), 5),
        ("transactional.id.expiration.ms=9000\nproducer.id.expiration.ms=8000", ("--kafka-release", "2.7"), 9000),
        ("transactional.id.expiration.ms=9000\nproducer.id.expiration.ms=8000", ("--kafka-release", "3.9"), 8000),
        ("transactional.id.expiration.ms=999999999", (), 999999999),
    ],
)
def test_the_expiration_is_that_of_the_version(
    configured: str | None, arguments: tuple[object, ...], expected: int, tmp_path: Path
) -> None:
    """Before 3.4 it was that of the transactional id (KIP-854); without a version the longer one, as for every verb."""
    where: tuple[object, ...] = (MIXED,)
    if configured is not None:
        properties = tmp_path / "server.properties"
        properties.write_text(f"log.dirs={FIXTURES / 'kafka27-mixed' / 'logs'}\n{configured}\n")
        where = ("--server-properties", properties, "--topic", "mixed")
    run = in_json("inspect explain", *where, "--producer-id", 1, "--as-of", AS_OF, *arguments)
    (found,) = run.document["partitions"]
    assert run.document["expiration_ms"] == expected
    assert found["expires_at_ms"] == found["entry"]["timestamp"] + expected


def test_all_partitions_that_know_the_producer() -> None:
    """Partitions are listed if their right state has the producer, and no others. With more than three of them the tables stay
    short."""
    knowing = {
        each.partition
        for each in partition_fixtures()
        if each.fixture == "kafka27-mixed" and any(entry.producer_id == 33 for entry in each.segments[-1].entries)
    }
    run = asked("fixtures/kafka27-mixed", 33, "--as-of", AS_OF)
    assert {each["topic_partition"] for each in run.document["partitions"]} == knowing
    assert run.document["partitions_read"] == 4
    table = snaprebuild("inspect", "explain", "fixtures/kafka27-killed", "--producer-id", 1014, "--as-of", AS_OF)
    assert "to see batches and answers" in table.text
    assert "while it runs" not in table.stdout


def test_a_producer_that_is_unknown() -> None:
    run = asked("fixtures/kafka27-mixed", 777)
    assert (run.exit_code, run.document["partitions"]) == (1, [])
    assert run.codes == {"unknown-producer": 1}
    alone = asked(MIXED, 777)
    assert alone.partition("mixed-0")["entry"] is None
    assert answers(alone)["one after a gap"] == ("accepted", "accepted")
    assert answers(alone)["one after a gap, in transaction version 2"] == ("OutOfOrderSequenceException",) * 2


@pytest.mark.parametrize(("at", "said"), [(0, "begins at 0"), (8232, "ends at 8231"), (2**63 - 1, "ends at 8231")])
def test_an_offset_that_is_not_in_the_log(at: int, said: str) -> None:
    run = asked(MIXED, 1, "--offset", at)
    assert run.exit_code == 1
    assert said in run.messages("offset-not-in-log")
    assert ("unknown-producer" in run.codes) == (at == 0), "the snapshots and the log know it, though not before 0"


def test_an_offset_that_some_logs_do_not_have() -> None:
    """Only those that know the producer are reported: plain-0 is as short as the others, and holds none."""
    run = asked("fixtures/kafka27-mixed", 33, "--as-of", AS_OF, "--offset", 7000)
    assert (run.exit_code, run.codes) == (1, {"offset-not-in-log": 2})
    assert {each["topic_partition"]: each["offset"] for each in run.document["partitions"]} == {
        "mixed-0": 7000,
        "deleted-0": None,
        "logappend-0": None,
    }
    run = asked("fixtures/kafka27-mixed", 777, "--offset", 7000)
    assert (run.exit_code, run.codes) == (1, {"unknown-producer": 1})
    said = "no partition that was read has producer 777 before offset 7000. `inspect stats` lists the ids"
    assert said in run.messages("unknown-producer")


def test_a_log_that_could_not_be_read_may_know_it(tmp_path: Path) -> None:
    """A run that did not read everything does not call the producer unknown."""
    root = copy_of("kafka27-mixed", tmp_path)
    first = root / "mixed-0" / f"{0:020d}.log"
    data = bytearray(first.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    first.write_bytes(data)
    run = asked(root, 777)
    assert (run.exit_code, run.codes["unknown-producer"]) == (4, 1)
    (finding,) = [each for each in run.document["findings"] if each["code"] == "unknown-producer"]
    assert finding["severity"] == "note"
    assert "; 1 partition could not be read to the end, and may have it. " in finding["message"]


def test_an_offset_inside_a_segment() -> None:
    """Producer 1 wrote 144 to 154 and 444 to 447: between them only the first is known, also inside the second batch."""
    for at, last in ((155, 154), (300, 154), (444, 154), (446, 154), (448, 447)):
        run = asked(MIXED, 1, "--offset", at)
        assert (run.exit_code, run.stderr) == (0, "")
        found = run.partition("mixed-0")
        assert (found["offset"], found["entry"]["last_offset"]) == (at, last)
        assert found["set_by"]["last_offset"]["base_offset"] == {154: 144, 447: 444}[last]


def test_what_snapshots_say_differently(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    right = truth("kafka27-mixed", "mixed-0")
    wrong = [
        ProducerEntry(**{**asdict(each), "last_sequence": 3} if each.producer_id == 1 else asdict(each)) for each in right[7637]
    ]
    (logs / "mixed-0" / snapshot_name(7637)).write_bytes(snapshot_bytes(wrong))
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(EMPTY_SNAPSHOT)
    (logs / "mixed-0" / snapshot_name(583)).write_bytes(b"torn")
    run = asked(logs / "mixed-0", 1, "--as-of", AS_OF)
    snapshots = run.partition("mixed-0")["snapshots"]
    assert nonzero(snapshots["totals"]) == {"unreadable": 1, "equal": 1, "differs": 1, "missing": 1}
    assert snapshots["differing"] == [
        {"offset": 583, "status": "unreadable", "fields": []},
        {"offset": 7637, "status": "differs", "fields": [{"field": "last_sequence", "found": 3, "expected": 14}]},
        {"offset": 8231, "status": "missing", "fields": []},
    ]
    twice = [ProducerEntry(1, 9), *right[8231]]
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(snapshot_bytes(twice))
    assert asked(logs / "mixed-0", 1, "--as-of", AS_OF).partition("mixed-0")["snapshots"]["totals"]["equal"] == 2
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(EMPTY_SNAPSHOT)
    expired = asked(logs / "mixed-0", 1, "--as-of", "2200-01-01").partition("mixed-0")["snapshots"]["totals"]
    assert nonzero(expired) == {"unreadable": 1, "equal": 1, "equal_after_expiry": 2}


def test_a_snapshot_knows_what_the_log_does_not(tmp_path: Path) -> None:
    """The batches were deleted: the snapshot at the first offset brought the entry, and a later one confirms it."""
    entry = ProducerEntry(7, 2, 9, 99, 4, 5000, 3, -1)
    directory = write_partition(tmp_path / "t-0", {100: batch(100), 101: batch(101)})
    for offset in (100, 101):
        (directory / snapshot_name(offset)).write_bytes(snapshot_bytes([entry]))
    found = asked(directory, 7, "--as-of", "0").partition("t-0")
    assert (found["entry"], found["set_by"], found["base_snapshot_offset"]) == (asdict(entry), {}, 100)
    assert found["in_memory"] == [{"first_sequence": 5, "last_sequence": 9, "first_offset": 95}]
    table = snaprebuild("inspect", "explain", directory, "--producer-id", 7, "--as-of", "0")
    assert f"{100:020d}.snapshot" in table.stdout


def test_damaged_logs(tmp_path: Path) -> None:
    run = asked("fixtures/damaged/logs/bad-crc-0", 1)
    assert run.exit_code == 4
    assert "bad-checksum" in run.codes
    logs = copy_of("kafka27-mixed", tmp_path)
    segment = sorted((logs / "mixed-0").glob("*.log"))[3]
    cut(segment, -7)
    run = asked(logs / "mixed-0", 1, "--as-of", AS_OF)
    assert (run.exit_code, run.codes) == (4, {"damaged-segment": 1})
    assert run.partition("mixed-0")["offset"] == int(segment.stem)
    flip(segment, 16, 0x7F)
    assert asked(logs / "mixed-0", 1).exit_code == 4
    segment.unlink()
    segment.mkdir()
    run = asked(logs / "mixed-0", 1)
    assert (run.exit_code, run.codes["storage-failed"]) == (5, 1)
