"""``tier inventory`` as a user runs it: bundled stores, stores that lack something, and copies that the metadata log does not call live."""

import json
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import crc32c
import pytest
from command import in_json, snaprebuild
from documents import validator_of
from log_dirs import batch, batch_positions, make_log_dir, record, tree, write_partition
from manifests import AIVEN, FIXTURES, READS
from metadata_logs import append_metadata_record, metadata_log, uuid_bytes
from object_store import ObjectStore
from tiers import copied

from formats.metadata.cluster_metadata import MetadataRecordType
from formats.remote.remote_log_metadata import (
    METADATA_PARTITIONS,
    DeleteState,
    PartitionDeletion,
    RemoteLogRecord,
    RemoteSegmentId,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
    metadata_partition,
    write_remote_log_record,
)

TIERED = FIXTURES / "tiered-local"


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    shutil.copytree(TIERED / "remote", tmp_path / "remote")
    return tmp_path / "remote"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    shutil.copytree(AIVEN / "plain" / "store", tmp_path / "store")
    return tmp_path / "store"


def states(document: dict[str, Any]) -> Counter[str]:
    return Counter(copy["state"] for partition in document["partitions"] for copy in partition["copies"])


def only(store: Path, pattern: str) -> Path:
    (found,) = store.rglob(pattern)
    return found


# ---------------------------------------------------------------------------------------------------------------- as they are


def test_copies_are_those_that_kafka_knows() -> None:
    """Phantoms of the NullPointerException, and what Kafka's own cache serves reads from."""
    manifest = json.loads((TIERED / "manifest.json").read_text())
    before = tree(TIERED)
    run = in_json("tier inventory", TIERED / "remote", "--metadata-log", TIERED / "logs")
    assert (run.exit_code, run.codes) == (1, {"tier-phantom": 1})
    (partition,) = run.document["partitions"]
    assert (partition["topic"], partition["topic_id"], partition["partition"]) == ("mixed", manifest["topic_id"], 0)
    served = {each["segment_id"] for each in manifest["cache_lookup_epoch_offset"]} - {None}
    expected = {
        each["segment_id"]: (
            "live" if each["segment_id"] in served else "phantom" if each["phantom"] else "?",
            each["start_offset"],
            each["end_offset"],
            sum(found["bytes"] for found in each["objects"].values()),
            each["event_timestamp_ms"],
        )
        for each in manifest["remote_segments"]
    }
    assert {
        copy["segment_id"]: (
            copy["state"],
            copy["start_offset"],
            copy["end_offset"],
            copy["stored_bytes"],
            copy["event_timestamp_ms"],
        )
        for copy in partition["copies"]
    } == expected
    assert (partition["gaps"], partition["overlaps"]) == ([], [])
    assert partition["totals"]["phantom"] == manifest["counts"]["phantoms"] == 13
    assert "KAFKA-17062" in run.messages("tier-phantom")
    assert tree(TIERED) == before


def test_the_store_alone_shows_what_is_there_and_no_more() -> None:
    run = in_json("tier inventory", TIERED / "remote")
    assert (run.exit_code, run.codes) == (0, {"tier-unverified": 1})
    assert states(run.document) == {"unverified": 12}
    (partition,) = run.document["partitions"]
    assert {copy["end_offset"] for copy in partition["copies"]} == {None}, "no file of LocalTieredStorage tells it"


