"""The files of a log directory: recovery points, log starts, high watermarks, the marker of a clean stop."""

from pathlib import Path

from .building import REBORN, log_dir, segment, start_state

RECOVERY, START, REPLICATION, CLEANER = (
    f"{name}-offset-checkpoint" for name in ("recovery-point", "log-start", "replication", "cleaner")
)


def _with_file(base: Path, name: str, text: str, *, clean: bool = True) -> Path:
    root = log_dir(base, clean=clean)
    (root / name).write_text(text)
    return root


@start_state()
def recovery_points_empty_file(base: Path) -> None:
    """The recovery points have 0 bytes."""
    _with_file(base, RECOVERY, "")


@start_state()
def recovery_points_version_alone(base: Path) -> None:
    """The recovery points have the line of the version alone."""
    _with_file(base, RECOVERY, "0\n")


@start_state()
def recovery_points_garbage(base: Path) -> None:
    """The recovery points cannot be parsed."""
    _with_file(base, RECOVERY, "garbage\n")


@start_state()
def recovery_points_zeros(base: Path) -> None:
    """The recovery points are zeros, as after a power failure."""
    _with_file(base, RECOVERY, "\0" * 19)


@start_state()
def recovery_points_cut(base: Path) -> None:
    """The recovery points have fewer lines than they say."""
    _with_file(base, RECOVERY, "0\n2\npayments 0 173\n")


@start_state()
def recovery_points_newer_version(base: Path) -> None:
    """The recovery points have a version that no release knows."""
    _with_file(base, RECOVERY, "1\n1\npayments 0 173\n")


@start_state()
def recovery_points_missing(base: Path) -> None:
    """The recovery points are gone."""
    (log_dir(base) / RECOVERY).unlink()


@start_state()
def recovery_points_garbage_killed(base: Path) -> None:
    """The recovery points cannot be parsed, and there is no marker."""
    _with_file(base, RECOVERY, "garbage\n", clean=False)


@start_state()
def recovery_points_empty_file_killed(base: Path) -> None:
    """The recovery points have 0 bytes, and there is no marker."""
    _with_file(base, RECOVERY, "", clean=False)


@start_state(log_dirs=("d1", "d2"))
def recovery_points_garbage_in_one_of_two(base: Path) -> None:
    """The recovery points of one of two directories cannot be parsed."""
    log_dir(base, name="d1")
    (log_dir(base, REBORN, name="d2") / RECOVERY).write_text("garbage\n")


@start_state()
def log_starts_empty_file(base: Path) -> None:
    """The log starts have 0 bytes."""
    _with_file(base, START, "")


@start_state()
def log_starts_version_alone(base: Path) -> None:
    """The log starts have the line of the version alone."""
    _with_file(base, START, "0\n")


@start_state()
def log_starts_garbage(base: Path) -> None:
    """The log starts cannot be parsed."""
    _with_file(base, START, "garbage\n")


@start_state(log_dirs=("d1", "d2"))
def log_starts_garbage_in_one_of_two(base: Path) -> None:
    """The log starts of one of two directories cannot be parsed."""
    log_dir(base, name="d1")
    (log_dir(base, REBORN, name="d2") / START).write_text("garbage\n")


@start_state()
def log_start_above_log_end(base: Path) -> None:
    """The log start is above the log end: a backup was put back below checkpoints of a later time."""
    log_dir(base, log_starts={"payments-0": 5000})


@start_state()
def log_start_above_log_end_killed(base: Path) -> None:
    """The log start is above the log end, and there is no marker."""
    log_dir(base, clean=False, log_starts={"payments-0": 5000})


@start_state()
def log_start_below_first_segment(base: Path) -> None:
    """The log start is below the first segment, as of a log whose older segments are in remote storage, or gone."""
    partition = log_dir(base, log_starts={"payments-0": 10}) / "payments-0"
    for suffix in (".log", ".index", ".timeindex"):
        segment(partition, 0, suffix).unlink()


@start_state()
def high_watermarks_empty_file(base: Path) -> None:
    """The high watermarks have 0 bytes."""
    _with_file(base, REPLICATION, "")


@start_state()
def high_watermarks_garbage(base: Path) -> None:
    """The high watermarks cannot be parsed."""
    _with_file(base, REPLICATION, "garbage\n")


@start_state()
def high_watermark_above_log_end(base: Path) -> None:
    """The high watermark is above the log end, and so is the recovery point."""
    log_dir(base, recovery_points={"payments-0": 900}, high_watermarks={"payments-0": 900})


@start_state()
def cleaner_offsets_garbage(base: Path) -> None:
    """The offsets of the cleaner cannot be parsed."""
    _with_file(base, CLEANER, "garbage\n")


@start_state()
def marker_garbage(base: Path) -> None:
    """The marker of a clean stop has no content that can be parsed."""
    _with_file(base, ".kafka_cleanshutdown", "garbage")


@start_state()
def marker_empty(base: Path) -> None:
    """The marker of a clean stop has 0 bytes, as those before 3.7 have."""
    _with_file(base, ".kafka_cleanshutdown", "")
