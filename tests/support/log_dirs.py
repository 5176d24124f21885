"""Log directories for tests: copies of bundled ones, small ones made batch by batch, and what is in them.

Bytes are made and read here by hand, from the definition of the formats, so that the code under test is asked about bytes of a third hand.
"""

import hashlib
import os
import shutil
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import crc32c
from manifests import FIXTURES, PartitionFixture, partition_fixtures

from formats.partition.producer_snapshot import ProducerEntry

EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")
"""The file that every broker writes for no producers."""

TRANSACTIONAL, CONTROL = 0x10, 0x20
ENTRY = struct.Struct(">qhiqiqiq")

Entries = frozenset[ProducerEntry]


# ---------------------------------------------------------------------------------------------------------------- bundled


def copy_of(fixture: str, to: Path) -> Path:
    """A copy of the ``logs`` of a bundled directory, with modification times."""
    return Path(shutil.copytree(FIXTURES / fixture / "logs", to / fixture))


def of_zookeeper(log_dir: Path) -> Path:
    """Makes a log directory that of a broker of a ZooKeeper cluster, which has no metadata log."""
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=oPmDX1AuSamVuUQffb-GZA\n")
    return log_dir


def partition_fixture(fixture: str, partition: str) -> PartitionFixture:
    """One partition of a manifest."""
    (found,) = [each for each in partition_fixtures() if (each.fixture, each.partition) == (fixture, partition)]
    return found


def truth(fixture: str, partition: str) -> dict[int, Entries]:
    """The entries at each boundary, as Kafka's own classes gave them."""
    return {each.snapshot_offset: each.entries for each in partition_fixture(fixture, partition).segments}


# ---------------------------------------------------------------------------------------------------------------- snapshots


def snapshot_name(offset: int) -> str:
    """Twenty digits."""
    return f"{offset:020d}.snapshot"


def snapshot_bytes(entries: Iterable[ProducerEntry]) -> bytes:
    """A snapshot in the order given."""
    rows = [ENTRY.pack(*(getattr(entry, name) for name in ProducerEntry.__struct_fields__)) for entry in entries]
    checked = struct.pack(">i", len(rows)) + b"".join(rows)
    return struct.pack(">hI", 1, crc32c.crc32c(checked)) + checked


def entries_in(data: bytes) -> Entries:
    """Entries of a snapshot; no producer twice."""
    return frozenset(entries_in_order(data))


def entries_in_order(data: bytes) -> list[ProducerEntry]:
    """Entries of a snapshot in the order of the file."""
    version, checksum, count = struct.unpack_from(">hIi", data)
    assert version == 1
    assert checksum == crc32c.crc32c(data[6:])
    assert len(data) == 10 + 46 * count
    entries = [ProducerEntry(*row) for row in ENTRY.iter_unpack(data[10:])]
    assert len({entry.producer_id for entry in entries}) == count
    return entries


def snapshots_in(directory: Path) -> dict[int, Entries]:
    """Every snapshot of a directory, by offset; there may be none, and no directory."""
    paths = sorted(directory.glob("*.snapshot")) if directory.is_dir() else []
    assert all(len(path.stem) == 20 for path in paths)
    return {int(path.stem): entries_in(path.read_bytes()) for path in paths}


def remove_snapshots(directory: Path, *offsets: int) -> None:
    """Removes some, or all."""
    for path in directory.glob("*.snapshot"):
        if not offsets or int(path.stem) in offsets:
            path.unlink()


def missing_boundaries(directory: Path) -> list[int]:
    """Boundaries of a copy of a bundled partition, in a directory with the name of its fixture, that have no snapshot."""
    known = truth(directory.parent.name, directory.name)
    return sorted(offset for offset in known if not (directory / snapshot_name(offset)).exists())


def blocked_bytes(directory: Path, missing: Sequence[int]) -> int:
    """Counted by hand: the first rolled segment without its snapshot, and all rolled ones after it."""
    segments = sorted(directory.glob("*.log"))
    rolled = [(segment.stat().st_size, int(following.stem)) for segment, following in pairwise(segments)]
    return sum(size for size, end in rolled if missing and end >= missing[0])


# ---------------------------------------------------------------------------------------------------------------- trees


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a directory: kind, mode, owner, and for files modification time, inode and checksum of every byte."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        facts: tuple[object, ...] = (stat.filemode(status.st_mode), status.st_uid, status.st_gid)
        if stat.S_ISREG(status.st_mode):
            facts += (status.st_mtime_ns, status.st_ino, hashlib.sha256(path.read_bytes()).hexdigest())
        found[str(path.relative_to(root))] = facts
    return found


def files_below(root: Path) -> set[str]:
    """Paths of all files, relative."""
    paths = (path for path in root.rglob("*") if not path.is_dir())
    return {str(path.relative_to(root)) for path in paths}