@pytest.mark.parametrize("name", ["plain", "epochs", "zstd-heuristic"])
def test_copies_are_those_that_the_plugin_wrote(name: str) -> None:
    variant = READS["variants"][name]
    run = in_json("tier inventory", AIVEN / variant["store"])
    by_partition: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for segment in variant["segments"]:
        reported = segment["metadata"]
        by_partition.setdefault((reported["topic_id"], reported["partition"]), []).append(
            (reported["start_offset"], reported["end_offset"])
        )
    gaps = {
        place: [
            {"first_offset": end + 1, "last_offset": start - 1}
            for (_, end), (start, _) in pairwise(sorted(ranges))
            if start > end + 1
        ]
        for place, ranges in by_partition.items()
    }
    assert {(each["topic_id"], each["partition"]): each["gaps"] for each in run.document["partitions"]} == gaps
    assert (run.exit_code, run.codes.pop("tier-gap", 0)) == (int(any(gaps.values())), sum(map(len, gaps.values())))
    found = {
        (partition["topic"], partition["topic_id"], partition["partition"], copy["segment_id"]): copy
        for partition in run.document["partitions"]
        for copy in partition["copies"]
    }
    assert len(found) == len(variant["segments"])
    for segment in variant["segments"]:
        reported = segment["metadata"]
        copy = found[reported["topic"], reported["topic_id"], reported["partition"], reported["segment_id"]]
        assert (copy["state"], copy["missing"], copy["fault"]) == ("unverified", [], None)
        assert (copy["start_offset"], copy["end_offset"], copy["segment_bytes"]) == (
            reported["start_offset"],
            reported["end_offset"],
            segment["golden"]["segment"]["size"],
        )
        assert {str(each["epoch"]): each["start_offset"] for each in copy["leader_epochs"]} == reported["leader_epochs"]
        assert copy["stored_bytes"] == sum(each["size"] for each in segment["objects"].values())


def test_as_a_table() -> None:
    run = snaprebuild("tier", "inventory", "fixtures/tiered-local/remote", "--metadata-log", "fixtures/tiered-local/logs")
    assert run.exit_code == 1
    lines = [" ".join(line.split()) for line in run.stdout.splitlines()]
    assert "mixed-0 local-tiered-storage 0 6389 788.8 KiB - 12 live, 13 phantom" in lines
    assert lines[-1] == "1 partition, 25 copies of segments, 788.8 KiB"
    assert "13 copies announced and never written" in run.stderr


# ---------------------------------------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize("suffix", [".snapshot", ".txnindex"])
def test_an_object_of_a_finished_copy_is_gone(tiered: Path, suffix: str) -> None:
    only(tiered, f"00000000000000001151-*{suffix}").unlink()
    run = in_json("tier inventory", tiered, "--metadata-log", TIERED / "logs")
    if suffix == ".txnindex":  # not every segment has one
        assert states(run.document)["lost"] == 0
        return
    assert run.exit_code == 4
    lost = [copy for copy in run.document["partitions"][0]["copies"] if copy["state"] == "lost"]
    assert [(copy["start_offset"], copy["missing"]) for copy in lost] == [(1151, [suffix])]
    alone = in_json("tier inventory", tiered)
    assert (alone.exit_code, states(alone.document)["unreadable"]) == (1, 1)


def test_gaps_and_overlaps(plain: Path) -> None:
    directory = only(plain, "mixed-*/0")
    for path in directory.glob("00000000000000000583-*"):
        path.rename(plain / path.name)
    run = in_json("tier inventory", plain)
    assert (run.exit_code, run.codes) == (1, {"tier-gap": 1, "tier-unknown-objects": 1, "tier-unverified": 1})
    (mixed,) = [each for each in run.document["partitions"] if each["topic"] == "mixed"]
    assert mixed["gaps"] == [{"first_offset": 583, "last_offset": 1150}]
    assert run.document["unknown_objects"] == 3
    for path in plain.glob("00000000000000000583-*"):
        shutil.copy(path, directory / path.name)
        copied(directory / path.name, "Z")
    run = in_json("tier inventory", plain)
    (mixed,) = [each for each in run.document["partitions"] if each["topic"] == "mixed"]
    assert (mixed["gaps"], mixed["overlaps"]) == ([], [{"first_offset": 583, "last_offset": 1150}])


def test_a_manifest_that_no_one_reads(plain: Path) -> None:
    manifest = only(plain, "mixed-*/0/00000000000000000000-*.rsm-manifest")
    manifest.write_bytes(manifest.read_bytes().replace(b'"compression"', b'"more":1,"compression"'))
    run = in_json("tier inventory", plain)
    assert (run.exit_code, states(run.document)) == (4, {"unverified": 5, "unreadable": 1})
    assert "expected no other keys, for the plugin reads none, found 'more'" in run.messages("tier-bad-copy")


