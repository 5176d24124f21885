"""The end of the last segment, and what recovery cuts."""

from pathlib import Path

from stopped_broker import append

from .building import cut_batches, log_dir, segment, set_byte, snapshot, start_state

MIB = 1024 * 1024


@start_state()
def zeros_after_last_batch_clean(base: Path) -> None:
    """Zeros after the last batch, next to the marker of a clean stop."""
    append(segment(log_dir(base) / "payments-0", 116), bytes(64 * 1024))


@start_state()
def zeros_after_last_batch_clean_no_snapshot(base: Path) -> None:
    """Zeros after the last batch, next to the marker; the snapshot of the log end is gone."""
    partition = log_dir(base) / "payments-0"
    append(segment(partition, 116), bytes(64 * 1024))
    snapshot(partition, 173).unlink()


@start_state()
def zeros_after_last_batch_killed(base: Path) -> None:
    """Zeros after the last batch, without the marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116})
    append(segment(root / "payments-0", 116), bytes(64 * 1024))


@start_state()
def few_zeros_after_last_batch_clean(base: Path) -> None:
    """Ten zeros after the last batch, fewer than the head of a batch, next to the marker."""
    append(segment(log_dir(base) / "payments-0", 116), bytes(10))


@start_state()
def zeros_after_last_batch_of_rolled_segment(base: Path) -> None:
    """Zeros after the last batch of a rolled segment, next to the marker."""
    append(segment(log_dir(base) / "payments-0", 56), bytes(64 * 1024))


@start_state()
def torn_tail_clean(base: Path) -> None:
    """The last batch is cut, next to the marker."""
    path = segment(log_dir(base) / "payments-0", 116)
    path.write_bytes(path.read_bytes()[:-37])


@start_state()
def torn_tail_killed(base: Path) -> None:
    """The last batch is cut, without the marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116}, high_watermarks={"payments-0": 169})
    path = segment(root / "payments-0", 116)
    path.write_bytes(path.read_bytes()[:-37])


@start_state()
def garbage_after_last_batch_clean(base: Path) -> None:
    """Bytes that are no batch after the last one, next to the marker."""
    append(segment(log_dir(base) / "payments-0", 116), bytes.fromhex("7f") * 200)


@start_state()
def garbage_after_last_batch_killed(base: Path) -> None:
    """Bytes that are no batch after the last one, without the marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116})
    append(segment(root / "payments-0", 116), bytes.fromhex("7f") * 200)


@start_state()
def log_end_lost_clean(base: Path) -> None:
    """The last three batches are gone, next to the marker: the log ends below its recovery point and high watermark."""
    cut_batches(segment(log_dir(base) / "payments-0", 116), 3)


@start_state()
def log_end_lost_killed(base: Path) -> None:
    """The last three batches are gone, without the marker."""
    cut_batches(segment(log_dir(base, clean=False) / "payments-0", 116), 3)


@start_state()
def last_segment_emptied_clean(base: Path) -> None:
    """The last segment has 0 bytes, next to the marker."""
    partition = log_dir(base) / "payments-0"
    for suffix in (".log", ".index", ".timeindex"):
        segment(partition, 116, suffix).write_bytes(b"")


@start_state()
def last_segment_emptied_killed(base: Path) -> None:
    """The last segment has 0 bytes, without the marker."""
    partition = log_dir(base, clean=False, recovery_points={"payments-0": 116}) / "payments-0"
    for suffix in (".log", ".index", ".timeindex"):
        segment(partition, 116, suffix).write_bytes(b"")


@start_state()
def bad_checksum_in_last_segment_killed(base: Path) -> None:
    """A batch in the middle of the last segment has a wrong checksum, without the marker: recovery cuts from there on."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116})
    set_byte(segment(root / "payments-0", 116), 4000, 0xEE)


@start_state()
def bad_checksum_in_last_segment_clean(base: Path) -> None:
    """A batch in the middle of the last segment has a wrong checksum, next to the marker."""
    set_byte(segment(log_dir(base) / "payments-0", 116), 4000, 0xEE)


@start_state()
def bad_checksum_below_recovery_point_killed(base: Path) -> None:
    """A batch below the recovery point has a wrong checksum, without the marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116})
    set_byte(segment(root / "payments-0", 56), 4000, 0xEE)


@start_state()
def bad_checksum_above_recovery_point_killed(base: Path) -> None:
    """A batch of a rolled segment above the recovery point has a wrong checksum, without the marker: what follows is deleted."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 20})
    set_byte(segment(root / "payments-0", 56), 4000, 0xEE)


@start_state()
def recovery_point_above_log_end_killed(base: Path) -> None:
    """The recovery point is above the log end, without the marker."""
    log_dir(base, clean=False, recovery_points={"payments-0": 5000})


@start_state()
def bad_checksum_of_first_batch_above_recovery_point_killed(base: Path) -> None:
    """The first batch of a rolled segment above the recovery point has a wrong checksum, without the marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 20})
    set_byte(segment(root / "payments-0", 56), 70, 0xEE)


@start_state()
def bad_checksum_in_segment_of_recovery_point_killed(base: Path) -> None:
    """A batch below the recovery point, in the segment that it is in, has a wrong checksum, without the marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 110})
    set_byte(segment(root / "payments-0", 56), 4000, 0xEE)


@start_state()
def bad_checksum_in_two_segments_killed(base: Path) -> None:
    """Batches of two rolled segments have wrong checksums, without the marker and without recovery points."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 0})
    for base_offset in (0, 56):
        set_byte(segment(root / "payments-0", base_offset), 4000, 0xEE)


@start_state()
def rolled_segment_torn_killed(base: Path) -> None:
    """The last batch of a rolled segment above the recovery point is cut, without the marker: what follows is deleted."""
    path = segment(log_dir(base, clean=False, recovery_points={"payments-0": 20}) / "payments-0", 56)
    path.write_bytes(path.read_bytes()[:-37])


@start_state()
def rolled_segment_short_killed(base: Path) -> None:
    """The last two batches of a rolled segment above the recovery point are gone, without the marker: there is a hole."""
    cut_batches(segment(log_dir(base, clean=False, recovery_points={"payments-0": 20}) / "payments-0", 56), 2)


@start_state()
def zeros_after_last_batch_of_rolled_segment_killed(base: Path) -> None:
    """Zeros after the last batch of a rolled segment above the recovery point, without the marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 20})
    append(segment(root / "payments-0", 56), bytes(64 * 1024))


@start_state()
def recovery_cuts_above_high_watermark_killed(base: Path) -> None:
    """A batch of the last segment above the high watermark has a wrong checksum, without the marker: nothing acknowledged is lost."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116}, high_watermarks={"payments-0": 117})
    set_byte(segment(root / "payments-0", 116), 4000, 0xEE)