def all_bytes(root: Path) -> dict[str, bytes]:
    """Contents of all files by relative path."""
    return {name: (root / name).read_bytes() for name in files_below(root)}


def changes(
    before: Mapping[str, tuple[object, ...]], after: Mapping[str, tuple[object, ...]]
) -> tuple[set[str], set[str], set[str]]:
    """Names that appeared, vanished, and those of which anything differs."""
    changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    return set(after.keys() - before.keys()), set(before.keys() - after.keys()), changed


# ---------------------------------------------------------------------------------------------------------------- made by hand


def varint(value: int) -> bytes:
    """Zigzag, seven bits a byte."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes((value,))


def sized(data: bytes) -> bytes:
    """Bytes after their length."""
    return varint(len(data)) + data


def record(value: bytes, *, key: bytes | None = None, offset_delta: int = 0) -> bytes:
    """One record, no headers, no timestamp delta."""
    body = b"\0\0" + varint(offset_delta) + (varint(-1) if key is None else varint(len(key)) + key)
    body += varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def batch(
    offset: int,
    *,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    timestamp: int = 1_000,
    attributes: int = 0,
    records: Sequence[bytes] | None = None,
    payload_bytes: int = 1,
) -> bytes:
    """A record batch of magic 2."""
    if records is None:
        records = [record(b"v" * payload_bytes, offset_delta=delta) for delta in range(count)]
    if producer_id < 0:
        epoch = sequence = -1
    times = (timestamp, timestamp)
    checked = struct.pack(">hiqqqhii", attributes, count - 1, *times, producer_id, epoch, sequence, len(records)) + b"".join(
        records
    )
    return struct.pack(">qiibI", offset, 9 + len(checked), 0, 2, crc32c.crc32c(checked)) + checked


def marker(
    offset: int, producer_id: int, *, epoch: int = 0, commit: bool = True, coordinator_epoch: int = 0, timestamp: int = 1_000
) -> bytes:
    """A transaction marker."""
    value = struct.pack(">hi", 0, coordinator_epoch)
    end = record(value, key=struct.pack(">hh", 0, int(commit)))
    attributes = CONTROL | TRANSACTIONAL
    return batch(
        offset, producer_id=producer_id, epoch=epoch, sequence=-1, timestamp=timestamp, attributes=attributes, records=[end]
    )


def write_partition(directory: Path, segments: Mapping[int, bytes]) -> Path:
    """Segments by base offset, without snapshots; in a log directory with empty indexes and with leader epochs, as brokers write them."""
    directory.mkdir(parents=True, exist_ok=True)
    is_of_broker = (directory.parent / "meta.properties").exists()
    for base, data in segments.items():
        (directory / f"{base:020d}.log").write_bytes(data)
        if is_of_broker:
            (directory / f"{base:020d}.index").touch()
    if is_of_broker:
        write_leader_epochs(directory)
    return directory


def write_leader_epochs(directory: Path) -> None:
    """``leader-epoch-checkpoint`` of a log whose batches, of magic 2, all have leader epoch 0, as those of `batch`."""
    path = directory / "leader-epoch-checkpoint"
    for log in sorted(directory.glob("*.log")):
        data = log.read_bytes()
        if len(data) >= 17 and data[16] == 2 and not path.exists():
            path.write_text(f"0\n1\n0 {int(log.stem)}\n")


def make_log_dir(root: Path, *, clean: bool = True, recovery_points: Mapping[str, int] | None = None, **checkpoints: str) -> Path:
    """The files of a broker around partitions."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    points = recovery_points or {}
    (root / "recovery-point-offset-checkpoint").write_text(
        f"0\n{len(points)}\n" + "".join(f"{name.rsplit('-', 1)[0]} {name.rsplit('-', 1)[1]} {at}\n" for name, at in points.items())
    )
    for name, text in checkpoints.items():
        (root / name.replace("_", "-")).write_text(text)
    if clean:
        (root / ".kafka_cleanshutdown").write_bytes(b"")
    for directory in root.glob("*-[0-9]*"):
        write_leader_epochs(directory)
    return root


def flip(path: Path, position: int, mask: int = 0x01) -> None:
    """Flips bits of one byte; the modification time stays, as on a bad disk."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes((byte ^ mask,)))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut(path: Path, size_bytes: int) -> None:
    """Cuts a file to a size; a negative one counts from its end."""
    os.truncate(path, size_bytes if size_bytes >= 0 else path.stat().st_size + size_bytes)


def write_segment(directory: Path, *batches: bytes, base_offset: int = 0) -> Path:
    """A segment of batches, in a directory that is there."""
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def batch_positions(path: Path) -> list[int]:
    """Where each batch of a segment begins."""
    data, at, found = path.read_bytes(), 0, []
    while at + 12 <= len(data):
        found.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found
