"""Kafka loads the directories that ``follower build`` makes, and continues with them."""

import datetime
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from command import in_json_process
from kafka_classpath import java_output
from log_dirs import entries_in, snapshot_name, snapshots_in
from manifests import FIXTURES
from tier_example import AT_6, AT_9, EPOCHS, REST, write_example
from tiers import TOPIC_ID, id_text

from formats.partition.producer_snapshot import ProducerEntry

pytestmark = pytest.mark.kafka

AS_OF = datetime.datetime(2026, 11, 21, 14, tzinfo=datetime.UTC)
"""When the bundled logs are young, for both sides: a broker of a month later loads none of their producers."""
MONTH = datetime.timedelta(days=31)


@dataclass(frozen=True)
class Loaded:
    """A broker's state in memory."""

    offsets: tuple[int, ...]
    epochs: tuple[tuple[int, ...], ...]
    producers: frozenset[ProducerEntry]
    topic_id: str


def loaded(
    directory: Path,
    log_start: int,
    recovery_point: int,
    *fetched: Path,
    clean: bool,
    epoch: int = 0,
    now: datetime.datetime = AS_OF,
) -> list[Loaded]:
    """After the load, and after each file that was fetched."""
    now_ms = round(now.timestamp() * 1000)
    arguments = (directory, now_ms, log_start, recovery_point, str(clean).lower(), epoch, *fetched)
    reported, found = "\n".join([*java_output("FollowerLog", arguments=arguments), ""]), []
    for part in reported.split("\nend\n")[:-1]:
        lines = [line.split() for line in part.splitlines()]
        numbers = {
            kind: [tuple(map(int, line[1:])) for line in lines if line[0] == kind] for kind in ("offsets", "epoch", "producer")
        }
        (offsets,), (topic_id,) = numbers["offsets"], [line[2] for line in lines if line[0] == "topic"]
        producers = frozenset(ProducerEntry(*each) for each in numbers["producer"])
        found.append(Loaded(offsets, tuple(numbers["epoch"]), producers, topic_id))
    return found


def build(store: Path, to: Path, partition: str, *arguments: object) -> Path:
    to.mkdir()
    run = in_json_process("follower build", store, to, "--topic-partition", partition, "--as-of", AS_OF.isoformat(), *arguments)
    assert run.exit_code == 0
    return to / partition


@pytest.mark.parametrize(("clean", "log_start"), [(True, 0), (False, 1151)])
def test_a_real_partition(tmp_path: Path, clean: bool, log_start: int) -> None:
    """Log start, log end, epochs and producers are those that were wanted; and the snapshot stays."""
    directory = build(FIXTURES / "tiered-local" / "remote", tmp_path / "new", "mixed-0", "--assume", f"log_start={log_start}")
    data = (directory / snapshot_name(6390)).read_bytes()
    (found,) = loaded(directory, log_start, 6390, clean=clean)
    assert found.offsets == (log_start, 6390, 6390)
    assert found.epochs == ((0, log_start),)
    assert found.producers == entries_in(data)
    assert found.topic_id == json.loads((FIXTURES / "tiered-local" / "manifest.json").read_text())["topic_id"]
    assert snapshots_in(directory) == {6390: entries_in(data)}


def test_undo_leaves_what_a_broker_loaded(tmp_path: Path, own_state_home: Path) -> None:
    """Although it appended nothing, so that all bytes are those that were written."""
    directory = build(FIXTURES / "tiered-local" / "remote", tmp_path / "new", "mixed-0")
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert in_json_process("undo", "--last", "--dry-run").document["directories"][0]["action"] == "would-remove"
    loaded(directory, 0, 6390, clean=True)
    left = in_json_process("undo", "--last")
    assert (left.exit_code, left.document["directories"][0]["action"]) == (1, "left")
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_the_example_continues(tmp_path: Path) -> None:
    """KIP-1023's: what the follower fetches from 6 on brings epoch 3 from 7 on, and producer 8 is known all along."""
    directory = build(write_example(tmp_path / "remote"), tmp_path / "new", "t-0")
    (tmp_path / "fetched").write_bytes(REST)
    before, after = loaded(directory, 0, 6, tmp_path / "fetched", clean=True, epoch=3)
    assert (before.offsets, before.epochs, before.producers) == ((0, 6, 6), EPOCHS[:3], frozenset(AT_6))
    assert (after.offsets, after.epochs, after.producers) == ((0, 6, 9), EPOCHS, frozenset(AT_9))
    assert before.topic_id == id_text(TOPIC_ID)
    assert snapshots_in(directory) == {6: frozenset(AT_6), 9: frozenset(AT_9)}


@pytest.mark.parametrize("count", [0, 4])
def test_what_a_killed_run_leaves_can_be_loaded(tmp_path: Path, count: int) -> None:
    """Under a name that makes the broker delete it: it opens each such directory before it does, and trusts nothing in it."""
    directory = build(write_example(tmp_path / "remote"), tmp_path / "new", "t-0")
    left = tmp_path / "new" / f"t-0.{'0123456789abcdef' * 2}-delete"
    left.mkdir()
    names = [f"{6:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")]
    for name in names[:count]:
        shutil.copy(directory / name, left)
    (left / "leader-epoch-checkpoint.tmp").write_bytes(b"0\n")
    (found,) = loaded(left, 0, 0, clean=False)
    assert (found.offsets, found.producers) == ((0, 6 if count else 0, 0), frozenset())


def test_without_an_index_the_load_finds_the_same(tmp_path: Path) -> None:
    """They are there to spare the broker a recovery, and nothing depends on them."""
    directory = build(write_example(tmp_path / "remote"), tmp_path / "new", "t-0")
    for suffix in (".index", ".timeindex"):
        (directory / f"{6:020d}{suffix}").unlink()
    (found,) = loaded(directory, 0, 6, clean=True)
    assert (found.offsets, found.producers) == ((0, 6, 6), frozenset(AT_6))


def test_a_repaired_follower_is_loaded_with_all_producers(tmp_path: Path) -> None:
    """The follower that forgot: what Kafka loads is what the manifest calls right, and before the repair it is not."""
    lost = FIXTURES / "follower-lost-state"
    manifest = json.loads((lost / "manifest.json").read_text())
    right = frozenset(ProducerEntry(**entry) for entry in manifest["expected_log_end_snapshot"]["entries"])
    node = shutil.copytree(lost / "node2", tmp_path / "node2")
    shutil.copytree(node / "payments-0", tmp_path / "forgetful" / "payments-0")
    (before,) = loaded(tmp_path / "forgetful" / "payments-0", 0, 833, clean=True)
    assert before.producers < right
    run = in_json_process(
        "follower repair", lost / "remote", node, "--set-aside", "--as-of", AS_OF.isoformat(), "--receipt", tmp_path / "receipt"
    )
    assert run.exit_code == 0
    (after,) = loaded(node / "payments-0", 0, 833, clean=True)
    assert (after.offsets, after.producers) == ((0, 561, 833), right)
    (late,) = loaded(node / "payments-0", 0, 833, clean=True, now=AS_OF + MONTH)
    still_open = {entry for entry in right if entry.current_txn_first_offset >= 0}
    assert (late.offsets, late.producers) == ((0, 561, 833), still_open)
