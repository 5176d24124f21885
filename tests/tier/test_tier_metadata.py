"""Records that are rebuilt from copies: those of real brokers, and of stores whose copies overlap, end early, or are of other leaders."""

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cli.test_next_command import next_words
from command import in_json, snaprebuild
from log_dirs import batch, batch_positions, record, snapshot_bytes, write_partition
from manifests import AIVEN, FIXTURES, REPOSITORY
from schema_validator import Draft202012Validator
from sentences import AGAIN, NOT_REPLACED
from tier_example import MS, written
from tiers import TOPIC_ID, Copy, id_text, write_tier

from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType, write_cluster_metadata_record
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.offset_index import read_offset_index
from formats.remote.remote_log_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
    metadata_partition,
    read_remote_log_record,
    write_remote_log_record,
)
from snaprebuild.errors import WriteFailedError
from snaprebuild.snapshots.receipts.directory_receipt import TOPIC_FORM, DirectoryReceipt
from snaprebuild.snapshots.source.log_records import log_records
from snaprebuild.storage.local.new_directory import create_partition_directory
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.tier.metadata.topic_directories import MetadataReplica, MetadataTopicPlan, write_topic
from snaprebuild.tier.metadata.topic_log import partition_files
from snaprebuild.tier.remote_log import RemoteLog
from snaprebuild.tier.upload.announce import WrittenCopy

LOST = FIXTURES / "follower-lost-state"
T0 = TopicIdPartition("t", TOPIC_ID, 0)
DIRECTORY_ID = bytes(range(16, 32))
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
ALL_FIELDS = "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY"


def rebuilt(path: Path) -> list[RemoteSegment | RemoteSegmentUpdate]:
    """The records of a file, by the grammar of Kafka's messages."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    records = [read_remote_log_record(base64.b64decode(line["value"])) for line in lines]
    assert all(isinstance(each, RemoteSegment | RemoteSegmentUpdate) for each in records)
    return [each for each in records if isinstance(each, RemoteSegment | RemoteSegmentUpdate)]


def folded(records: list[RemoteSegment | RemoteSegmentUpdate]) -> RemoteLog:
    log = RemoteLog()
    for each in records:
        log.take(each)
    return log


# ------------------------------------------------------------------------------------------------------------------ real stores


def test_records_of_a_real_store_fold_to_what_its_brokers_had(tmp_path: Path) -> None:
    """Broker id and times of events are in no object of LocalTieredStorage."""
    file = tmp_path / "records.jsonl"
    words = (LOST / "remote", "--log-dir", LOST / "node1", "--metadata-partitions", 1, "--records-file", file)
    run = in_json("tier metadata", *words)
    assert (run.exit_code, run.document["records"], run.document["totals"]["included"]) == (0, 28, 14)
    log = folded(rebuilt(file))
    true = json.loads((LOST / "manifest.json").read_text())["remote_segments"]
    assert len(true) == len(log.segments) == 14
    for each in true:
        segment = next(found for found in log.segments.values() if id_text(found.segment_id) == each["segment_id"])
        assert log.is_live(segment.segment_id)
        assert (segment.start_offset, segment.end_offset) == (each["start_offset"], each["end_offset"])
        assert segment.max_timestamp_ms == each["max_timestamp_ms"]
        assert segment.leader_epochs == (LeaderEpochEntry(0, each["start_offset"]),)
        assert segment.broker_id == -1
    assert run.document["partitions"][0]["copies"][0]["fact_sources"] == {
        "end_offset": "segment",
        "leader_epochs": "leader-epochs",
        "max_timestamp_ms": "time-index",
        "segment_bytes": "listing",
        "broker_id": "unproven",
        "event_timestamp_ms": "listing",
        "custom_metadata": "layout",
        "txn_index_empty": "listing",
        "state": "unproven",
    }


def test_with_the_metadata_log_the_records_have_its_facts(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    words = (LOST / "remote", "--log-dir", LOST / "node1", "--metadata-log", LOST / "node1", "--records-file", file)
    run = in_json("tier metadata", *words)
    assert (run.exit_code, run.document["verified"]) == (0, True)
    copies = run.document["partitions"][0]["copies"]
    assert {source for each in copies for source in each["fact_sources"].values()} == {"metadata-log"}
    assert [each["record_differences"] for each in copies] == [[]] * 14
    assert {each.broker_id for each in rebuilt(file)} == {1}


def test_phantoms_of_a_real_store_get_no_records(tmp_path: Path) -> None:
    place = FIXTURES / "tiered-local"
    file = tmp_path / "records.jsonl"
    words = (place / "remote", "--log-dir", place / "logs", "--metadata-log", place / "logs", "--records-file", file)
    run = in_json("tier metadata", *words)
    assert (run.exit_code, run.codes["tier-phantom"]) == (1, 1)
    assert run.document["totals"] | {"included": 12, "unfinished": 13} == run.document["totals"]
    assert len(rebuilt(file)) == 24


def test_custom_metadata_is_that_of_the_plugin(tmp_path: Path) -> None:
    """The plugin returned these bytes when it made the objects; the fixture keeps them."""
    store = AIVEN / "custom-metadata" / "store"
    true = json.loads((AIVEN / "custom-metadata.json").read_text())
    file = tmp_path / "records.jsonl"
    words = (
        store,
        "--log-start",
        "mixed-0=3664",
        "--custom-metadata",
        ALL_FIELDS,
        "--set",
        "key_prefix=tier/",
        "--records-file",
        file,
    )
    assert in_json("tier metadata", *words).exit_code == 0
    found = {id_text(each.id.id): each.custom_metadata for each in rebuilt(file) if each.id is not None}
    assert {key: (value or b"").hex() for key, value in found.items()} == {
        name[-22:]: each["custom_metadata_hex"] for name, each in true.items()
    }


def test_custom_metadata_follows_the_configuration_of_the_broker(tmp_path: Path) -> None:
    """Without the key the plugin returns none."""
    store = AIVEN / "custom-metadata" / "store"
    properties = tmp_path / "server.properties"
    sizes = []
    for fields in ("", "rsm.config.custom.metadata.fields.include=REMOTE_SIZE, OBJECT_PREFIX\n"):
        properties.write_text(f"rsm.config.storage.root={store}\nrsm.config.key.prefix=tier/\n{fields}")
        run = in_json("tier metadata", "--server-properties", properties, "--log-start", "mixed-0=3664")
        (partition,) = run.document["partitions"]
        assert (run.exit_code, partition["refusals"]) == (0, [])
        sizes.append([len(each["record_facts"]["custom_metadata"] or "") // 2 for each in partition["copies"]])
    assert sizes == [[0, 0], [14, 14]]
    properties.write_text(f"rsm.config.storage.root={store}\nrsm.config.custom.metadata.fields.include=SIZE\n")
    run = snaprebuild("tier", "metadata", "--server-properties", properties)
    assert (run.exit_code, "custom.metadata.fields.include: expected none" in run.stderr) == (2, True)


def test_in_a_directory_the_prefix_of_the_keys_is_that_of_the_plugin(tmp_path: Path) -> None:
    """Below the root of the plugin the keys lack a part of the prefix, and brokers would look for other files."""
    root = AIVEN / "custom-metadata" / "store"
    properties = tmp_path / "server.properties"
    properties.write_text(f"rsm.config.storage.root={root}\n")
    file = tmp_path / "records.jsonl"
    words = ("--log-start", "mixed-0=3664", "--custom-metadata", "OBJECT_PREFIX", "--records-file", file)
    for store, more in (
        (root, ()),
        (root / "tier", ()),
        (root / "tier", ("--server-properties", properties)),
        (root, ("--server-properties", properties)),
    ):
        run = in_json("tier metadata", store, *words, *more)
        assert (run.exit_code, file.exists()) == (3, False)
        assert [each["cause"] for each in run.document["partitions"][0]["refusals"]] == ["settings-unknown"]
    properties.write_text(f"rsm.config.storage.root={root / 'tier'}\n")
    run = in_json("tier metadata", *words, "--server-properties", properties)
    assert (run.exit_code, run.document["partitions"][0]["refusals"]) == (0, [])
    assert {(each.custom_metadata or b"").hex() for each in rebuilt(file)} == {"01010101"}  # one field: tag 1, the empty string


def records_of(path: Path) -> list[RemoteSegment | RemoteSegmentUpdate]:
    """The records of a real store in Aiven's layout, with the sizes that its objects have now."""
    words = ("--custom-metadata", ALL_FIELDS, "--set", "key_prefix=tier/", "--log-start", "mixed-0=0")
    file = path.with_suffix(".jsonl")
    assert in_json("tier metadata", path, *words, "--records-file", file).exit_code == 0
    return rebuilt(file)


