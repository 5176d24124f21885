"""The oracle itself: its answers on directories of real brokers are those that the manifests hold."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from kafka_classpath import OTHER_VERSIONS
from oracle import Entry, Mode, Oracle, OracleError, Replay

pytestmark = pytest.mark.kafka

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
MANIFESTS = {path.parent.name: json.loads(path.read_text()) for path in sorted(FIXTURES.glob("*/manifest.json"))}
PARTITIONS = [(name, partition) for name, manifest in MANIFESTS.items() for partition in manifest["partitions"]]

MODES: tuple[Mode, ...] = ("rebuild", "recover")


VECTORS = {vector["name"]: vector for vector in json.loads((FIXTURES / "producer-state-vectors.json").read_text())["vectors"]}
FOLDS = sorted(name for name, vector in VECTORS.items() if "snapshotFiles" not in vector and "after" not in vector)


def directory(fixture: str, partition: str) -> Path:
    (found,) = FIXTURES.glob(f"{fixture}/logs/{partition}")
    return found


def rows(replay: Replay) -> list[dict[str, Any]]:
    """Boundaries as a manifest has them, entries in the order of their ids."""
    names = ("segment", "base_offset", "bytes", "batches", "max_magic", "max_timestamp", "next_offset", "snapshot_offset")
    return [{name: getattr(b, name) for name in names} | {"entries": sorted(b.entries)} for b in replay.boundaries]


def expected(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [segment | {"entries": sorted(Entry.of(row) for row in segment["entries"])} for segment in segments]


def test_every_fixture_with_a_log_is_asked() -> None:
    with_segments = {path.parent for path in FIXTURES.glob("*/logs/*/*.log")}
    # The decoded records of this topic are in the manifest, its producer state is not.
    with_segments.remove(FIXTURES / "tiered-local" / "logs" / "__remote_log_metadata-0")
    # The broker's own snapshots are compared there: tests/snapshots/test_contradicted_base.py.
    with_segments.remove(FIXTURES / "kafka27-moved-start" / "logs" / "ret-0")
    assert {directory(fixture, partition) for fixture, partition in PARTITIONS} == with_segments


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("fixture", "partition"), PARTITIONS)
def test_replay_gives_what_the_manifest_holds(oracle: Oracle, fixture: str, partition: str, mode: Mode) -> None:
    truth = MANIFESTS[fixture]["partitions"][partition]
    stopped = None
    if mode == "recover" and "recover_mode_differs" in truth:
        truth = truth["recover_mode_differs"]
        stopped = truth["stopped"]
    replay = oracle.replay(directory(fixture, partition), mode)
    assert rows(replay) == expected(truth["segments"])
    assert replay.end_offset == truth["end_offset"]
    if stopped is None:
        assert replay.stopped is None
    else:
        assert replay.stopped is not None
        assert replay.stopped.truncated
        assert f"{replay.stopped.segment} after offset {replay.stopped.offset}: {replay.stopped.error}" == stopped


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FOLDS)
def test_replay_gives_what_the_vectors_hold(oracle: Oracle, tmp_path: Path, name: str, mode: Mode) -> None:
    """Some vectors have two segments; the entries are those at the log end, by the batch or, where it differs, by the segment."""
    vector = VECTORS[name]
    segments: dict[int, list[dict[str, Any]]] = {}
    for batch in vector["batches"]:
        segments.setdefault(batch["segment"], []).append(batch)
    for batches in segments.values():
        data = b"".join(bytes.fromhex(batch["hex"]) for batch in batches)
        (tmp_path / f"{batches[0]['baseOffset']:020}.log").write_bytes(data)
    replay = oracle.replay(tmp_path, mode)
    if "expectedError" in vector:
        assert replay.stopped is not None
        assert vector["expectedError"] in replay.stopped.error
        return
    assert replay.stopped is None
    rows = vector["expectedEntries"]
    if mode == "rebuild":
        rows = vector.get("expectedEntriesSegmentChunk", rows)
    assert sorted(replay.boundaries[-1].entries) == sorted(Entry(*row.values()) for row in rows)
    undecided = vector["expectedFirstUndecidedOffset"]
    assert replay.boundaries[-1].first_undecided_offset == (None if undecided < 0 else undecided)


@pytest.mark.parametrize(("fixture", "partition"), PARTITIONS)
def test_snapshots_that_the_broker_left_are_read_by_kafka(oracle: Oracle, fixture: str, partition: str) -> None:
    """Each must equal the manifest's entries at its offset, where the manifest says so."""
    truth = MANIFESTS[fixture]["partitions"][partition]
    at = {segment["snapshot_offset"]: segment["entries"] for segment in truth["segments"]}
    for name, verdict in truth.get("broker_snapshots", {}).items():
        read = oracle.snapshot(directory(fixture, partition) / name)
        if verdict["equals_oracle"] is not None:
            same = sorted(read) == sorted(Entry.of(row) for row in at[int(name.split(".")[0])])
            assert same is verdict["equals_oracle"], name


