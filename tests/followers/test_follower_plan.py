"""``follower plan``: every row of the table on the directory of a real leader, what its real follower did, and KIP-1023's own example."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from manifests import FIXTURES
from sentences import ASSUMED_REMOTE_END, NO_FINISHED_SEGMENT, OBJECTS_MISSING

from formats.log.record_batch import BatchHeader, Record, build_record_batch
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint, write_leader_epoch_checkpoint

FOLLOWER = FIXTURES / "follower-lost-state"
LEADER = (FOLLOWER / "remote", FOLLOWER / "node1", "--topic", "payments", "--metadata-log", FOLLOWER / "node1")
"""0 to 789 are in remote storage, 456 to 832 on disk: log start 0, local start 456, -6 is 790, log end 833."""
MANIFEST: dict[str, Any] = json.loads((FOLLOWER / "manifest.json").read_text())

FETCH, TRUNCATE, EMPTY_AT = "fetch", "truncate to the leader's end", "empty the log and start at"
BUILD, RETRY, FOREVER = "build the state from remote storage and start after it", "retry later", "retry, and fail each time"

# One or more for each option; all rows are in test_bootstrap_rules.py.
# Row, options, what follows by the proposal with its offset, and what brokers of 4.3 do where that is something else.
ROWS: list[tuple[int, str, tuple[str, int | None], tuple[str, int | None] | None]] = [
    (1, "--assume follower_end=500 --assume follower_offset=600", (FETCH, 600), None),
    (2, "--assume last_tiered_offset=off --assume log_start=100", (EMPTY_AT, 100), None),
    (4, "--assume follower_end=900", (TRUNCATE, 833), None),
    (5, "", (BUILD, 790), None),
    (6, "--assume log_start=456 --assume highest_remote=unknown", (EMPTY_AT, 456), (BUILD, 456)),
    (9, "--assume log_end=790", (BUILD, 790), (RETRY, None)),
    (10, "--assume follower_remote=off", (RETRY, None), None),
    (11, "--assume follower_metadata=off", (RETRY, None), None),
    (12, "--assume highest_remote=700", (BUILD, 701), None),
]


def pairs(value: dict[str, Any]) -> list[tuple[int, int]]:
    """Leader epochs and their first offsets."""
    return [(each["epoch"], each["start_offset"]) for each in value["leader_epochs"]]


@pytest.mark.parametrize("profile", ["kip-1023", "kafka-4.3"])
@pytest.mark.parametrize(("row", "options", "seed", "kafka"), ROWS, ids=[f"row {row} {options}" for row, options, *_ in ROWS])
def test_rows(row: int, options: str, seed: tuple[str, int | None], kafka: tuple[str, int | None] | None, profile: str) -> None:
    action, offset = seed if profile == "kip-1023" or kafka is None else kafka
    run = in_json("follower plan", *LEADER, "--assume", "last_stable=833", "--profile", profile, *options.split())
    (partition,) = run.document["partitions"]
    decision = partition["decision"]
    assert (decision["row"], decision["action"], decision["offset"]) == (row, action, offset)
    assert decision["reason"]
    assert (run.exit_code, run.codes) == (0, {})
    if row == 2:  # below the local start, so that remote storage is needed, after all
        assert (partition["then"]["row"], partition["then"]["offset"]) == (3, 456)
        action = partition["then"]["action"]
    else:
        assert partition["then"] is None
    assert (partition["restored_state"] is not None) == (action == BUILD)
    assert (partition["share"]["replicated_bytes"] is None) == (action in (RETRY, TRUNCATE))


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ("--profile kip-1023", [("-2 earliest", 0), ("-6 earliest pending upload", 790), ("-1 latest", 833)]),
        (
            "--profile kip-1023 --assume highest_remote=unknown",
            [("-2 earliest", 0), ("-6 earliest pending upload", -1), ("-4 earliest local", 456)],
        ),
        (
            "--assume log_end=790",
            [("-1 latest", 790), ("-2 earliest", 0), ("-6 earliest pending upload", -1), ("-4 earliest local", 456)],
        ),
        (
            "--assume last_tiered_offset=off --assume log_start=100",
            [
                ("-1 latest", 833),
                ("-2 earliest", 100),
                ("-1 latest", 833),
                ("-2 earliest", 100),
                ("-4 earliest local", 456),
                ("-1 latest", 833),
            ],
        ),
        ("--assume follower_end=500", []),
    ],
)
def test_requests(options: str, asks: list[tuple[str, int]]) -> None:
    """Two tell where to start: the log start, and the end of remote storage, or the local start without the feature."""
    (partition,) = in_json("follower plan", *LEADER, "--assume", "last_stable=833", *options.split()).document["partitions"]
    assert [(each["argument"], each["offset"]) for each in partition["requests"]] == asks


@pytest.mark.parametrize(("row", "highest"), [(6, "unknown"), (8, "455")])
def test_a_target_that_no_copy_serves(row: int, highest: str) -> None:
    """Brokers look for the copy with the offset below the log start, and find none: for ever."""
    other = FIXTURES / "tiered-local" / "remote"  # nothing of the topic is in it
    assumed = ("remote_storage=on", "log_start=456", f"highest_remote={highest}")
    options = (*(word for each in assumed for word in ("--assume", each)), "--profile", "kafka-4.3")
    run = in_json("follower plan", other, FOLLOWER / "node1", "--topic", "payments", *options)
    decision = run.document["partitions"][0]["decision"]
    assert (decision["row"], decision["action"], decision["offset"]) == (row, FOREVER, 456)
    assert (run.exit_code, run.codes["bootstrap-never-ends"]) == (1, 1)
    assert f"{NO_FINISHED_SEGMENT}455" in run.messages("bootstrap-never-ends")


def test_a_copy_without_the_leader_epochs_that_the_follower_needs(tmp_path: Path) -> None:
    """The finding about the copy counts it once; the decision says that this follower fails each time (``buildRemoteLogAuxState``)."""
    remote = Path(shutil.copytree(FOLLOWER / "remote", tmp_path / "remote"))
    (newest,) = remote.glob("*/*/*727-*.leader_epoch_checkpoint")
    newest.unlink()
    run = in_json("follower plan", remote, *LEADER[1:])
    (partition,) = run.document["partitions"]
    assert run.codes["tier-lost"] == 1
    copy = newest.name.partition("-")[2].partition(".")[0]
    assert f"copy {copy}: {OBJECTS_MISSING}.leader_epoch_checkpoint: the follower fails" in partition["decision"]["reason"]
    assert partition["restored_state"] is None


def test_what_the_real_follower_did() -> None:
    """It started when the leader had uploaded up to 560 and its log ended at 610 (expected/events.txt)."""
    options = ("--assume", "highest_remote=560", "--assume", "log_end=610", "--profile", "kafka-4.3")
    (partition,) = in_json("follower plan", *LEADER, *options).document["partitions"]
    state, reported = partition["restored_state"], MANIFEST["expected_snapshot_at_B"]["remote_segment"]
    assert (state["segment_id"], state["start_offset"], state["end_offset"]) == (
        reported["segment_id"],
        reported["start_offset"],
        reported["end_offset"],
    )
    assert state["next_offset"] == MANIFEST["B"]
    assert partition["decision"]["log_start_offset"] == MANIFEST["log_start_offset"]
    checkpoint = read_leader_epoch_checkpoint((FOLLOWER / "node2" / "payments-0" / "leader-epoch-checkpoint").read_bytes())
    assert pairs(state) == [(entry.epoch, entry.start_offset) for entry in checkpoint]


def test_the_share_is_that_of_real_segments() -> None:
    sizes = {int(path.name[:20]): path.stat().st_size for path in (FOLLOWER / "node1" / "payments-0").glob("*.log")}
    below = sum(each["segment_size_bytes"] for each in MANIFEST["remote_segments"] if each["end_offset"] < 456)
    (partition,) = in_json("follower plan", *LEADER).document["partitions"]
    assert partition["share"] == {
        "replicated_bytes": sizes[790],
        "local_bytes": sum(sizes.values()),
        "all_bytes": below + sum(sizes.values()),
    }
    assert partition["drawback"].startswith("it has 1 of the")
    assert f"0 to 789 go to remote storage, {sum(sizes.values()) - sizes[790]} bytes of them" in partition["drawback"]
    (partition,) = in_json("follower plan", *LEADER, "--assume", "last_tiered_offset=off").document["partitions"]
    assert (partition["share"]["replicated_bytes"], partition["drawback"]) == (sum(sizes.values()), None)


def test_what_is_assumed_is_reported() -> None:
    shown = snaprebuild("follower", "plan", *LEADER[:4], "--assume", "last_stable=833").stdout
    assert ASSUMED_REMOTE_END in " ".join(shown.split())


def test_topics_that_are_never_tiered_are_reported() -> None:
    arguments = (
        FOLLOWER / "remote",
        FIXTURES / "kafka4-compacted" / "logs",
        "--topic",
        "compacted",
        "--assume",
        "remote_storage=on",
    )
    run = in_json("follower plan", *arguments)
    assert (run.exit_code, run.codes["never-tiered"]) == (1, 1)
    assert [each["remote_storage_setting"]["enabled"] for each in run.document["partitions"]] == [False]


def test_offsets_that_contradict_one_another() -> None:
    run = in_json("follower plan", *LEADER, "--assume", "last_stable=700")
    assert (run.exit_code, run.codes) == (1, {"offsets-out-of-order": 1})
    assert "remote storage reaches to 789, beyond the last stable offset 700" in run.messages("offsets-out-of-order")
    impossible = snaprebuild("follower", "plan", *LEADER, "--assume", "log_end=100")
    assert (impossible.exit_code, impossible.stdout) == (2, "")
    assert "the log would end at 100, below its start 456" in impossible.stderr


def test_the_last_stable_offset_is_that_of_the_high_watermark() -> None:
    """The transaction from 1360 on has its marker above 1450."""
    arguments = (FOLLOWER / "remote", FIXTURES / "kafka4-mixed" / "logs", "--topic", "deleted", "--assume", "high_watermark=1450")
    (partition,) = in_json("follower plan", *arguments).document["partitions"]
    assert partition["last_stable"]["offset"] == 1360


# ---------------------------------------------------------------------------------------------------------------- the example

TOPIC_ID, SEG_0_2, SEG_3_5 = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAEA", "AAAAAAAAAAAAAAAAAAAAEQ"
EPOCHS = {0: 0, 1: 3, 2: 5, 3: 7}


def batch(offset: int) -> bytes:
    """One record, in the leader epoch of its offset."""
    epoch = max(epoch for epoch, start in EPOCHS.items() if start <= offset)
    header = BatchHeader(offset, 0, epoch, 2, 0, 0, 0, 1_000 + offset, 1_000 + offset, -1, -1, -1, 1)
    return build_record_batch(header, [Record(0, 0, None, b"value")])


def checkpoint(below: int) -> bytes:
    return write_leader_epoch_checkpoint(LeaderEpochEntry(epoch, start) for epoch, start in EPOCHS.items() if start < below)


@pytest.fixture
def example(tmp_path: Path) -> tuple[Path, Path]:
    """seg-0-2 and seg-3-5 are uploaded, 3 to 8 are on the leader's disk, and 7 is the first of leader epoch 3."""
    directory = tmp_path / "logs" / "tp-0"
    directory.mkdir(parents=True)
    for base, end in ((3, 5), (6, 8)):
        (directory / f"{base:020d}.log").write_bytes(b"".join(map(batch, range(base, end + 1))))
    (directory / "leader-epoch-checkpoint").write_bytes(checkpoint(9))
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    (tmp_path / "logs" / "log-start-offset-checkpoint").write_text("0\n1\ntp 0 0\n")
    remote = tmp_path / "remote" / f"tp-0-{TOPIC_ID}"
    remote.mkdir(parents=True)
    for base, end, segment_id in ((0, 2, SEG_0_2), (3, 5, SEG_3_5)):
        stem = f"{base:020d}-{segment_id}"
        (remote / f"{stem}.log").write_bytes(b"".join(map(batch, range(base, end + 1))))
        (remote / f"{stem}.leader_epoch_checkpoint").write_bytes(checkpoint(end + 1))
        for suffix in ("index", "timeindex", "snapshot"):
            (remote / f"{stem}.{suffix}").write_bytes(b"")
    return tmp_path / "remote", tmp_path / "logs"


