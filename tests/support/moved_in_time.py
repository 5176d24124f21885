"""Bundled logs as if they had been written at another time.

A real broker drops a producer at the latest 24.8 days after its newest batch (``producer.id.expiration.ms`` is an int), and its clock
is that of the machine. So a log that is given to one has to be young on any day: every timestamp in its copy is moved alike.
"""

import struct
import time
from collections.abc import Iterable
from pathlib import Path

import crc32c
from log_dirs import entries_in_order, snapshot_bytes
from msgspec.structs import replace

from formats.partition.producer_snapshot import ProducerEntry

AGE_MS = 3_600_000
"""Age of the newest batch in a log that is moved to the present: nothing is in the future."""
OLD_MS = 86_400_000
"""A broker gets no log whose newest batch is older than this: after 24.8 days it would forget its producers, and the test would fail."""

TIMESTAMPS = struct.Struct(">qq")
AT_TIMESTAMPS, AT_CHECKSUM, AT_CHECKED, AT_MAGIC = 27, 17, 21, 16


def ms_to_present(partition: Path) -> int:
    """How much later a log has to have been written for its newest batch to be an hour old."""
    return int(time.time() * 1000) - AGE_MS - _newest_ms(partition)


def check_young(partition: Path) -> None:
    """Refuses a log that a broker must not get.

    Raises:
        ValueError: its newest batch is older than `OLD_MS`.
    """
    age_ms = int(time.time() * 1000) - _newest_ms(partition)
    if age_ms > OLD_MS:
        raise ValueError(
            f"{partition}: the newest batch is {age_ms / OLD_MS:.1f} days old: give the broker a copy made by moved_in_time"
        )


def _newest_ms(partition: Path) -> int:
    batches = (batch for path in partition.glob("*.log") for batch in _batches(path.read_bytes()))
    return max(TIMESTAMPS.unpack_from(batch, AT_TIMESTAMPS)[1] for batch in batches)


def moved_in_time(source: Path, target: Path, later_ms: int) -> Path:
    """A copy of the files of a directory (partition or copies in remote storage). Batches, time indexes and snapshots are as if all had
    been written so much later. Returns ``target``, which must not exist."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        data = path.read_bytes()
        if path.suffix == ".log":
            data = b"".join(_batch_moved(batch, later_ms) for batch in _batches(data))
        elif path.suffix == ".timeindex":
            entries = struct.Struct(">qi").iter_unpack(data)
            data = b"".join(struct.pack(">qi", _moved(timestamp, later_ms), offset) for timestamp, offset in entries)
        elif path.suffix == ".snapshot":
            data = snapshot_bytes(entries_moved(entries_in_order(data), later_ms))
        (target / path.name).write_bytes(data)
    return target


def entries_moved(entries: Iterable[ProducerEntry], later_ms: int) -> list[ProducerEntry]:
    """Entries of a snapshot of the moved log, in the same order."""
    return [replace(entry, timestamp=_moved(entry.timestamp, later_ms)) for entry in entries]


def _moved(timestamp: int, later_ms: int) -> int:
    """Without a timestamp (-1), and in the zeros of an index that is allocated, nothing moves."""
    return timestamp + later_ms if timestamp > 0 else timestamp


def _batches(data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        assert end <= len(data), "the last batch is not whole"
        assert data[at + AT_MAGIC] == 2, "messages before magic 2 have a timestamp each, or none"
        yield data[at:end]
        at = end


def _batch_moved(batch: bytes, later_ms: int) -> bytes:
    """Records have theirs as a distance from that of the batch."""
    moved = bytearray(batch)
    base, newest = TIMESTAMPS.unpack_from(batch, AT_TIMESTAMPS)
    TIMESTAMPS.pack_into(moved, AT_TIMESTAMPS, _moved(base, later_ms), _moved(newest, later_ms))
    struct.pack_into(">I", moved, AT_CHECKSUM, crc32c.crc32c(bytes(moved[AT_CHECKED:])))
    return bytes(moved)
