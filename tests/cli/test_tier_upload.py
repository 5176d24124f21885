"""``tier upload`` as a user runs it: read back by a reader of its own, by the other verbs, and by anyone who comes second."""

import base64
import json
import os
import shutil
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiven_reader import Copy, read_copies
from command import Run, in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, batch, copy_of, entries_in, make_log_dir, of_zookeeper, remove_snapshots, tree, truth
from manifests import FIXTURES, LONG_AGO, partition_fixtures
from metadata_logs import metadata_log
from object_store import ObjectStore
from sentences import NOT_REPLACED, WITHOUT_A_COMPLETE_COPY
from uploads import files, identity, started_record, with_snapshot

from formats.partition.producer_snapshot import read_entries, write_entries

MIXED_ID = "pnG54XS0SyKCbPV6BzO-OQ"
CLAIMS = ".snaprebuild-claims/"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return of_zookeeper(copy_of("kafka4-mixed", tmp_path))


def upload(logs: Path, store: Path | str, *arguments: object) -> Run:
    """With ZooKeeper there is no metadata log: only the operator's option confirms that these replicas lead."""
    return in_json("tier upload", store, logs, *arguments, "--i-am-the-leader", *LONG_AGO)


def segments(run: Run, name: str) -> list[dict[str, Any]]:
    found = run.partition(name)["segments"]
    assert isinstance(found, list)
    return found


def actions(run: Run, name: str) -> list[str]:
    return [each["action"] for each in segments(run, name)]


def stable_offset(fixture: str, name: str) -> int:
    """By the entries that Kafka's own classes have at the log end; everything is replicated."""
    (partition,) = [each for each in partition_fixtures() if (each.fixture, each.partition) == (fixture, name)]
    last = partition.segments[-1]
    return min(
        (each.current_txn_first_offset for each in last.entries if each.current_txn_first_offset >= 0), default=last.next_offset
    )


def check_copies(copies: list[Copy], directory: Path, fixture: str) -> None:
    """Everything that the plugin's reader would give equals the files of the directory, or what Kafka's own classes give."""
    right = truth(fixture, directory.name)
    following = dict(pairwise(sorted(int(path.stem) for path in directory.glob("*.log"))))
    for copy in copies:
        stem = directory / f"{copy.base_offset:020d}"
        assert copy.segment == stem.with_suffix(".log").read_bytes()
        assert copy.indexes["offset"] == stem.with_suffix(".index").read_bytes()
        assert copy.indexes["timestamp"] == stem.with_suffix(".timeindex").read_bytes()
        transactions = stem.with_suffix(".txnindex")
        assert copy.indexes["transaction"] == (transactions.read_bytes() if transactions.exists() else None)
        assert copy.indexes["leaderEpoch"] == (directory / "leader-epoch-checkpoint").read_bytes()
        end = copy.metadata["endOffset"]
        assert (copy.metadata["startOffset"], end + 1) == (copy.base_offset, following[copy.base_offset])
        assert entries_in(copy.indexes["producerSnapshot"] or b"") == right[end + 1]
        reported = copy.metadata["remoteLogSegmentId"]
        assert (reported["id"], reported["topicIdPartition"]["topicId"]) == (copy.segment_id, copy.topic_id)
        assert reported["topicIdPartition"]["topicPartition"] == {"topic": directory.name[:-2], "partition": 0}


