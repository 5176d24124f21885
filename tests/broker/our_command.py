"""What the command does and says, where a real Kafka is asked the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from command import in_json, snaprebuild


def rebuild_in_place(log_dir: Path, *, set_aside: bool = False) -> int:
    """Runs the command on a log directory, as a user does. Returns its exit code."""
    return snaprebuild("rebuild", log_dir, *(["--set-aside"] if set_aside else [])).exit_code


def verdicts_on(partition_dir: Path) -> dict[int, tuple[str, str | None]]:
    """Runs the command on a partition directory. Status and class of each snapshot, by offset."""
    run = in_json("verify", partition_dir)
    assert run.exit_code == 0, run.stderr
    (partition,) = run.document["partitions"]
    return {snapshot["offset"]: (snapshot["comparison"]["status"], snapshot["class"]) for snapshot in partition["snapshots"]}


def answers_to_timestamps(partition_dir: Path, timestamps: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """What the command says that a leader answers to a follower: offset, timestamp of the record and leader epoch, -1 each for none."""
    asked = [word for each in timestamps for word in ("--timestamp", each)]
    run = in_json("follower offsets", partition_dir, "--isolation", "replica", "--assume", "remote_storage=off", *asked)
    (partition,) = run.document["partitions"]
    return {
        each["timestamp_ms"]: (each["offset"], each["record_timestamp_ms"], each["leader_epoch"]) for each in partition["answers"]
    }
