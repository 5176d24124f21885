"""The effects of rolled segments, cached as Parquet files for later runs (``--cache``): how they are written and read.

The task that read the segments writes a file, whole and under a name of its own, and never changes it. A task that is killed, or
run twice, only causes a missing or an additional file.
A segment is found by its path and identity: size, modification time, and inode or ETag. No file is trusted: each row has a checksum
over all its values, and a segment is read again if anything does not match.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import io
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from snaprebuild import __version__
from snaprebuild.errors import SnaprebuildError, UsageError
from snaprebuild.snapshots.destination.output_directory import check_output
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark import read_rows, summary_rows
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.summary_rows import Row
from snaprebuild.storage.store import USUAL_S3, OpenBytes, S3Settings, absolute, is_object
from snaprebuild.storage.store_path import StorePath, path_of

if TYPE_CHECKING:
    from snaprebuild.snapshots.source.source import PartitionSource

__all__ = [
    "PLACES_SCHEMA",
    "CacheWriter",
    "CachedSegment",
    "EffectCache",
    "Place",
    "Warn",
    "chosen_places",
    "is_cacheable",
    "key_of",
    "look_up",
    "read_cached",
    "rows_of_cached",
]

GROUP_BYTES = 16 << 20
"""Rows of a row group in a file, which is read at once: whole segments, up to this size."""

FILE_BYTES = 64 << 20
"""Size of a file, compressed: a task keeps it in memory until it is written."""

GROUPS_HELD_MAX = 4
"""Row groups that a reading task keeps in memory: segments that were read together are together."""

FILE_NAME = re.compile(r"effects-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{16}\.parquet")

KEY_BYTES = CHECKSUM_BYTES = 16

OF_RUN = ("error", "tail_error", "bytes_kept", "index_hits")

_FACTS = pa.schema(
    [
        ("base_offset", pa.int64()),
        ("part", pa.int32()),
        *(field for field in summary_rows.FIELDS if field.name not in OF_RUN),
    ]
)
"""The fields of a row of a summary that do not depend on the run and are not pickled."""

_SEGMENT = pa.schema(
    [
        ("path", pa.string()),
        ("segment_bytes", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("inode", pa.int64()),
        ("etag", pa.string()),
        ("check_crc", pa.bool_()),
        ("parts", pa.int32()),
    ]
)
"""The segment of a row, as in ``FileIdentity``; whether its checksums were computed; and how many rows its piece or range has."""

SCHEMA = pa.schema([("key", pa.binary()), *_SEGMENT, *_FACTS, ("checksum", pa.binary())])
"""Schema of the files: ``key`` is a digest of path and identity, ``checksum`` one of the whole row."""

_FORM = hashlib.blake2b(ddl(SCHEMA).encode(), digest_size=8).hexdigest()
VERSION = f"snaprebuild.effects/2 of {__version__}, columns {_FORM}".encode()
"""Another release may read a segment differently, so its files are ignored."""

_VERSION_KEY = b"snaprebuild"

_WRITTEN = {"compression": "zstd", "write_statistics": False, "write_page_checksum": True}

PLACES_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("name", pa.string()),
        ("group", pa.int32()),
        ("start_bytes", pa.int64()),
        ("end_bytes", pa.int64()),
        ("parts", pa.int32()),
        ("fault", pa.string()),
    ]
)
"""A piece of a wanted segment, and where it is; or why a file is ignored."""

Warn = Callable[[str], None]
"""Called in a task with a description of what does not match."""


@dataclass(frozen=True, slots=True)
class EffectCache:
    """A directory of cached effects, as a value that is sent to tasks.

    Attributes:
        directory: absolute, or ``s3://bucket/prefix``.
    """

    directory: StorePath

    @classmethod
    def at(cls, path: str, stores: S3Settings = USUAL_S3) -> EffectCache:
        """The directory at ``path``. Limits of the run count for the segments, not for the cache.

        Raises:
            UsageError: it is no directory, or names no bucket.
        """
        if is_object(path):
            stores = replace(stores, max_requests=None, max_read_bytes=None, run=f"{stores.run}-effects")
        elif os.path.lexists(path) and not os.path.isdir(path):
            raise UsageError("--cache: expected a directory", path=path)
        return cls(path_of(absolute(path), stores))

    def prepare(self, partitions: Iterable[PartitionSource]) -> None:
        """Makes sure that files may be written here, before anything is read.

        Args:
            partitions: that are read.

        Raises:
            UsageError: something above it is no directory.
            RefusedError: it is in a directory of a broker, or the store would replace what is there.
            StorageError: an object store does not answer.
        """
        check_output(self.directory, [self.directory.path], partitions, option="--cache")
        self.directory.prepare_writes()

    def names(self) -> list[str]:
        """Names of the existing cache files; others are ignored.

        Raises:
            ReadFailedError: they cannot be listed.
        """
        return sorted(name for name in self.directory.names() if FILE_NAME.fullmatch(name))


def is_cacheable(task: ReadTask) -> bool:
    """Whether the result of reading it never changes, and depends only on the segment.

    The last segment of a log is appended to. An object does not change: a new one has another identity.
    """
    is_plain = not task.cuts and task.until is None and not task.extras
    return is_plain and task.identity.size_bytes > 0 and not (task.is_last and task.store.is_local)


def key_of(task: ReadTask) -> bytes:
    """A digest of path and identity, and of whether the first events are wanted."""
    text = repr((task.path, task.base_offset, task.with_first_events, *_identity(task)))
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=KEY_BYTES).digest()


def _identity(task: ReadTask) -> tuple[int, int, int, str | None]:
    identity = task.identity
    return identity.size_bytes, identity.modified_ns, identity.inode, identity.etag


# ---------------------------------------------------------------------------------------------------------------- writing


class CacheWriter:
    """In a task: takes the rows of segments as they are read, and writes files of them. If it cannot, the task continues without."""

    def __init__(self, cache: EffectCache, warn: Warn) -> None:
        """Uses the directory; ``warn`` is called if something cannot be cached."""
        self._cache = cache
        self._warn = warn
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._file: tuple[pa.BufferOutputStream, pq.ParquetWriter] | None = None
        self._is_over = False

    def add(self, task: ReadTask, rows: Sequence[Row]) -> None:
        """Caches the rows of a segment, or of a range of it, if it is cacheable."""
        if self._is_over or not is_cacheable(task) or not _is_sound(rows):
            return
        batch = _stored(task, rows)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= GROUP_BYTES:
            self._end_group()

    def close(self) -> None:
        """Writes what is left."""
        if self._waiting:
            self._end_group()
        self._end_file()

    def _end_group(self) -> None:
        if self._file is None:
            stream = pa.BufferOutputStream()
            schema = SCHEMA.with_metadata({_VERSION_KEY: VERSION})
            self._file = stream, pq.ParquetWriter(stream, schema, **_WRITTEN)
        stream, writer = self._file
        table = pa.Table.from_batches(self._waiting)
        writer.write_table(table, row_group_size=len(table))
        self._waiting = []
        self._waiting_bytes = 0
        if stream.tell() >= FILE_BYTES:
            self._end_file()

    def _end_file(self) -> None:
        if self._file is None:
            return
        stream, writer = self._file
        self._file = None
        writer.close()
        data = stream.getvalue().to_pybytes()
        name = f"effects-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(8)}.parquet"
        try:
            self._cache.directory.below(name).create(data, owner=None, temporary_name=f".{name}.tmp")
        except SnaprebuildError as error:
            self._is_over = True
            self._warn(f"effects are not cached: {error}")


def _is_sound(rows: Sequence[Row]) -> bool:
    """Whether the segment, or range, was whole: a damaged one is read again every time."""
    first = rows[0] if rows else {}
    if first.get("tail_kind") != "clean" or first["bad_crc_count"] or first["disorder_offset"] is not None:
        return False
    return first.get("start_bytes") is None or first["tail_position_bytes"] == first["end_bytes"]


def _stored(task: ReadTask, rows: Sequence[Row]) -> pa.RecordBatch:
    """The rows of one piece or range, as a batch of ``SCHEMA``."""
    columns = {field.name: _column(field, [row.get(field.name) for row in rows]) for field in _FACTS}
    segment = dict(zip(_SEGMENT.names, (task.path, *_identity(task), task.check_crc, len(rows)), strict=True))
    columns |= {field.name: pa.array([segment[field.name]] * len(rows), type=field.type) for field in _SEGMENT}
    columns["key"] = pa.array([key_of(task)] * len(rows), type=pa.binary())
    columns["checksum"] = pa.array(_checksums(columns, len(rows)), type=pa.binary())
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    if not pa.types.is_list(field.type):
        return pa.array(values, type=field.type)
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), type=pa.int32())
    present = [value for value in values if value is not None and len(value)]
    flat = np.concatenate(present) if present else np.zeros(0, dtype=np.int64)
    return pa.ListArray.from_arrays(offsets, pa.array(flat, type=field.type.value_type))


def _checksums(columns: Mapping[str, pa.Array], count: int) -> list[bytes]:
    """The checksum of each row, over every value in it, whatever its layout in the file or Arrow is."""
    digests = [hashlib.blake2b(digest_size=CHECKSUM_BYTES) for _ in range(count)]
    for field in SCHEMA:
        if field.name == "checksum":
            continue
        column = columns[field.name]
        if pa.types.is_list(field.type):
            offsets = column.offsets.to_numpy()
            flat = column.values.to_numpy(zero_copy_only=False)
            for digest, start, end in zip(digests, offsets, offsets[1:], strict=False):
                digest.update(int(end - start).to_bytes(8, "little"))
                digest.update(flat[start:end].tobytes())
        else:
            for digest, value in zip(digests, column.to_pylist(), strict=True):
                digest.update(repr(value).encode(errors="surrogateescape") + b"\n")
    return [digest.digest() for digest in digests]


# ---------------------------------------------------------------------------------------------------------------- what is there


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece of a segment is cached: file, row group, and for a range where it begins, else None."""

    name: str
    group: int
    start_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CachedSegment:
    """A segment that need not be read.

    Attributes:
        partition: number of its partition.
        task: the segment.
        places: of the whole, or of its ranges in order.
    """

    partition: int
    task: ReadTask
    places: tuple[Place, ...]