def test_a_repair_leaves_records_and_objects_equal(tmp_path: Path) -> None:
    """The repair appends to objects, and the record keeps the size that they had."""
    store = Path(shutil.copytree(AIVEN / "diseased" / "store", tmp_path / "store"))
    records = records_of(store)
    log = metadata_log(tmp_path, *records)
    words = (store, "--metadata-log", log)
    repair = in_json("tier repair", *words, "--receipt", tmp_path / "receipt.jsonl", "--as-of", "2020-01-01T00:00:00Z")
    assert (repair.exit_code, repair.document["totals"]["repaired"]) == (0, 4)
    words += ("--log-start", "mixed-0=0")
    for more in ((), ("--set", "key_prefix=tier/")):
        run = in_json("tier metadata", *words, "--custom-metadata", ALL_FIELDS, *more)
        assert (run.exit_code, run.codes.get("tier-metadata-differs", 0)) == (0, 0)
    run = in_json("tier metadata", store / "tier", *words[1:], "--custom-metadata", ALL_FIELDS)
    assert (run.exit_code, run.codes.get("tier-metadata-differs", 0)) == (0, 0)
    wrong = [replace(each, custom_metadata=(each.custom_metadata or b"")[:-1] + b"!") for each in records]
    other = metadata_log(tmp_path / "other", *wrong)
    run = in_json("tier metadata", store, "--metadata-log", other, *words[3:], "--custom-metadata", ALL_FIELDS)
    assert (run.exit_code, run.codes["tier-metadata-differs"]) == (4, 6)


def test_without_settings_of_the_plugin_nothing_is_written(tmp_path: Path) -> None:
    store = AIVEN / "custom-metadata" / "store"
    file = tmp_path / "records.jsonl"
    run = in_json("tier metadata", store, "--records-file", file)
    assert (run.exit_code, file.exists(), run.document["records_file"]) == (3, False, None)
    causes = {refusal["cause"] for refusal in run.document["partitions"][0]["refusals"]}
    assert causes == {"log-start-unknown", "settings-unknown"}
    run = in_json("tier metadata", store)
    assert (run.exit_code, run.codes["tier-metadata-refused"]) == (0, 2)
    shown = snaprebuild("tier", "metadata", store)
    assert "\nNext: before records are written, give what stderr lists for each partition.\n" in shown.stdout
    assert "give --log-dir or --log-start" in shown.stderr
    shown = snaprebuild("tier", "metadata", store, "--log-dir", LOST / "node1")
    assert "no --log-dir has it with its topic id: name the log directory of its leader, too, or give --log-start " in shown.stderr
    shown = snaprebuild("tier", "metadata", store, "--records-file", file, "--dry-run")
    assert (shown.exit_code, f"\nNext: {AGAIN}\n" in shown.stdout) == (3, True)
    run = snaprebuild("tier", "metadata", store, "--custom-metadata", "REMOTE_SIZE,SIZE")
    assert (run.exit_code, "found SIZE" in run.stderr.replace("'", "")) == (2, True)


# ------------------------------------------------------------------------------------------------------------------ made by hand


def segment_bytes(first: int, end: int, epochs: tuple[tuple[int, int], ...]) -> bytes:
    """Batches of one record, each with the leader epoch of its offset."""
    data = b""
    for offset in range(first, end + 1):
        epoch = [each for each, start in epochs if start <= offset][-1]
        data += written(epoch, batch(offset, producer_id=1, sequence=offset, timestamp=MS + offset))
    return data


def copy(first: int, end: int, *epochs: tuple[int, int]) -> Copy:
    """A copy whose checkpoint has these leader epochs."""
    log = segment_bytes(first, end, epochs or ((0, 0),))
    return Copy(first, log, epochs or ((0, 0),), snapshot_bytes([]), MS + end, end - first)


def store_of(root: Path, *copies: Copy) -> Path:
    return write_tier(root / "remote", "t", 0, copies)


