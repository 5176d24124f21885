"""Partitions of ``__remote_log_metadata``, made by hand, and records at the end of a ``__cluster_metadata``."""

import base64
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any

from log_dirs import batch, make_log_dir, record, snapshot_name, write_partition

from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType, write_cluster_metadata_record


def uuid_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def compact(text: str) -> bytes:
    return bytes((len(text) + 1,)) + text.encode()


def metadata_log(to: Path, segments: list[dict[str, Any]], unfinished: Collection[int] = ()) -> Path:
    """``__remote_log_metadata`` by hand: each segment announced, and finished unless it begins there (A8: frame, fields, tags)."""
    values = []
    for segment in segments:
        known = segment["metadata"]
        partition = compact(known["topic"]) + uuid_bytes(known["topic_id"]) + struct.pack(">i", known["partition"]) + b"\0"
        segment_id = partition + uuid_bytes(known["segment_id"]) + b"\0"
        epochs = b"".join(struct.pack(">iq", int(epoch), start) + b"\0" for epoch, start in known["leader_epochs"].items())
        offsets = struct.pack(">qqiqq", known["start_offset"], known["end_offset"], 1, known["max_timestamp_ms"], 1)
        rest = bytes((len(known["leader_epochs"]) + 1,)) + epochs + struct.pack(">i", known["segment_size"])
        values.append(b"\1\0\0" + segment_id + offsets + rest + b"\0\0\0")
        if known["start_offset"] not in unfinished:
            values.append(b"\1\1\0" + segment_id + struct.pack(">iq", 1, 2) + b"\0\1\0")
    data = b"".join(batch(offset, records=[record(value)]) for offset, value in enumerate(values))
    write_partition(make_log_dir(to) / "__remote_log_metadata-0", {0: data})
    return to


def append_metadata_record(
    log_dir: Path, record_type: MetadataRecordType, message: dict[str, Any], version: int, offset: int = 348, epoch: int = 4
) -> None:
    """Appends a batch of one record to the ``__cluster_metadata-0`` of a log directory, as the controller of an epoch would.

    A clean stop would have written the producer snapshot at the new end.
    """
    (log,) = (log_dir / "__cluster_metadata-0").glob("*.log")
    name = "".join(part.title() for part in record_type.name.split("_")) + "Record"
    value = write_cluster_metadata_record(ClusterMetadataRecord(record_type, name, version, message))
    data = bytearray(batch(offset, records=[record(value)]))
    data[12:16] = epoch.to_bytes(4, "big")  # the leader epoch, which no checksum covers
    with log.open("ab") as file:
        file.write(data)
    at_end = log.parent / snapshot_name(offset)
    if at_end.exists():
        at_end.rename(log.parent / snapshot_name(offset + 1))
