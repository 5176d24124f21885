"""The follower of KIP-1023's worked example, as it is built from remote storage."""

from pathlib import Path

import pytest
from command import in_json
from log_dirs import entries_in, make_log_dir, snapshot_bytes, snapshot_name
from tier_example import AT_3, AT_6, EPOCHS, write_example
from tiers import TOPIC_ID, epochs_text, id_text

from formats.partition.producer_snapshot import ProducerEntry

NOW = ("--as-of", "2026-11-21T14:00:00Z")


def made(tmp_path: Path, *arguments: object) -> tuple[Path, dict[str, object]]:
    """The directory of the follower, and the document."""
    remote = write_example(tmp_path / "remote")
    log_dir = make_log_dir(tmp_path / "logs")
    run = in_json("follower build", remote, log_dir, "--topic-partition", "t-0", *NOW, *arguments)
    assert run.exit_code == 0
    return log_dir / "t-0", run.document


def test_it_has_the_epochs_and_producers_of_the_copy(tmp_path: Path) -> None:
    directory, document = made(tmp_path)
    assert (document["next_offset"], document["local_log_start_offset"]) == (6, 6)
    assert document["leader_epochs"] == [{"epoch": epoch, "start_offset": start} for epoch, start in ((0, 0), (1, 3), (2, 5))]
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == {
        f"{6:020d}.log": b"",
        f"{6:020d}.index": b"",
        f"{6:020d}.timeindex": b"",
        snapshot_name(6): snapshot_bytes(AT_6),
        "leader-epoch-checkpoint": b"0\n3\n0 0\n1 3\n2 5\n",
        "partition.metadata": f"version: 0\ntopic_id: {id_text(TOPIC_ID)}".encode(),
    }
    assert document["checkpoint_lines"] == {
        "log-start-offset-checkpoint": {"topic": "t", "partition": 0, "topic_partition": "t-0", "offset": 0},
        "recovery-point-offset-checkpoint": {"topic": "t", "partition": 0, "topic_partition": "t-0", "offset": 6},
        "replication-offset-checkpoint": {"topic": "t", "partition": 0, "topic_partition": "t-0", "offset": 6},
    }


@pytest.mark.parametrize(("target", "next_offset", "epochs", "entries"), [(3, 3, EPOCHS[:1], AT_3), (4, 6, EPOCHS[:3], AT_6)])
def test_every_target(
    tmp_path: Path, target: int, next_offset: int, epochs: tuple[tuple[int, int], ...], entries: tuple[ProducerEntry, ...]
) -> None:
    """Row 12: inside of a copy, the follower starts after it."""
    directory, document = made(tmp_path, "--target", target)
    assert document["next_offset"] == next_offset
    assert ("is inside of a copy" in str(document["warnings"])) == (target != next_offset)
    assert (directory / "leader-epoch-checkpoint").read_text() == epochs_text(epochs)
    assert entries_in((directory / snapshot_name(next_offset)).read_bytes()) == frozenset(entries)
