"""Segments on a file system: read at any position, never followed elsewhere, failures named with their place."""

import contextlib
import os
from pathlib import Path

import pytest
from odd_files import ODD_KINDS, make_odd
from open_files import nothing_left_open
from sentences import CHANGED_WHILE_READ

from formats.errors import TruncatedError
from formats.log.batch_headers import HeaderReader
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.storage.local import segment_file
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.partition_dir import read_positions_hint
from snaprebuild.storage.store import FileIdentity
from snaprebuild.storage.store_path import ReadPath


def test_reading_at_any_position(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    data = bytes(range(256)) * 4
    path.write_bytes(data)
    with SegmentFile(str(path), may_grow=True) as source:
        assert (source.name, source.size_bytes) == (str(path), 1024)
        assert source.identity == FileIdentity.of(path.stat())
        for position, size in ((0, 1024), (100, 10), (1000, 24), (1000, 100), (1024, 5), (5000, 5), (0, 0)):
            buffer = bytearray(size)
            count = source.read_into(position, memoryview(buffer))
            assert bytes(buffer[:count]) == data[position : position + size]
            assert count == len(data[position : position + size])


def test_short_reads_are_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(range(100)))
    preadv = os.preadv
    monkeypatch.setattr(segment_file.os, "preadv", lambda fd, buffers, position: preadv(fd, [buffers[0][:7]], position))
    with SegmentFile(str(path), may_grow=True) as source:
        buffer = bytearray(60)
        assert source.read_into(30, memoryview(buffer)) == 60
        assert bytes(buffer) == bytes(range(30, 90))


def test_a_device_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(100))
    preadv = os.preadv

    def fails_at_50(fd: int, buffers: list[memoryview], position: int) -> int:
        if position >= 50:
            raise OSError(5, "Input/output error")
        return preadv(fd, [buffers[0][: 50 - position]], position)

    monkeypatch.setattr(segment_file.os, "preadv", fails_at_50)
    with (
        SegmentFile(str(path), may_grow=True) as source,
        pytest.raises(ReadFailedError, match="cannot be read at byte 50: Input/output error") as caught,
    ):
        source.read_into(10, memoryview(bytearray(80)))
    assert (caught.value.path, caught.value.errno) == (str(path), 5)


@pytest.mark.parametrize("kind", [*ODD_KINDS, "absent"])
def test_what_is_no_segment(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    if kind != "absent":
        make_odd(path, kind)
    with nothing_left_open(tmp_path):
        with pytest.raises(ReadFailedError) as caught:
            SegmentFile(str(path), may_grow=True)
        assert caught.value.path == str(path)


def test_it_is_closed_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(b"x")
    with nothing_left_open(tmp_path), pytest.raises(ZeroDivisionError), SegmentFile(str(path), may_grow=True):
        _ = 1 / 0


def test_a_segment_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    """Truncation by a live broker: no endless loop, and no batch is made up. What was read counts for nothing."""
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(61) * 100)
    with contextlib.closing(SegmentFile(str(path), may_grow=True)) as source:
        os.truncate(path, 30)
        with pytest.raises(TruncatedError, match="became shorter"):
            list(HeaderReader(source))
        with pytest.raises(ChangedFileError, match=CHANGED_WHILE_READ):
            source.check_unchanged()


# --- hints -----------------------------------------------------------------------------------------------------------------


def test_hints(tmp_path: Path) -> None:
    path = tmp_path / "segment.index"
    assert read_positions_hint(ReadPath(LOCAL, str(path)), 1000) is None
    path.write_bytes(b"".join(n.to_bytes(4, "big") + (n * 100).to_bytes(4, "big") for n in range(1, 20)))
    hint = read_positions_hint(ReadPath(LOCAL, str(path)), 1000)
    assert hint is not None
    assert set(hint.tolist()) <= set(range(0, 1000, 100)), "nothing outside of the segment"
    assert 500 in hint.tolist()


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_an_index_that_cannot_be_read_is_no_hint(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "segment.index"
    path.mkdir() if kind == "directory" else path.symlink_to(tmp_path)
    assert read_positions_hint(ReadPath(LOCAL, str(path)), 1000) is None


@pytest.mark.parametrize("is_append", [True, False])
def test_times_that_change_before_the_size(is_append: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's append shows this in the middle. If the size stays, the bytes that were read have changed."""
    path, pauses = tmp_path / "00000000000000000000.log", []
    path.write_bytes(bytes(100))

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if is_append and len(pauses) == 3:
            with path.open("ab") as file:
                file.write(bytes(50))

    monkeypatch.setattr(segment_file.time, "sleep", pause)
    with contextlib.ExitStack() as stack:
        if not is_append:
            stack.enter_context(pytest.raises(ChangedFileError))
        source = stack.enter_context(SegmentFile(str(path), may_grow=True))
        source.read_into(0, memoryview(bytearray(100)))
        source.note_batch(0, bytes(61))
        os.utime(path, ns=(0, 0))
    assert sum(pauses) < 0.1
    assert len(pauses) == (3 if is_append else segment_file.APPEND_CHECKS_MAX)
