"""Indexes: which are gone, which fail their check, and what the start rebuilds."""

from pathlib import Path

from stopped_broker import append

from .building import ORDERS, log_dir, remove, segment, set_byte, spoil_transaction_index, start_state


@start_state()
def index_missing(base: Path) -> None:
    """A rolled segment has no .index."""
    remove(log_dir(base) / "payments-0", 56, ".index")


@start_state()
def index_missing_first(base: Path) -> None:
    """The first segment of several has no .index."""
    remove(log_dir(base, ORDERS) / "orders-0", 0, ".index")


@start_state()
def index_missing_last(base: Path) -> None:
    """The last segment has no .index."""
    remove(log_dir(base) / "payments-0", 116, ".index")


@start_state()
def index_missing_middle(base: Path) -> None:
    """The fourth of seven segments has no .index."""
    remove(log_dir(base, ORDERS) / "orders-0", 258, ".index")


@start_state()
def index_missing_killed(base: Path) -> None:
    """A rolled segment has no .index, and there is no marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116})
    remove(root / "payments-0", 56, ".index")


@start_state()
def time_index_missing(base: Path) -> None:
    """A rolled segment has no .timeindex."""
    remove(log_dir(base) / "payments-0", 56, ".timeindex")


@start_state()
def indexes_missing(base: Path) -> None:
    """No segment has an index."""
    partition = log_dir(base) / "payments-0"
    for base_offset in (0, 56, 116):
        remove(partition, base_offset, ".index", ".timeindex")


@start_state()
def index_of_odd_length(base: Path) -> None:
    """An .index has a length that no whole number of entries has."""
    append(segment(log_dir(base) / "payments-0", 56, ".index"), b"\0\0\0")


@start_state()
def index_below_base(base: Path) -> None:
    """An .index is zeros: its last entry is the base offset, as of one that was preallocated."""
    segment(log_dir(base) / "payments-0", 56, ".index").write_bytes(bytes(64))


@start_state()
def time_index_of_odd_length(base: Path) -> None:
    """A .timeindex has a length that no whole number of entries has."""
    append(segment(log_dir(base) / "payments-0", 56, ".timeindex"), b"\0\0\0\0\0")


@start_state()
def time_index_descends(base: Path) -> None:
    """The last timestamp of a .timeindex is below its first."""
    path = segment(log_dir(base) / "payments-0", 56, ".timeindex")
    data = path.read_bytes()
    assert len(data) == 24
    path.write_bytes(data[12:] + data[:12])


@start_state()
def index_without_log(base: Path) -> None:
    """A segment's .log is gone, its indexes are there."""
    remove(log_dir(base) / "payments-0", 56, ".log")


def _with_transaction_index(base: Path, position: int, value: int, *, clean: bool = True) -> Path:
    points = None if clean else {"orders-0": 501}
    path = segment(log_dir(base, ORDERS, clean=clean, recovery_points=points) / "orders-0", 91, ".txnindex")
    set_byte(path, position, value)
    return path


@start_state()
def transaction_index_version_1(base: Path) -> None:
    """The first byte of a .txnindex, half of its version, is 1."""
    _with_transaction_index(base, 0, 1)


@start_state()
def transaction_index_version_127(base: Path) -> None:
    """The first byte of a .txnindex is 127."""
    _with_transaction_index(base, 0, 127)


@start_state()
def transaction_index_version_128(base: Path) -> None:
    """The first byte of a .txnindex is 128."""
    _with_transaction_index(base, 0, 128)


@start_state()
def transaction_index_second_byte(base: Path) -> None:
    """The second byte of the version in a .txnindex is 1."""
    _with_transaction_index(base, 1, 1)


@start_state()
def transaction_index_version_1_killed(base: Path) -> None:
    """The first byte of a .txnindex is 1, and there is no marker."""
    _with_transaction_index(base, 0, 1, clean=False)


@start_state()
def transaction_index_offset_below_base(base: Path) -> None:
    """The last offset of the first entry in a .txnindex is below the base offset of its segment."""
    spoil_transaction_index(log_dir(base, ORDERS) / "orders-0", 91)


@start_state()
def transaction_index_cut(base: Path) -> None:
    """A .txnindex ends inside of an entry."""
    path = segment(log_dir(base, ORDERS) / "orders-0", 91, ".txnindex")
    path.write_bytes(path.read_bytes()[:-10])


@start_state()
def transaction_index_bad_in_last_segment(base: Path) -> None:
    """The last segment has a .txnindex that begins with 1."""
    partition = log_dir(base, ORDERS) / "orders-0"
    path = segment(partition, 501, ".txnindex")
    path.write_bytes(segment(partition, 330, ".txnindex").read_bytes())
    set_byte(path, 0, 1)


@start_state()
def transaction_index_version_1_index_missing(base: Path) -> None:
    """The first byte of a .txnindex is 1, and the segment has no .index, so that the first is not looked at."""
    path = _with_transaction_index(base, 0, 1)
    path.with_suffix(".index").unlink()


@start_state()
def transaction_index_missing(base: Path) -> None:
    """A .txnindex is gone."""
    remove(log_dir(base, ORDERS) / "orders-0", 91, ".txnindex")


@start_state()
def transaction_index_bad_in_first_segment(base: Path) -> None:
    """The .txnindex of the first segment of seven fails its check."""
    partition = log_dir(base, ORDERS) / "orders-0"
    path = segment(partition, 0, ".txnindex")
    data = bytearray(path.read_bytes())
    data[18:26] = (-5).to_bytes(8, "big", signed=True)
    path.write_bytes(bytes(data))