def look_up(names: Iterable[str], cache: EffectCache, keys: pa.Array, *, check_crc: bool) -> Iterator[pa.RecordBatch]:
    """In a task: the pieces of wanted segments in these files.

    Args:
        names: of the files.
        cache: that holds them.
        keys: of segments.
        check_crc: only rows whose checksums were computed.

    Yields:
        Batches of ``PLACES_SCHEMA``.
    """
    columns = ["key", "part", "start_bytes", "end_bytes", "check_crc", "parts"]
    for name in names:
        try:
            with _opened(cache, name) as file:
                for group in range(file.num_row_groups):
                    table = _read_group(file, group, columns)
                    mask = pc.and_(pc.equal(table["part"], 0), pc.is_in(table["key"], value_set=keys))
                    table = table.filter(pc.and_(mask, table["check_crc"]) if check_crc else mask)
                    rows = [{**row, "name": name, "group": group} for row in table.to_pylist()]
                    yield pa.RecordBatch.from_pylist(rows, schema=PLACES_SCHEMA)
        except Exception as error:  # a damaged file may cause any error in its reader
            fault = f"{cache.directory.below(name)}: is passed over: {_reason(error)}"
            yield pa.RecordBatch.from_pylist([{"fault": fault}], schema=PLACES_SCHEMA)


