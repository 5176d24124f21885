"""``inspect explain FILE.snapshot``: the wrong entries, since when, where the right values are from, and what corrects them.

Right values are those that Kafka wrote at the same offset of the bundled logs. Each batch that is named is looked up in its segment.
"""

import struct
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, batch, copy_of, entries_in, snapshot_bytes, snapshot_name, tree, truth, write_partition
from manifests import FIXTURES, PartitionFixture, partition_fixtures
from msgspec.structs import asdict, replace
from sentences import NOTHING_BELOW

from formats.partition.producer_snapshot import ProducerEntry

AS_OF = "1795261244275"
"""The greatest timestamp of kafka27-mixed: nothing that was written within the day before has expired."""

FIELDS = ("epoch", "last_sequence", "last_offset", "offset_delta", "timestamp", "coordinator_epoch", "current_txn_first_offset")
RIGHT = truth("kafka27-mixed", "mixed-0")
OFFSETS = sorted(RIGHT)

DAY_MS = 86_400_000

Entries = dict[int, ProducerEntry]


def entries_at(offset: int) -> Entries:
    """Kafka's own entries, by producer."""
    return {each.producer_id: each for each in RIGHT[offset]}


def whole_log(tmp_path: Path) -> Path:
    """A partition with Kafka's snapshot at every boundary."""
    directory = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    for offset, entries in RIGHT.items():
        (directory / snapshot_name(offset)).write_bytes(snapshot_bytes(entries))
    return directory


def plant(directory: Path, offset: int, entries: Entries) -> Path:
    """Puts entries into the snapshot at an offset."""
    path = directory / snapshot_name(offset)
    path.write_bytes(snapshot_bytes(entries.values()))
    return path


def explained(path: Path, *arguments: object) -> Run:
    return in_json("inspect explain", path, "--as-of", AS_OF, *arguments)


def check_batch(directory: Path, producer_id: int, found: dict[str, Any]) -> None:
    """The batch is where it is said to be: its offset, its producer and its greatest timestamp are those in the segment."""
    data = (directory / found["segment"]).read_bytes()[found["position_bytes"] :]
    assert struct.unpack_from(">q", data) == (found["base_offset"],)
    assert struct.unpack_from(">q", data, 43) == (producer_id,)
    assert struct.unpack_from(">q", data, 35) == (found["timestamp_ms"],)


