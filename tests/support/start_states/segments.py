"""Segments that are gone, out of order, doubled, being replaced; and batches that no broker accepts."""

import shutil
from pathlib import Path

from log_dirs import TRANSACTIONAL, batch, batch_positions, marker, snapshot_bytes
from stopped_broker import append

from formats.partition.producer_snapshot import ProducerEntry

from .building import (
    ORDERS,
    PAYMENTS,
    cut_batches,
    log_dir,
    remove,
    segment,
    snapshot,
    spoil_transaction_index,
    start_state,
    write_checkpoint,
)

ALL_SUFFIXES = (".log", ".index", ".timeindex")


@start_state()
def hole_between_segments(base: Path) -> None:
    """The segment in the middle is gone, with its indexes and its snapshot."""
    remove(log_dir(base) / "payments-0", 56, *ALL_SUFFIXES, ".snapshot")


@start_state()
def hole_between_segments_killed(base: Path) -> None:
    """The segment in the middle is gone, and all segments are recovered."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 0})
    remove(root / "payments-0", 56, *ALL_SUFFIXES, ".snapshot")


@start_state()
def hole_inside_segment(base: Path) -> None:
    """Batches of a rolled segment are gone at its end."""
    cut_batches(segment(log_dir(base) / "payments-0", 56), 4)


@start_state()
def first_segment_gone(base: Path) -> None:
    """The first segment is gone; the log start is 0."""
    remove(log_dir(base) / "payments-0", 0, *ALL_SUFFIXES)


@start_state()
def last_segment_gone(base: Path) -> None:
    """The last segment is gone, next to the marker."""
    remove(log_dir(base) / "payments-0", 116, *ALL_SUFFIXES)


@start_state()
def all_logs_gone(base: Path) -> None:
    """No .log is left; indexes and snapshots are."""
    partition = log_dir(base) / "payments-0"
    for base_offset in (0, 56, 116):
        remove(partition, base_offset, ".log")


@start_state()
def partition_emptied(base: Path) -> None:
    """The directory of a partition has partition.metadata alone."""
    partition = log_dir(base) / "payments-0"
    for path in partition.iterdir():
        if path.name != "partition.metadata":
            path.unlink()


@start_state()
def partition_emptied_with_log_start(base: Path) -> None:
    """The directory of a partition has partition.metadata alone, and its log start is 100."""
    partition = log_dir(base, log_starts={"payments-0": 100}) / "payments-0"
    for path in partition.iterdir():
        if path.name != "partition.metadata":
            path.unlink()


@start_state()
def partition_directory_empty(base: Path) -> None:
    """The directory of a partition has no file."""
    partition = log_dir(base) / "payments-0"
    for path in partition.iterdir():
        path.unlink()


def _written_twice(partition: Path, base_offset: int = 56) -> None:
    """The whole segment, so that an index of it would descend."""
    path = segment(partition, base_offset)
    path.write_bytes(path.read_bytes() * 2)


@start_state()
def offsets_out_of_order_clean(base: Path) -> None:
    """The batches of a rolled segment are there twice, next to the marker; all indexes are there."""
    _written_twice(log_dir(base) / "payments-0")


@start_state()
def offsets_out_of_order_killed(base: Path) -> None:
    """The batches of a rolled segment above the recovery point are there twice, without the marker."""
    _written_twice(log_dir(base, clean=False, recovery_points={"payments-0": 20}) / "payments-0")


@start_state()
def offsets_out_of_order_index_missing(base: Path) -> None:
    """The batches of a rolled segment, which has no .index, are there twice."""
    partition = log_dir(base) / "payments-0"
    _written_twice(partition)
    remove(partition, 56, ".index")


@start_state()
def offsets_out_of_order_transaction_index_bad(base: Path) -> None:
    """The batches of a rolled segment, whose .txnindex fails its check, are there twice."""
    partition = log_dir(base, ORDERS) / "orders-0"
    _written_twice(partition, 91)
    spoil_transaction_index(partition, 91)


@start_state()
def batch_written_twice_clean(base: Path) -> None:
    """One batch is twice in a rolled segment, next to the marker."""
    _batch_twice(log_dir(base) / "payments-0")


@start_state()
def batch_written_twice_killed(base: Path) -> None:
    """One batch is twice in a rolled segment above the recovery point, without the marker."""
    _batch_twice(log_dir(base, clean=False, recovery_points={"payments-0": 20}) / "payments-0")


def _batch_twice(partition: Path) -> None:
    path = segment(partition, 56)
    data, positions = path.read_bytes(), batch_positions(path)
    path.write_bytes(data[: positions[2]] + data[positions[1] :])


@start_state()
def offset_overflow_killed(base: Path) -> None:
    """A batch is more than 2^31 above the base offset of its segment, which is recovered: the segment is split."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116}, high_watermarks={"payments-0": 116})
    path = segment(root / "payments-0", 116)
    data, last = bytearray(path.read_bytes()), batch_positions(path)[-1]
    data[last : last + 8] = (3_000_000_000).to_bytes(8, "big")
    path.write_bytes(bytes(data))