def _reason(error: Exception) -> str:
    text = error.message if isinstance(error, SnaprebuildError) else str(error)
    return (text.splitlines() or [type(error).__name__])[0][:200]


def chosen_places(rows: Iterable[Mapping[str, Any]], size_bytes: int) -> tuple[Place, ...]:
    """The places that make up a segment of ``size_bytes``; empty if they do not.

    Args:
        rows: of ``PLACES_SCHEMA`` with one key; of two equal ones the newer is taken.
        size_bytes: of the segment.
    """
    ranges: dict[int, list[tuple[int, Place]]] = {}
    for row in sorted(rows, key=lambda each: each["name"], reverse=True):
        place = Place(row["name"], row["group"], row["start_bytes"])
        if place.start_bytes is None:
            return (place,)
        ranges.setdefault(place.start_bytes, []).append((row["end_bytes"], place))
    # Ranges of runs that split the segment differently fit together: each covers its own bytes, and the next begins where it ends.
    ways: dict[int, tuple[Place, ...]] = {0: ()}
    for start in sorted(ranges):
        for end, place in ranges[start] if start in ways else ():
            if end > start and end not in ways:
                ways[end] = (*ways[start], place)
    return ways.get(size_bytes, ())


# ---------------------------------------------------------------------------------------------------------------- reading


def rows_of_cached(batches: Iterable[pa.RecordBatch]) -> list[CachedSegment]:
    """All segments of a task, those of one row group together."""
    segments = [segment for batch in batches for segment in read_rows.rows_of(batch)]
    return sorted(segments, key=lambda each: (each.places[0].name, each.places[0].group))


def read_cached(
    segments: Iterable[CachedSegment], cache: EffectCache, warn: Warn
) -> Iterator[tuple[CachedSegment, list[Row] | None]]:
    """In a task: segments from the cache.

    Yields:
        Each segment with its rows; None for one that must be read, and ``warn`` is called.
    """

    @functools.lru_cache(GROUPS_HELD_MAX)
    def group_of(name: str, group: int) -> pa.Table:
        with _opened(cache, name) as file:
            return _read_group(file, group, SCHEMA.names)

    for segment in segments:
        try:
            _check_unchanged(segment.task)
            rows = [
                row
                for number, place in enumerate(segment.places)
                for row in _summaries(group_of(place.name, place.group), segment, number)
            ]
        except Exception as error:  # a damaged file may cause any error in its reader
            where = cache.directory.below(segment.places[0].name)
            warn(f"{segment.task.path}: is read again: {where}: {_reason(error)}")
            yield segment, None
        else:
            yield segment, rows