@pytest.mark.parametrize("profile", ["kip-1023", "kafka-4.3"])
def test_the_example_of_the_proposal(example: tuple[Path, Path], profile: str) -> None:
    """Emptied; with the leader epochs of seg-3-5; and with those that came from the leader."""
    (partition,) = in_json("follower plan", *example, "--profile", profile).document["partitions"]
    assert (partition["decision"]["row"], partition["decision"]["offset"]) == (5, 6)
    assert partition["restored_state"] == {
        "segment_id": SEG_3_5,
        "start_offset": 3,
        "end_offset": 5,
        "target_epoch": 2,
        "next_offset": 6,
        "leader_epochs": [{"epoch": epoch, "start_offset": start} for epoch, start in ((0, 0), (1, 3), (2, 5))],
    }
    before, built, after = partition["steps"]
    ends = [(each["log_start_offset"], each["local_log_start_offset"], each["log_end_offset"]) for each in (before, built, after)]
    assert ends == [(0, 6, 6), (0, 6, 6), (0, 6, 9)]
    assert before["leader_epochs"] == []
    assert pairs(built) == [(0, 0), (1, 3), (2, 5)]
    assert pairs(after) == [(0, 0), (1, 3), (2, 5), (3, 7)]
    # 6 is of epoch 2: the leader reports where epoch 1 ends, and 5 is after that.
    assert [(each["api"], each["argument"], each["offset"], each["leader_epoch"]) for each in partition["requests"]] == [
        *([("ListOffsets", "-1 latest", 9, 3)] if profile == "kafka-4.3" else []),
        ("ListOffsets", "-2 earliest", 0, 0),
        ("ListOffsets", "-6 earliest pending upload", 6, 2),
        ("OffsetsForLeaderEpoch", "leader epoch 1", 5, 1),
        ("ListOffsets", "-1 latest", 9, 3),
    ]


