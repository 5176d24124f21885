"""``follower offsets`` as a user runs it: what real brokers answered, searches by time, and an empty store."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from log_dirs import make_log_dir, tree, write_partition
from manifests import FIXTURES
from sentences import NO_COPY_IN_STORE, OBJECTS_MISSING

TIERED, FOLLOWER, AIVEN = FIXTURES / "tiered-local", FIXTURES / "follower-lost-state", FIXTURES / "aiven-layout"
LEADER = (FOLLOWER / "remote", FOLLOWER / "node1", "--topic", "payments", "--metadata-log", FOLLOWER / "node1")


def answers(document: dict[str, Any]) -> dict[int, tuple[int, int, int]]:
    (partition,) = document["partitions"]
    return {
        each["timestamp_ms"]: (each["offset"], each["record_timestamp_ms"], each["leader_epoch"]) for each in partition["answers"]
    }


def offsets_of(document: dict[str, Any]) -> dict[int, int | None]:
    (partition,) = document["partitions"]
    return {each["timestamp_ms"]: each["offset"] for each in partition["answers"]}


# ---------------------------------------------------------------------------------------------------------------- real answers


def test_what_the_leader_answered_before_it_was_stopped() -> None:
    """The last answers of a real 4.3.1 leader, of which this is the directory."""
    last = [line for line in (FOLLOWER / "expected" / "events.txt").read_text().splitlines() if "tiered=" in line][-1]
    reported = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", last)}
    before = tree(FOLLOWER)
    run = in_json("follower offsets", *LEADER)
    assert (run.exit_code, run.document["verified"]) == (0, True)
    found = offsets_of(run.document)
    assert {"start": found[-2], "local": found[-4], "end": found[-1], "tiered": found[-5]} == reported
    assert found[-6] == reported["tiered"] + 1
    (partition,) = run.document["partitions"]
    assert partition["high_watermark"] == {"offset": reported["end"], "source": "replication-offset-checkpoint", "assumed": False}
    assert partition["highest_remote"]["assumed"] is False
    assert tree(FOLLOWER) == before


def test_what_the_cache_of_kafka_knew() -> None:
    manifest = json.loads((TIERED / "manifest.json").read_text())
    run = in_json("follower offsets", TIERED / "remote", TIERED / "logs", "--topic", "mixed", "--metadata-log", TIERED / "logs")
    found = offsets_of(run.document)
    end = manifest["partitions"]["mixed-0"]["end_offset"]
    assert (found[-5], found[-6], found[-1]) == (manifest["highest_remote_offset"], manifest["highest_remote_offset"] + 1, end)


def test_the_store_alone_is_taken_for_live() -> None:
    """LocalTieredStorage names no last offset: it is read from the segments."""
    with_log, alone = in_json("follower offsets", *LEADER), in_json("follower offsets", *LEADER[:4])
    assert answers(with_log.document) == answers(alone.document)
    assert alone.codes == {"tier-unverified": 1}
    assert alone.document["partitions"][0]["highest_remote"]["assumed"] is True


def test_committed_records_alone() -> None:
    """The fixture says that a transaction is open from 6913 on."""
    arguments = (TIERED / "remote", TIERED / "logs", "--topic", "mixed", "--isolation", "read_committed")
    assert "open transaction from 6913" in json.loads((TIERED / "manifest.json").read_text())["note"]
    run = in_json("follower offsets", *arguments)
    assert offsets_of(run.document)[-1] == 6913
    assert run.document["partitions"][0]["last_stable"]["offset"] == 6913


# ---------------------------------------------------------------------------------------------------------------- by time


def dumped(segment: Path) -> list[tuple[int, int]]:
    """Offset and timestamp of every record, out of the lines of ``dump --deep``, which are held against Kafka's tool elsewhere."""
    run = snaprebuild("inspect", "dump", segment, "--deep")
    found = re.findall(r"^\|? ?offset: (\d+) .*?[CL]\w+Time: (-?\d+)", run.stdout, re.MULTILINE)
    assert found, run.stdout[:500]
    return [(int(offset), int(timestamp)) for offset, timestamp in found]


def expected(segments: list[list[tuple[int, int]]], timestamp: int) -> tuple[int, int]:
    """The first record of the first segment that has one: Kafka looks no further than into one segment."""
    for records in segments:
        if max(time for _, time in records) >= timestamp:
            return next((offset, time) for offset, time in records if time >= timestamp)
    return -1, -1