def _check_unchanged(task: ReadTask) -> None:
    """Raises if a file was replaced since it was listed. Objects are not checked, which saves a request."""
    if task.store.is_local:
        with task.store.open_bytes(task.path, may_grow=True) as source:
            if source.identity != task.identity:
                raise ValueError("the segment has changed since it was listed")


def _summaries(group: pa.Table, segment: CachedSegment, number: int) -> list[Row]:
    """The rows of a piece or range from its group, as they were read, except for the fields that depend on the run.

    Raises ValueError if they are not those of this segment, or differ from what was written.
    """
    task = segment.task
    place = segment.places[number]
    batch = _rows_at(group, key_of(task), place.start_bytes)
    columns = {field.name: batch.column(field.name) for field in SCHEMA}
    count = len(batch)
    if columns["checksum"].to_pylist() != _checksums(columns, count):
        raise ValueError("a row is damaged: its checksum differs")
    expected = dict(zip(("path", "segment_bytes", "mtime_ns", "inode", "etag"), (task.path, *_identity(task)), strict=True))
    expected |= {"base_offset": task.base_offset, "parts": count}
    for name, value in expected.items():
        if columns[name].to_pylist() != [value] * count:
            raise ValueError(f"a row is of another segment: {name} differs")
    if columns["part"].to_pylist() != list(range(count)):
        raise ValueError("rows are missing")
    if task.check_crc and not all(columns["check_crc"].to_pylist()):
        raise ValueError("checksums were not computed")
    first = {name: columns[name][0].as_py() for name in ("start_bytes", "end_bytes")}
    if first["start_bytes"] is None:
        size_bytes = task.identity.size_bytes
    else:
        size_bytes = first["end_bytes"] - first["start_bytes"]
    # Index entries are compared only for copies in remote storage, which are not cached.
    rows = [
        row | {"partition": segment.partition, "piece": number, "read_bytes": 0, "index_hits": 0}
        for row in _rows_of(columns, count)
    ]
    rows[0]["bytes_kept"] = size_bytes
    return rows


def _rows_of(columns: Mapping[str, pa.Array], count: int) -> list[Row]:
    """The rows of these columns, without the fields that depend on the run."""
    rows: list[Row] = [{} for _ in range(count)]
    for field in _FACTS:
        column = columns[field.name]
        if pa.types.is_list(field.type):
            offsets = column.offsets.to_numpy()
            flat = column.values.to_numpy(zero_copy_only=False)
            values = [flat[start:end] for start, end in pairwise(offsets)]
        else:
            values = column.to_pylist()
        for row, value in zip(rows, values, strict=True):
            row[field.name] = value
    return rows


def _rows_at(table: pa.Table, key: bytes, start_bytes: int | None) -> pa.RecordBatch:
    """The rows of a piece or range: the first one has its beginning, the others follow it."""
    starts = table["start_bytes"]
    is_here = pc.is_null(starts) if start_bytes is None else pc.fill_null(pc.equal(starts, start_bytes), False)
    is_first = pc.and_(is_here, pc.and_(pc.equal(table["part"], 0), pc.equal(table["key"], key)))
    firsts = np.flatnonzero(is_first.to_numpy(zero_copy_only=False))
    if not len(firsts):
        raise ValueError("a row that was there is gone")
    at = int(firsts[0])
    (batch,) = table.slice(at, max(table["parts"][at].as_py() or 0, 1)).combine_chunks().to_batches()
    return batch


@contextlib.contextmanager
def _opened(cache: EffectCache, name: str) -> Iterator[pq.ParquetFile]:
    """A file of the cache. Raises an error of Arrow if it is damaged, or ValueError if another version of the program wrote it."""
    with cache.directory.below(name).open(may_grow=True) as source:
        file = pq.ParquetFile(_Stream(source), pre_buffer=False, page_checksum_verification=True)
        if (file.schema_arrow.metadata or {}).get(_VERSION_KEY) != VERSION:
            raise ValueError("was written by another version of the program")
        yield file


def _read_group(file: pq.ParquetFile, group: int, columns: Sequence[str]) -> pa.Table:
    fields = [SCHEMA.field(name) for name in columns]
    return file.read_row_group(group, columns=list(columns), use_threads=False).select(columns).cast(pa.schema(fields))


class _Stream(io.RawIOBase):
    """Bytes of a store as a stream for Arrow."""

    def __init__(self, source: OpenBytes) -> None:
        self._source = source
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._source.size_bytes}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = self._source.read_into(self._position, view)
        self._position += count
        return count