def test_a_leader_epoch_that_no_one_has_written_in(example: tuple[Path, Path]) -> None:
    """The follower learns of it with its first batch (a real one of 4.3.1 did: scripts/kafka/compare_with_cluster.py follower)."""
    entries = [LeaderEpochEntry(epoch, start) for epoch, start in ((0, 0), (1, 3), (2, 5), (3, 7), (4, 9))]
    (example[1] / "tp-0" / "leader-epoch-checkpoint").write_bytes(write_leader_epoch_checkpoint(entries))
    (partition,) = in_json("follower plan", *example).document["partitions"]
    assert partition["log_end"]["offset"] == 9
    assert pairs(partition["steps"][-1]) == [(0, 0), (1, 3), (2, 5), (3, 7)]


def test_the_example_without_the_feature(example: tuple[Path, Path]) -> None:
    """The offset below the local start is of the epoch before: seg-0-2 is what it starts from."""
    (partition,) = in_json("follower plan", *example, "--assume", "last_tiered_offset=off").document["partitions"]
    assert (
        partition["decision"]["row"],
        partition["restored_state"]["segment_id"],
        partition["restored_state"]["target_epoch"],
    ) == (3, SEG_0_2, 0)
    assert pairs(partition["restored_state"]) == [(0, 0)]
    assert [pairs(each) for each in partition["steps"]] == [[], [(0, 0)], [(0, 0), (1, 3), (2, 5), (3, 7)]]


def test_the_epochs_of_the_example_decide_which_copy_serves(example: tuple[Path, Path]) -> None:
    """``follower fetch-path`` on the same: 0 to 2 by epoch 0, and on disk what follows."""
    for offset, served in ((0, "remote"), (2, "remote"), (3, "local"), (8, "local"), (9, "not-yet"), (10, "offset-out-of-range")):
        (partition,) = in_json("follower fetch-path", *example, "--offset", offset).document["partitions"]
        assert partition["consumer"]["served"] == served
        assert partition["consumer"]["served_from"] == (SEG_0_2 if served == "remote" else partition["consumer"]["served_from"])
    (partition,) = in_json("follower fetch-path", *example, "--offset", 6).document["partitions"]
    assert [each["segment_id"] for each in partition["delete_records"]["copies"]] == [SEG_0_2, SEG_3_5]
    assert [each["base_offset"] for each in partition["delete_records"]["segments"]] == [3]
