"""Reads copies of segments as the tiered storage plugin of Aiven does, from its documented layout alone: nothing of the code under test."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAME = re.compile(r"(.*)-([A-Za-z0-9_-]{22})/(\d+)/(\d{20})-([A-Za-z0-9_-]{22})\.(log|indexes|rsm-manifest)")
INDEXES = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")


@dataclass(frozen=True)
class Copy:
    """One copy, every byte of it."""

    head: str
    topic_id: str
    partition: int
    base_offset: int
    segment_id: str
    segment: bytes
    indexes: dict[str, bytes | None]
    metadata: dict[str, Any]
    chunk_size: int


def read_copies(objects: Mapping[str, bytes]) -> list[Copy]:
    """The copies that have a manifest, by base offset; what the plugin would not read fails."""
    found = []
    for key in objects:
        match = NAME.fullmatch(key)
        if match is None or match[6] != "rsm-manifest":
            continue
        stem = key.removesuffix(".rsm-manifest")
        manifest = json.loads(objects[key])
        assert set(manifest) == {"version", "chunkIndex", "segmentIndexes", "compression", "remoteLogSegmentMetadata"}
        assert (manifest["version"], manifest["compression"]) == ("1", False)
        chunks = manifest["chunkIndex"]
        names = {"type", "originalChunkSize", "originalFileSize", "transformedChunkSize", "finalTransformedChunkSize"}
        assert (set(chunks), chunks["type"]) == (names, "fixed")
        log, indexes = objects[f"{stem}.log"], objects[f"{stem}.indexes"]
        assert chunks["originalFileSize"] == len(log)
        assert chunks["originalChunkSize"] == chunks["transformedChunkSize"] > 0
        full, rest = divmod(len(log), chunks["originalChunkSize"])
        assert chunks["finalTransformedChunkSize"] == (rest or chunks["originalChunkSize"])
        assert full >= 0
        places = manifest["segmentIndexes"]
        assert tuple(places) == INDEXES
        read: dict[str, bytes | None] = {}
        for name, place in places.items():
            if place is None:
                assert name == "transaction"
                read[name] = None
                continue
            assert set(place) == {"position", "size"}
            part = indexes[place["position"] : place["position"] + place["size"]]
            assert len(part) == place["size"]
            read[name] = part
        assert b"".join(read[name] or b"" for name in INDEXES) == indexes
        head, topic_id, number, base, segment_id, _ = match.groups()
        metadata = manifest["remoteLogSegmentMetadata"]
        found.append(Copy(head, topic_id, int(number), int(base), segment_id, log, read, metadata, chunks["originalChunkSize"]))
    return sorted(found, key=lambda copy: (copy.head, copy.partition, copy.base_offset, copy.segment_id))