def test_layouts_that_are_not_read_are_named(plain: Path) -> None:
    directory = only(plain, "mixed-*/0")
    for suffix in ("log", "indexes"):
        only(directory, f"00000000000000000583-*.{suffix}").unlink()
    (directory / "00000000000000001662-AAAAAAAAAAAAAAAAAAAAAQ.timeindex").write_bytes(b"")
    run = in_json("tier inventory", plain)
    assert (run.exit_code, run.codes["tier-unsupported-layout"]) == (3, 2)
    assert "before October 2023" in run.messages("tier-unsupported-layout")
    assert "segment.format=iceberg" in run.messages("tier-unsupported-layout")


def test_a_damaged_metadata_log_ends_what_is_known(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(TIERED / "logs" / "__remote_log_metadata-0", logs / "__remote_log_metadata-0")
    path = logs / "__remote_log_metadata-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    run = in_json("tier inventory", TIERED / "remote", "--metadata-log", logs)
    assert (run.exit_code, run.codes["damaged-metadata-log"]) == (4, 1)
    assert "expected its checksum" in run.messages("damaged-metadata-log")
    assert "tier-orphan" not in run.codes, "what comes behind is not known"
    data[1000] ^= 1
    data[-1] ^= 1
    path.write_bytes(data)
    run = in_json("tier inventory", TIERED / "remote", "--metadata-log", logs)
    assert run.exit_code == 4
    assert states(run.document) == {"live": 11, "phantom": 13, "unfinished": 1}, "all but the last record is known"


def test_a_segment_of_another_size(tiered: Path) -> None:
    log = only(tiered, "00000000000000001151-*.log")
    log.write_bytes(log.read_bytes()[:-1])
    run = in_json("tier inventory", tiered, "--metadata-log", TIERED / "logs")
    assert (run.exit_code, run.codes["tier-bad-copy"]) == (4, 1)
    assert "its .log has 65414 bytes, and the metadata log has 65415" in run.messages("tier-bad-copy")


def test_a_version_of_the_metadata_that_is_not_known(tmp_path: Path) -> None:
    """The frame has it in its third byte."""
    write_partition(make_log_dir(tmp_path) / "__remote_log_metadata-0", {0: batch(0, records=[record(b"\1\0\7" + bytes(90))])})
    run = in_json("tier inventory", FIXTURES / "tiered-local" / "remote", "--metadata-log", tmp_path)
    assert (run.exit_code, run.codes["unknown-metadata-version"]) == (3, 1)
    assert "later records are unknown" in run.messages("unknown-metadata-version")


STORE = FIXTURES / "aiven-layout" / "plain" / "store"
SEGMENTS = json.loads((FIXTURES / "aiven-layout" / "plugin-reads.json").read_text())["variants"]["plain"]["segments"]
MIXED = [each for each in SEGMENTS if each["metadata"]["topic"] == "mixed"]
OTHERS = {each["metadata"]["topic_id"]: each for each in SEGMENTS if each["metadata"]["topic"] != "mixed"}
AS_OF = ("--as-of", "2026-11-20")


def partition_of(segment: dict[str, Any]) -> TopicIdPartition:
    known = segment["metadata"]
    return TopicIdPartition(known["topic"], uuid_bytes(known["topic_id"]), known["partition"])


def update(segment: dict[str, Any], state: SegmentState) -> RemoteSegmentUpdate:
    segment_id = RemoteSegmentId(partition_of(segment), uuid_bytes(segment["metadata"]["segment_id"]))
    return RemoteSegmentUpdate(segment_id, 1, 3, None, state)


def logs_with(to: Path, *more: RemoteLogRecord, of_all: bool = True) -> Path:
    """All copies announced and finished, and further records, in the only partition of the topic."""
    segments = SEGMENTS if of_all else MIXED
    metadata_log(to, segments)
    data = b"".join(batch(number, records=[record(write_remote_log_record(each))]) for number, each in enumerate(more, 1_000))
    if more:
        write_partition(to / "__remote_log_metadata-0", {1_000: data})
    return to


def states_of(document: dict[str, Any], topic: str = "mixed") -> list[str]:
    (partition,) = (each for each in document["partitions"] if each["topic"] == topic)
    return [copy["state"] for copy in partition["copies"]]


def deleted(*ends: SegmentState) -> list[RemoteLogRecord]:
    """Records that delete the first copy."""
    return [update(MIXED[0], state) for state in ends]


def topic_deleted(*ends: DeleteState) -> list[RemoteLogRecord]:
    return [PartitionDeletion(partition_of(MIXED[0]), 1, 3, state) for state in (DeleteState.DELETE_PARTITION_MARKED, *ends)]


SEGMENT_STARTED, SEGMENT_FINISHED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED
TOPIC_STARTED, TOPIC_FINISHED = DeleteState.DELETE_PARTITION_STARTED, DeleteState.DELETE_PARTITION_FINISHED


@pytest.mark.parametrize(
    ("more", "code", "count", "exit_code", "said"),
    [
        (deleted(SEGMENT_STARTED), "tier-deleting", 1, 0, "brokers continue it. Wait"),
        (
            deleted(SEGMENT_STARTED, SEGMENT_FINISHED),
            "tier-deleted",
            1,
            1,
            "1 copy whose deletion the metadata log records as finished",
        ),
        (topic_deleted(TOPIC_STARTED), "tier-deleting", len(MIXED), 0, "brokers continue it. Wait"),
        (
            topic_deleted(TOPIC_STARTED, TOPIC_FINISHED),
            "tier-deleted",
            len(MIXED),
            1,
            "whose deletion the metadata log records as finished",
        ),
    ],
    ids=["segment started", "segment finished", "topic started", "topic finished"],
)
def test_a_deletion(tmp_path: Path, more: list[RemoteLogRecord], code: str, count: int, exit_code: int, said: str) -> None:
    """The audit names it too, and judges none of these copies."""
    logs = logs_with(tmp_path, *more)
    run = in_json("tier inventory", STORE, "--metadata-log", logs)
    assert (run.exit_code, run.codes[code]) == (exit_code, 1)
    assert run.codes.keys().isdisjoint(("tier-orphan", "tier-unknown"))
    assert said in run.messages(code)
    assert sorted(states_of(run.document)) == [code.removeprefix("tier-")] * count + ["live"] * (len(MIXED) - count)
    audit = in_json("tier audit", STORE, "--metadata-log", logs, *AS_OF)
    assert (audit.codes[code], audit.codes.get("tier-orphan", 0)) == (1, 0)
    judged = [copy for each in audit.document["partitions"] if each["topic"] == "mixed" for copy in each["copies"]]
    assert len(judged) == len(MIXED) - count


def test_a_metadata_partition_that_was_not_given(tmp_path: Path) -> None:
    """Kafka's partitioner names the one that is missing: the records of one topic are in the only one that was given."""
    number = metadata_partition(partition_of(MIXED[0]), METADATA_PARTITIONS)
    logs_with(tmp_path, of_all=False)
    (tmp_path / "__remote_log_metadata-0").rename(tmp_path / f"__remote_log_metadata-{number}")
    run = in_json("tier inventory", STORE, "--metadata-log", tmp_path)
    of = {metadata_partition(partition_of(each), METADATA_PARTITIONS): each for each in OTHERS.values()}
    assert sorted(of) == [1, 19, 48]
    assert number == 19  # so one of the others has its records there, too, and has none
    assert (run.exit_code, run.codes["tier-unknown"], run.codes["tier-orphan"]) == (1, 2, 1)
    assert "partition 48 of __remote_log_metadata, which was not given" in run.messages("tier-unknown")
    assert "Delete nothing" in run.messages("tier-unknown")
    assert states_of(run.document) == ["live"] * len(MIXED)
    assert set(states_of(run.document, of[48]["metadata"]["topic"])) == {"unknown"}
    assert "unknown" in snaprebuild("tier", "inventory", STORE, "--metadata-log", tmp_path).stdout


def test_foreign_copies(tmp_path: Path) -> None:
    """All partitions of the topic were given, one of one, and none has a record."""
    run = in_json("tier inventory", STORE, "--metadata-log", logs_with(tmp_path, of_all=False))
    assert (run.exit_code, run.codes["tier-orphan"], run.codes.get("tier-unknown", 0)) == (1, len(OTHERS), 0)
    assert "Another cluster or plugin wrote them" in run.messages("tier-orphan")


def test_all_fifty_partitions_were_given(tmp_path: Path) -> None:
    number = metadata_partition(partition_of(MIXED[0]), METADATA_PARTITIONS)
    logs_with(tmp_path, of_all=False)
    (tmp_path / "__remote_log_metadata-0").rename(tmp_path / f"__remote_log_metadata-{number}")
    for other in set(range(METADATA_PARTITIONS)) - {number}:
        write_partition(make_log_dir(tmp_path) / f"__remote_log_metadata-{other}", {0: b""})
    run = in_json("tier inventory", STORE, "--metadata-log", tmp_path)
    assert (run.codes["tier-orphan"], run.codes.get("tier-unknown", 0)) == (len(OTHERS), 0)


def test_the_cluster_shows_how_many_partitions_an_emptied_metadata_topic_has(tmp_path: Path) -> None:
    """Somebody has deleted the topic: no record shows its one partition, and no directory is missing."""
    lost = FIXTURES / "follower-lost-state"
    write_partition(make_log_dir(tmp_path) / "__remote_log_metadata-0", {0: b""})
    words = (lost / "remote", "--metadata-log", tmp_path)
    alone = in_json("tier inventory", *words)
    assert (alone.codes["tier-unknown"], alone.codes.get("tier-orphan", 0), alone.document["unread"]) == (1, 0, 1)
    known = in_json("tier inventory", *words, "--metadata", lost / "node1")
    assert (known.codes.get("tier-unknown", 0), known.codes["tier-orphan"], known.document["unread"]) == (0, 1, 0)
    copies = sum(len(each["copies"]) for each in known.document["partitions"])
    assert known.document["answer"].startswith(f"{copies} copies of unknown state in 1 partition.")


# ---------------------------------------------------------------------------------------------------------------- keys


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        validator_of("tier-keys").validate(row)
    by_key = {each["key"]: each for each in rows}
    assert len(by_key) == len(rows)
    return by_key


def test_each_key_has_the_state_of_its_copy(tmp_path: Path) -> None:
    shutil.copytree(STORE, tmp_path / "store")
    (tmp_path / "store" / "notes.txt").write_text("mine")
    logs = logs_with(tmp_path / "logs", *deleted(SEGMENT_STARTED, SEGMENT_FINISHED))
    keys = tmp_path / "keys.jsonl"
    run = in_json("tier inventory", tmp_path / "store", "--metadata-log", logs, "--keys", keys, *AS_OF)
    rows = rows_of(keys)
    assert rows.keys() == {str(path.relative_to(tmp_path / "store")) for path in (tmp_path / "store").rglob("*") if path.is_file()}
    by_segment = {copy["segment_id"]: copy for each in run.document["partitions"] for copy in each["copies"]}
    for key, row in rows.items():
        file = tmp_path / "store" / key
        assert (row["size_bytes"], row["modified_ms"]) == (file.stat().st_size, file.stat().st_mtime_ns // 1_000_000)
        assert row["age_ms"] == max(run.document["as_of_ms"] - row["modified_ms"], 0)
        assert (row["etag"], row["version_id"], row["storage_class"]) == (None, None, None)
        copy = by_segment.get(file.name[21:43])
        expected = ("foreign", "its key is of no known layout") if copy is None else (copy["state"], copy["reason"])
        assert (row["state"], row["reason"]) == expected
    states = {each["state"]: each for each in run.document["states"]}
    assert states.keys() == {"live", "deleted", "foreign"}
    for state, each in states.items():
        own = [row for row in rows.values() if row["state"] == state]
        assert (each["objects"], each["stored_bytes"]) == (len(own), sum(row["size_bytes"] for row in own))
    again = snaprebuild("tier", "inventory", tmp_path / "store", "--keys", keys)
    assert (again.exit_code, "already exists" in again.stderr) == (3, True)


def test_keys_of_a_selection(tmp_path: Path) -> None:
    keys = tmp_path / "keys.jsonl"
    in_json("tier inventory", STORE, "--keys", keys, "--topic", "mixed")
    assert {each.parts[-3].rpartition("-")[0][:5] for each in map(Path, rows_of(keys))} == {"mixed"}


def test_no_keys_are_left_by_a_run_that_fails(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run = snaprebuild("tier", "inventory", tmp_path / "empty", "--keys", tmp_path / "keys.jsonl")
    assert run.exit_code == 2
    assert not (tmp_path / "keys.jsonl").exists()


@pytest.mark.parametrize("name", ["plain", "zstd", "encrypted"])
def test_key_pair_and_compression_of_each_copy(name: str) -> None:
    """By the manifests, which the plugin wrote; with the records, too."""
    run = in_json("tier inventory", AIVEN / name / "store", *AS_OF)
    copies = [copy for each in run.document["partitions"] for copy in each["copies"]]
    manifests = {path.name[21:43]: json.loads(path.read_text()) for path in (AIVEN / name / "store").rglob("*.rsm-manifest")}
    assert copies
    for copy in copies:
        manifest = manifests[copy["segment_id"]]
        assert copy["compressed"] == manifest["compression"]
        key = manifest.get("encryption")
        assert copy["key_id"] == (None if key is None else key["dataKey"].partition(":")[0])


# ---------------------------------------------------------------------------------------------------------------- two clusters


def of_cluster(log_dir: Path, cluster_id: str) -> Path:
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster_id}\n")
    return log_dir


def test_records_of_two_clusters_are_kept_apart(tmp_path: Path) -> None:
    """The records of one cluster have ``mixed`` alone, those of the other one all topics: the largest partition is not taken for both."""
    own = of_cluster(logs_with(tmp_path / "own", of_all=False), "own")
    other = of_cluster(logs_with(tmp_path / "other"), "other")
    run = in_json("tier inventory", STORE, "--metadata-log", own, "--metadata-log", other, *AS_OF)
    assert (run.exit_code, run.codes["tier-another-cluster"], run.document["cluster_id"]) == (0, len(OTHERS), "own")
    assert "cluster own, which is taken for that of the store, and of other" in run.messages("metadata-clusters")
    assert states_of(run.document) == ["live"] * len(MIXED)
    by_topic = {each["topic_id"]: each for each in run.document["partitions"]}
    for topic_id in OTHERS:
        assert {copy["state"] for copy in by_topic[topic_id]["copies"]} == {"another-cluster"}
    swapped = in_json("tier inventory", STORE, "--metadata-log", other, "--metadata-log", own, *AS_OF)
    assert (swapped.exit_code, set(states(swapped.document)), swapped.document["cluster_id"]) == (0, {"live"}, "other")


def cut(log_dir: Path) -> None:
    """The first record of the metadata topic is below its log start offset."""
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\n__remote_log_metadata 0 1\n")


def damage(log_dir: Path, at: int = -1) -> None:
    """A byte is another one, by default of the last record."""
    path = log_dir / "__remote_log_metadata-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("fault", "code"), [(cut, "metadata-topic-cut"), (damage, "damaged-metadata-log")])
def test_faults_in_the_records_of_another_cluster(fault: Callable[[Path], None], code: str, tmp_path: Path) -> None:
    """They are reported, and the states of the store's own copies are as verified as before."""
    own = of_cluster(logs_with(tmp_path / "own", of_all=False), "own")
    other = of_cluster(logs_with(tmp_path / "other"), "other")
    fault(other)
    words = ("--metadata-log", own, "--metadata-log", other, *AS_OF)
    inventory = in_json("tier inventory", STORE, *words)
    audit = in_json("tier audit", STORE, *words)
    for each in (inventory, audit):
        assert (each.document["verified"], each.codes[code]) == (True, 1), each.stderr
    assert states_of(inventory.document) == ["live"] * len(MIXED)
    fault(own)
    assert not in_json("tier inventory", STORE, *words).document["verified"]


def test_unreadable_records_of_another_cluster_may_name_copies(tmp_path: Path) -> None:
    """Nobody is told to delete copies that a cluster may read whose records are damaged."""
    own = of_cluster(logs_with(tmp_path / "own", of_all=False), "own")
    other = of_cluster(logs_with(tmp_path / "other"), "other")
    damage(other, at=100)
    words = ("--metadata-log", own, "--metadata-log", other)
    inventory = in_json("tier inventory", STORE, *words, *AS_OF)
    runs = (inventory, in_json("tier audit", STORE, *words, *AS_OF), in_json("tier metadata", STORE, *words))
    for run in runs:
        assert (run.codes.get("tier-unknown"), run.codes.get("tier-orphan")) == (len(OTHERS), None), run.stderr
        assert "among those of cluster other that cannot be read or were not given" in run.messages("tier-unknown")
    assert set(states(inventory.document)) == {"live", "unknown"}
    others = [each for each in runs[2].document["partitions"] if each["topic_id"] in OTHERS]
    assert {copy["record_decision"] for each in others for copy in each["copies"]} == {"unrecorded"}


def test_records_of_another_cluster_that_were_not_given_may_name_copies(tmp_path: Path) -> None:
    """One of 50 metadata partitions of the other cluster was given, and the records of a copy may be in one of the rest."""
    own = of_cluster(logs_with(tmp_path / "own", of_all=False), "own")
    other = of_cluster(logs_with(tmp_path / "other", of_all=False), "other")
    number = metadata_partition(partition_of(MIXED[0]), METADATA_PARTITIONS)
    (other / "__remote_log_metadata-0").rename(other / f"__remote_log_metadata-{number}")
    run = in_json("tier inventory", STORE, "--metadata-log", own, "--metadata-log", other, *AS_OF)
    assert (run.codes["tier-unknown"], run.codes["tier-orphan"]) == (2, 1)


def test_logs_of_different_clusters_do_not_go_together(tmp_path: Path) -> None:
    own = of_cluster(logs_with(tmp_path / "own"), "own")
    run = snaprebuild("tier", "inventory", STORE, "--metadata-log", own, "--metadata", FIXTURES / "kraft-cluster3" / "node1")
    assert run.exit_code == 2
    assert "are of different clusters: expected the records of cluster" in run.stderr
    assert "found those of cluster own" in run.stderr


# ---------------------------------------------------------------------------------------------------------------- a bucket


@pytest.mark.s3
def test_what_a_versioned_bucket_hides(object_store: ObjectStore, tmp_path: Path) -> None:
    """Deletes as brokers send them leave versions and markers. The server knows neither lifecycle rules nor replication."""
    name = object_store.bucket()
    object_store.client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    object_store.upload(STORE, f"s3://{name}")
    (log,) = (path for path in STORE.rglob("*.log") if MIXED[0]["metadata"]["segment_id"] in path.name)
    stem = str(log.relative_to(STORE)).removesuffix(".log")
    gone = [f"{stem}.{kind}" for kind in ("log", "indexes", "rsm-manifest")]
    for key in gone:
        object_store.client.delete_object(Bucket=name, Key=key)
    upload = object_store.client.create_multipart_upload(Bucket=name, Key=f"{stem}.log")["UploadId"]
    object_store.client.upload_part(Bucket=name, Key=f"{stem}.log", UploadId=upload, PartNumber=1, Body=b"part")
    keys = tmp_path / "keys.jsonl"
    run = in_json("tier inventory", f"s3://{name}", "--keys", keys)
    sizes = sum((STORE / key).stat().st_size for key in gone)
    bucket = run.document["bucket"]
    assert bucket["versioning"] == "Enabled"
    assert bucket["hidden"] == {"noncurrent_versions": 3, "noncurrent_bytes": sizes, "delete_markers": 3}
    assert (bucket["unfinished_uploads"]["uploads"], bucket["unfinished_uploads"]["part_bytes"]) == (1, 4)
    assert {"tier-noncurrent", "tier-unfinished-uploads"} <= run.codes.keys()
    assert {each["call"] for each in bucket["unanswered"]} <= {"GetBucketLifecycleConfiguration", "GetBucketReplication"}
    rows = [json.loads(line) for line in keys.read_text().splitlines()]
    by_state = Counter(row["state"] for row in rows)
    assert (by_state["noncurrent"], by_state["delete-marker"], by_state["unfinished-upload"]) == (3, 3, 1)
    assert {row["key"] for row in rows if row["state"] in ("noncurrent", "delete-marker")} == set(gone)
    assert len({row["version_id"] for row in rows}) == len(rows), "each version has an id, also the current ones"
    table = snaprebuild("tier", "inventory", f"s3://{name}")
    lines = [" ".join(line.split()) for line in table.stdout.splitlines()]
    assert "delete markers - 3 -" in lines
    assert "multipart uploads - 1 4 B" in lines


# ------------------------------------------------------------------------------------------------------- the metadata log of a cluster

REAL = FIXTURES / "follower-lost-state"


def removed_topic(to: Path, offset: int) -> Path:
    """The node of a real cluster, after its controller removed the topic of the store."""
    node = Path(shutil.copytree(REAL / "node1", to))
    topic_id = uuid_bytes(json.loads((REAL / "manifest.json").read_text())["topic_id"])
    append_metadata_record(node, MetadataRecordType.REMOVE_TOPIC, {"topicId": topic_id}, 0, offset, epoch=1)
    return node


def end_of_metadata(node: Path) -> int:
    run = in_json("cluster image", node)
    offset = run.document["offset"]
    assert isinstance(offset, int)
    return offset + 1


def test_a_topic_that_was_removed(tmp_path: Path) -> None:
    """The records of the copies are from before: their states alone would be live."""
    options = ("--metadata-log", REAL / "node1")
    before = in_json("tier inventory", REAL / "remote", *options, "--metadata", REAL / "node1")
    assert (set(states(before.document)), before.document["metadata_topic"]["replication_factor"]) == ({"live"}, 1)
    assert set(before.codes) == {"metadata-topic-replicas"}
    node = removed_topic(tmp_path / "node", end_of_metadata(REAL / "node1"))
    run = in_json("tier inventory", REAL / "remote", *options, "--metadata", node)
    assert set(states(run.document)) == {"live"}, "a record with an early timestamp proves nothing"
    late = removed_topic(tmp_path / "late", end_of_metadata(REAL / "node1"))
    (log,) = (late / "__cluster_metadata-0").glob("*.log")
    log.write_bytes(with_last_timestamp(log.read_bytes(), batch_positions(log)[-1], 1_900_000_000_000))
    run = in_json("tier inventory", REAL / "remote", *options, "--metadata", late)
    assert set(states(run.document)) == {"deleted"}
    assert (run.exit_code, run.codes["tier-topic-removed"], run.codes.get("tier-lost", 0)) == (1, 1, 0)
    assert "2030-03-17 17:46:40 UTC" in run.messages("tier-topic-removed")


def test_nobody_needs_the_records_of_a_topic_that_was_removed(tmp_path: Path) -> None:
    """Where the first records of the metadata topic are gone, copies without a record are missed; not those of a removed topic."""
    kept = Path(shutil.copytree(REAL / "node1", tmp_path / "kept"))
    removed = removed_topic(tmp_path / "removed", end_of_metadata(REAL / "node1"))
    (log,) = (removed / "__cluster_metadata-0").glob("*.log")
    log.write_bytes(with_last_timestamp(log.read_bytes(), batch_positions(log)[-1], 1_900_000_000_000))
    for node in (kept, removed):
        (node / "log-start-offset-checkpoint").write_text("0\n2\npayments 0 0\n__remote_log_metadata 0 2\n")
    codes = [
        in_json("tier inventory", REAL / "remote", "--metadata-log", each, "--metadata", each).codes for each in (kept, removed)
    ]
    gone = [(each.get("tier-record-gone", 0), each.get("tier-topic-removed", 0)) for each in codes]
    assert gone == [(1, 0), (0, 1)]


def with_last_timestamp(data: bytes, position: int, timestamp_ms: int) -> bytes:
    """The batch at a position with another time, and its checksum."""
    changed = bytearray(data)
    changed[position + 27 : position + 43] = struct.pack(">qq", timestamp_ms, timestamp_ms)
    changed[position + 17 : position + 21] = struct.pack(">I", crc32c.crc32c(bytes(changed[position + 21 :])))
    return bytes(changed)