def test_completed_transactions_are_those_of_the_transaction_indexes(oracle: Oracle) -> None:
    """A .txnindex entry is (version, producer id, first, last, last stable offset), 34 bytes, of an aborted transaction."""
    partition = directory("kafka27-mixed", "mixed-0")
    indexed = []
    for index in sorted(partition.glob("*.txnindex")):
        data = index.read_bytes()
        for at in range(0, len(data), 34):
            numbers = [int.from_bytes(data[at + 2 + 8 * k : at + 10 + 8 * k], "big", signed=True) for k in range(4)]
            indexed.append(tuple(numbers))
    completed = oracle.replay(partition, "recover").completed
    aborted = [(t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset) for t in completed if t.aborted]
    assert len(indexed) > 50
    assert aborted == indexed
    rebuilt = oracle.replay(partition, "rebuild").completed
    assert [t._replace(last_stable_offset=None) for t in completed] == list(rebuilt)


def test_replay_of_remote_and_local_segments_together(oracle: Oracle, tmp_path: Path) -> None:
    """`right_entries` of this manifest were made over the whole log: remote segments, then the leader's local ones."""
    manifest = MANIFESTS["follower-lost-state"]
    root = FIXTURES / "follower-lost-state"
    for segment in (root / manifest["remote_dir"]).glob("*.log"):
        shutil.copyfile(segment, tmp_path / (segment.name[:20] + ".log"))
    for segment in (root / "node1" / manifest["partition"]).glob("*.log"):
        shutil.copyfile(segment, tmp_path / segment.name)
    states = oracle.replay(tmp_path, "rebuild").states
    assert manifest["per_snapshot_offset"]
    for offset, truth in manifest["per_snapshot_offset"].items():
        assert states[int(offset)] == {row["producer_id"]: Entry.of(row) for row in truth["right_entries"]}


@pytest.mark.parametrize("damage", ["bit", "cut", "empty"])
def test_a_damaged_snapshot_is_rejected(oracle: Oracle, tmp_path: Path, damage: str) -> None:
    data = bytearray((directory("kafka27-mixed", "mixed-0") / "00000000000000007045.snapshot").read_bytes())
    if damage == "bit":
        data[100] ^= 1
    file = tmp_path / "00000000000000007045.snapshot"
    file.write_bytes(bytes(data) if damage == "bit" else bytes(data[: -1 if damage == "cut" else 0]))
    with pytest.raises(OracleError, match="CorruptSnapshotException"):
        oracle.snapshot(file)


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_other_versions_of_kafka_agree(version: str) -> None:
    with Oracle(version) as other:
        assert other.version == version
        for fixture, partition in [("kafka27-mixed", "mixed-0"), ("kafka4-mixed", "mixed-0"), ("kafka4-compacted", "compacted-0")]:
            replay = other.replay(directory(fixture, partition), "rebuild")
            assert rows(replay) == expected(MANIFESTS[fixture]["partitions"][partition]["segments"])