@pytest.mark.parametrize("offset", OFFSETS[::4])
def test_what_kafka_wrote_is_right(offset: int, tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    before = tree(directory)
    run = explained(directory / snapshot_name(offset))
    assert (run.exit_code, run.document["status"], run.document["proven_wrong"]) == (0, "equal", False)
    assert run.document["found_entries"] == run.document["expected_entries"] == len(RIGHT[offset])
    assert (run.document["entries"], run.document["wrong_since_offset"], run.document["next_command"]) == ([], None, None)
    assert tree(directory) == before


def last_writer(offset: int) -> ProducerEntry:
    """The producer whose batch is the newest one below an offset: without a transaction, so that one field can be wrong alone."""
    return max((each for each in RIGHT[offset] if each.current_txn_first_offset < 0), key=lambda each: each.last_offset)


@pytest.mark.parametrize("name", ["last_sequence", "last_offset", "epoch", "timestamp"])
def test_a_wrong_field_its_value_and_its_batch(name: str, tmp_path: Path) -> None:
    """Wrong in three snapshots in a row: the first of them is named."""
    directory = whole_log(tmp_path)
    first, second, last = OFFSETS[5:8]
    right = last_writer(first)
    for offset in (first, second, last):
        entries = entries_at(offset)
        own = entries[right.producer_id]
        entries[right.producer_id] = replace(own, **{name: getattr(own, name) - 1})
        plant(directory, offset, entries)
    run = explained(directory / snapshot_name(last))
    assert (run.exit_code, run.document["proven_wrong"], run.document["wrong_since_offset"]) == (1, True, first)
    assert run.document["next_command"].endswith(f"mixed-0 --as-of {AS_OF} --set-aside")
    (entry,) = run.document["entries"]
    expected = entries_at(last)[right.producer_id]
    assert (entry["producer_id"], entry["deciding_field"], entry["wrong_since_offset"]) == (right.producer_id, name, first)
    (field,) = entry["fields"]
    assert (field["field"], field["found"], field["expected"]) == (name, getattr(expected, name) - 1, getattr(expected, name))
    check_batch(directory, right.producer_id, field["right_since"])
    assert entry["right_since"] == field["right_since"]
    if name in ("last_sequence", "last_offset"):
        assert field["right_since"]["base_offset"] + expected.offset_delta == expected.last_offset
    if name == "timestamp":
        assert field["right_since"]["timestamp_ms"] == expected.timestamp


def test_a_right_snapshot_between_two_wrong_ones_ends_the_run(tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    first, between, last = OFFSETS[5:8]
    right = last_writer(first)
    for offset in (first, last):
        plant(directory, offset, {key: each for key, each in entries_at(offset).items() if key != right.producer_id})
    assert explained(directory / snapshot_name(last)).document["wrong_since_offset"] == last
    (directory / snapshot_name(between)).write_bytes(b"torn")
    run = explained(directory / snapshot_name(last))
    assert run.document["wrong_since_offset"] == first, "a snapshot that does not parse is wrong too"
    assert [each["wrong_since_offset"] for each in run.document["entries"]] == [first], "and shows no entry that was right"


def test_each_entry_has_its_own_since(tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    first, second = OFFSETS[5:7]
    one, two = sorted(RIGHT[first], key=lambda each: -each.last_offset)[:2]
    plant(directory, first, {key: each for key, each in entries_at(first).items() if key != one.producer_id})
    without_both = {key: each for key, each in entries_at(second).items() if key not in (one.producer_id, two.producer_id)}
    plant(directory, second, without_both)
    found = explained(directory / snapshot_name(second)).document["entries"]
    assert {each["producer_id"]: each["wrong_since_offset"] for each in found} == {one.producer_id: first, two.producer_id: second}


def test_a_false_empty_lists_every_entry_of_kafka(tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    offset = OFFSETS[9]
    path = directory / snapshot_name(offset)
    path.write_bytes(EMPTY_SNAPSHOT)
    run = explained(path)
    assert (run.exit_code, run.document["status"]) == (1, "false_empty")
    assert run.document["answer"].startswith(f"mixed-0 at {offset} is wrong (false empty): ")
    found = {each["producer_id"]: each for each in run.document["entries"]}
    right = entries_at(offset)
    assert found.keys() <= right.keys()
    alive = {key for key, each in right.items() if each.current_txn_first_offset >= 0 or each.timestamp > int(AS_OF) - DAY_MS}
    assert run.document["differing_entries"] == len(found) == len(alive)
    for producer_id, entry in found.items():
        assert (entry["kind"], entry["deciding_field"]) == ("missing", None)
        expected = {each["field"]: each["expected"] for each in entry["fields"]}
        assert expected == {name: asdict(right[producer_id])[name] for name in FIELDS}
        assert all(each["found"] is None for each in entry["fields"])
        check_batch(directory, producer_id, entry["right_since"])
        is_open = right[producer_id].current_txn_first_offset >= 0
        assert entry["open_from"] == (right[producer_id].current_txn_first_offset if is_open else None)


def test_an_entry_that_never_was(tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    offset = OFFSETS[9]
    stranger = ProducerEntry(777_777, 0, 3, offset - 1, 3, last_writer(offset).timestamp, -1, -1)
    path = plant(directory, offset, {**entries_at(offset), stranger.producer_id: stranger})
    (entry,) = explained(path).document["entries"]
    assert (entry["producer_id"], entry["kind"], entry["right_since"]) == (777_777, "extra", None)
    assert {each["field"]: each["found"] for each in entry["fields"]} == {name: asdict(stranger)[name] for name in FIELDS}
    assert all(each["expected"] is None and each["right_since"] is None for each in entry["fields"])


def test_the_next_command_corrects_it(tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    offset = OFFSETS[9]
    path = directory / snapshot_name(offset)
    path.write_bytes(EMPTY_SNAPSHOT)
    words = explained(path).document["next_command"].split()
    assert words[:2] == ["snaprebuild", "plan"]
    saved = tmp_path / "plan.json"
    assert snaprebuild(*words[1:], "--save", saved).exit_code == 0
    assert snaprebuild("rebuild", "--plan", saved, "--receipt", tmp_path / "receipt.jsonl").exit_code == 0
    assert entries_in(path.read_bytes()) == RIGHT[offset]
    assert explained(path).document["status"] == "equal"


def test_expired_entries_are_not_wrong(tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    entries = entries_at(OFFSETS[9])
    path = plant(directory, OFFSETS[9], {key: each for key, each in entries.items() if each.current_txn_first_offset >= 0})
    run = in_json("inspect explain", path, "--as-of", "2200-01-01")
    assert (run.document["status"], run.document["entries"], run.document["wrong_since_offset"]) == ("equal_after_expiry", [], None)


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"torn", "torn"), (snapshot_bytes([ProducerEntry(1, 0, 0, 9_999_999)]), "at or above")],
    ids=["torn", "offset"],
)
def test_a_file_that_no_broker_wrote(data: bytes, reason: str, tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    path = directory / snapshot_name(OFFSETS[3])
    path.write_bytes(data)
    run = explained(path)
    assert (run.exit_code, run.document["status"], run.document["proven_wrong"]) == (1, "corrupt", True)
    assert run.document["entries"] == []
    assert run.document["wrong_since_offset"] == OFFSETS[3]
    assert reason == "torn" or reason in run.document["reason"]


def test_why_it_cannot_be_judged(tmp_path: Path) -> None:
    compacted = next(each for each in partition_fixtures() if each.is_compacted and each.fixture == "kafka27-compacted")
    offset = max(each.snapshot_offset for each in compacted.segments)
    directory = copy_of("kafka27-compacted", tmp_path) / compacted.partition
    (directory / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)
    run = in_json("inspect explain", directory / snapshot_name(offset), "--as-of", "0")
    assert (run.document["status"], run.document["proven_wrong"]) == ("unverifiable", False)
    assert "is compacted" in run.document["answer"]
    assert run.document["differing_entries"] > 0
    above = whole_log(tmp_path / "other") / snapshot_name(9000)
    above.write_bytes(EMPTY_SNAPSHOT)
    run = explained(above)
    assert run.document["status"] == "unverifiable"
    assert run.document["reason"] == "is above the log end 8231"
    assert run.document["expected_entries"] is None


@pytest.mark.parametrize("is_clean", [True, False])
def test_above_the_log_end_it_says_what_verify_says(is_clean: bool, tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    above = logs / "mixed-0" / snapshot_name(9500)
    above.write_bytes((logs / "mixed-0" / snapshot_name(2430)).read_bytes())
    if not is_clean:
        (logs / ".kafka_cleanshutdown").unlink()
    run = in_json("inspect explain", above)
    of_verify = in_json("verify", logs / "mixed-0")
    assert run.exit_code == of_verify.exit_code
    about_end, of_verify_about_end = (
        [each for each in one.document["findings"] if each["code"] in ("snapshot-above-log-end", "log-end-lost")]
        for one in (run, of_verify)
    )
    assert about_end
    assert about_end == of_verify_about_end
    assert (run.exit_code == 1) == is_clean
    assert "Next: nothing to do" not in snaprebuild("inspect", "explain", above).stdout or not is_clean


def test_inside_a_batch_the_start_of_the_broker_removes_it(tmp_path: Path) -> None:
    """Nothing takes its place; at the first offset a wrong one stays."""
    logs = copy_of("kafka4-mixed", tmp_path)
    inside = logs / "mixed-0" / snapshot_name(2500)
    inside.write_bytes((logs / "mixed-0" / snapshot_name(2430)).read_bytes())
    for words in (("inspect", "explain", inside), ("verify", logs)):
        run = snaprebuild(*words)
        assert run.exit_code == 1
        assert "Next: start and stop the broker once.\nThen: snaprebuild scan" in run.stdout, run
    inside.unlink()
    (logs / "mixed-0" / snapshot_name(0)).write_bytes(b"torn")
    assert "start and stop the broker" not in snaprebuild("verify", logs).stdout


def test_above_damage_nothing_is_judged(tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    segment = sorted(directory.glob("*.log"))[4]
    segment.write_bytes(segment.read_bytes()[:-7])
    run = explained(directory / snapshot_name(OFFSETS[9]))
    assert (run.exit_code, run.document["status"]) == (4, "unverifiable")
    assert "damaged-segment" in run.codes
    below = explained(directory / snapshot_name(OFFSETS[2]))
    assert (below.exit_code, below.document["status"]) == (0, "equal"), "what is above the file does not matter"


def test_values_of_the_first_snapshot(tmp_path: Path) -> None:
    """The batches were deleted: the snapshot at the first offset brought the entry, which no batch in the log has set."""
    entry = ProducerEntry(7, 2, 9, 99, 4, 5000, 3, -1)
    directory = write_partition(tmp_path / "t-0", {100: batch(100), 101: batch(101), 102: batch(102)})
    for offset in (100, 101):
        (directory / snapshot_name(offset)).write_bytes(snapshot_bytes([entry]))
    (directory / snapshot_name(102)).write_bytes(snapshot_bytes([replace(entry, last_sequence=5)]))
    run = in_json("inspect explain", directory / snapshot_name(102), "--as-of", "0")
    assert run.document["base_snapshot_offset"] in (None, 100)
    assert run.document["status"] in ("stale", "unverifiable")
    table = snaprebuild("inspect", "explain", directory / snapshot_name(100), "--as-of", "0")
    assert NOTHING_BELOW in table.text


JUDGED = [
    each
    for each in partition_fixtures()
    if each.fixture in ("kafka27-mixed", "kafka27-killed", "kafka4-mixed", "kafka27-moved-start")
]


@pytest.mark.parametrize("fixture", JUDGED, ids=str)
def test_each_verdict_is_that_of_verify(fixture: PartitionFixture) -> None:
    """Two commands, one verdict: on each snapshot of the broker, wherever the replay ends."""
    verified = in_json("verify", fixture.directory, "--as-of", AS_OF).document["partitions"]
    seen = 0
    for snapshot in verified[0]["snapshots"] if verified else ():
        path = fixture.directory / snapshot["name"]
        run = explained(path)
        comparison = snapshot["comparison"]
        assert (run.document["status"], run.document["class"]) == (comparison["status"], snapshot["class"]), path
        assert run.document["reason"] == comparison["reason"]
        assert run.document["differing_entries"] == comparison["difference_count"]
        seen += 1
    assert seen == len(list(fixture.directory.glob("*.snapshot")))


DAMAGED = sorted(
    path
    for name in ("false-empty", "stale", "foreign-snapshot", "twice-in-a-snapshot", "wrong-offset", "written-twice")
    for path in (FIXTURES / "damaged" / name).rglob("*.snapshot")
    if "remote" not in path.parts
)


def test_the_known_corruptions_are_those_of_verify() -> None:
    wrong = 0
    for directory in sorted({path.parent for path in DAMAGED}):
        verified = in_json("verify", directory).document["partitions"]
        for snapshot in (each for partition in verified for each in partition["snapshots"]):
            run = in_json("inspect explain", directory / snapshot["name"])
            assert run.document["status"] == snapshot["comparison"]["status"], directory
            certain = [each for each in snapshot["comparison"]["differences"] if each["is_certain"]]
            found = [(each["producer_id"], each["deciding_field"]) for each in run.document["entries"]]
            assert found == [(each["producer_id"], each["field"]) for each in certain][:100]
            wrong += run.document["proven_wrong"]
    assert wrong >= 2


def test_the_table_has_the_batch_and_the_time(tmp_path: Path) -> None:
    directory = whole_log(tmp_path)
    offset = OFFSETS[9]
    right = last_writer(offset)
    path = plant(
        directory, offset, {**entries_at(offset), right.producer_id: replace(right, last_sequence=right.last_sequence - 1)}
    )
    (field,) = explained(path).document["entries"][0]["fields"]
    table = snaprebuild("inspect", "explain", path, "--as-of", AS_OF)
    assert table.exit_code == 1
    first, _, _ = table.stdout.partition("\n")
    assert (
        first
        == f"mixed-0 at {offset} is wrong (stale): 1 entry, of {len(RIGHT[offset])} by the log and {len(RIGHT[offset])} in the file."
    )
    place = "{segment} {position_bytes} {base_offset}".format(**field["right_since"])
    assert f"{right.producer_id} last sequence {place}" in table.text
    assert f"{right.producer_id} last sequence {right.last_sequence - 1} {right.last_sequence} {offset}" in table.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--producer-id", 1), "all of whose entries are explained: no option of a producer goes with it"),
        (("--offset", 5), "no option of a producer goes with it"),
        (("fixtures/kafka27-mixed",), "is a snapshot: name one alone, or directories"),
    ],
)
def test_what_does_not_go_with_a_snapshot(arguments: tuple[object, ...], said: str) -> None:
    run = snaprebuild("inspect", "explain", FIXTURES / "kafka27-mixed/logs/mixed-0" / snapshot_name(8231), *arguments)
    assert (run.exit_code, run.stdout) == (2, "")
    assert said in run.stderr


def test_a_name_that_is_none_of_a_snapshot(tmp_path: Path) -> None:
    """A snapshot that was set aside, and a file that is not there: no option of a producer is missing."""
    set_aside = whole_log(tmp_path) / f"{snapshot_name(8231)}.set-aside.1"
    set_aside.write_bytes(snapshot_bytes(RIGHT[8231]))
    run = snaprebuild("inspect", "explain", set_aside)
    assert (run.exit_code, run.stdout) == (2, "")
    assert "without the name of one" in run.stderr
    assert "inspect explain FILE" not in run.stderr, "it has just refused it"
    assert snaprebuild("inspect", "dump", set_aside).exit_code == 0, "the advice"
    absent = snaprebuild("inspect", "explain", tmp_path / "nonexist.snapshot")
    assert (absent.exit_code, absent.stdout) == (2, "")
    assert "nonexist.snapshot: does not exist" in absent.stderr
    assert "--producer-id" not in absent.stderr


def test_a_copy_without_its_log(tmp_path: Path) -> None:
    path = tmp_path / snapshot_name(8231)
    path.write_bytes(snapshot_bytes(RIGHT[8231]))
    run = snaprebuild("inspect", "explain", path)
    assert (run.exit_code, run.stdout) == (2, "")
    assert "is not in the directory of one partition" in run.stderr
    absent = snaprebuild("inspect", "explain", FIXTURES / "kafka27-mixed/logs/mixed-0" / snapshot_name(5))
    assert (absent.exit_code, "does not exist" in absent.stderr) == (2, True)