@start_state()
def overlapping_segments(base: Path) -> None:
    """A segment is there twice: once more below the name of an offset in its middle."""
    partition = log_dir(base) / "payments-0"
    path = segment(partition, 56)
    begin = batch_positions(path)[5]
    offset = int.from_bytes(path.read_bytes()[begin : begin + 8], "big")
    segment(partition, offset).write_bytes(path.read_bytes()[begin:])


# ---- what the cleaner and splits leave


@start_state()
def swap_of_log_alone(base: Path) -> None:
    """The cleaner had renamed the new log of the segment at 56 to .swap, and the old segment is still there."""
    partition = log_dir(base) / "payments-0"
    shutil.copy(segment(partition, 56), partition / f"{56:020d}.log.swap")


@start_state()
def swap_of_two_segments(base: Path) -> None:
    """The cleaner had joined the segments at 0 and 56 in a .swap at 0, and the old ones are still there."""
    partition = log_dir(base) / "payments-0"
    joined = segment(partition, 0).read_bytes() + segment(partition, 56).read_bytes()
    (partition / f"{0:020d}.log.swap").write_bytes(joined)


@start_state()
def cleaned_of_log(base: Path) -> None:
    """The cleaner was at work: a .cleaned log at 56."""
    partition = log_dir(base) / "payments-0"
    shutil.copy(segment(partition, 56), partition / f"{56:020d}.log.cleaned")


@start_state()
def cleaned_and_swap(base: Path) -> None:
    """A split was interrupted: a .swap at 116 above a .cleaned at 56."""
    partition = log_dir(base) / "payments-0"
    shutil.copy(segment(partition, 56), partition / f"{56:020d}.log.cleaned")
    shutil.copy(segment(partition, 116), partition / f"{116:020d}.log.swap")


@start_state()
def snapshot_deleted_name(base: Path) -> None:
    """A snapshot that was to be deleted a minute later."""
    partition = log_dir(base) / "payments-0"
    path = snapshot(partition, 56)
    path.rename(path.with_name(f"{path.name}.deleted"))


# ---- what Kafka refuses while it reads


def _transaction_and_plain(partition: Path) -> None:
    """At the end: a batch in a transaction of a producer, and one of the same producer that is in none."""
    path = segment(partition, 116)
    append(path, batch(173, producer_id=77, attributes=TRANSACTIONAL, sequence=0, timestamp=1_795_500_000_000))
    append(path, batch(174, producer_id=77, attributes=0, sequence=1, timestamp=1_795_500_000_000))


@start_state()
def plain_write_in_transaction_clean(base: Path) -> None:
    """A producer wrote without a transaction while one of its transactions was open; the last snapshot is below it."""
    root = log_dir(base, recovery_points={"payments-0": 175})
    _transaction_and_plain(root / "payments-0")


