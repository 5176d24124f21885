"""``follower fetch-path`` as a user runs it: what Kafka's own cache serves an offset from, and what is removed below one."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from log_dirs import tree
from manifests import FIXTURES
from sentences import ASSUMED_REMOTE_END

FOLLOWER, TIERED = FIXTURES / "follower-lost-state", FIXTURES / "tiered-local"
LEADER = (FOLLOWER / "remote", FOLLOWER / "node1", "--topic", "payments", "--metadata-log", FOLLOWER / "node1")
"""0 to 789 are in remote storage, 456 to 832 on disk."""
MANIFEST: dict[str, Any] = json.loads((FOLLOWER / "manifest.json").read_text())


def only(document: dict[str, Any]) -> dict[str, Any]:
    (partition,) = document["partitions"]
    assert isinstance(partition, dict)
    return partition


def test_copies_are_those_that_the_cache_of_kafka_found() -> None:
    looked_up = [each for each in MANIFEST["cache_lookup_epoch_offset"] if each["from_offset"] < 456 and each["segment_id"]]
    assert len(looked_up) >= 5
    before = tree(FOLLOWER)
    for each in looked_up:
        run = in_json("follower fetch-path", *LEADER, "--offset", each["from_offset"])
        assert run.exit_code == 0
        partition = only(run.document)
        assert (partition["consumer"]["served"], partition["consumer"]["served_from"]) == ("remote", each["segment_id"])
        assert (FOLLOWER / "remote" / partition["consumer"]["object_key"]).is_file()
        assert partition["follower"]["served"] == "offset-moved-to-tiered-storage"
    assert tree(FOLLOWER) == before


@pytest.mark.parametrize(
    ("offset", "options", "consumer", "follower"),
    [
        (456, "", "local", "local"),
        (832, "", "local", "local"),
        (833, "", "not-yet", "not-yet"),
        (834, "", "offset-out-of-range", "offset-out-of-range"),
        (800, "--assume high_watermark=800", "not-yet", "local"),
        (799, "--assume high_watermark=800", "local", "local"),
        (455, "--assume remote_storage=off", "offset-out-of-range", "offset-out-of-range"),
    ],
)
def test_on_disk_and_outside(offset: int, options: str, consumer: str, follower: str) -> None:
    partition = only(in_json("follower fetch-path", *LEADER, "--offset", offset, *options.split()).document)
    assert (partition["consumer"]["served"], partition["follower"]["served"]) == (consumer, follower)


@pytest.mark.parametrize("offset", [0, 56, 57, 508, 833])
def test_what_goes_with_the_records_below(offset: int) -> None:
    """Whole segments: on disk those in front of the one that begins at or below the offset, and every copy that ends below it."""
    bases = MANIFEST["leader"]["segments"]
    deletion = only(in_json("follower fetch-path", *LEADER, "--offset", offset).document)["delete_records"]
    assert (deletion["error"], deletion["log_start_offset"]) == (None, offset)
    assert [each["base_offset"] for each in deletion["segments"]] == [base for base, after in pairwise(bases) if after <= offset]
    gone = [each for each in MANIFEST["remote_segments"] if each["end_offset"] < offset]
    assert {each["segment_id"] for each in deletion["copies"]} == {each["segment_id"] for each in gone}
    assert deletion["copy_bytes"] == sum(each["segment_size_bytes"] for each in gone)


def test_announcements_go_with_them() -> None:
    """Phantoms of the NullPointerException, which no object belongs to."""
    run = in_json(
        "follower fetch-path",
        TIERED / "remote",
        TIERED / "logs",
        "--topic",
        "mixed",
        "--metadata-log",
        TIERED / "logs",
        "--offset",
        583,
    )
    copies = only(run.document)["delete_records"]["copies"]
    manifest = json.loads((TIERED / "manifest.json").read_text())
    gone = {each["segment_id"]: each["phantom"] for each in manifest["remote_segments"] if each["end_offset"] < 583}
    assert {each["segment_id"]: each["phantom"] for each in copies} == gone
    assert sum(gone.values()) == 13


@pytest.mark.parametrize(
    ("logs", "topic", "error"),
    [("txn-state4", "__transaction_state", "INVALID_TOPIC_EXCEPTION"), ("kafka4-compacted", "compacted", "POLICY_VIOLATION")],
)
def test_topics_whose_records_are_not_deleted_on_request(logs: str, topic: str, error: str) -> None:
    run = in_json("follower fetch-path", FIXTURES / logs / "logs", "--topic", topic, "--offset", 1)
    for partition in run.document["partitions"]:
        deletion = partition["delete_records"]
        assert (deletion["error"], deletion["segments"], deletion["copies"]) == (error, [], [])
    assert run.document["partitions"]


def test_what_is_assumed_is_reported() -> None:
    shown = snaprebuild("follower", "fetch-path", *LEADER[:4], "--offset", 600).stdout
    assert ASSUMED_REMOTE_END in " ".join(shown.split())
    assert "* assumed" not in snaprebuild("follower", "fetch-path", *LEADER, "--offset", 600).stdout


def test_a_copy_that_lost_its_objects(tmp_path: Path) -> None:
    shutil.copytree(FOLLOWER / "remote", tmp_path / "remote")
    for path in (tmp_path / "remote").rglob("00000000000000000056-*"):
        path.unlink()
    lost = in_json("follower fetch-path", tmp_path / "remote", LEADER[1], *LEADER[2:], "--offset", 60)
    assert (lost.exit_code, lost.codes) == (4, {"tier-lost": 1}), "the copy, of which the fetch fails"
    alone = in_json("follower fetch-path", tmp_path / "remote", LEADER[1], *LEADER[2:4], "--offset", 60)
    assert (alone.exit_code, alone.codes) == (1, {"offset-lost": 1, "tier-unverified": 1})
    assert only(alone.document)["consumer"]["served"] == "offset-out-of-range"


def test_without_a_store_it_is_not_known() -> None:
    partition = only(in_json("follower fetch-path", LEADER[1], "--topic", "payments", "--offset", 60).document)
    assert (partition["consumer"]["served"], partition["follower"]["served"]) == ("unknown", "offset-moved-to-tiered-storage")


def test_as_a_table() -> None:
    run = snaprebuild("follower", "fetch-path", *LEADER, "--offset", 600)
    lines = [" ".join(line.split()) for line in run.stdout.splitlines()]
    assert "payments-0 consumer local 00000000000000000561.log the disk holds 456 and what follows" in lines
    assert "payments-0 600 2 segments, 15.4 KiB 10 copies, 73.9 KiB" in lines


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    deletion = only(in_json("follower fetch-path", *LEADER, "--offset", 834).document)["delete_records"]
    assert (deletion["error"], deletion["segments"], deletion["copies"]) == ("OFFSET_OUT_OF_RANGE", [], [])


def test_an_empty_log(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{7:020d}.log").touch()
    served = {
        each: only(in_json("follower fetch-path", directory, "--offset", each).document)["consumer"]["served"] for each in (6, 7, 8)
    }
    assert served == {6: "offset-out-of-range", 7: "not-yet", 8: "offset-out-of-range"}
