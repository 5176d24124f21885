"""``leader-epoch-checkpoint``."""

from pathlib import Path

from .building import EPOCHS, log_dir, start_state


def _with_epochs(base: Path, text: str, *, clean: bool = True) -> Path:
    points = None if clean else {"shrink-0": 160}
    path = log_dir(base, EPOCHS, clean=clean, recovery_points=points) / "shrink-0" / "leader-epoch-checkpoint"
    path.write_text(text)
    return path


@start_state()
def leader_epochs_whole(base: Path) -> None:
    """Two leader epochs, healthy."""
    log_dir(base, EPOCHS)


@start_state()
def leader_epochs_empty_file(base: Path) -> None:
    """The leader epochs have 0 bytes."""
    _with_epochs(base, "")


@start_state()
def leader_epochs_none(base: Path) -> None:
    """The leader epochs are an empty list."""
    _with_epochs(base, "0\n0\n")


@start_state()
def leader_epochs_missing(base: Path) -> None:
    """The leader epochs are gone."""
    _with_epochs(base, "").unlink()


@start_state()
def leader_epochs_empty_file_killed(base: Path) -> None:
    """The leader epochs have 0 bytes, and there is no marker."""
    _with_epochs(base, "", clean=False)


@start_state()
def leader_epochs_missing_killed(base: Path) -> None:
    """The leader epochs are gone, and there is no marker."""
    _with_epochs(base, "", clean=False).unlink()


@start_state()
def leader_epochs_missing_all_recovered(base: Path) -> None:
    """The leader epochs are gone, there is no marker, and all segments are recovered."""
    path = _with_epochs(base, "", clean=False)
    path.unlink()
    (path.parent.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nshrink 0 0\n")


@start_state()
def leader_epochs_garbage(base: Path) -> None:
    """The leader epochs cannot be parsed."""
    _with_epochs(base, "garbage\n")


@start_state()
def leader_epochs_fewer_than_counted(base: Path) -> None:
    """The leader epochs have fewer lines than they say."""
    _with_epochs(base, "0\n2\n0 0\n")


@start_state()
def leader_epochs_zeros(base: Path) -> None:
    """The leader epochs are zeros, as after a power failure."""
    _with_epochs(base, "\0" * 14)


@start_state()
def leader_epochs_is_a_directory(base: Path) -> None:
    """The leader epochs cannot be read: the file is a directory."""
    path = _with_epochs(base, "")
    path.unlink()
    path.mkdir()


@start_state()
def leader_epochs_newest_alone(base: Path) -> None:
    """The leader epochs begin with the newest one."""
    _with_epochs(base, "0\n1\n1 160\n")


@start_state()
def leader_epochs_newest_alone_killed(base: Path) -> None:
    """The leader epochs begin with the newest one, and there is no marker: all segments are recovered."""
    path = _with_epochs(base, "0\n1\n1 160\n", clean=False)
    (path.parent.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nshrink 0 0\n")


@start_state()
def leader_epochs_oldest_alone(base: Path) -> None:
    """The newest of the leader epochs is gone."""
    _with_epochs(base, "0\n1\n0 0\n")


@start_state()
def leader_epochs_oldest_alone_killed(base: Path) -> None:
    """The newest of the leader epochs is gone, and there is no marker."""
    _with_epochs(base, "0\n1\n0 0\n", clean=False)


@start_state()
def leader_epochs_above_log_end(base: Path) -> None:
    """A leader epoch begins above the log end."""
    _with_epochs(base, "0\n3\n0 0\n1 160\n2 900\n")


@start_state()
def leader_epochs_at_log_end(base: Path) -> None:
    """A leader epoch begins at the log end: it was elected and wrote nothing."""
    _with_epochs(base, "0\n3\n0 0\n1 160\n2 203\n")


@start_state()
def leader_epochs_below_log_start(base: Path) -> None:
    """The log start is in the newest leader epoch."""
    log_dir(base, EPOCHS, log_starts={"shrink-0": 170})


@start_state()
def leader_epochs_descend(base: Path) -> None:
    """The leader epochs do not ascend."""
    _with_epochs(base, "0\n2\n1 0\n0 160\n")


@start_state()
def leader_epochs_offsets_descend(base: Path) -> None:
    """The start offsets of the leader epochs do not ascend."""
    _with_epochs(base, "0\n2\n0 160\n1 0\n")


@start_state()
def leader_epochs_temporary_file(base: Path) -> None:
    """A temporary file of the leader epochs is left."""
    path = _with_epochs(base, "0\n2\n0 0\n1 160\n")
    (path.parent / "leader-epoch-checkpoint.tmp").write_text("0\n")


@start_state()
def leader_epochs_negative_epoch(base: Path) -> None:
    """A leader epoch is negative."""
    _with_epochs(base, "0\n2\n-1 0\n1 160\n")


@start_state()
def leader_epochs_negative_offset(base: Path) -> None:
    """The start offset of a leader epoch is negative."""
    _with_epochs(base, "0\n2\n0 -5\n1 160\n")


@start_state()
def leader_epochs_begin_inside_the_first_segment(base: Path) -> None:
    """The leader epochs begin in the middle of the first segment; the log start is 0."""
    _with_epochs(base, "0\n2\n0 30\n1 160\n")


@start_state()
def leader_epochs_begin_inside_the_first_segment_killed(base: Path) -> None:
    """The leader epochs begin in the middle of the first segment, and there is no marker."""
    _with_epochs(base, "0\n2\n0 30\n1 160\n", clean=False)


@start_state()
def leader_epochs_begin_above_a_log_start_killed(base: Path) -> None:
    """The leader epochs begin with the newest one, there is no marker, and the log start is far below."""
    _with_epochs(base, "0\n1\n1 160\n", clean=False)


@start_state()
def leader_epochs_begin_above_a_log_start_in_the_first_segment(base: Path) -> None:
    """The leader epochs begin with the newest one; the log start is in the middle of the first segment."""
    path = log_dir(base, EPOCHS, log_starts={"shrink-0": 10}) / "shrink-0" / "leader-epoch-checkpoint"
    path.write_text("0\n1\n1 160\n")


@start_state()
def leader_epochs_begin_inside_the_last_segment_killed(base: Path) -> None:
    """The leader epochs begin in the middle of the newest epoch, and there is no marker: the log start was not written in time."""
    _with_epochs(base, "0\n1\n1 170\n", clean=False)


@start_state()
def leader_epochs_begin_between_segments_killed(base: Path) -> None:
    """The leader epochs begin at the second segment, in the middle of the oldest epoch, and there is no marker."""
    _with_epochs(base, "0\n2\n0 70\n1 160\n", clean=False)
