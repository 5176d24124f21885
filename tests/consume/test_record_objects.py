"""Records of log directories and of remote storage that are in a real object store: those of the disk."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from manifests import FIXTURES

from snaprebuild.library.record_stream import records

if TYPE_CHECKING:
    from object_store import ObjectStore

pytestmark = [pytest.mark.full, pytest.mark.s3]

COLUMNS = ("topic", "offset", "key", "value", "transaction")


def rows(*source: object, **options: Any) -> list[dict[str, Any]]:
    stream = records([str(each) for each in source], columns=COLUMNS, **options)
    found: list[dict[str, Any]] = pa.Table.from_batches(list(stream), stream.schema).to_pylist()
    return found


def test_records_in_an_object_store(object_store: "ObjectStore") -> None:
    logs = FIXTURES / "tiered-local" / "logs"
    copies = FIXTURES / "tiered-local" / "remote"
    bucket = f"s3://{object_store.bucket()}"
    in_bucket = object_store.upload(logs, f"{bucket}/logs")
    assert rows(in_bucket, topics="mixed") == rows(logs, topics="mixed") != []
    remote = object_store.upload(copies, f"{bucket}/remote")
    assert rows(remote=remote, metadata_log=in_bucket) == rows(remote=copies, metadata_log=logs) != []
    plugin = FIXTURES / "aiven-layout" / "encrypted-zstd" / "store"
    key = str(FIXTURES / "aiven-layout" / "keys" / "key1.private.pem")
    encrypted = object_store.upload(plugin, f"{bucket}/plugin")
    assert rows(remote=encrypted, private_key=key) == rows(remote=plugin, private_key=key) != []