# ---------------------------------------------------------------------------------------------------------------- what is there


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_what_was_uploaded_is_what_is_there(logs: Path, tmp_path: Path, has_snapshots: bool) -> None:
    if not has_snapshots:
        for directory in logs.glob("*-0"):
            remove_snapshots(directory)
    before, store = tree(logs), tmp_path / "store"
    run = upload(logs, store)
    assert run.exit_code == 0
    assert tree(logs) == before
    copies = read_copies(files(store))
    for name in ("mixed-0", "logappend-0", "deleted-0"):
        stable = stable_offset("kafka4-mixed", name)
        mine = [each for each in copies if each.head == name[:-2]]
        check_copies(mine, logs / name, "kafka4-mixed")
        due = [each["start_offset"] for each in segments(run, name) if each["end_offset"] < stable]
        assert [each.base_offset for each in mine] == due
        assert actions(run, name)[: len(due) + 1] == ["uploaded"] * len(due) + ["waits"] * (len(actions(run, name)) > len(due))
        assert {each["snapshot"]["origin"] for each in segments(run, name)[: len(due)]} == {
            "on_disk" if has_snapshots else "rebuilt"
        }
    audit = in_json("tier audit", store, *LONG_AGO)
    assert (audit.exit_code, audit.document["totals"]["right"]) == (0, len(copies))
    inventory = in_json("tier inventory", store)
    assert (inventory.exit_code, inventory.document["unknown_objects"]) == (0, 0)
    assert f"{len(copies)} claims of snaprebuild tier upload, which the plugin never reads" in inventory.messages("tier-claim")
    assert WITHOUT_A_COMPLETE_COPY not in inventory.messages("tier-claim")


def test_a_directory_of_kafka_2_7(tmp_path: Path) -> None:
    """It has no topic id, and hardly a snapshot."""
    logs, store = FIXTURES / "kafka27-mixed" / "logs", tmp_path / "store"
    run = upload(logs, store, "--topic-partition", "mixed-0")
    assert (run.exit_code, run.codes["tier-upload-refused"], store.exists()) == (3, 1, False)
    assert "the topic id must be given (no-topic-id)" in run.messages("tier-upload-refused")
    run = upload(logs, store, "--topic-id", f"mixed={MIXED_ID}", "--topic-partition", "mixed-0", "--set", "key_prefix=tier/")
    assert run.exit_code == 0
    copies = read_copies(files(store))
    assert {(each.head, each.topic_id) for each in copies} == {("tier/mixed", MIXED_ID)}
    assert len(copies) == run.document["totals"]["uploaded"] >= 10
    check_copies(copies, logs / "mixed-0", "kafka27-mixed")
    assert in_json("tier audit", store, *LONG_AGO).document["totals"]["right"] == len(copies)


def test_chunk_size_prefix_and_broker(logs: Path, tmp_path: Path) -> None:
    options = ("--set", "chunk_size=1000", "--set", "key_prefix=a/b-", "--broker-id", 77, "--topic-partition", "deleted-0")
    run = upload(logs, tmp_path / "store", *options)
    copies = read_copies(files(tmp_path / "store"))
    assert {(each.chunk_size, each.head, each.metadata["brokerId"]) for each in copies} == {(1000, "a/b-deleted", 77)}
    assert run.document["plugin_key_prefix"] == "a/b-"
    assert [each["key"] for each in segments(run, "deleted-0")] == [
        f"{each.head}-{each.topic_id}/0/{each.base_offset:020d}-{each.segment_id}" for each in copies
    ]


