#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""Requests and price of `tier metadata` and of the turns of `tier audit --ledger` over a bucket.

``scripts/bench/tier_requests.py [COPIES]`` starts an object store in memory, with copies in Aiven's layout, and runs the commands. It
counts the requests that arrive there, and prints their price (docs/internals/scale.md). The last turn limits the bytes that it reads.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import tempfile
from collections import Counter
from pathlib import Path

from command import in_json
from faulty_store import FaultyStore, faulty_store
from log_dirs import batch, snapshot_bytes

from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import ProducerEntry
from formats.remote.object_names import AivenObject, aiven_key

PARTITIONS = 10
TOPIC_ID = bytes(range(16))
WRITTEN_MS = 1_795_000_000_000
AS_OF_MS = WRITTEN_MS + 60_000
RECORDS = 10
PRODUCER_ID = 7

GET_DOLLARS = 0.0004 / 1_000
LIST_DOLLARS = 0.005 / 1_000
"""US dollars for one request; the prices are those of ``snaprebuild.tier.cost`` and docs/internals/scale.md."""


def copy_objects(partition: int, number: int, segment_id: bytes) -> dict[AivenObject, bytes]:
    """The objects of the copy of a segment with one batch.

    Args:
        partition: number of it.
        number: of the segment in the partition, from 0 on.
        segment_id: 16 bytes.
    """
    start = number * RECORDS
    end = start + RECORDS - 1
    log = batch(start, producer_id=PRODUCER_ID, sequence=start, count=RECORDS, timestamp=WRITTEN_MS)
    entry = ProducerEntry(PRODUCER_ID, 0, end, end, RECORDS - 1, WRITTEN_MS, -1, -1)
    parts = {
        "offset": b"",
        "timestamp": struct.pack(">qi", WRITTEN_MS, RECORDS - 1),
        "producerSnapshot": snapshot_bytes([entry]),
        "leaderEpoch": b"0\n1\n0 0\n",
    }
    places: dict[str, object] = {}
    indexes = b""
    for name, data in parts.items():
        places[name] = {"position": len(indexes), "size": len(data)}
        indexes += data
    place = {"topicId": uuid_to_text(TOPIC_ID), "topicPartition": {"topic": "orders", "partition": partition}}
    content = {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": len(log),
            "originalFileSize": len(log),
            "transformedChunkSize": len(log),
            "finalTransformedChunkSize": len(log),
        },
        "segmentIndexes": {**places, "transaction": None},
        "compression": False,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {"topicIdPartition": place, "id": uuid_to_text(segment_id)},
            "startOffset": start,
            "endOffset": end,
            "maxTimestampMs": WRITTEN_MS,
            "brokerId": 1,
            "eventTimestampMs": WRITTEN_MS,
            "segmentLeaderEpochs": {"0": start},
        },
    }
    manifest = json.dumps(content, separators=(",", ":")).encode()
    return {AivenObject.LOG: log, AivenObject.INDEXES: indexes, AivenObject.MANIFEST: manifest}


def fill(store: FaultyStore, copies: int) -> None:
    """Puts copies of the segments of some partitions into a bucket."""
    for number in range(copies):
        in_partition, partition = divmod(number, PARTITIONS)
        segment_id = number.to_bytes(16, "big")
        for kind, data in copy_objects(partition, in_partition, segment_id).items():
            key = aiven_key("", "orders", TOPIC_ID, partition, in_partition * RECORDS, segment_id, kind)
            store.objects[f"b/{key}"] = data


def measure(what: str, store: FaultyStore, verb: str, *words: object) -> int:
    """Runs a command, and prints what it requested.

    Returns:
        The bytes that the audit announced; 0 for another command.
    """
    store.seen.clear()
    run = in_json(verb, *words)
    assert run.exit_code == 0, run.stderr[-2000:]
    counts: Counter[str] = Counter()
    for method, path, _ in store.seen:
        counts["LIST" if "list-type" in path else method] += 1
    assert counts.keys() <= {"LIST", "GET", "HEAD"}, counts
    gets = counts["GET"] + counts["HEAD"]
    dollars = gets * GET_DOLLARS + counts["LIST"] * LIST_DOLLARS
    print(f"{what}: {gets:,} GET and HEAD, {counts['LIST']} LIST, {dollars:.4f} USD", flush=True)
    estimate = run.document.get("estimate")
    return 0 if estimate is None else int(estimate["read_bytes"])


def main() -> None:
    """Prints a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("copies", type=int, nargs="?", default=10_000)
    copies = parser.parse_args().copies
    with faulty_store() as store, tempfile.TemporaryDirectory() as directory:
        fill(store, copies)
        os.environ |= {"AWS_ENDPOINT_URL_S3": store.endpoint, "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
        starts = [word for each in range(PARTITIONS) for word in ("--log-start", f"orders-{each}=0")]
        metadata = ("s3://b", *starts, "--custom-metadata", "none", "--set", "s3_path_style=true")
        measure("tier metadata", store, "tier metadata", *metadata, "--records-file", Path(directory, "records.jsonl"))
        audit = ("s3://b", "--as-of", AS_OF_MS, "--set", "s3_path_style=true")
        measure("tier audit", store, "tier audit", *audit)
        ledger = (*audit, "--ledger", Path(directory, "audit.ledger"))
        read_bytes = measure("the first turn, without a limit", store, "tier audit", *ledger)
        tenth = f"max_read_bytes={read_bytes // 10}"
        measure("a turn of the next round that reads a tenth", store, "tier audit", *ledger, "--set", tenth)


if __name__ == "__main__":
    main()
