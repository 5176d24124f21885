"""Topics of a cluster with a protocol older than 2.8: all have the topic id zero, and only their names differ.

Kafka keys everything about remote storage by ``TopicIdPartition``, which is equal where id, name and number are.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from command import in_json
from log_dirs import batch, snapshot_bytes
from manifests import AIVEN, LONG_AGO
from metadata_logs import metadata_log
from sentences import UNDER_ID_ZERO
from tiers import id_text

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.remote_store import StoreAccess, open_tier

ZERO = bytes(16)
TOPICS = ("a", "aa", "b", "orders")
COPIES = 3


def offsets(place: int) -> list[tuple[int, int]]:
    """First and last offset of each copy; other ones in each topic, so that the copies of two topics never make one log."""
    size = place + 2
    return [(number * size, number * size + size - 1) for number in range(COPIES)]


def segment_id(place: int, number: int) -> bytes:
    return bytes((10 * place + number + 1,)) * 16


def write_local_store(root: Path) -> None:
    for place, topic in enumerate(TOPICS):
        directory = root / "kafka-tiered-storage" / f"{topic}-0-{id_text(ZERO)}"
        directory.mkdir(parents=True)
        for number, (first, last) in enumerate(offsets(place)):
            batches = (batch(at, producer_id=place, sequence=at, timestamp=1000 + at) for at in range(first, last + 1))
            entry = ProducerEntry(place, 0, last, last, 0, 1000 + last, -1, -1)
            files = {
                ".log": b"".join(batches),
                ".index": b"",
                ".timeindex": b"",
                ".leader_epoch_checkpoint": b"0\n1\n0 0\n",
                ".snapshot": snapshot_bytes([entry]),
            }
            for suffix, content in files.items():
                (directory / f"{first:020d}-{id_text(segment_id(place, number))}{suffix}").write_bytes(content)


def write_aiven_store(root: Path) -> None:
    """Writes the copies of each topic with the key prefix ``cold-``: topics show in manifests alone."""
    (source,) = AIVEN.glob("plain/store/**/mixed-*")
    for topic in TOPICS:
        for path in sorted(each for each in source.rglob("*") if each.is_file()):
            data = path.read_bytes()
            if path.suffix == ".rsm-manifest":
                data = data.replace(source.name.removeprefix("mixed-").encode(), id_text(ZERO).encode())
                data = data.replace(b'"topic":"mixed"', f'"topic":"{topic}"'.encode())
            to = root / f"cold-{topic}-{id_text(ZERO)}" / path.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(data)


def local_log(to: Path) -> Path:
    segments: list[dict[str, Any]] = []
    for place, topic in enumerate(TOPICS):
        for number, (first, last) in enumerate(offsets(place)):
            stem = f"{first:020d}-{id_text(segment_id(place, number))}"
            (log,) = to.parent.rglob(f"{topic}-0-*/{stem}.log")
            segments.append(
                {
                    "metadata": {
                        "topic": topic,
                        "topic_id": id_text(ZERO),
                        "partition": 0,
                        "segment_id": id_text(segment_id(place, number)),
                        "leader_epochs": {"0": first},
                        "start_offset": first,
                        "end_offset": last,
                        "max_timestamp_ms": 1000 + last,
                        "segment_size": log.stat().st_size,
                    }
                }
            )
    return metadata_log(to, segments)


@pytest.mark.parametrize("is_verified", [False, True])
def test_each_topic_is_a_partition_of_its_own(tmp_path: Path, is_verified: bool) -> None:
    store = tmp_path / "store"
    write_local_store(store)
    options = ("--metadata-log", local_log(tmp_path / "log")) if is_verified else ()
    inventory = in_json("tier inventory", store, *options)
    state = "live" if is_verified else "unverified"
    counts = {each["topic"]: each["totals"][state] for each in inventory.document["partitions"]}
    assert counts == dict.fromkeys(TOPICS, COPIES)
    assert inventory.exit_code == 1
    stored = sum(each["stored_bytes"] for each in inventory.document["partitions"])
    assert f"{COPIES * len(TOPICS)} copies of 4 topics (a, aa, b and 1 more) {UNDER_ID_ZERO}, {stored} bytes" in (
        inventory.messages("tier-topic-id-zero")
    )
    audit = in_json("tier audit", store, *LONG_AGO, *options)
    assert {each["topic"]: each["totals"]["right"] for each in audit.document["partitions"]} == dict.fromkeys(TOPICS, COPIES)
    assert (audit.exit_code, audit.codes["tier-topic-id-zero"], "tier-orphan" in audit.codes) == (1, 1, False)
    repair = in_json("tier repair", store, *LONG_AGO, *options, "--dry-run")
    assert (repair.exit_code, repair.document["copies"]) == (1, [])
    one = in_json("tier audit", store, *LONG_AGO, *options, "--topic", "orders")
    assert f"{COPIES} copies of 1 topic (orders)" in one.messages("tier-topic-id-zero")


@pytest.mark.parametrize("options", [(), ("--set", "key_prefix=cold-")])
def test_manifests_name_the_topics(tmp_path: Path, options: tuple[str, ...]) -> None:
    write_aiven_store(tmp_path / "store")
    audit = in_json("tier audit", tmp_path / "store", *LONG_AGO, *options)
    totals = {each["topic"]: each["totals"]["right"] for each in audit.document["partitions"]}
    assert totals == dict.fromkeys(TOPICS, totals["a"])
    assert (totals["a"] > 2, audit.exit_code, audit.codes["tier-topic-id-zero"]) == (True, 1, 1)


def test_copies_of_topics_with_an_id_are_no_finding() -> None:
    (store,) = AIVEN.glob("plain/store")
    assert "tier-topic-id-zero" not in in_json("tier audit", store, *LONG_AGO).codes
    assert "tier-topic-id-zero" not in in_json("tier inventory", store).codes


def test_a_backup_of_one_topic_is_the_same_partition(tmp_path: Path) -> None:
    write_aiven_store(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "store" / "backup")
    audit = in_json("tier audit", tmp_path / "store", *LONG_AGO)
    assert [each["topic"] for each in audit.document["partitions"]] == sorted(TOPICS)


def test_a_follower_takes_the_copies_of_its_own_topic(tmp_path: Path) -> None:
    write_local_store(tmp_path / "store")
    tier = open_tier(StoreAccess(StorePath(LocalStore(), str(tmp_path / "store"))))
    for place, topic in enumerate(TOPICS):
        for topic_id in (None, ZERO):
            remote = tier.partition_named(topic, 0, topic_id)
            assert remote is not None
            assert sorted((each.start_offset, each.end_offset) for each in remote.live) == offsets(place)
    assert tier.partition_named("c", 0, ZERO) is None
