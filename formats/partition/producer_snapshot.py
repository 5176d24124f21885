"""Producer snapshots (``<next base offset>.snapshot``), version 1, the only one from 0.11 to 4.4.

``SNAPSHOT`` and ``PRODUCER_ENTRY`` are the grammar; ``read_entries`` and ``write_entries`` do the same with a numpy dtype derived from
it. Their references, which use the grammar, are ``parse_snapshot`` and ``build_snapshot`` of ``tests/support/snapshot_by_grammar.py``.
The order of entries in a file has no meaning (Kafka writes the order of a hash map): files are compared as maps. This library
writes them sorted by producer id, so that equal states are equal bytes.

Source: ``ProducerStateManager.readSnapshot`` and ``writeSnapshot``, schema ``ProducerSnapshot``.
"""

from __future__ import annotations

import msgspec
import numpy as np
from construct import Array, Struct

from formats import limits
from formats.checksum import crc32c
from formats.errors import (
    BadChecksumError,
    BadLengthError,
    BadVersionError,
    FormatError,
    LimitExceededError,
    TruncatedError,
)
from formats.layout import dtype_of
from formats.primitives import INT16, INT32, INT64, UINT32, parse_whole

__all__ = [
    "ENTRY_DTYPE",
    "ProducerEntry",
    "parse_snapshot",
    "read_entries",
    "write_entries",
]

PRODUCER_ENTRY = Struct(
    "producer_id" / INT64,
    "epoch" / INT16,
    "last_sequence" / INT32,
    "last_offset" / INT64,
    "offset_delta" / INT32,
    "timestamp" / INT64,
    "coordinator_epoch" / INT32,
    "current_txn_first_offset" / INT64,
)
"""46 bytes. Only the newest batch of each producer is kept, though the broker holds five in memory."""

SNAPSHOT_HEADER = Struct("version" / INT16, "crc" / UINT32, "entry_count" / INT32)
"""10 bytes. ``crc`` is CRC-32C from ``entry_count`` to the end of the FILE; ``entry_count`` is a plain int32, not a compact length."""

SNAPSHOT = Struct(*SNAPSHOT_HEADER.subcons, "entries" / Array(lambda this: this.entry_count, PRODUCER_ENTRY))

ENTRY_DTYPE = dtype_of(PRODUCER_ENTRY)
VERSION = 1
CRC_START = 6
HEADER_BYTES: int = SNAPSHOT_HEADER.sizeof()
ENTRY_BYTES: int = PRODUCER_ENTRY.sizeof()


class ProducerEntry(msgspec.Struct, frozen=True):
    """The entry of one producer in a snapshot.

    Attributes:
        producer_id: int64.
        epoch: int16, -1 for an entry that only an empty control batch made.
        last_sequence: int32, -1 for none.
        last_offset: int64, of the last DATA record, never of a marker; -1 when no batch is known.
        offset_delta: int32, last minus first offset of that batch.
        timestamp: int64 ms, of the newest batch or marker; -1 for none.
        coordinator_epoch: int32, of the last marker; -1 before the first.
        current_txn_first_offset: int64, first offset of the open transaction; -1 when none is open.
    """

    producer_id: int
    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1


def snapshot_size(entry_count: int) -> int:
    """Size in bytes of a snapshot with ``entry_count`` entries."""
    return HEADER_BYTES + entry_count * ENTRY_BYTES


def check_snapshot(data: bytes | memoryview, *, file: str | None = None) -> int:
    """Checks everything that ``ProducerStateManager.readSnapshot`` checks. Returns the count of entries.

    Bytes after the last entry are ignored when the checksum covers them, as the broker does.

    Raises:
        TruncatedError: shorter than its header or than its entries.
        BadVersionError: a version other than 1.
        BadLengthError: a negative count.
        BadChecksumError: stored and computed checksum differ.
        LimitExceededError: longer than ``limits.SNAPSHOT_BYTES_MAX``.
    """
    if len(data) > limits.SNAPSHOT_BYTES_MAX:
        raise LimitExceededError("snapshot", file=file, expected=f"at most {limits.SNAPSHOT_BYTES_MAX} bytes", found=len(data))
    if len(data) < HEADER_BYTES:
        raise TruncatedError(
            "snapshot", file=file, position=0, expected=f"at least {HEADER_BYTES} bytes", found=f"{len(data)} bytes"
        )
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != VERSION:
        raise BadVersionError("version of a snapshot", file=file, position=0, expected=VERSION, found=version)
    count = int.from_bytes(data[6:10], "big", signed=True)
    if count < 0:
        raise BadLengthError("count of entries", file=file, position=6, expected="0 or more", found=count)
    if len(data) < snapshot_size(count):
        expected = f"{snapshot_size(count)} bytes for {count} entries"
        raise TruncatedError("snapshot", file=file, position=len(data), expected=expected, found=f"{len(data)} bytes")
    stored = int.from_bytes(data[2:CRC_START], "big")
    computed = crc32c(memoryview(data)[CRC_START:])
    if stored != computed:
        expected = f"{computed:#010x}"
        actual = f"{stored:#010x}"
        raise BadChecksumError("checksum of a snapshot", file=file, position=2, expected=expected, found=actual)
    return count


def read_entries(data: bytes | memoryview, *, file: str | None = None) -> np.ndarray:
    """Reads a snapshot with numpy.

    Returns:
        An array of ``ENTRY_DTYPE``, shape (entries,), in file order, a view of ``data``.

    Raises:
        FormatError: the file is damaged (``check_snapshot``).
    """
    count = check_snapshot(data, file=file)
    return np.frombuffer(data, dtype=ENTRY_DTYPE, count=count, offset=HEADER_BYTES)


def write_entries(entries: np.ndarray) -> bytes:
    """The bytes of a snapshot that holds ``entries`` (of ``ENTRY_DTYPE``) in the order given."""
    body = len(entries).to_bytes(4, "big") + np.ascontiguousarray(entries, dtype=ENTRY_DTYPE).tobytes()
    return VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def parse_snapshot(data: bytes | memoryview, *, file: str | None = None) -> tuple[ProducerEntry, ...]:
    """Reads a snapshot with the grammar: the reference for ``read_entries``.

    Raises:
        FormatError: the file is damaged (``check_snapshot``).
    """
    check_snapshot(data, file=file)

    def make(fields: object) -> tuple[ProducerEntry, ...]:
        names = ProducerEntry.__struct_fields__
        return tuple(ProducerEntry(**{name: entry[name] for name in names}) for entry in fields.entries)  # type: ignore[attr-defined]

    try:
        return parse_whole(SNAPSHOT, data, "snapshot", make)
    except FormatError as error:
        raise error.in_file(file) from None