def leader_of(root: Path, log_start: int, first_local: int, *epochs: tuple[int, int]) -> Path:
    """The log directory of a leader."""
    directory = root / "leader" / "t-0"
    write_partition(directory, {first_local: segment_bytes(first_local, first_local + 3, epochs)})
    (directory / "leader-epoch-checkpoint").write_text(
        f"0\n{len(epochs)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in epochs)
    )
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {id_text(TOPIC_ID)}")
    (root / "leader" / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {log_start}\n")
    (root / "leader" / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id=c\ndirectory.id={id_text(DIRECTORY_ID)}\n")
    return root / "leader"


def cluster_log(root: Path, directory_id: bytes = DIRECTORY_ID) -> Path:
    """The metadata log of a cluster that has the topic, with its only replica on node 1."""
    topic = ClusterMetadataRecord(MetadataRecordType.TOPIC, "TopicRecord", 0, {"name": "t", "topicId": TOPIC_ID})
    fields = {
        "partitionId": 0,
        "topicId": TOPIC_ID,
        "replicas": [1],
        "isr": [1],
        "leader": 1,
        "directories": [directory_id],
    }
    partition = ClusterMetadataRecord(MetadataRecordType.PARTITION, "PartitionRecord", 1, fields)
    log = b"".join(
        batch(offset, records=[record(write_cluster_metadata_record(each))]) for offset, each in enumerate((topic, partition))
    )
    return write_partition(root / "controller" / "__cluster_metadata-0", {0: log}).parent


def decisions(run_document: dict[str, object]) -> list[str]:
    (partition,) = run_document["partitions"]  # type: ignore[misc]
    return [each["record_decision"] for each in partition["copies"]]


def started(number: int, first: int, end: int, *epochs: tuple[int, int], size: int = 0) -> RemoteSegment:
    """The record of the copy at a place in the row of ``write_tier``."""
    log = segment_bytes(first, end, epochs or ((0, 0),))
    inside = tuple(LeaderEpochEntry(epoch, max(start, first)) for epoch, start in epochs or ((0, 0),))
    segment_id = bytes((number,)) * 16
    return RemoteSegment(
        id=RemoteSegmentId(T0, segment_id),
        segment_id=segment_id,
        start_offset=first,
        end_offset=end,
        broker_id=4,
        max_timestamp_ms=MS + end,
        event_timestamp_ms=MS + 9,
        leader_epochs=inside,
        size_bytes=size or len(log),
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=True,
    )


def update(segment: RemoteSegment, state: SegmentState = FINISHED) -> RemoteSegmentUpdate:
    assert segment.id is not None
    return RemoteSegmentUpdate(segment.id, 4, MS + 10, None, state)


def metadata_log(root: Path, *records: RemoteSegment | RemoteSegmentUpdate) -> Path:
    log = b"".join(batch(offset, records=[record(write_remote_log_record(each))]) for offset, each in enumerate(records))
    return write_partition(root / "metadata" / "__remote_log_metadata-0", {0: log}).parent


def test_copies_below_the_log_start_are_listed_and_get_no_records(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 19), copy(20, 29))
    run = in_json("tier metadata", store, "--log-dir", leader_of(tmp_path, 15, 30, (0, 0)))
    assert (run.exit_code, decisions(run.document)) == (0, ["below-log-start", "included", "included"])
    (partition,) = run.document["partitions"]
    assert (partition["log_start_offset"], partition["local_log_start_offset"], partition["next_offset"]) == (15, 30, 30)
    run = in_json("tier metadata", store, "--log-dir", tmp_path / "leader", "--log-start", "t-0=20")
    assert decisions(run.document) == ["below-log-start", "below-log-start", "included"]
    run = in_json("tier metadata", store, "--log-dir", tmp_path / "leader", "--log-start", "t-0=3")
    assert decisions(run.document) == ["below-log-start", "included", "included"]
    assert (run.exit_code, causes(run.document)) == (1, ["log-start-moved"]), "the option is not used"


def test_a_copy_that_has_lost_records_alone_above_the_log_start_gets_none(tmp_path: Path) -> None:
    """Its offsets below 12 were deleted, and those from 12 on were truncated: a broker would hand out what was lost."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 19), copy(12, 29, (1, 12)))
    run = in_json("tier metadata", store, "--log-dir", leader_of(tmp_path, 12, 30, (0, 0), (1, 12)))
    assert (run.exit_code, decisions(run.document)) == (0, ["below-log-start", "other-line", "included"])
    run = in_json("tier metadata", store, "--log-dir", leader_of(tmp_path / "other", 11, 30, (0, 0), (1, 12)))
    assert decisions(run.document) == ["below-log-start", "included", "included"], "11 is in this copy alone"


def causes(run_document: dict[str, object]) -> list[str]:
    (partition,) = run_document["partitions"]  # type: ignore[misc]
    return [each["cause"] for each in partition["refusals"]]


def test_a_log_start_above_the_end_of_the_leader_is_refused(tmp_path: Path) -> None:
    """The log on disk has the offsets 30 to 33."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 19), copy(20, 29))
    leader = leader_of(tmp_path, 15, 30, (0, 0))
    file = tmp_path / "records.jsonl"
    run = in_json("tier metadata", store, "--log-dir", leader, "--log-start", "t-0=35", "--records-file", file)
    assert (run.exit_code, causes(run.document), file.exists()) == (3, ["log-start-above-end"], False)
    run = in_json("tier metadata", store, "--log-dir", leader, "--log-start", "t-0=35")
    assert (run.exit_code, causes(run.document)) == (1, ["log-start-above-end"])
    run = in_json("tier metadata", store, "--log-dir", leader, "--log-start", "t-0=34", "--records-file", file)
    assert (run.exit_code, causes(run.document), decisions(run.document)) == (0, [], ["below-log-start"] * 3)


def test_a_log_start_is_refused_if_the_end_of_the_leader_cannot_be_read(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 29))
    leader = leader_of(tmp_path, 15, 30, (0, 0))
    log = leader / "t-0" / f"{30:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"\xff" + b"\xff" * 200)
    run = in_json("tier metadata", store, "--log-dir", leader, "--log-start", "t-0=900")
    assert (run.exit_code, causes(run.document)) == (1, ["log-start-above-end"])


