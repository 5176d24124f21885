#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""The cost of an inventory of a bucket: requests with their price, time and memory.

``scripts/bench/tier_inventory.py [COPIES]`` makes a bucket in memory with copies in Aiven's layout, and prints the requests of an
inventory with ``--keys`` (docs/internals/scale.md). The time is that of our code: no request crosses a network.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.object_names import AivenObject, aiven_key
from snaprebuild.storage.bucket_contents import ArchiveTier, BucketSettings, ListedUpload, ListedVersion, UnansweredCall
from snaprebuild.storage.store import ObjectStatus, Store
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.inventory.inventory import tier_inventory
from snaprebuild.tier.remote_store import StoreAccess

PAGE = 1_000
"""Keys in an answer to a request for a listing."""

SETTINGS = 4
"""Requests for the settings of a bucket."""

GET_DOLLARS = 0.0004 / 1_000
LIST_DOLLARS = 0.005 / 1_000
"""US dollars for one request that lists keys; the prices are those of ``snaprebuild.tier.cost`` and docs/internals/scale.md."""

WRITTEN_MS = 1_795_000_000_000
PARTITIONS = 10
TOPIC_ID = bytes(range(16))


@dataclass
class MemoryBucket:
    """A versioned bucket whose requests are counted."""

    objects: dict[str, bytes]
    requests: Counter[str] = field(default_factory=Counter)
    unanswered: list[UnansweredCall] = field(default_factory=list)
    is_local: bool = False
    prefix: str = ""

    def list_below(self, _location: str, _name_prefix: str = "") -> Iterator[tuple[str, ObjectStatus]]:
        """The listing."""
        self.requests["LIST"] += -(-len(self.objects) // PAGE)
        for key, data in self.objects.items():
            yield key, ObjectStatus(len(data), WRITTEN_MS * 1_000_000, f'"{key[-20:]}"')

    def read_small(self, location: str, _bytes_max: int) -> bytes | None:
        """An object."""
        self.requests["GET"] += 1
        return self.objects.get(location.removeprefix("s3://b/"))

    def settings(self) -> BucketSettings:
        """No rules."""
        self.requests["GET"] += SETTINGS
        return BucketSettings(versioning="Enabled", lifecycle_rules=(), replication_rules=())

    def archive_tiers(self) -> list[ArchiveTier]:
        """None."""
        return []

    def archived(self, keys: Sequence[str]) -> dict[str, str]:
        """None of them: no object is in the storage class INTELLIGENT_TIERING."""
        self.requests["HEAD"] += len(keys)
        return {}

    def versions(self, _name_prefix: str) -> Iterator[ListedVersion]:
        """The current versions."""
        self.requests["LIST"] += -(-len(self.objects) // PAGE)
        for number, key in enumerate(self.objects):
            yield ListedVersion(key, f"{number:032d}", True, False, len(self.objects[key]), WRITTEN_MS)

    def uploads(self, _name_prefix: str) -> Iterator[ListedUpload]:
        """None."""
        self.requests["LIST"] += 1
        return iter(())


def manifest(partition: int, start: int, segment_id: bytes) -> bytes:
    """The manifest of a segment of a chunk."""
    indexes = {name: {"position": 0, "size": 0} for name in ("offset", "timestamp", "producerSnapshot", "leaderEpoch")}
    place = {"topicId": uuid_to_text(TOPIC_ID), "topicPartition": {"topic": "orders", "partition": partition}}
    content = {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": 8,
            "originalFileSize": 8,
            "transformedChunkSize": 8,
            "finalTransformedChunkSize": 8,
        },
        "segmentIndexes": {**indexes, "transaction": None},
        "compression": False,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {"topicIdPartition": place, "id": uuid_to_text(segment_id)},
            "startOffset": start,
            "endOffset": start + 9,
            "maxTimestampMs": WRITTEN_MS,
            "brokerId": 1,
            "eventTimestampMs": WRITTEN_MS,
            "segmentLeaderEpochs": {"0": start},
        },
    }
    return json.dumps(content, separators=(",", ":")).encode()


def bucket_of(copies: int) -> MemoryBucket:
    """A bucket with copies of the segments of some partitions."""
    rng = random.Random(copies)
    objects = {}
    for number in range(copies):
        partition = number % PARTITIONS
        start = number // PARTITIONS * 10
        segment_id = rng.randbytes(16)
        data = {
            AivenObject.LOG: bytes(8),
            AivenObject.INDEXES: b"",
            AivenObject.MANIFEST: manifest(partition, start, segment_id),
        }
        for kind, content in data.items():
            objects[aiven_key("", "orders", TOPIC_ID, partition, start, segment_id, kind)] = content
    return MemoryBucket(dict(sorted(objects.items())))


def main() -> None:
    """Prints the requests, the price, the time and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("copies", type=int, nargs="?", default=10_000)
    copies = parser.parse_args().copies
    bucket = bucket_of(copies)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    rows: Counter[str] = Counter()
    inventory, _ = tier_inventory(
        StoreAccess(StorePath(cast("Store", bucket), "s3://b")), bucket=bucket, on_key=lambda row: rows.update([row.state])
    )
    seconds = time.process_time() - began
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert sum(len(each.copies) for each in inventory.partitions) == copies
    dollars = bucket.requests["GET"] * GET_DOLLARS + bucket.requests["LIST"] * LIST_DOLLARS
    print(f"{copies} copies, {rows.total()} keys: {bucket.requests['GET']} GET, {bucket.requests['LIST']} LIST, {dollars:.4f} USD")
    print(f"{seconds:.1f} s of one core, {memory} MiB")


if __name__ == "__main__":
    main()
