"""Each object of a copy with other bytes than the broker wrote: the verbs call it damage, never a storage that failed."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from command import in_json
from manifests import FIXTURES
from metadata_logs import metadata_log

FOLLOWER = FIXTURES / "follower-lost-state"
AIVEN = FIXTURES / "aiven-layout" / "plain" / "store"
SEGMENTS = json.loads((FIXTURES / "aiven-layout" / "plugin-reads.json").read_text())["variants"]["plain"]["segments"]
MIXED = [each for each in SEGMENTS if each["metadata"]["topic"] == "mixed"]
MEMBERS = ("version", "chunkIndex", "segmentIndexes", "compression", "remoteLogSegmentMetadata")
SEGMENT_MEMBERS = ("startOffset", "endOffset", "maxTimestampMs", "brokerId", "eventTimestampMs", "segmentLeaderEpochs")
AS_OF = ("--as-of", "2026-11-21T12:00:00Z")
KINDS = [
    *((FOLLOWER / "remote", kind) for kind in (".log", ".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot")),
    *((AIVEN, kind) for kind in (".log", ".indexes", ".rsm-manifest")),
]


@pytest.mark.parametrize("damage", ["empty", "half", "other"])
@pytest.mark.parametrize(("source", "kind"), KINDS, ids=lambda each: each if isinstance(each, str) else each.name)
def test_damage_is_no_failure_of_the_storage(tmp_path: Path, source: Path, kind: str, damage: str) -> None:
    store = tmp_path / "remote"
    shutil.copytree(source, store)
    file = sorted(store.rglob(f"*{kind}"))[2]
    data = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes({"empty": b"", "half": data[: len(data) // 2], "other": bytes(255 - each for each in data)}[damage])
    is_local = source.parent == FOLLOWER
    log_dir = ("--log-dir", FOLLOWER / "node1") if is_local else ()
    logs = FOLLOWER / "node1" if is_local else metadata_log(tmp_path / "logs", SEGMENTS)
    check_damage(store, *log_dir)
    check_damage(store, *log_dir, records=("--metadata-log", logs))


def check_damage(store: Path, *metadata_words: object, records: Sequence[object] = ()) -> None:
    """Each verb has a result, and calls nothing a failed storage."""
    runs = {
        "inventory": in_json("tier inventory", store, *records, *AS_OF),
        "audit": in_json("tier audit", store, *records, *AS_OF),
        "metadata": in_json("tier metadata", store, *records, *metadata_words, "--custom-metadata", "none"),
    }
    assert {name: run.error or run.exit_code for name, run in runs.items() if run.error or run.exit_code not in (0, 1, 4)} == {}
    assert not any("storage-failed" in run.codes for run in runs.values())


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("member", [*MEMBERS, *(f"remoteLogSegmentMetadata.{each}" for each in SEGMENT_MEMBERS)])
def test_a_manifest_that_lacks_a_member(tmp_path: Path, member: str, is_recorded: bool) -> None:
    """That of the last copy, which shows where remote storage ends."""
    (topic,) = (AIVEN / "tier").glob("mixed-*")
    store = shutil.copytree(topic, tmp_path / "store" / topic.name).parent
    path = sorted(store.rglob("*.rsm-manifest"))[-1]
    manifest = json.loads(path.read_bytes())
    *outer, name = member.split(".")
    del (manifest[outer[0]] if outer else manifest)[name]
    path.write_text(json.dumps(manifest))
    records = ("--metadata-log", metadata_log(tmp_path / "logs", MIXED)) if is_recorded else ()
    check_damage(store, "--log-start", "mixed-0=5", records=records)


@pytest.mark.parametrize("damaged", [slice(0, 1), slice(-1, None), slice(1, None)], ids=["first", "last", "all but the first"])
def test_bad_manifests_do_not_rename_the_topic(tmp_path: Path, damaged: slice) -> None:
    """A ``key.prefix`` without a separator is in the keys: the manifests show where the topic begins."""
    store = tmp_path / "store"
    (topic,) = (AIVEN / "tier").glob("mixed-*")
    shutil.copytree(topic, store / f"cold-{topic.name}")
    manifests = sorted(store.rglob("*.rsm-manifest"))
    assert len(manifests) > 2
    for file in manifests[damaged]:
        file.write_bytes(b"{}")
    for verb in ("inventory", "audit", "metadata"):
        partitions = in_json(f"tier {verb}", store).document["partitions"]
        assert [each["topic"] for each in partitions] == ["mixed"], verb


def test_a_copy_whose_manifest_names_another_topic_gets_no_records(tmp_path: Path) -> None:
    """Brokers look for records by topic id and name."""
    store = tmp_path / "store"
    (topic,) = (AIVEN / "tier").glob("mixed-*")
    shutil.copytree(topic, store / f"cold-{topic.name}")
    manifests = sorted(store.rglob("*.rsm-manifest"))
    manifests[0].write_bytes(manifests[0].read_bytes().replace(b'"topic":"mixed"', b'"topic":"d-mixed"'))
    run = in_json("tier metadata", store, "--custom-metadata", "none")
    (partition,) = run.document["partitions"]
    assert (run.exit_code, partition["topic"]) == (4, "mixed")
    assert [each["record_decision"] for each in partition["copies"]][:2] == ["unreadable", "included"]