def test_records(logs: Path, tmp_path: Path) -> None:
    """By the layout of the records, made here by hand."""
    path = tmp_path / "records.jsonl"
    run = upload(logs, tmp_path / "store", "--topic-partition", "deleted-0", "--records-file", path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    copies = read_copies(files(tmp_path / "store"))
    assert (run.document["records_file"], len(lines)) == (str(path), 2 * len(copies))
    for copy, (first, second) in zip(copies, zip(lines[::2], lines[1::2], strict=True), strict=True):
        assert first["key"] is second["key"] is None
        assert base64.b64decode(first["value"]) == started_record(copy, "deleted", copy.topic_id)
        reported = identity("deleted", copy.topic_id, copy.segment_id)
        finished = b"\1\1\0" + reported + struct.pack(">iq", 1, second["record"]["event_timestamp_ms"]) + b"\0\1\0"
        assert base64.b64decode(second["value"]) == finished
        assert first["partition"] == second["partition"] == run.partition("deleted-0")["metadata_partition"] < 50
        assert [each["record"]["state"] for each in (first, second)] == ["COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"]
    again = snaprebuild("tier", "upload", tmp_path / "store", logs, "--records-file", path, *LONG_AGO)
    assert (again.exit_code, NOT_REPLACED in again.stderr) == (3, True)
    path.write_text(json.dumps(run.document))  # a report of ours is not replaced either, and that is reported before the work
    again = snaprebuild("tier", "upload", tmp_path / "more", logs, "--records-file", path, *LONG_AGO)
    assert (again.exit_code, NOT_REPLACED in again.stderr) == (3, True)
    assert not (tmp_path / "more").exists()


# ---------------------------------------------------------------------------------------------------------------- runs and others


def test_a_dry_run_writes_nothing_and_says_the_same(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    dry = upload(logs, tmp_path / "store", "--dry-run", "--records-file", tmp_path / "records")
    assert (dry.exit_code, sorted(os.listdir(tmp_path))) == (0, ["kafka4-mixed", "store"])
    assert os.listdir(tmp_path / "store") == []
    wet = upload(logs, tmp_path / "store")
    for name in ("mixed-0", "logappend-0", "deleted-0"):
        assert [each.replace("would-upload", "uploaded") for each in actions(dry, name)] == actions(wet, name)


def test_a_second_run_finds_everything(logs: Path, tmp_path: Path) -> None:
    first = upload(logs, tmp_path / "store", "--topic-partition", "mixed-0")
    before = tree(tmp_path / "store")
    second = upload(logs, tmp_path / "store", "--topic-partition", "mixed-0", "--records-file", tmp_path / "records")
    assert actions(second, "mixed-0") == [each.replace("uploaded", "finished-before") for each in actions(first, "mixed-0")]
    assert tree(tmp_path / "store") == before
    assert len((tmp_path / "records").read_text().splitlines()) == 2 * second.document["totals"]["finished-before"]
    other = upload(logs, tmp_path / "store", "--topic-partition", "mixed-0", "--uploader", "another", "--allow-unverified")
    assert actions(other, "mixed-0") == [each.replace("uploaded", "present") for each in actions(first, "mixed-0")]
    assert (other.exit_code, other.codes.get("tier-upload-not-compared")) == (0, None)
    held = [each for each in segments(other, "mixed-0") if each["action"] == "present"]
    assert {each["compared"] for each in held} == {"equal"}
    assert tree(tmp_path / "store") == before


def with_entries(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    return lambda data: write_entries(change(read_entries(data).copy()))


def older(entries: np.ndarray) -> np.ndarray:
    entries["last_sequence"] -= 1
    return entries


OTHER_SNAPSHOTS: dict[str, tuple[Callable[[bytes], bytes], str, int]] = {
    "empty": (lambda _: EMPTY_SNAPSHOT, "false_empty", 1),
    "without a producer": (with_entries(lambda entries: entries[1:]), "missing_producers", 1),
    "older": (with_entries(older), "wrong", 1),
    "cut": (lambda data: data[:-3], "corrupt", 4),
    "as it was": (lambda data: data, "equal", 0),
}
"""Contents of the copy, the answer, and the exit code."""


@pytest.mark.parametrize("name", OTHER_SNAPSHOTS)
def test_snapshots_of_present_copies_are_compared_with_the_log(name: str, logs: Path, tmp_path: Path) -> None:
    change, compared, exit_code = OTHER_SNAPSHOTS[name]
    store = tmp_path / "store"
    upload(logs, store, "--topic-partition", "mixed-0")
    copy = read_copies(files(store))[4]
    with_snapshot(store, copy, change)
    before = tree(store)
    run = upload(logs, store, "--topic-partition", "mixed-0", "--uploader", "another", "--allow-unverified")
    found = {each["start_offset"]: each["compared"] for each in segments(run, "mixed-0") if each["action"] == "present"}
    assert found.pop(copy.base_offset) == compared
    assert set(found.values()) == {"equal"}
    assert (run.exit_code, run.codes.get("tier-upload-other-snapshot", 0)) == (exit_code, int(exit_code > 0))
    assert tree(store) == before


def test_own_copies_are_known_when_the_log_start_has_moved(logs: Path, tmp_path: Path) -> None:
    """Its leader epochs and what is known of its producers are others then; the records are those of before."""
    store, files = tmp_path / "store", [tmp_path / "before", tmp_path / "after"]
    first = upload(logs, store, "--topic-partition", "mixed-0", "--records-file", files[0])
    before = tree(store)
    start = segments(first, "mixed-0")[0]["end_offset"] + 1
    for path in (logs / "mixed-0").glob(f"{0:020d}.*"):
        path.unlink()
    (logs / "mixed-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {start}\n")
    (logs / "log-start-offset-checkpoint").write_text(f"0\n1\nmixed 0 {start}\n")
    run = upload(logs, store, "--topic-partition", "mixed-0", "--records-file", files[1], "--set", "chunk_size=1000")
    done = actions(first, "mixed-0").count("uploaded")
    assert (run.exit_code, actions(run, "mixed-0")[: done - 1]) == (0, ["finished-before"] * (done - 1))
    assert tree(store) == before
    started = [path.read_text().splitlines()[::2] for path in files]
    assert started[1] == started[0][1:]


KAFKA27 = FIXTURES / "kafka27-mixed" / "logs"
KAFKA27_OPTIONS = ("--topic-id", f"mixed={MIXED_ID}", "--topic-partition", "mixed-0", "--set", "key_prefix=tier/")
PLUGIN = json.loads((FIXTURES / "aiven-layout" / "plugin-reads.json").read_text())["variants"]["diseased-zstd"]["segments"]


@pytest.fixture
def of_plugin(tmp_path: Path) -> Path:
    """A store with the first three segments, uploaded by the plugin itself."""
    return Path(shutil.copytree(FIXTURES / "aiven-layout" / "diseased-zstd" / "store", tmp_path / "store"))


def test_what_the_plugin_uploaded_is_left_alone(of_plugin: Path, tmp_path: Path) -> None:
    """Only what is after its copies would be uploaded, if brokers read them."""
    before = tree(of_plugin)
    log = metadata_log(tmp_path / "broker", PLUGIN)
    for more in (["--allow-unverified"], ["--metadata-log", log]):
        run = upload(KAFKA27, of_plugin, *KAFKA27_OPTIONS, *more, "--dry-run")
        assert actions(run, "mixed-0") == ["present"] * 3 + ["would-upload"] * 9 + ["waits", "held-back"]
        assert run.document["verified"] is (more[0] == "--metadata-log")
    assert tree(of_plugin) == before


def test_another_store_than_the_metadata_log_knows(of_plugin: Path, tmp_path: Path) -> None:
    """A forgotten or wrong prefix, or an empty store: everything would go up again where no broker reads it."""
    log, before = metadata_log(tmp_path / "broker", PLUGIN), tree(of_plugin)
    options = (*KAFKA27_OPTIONS[:-1], "key_prefix=other/", "--metadata-log", log)
    for store in (of_plugin, tmp_path / "empty"):
        run = upload(KAFKA27, store, *options)
        assert (run.exit_code, actions(run, "mixed-0")[:2]) == (3, ["refused", "held-back"])
        assert "STORE has no live copy of the partition: check STORE and key_prefix" in run.messages("tier-upload-refused")
    assert (tree(of_plugin), (tmp_path / "empty").exists()) == (before, False)


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_nothing_goes_up_plain_if_the_plugin_encrypts(logs: Path, tmp_path: Path, value: str) -> None:
    """Also into a store without a copy. Java reads the value in letters of any case."""
    store = tmp_path / "store"
    file = tmp_path / "server.properties"
    words = ("--server-properties", file, "--topic-partition", "deleted-0")
    file.write_text(f"rsm.config.storage.root={store}\nrsm.config.encryption.enabled={value}\n")
    run = upload(logs, store, *words)
    assert (run.exit_code, run.document["totals"]["uploaded"], store.exists()) == (3, 0, False)
    assert "(encrypted-store)" in run.messages("tier-upload-refused")
    file.write_text(f"rsm.config.storage.root={store}\nrsm.config.encryption.enabled=false\n")
    plain = upload(logs, store, *words, "--dry-run")
    file.write_text(f"rsm.config.storage.root={store}\nrsm.config.encryption.enabled={value}\n")
    allowed = upload(logs, store, *words, "--allow-plain", "--dry-run")
    assert plain.exit_code == allowed.exit_code == 0
    assert plain.document["totals"] == allowed.document["totals"]


def test_nothing_goes_up_plain_next_to_encrypted_copies(tmp_path: Path) -> None:
    segments_of = json.loads((FIXTURES / "aiven-layout" / "plugin-reads.json").read_text())["variants"]["encrypted"]
    store = Path(shutil.copytree(FIXTURES / "aiven-layout" / "encrypted" / "store", tmp_path / "store"))
    before = tree(store)
    log = metadata_log(tmp_path / "broker", segments_of["segments"])
    for more in (["--allow-unverified"], ["--metadata-log", log]):
        run = upload(KAFKA27, store, *KAFKA27_OPTIONS, *more)
        assert run.exit_code == 3
        assert set(actions(run, "mixed-0")) == {"refused", "held-back"}
        assert "of this partition is encrypted, and this one would not be" in run.messages("tier-upload-refused")
    assert tree(store) == before
    run = upload(KAFKA27, store, *KAFKA27_OPTIONS, "--allow-unverified", "--allow-plain", "--dry-run")
    assert "would-upload" in actions(run, "mixed-0")


def test_a_copy_that_no_one_verifies_ends_its_partition(of_plugin: Path) -> None:
    """A broker that died before FINISHED leaves such a one, whole; above it local retention would delete what only it holds."""
    before = tree(of_plugin)
    run = upload(KAFKA27, of_plugin, *KAFKA27_OPTIONS)
    assert (run.exit_code, set(actions(run, "mixed-0")[1:])) == (1, {"held-back"})
    assert actions(run, "mixed-0")[0] == "unverified"
    assert run.codes == {"tier-upload-unverified": 1, "tier-upload-stopped": 1}
    assert "--allow-unverified" in run.messages("tier-upload-unverified")
    assert tree(of_plugin) == before


def test_below_the_local_log_lies_a_copy_that_no_one_verifies(logs: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    upload(logs, store, "--topic-partition", "deleted-0", "--uploader", "first")
    first, second = sorted(store.glob("deleted-*/0/*.log"))
    for path in [*store.glob(f"deleted-*/0/{second.name[:20]}*"), *store.glob(f"{CLAIMS}*/0/{second.name[:20]}*")]:
        path.unlink()
    for path in (logs / "deleted-0").glob(f"{first.name[:20]}.*"):
        path.unlink()
    (logs / "log-start-offset-checkpoint").write_text(f"0\n1\ndeleted 0 {int(second.name[:20])}\n")
    run = upload(logs, store, "--topic-partition", "deleted-0", "--uploader", "second", "--dry-run")
    assert (run.exit_code, actions(run, "deleted-0")) == (1, ["unverified"])
    for more in (["--allow-unverified", "--uploader", "second"], ["--uploader", "first"]):
        run = upload(logs, store, "--topic-partition", "deleted-0", *more, "--dry-run")
        assert "tier-upload-unverified" not in run.codes


def test_the_claim_of_another_one(logs: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    upload(logs, store, "--topic-partition", "deleted-0", "--uploader", "first")
    for path in store.rglob("*00000000000000000000-*.rsm-manifest"):
        path.unlink()
    before = tree(store)
    run = upload(logs, store, "--topic-partition", "deleted-0", "--uploader", "second")
    assert (run.exit_code, actions(run, "deleted-0")) == (1, ["claimed", "held-back"])
    assert "claimed by 'first', run " in run.messages("tier-upload-claimed")
    assert tree(store) == before
    done = upload(logs, store, "--topic-partition", "deleted-0", "--uploader", "first")
    assert (done.exit_code, actions(done, "deleted-0")) == (0, ["uploaded", "finished-before"])
    assert in_json("tier audit", store, *LONG_AGO).document["totals"]["right"] == 2


def cut_at(root: Path, *bases: int) -> Path:
    """One log of six records, in segments that begin there and at 0, and an empty last one."""
    make_log_dir(root, replication_offset_checkpoint="0\n1\nt 0 6\n", recovery_points={"t-0": 6})
    directory = root / "t-0"
    directory.mkdir()
    for base, end in pairwise((0, *bases, 6, 7)):
        (directory / f"{base:020d}.log").write_bytes(b"".join(batch(offset) for offset in range(base, min(end, 6))))
        for suffix in ("index", "timeindex"):
            (directory / f"{base:020d}.{suffix}").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {MIXED_ID}")
    return root


def test_segments_that_are_cut_elsewhere(tmp_path: Path) -> None:
    """The claims of two replicas have other names; what they share is seen all the same, where it is there before."""
    store, one, other = tmp_path / "store", cut_at(tmp_path / "one", 2, 4), cut_at(tmp_path / "other", 3)
    assert actions(upload(one, store, "--uploader", "one"), "t-0") == ["uploaded"] * 3
    doubtful = upload(other, store, "--uploader", "other")
    assert (doubtful.exit_code, actions(doubtful, "t-0")) == (1, ["unverified", "held-back"])
    assert "holds offsets 0 to 1, some of these, and whether brokers read it is not" in doubtful.messages("tier-upload-unverified")
    for path in store.rglob("*.rsm-manifest"):
        path.unlink()
    before = tree(store)
    claimed = upload(other, store, "--uploader", "other", "--allow-unverified")
    assert (claimed.exit_code, actions(claimed, "t-0")) == (1, ["claimed", "held-back"])
    assert "'one', run " in claimed.messages("tier-upload-claimed")
    assert "claims offsets 0 to 1: its segments have other base offsets: nothing was written" in claimed.messages(
        "tier-upload-claimed"
    )
    assert tree(store) == before
    assert actions(upload(one, store, "--uploader", "one"), "t-0") == ["uploaded"] * 3
    both = upload(other, store, "--uploader", "other", "--allow-unverified")
    assert (both.exit_code, actions(both, "t-0"), both.codes["tier-upload-overlap"]) == (0, ["uploaded"] * 2, 2)


@pytest.mark.parametrize("suffix", ["log", "rsm-manifest"])
def test_a_claim_with_half_a_copy(logs: Path, tmp_path: Path, suffix: str) -> None:
    """Without all three objects, or with a manifest that is none, no one has finished."""
    store, mine = tmp_path / "store", ("--topic-partition", "deleted-0", "--allow-unverified", "--uploader")
    upload(logs, store, *mine, "first")
    (path,) = store.rglob(f"{0:020d}-*.{suffix}")
    path.write_bytes(b"{}") if suffix == "rsm-manifest" else path.unlink()
    run = upload(logs, store, *mine, "second")
    assert (run.exit_code, actions(run, "deleted-0")) == (1, ["claimed", "held-back"])


def test_no_gap_is_left_behind(logs: Path, tmp_path: Path) -> None:
    """Brokers would take what is missing for uploaded."""
    store, path = tmp_path / "store", logs / "mixed-0" / f"{1231:020d}.index"
    kept = path.read_bytes()
    path.unlink()
    run = upload(logs, store, "--topic-partition", "mixed-0")
    assert run.exit_code == 3
    assert actions(run, "mixed-0")[:4] == ["uploaded", "uploaded", "refused", "held-back"]
    assert "is missing; the broker makes one when it loads the log (missing-offset-index)" in run.messages("tier-upload-refused")
    path.write_bytes(kept)
    for segment in sorted((logs / "mixed-0").glob("*.log"))[:3]:
        for each in (logs / "mixed-0").glob(f"{segment.stem}.*"):
            each.unlink()
    (logs / "log-start-offset-checkpoint").write_text("0\n1\nmixed 0 1805\n")
    run = upload(logs, store, "--topic-partition", "mixed-0")
    assert (run.exit_code, actions(run, "mixed-0")[:2]) == (3, ["refused", "held-back"])
    assert "remote storage ends at 1230: the offsets between would be lost (gap)" in run.messages("tier-upload-refused")


def test_what_never_goes_up(tmp_path: Path) -> None:
    for fixture in ("txn-state4", "kafka4-compacted"):
        run = upload(FIXTURES / fixture / "logs", tmp_path / "store")
        assert (run.exit_code, run.document["totals"]["uploaded"], (tmp_path / "store").exists()) == (0, 0, False)
        assert run.codes["tier-never-uploaded"] == len(run.document["partitions"])


def test_no_store_inside_of_a_log_directory(logs: Path) -> None:
    for place in (logs, logs / "store", logs / "mixed-0"):
        run = snaprebuild("tier", "upload", place, logs)
        assert (run.exit_code, "STORE leads into" in run.stderr) == (3, True)


def test_as_a_table(logs: Path, tmp_path: Path) -> None:
    run = snaprebuild("tier", "upload", tmp_path / "store", logs, "--i-am-the-leader", *LONG_AGO)
    assert "mixed-0 14 0 759.5 KiB 12 uploaded, 1 waits, 1 held-back" in run.text
    records = "their records (--records-file, --produce-to) are in __remote_log_metadata"
    assert f"No broker knows of these copies before {records}. Next: snaprebuild tier audit {tmp_path}/store " in run.text
    assert "no broker uploads segments above it (above-last-stable-offset)" in run.stderr


# ---------------------------------------------------------------------------------------------------------------- object stores


@pytest.mark.s3
def test_the_same_in_an_object_store(logs: Path, tmp_path: Path, object_store: ObjectStore) -> None:
    location = f"s3://{object_store.bucket()}/tier"
    run = upload(logs, location)
    assert (run.exit_code, run.document["plugin_key_prefix"]) == (0, "tier/")
    found = object_store.files(location)
    copies = read_copies(found)
    assert len(copies) == run.document["totals"]["uploaded"] == 16
    assert in_json("tier audit", location, *LONG_AGO).document["totals"]["right"] == 16
    again = upload(logs, location)
    assert (again.document["totals"]["finished-before"], object_store.files(location)) == (16, found)


def test_a_dead_copy_is_passed_over(of_plugin: Path, tmp_path: Path) -> None:
    """The metadata log has no FINISHED of it: its records go up as a copy of our own."""
    dead = sorted(each["metadata"]["start_offset"] for each in PLUGIN)[1]
    log = metadata_log(tmp_path / "broker", PLUGIN, unfinished={dead})
    run = upload(KAFKA27, of_plugin, *KAFKA27_OPTIONS, "--metadata-log", log)
    assert actions(run, "mixed-0")[:4] == ["present", "uploaded", "present", "uploaded"]
    diseased = {each["metadata"]["start_offset"] for each in PLUGIN if each["disease"] is not None}
    present = [each for each in segments(run, "mixed-0") if each["action"] == "present"]
    wrong = {each["start_offset"] for each in present if each["compared"] != "equal"}
    assert (run.exit_code, len(present), wrong) == (1, 2, diseased - {dead})
    assert wrong
    assert segments(run, "mixed-0")[1]["start_offset"] == dead


def test_an_object_with_other_bytes_stays(logs: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    upload(logs, store, "--topic-partition", "deleted-0")
    (path,) = store.rglob(f"{0:020d}-*.log")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    before = tree(store)
    run = upload(logs, store, "--topic-partition", "deleted-0")
    assert (run.exit_code, actions(run, "deleted-0")) == (3, ["refused", "held-back"])
    assert "is there already with other bytes" in run.messages("refused")
    assert tree(store) == before
