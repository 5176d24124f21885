#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""An uploader in fifty lines: sends each rolled segment of a partition with all that belongs to it, and none without.

usage: scripts/demo/upload_segments.py PARTITION_DIR TARGET [TOPIC_ID]

TARGET is a directory or s3://BUCKET/PREFIX. TOPIC_ID is needed where there is no partition.metadata. Nothing in TARGET is replaced,
and the ``.log`` comes last: a segment is complete when it is there. (``snaprebuild tier upload`` writes what a broker can read.)
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from snaprebuild import Partition, PreparedUpload, SnaprebuildError, UploadRefusalReason, UploadRefusedError

Put = Callable[[str, bytes | BinaryIO], None]


def into_bucket(target: str) -> Put:
    """A function that writes an object below ``s3://BUCKET/PREFIX``, unless it exists."""
    import boto3
    from botocore.exceptions import ClientError

    client, (bucket, _, prefix) = boto3.client("s3"), target.removeprefix("s3://").partition("/")

    def put(name: str, body: bytes | BinaryIO) -> None:
        try:
            client.put_object(Bucket=bucket, Key=f"{prefix.rstrip('/')}/{name}", Body=body, IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] != "PreconditionFailed":  # it is there, from an earlier run
                raise

    return put


def into_directory(target: Path) -> Put:
    """A function that writes a file into a directory, unless it exists."""
    target.mkdir(parents=True, exist_ok=True)

    def put(name: str, body: bytes | BinaryIO) -> None:
        temporary = target / f"{name}.tmp"
        temporary.write_bytes(body if isinstance(body, bytes) else body.read())
        temporary.rename(target / name)

    return put


def send(prepared: PreparedUpload, put: Put) -> None:
    """Writes the files of one segment, the ``.log`` last."""
    name = f"{prepared.start_offset:020d}"
    put(f"{name}.index", prepared.offset_index)
    put(f"{name}.timeindex", prepared.time_index)
    if prepared.transaction_index is not None:
        put(f"{name}.txnindex", prepared.transaction_index)
    put(f"{name}.leader_epoch_checkpoint", prepared.leader_epoch_checkpoint)
    put(f"{name}.snapshot", prepared.snapshot.data)
    with open(prepared.log_path, "rb") as log:
        prepared.check_unchanged()  # all that was sent, and what is sent now, belongs together
        put(f"{name}.log", log)


def upload(directory: Path, put: Put, topic_id: str | None) -> None:
    """Uploads in order, because remote storage has no gaps: the first segment that may not be uploaded, or not yet, ends it."""
    with Partition(directory) as partition:
        for segment in partition:
            name = Path(segment.log_path).name
            try:
                prepared = segment.prepare_upload(topic_id=topic_id, timeout_s=60)
                send(prepared, put)
            except SnaprebuildError as error:
                waits = isinstance(error, UploadRefusedError) and error.reason in (
                    UploadRefusalReason.ABOVE_LAST_STABLE_OFFSET,
                    UploadRefusalReason.ABOVE_HIGH_WATERMARK,
                )
                sys.exit(print(f"{name}: waits: {error}") if waits else f"{name}: not uploaded: {error}")
            snapshot = prepared.snapshot
            print(f"{name}: {snapshot.entries} producers, {snapshot.origin.value}, {snapshot.snapshot_class.value}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    to_bucket = sys.argv[2].startswith("s3://")
    upload(
        Path(sys.argv[1]), into_bucket(sys.argv[2]) if to_bucket else into_directory(Path(sys.argv[2])), *sys.argv[3:] or (None,)
    )