def test_without_a_leader_a_log_start_above_the_last_copy_is_refused(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    run = in_json("tier metadata", store, "--log-start", "t-0=21", "--records-file", tmp_path / "records.jsonl")
    assert (run.exit_code, causes(run.document)) == (3, ["log-start-above-end"])
    run = in_json("tier metadata", store, "--log-start", "t-0=20")
    assert (run.exit_code, causes(run.document)) == (0, [])


def test_a_copy_that_the_metadata_log_deletes_shows_how_far_the_log_reached(tmp_path: Path) -> None:
    """Its record is gone, and its segment is still there."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    first, second = started(1, 0, 9), started(2, 10, 19)
    states = (FINISHED, SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED)
    log = metadata_log(tmp_path, first, update(first), second, *[update(second, state) for state in states])
    run = in_json("tier metadata", store, "--metadata-log", log, "--log-start", "t-0=20")
    assert (decisions(run.document), causes(run.document)) == (["below-log-start", "deleted"], [])
    run = in_json("tier metadata", store, "--metadata-log", log, "--log-start", "t-0=21")
    assert causes(run.document) == ["log-start-above-end"]


def test_a_log_start_at_the_first_offset_on_disk_may_be_the_mark_of_the_loss(tmp_path: Path) -> None:
    """A leader that starts without records moves it there. An option confirms it, and a record of the copy says what it is."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    leader = leader_of(tmp_path, 20, 20, (0, 0))
    file = tmp_path / "records.jsonl"
    shown = in_json("tier metadata", store, "--log-dir", leader)
    assert (shown.exit_code, decisions(shown.document), causes(shown.document)) == (1, ["below-log-start"] * 2, ["log-start-moved"])
    refused = in_json("tier metadata", store, "--log-dir", leader, "--records-file", file)
    assert (refused.exit_code, file.exists()) == (3, False)
    confirmed = in_json("tier metadata", store, "--log-dir", leader, "--log-start", "t-0=20", "--records-file", file)
    assert (confirmed.exit_code, causes(confirmed.document), rebuilt(file)) == (0, [], [])
    first, second = started(1, 0, 9), started(2, 10, 19)
    log = metadata_log(tmp_path, first, update(first), second, update(second))
    assert causes(in_json("tier metadata", store, "--log-dir", leader, "--metadata-log", log).document) == []


@pytest.mark.parametrize("typed", [0, 19])
def test_another_log_start_than_that_on_disk_confirms_nothing(typed: int, tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    leader = leader_of(tmp_path, 20, 20, (0, 0))
    file = tmp_path / "records.jsonl"
    run = in_json("tier metadata", store, "--log-dir", leader, "--log-start", f"t-0={typed}", "--records-file", file)
    assert (run.exit_code, causes(run.document), file.exists()) == (3, ["log-start-moved"], False)


def test_offsets_without_a_leader_epoch_are_not_served(tmp_path: Path) -> None:
    """The log start offset was put back, and the leader epochs are still cut."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    run = in_json("tier metadata", store, "--log-dir", leader_of(tmp_path, 5, 20, (0, 20)))
    assert (causes(run.document), run.document["partitions"][0]["refusals"][0]["offset"]) == (["not-served"], 5)
    healthy = in_json("tier metadata", store, "--log-dir", leader_of(tmp_path / "other", 5, 20, (0, 5)))
    assert causes(healthy.document) == []


def test_a_log_start_that_is_older_than_the_leader_epochs(tmp_path: Path) -> None:
    """A broker writes its log start once a minute, and leader epochs at once: one that was killed has deleted more than the file shows."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    words = ("tier metadata", store, "--log-dir", leader_of(tmp_path, 0, 20, (0, 12)))
    run = in_json(*words)
    assert causes(run.document) == ["not-served"]
    assert "before the broker was killed, give --log-start t-0=12" in run.messages("tier-metadata-refused")
    confirmed = in_json(*words, "--log-start", "t-0=12")
    assert (causes(confirmed.document), decisions(confirmed.document)) == ([], ["below-log-start", "included"])


def test_any_replica_shows_that_the_log_start_may_have_moved(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    moved = leader_of(tmp_path / "a", 20, 20, (0, 0))
    newest = leader_of(tmp_path / "b", 0, 17, (0, 0), (1, 18))
    run = in_json("tier metadata", store, "--log-dir", moved, "--log-dir", newest)
    assert causes(run.document) == ["log-start-moved"]


@pytest.mark.parametrize(("log_start", "first_local"), [(10, 20), (20, 30), (15, 15), (0, 0)])
def test_other_log_starts_are_what_they_seem(tmp_path: Path, log_start: int, first_local: int) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 19), copy(20, 29))
    run = in_json("tier metadata", store, "--log-dir", leader_of(tmp_path, log_start, first_local, (0, 0)))
    assert "log-start-moved" not in causes(run.document)


def torn_index(store: Path, first: int) -> None:
    """An offset index that ends within an entry, which has 8 bytes."""
    next(store.rglob(f"{first:020d}-*.index")).write_bytes(bytes(5))


@pytest.mark.parametrize("has_metadata_log", [False, True])
def test_a_copy_with_a_torn_index_gets_no_records(has_metadata_log: bool, tmp_path: Path) -> None:
    """A leader that took it for uploaded would delete its own segments of these offsets."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    torn_index(store, 10)
    first, second = started(1, 0, 9), started(2, 10, 19)
    log = metadata_log(tmp_path, first, update(first), second, update(second))
    words = ("--metadata-log", log) if has_metadata_log else ()
    file = tmp_path / "records.jsonl"
    run = in_json("tier metadata", store, *words, "--log-dir", leader_of(tmp_path, 0, 10, (0, 0)), "--records-file", file)
    assert (run.exit_code, decisions(run.document), len(rebuilt(file))) == (4, ["included", "unreadable"], 2)
    assert run.document["partitions"][0]["next_offset"] == 10


def test_offsets_that_only_a_copy_with_a_torn_index_has_are_a_gap(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    torn_index(store, 10)
    file = tmp_path / "records.jsonl"
    run = in_json("tier metadata", store, "--log-dir", leader_of(tmp_path, 0, 20, (0, 0)), "--records-file", file)
    assert (causes(run.document), file.exists()) == (["gap"], False)
    run = in_json("tier metadata", store, "--log-dir", tmp_path / "leader", "--log-start", "t-0=20")
    assert decisions(run.document) == ["below-log-start"] * 2


def test_a_manifest_that_contradicts_its_objects_gets_no_records_although_the_metadata_log_has_them(tmp_path: Path) -> None:
    """The segment of the copy lost its last byte."""
    store = Path(shutil.copytree(AIVEN / "custom-metadata" / "store", tmp_path / "store"))
    file = tmp_path / "records.jsonl"
    words = ("--log-start", "mixed-0=3664", "--custom-metadata", ALL_FIELDS, "--set", "key_prefix=tier/")
    assert in_json("tier metadata", store, *words, "--records-file", file).exit_code == 0
    log = metadata_log(tmp_path, *rebuilt(file))
    segment = sorted(store.rglob("*.log"))[-1]
    segment.write_bytes(segment.read_bytes()[:-1])
    run = in_json("tier metadata", store, *words, "--metadata-log", log)
    assert (run.exit_code, decisions(run.document)[-1]) == (4, "unreadable")


def leader_segments(root: Path, *ranges: tuple[int, int]) -> Path:
    """The log directory of a leader that has segments from the log start 0 on, with these first and last offsets."""
    directory = leader_of(root, 0, 0, (0, 0))
    for first, last in ranges:
        (directory / "t-0" / f"{first:020d}.log").write_bytes(segment_bytes(first, last, ((0, 0),)))
    return directory


GAP_SEGMENTS = {
    "all of the gap": (((0, 9), (10, 14), (15, 24), (25, 40)), [(10, 14), (15, 24)]),
    "active segment beyond the copies": (((0, 9), (10, 14), (15, 40)), [(10, 14)]),
    "log end at that of the copies": (((0, 9), (10, 14), (15, 29)), [(10, 14), (15, 29)]),
    "none on disk": (((20, 29), (30, 40)), []),
}
"""Segments on the leader's disk; those of them with offsets 10 to 19 whose last offset is at most 29, the highest one in remote storage."""


@pytest.mark.parametrize("name", GAP_SEGMENTS)
def test_a_gap_is_refused_unless_the_segments_that_go_are_typed(name: str, tmp_path: Path) -> None:
    ranges, expected = GAP_SEGMENTS[name]
    store = store_of(tmp_path, copy(0, 9), copy(20, 29))
    file = tmp_path / "records.jsonl"
    leader = leader_segments(tmp_path, *ranges)
    if ranges[0][0] > 0:
        (leader / "t-0" / f"{0:020d}.log").unlink()
    words = (store, "--log-dir", leader, "--metadata", cluster_log(tmp_path), "--records-file", file)
    run = in_json("tier metadata", *words)
    assert (run.exit_code, file.exists(), run.codes["tier-gap"]) == (3, False, 1)
    (partition,) = run.document["partitions"]
    assert partition["gaps"] == [{"first_offset": 10, "last_offset": 19}]
    found = [(each["start_offset"], each["end_offset"]) for each in partition["gap_segments"]]
    assert found == expected
    sizes = [(leader / "t-0" / f"{first:020d}.log").stat().st_size for first, _ in expected]
    assert [each["segment_bytes"] for each in partition["gap_segments"]] == sizes
    for wrong in {0, 1, 2, 3} - {len(expected)}:
        refused = in_json("tier metadata", *words, "--allow-gaps", wrong)
        assert (refused.exit_code, file.exists()) == (3, False)
        assert f"give --allow-gaps {len(expected)}" in refused.stderr
        dry = snaprebuild("tier", "metadata", *words, "--allow-gaps", wrong, "--dry-run")
        advice = "look at the segments below, then give" if expected else "give"
        assert f"\nNext: {advice} --allow-gaps {len(expected)}.\n" in dry.stdout
    dry = snaprebuild("tier", "metadata", *words, "--allow-gaps", len(expected), "--dry-run")
    assert (f"Leaders delete {len(expected)} segment" in dry.stdout) is bool(expected)
    following = next_words(dry)
    assert following[following.index("--records-file") + 1] == str(file)
    run = in_json("tier metadata", *words, "--allow-gaps", len(expected))
    assert (run.exit_code, len(rebuilt(file)), run.codes["tier-gap"]) == (1, 4, 1)


def test_a_gap_is_refused_if_a_log_of_its_replicas_is_unknown(tmp_path: Path) -> None:
    """Nothing shows which segments its leader would delete. The registered log directories without such a log show that there are none."""
    store = store_of(tmp_path, copy(0, 9), copy(20, 29))
    file = tmp_path / "records.jsonl"
    cluster = cluster_log(tmp_path)
    words = (store, "--log-start", "t-0=0", "--records-file", file, "--allow-gaps", 0)
    other = leader_segments(tmp_path, (0, 9), (10, 29))
    named = ("--log-dir", other)
    for more in ((), named, ("--metadata", cluster)):
        run = in_json("tier metadata", *words, *more)
        assert (run.exit_code, file.exists(), causes(run.document)) == (3, False, ["gap"])
        (partition,) = run.document["partitions"]
        assert partition["gap_segments"] is None
        assert "--log-dir" in partition["refusals"][0]["message"]
    (other / "t-0" / "partition.metadata").unlink()
    run = in_json("tier metadata", *words, *named, "--metadata", cluster)
    assert (run.exit_code, causes(run.document)) == (3, ["gap"]), "it may be the log of this topic"
    (other / "t-0").rename(other / "another-0")
    run = in_json("tier metadata", *words, *named)
    assert (run.exit_code, causes(run.document)) == (3, ["gap"]), "another broker may have it"
    run = in_json("tier metadata", *words, *named, "--metadata", cluster)
    assert (run.exit_code, run.document["partitions"][0]["gap_segments"], len(rebuilt(file))) == (1, [], 4)


def test_without_a_log_only_the_registered_directory_shows_that_there_is_none(tmp_path: Path) -> None:
    """The broker has another log directory, which may have it."""
    store = store_of(tmp_path, copy(0, 9), copy(20, 29))
    other = leader_segments(tmp_path, (0, 9), (10, 29))
    (other / "t-0").rename(other / "another-0")
    cluster = cluster_log(tmp_path, directory_id=bytes(15) + b"\7")
    words = (store, "--log-start", "t-0=0", "--log-dir", other, "--metadata", cluster)
    assert causes(in_json("tier metadata", *words).document) == ["gap"]
    assert in_json("tier metadata", *words).document["partitions"][0]["gap_segments"] is None


NODES = {
    "leader": (("node1",), None),
    "follower": (("node2",), None),
    "both": (("node1", "node2"), 1),
    "both, follower first": (("node2", "node1"), 1),
}
"""Log directories of a real cluster, and how many segments its leader deletes: the one from 561 on, all of the gap. None if a
replica was not named."""


@pytest.mark.parametrize("is_log_removed", [False, True])
@pytest.mark.parametrize("name", NODES)
def test_segments_of_a_gap_are_counted_with_the_logs_of_all_replicas(name: str, is_log_removed: bool, tmp_path: Path) -> None:
    nodes, expected = NODES[name]
    root = tmp_path / "lost"
    shutil.copytree(LOST, root)
    for each in (root / "remote").rglob("*00561-*"):
        each.unlink()
    if is_log_removed:
        shutil.rmtree(root / "node2" / "payments-0")
    file = tmp_path / "records.jsonl"
    named = [word for node in nodes for word in ("--log-dir", root / node)]
    words = (root / "remote", *named, "--metadata", root / "node1", "--log-start", "payments-0=0", "--records-file", file)
    run = in_json("tier metadata", *words, "--allow-gaps", 0)
    assert (run.exit_code, file.exists()) == (3, False)
    (partition,) = run.document["partitions"] if expected is None else in_json("tier metadata", *words).document["partitions"]
    found = partition["gap_segments"]
    assert (None if found is None else [each["start_offset"] for each in found]) == (None if expected is None else [561])
    if expected is not None:
        assert in_json("tier metadata", *words, "--allow-gaps", expected).exit_code == 1
        assert len(rebuilt(file)) == 26


def test_offsets_between_the_copies_and_the_disk_of_the_leader_are_a_gap(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    run = in_json("tier metadata", store, "--log-dir", leader_of(tmp_path, 0, 25, (0, 0)))
    assert run.exit_code == 1
    assert run.document["partitions"][0]["gaps"] == [{"first_offset": 20, "last_offset": 24}]


def test_of_copies_that_share_offsets_the_line_of_leaders_is_taken(tmp_path: Path) -> None:
    """The leader of epoch 1 began to roll elsewhere, and uploaded from where it took remote storage to end."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 14), copy(12, 21, (0, 0), (1, 15)))
    file = tmp_path / "records.jsonl"
    run = in_json("tier metadata", store, "--log-start", "t-0=0", "--records-file", file)
    assert (run.exit_code, decisions(run.document)) == (0, ["included"] * 3)
    log = folded(rebuilt(file))
    read = {offset: log.lookup(0 if offset < 15 else 1, offset) for offset in range(22)}
    assert [each.start_offset if each else None for each in read.values()] == [0] * 10 + [10, 10] + [12] * 10


def test_a_copy_whose_offsets_others_hold_is_superseded(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 19), copy(5, 9), copy(20, 29))
    run = in_json("tier metadata", store, "--log-start", "t-0=0")
    assert (run.exit_code, decisions(run.document)) == (0, ["included", "superseded", "included"])


def test_the_truncated_end_of_an_old_leader_is_left_to_the_newer_one(tmp_path: Path) -> None:
    """An unclean election: the leader of epoch 1 has other records from 10 on."""
    store = store_of(tmp_path, copy(0, 14), copy(10, 21, (0, 0), (1, 10)))
    file = tmp_path / "records.jsonl"
    run = in_json("tier metadata", store, "--log-start", "t-0=0", "--records-file", file)
    assert (run.exit_code, decisions(run.document)) == (0, ["included", "included"])
    log = folded(rebuilt(file))
    assert [log.lookup(0, 9), log.lookup(1, 10)] == list(log.segments.values())


def test_offsets_that_only_the_truncated_end_of_a_copy_had_are_a_gap(tmp_path: Path) -> None:
    """The leader of epoch 1 began at 10, and its copy of 10 and 11 is lost: the old records there are of another log."""
    store = store_of(tmp_path, copy(0, 14), copy(12, 21, (0, 0), (1, 10)))
    run = in_json("tier metadata", store, "--log-start", "t-0=0")
    assert run.exit_code == 1
    assert run.document["partitions"][0]["gaps"] == [{"first_offset": 10, "last_offset": 11}]


FORK = (copy(0, 9), copy(10, 19, (0, 0), (1, 10)), copy(10, 21, (0, 0), (2, 10)))


def test_two_lines_of_leaders_are_refused_until_a_leader_shows_which_is_its_own(tmp_path: Path) -> None:
    store = store_of(tmp_path, *FORK)
    run = in_json("tier metadata", store, "--log-start", "t-0=0")
    assert run.exit_code == 1
    assert [each["cause"] for each in run.document["partitions"][0]["refusals"]] == ["two-lines"]
    leader = leader_of(tmp_path, 0, 22, (0, 0), (2, 10))
    run = in_json("tier metadata", store, "--log-dir", leader)
    assert (run.exit_code, decisions(run.document)) == (0, ["included", "other-line", "included"])
    assert run.document["partitions"][0]["refusals"] == []


def test_a_leader_that_is_older_than_the_copies_shows_nothing(tmp_path: Path) -> None:
    store = store_of(tmp_path, *FORK)
    run = in_json("tier metadata", store, "--log-dir", leader_of(tmp_path, 0, 20, (0, 0), (1, 10)))
    assert run.exit_code == 1
    assert [each["cause"] for each in run.document["partitions"][0]["refusals"]] == ["old-leader"]


def test_records_without_objects_objects_without_records_and_states_that_brokers_drop(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 19), copy(20, 29), copy(30, 39), copy(40, 49))
    finished = [started(number, first, first + 9) for number, first in ((1, 0), (2, 10), (3, 20))]
    lost = started(9, 50, 59)
    rows = [each for segment in (*finished, lost) for each in (segment, update(segment))]
    deleted = [update(finished[0], SegmentState.DELETE_SEGMENT_STARTED), update(finished[0], SegmentState.DELETE_SEGMENT_FINISHED)]
    unfinished = started(4, 30, 39)
    odd = update(started(8, 70, 79))  # of no copy that the log has
    log = metadata_log(tmp_path, *rows, *deleted, update(finished[1], SegmentState.DELETE_SEGMENT_STARTED), unfinished, odd)
    run = in_json("tier metadata", store, "--metadata-log", log, "--log-start", "t-0=0", "--metadata-partitions", 1)
    assert decisions(run.document) == ["deleted", "deleting", "included", "unfinished", "unrecorded", "lost"]
    assert (run.exit_code, run.codes["tier-lost"], run.codes["metadata-dropped"]) == (4, 1, 1)
    assert (run.codes["tier-orphan"], run.codes["tier-deleted"], run.codes["tier-deleting"]) == (1, 1, 1)


def metadata_of_many_partitions(root: Path, number: int) -> Path:
    """The whole metadata log of a topic with 50 partitions, one of which has the begin of the deletion of a copy."""
    first, second = started(1, 0, 9), started(2, 10, 19)
    one = metadata_log(root, first, update(first), update(first, SegmentState.DELETE_SEGMENT_STARTED), second, update(second))
    (one / "__remote_log_metadata-0").rename(one / f"__remote_log_metadata-{number}")
    for other in set(range(50)) - {number}:
        write_partition(one / f"__remote_log_metadata-{other}", {0: b""})
    return one


def test_a_metadata_log_without_the_partition_of_the_records_is_no_all_clear(tmp_path: Path) -> None:
    """The lost partition has the begin of a deletion: its copy would be readable again."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    number = metadata_partition(T0, 50)
    log = metadata_of_many_partitions(tmp_path, number)
    words = (store, "--metadata-log", log, "--log-start", "t-0=5")
    run = in_json("tier metadata", *words)
    assert (run.exit_code, run.document["verified"], decisions(run.document)) == (1, True, ["deleting", "included"])
    shutil.rmtree(log / f"__remote_log_metadata-{number}")
    run = in_json("tier metadata", *words)
    inventory = in_json("tier inventory", store, "--metadata-log", log)
    assert (run.exit_code, run.codes["tier-unknown"]) == (inventory.exit_code, inventory.codes["tier-unknown"]) == (1, 1)
    assert (run.document["verified"], run.document["status"]) == (False, inventory.document["status"])
    assert [each["cause"] for each in run.document["partitions"][0]["refusals"]] == ["records-not-given"]
    file = tmp_path / "records.jsonl"
    run = in_json("tier metadata", *words, "--records-file", file)
    assert (run.exit_code, file.exists(), run.codes["tier-metadata-refused"]) == (3, False, 1)
    lost = ("--lost-metadata-partition", number)
    run = in_json("tier metadata", *words, "--records-file", file, *lost)
    assert (run.exit_code, run.document["verified"], run.codes["tier-unverified"]) == (0, False, 1)
    assert [each.segment_id for each in rebuilt(file) if isinstance(each, RemoteSegment)] == [bytes((1,)) * 16, bytes((2,)) * 16]


@pytest.mark.parametrize(
    ("number", "message"),
    [(3, "partition 3 was read"), (50, "expected a partition from 0 to 49; found 50")],
)
def test_metadata_partitions_that_cannot_be_lost(number: int, message: str, tmp_path: Path) -> None:
    log = metadata_of_many_partitions(tmp_path, metadata_partition(T0, 50))
    words = (store_of(tmp_path, copy(0, 9)), "--metadata-log", log, "--lost-metadata-partition", number)
    run = snaprebuild("tier", "metadata", *words)
    assert (run.exit_code, message in run.stderr) == (2, True)


@pytest.mark.parametrize("form", ["delete", "stray", "future"])
def test_a_metadata_log_that_its_broker_deletes_or_moves_is_not_read(form: str, tmp_path: Path) -> None:
    """It may be of an earlier topic of the name, and have more bytes than the present one."""
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    first, second = started(1, 0, 9), started(2, 10, 19)
    log = metadata_log(tmp_path, first, update(first), second, update(second))
    old = [update(first, state) for state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED)]
    other = metadata_log(tmp_path / "old", first, update(first), *old, second, update(second), *[update(second)] * 9)
    (other / "__remote_log_metadata-0").rename(log / f"__remote_log_metadata-0.{'0' * 32}-{form}")
    run = in_json("tier metadata", store, "--metadata-log", log, "--log-start", "t-0=0")
    assert (run.exit_code, decisions(run.document)) == (0, ["included", "included"])


def test_facts_that_differ_from_the_objects_are_named(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9))
    wrong = started(1, 0, 8, size=7)
    log = metadata_log(tmp_path, wrong, update(wrong))
    run = in_json("tier metadata", store, "--metadata-log", log, "--log-start", "t-0=0")
    assert (run.exit_code, run.codes["tier-metadata-differs"], run.document["counts"]["damaged"]) == (4, 1, 1)
    names = [each.partition(":")[0] for each in run.document["partitions"][0]["copies"][0]["record_differences"]]
    assert names == ["end_offset", "segment_bytes", "max_timestamp_ms"]
    assert causes(run.document) == ["record-differs"]
    file = tmp_path / "records.jsonl"
    run = in_json("tier metadata", store, "--metadata-log", log, "--log-start", "t-0=0", "--records-file", file)
    assert (causes(run.document), file.exists()) == (["record-differs"], False)


