"""Copies of a cluster of real brokers, the verbs that read them, and what the brokers recorded themselves, to compare."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiven_plugin import in_bucket, plugin_classpath, plugin_settings
from command import Run, in_json_process
from kafka_classpath import KafkaUnavailableError
from manifests import FIXTURES
from object_store import missing, running
from tiered_cluster import METADATA, TieredCluster

from formats.partition.partition_metadata import uuid_from_text, uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.storage.store import USUAL_S3
from snaprebuild.tier.remote_store import read_remote_logs

KEYS = FIXTURES / "aiven-layout" / "keys"
TRANSFORMED = {
    "key_prefix": "cold-",
    "compression_enabled": "true",
    "encryption_enabled": "true",
    "encryption_key_pair_id": "key1",
    "encryption_key_pairs": "key1",
    "encryption_key_pairs_key1_public_key_file": KEYS / "key1.public.pem",
    "encryption_key_pairs_key1_private_key_file": KEYS / "key1.private.pem",
    "custom_metadata_fields_include": "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY",
}

FACTS_OF_A_SEGMENT = 5
"""The first facts of a record: the others may differ between two attempts."""


@dataclass(frozen=True)
class CopyStore:
    """Where the copies are.

    Attributes:
        location: for the verbs.
        settings: of the brokers.
        reading: options of verbs that read the copies.
        rebuilding: further options of ``tier metadata``.
        keys: lists all keys.
    """

    location: str
    settings: dict[str, object]
    reading: tuple[object, ...]
    rebuilding: tuple[object, ...]
    keys: Callable[[], list[str]]

    def bases(self, topic: str) -> list[int]:
        """Base offsets of the copies of a topic, also of several with the same base."""
        names = [key.rpartition("/") for key in self.keys() if key.endswith(".log")]
        return sorted(int(name[:20]) for place, _, name in names if f"{topic}-" in place)


def keys_below(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]


def local_store(root: Path) -> CopyStore:
    """LocalTieredStorage of the first node, which all nodes share."""
    remote = root / "node1" / "remote"
    return CopyStore(str(remote), {}, (), (), lambda: keys_below(remote))


def plugin_store(version: str, storage: dict[str, object], location: str, keys: Callable[[], list[str]]) -> CopyStore:
    """The plugin with a key prefix, compression, encryption and custom metadata."""
    try:
        classpath = plugin_classpath(version)
    except KafkaUnavailableError as error:
        pytest.skip(f"NOT RUN: Aiven's plugin: {error}")
    settings = {**plugin_settings(storage, **TRANSFORMED), "remote.log.storage.manager.class.path": classpath}
    reading = ("--set", "key_prefix=cold-", "--set", f"private_key={KEYS / 'key1.private.pem'}")
    rebuilding = ("--custom-metadata", "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY")
    return CopyStore(location, settings, reading, rebuilding, keys)


@contextmanager
def bucket_store(state: Path, version: str) -> Iterator[CopyStore]:
    """The plugin with a bucket of an S3 server, which runs meanwhile."""
    why = missing()
    if why is not None:
        pytest.skip(f"NOT RUN: a real object store (marker s3): {why}")
    with running(state) as server:
        bucket = server.bucket()
        pages = server.client.get_paginator("list_objects_v2")

        def keys() -> list[str]:
            return [each["Key"] for page in pages.paginate(Bucket=bucket) for each in page.get("Contents", ())]

        yield plugin_store(version, in_bucket(bucket, server.endpoint), f"s3://{bucket}", keys)


def named(option: str, cluster: TieredCluster) -> list[object]:
    """An option for each log directory."""
    return [word for each in cluster.log_dirs for word in (option, each)]


def run(verb: str, store: CopyStore, *words: object) -> Run:
    return in_json_process(verb, store.location, *store.reading, *words)


def recorded(cluster: TieredCluster) -> dict[bytes, tuple[RemoteSegment, bool]]:
    """The brokers' record of each copy that is not deleted, and whether they read it."""
    logs, _ = read_remote_logs([str(each) for each in cluster.log_dirs], USUAL_S3, None)
    return {
        each.segment_id: (each, log.is_live(each.segment_id)) for log in logs.partitions.values() for each in log.segments.values()
    }