@start_state()
def plain_write_in_transaction_killed(base: Path) -> None:
    """A producer wrote without a transaction while one of its transactions was open; without the marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116})
    _transaction_and_plain(root / "payments-0")


@start_state()
def plain_write_in_transaction_below_snapshot(base: Path) -> None:
    """A producer wrote without a transaction while one of its transactions was open; a snapshot is above it."""
    root = log_dir(base)
    partition = root / "payments-0"
    _transaction_and_plain(partition)
    snapshot(partition, 173).rename(snapshot(partition, 175))
    for name in ("recovery-point", "replication"):
        write_checkpoint(root / f"{name}-offset-checkpoint", {"payments-0": 175})


OPEN_TRANSACTION = ProducerEntry(
    producer_id=77, epoch=0, last_sequence=0, last_offset=100, timestamp=1_795_500_000_000, current_txn_first_offset=100
)


@start_state()
def plain_write_after_transaction_of_snapshot_killed(base: Path) -> None:
    """A snapshot has an open transaction, and its producer wrote without a transaction after it; without the marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116})
    partition = root / "payments-0"
    snapshot(partition, 116).write_bytes(snapshot_bytes([OPEN_TRANSACTION]))
    append(segment(partition, 116), batch(173, producer_id=77, sequence=1, timestamp=1_795_500_000_000))


@start_state()
def plain_write_after_transaction_of_snapshot_clean(base: Path) -> None:
    """A snapshot has an open transaction, its producer wrote without a transaction after it, and the newest snapshot is gone."""
    root = log_dir(base, recovery_points={"payments-0": 174})
    partition = root / "payments-0"
    snapshot(partition, 116).write_bytes(snapshot_bytes([OPEN_TRANSACTION]))
    snapshot(partition, 173).unlink()
    append(segment(partition, 116), batch(173, producer_id=77, sequence=1, timestamp=1_795_500_000_000))


@start_state()
def plain_write_after_commit_killed(base: Path) -> None:
    """A producer committed its transaction and wrote without one; without the marker."""
    path = segment(log_dir(base, clean=False, recovery_points={"payments-0": 116}) / "payments-0", 116)
    append(path, batch(173, producer_id=77, attributes=TRANSACTIONAL, sequence=0, timestamp=1_795_500_000_000))
    append(path, marker(174, 77, timestamp=1_795_500_000_000))
    append(path, batch(175, producer_id=77, sequence=1, timestamp=1_795_500_000_000))


@start_state()
def older_epochs_and_gaps_of_sequences_killed(base: Path) -> None:
    """Batches and a marker of an older producer epoch, and a gap of sequences: a replica takes them; without the marker."""
    path = segment(log_dir(base, clean=False, recovery_points={"payments-0": 116}) / "payments-0", 116)
    append(path, batch(173, producer_id=77, epoch=5, sequence=0, timestamp=1_795_500_000_000))
    append(path, batch(174, producer_id=77, epoch=5, sequence=9, timestamp=1_795_500_000_000))
    append(path, batch(175, producer_id=77, epoch=3, sequence=0, timestamp=1_795_500_000_000))
    append(path, marker(176, 77, epoch=2, timestamp=1_795_500_000_000))


@start_state()
def odd_file_names(base: Path) -> None:
    """Files with other names are in a partition's directory: they are ignored."""
    partition = log_dir(base) / "payments-0"
    (partition / "notes.txt").write_text("kept by an operator")
    shutil.copy(PAYMENTS / f"{56:020d}.snapshot", partition / f"{56:020d}.snapshot.bak")


@start_state()
def log_name_no_number(base: Path) -> None:
    """A file ends with .log, and its name is no offset."""
    (log_dir(base) / "payments-0" / "backup.log").write_bytes(b"")


@start_state()
def snapshot_name_no_number(base: Path) -> None:
    """A file ends with .snapshot, and its name is no offset."""
    partition = log_dir(base) / "payments-0"
    shutil.copy(snapshot(partition, 56), partition / "backup.snapshot")
