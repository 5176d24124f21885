"""Which files may be looked at in place, and which of their bytes."""

import contextlib
import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snaprebuild.errors import ChangedFileError, DeadlinePassedError
from snaprebuild.storage.io_limits.page_cache import Residency, cached_pages
from snaprebuild.storage.io_limits.policy import IoLimits, limited_io
from snaprebuild.storage.local import mapped_windows
from snaprebuild.storage.local.mapped_windows import WINDOW_BYTES_MIN, mapped_reads
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.store import FileIdentity

SIZE = 11 << 20
EXT4, NFS, FUSE = 0xEF53, 0x6969, 0x65735546


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """A disk of this machine. Runs of pages that are not in memory may be added."""
    runs: list[tuple[int, int]] = []
    monkeypatch.setattr(mapped_windows, "_file_system", lambda _fd: EXT4)
    monkeypatch.setattr(mapped_windows, "cached_pages", lambda *_: None)
    monkeypatch.setattr(
        Residency, "absent", lambda _residency, begin, length: [run for run in runs if begin <= run[0] < begin + length]
    )
    return runs


@pytest.fixture
def worker(absent: list[tuple[int, int]]) -> Iterator[None]:
    """This process may die."""
    with mapped_reads(allowed=True):
        yield


def opened(path: Path, **options: object) -> SegmentFile:
    return SegmentFile(str(path), listed=FileIdentity.of(path.stat()), **options)  # type: ignore[arg-type]


def test_bytes_in_memory_are_mapped_wherever_they_begin(path: Path, worker: None) -> None:
    data = path.read_bytes()
    with opened(path) as file:
        for begin, count in ((0, SIZE), (1, 2 << 20), (mmap.PAGESIZE + 77, SIZE - mmap.PAGESIZE - 77)):
            window = file.window(begin, count)
            assert window is not None
            assert bytes(window) == data[begin : begin + count]


def test_only_up_to_the_first_page_that_is_not_in_memory(path: Path, worker: None, absent: list[tuple[int, int]]) -> None:
    hole = 9 << 20
    absent.append((hole, mmap.PAGESIZE))
    with opened(path) as file:
        window = file.window(5, SIZE - 5)
        assert window is not None
        assert len(window) == hole - 5
        assert file.window(hole - WINDOW_BYTES_MIN + mmap.PAGESIZE, WINDOW_BYTES_MIN) is None, "too little of it"
        assert file.window(hole + mmap.PAGESIZE, 1 << 20) is not None, "all that is asked for"


def test_nothing_is_mapped_after_a_wait_for_the_disk(path: Path, worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = iter([7, 7, 8])
    monkeypatch.setattr(mapped_windows, "_major_faults", lambda: next(faults))
    with opened(path) as file:
        assert file.window(0, SIZE) is not None
        assert file.window(0, SIZE) is None


class WithoutAdvice(mmap.mmap):
    """As of a kernel without ``madvise``, or of a filter of system calls that does not know it."""

    def madvise(self, *_args: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


REFUSED: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "behind a network": lambda patch: patch.setattr(mapped_windows, "_file_system", lambda _fd: NFS),
    "FUSE": lambda patch: patch.setattr(mapped_windows, "_file_system", lambda _fd: FUSE),
    "a file system that says nothing": lambda patch: patch.setattr(mapped_windows, "_file_system", lambda _fd: None),
    "another one's file, and it cannot be written": lambda patch: (
        patch.setattr(os, "geteuid", lambda: 12345),
        patch.setattr(os, "access", lambda *_args, **_options: False),
    ),
    "no call for advice": lambda patch: patch.setattr(mmap, "mmap", WithoutAdvice),
    "no call for residency": lambda patch: patch.setattr(Residency, "of", lambda *_: None),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_is_not_mapped(
    change: Callable[[pytest.MonkeyPatch], object], path: Path, worker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as file:
        assert file.window(0, SIZE) is not None
    change(monkeypatch)
    with opened(path) as file:
        assert file.window(0, SIZE) is None


def test_a_process_that_must_not_die_maps_nothing(path: Path, absent: list[tuple[int, int]]) -> None:
    with opened(path) as file:
        assert file.window(0, SIZE) is None
    with mapped_reads(allowed=True), mapped_reads(allowed=False), opened(path) as file:
        assert file.window(0, SIZE) is None


def test_a_file_that_a_broker_appends_to_is_not_mapped(path: Path, worker: None) -> None:
    with opened(path, may_grow=True) as file:
        assert file.window(0, SIZE) is None


def test_a_rate_of_bytes_a_second_is_kept_by_reading(path: Path, worker: None) -> None:
    with limited_io(IoLimits(bytes_per_second=1 << 30)), opened(path) as file:
        assert file.window(0, SIZE) is None


def test_another_one_may_map_what_he_may_write(path: Path, worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(os, "access", lambda _path, mode, **_options: mode == os.W_OK)
    with opened(path) as file:
        assert file.window(0, SIZE) is not None


def test_a_change_shows_at_the_end_although_nothing_was_read(path: Path, worker: None) -> None:
    file = opened(path)
    with contextlib.closing(file):
        window = file.window(0, SIZE)
        assert window is not None
        with path.open("r+b") as other:
            other.write(bytes([window[0] ^ 1]))
        with pytest.raises(ChangedFileError):
            file.check_unchanged()


def test_a_deadline_holds_for_windows(path: Path, worker: None) -> None:
    with pytest.raises(DeadlinePassedError), opened(path, deadline=0.0) as file:
        file.window(0, SIZE)


def test_the_file_system_of_this_place_has_a_number(path: Path) -> None:
    with path.open("rb") as file:
        assert mapped_windows._file_system(file.fileno())


def test_the_faster_call_counts_the_same_pages(path: Path) -> None:
    """Whatever is in memory at the moment. A kernel without the call, or that does not tell, gives None."""
    with path.open("rb") as file:
        for begin, count in ((0, SIZE), (mmap.PAGESIZE * 3, 10 * mmap.PAGESIZE), (0, 1)):
            found = cached_pages(file.fileno(), begin, count)
            if found is None:
                continue
            residency = Residency.of(file.fileno(), SIZE)
            assert residency is not None
            pages = -(-count // mmap.PAGESIZE)
            absent = sum(-(-length // mmap.PAGESIZE) for _, length in residency.absent(begin, count))
            assert found == pages - absent
            residency.close()


def test_all_pages_by_the_faster_call_are_enough(path: Path, worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Residency, "absent", lambda *_: [(0, SIZE)])
    with opened(path) as file:
        assert file.window(0, SIZE) is None
        monkeypatch.setattr(mapped_windows, "cached_pages", lambda _fd, _begin, count: count // mmap.PAGESIZE)
        assert file.window(0, SIZE) is not None
        monkeypatch.setattr(mapped_windows, "cached_pages", lambda _fd, _begin, count: count // mmap.PAGESIZE - 1)
        assert file.window(0, SIZE) is None
