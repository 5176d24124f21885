"""The file of ``--results``: JSON lines or Parquet with a row for each boundary of a rebuild (docs/reference/json.md)."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, Any

from snaprebuild.errors import UsageError
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.storage.local.document_file import new_file
from snaprebuild.storage.store import is_object

__all__ = ["PARQUET_SCHEMA_NAME", "result_file", "write_results"]


PARQUET_SCHEMA_NAME = "snaprebuild.results/2"

ROWS_PER_GROUP = 10_000

_JSON_LINES = (".jsonl", ".json")
_PARQUET = ".parquet"


def result_file(path: str) -> str:
    """The file that a table goes to: ``path``, or a new one in it where it is a directory. Asked before the work.

    Raises:
        UsageError: the ending is of no known form, it is in an object store, or pyarrow is missing.
    """
    if is_object(path):
        raise UsageError("--results: expected a file of this machine", path=path)
    if os.path.isdir(path):
        now = datetime.datetime.now(datetime.UTC)
        path = os.path.join(path, f"results-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}{_PARQUET}")
    if not path.endswith((*_JSON_LINES, _PARQUET)):
        raise UsageError("--results: expected a file that ends with .jsonl, .json or .parquet, or a directory", path=path)
    if path.endswith(_PARQUET) and importlib.util.find_spec("pyarrow") is None:
        raise UsageError("--results: Parquet needs pyarrow (pip install pyarrow); .jsonl needs nothing", path=path)
    return path


def write_results(result: RebuildResult, path: str) -> None:
    """Writes the table to a file that is not there yet, whole or not at all.

    Args:
        result: of a rebuild.
        path: from ``result_file``.

    Raises:
        RefusedError: the file is there by now, or would be among those of a broker.
        WriteFailedError: it cannot be written.
    """
    with new_file(path) as file:
        (_write_parquet if path.endswith(_PARQUET) else _write_lines)(result.rows(), file)


def _write_lines(rows: Iterable[dict[str, Any]], file: IO[bytes]) -> None:
    for row in rows:
        file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")


def _write_parquet(rows: Iterator[dict[str, Any]], file: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            pa.field("path", pa.string(), nullable=False),
            pa.field("topic_partition", pa.string(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("is_log_end", pa.bool_(), nullable=False),
            pa.field("action", pa.string(), nullable=False),
            pa.field("class", pa.string()),
            pa.field("reasons", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
            pa.field("entries", pa.int64()),
            pa.field("read_bytes", pa.int64(), nullable=False),
            pa.field("elapsed_seconds", pa.float64(), nullable=False),
        ],
        metadata={"schema": PARQUET_SCHEMA_NAME},
    )
    with pq.ParquetWriter(file, schema) as writer:
        while some := list(islice(rows, ROWS_PER_GROUP)):
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
