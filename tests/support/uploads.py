"""Uploads into remote storage as the command makes them, in this process."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiven_reader import Copy
from metadata_logs import compact, uuid_bytes
from watched_store import Calls, Watched

from snaprebuild import ReplayOptions, prepare_upload
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.snapshots.source.source import PartitionSource, open_source
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import S3Settings, Store, is_object
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.upload.fence import Uploader
from snaprebuild.tier.upload.model import StoreUpload, UploadRequest
from snaprebuild.tier.upload.prepare import PreparedUpload
from snaprebuild.tier.upload.upload import tier_upload


def _prepare(log: str, after: EnsuredSnapshot | None, topic_id: str | None, source: PartitionSource) -> PreparedUpload:
    return prepare_upload(log, after=after, topic_id=topic_id, options=ReplayOptions(as_of_ms=0), source=source)


def upload(
    logs: Path,
    root: str,
    settings: S3Settings,
    calls: Calls | None = None,
    /,
    *,
    uploader: str = "me",
    part_bytes: int = 16 << 20,
    **request: Any,
) -> StoreUpload:
    """Uploads the rolled segments below ``logs``.

    Args:
        settings: of the run, with its name.
        calls: counts the calls to the store.
        request: fields of ``UploadRequest`` that are other than usual.
    """
    store: Store = S3Store(settings, part_bytes) if is_object(root) else LOCAL
    usual: dict[str, Any] = {
        "root": StorePath(store if calls is None else Watched(store, calls), root),
        "key_prefix": "",
        "uploader": Uploader(uploader, settings.run, 1 << 20, 1),
        "host": "here",
        "topic_ids": {},
        "metadata_partitions": 50,
        "dry_run": False,
    }
    return tier_upload(open_source([str(logs)]).partitions, UploadRequest(**usual | request), _prepare)


def files(root: Path) -> dict[str, bytes]:
    """Everything below a directory, by key; there may be none."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def identity(topic: str, topic_id: str, segment_id: str) -> bytes:
    """The identity of a copy in partition 0 in the form of remote log metadata."""
    return compact(topic) + uuid_bytes(topic_id) + struct.pack(">i", 0) + b"\0" + uuid_bytes(segment_id) + b"\0"


def started_record(copy: Copy, topic: str, topic_id: str) -> bytes:
    """``COPY_SEGMENT_STARTED`` of a copy, made by hand from its manifest."""
    reported = copy.metadata
    epochs = reported["segmentLeaderEpochs"]
    return b"".join(
        (
            b"\1\0\0",
            identity(topic, topic_id, copy.segment_id),
            struct.pack(
                ">qqiqq",
                reported["startOffset"],
                reported["endOffset"],
                1,
                reported["maxTimestampMs"],
                reported["eventTimestampMs"],
            ),
            bytes([len(epochs) + 1]),
            *(struct.pack(">iq", int(epoch), start) + b"\0" for epoch, start in epochs.items()),
            struct.pack(">i", len(copy.segment)) + b"\0\0",
            b"\1\0\1\1" if reported["txnIdxEmpty"] else b"\0",
        )
    )


def with_snapshot(store: Path, copy: Copy, change: Callable[[bytes], bytes]) -> None:
    """Another producer snapshot in a copy, at the end of its ``.indexes`` object, where the manifest says."""
    (manifest,) = store.rglob(f"*{copy.segment_id}.rsm-manifest")
    found, path = json.loads(manifest.read_text()), manifest.with_suffix(".indexes")
    place, data = found["segmentIndexes"]["producerSnapshot"], path.read_bytes()
    new = change(data[place["position"] :][: place["size"]])
    found["segmentIndexes"]["producerSnapshot"] = {"position": len(data), "size": len(new)}
    path.write_bytes(data + new)
    manifest.write_text(json.dumps(found))