def test_an_incomplete_copy_gets_no_records(tmp_path: Path) -> None:
    store = store_of(tmp_path, copy(0, 9), copy(10, 19))
    next(store.rglob(f"{10:020d}-*.snapshot")).unlink()
    run = in_json("tier metadata", store, "--log-start", "t-0=0")
    assert (run.exit_code, decisions(run.document)) == (1, ["included", "incomplete"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--log-start", "t-0"), "--log-start: expected TOPIC-PARTITION=OFFSET"),
        (("--log-start", "u-0=5"), "--log-start: u-0 is not in remote storage, which has t-0"),
    ],
)
def test_log_starts_that_are_none(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    run = snaprebuild("tier", "metadata", store_of(tmp_path, copy(0, 9)), *words)
    assert (run.exit_code, message in run.stderr) == (2, True)


def test_a_new_file_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text("mine")
    run = snaprebuild("tier", "metadata", store_of(tmp_path, copy(0, 9)), "--log-start", "t-0=0", "--records-file", file)
    assert (run.exit_code, file.read_text()) == (3, "mine")


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_without_a_target_the_next_step_names_the_targets(more: tuple[str, ...], tmp_path: Path) -> None:
    """Without ``--dry-run`` these words would write nothing, too."""
    run = snaprebuild("tier", "metadata", LOST / "remote", "--log-dir", LOST / "node1", *more)
    assert (run.exit_code, "\nNext: name where they go: --records-file, --log-dirs or --produce-to.\n" in run.stdout) == (0, True)
    compared = snaprebuild(
        "tier", "metadata", LOST / "remote", "--log-dir", LOST / "node1", "--metadata-log", LOST / "node1", *more
    )
    assert (compared.exit_code, "\nNext: nothing to do.\n" in compared.stdout) == (0, not more)
    nothing = snaprebuild("tier", "metadata", store_of(tmp_path, copy(0, 9)), "--log-start", "t-0=10", *more)
    assert (nothing.exit_code, "\nNext: nothing to do.\n" in nothing.stdout) == (0, True)


def test_the_first_line_counts_the_partitions_that_get_records(tmp_path: Path) -> None:
    """One of two partitions has its only copy below the log start offset."""
    store = store_of(tmp_path, copy(0, 9))
    write_tier(store, "t", 1, [copy(0, 9)])
    starts = ("--log-start", "t-0=0", "--log-start", "t-1=10")
    file = tmp_path / "records.jsonl"
    for more, first in (
        ((), "2 records can be rebuilt in 1 partition."),
        (("--records-file", file, "--dry-run"), "Dry run: nothing was written. 2 records of 1 partition."),
        (("--records-file", file), "2 records of 1 partition written."),
    ):
        run = snaprebuild("tier", "metadata", store, *starts, *more)
        assert (run.exit_code, run.stdout.startswith(first)) == (0, True), run.stdout


# --------------------------------------------------------------------------------------------------------------- log directories


def node_of(root: Path) -> Path:
    """The log directory of the broker with all copies, without its metadata topic."""
    node = root / "node1"
    shutil.copytree(LOST / "node1", node)
    shutil.rmtree(node / "__remote_log_metadata-0")
    return node


def words_of(root: Path, *options: object) -> tuple[object, ...]:
    return (LOST / "remote", "--log-dirs", root / "node1", "--receipt", root / "receipt.jsonl", *options)


def test_log_directories_get_the_topic_and_undo_takes_it_back(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    before = sorted(node.rglob("*"))
    dry = in_json("tier metadata", *words_of(tmp_path, "--dry-run"))
    assert (dry.exit_code, len(dry.document["log_dirs"]), sorted(node.rglob("*"))) == (0, 1, before)
    run = in_json("tier metadata", *words_of(tmp_path))
    assert (run.exit_code, run.document["receipt"]) == (0, str(tmp_path / "receipt.jsonl"))
    refused = snaprebuild("tier", "metadata", *words_of(tmp_path, "--dry-run"))
    assert (refused.exit_code, f"receipt.jsonl: {NOT_REPLACED}" in refused.stderr) == (3, True)
    (written,) = run.document["log_dirs"]
    assert (written["partition"], written["node_id"], written["records"]) == (0, 1, 28)
    topic_id = (LOST / "node1" / "__remote_log_metadata-0" / "partition.metadata").read_bytes()
    assert (node / "__remote_log_metadata-0" / "partition.metadata").read_bytes() == topic_id
    inventory = in_json("tier inventory", LOST / "remote", "--metadata-log", node)
    assert inventory.document["partitions"][0]["totals"]["live"] == 14
    assert in_json("verify", node, "--topic", "__remote_log_metadata", "--as-of", "1796000000000").exit_code == 0
    again = in_json("tier metadata", LOST / "remote", "--log-dirs", node, "--receipt", tmp_path / "again.jsonl")
    assert (again.exit_code, (tmp_path / "again.jsonl").exists()) == (3, False)
    schema = json.loads((REPOSITORY / "docs" / "schema" / "metadata-undo.schema.json").read_text())
    for line in (tmp_path / "receipt.jsonl").read_text().splitlines():
        assert not list(Draft202012Validator(schema).iter_errors(json.loads(line))), line
    dry = in_json("undo", tmp_path / "receipt.jsonl", "--dry-run")
    assert [each["action"] for each in dry.document["directories"]] == ["would-remove"]
    undone = in_json("undo", tmp_path / "receipt.jsonl")
    assert (undone.exit_code, [each["action"] for each in undone.document["directories"]]) == (0, ["removed"])
    assert [path for path in sorted(node.rglob("*")) if path.name != ".lock"] == before
    assert [each["action"] for each in in_json("undo", tmp_path / "receipt.jsonl").document["directories"]] == ["absent"]


def test_tables_show_directories_below_the_working_directory_by_their_relative_paths(tmp_path: Path) -> None:
    node_of(tmp_path)
    directory = "node1/__remote_log_metadata-0"
    for words in (("tier", "metadata", *words_of(tmp_path)), ("undo", tmp_path / "receipt.jsonl")):
        run = snaprebuild(*words, cwd=tmp_path)
        rows = [line.split() for line in run.stdout.splitlines() if "__remote_log_metadata-0" in line]
        assert (run.exit_code, [row[0] for row in rows]) == (0, [directory])


def test_a_run_is_registered_and_another_one_names_its_undo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a run that was killed after its last directory, whose receipt has no end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    node = node_of(tmp_path)
    receipt = tmp_path / "receipt.jsonl"
    assert in_json("tier metadata", *words_of(tmp_path)).exit_code == 0
    (link,) = (tmp_path / "state" / "snaprebuild").iterdir()
    assert link.readlink() == receipt
    lines = receipt.read_text().splitlines(keepends=True)
    assert [json.loads(line).get("step") for line in lines] == [None, "directory", "end"]
    receipt.write_text("".join(lines[:-1]))
    words = (LOST / "remote", "--log-dirs", node, "--receipt", tmp_path / "again.jsonl")
    run = snaprebuild("tier", "metadata", *words)
    assert (run.exit_code, f"snaprebuild undo {receipt}" in run.stderr) == (3, True)
    checkpoint = node / "__remote_log_metadata-0" / "leader-epoch-checkpoint"
    written_by_us = checkpoint.rename(tmp_path / "written by us")
    checkpoint.write_text("0\n2\n0 0\n3 28\n")
    run = snaprebuild("tier", "metadata", *words)
    assert (run.exit_code, "undo" in run.stderr, "is not replaced: move it out" in run.stderr) == (3, False, True)
    written_by_us.replace(checkpoint)
    undone = in_json("undo", "--last")
    assert (undone.exit_code, [each["action"] for each in undone.document["directories"]]) == (0, ["removed"])


def test_undo_leaves_a_topic_that_a_broker_has_used(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    assert in_json("tier metadata", *words_of(tmp_path)).exit_code == 0
    (node / "__remote_log_metadata-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 28\n")
    run = in_json("undo", tmp_path / "receipt.jsonl")
    assert (run.exit_code, run.codes["left-alone"]) == (1, 1)
    assert (node / "__remote_log_metadata-0").is_dir()


def test_undo_leaves_a_topic_that_a_later_run_has_written(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    assert in_json("tier metadata", *words_of(tmp_path)).exit_code == 0
    shutil.rmtree(node / "__remote_log_metadata-0")
    again = in_json("tier metadata", LOST / "remote", "--log-dirs", node, "--receipt", tmp_path / "again.jsonl")
    assert again.exit_code == 0
    assert in_json("undo", tmp_path / "receipt.jsonl").codes == {"left-alone": 1}
    undone = in_json("undo", tmp_path / "again.jsonl")
    assert [each["action"] for each in undone.document["directories"]] == ["removed"]


def test_a_replica_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    there = node / "__remote_log_metadata-0"
    there.mkdir()
    (there / f"{0:020d}.log").touch()
    run = snaprebuild("tier", "metadata", *words_of(tmp_path))
    assert (run.exit_code, "holds no record: remove it" in run.stderr) == (3, True)
    (there / f"{0:020d}.log").write_bytes(b"x")
    run = snaprebuild("tier", "metadata", *words_of(tmp_path))
    assert (run.exit_code, "is not replaced: move it out" in run.stderr) == (3, True)


def test_all_replicas_are_written_at_once_or_none(tmp_path: Path) -> None:
    """The log directory of another broker than the one with the replica."""
    shutil.copytree(LOST / "node2", tmp_path / "node1", ignore=shutil.ignore_patterns("__remote_log_metadata-0"))
    run = snaprebuild("tier", "metadata", *words_of(tmp_path, "--metadata", LOST / "node1"))
    assert (run.exit_code, "missing is that of broker 1 (partition 0)" in run.stderr) == (3, True)


@pytest.mark.parametrize("log_start", [1, 500])
def test_a_log_start_of_an_earlier_metadata_topic_is_refused(log_start: int, tmp_path: Path) -> None:
    """The topic has 28 records: above these a broker deletes the log at its start, and below it does not read the first ones."""
    node = node_of(tmp_path)
    checkpoint = node / "log-start-offset-checkpoint"
    version, count, *lines = checkpoint.read_text().splitlines()
    text = "\n".join([version, str(int(count) + 1), *lines, f"__remote_log_metadata 0 {log_start}", ""])
    checkpoint.write_text(text)
    for options in ((), ("--dry-run",)):
        run = snaprebuild("tier", "metadata", *words_of(tmp_path, *options))
        assert (run.exit_code, str(checkpoint) in run.stderr) == (3, True)
        assert f"the log start offset {log_start} for __remote_log_metadata-0" in " ".join(run.stderr.split())
    assert not (node / "__remote_log_metadata-0").exists()
    checkpoint.write_text(text.replace(f"metadata 0 {log_start}", "metadata 0 0"))
    assert in_json("tier metadata", *words_of(tmp_path)).exit_code == 0


def test_log_directories_of_another_cluster_than_the_metadata_log_are_refused(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    properties = node / "meta.properties"
    own = properties.read_text()
    lines = [line for line in own.splitlines() if not line.startswith("cluster.id=")]
    properties.write_text("\n".join([*lines, "cluster.id=another", ""]))
    words = words_of(tmp_path, "--metadata", LOST / "node2")
    run = snaprebuild("tier", "metadata", *words)
    assert (run.exit_code, "is of cluster another, and the metadata log" in " ".join(run.stderr.split())) == (3, True)
    assert not (node / "__remote_log_metadata-0").exists()
    properties.write_text(own)
    assert in_json("tier metadata", *words).exit_code == 0


def test_a_metadata_log_without_a_cluster_id_next_to_it_is_taken(tmp_path: Path) -> None:
    node_of(tmp_path)
    log = Path(shutil.copytree(LOST / "node2" / "__cluster_metadata-0", tmp_path / "copied" / "__cluster_metadata-0"))
    assert in_json("tier metadata", *words_of(tmp_path, "--metadata", log)).exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topic", "payments"), "no selection goes with it"),
        (("--metadata-partitions", 5), "the cluster shows how many there are"),
    ],
)
def test_options_that_do_not_go_with_log_directories(options: tuple[object, ...], message: str, tmp_path: Path) -> None:
    node_of(tmp_path)
    run = snaprebuild("tier", "metadata", *words_of(tmp_path, *options))
    assert (run.exit_code, message in run.stderr) == (2, True)


def test_a_refusal_writes_nothing(tmp_path: Path) -> None:
    """The replica of the leader begins on disk after the last copy: offsets would be lost."""
    node = node_of(tmp_path)
    store = Path(shutil.copytree(LOST / "remote", tmp_path / "remote"))
    for path in store.rglob(f"{508:020d}-*"):
        path.unlink()
    run = in_json("tier metadata", store, *words_of(tmp_path)[1:])
    assert (run.exit_code, run.document["log_dirs"], run.document["receipt"]) == (3, [], None)
    assert not (node / "__remote_log_metadata-0").exists()


def test_a_failure_at_the_second_replica_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The receipt has the announcement of the first, and its undo finds nothing."""
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
        (place / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    replicas = tuple(MetadataReplica(str(place), number, 0) for number, place in enumerate(places))
    plan = MetadataTopicPlan(bytes(range(16)), 1, replicas, {}, None)
    segment = started(1, 0, 9)
    copies = [WrittenCopy(segment, segment.event_timestamp_ms)]

    def fails_at_the_second(log_dir: str, *arguments: object, **named: object) -> None:
        if log_dir == str(places[1]):
            raise WriteFailedError("the disk is full", path=log_dir)
        create_partition_directory(log_dir, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("snaprebuild.tier.metadata.topic_directories.create_partition_directory", fails_at_the_second)
    receipt = DirectoryReceipt(str(tmp_path / "receipt.jsonl"), TOPIC_FORM)
    with pytest.raises(WriteFailedError):
        write_topic(plan, copies, timestamp_ms=MS, receipt=receipt)
    assert [path.name for place in places for path in place.iterdir() if path.is_dir()] == []
    run = in_json("undo", tmp_path / "receipt.jsonl")
    assert [each["action"] for each in run.document["directories"]] == ["absent"]
    monkeypatch.undo()
    written_directories = write_topic(
        plan, copies, timestamp_ms=MS, receipt=DirectoryReceipt(str(tmp_path / "again.jsonl"), TOPIC_FORM)
    )
    assert [each.records for each in written_directories] == [2, 2]
    first, second = ({path.name: path.read_bytes() for path in (place / replicas[0].name).iterdir()} for place in places)
    assert first == second


@pytest.mark.parametrize("records", [1, 3000])
def test_the_files_of_a_partition_are_those_of_a_broker(records: int, tmp_path: Path) -> None:
    """The reader of logs finds each record, and the indexes agree with the batches."""
    values = [write_remote_log_record(started(number % 200 + 1, number, number)) for number in range(records)]
    directory = tmp_path / "__remote_log_metadata-0"
    directory.mkdir()
    for name, data in partition_files(values, MS, bytes(range(16))).items():
        (directory / name).write_bytes(data)
    run = in_json("verify", directory, "--as-of", MS)
    assert run.exit_code == 0
    (listed,) = find_partitions([str(directory)]).log_dirs[0].partitions
    assert [(each.offset, each.key, each.value) for each in log_records(listed)] == [
        (number, None, value) for number, value in enumerate(values)
    ]
    log = next(directory.glob("*.log"))
    starts = batch_positions(log)
    index = [(each.relative_offset, each.position) for each in read_offset_index((directory / f"{0:020d}.index").read_bytes())]
    assert all(position in starts for _, position in index)
    assert (len(index) > 0) == (records > 100)
