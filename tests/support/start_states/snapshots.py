"""Producer snapshots: which ones the start removes, and which it cannot use."""

import shutil
from pathlib import Path

from .building import ORDERS, log_dir, remove, segment, snapshot, start_state


@start_state()
def snapshots_missing(base: Path) -> None:
    """No snapshot is there."""
    partition = log_dir(base, ORDERS) / "orders-0"
    for path in partition.glob("*.snapshot"):
        path.unlink()


@start_state()
def snapshots_missing_killed(base: Path) -> None:
    """No snapshot is there, without the marker; the last segment is recovered."""
    partition = log_dir(base, ORDERS, clean=False, recovery_points={"orders-0": 501}) / "orders-0"
    for path in partition.glob("*.snapshot"):
        path.unlink()


@start_state()
def snapshot_missing_at_log_end(base: Path) -> None:
    """The snapshot of the log end is gone."""
    snapshot(log_dir(base) / "payments-0", 173).unlink()


@start_state()
def snapshot_missing_in_the_middle(base: Path) -> None:
    """A snapshot in the middle is gone."""
    snapshot(log_dir(base, ORDERS) / "orders-0", 258).unlink()


@start_state()
def snapshot_above_log_end(base: Path) -> None:
    """A snapshot is above the log end."""
    partition = log_dir(base) / "payments-0"
    shutil.copy(snapshot(partition, 173), snapshot(partition, 900))


@start_state()
def snapshot_below_log_start(base: Path) -> None:
    """A snapshot is below the log start."""
    partition = log_dir(base, log_starts={"payments-0": 60}) / "payments-0"
    remove(partition, 0, ".log", ".index", ".timeindex")


@start_state()
def snapshot_at_log_start(base: Path) -> None:
    """The log start is the base offset of a segment, which has a snapshot."""
    partition = log_dir(base, log_starts={"payments-0": 56}) / "payments-0"
    remove(partition, 0, ".log", ".index", ".timeindex")


@start_state()
def snapshots_at_no_base_offset(base: Path) -> None:
    """Snapshots at offsets where no segment begins, as a broker of 2.7 leaves them."""
    partition = log_dir(base) / "payments-0"
    for offset in (30, 70, 90, 130, 150):
        shutil.copy(snapshot(partition, 56), snapshot(partition, offset))


@start_state()
def snapshot_at_no_base_offset_alone(base: Path) -> None:
    """The only snapshot is at an offset where no segment begins, above the last base offset."""
    partition = log_dir(base) / "payments-0"
    for path in partition.glob("*.snapshot"):
        path.unlink()
    shutil.copy(ORDERS / f"{91:020d}.snapshot", snapshot(partition, 150))


@start_state()
def snapshot_at_no_base_offset_below_last(base: Path) -> None:
    """The only snapshot is at an offset where no segment begins, below the last base offset."""
    partition = log_dir(base) / "payments-0"
    for path in partition.glob("*.snapshot"):
        path.unlink()
    shutil.copy(ORDERS / f"{91:020d}.snapshot", snapshot(partition, 95))


@start_state()
def snapshot_unparsable_at_log_end(base: Path) -> None:
    """The snapshot of the log end cannot be parsed."""
    snapshot(log_dir(base) / "payments-0", 173).write_bytes(b"garbage that is longer than ten bytes")


@start_state()
def snapshot_zero_bytes_at_log_end(base: Path) -> None:
    """The snapshot of the log end has 0 bytes."""
    snapshot(log_dir(base) / "payments-0", 173).write_bytes(b"")


@start_state()
def snapshot_bad_checksum_at_log_end(base: Path) -> None:
    """The snapshot of the log end has a wrong checksum."""
    path = snapshot(log_dir(base) / "payments-0", 173)
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")


@start_state()
def snapshot_newer_version_at_log_end(base: Path) -> None:
    """The snapshot of the log end has a version that no release knows."""
    path = snapshot(log_dir(base) / "payments-0", 173)
    path.write_bytes(b"\0\x09" + path.read_bytes()[2:])


@start_state()
def snapshots_unparsable_all(base: Path) -> None:
    """No snapshot can be parsed."""
    for path in (log_dir(base) / "payments-0").glob("*.snapshot"):
        path.write_bytes(b"garbage that is longer than ten bytes")


@start_state()
def snapshot_unparsable_in_the_middle(base: Path) -> None:
    """A snapshot in the middle cannot be parsed; the later ones can."""
    snapshot(log_dir(base) / "payments-0", 56).write_bytes(b"garbage that is longer than ten bytes")


@start_state()
def snapshot_in_range_of_swap(base: Path) -> None:
    """The cleaner had joined the segments at 91 and 179 in a .swap at 91: snapshots and old segments are in its range."""
    partition = log_dir(base, ORDERS) / "orders-0"
    joined = segment(partition, 91).read_bytes() + segment(partition, 179).read_bytes()
    (partition / f"{91:020d}.log.swap").write_bytes(joined)
    for suffix in (".index", ".timeindex"):
        (partition / f"{91:020d}{suffix}.swap").write_bytes(b"")


@start_state()
def snapshot_at_base_of_swap(base: Path) -> None:
    """The cleaner had made a .swap of the segment at 258 alone; the old segment is still there."""
    partition = log_dir(base, ORDERS) / "orders-0"
    shutil.copy(segment(partition, 258), partition / f"{258:020d}.log.swap")


@start_state()
def snapshot_temporary_name(base: Path) -> None:
    """A temporary file of a snapshot is left, as an interrupted rebuild leaves it."""
    partition = log_dir(base) / "payments-0"
    shutil.copy(snapshot(partition, 56), partition / f"{56:020d}.snapshot.tmp")


@start_state()
def snapshots_above_recovery_point_killed(base: Path) -> None:
    """Snapshots are above the recovery point, without the marker: all of them are made again."""
    log_dir(base, ORDERS, clean=False, recovery_points={"orders-0": 179})
