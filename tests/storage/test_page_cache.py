"""Pages that were not in the cache are not there afterwards, and the others stay: asked of the kernel, on a file system of a
disk."""

import contextlib
import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from manifests import REPOSITORY
from resident_pages import resident_bytes

from snaprebuild.storage.io_limits import page_cache
from snaprebuild.storage.io_limits.page_cache import DontCacheReader, DroppingReader, PageReader
from snaprebuild.storage.io_limits.policy import IoLimits, current_limits, limited_io
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.store import LOCAL

MIB = 1 << 20
PAGE = mmap.PAGESIZE
Way = Callable[[int, int], PageReader]
WAYS: tuple[Way, ...] = (DontCacheReader, DroppingReader)


def drops_pages(place: Path) -> bool:
    """Whether pages can be dropped there: not where files are in memory."""
    path = place / "probe"
    path.write_bytes(bytes(MIB))
    forget(path)
    return not resident_bytes(str(path))[0]


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk: that of the test, or one in the checkout where temporary files are in memory."""
    if drops_pages(tmp_path):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix=".pages-", dir=REPOSITORY) as directory:
        if not drops_pages(Path(directory)):
            pytest.skip("the file systems of the temporary directory and of the checkout keep their pages")
        yield Path(directory)


@contextlib.contextmanager
def reading(path: Path, way: Way, size: int) -> Iterator[PageReader]:
    """A reader of a file that had this size when it was opened."""
    fd = os.open(path, os.O_RDONLY)
    reader = way(fd, size)
    yield reader
    reader.close()
    os.close(fd)


def forget(path: Path, begin: int = 0, length: int = 0) -> None:
    """Drops pages, written out before."""
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, begin, length, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def resident(path: Path) -> int:
    return resident_bytes(str(path))[0]


def file_of(path: Path, size: int) -> bytes:
    data = os.urandom(size)
    path.write_bytes(data)
    forget(path)
    return data


def read_through(reader: PageReader, size: int, block: int) -> bytes:
    found, buffer = bytearray(), memoryview(bytearray(block))
    while count := reader.read(buffer[: min(block, max(size - len(found), 1))], len(found)):
        found += buffer[:count]
    return bytes(found)


@pytest.mark.parametrize("way", WAYS)
def test_a_cold_file_stays_cold(way: Way, on_disk: Path) -> None:
    path = on_disk / "segment.log"
    for size, block in ((21 * MIB + 12345, 4 * MIB), (9 * MIB, 300_000), (5, 4096), (PAGE, PAGE)):
        data = file_of(path, size)
        assert resident(path) == 0
        with reading(path, way, size) as reader:
            assert read_through(reader, size, block) == data
        assert resident(path) == 0, (size, block)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_cached_stays_cached(way: Way, on_disk: Path) -> None:
    """The pages of a broker: the end of the file, which it has just written, and some that a consumer reads."""
    path, size = on_disk / "segment.log", 24 * MIB
    data = file_of(path, size)
    hot = ((2 * MIB, MIB), (9 * MIB, 5 * MIB), (size - 3 * MIB, 3 * MIB))
    wanted = sum(length for _, length in hot)
    for _ in range(20):  # the kernel may take pages away at any time; a reader that does so takes them each time
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no more than is asked for
        for begin, length in hot:
            for position in range(begin, begin + length, PAGE):
                os.pread(fd, PAGE, position)
        os.close(fd)
        before = resident(path)
        with reading(path, way, size) as reader:
            assert read_through(reader, size, 4 * MIB) == data
        after = resident(path)
        if after == before >= wanted:
            break
    assert wanted <= before <= 16 * MIB
    assert after == before


@pytest.mark.parametrize("way", WAYS)
def test_looking_something_up_leaves_nothing(way: Way, on_disk: Path) -> None:
    path, size = on_disk / "segment.log", 24 * MIB
    data = file_of(path, size)
    buffer = memoryview(bytearray(5000))
    with reading(path, way, size) as reader:
        for position in (17 * MIB, 3, 12 * MIB - 100, 3, size - 200, size, size + 5000):
            count = reader.read(buffer, position)
            assert bytes(buffer[:count]) == data[position : position + 5000]
    assert resident(path) == 0


def test_bytes_that_were_appended_later(tmp_path: Path) -> None:
    """A live broker appends after the size that the file had."""
    path = tmp_path / "segment.log"
    for way in WAYS:
        for before in (b"", b"x" * 5000):
            path.write_bytes(before)
            with reading(path, way, len(before)) as reader:
                with path.open("ab") as file:
                    file.write(b"more")
                assert read_through(reader, len(before) + 4, 4096) == before + b"more"


def test_a_file_that_is_truncated_meanwhile(tmp_path: Path) -> None:
    """It ends earlier; no mapping of it is touched, which would end the process."""
    path = tmp_path / "segment.log"
    for way in WAYS:
        path.write_bytes(bytes(9 * MIB))
        buffer = memoryview(bytearray(4 * MIB))
        with reading(path, way, 9 * MIB) as reader:
            assert reader.read(buffer, 0) == 4 * MIB
            os.truncate(path, MIB)
            assert reader.read(buffer, 4 * MIB) == 0
            assert reader.read(buffer, 0) == MIB


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EPERM], ids=["kernel", "filter of system calls"])
def test_a_flag_that_is_not_known(error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv, flags_seen = os.preadv, []

    def old(fd: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        flags_seen.append(flags)
        if flags:
            raise OSError(error, os.strerror(error))
        return preadv(fd, buffers, position)

    monkeypatch.setattr(page_cache.os, "preadv", old)
    path = tmp_path / "segment.log"
    data = file_of(path, 5 * MIB)
    with reading(path, DontCacheReader, len(data)) as reader:
        assert read_through(reader, len(data), MIB) == data
    assert flags_seen[:2] == [page_cache.RWF_DONTCACHE, 0]
    assert not any(flags_seen[1:])


@pytest.mark.parametrize(("release", "way"), [("6.18.4-x", DontCacheReader), ("6.15.9", DroppingReader), ("5.4.0", DroppingReader)])
def test_which_kernels_are_trusted(
    release: str, way: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x")
    monkeypatch.setattr(page_cache.os, "uname", lambda: os.uname_result(("Linux", "host", release, "", "x86_64")))
    page_cache._dontcache_is_trusted.cache_clear()
    request.addfinalizer(page_cache._dontcache_is_trusted.cache_clear)
    with reading(path, page_cache.page_reader, 1) as reader:
        assert type(reader) is way


def test_all_that_reads_files_reads_so(on_disk: Path) -> None:
    """And as any program does where no one says otherwise."""
    path = on_disk / "segment.log"
    data = file_of(path, 9 * MIB)

    def read_all() -> None:
        with SegmentFile(str(path)) as source:
            buffer = bytearray(len(data))
            assert source.read_into(0, memoryview(buffer)) == len(data)
            assert bytes(buffer) == data
        assert LOCAL.read_small(str(path), 64 * MIB) == data
        assert LOCAL.read_end(str(path), 100) == (len(data), data[-100:])

    with limited_io(IoLimits(leaves_page_cache=True)):
        read_all()
    assert resident(path) == 0
    fd = os.open(path, os.O_RDONLY)
    assert current_limits().cautious_reader(fd, 1) is None
    os.close(fd)
    read_all()
    assert resident(path) >= 9 * MIB