def asked_for(segments: list[list[tuple[int, int]]], count: int = 3) -> list[int]:
    """Timestamps around those of records, and beyond."""
    times = sorted({time for records in segments for _, time in records})
    chosen = [times[0], times[-1], *times[:: max(len(times) // count, 1)]]
    return sorted({0, times[-1] + 1, *chosen, *(time + 1 for time in chosen), *(time - 1 for time in chosen)})


def options_of(timestamps: list[int]) -> list[str]:
    return [word for each in timestamps for word in ("--timestamp", str(each))]


def test_remote_storage_first_then_the_disk() -> None:
    """0 to 455 are only in remote storage, 456 to 789 in both, 790 to 832 on disk alone."""
    remote = sorted((FOLLOWER / "remote").rglob("*.log"))
    local = sorted((FOLLOWER / "node1" / "payments-0").glob("*.log"))
    bases = {int(each.name[:20]) for each in local}
    segments = [dumped(each) for each in remote if int(each.name[:20]) not in bases] + [dumped(each) for each in local]
    assert [offset for records in segments for offset, _ in records] == sorted({offset for each in segments for offset, _ in each})
    timestamps = asked_for(segments, 12)
    run = in_json("follower offsets", *LEADER, *options_of(timestamps))
    assert {each: found[:2] for each, found in answers(run.document).items()} == {
        each: expected(segments, each) for each in timestamps
    }
    where = {each["found_in"] for each in run.document["partitions"][0]["answers"]}
    assert len([each for each in where if each is not None and each.startswith("copy ")]) >= 3
    assert "00000000000000000790.log" in where


@pytest.mark.parametrize("gone", ["both", "torn"])
def test_indexes_only_shorten_the_way(gone: str, tmp_path: Path) -> None:
    """Without them, or with bad ones, a broker makes them anew, and finds the same."""
    shutil.copytree(FOLLOWER / "node1", tmp_path / "node1")
    (tmp_path / "node1" / ".kafka_cleanshutdown").unlink()  # after a clean stop a missing time index stays so
    for path in (tmp_path / "node1" / "payments-0").glob("*index"):
        path.write_bytes(b"\xff" * 24) if gone == "torn" else path.unlink()
    segments = [dumped(each) for each in sorted((FOLLOWER / "node1" / "payments-0").glob("*.log"))]
    timestamps = [-3, *asked_for(segments)]
    run = in_json(
        "follower offsets", tmp_path / "node1", "--topic", "payments", "--assume", "remote_storage=off", *options_of(timestamps)
    )
    whole = in_json(
        "follower offsets", FOLLOWER / "node1", "--topic", "payments", "--assume", "remote_storage=off", *options_of(timestamps)
    )
    found = answers(run.document)
    assert found == answers(whole.document)
    greatest = max(time for records in segments for _, time in records)
    first = next(offset for records in segments for offset, time in records if time == greatest)
    assert found.pop(-3)[:2] == (first, greatest)
    assert {each: answer[:2] for each, answer in found.items()} == {each: expected(segments, each) for each in timestamps[1:]}


@pytest.mark.parametrize(
    ("name", "log_dir"), [("plain", "kafka27-mixed"), pytest.param("encrypted-zstd", "kafka4-mixed", marks=pytest.mark.full)]
)
def test_in_the_objects_of_the_plugin(name: str, log_dir: str, tmp_path: Path) -> None:
    """A leader that keeps only what is not uploaded: everything else is read out of objects."""
    variant = json.loads((AIVEN / "plugin-reads.json").read_text())["variants"][name]
    copies = [
        each["metadata"]
        for each in variant["segments"]
        if each["source"] == {"log_dir": log_dir, "partition": "mixed-0", "changed": None}
    ]
    source = FIXTURES / log_dir / "logs" / "mixed-0"
    segments = [dumped(source / f"{each['start_offset']:020d}.log") for each in copies]
    end = copies[-1]["end_offset"]
    directory = tmp_path / "logs" / "mixed-0"
    directory.mkdir(parents=True)
    for path in source.iterdir():
        if not path.name[:20].isdecimal() or int(path.name[:20]) > end:
            shutil.copy(path, directory)
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {copies[0]['topic_id']}")
    key = ("--set", f"private_key={AIVEN / 'keys' / 'key1.private.pem'}") if "encrypted" in name else ()
    timestamps = [each for each in asked_for(segments) if each <= max(copy["max_timestamp_ms"] for copy in copies)]
    run = in_json("follower offsets", AIVEN / variant["store"], tmp_path / "logs", *key, *options_of([*timestamps, -2, -5]))
    found = answers(run.document)
    assert (found.pop(-2)[0], found.pop(-5)[0]) == (copies[0]["start_offset"], end)
    assert {each: answer[:2] for each, answer in found.items()} == {each: expected(segments, each) for each in timestamps}
    for each in run.document["partitions"][0]["answers"]:
        if each["timestamp_ms"] >= 0:
            holder = next(copy["segment_id"] for copy in copies if copy["max_timestamp_ms"] >= each["timestamp_ms"])
            assert each["found_in"] == f"copy {holder}"


# ---------------------------------------------------------------------------------------------------------------- the question


def test_a_time_index_that_is_missing_after_a_clean_stop(tmp_path: Path) -> None:
    """The broker has no timestamp of that segment: the file's own counts for searches, and -3 passes it over."""
    shutil.copytree(FOLLOWER / "node1", tmp_path / "node1")
    log = tmp_path / "node1" / "payments-0"
    last = max(log.glob("*.log"))
    records = [each for path in sorted(log.glob("*.log")) if path != last for each in dumped(path)]
    greatest = max(time for _, time in records)
    last.with_suffix(".timeindex").unlink()
    late = max(time for _, time in dumped(last))
    os.utime(last, (1_000_000, 1_000_000))
    options = ("--topic", "payments", "--assume", "remote_storage=off", *options_of([-3, late]))
    assert answers(in_json("follower offsets", tmp_path / "node1", *options).document) == {
        -3: (next(offset for offset, time in records if time == greatest), greatest, 0),
        late: (-1, -1, -1),
    }


def test_versions_and_isolations() -> None:
    """tests/followers/test_list_offsets.py has the rules."""
    run = in_json("follower offsets", *LEADER, "--api-version", "8")
    errors = {each["timestamp_ms"]: each["error"] for each in run.document["partitions"][0]["answers"]}
    assert errors == {-1: None, -2: None, -3: None, -4: None, -5: "UNSUPPORTED_VERSION", -6: "UNSUPPORTED_VERSION"}
    arguments = (*LEADER, "--assume", "leader_epoch=5", "--assume", "high_watermark=800", "--timestamp", "-1")
    assert in_json("follower offsets", *arguments).document["partitions"][0]["answers"][0]["error"] == "OFFSET_NOT_AVAILABLE"
    assert answers(in_json("follower offsets", *arguments, "--isolation", "replica").document) == {-1: (833, -1, 5)}


def test_the_proposal_does_not_compare_with_the_end() -> None:
    """Row 9: all rolled segments are uploaded, and the active one is empty."""
    arguments = (*LEADER, "--assume", "high_watermark=790", "--timestamp", "-6")
    assert offsets_of(in_json("follower offsets", *arguments).document) == {-6: -1}
    assert offsets_of(in_json("follower offsets", *arguments, "--profile", "kip-1023").document) == {-6: 790}


def test_without_a_store_nothing_is_reported_about_remote_storage() -> None:
    run = in_json("follower offsets", FOLLOWER / "node1", "--topic", "payments", *options_of([-5, -6, 1, -2, -4]))
    assert offsets_of(run.document) == {-5: None, -6: None, 1: None, -2: 0, -4: 456}
    (partition,) = run.document["partitions"]
    assert (partition["remote_storage_setting"]["enabled"], partition["highest_remote"]) == (True, None)


def test_without_a_topic_id_no_one_can_say_which_copies_are_meant() -> None:
    logs = FIXTURES / "kafka27-mixed" / "logs"
    run = in_json("follower offsets", AIVEN / "plain" / "store", logs, "--topic", "mixed", *options_of([-5, 1, -1]))
    assert (run.exit_code, run.codes["topic-id-unknown"]) == (1, 1)
    assert offsets_of(run.document) == {-5: None, 1: None, -1: 8231}


def test_the_store_of_another_cluster() -> None:
    run = in_json("follower offsets", TIERED / "remote", FOLLOWER / "node1", "--topic", "payments", *options_of([-1]))
    assert (run.exit_code, run.codes["remote-part-missing"]) == (1, 1)
    assert f"the log starts at 0, the disk begins at 456, and {NO_COPY_IN_STORE}" in run.messages("remote-part-missing")


def test_a_copy_without_its_object_is_no_answer(tmp_path: Path) -> None:
    shutil.copytree(FOLLOWER / "remote", tmp_path / "remote")
    for path in (tmp_path / "remote").rglob("00000000000000000056-*.log"):
        path.unlink()
    run = in_json("follower offsets", tmp_path / "remote", FOLLOWER / "node1", *LEADER[2:], "--timestamp", "1795266408209")
    assert run.exit_code == 4, "the storage itself works"
    assert offsets_of(run.document) == {1795266408209: None}
    assert f"{OBJECTS_MISSING}.log" in run.messages("tier-bad-copy")


def test_of_a_damaged_log_nothing_is_reported_that_hangs_on_open_transactions() -> None:
    """A batch with a wrong checksum: what it opened or closed is not known."""
    run = in_json("follower offsets", FIXTURES / "damaged" / "logs" / "bad-crc-0", "--isolation", "read_committed")
    assert (run.exit_code, run.document["partitions"][0]["last_stable"]) == (4, None)
    assert offsets_of(run.document) == {-1: None, -2: 0, -3: None, -4: 0, -5: None, -6: None}


def test_as_a_table() -> None:
    run = snaprebuild("follower", "offsets", *LEADER)
    lines = [" ".join(line.split()) for line in run.stdout.splitlines()]
    pending = "payments-0 -6 pending upload 790 0 after the last offset in remote storage, but not below the log start offset"
    assert pending in run.text
    assert "payments-0 0 456 789 - 833 833" in lines
    assert lines[-1] == "1 partition, 6 answers"


TIERED_LOGS = FIXTURES / "tiered-local" / "logs"


def empty(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def test_offsets(tmp_path: Path) -> None:
    """The answers equal those for a metadata log without a record: both mean that nothing was uploaded (``ListOffsets`` answers -1
    for -5)."""
    store = empty(tmp_path)
    run = in_json("follower offsets", store, TIERED_LOGS, "--topic", "mixed")
    assert (run.exit_code, run.codes) == (0, {"tier-empty": 1})
    assert "the store is empty: nothing was uploaded, or it is another store" in run.messages("tier-empty")
    found = {each["timestamp_ms"]: each["offset"] for each in run.document["partitions"][0]["answers"]}
    assert (found[-5], found[-4], found[-2]) == (-1, 0, 0)
    log = write_partition(make_log_dir(tmp_path / "logs") / "__remote_log_metadata-0", {0: b""}).parent
    reported = in_json("follower offsets", store, TIERED_LOGS, "--topic", "mixed", "--metadata-log", log)
    assert reported.document["partitions"][0]["answers"] == run.document["partitions"][0]["answers"]
    table = snaprebuild("follower", "offsets", store, TIERED_LOGS, "--topic", "mixed").stdout
    assert f"{NO_COPY_IN_STORE}: nothing was uploaded" in " ".join(table.split())


@pytest.mark.parametrize(
    ("verb", "options"),
    [("follower fetch-path", ("--offset", "700")), ("follower plan", ()), ("follower plan", ("--profile", "kip-1023"))],
)
def test_other_questions(tmp_path: Path, verb: str, options: tuple[str, ...]) -> None:
    run = in_json(verb, empty(tmp_path), TIERED_LOGS, "--topic", "mixed", *options)
    assert (run.exit_code, run.codes) == (0, {"tier-empty": 1})


def test_an_empty_store_of_a_log_whose_beginning_was_uploaded(tmp_path: Path) -> None:
    """The disk begins above the log start, so that something must have been uploaded: it is the wrong store."""
    logs = Path(shutil.copytree(FIXTURES / "follower-lost-state" / "node1", tmp_path / "logs"))
    bases = sorted(path.stem for path in (logs / "payments-0").glob("*.log"))
    for path in (logs / "payments-0").glob(f"{bases[0]}.*"):
        path.unlink()
    (logs / "log-start-offset-checkpoint").write_text("0\n1\npayments 0 0\n")
    run = in_json("follower offsets", empty(tmp_path), logs, "--topic", "payments", "--assume", "remote_storage=on")
    assert (run.exit_code, run.codes["remote-part-missing"]) == (1, 1)