def check_states(cluster: TieredCluster, store: CopyStore) -> None:
    """Brokers that only stopped leave nothing that is an alarm."""
    inventory = run("tier inventory", store, *named("--metadata-log", cluster), "--metadata", cluster.log_dirs[0])
    assert (inventory.exit_code, inventory.document["verified"]) == (0, True), inventory.stderr
    states = {copy["segment_id"]: copy["state"] for each in inventory.document["partitions"] for copy in each["copies"]}
    assert all((states[segment] == "live") == is_live for segment, is_live in live_texts(cluster).items())
    assert set(states.values()) <= {"live", "superseded", "phantom", "unfinished", "deleted"}, Counter(states.values())
    audit = run("tier audit", store, *named("--metadata-log", cluster))
    assert audit.exit_code == 0, audit.stderr


def live_texts(cluster: TieredCluster) -> dict[str, bool]:
    return {uuid_to_text(segment): is_live for segment, (_, is_live) in recorded(cluster).items()}


def check_records(cluster: TieredCluster, store: CopyStore, file: Path) -> None:
    """Checks that records rebuilt from the copies equal those of the brokers, as far as anything shows it."""
    rebuilt = run("tier metadata", store, *named("--log-dir", cluster), *store.rebuilding, "--records-file", file)
    assert rebuilt.exit_code == 0, rebuilt.stderr
    own = recorded(cluster)
    for partition in rebuilt.document["partitions"]:
        included = {}
        live = {}
        for copy in partition["copies"]:
            segment, is_live = own[uuid_from_text(copy["segment_id"])]
            if is_live:
                live[copy["start_offset"]] = facts_recorded(segment, store)[:FACTS_OF_A_SEGMENT]
                assert facts_of(copy, store) == facts_recorded(segment, store), (partition["topic"], copy)
            if copy["record_decision"] == "included":
                included[copy["start_offset"]] = facts_of(copy, store)[:FACTS_OF_A_SEGMENT]
        # A broker that stops before its last record leaves a copy that equals the one of its next attempt.
        assert included == live, partition["topic"]


def facts_of(copy: dict[str, Any], store: CopyStore) -> list[object]:
    facts = copy["record_facts"]
    epochs = [(each["epoch"], each["start_offset"]) for each in facts["leader_epochs"]]
    has_manifest = bool(store.settings)
    return [
        copy["start_offset"],
        facts["end_offset"],
        epochs,
        facts["max_timestamp_ms"],
        facts["segment_bytes"],
        facts["broker_id"] if has_manifest else None,
        facts["custom_metadata"],
    ]


def facts_recorded(segment: RemoteSegment, store: CopyStore) -> list[object]:
    """The facts of a record that objects have too. The time of the last event, and without a manifest the broker, are in no
    object."""
    return [
        segment.start_offset,
        segment.end_offset,
        [(each.epoch, each.start_offset) for each in segment.leader_epochs],
        segment.max_timestamp_ms,
        segment.size_bytes,
        segment.broker_id if store.settings else None,
        None if segment.custom_metadata is None else segment.custom_metadata.hex(),
    ]


def rebuild(cluster: TieredCluster, store: CopyStore, replicas: Mapping[int, Sequence[int]], receipt: Path) -> None:
    """The metadata topic is lost and made again; its directories are written while all brokers are stopped.

    A leader that is elected meanwhile finds no records, and moves its log start offset and its leader epochs: the old ones are put back.
    """
    checkpoints = [each / "log-start-offset-checkpoint" for each in cluster.log_dirs]
    checkpoints += [path for each in cluster.log_dirs for path in each.glob("[a-z]*-0/leader-epoch-checkpoint")]
    texts = [each.read_text() for each in checkpoints]
    cluster.recreate_metadata_topic(replicas)
    cluster.stop()
    for checkpoint, text in zip(checkpoints, texts, strict=True):
        checkpoint.write_text(text)
    for log_dir in cluster.log_dirs:
        for directory in log_dir.glob(f"{METADATA}-*"):
            shutil.rmtree(directory)
    rebuilt = run("tier metadata", store, *named("--log-dirs", cluster), *store.rebuilding, "--receipt", receipt)
    assert rebuilt.exit_code == 0, rebuilt.stderr
    assert len(rebuilt.document["log_dirs"]) == sum(map(len, replicas.values()))
    cluster.start()
