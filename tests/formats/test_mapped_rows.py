"""Headers from a mapping are those of the usual reader, whatever the segment, the windows and a writer meanwhile do."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from header_engines import hints, read_fast, read_reference
from log_dirs import batch, marker

from formats.errors import FormatError
from formats.log import mapped_rows
from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.log.batch_rows import gather

LARGE = 9_000
"""Bytes of a payload: large enough for a mapping."""


@dataclass
class Mapped:
    """A segment in memory, of which windows are given: of a copy, which may change."""

    data: bytes
    window_bytes: int = 1 << 30
    resident_bytes: int = 1 << 30
    name: str = "segment"
    copies: list[bytearray] = field(default_factory=list)
    was_read: set[int] = field(default_factory=set)

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        self.was_read |= {position_bytes} if len(buffer) else set()
        return BytesSegment(self.data).read_into(position_bytes, buffer)

    def window(self, position_bytes: int, count: int) -> memoryview | None:
        end = min(position_bytes + min(count, self.window_bytes), self.resident_bytes)
        if end <= position_bytes:
            return None
        self.copies.append(bytearray(self.data[position_bytes:end]))
        return memoryview(self.copies[-1])


def large_batches(count: int) -> list[bytes]:
    """Data of three producers, and a marker after each fourth batch."""
    parts = []
    for at in range(count):
        parts.append(batch(2 * at, producer_id=at % 3, sequence=at, payload_bytes=LARGE + 37 * at, attributes=0x10 * (at % 3 == 0)))
        if at % 4 == 3:
            parts.append(marker(2 * at + 1, 0, commit=at % 8 == 3, coordinator_epoch=at))
    return parts


BATCHES = large_batches(60)
DATA = b"".join(BATCHES)
POSITIONS = np.cumsum([0, *map(len, BATCHES[:-1])]).tolist()


def assert_same(source: Mapped, **options: object) -> None:
    found = read_fast(source, **options)
    assert found == read_reference(BytesSegment(source.data))


@pytest.mark.parametrize("window_bytes", [LARGE // 2, 12_000, 100_000, 1 << 30])
@pytest.mark.parametrize("hint", [None, hints(POSITIONS[::2]), hints([at + 1 for at in POSITIONS])], ids=["no", "right", "wrong"])
def test_windows_of_any_size_with_any_hint(window_bytes: int, hint: np.ndarray | None) -> None:
    source = Mapped(DATA, window_bytes)
    assert_same(source, hint=hint)
    assert source.copies


def test_only_the_end_is_read_where_all_is_in_memory() -> None:
    source = Mapped(DATA)
    assert_same(source)
    assert min(source.was_read) >= POSITIONS[-2]


@pytest.mark.parametrize("resident_bytes", [0, 5_000, len(DATA) // 2])
def test_what_is_not_in_memory_is_read(resident_bytes: int) -> None:
    source = Mapped(DATA, resident_bytes=resident_bytes)
    assert_same(source, block_bytes=50_000)
    assert min(source.was_read) <= resident_bytes


def late_windows(source: Mapped, times: int) -> Mapped:
    """It gives none when it is asked for the first times."""
    window, asked = source.window, []

    def not_at_first(position_bytes: int, count: int) -> memoryview | None:
        asked.append(position_bytes)
        return None if len(asked) <= times else window(position_bytes, count)

    source.window = not_at_first  # type: ignore[method-assign]
    return source


def test_after_a_part_that_was_read_windows_are_asked_for_again() -> None:
    source = late_windows(Mapped(DATA), 4)
    assert_same(source, block_bytes=50_000)
    assert len(source.copies) == 1


@pytest.mark.parametrize("late", [0, 4])
@pytest.mark.parametrize("window_bytes", [30_000, 1 << 30])
def test_each_byte_counts_once(window_bytes: int, late: int) -> None:
    reader = HeaderReader(late_windows(Mapped(DATA, window_bytes), late), block_bytes=50_000)
    assert sum(map(len, reader)) == len(POSITIONS)
    assert reader.bytes_read == len(DATA)


def test_small_batches_are_read() -> None:
    source = Mapped(b"".join(batch(at, producer_id=1, sequence=at, payload_bytes=300) for at in range(2_000)))
    assert_same(source, block_bytes=100_000)
    assert len(source.copies) == 1, "asked once"
    assert min(source.was_read) == 0


def test_checksums_are_of_bytes_that_were_read() -> None:
    source = Mapped(DATA)
    assert read_fast(source, check_crc=True).bad_crc == []
    assert not source.copies


def with_magic(magic: int) -> bytes:
    """A large batch that says it is of this magic."""
    data = bytearray(batch(3_000, payload_bytes=LARGE))
    data[16] = magic
    return bytes(data)


ENDS = {
    "torn": DATA[:-100],
    "torn in a header": DATA + batch(1_000)[:30],
    "zeros": DATA + bytes(40_000),
    "a bad magic": DATA + b"\0" * 16 + b"\7" + bytes(20_000) + DATA,
    "a negative length": DATA + b"\xff" * 61 + DATA,
    "another magic in a whole batch": DATA + with_magic(7) + DATA,
    "a message of magic 1": with_magic(1) + DATA,
    "an odd marker": DATA + batch(5_000, producer_id=5, attributes=0x30, payload_bytes=LARGE) + DATA,
}


@pytest.mark.parametrize("data", ENDS.values(), ids=ENDS)
def test_any_end(data: bytes) -> None:
    for window_bytes in (50_000, 1 << 30):
        assert_same(Mapped(data, window_bytes))


@pytest.mark.parametrize("when", ["before the copy", "after the copy"])
def test_a_change_between_two_looks(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A length changes after it was followed. Either the copy has the old one, or its chain is broken and the batches are read."""
    source = Mapped(DATA)

    def changing(buffer: np.ndarray, offsets: np.ndarray, dtype: np.dtype[np.void]) -> np.ndarray:
        def change() -> None:
            source.copies[-1][POSITIONS[7] + 9] ^= 0x55

        rows = None if when == "before the copy" else gather(buffer, offsets, dtype)
        change()
        return gather(buffer, offsets, dtype) if rows is None else rows

    monkeypatch.setattr(mapped_rows, "gather", changing)
    assert_same(source)
    assert (min(source.was_read) == 0) == (when == "before the copy")


@pytest.mark.parametrize("length", [0, 1 << 30], ids=["none", "beyond the end"])
def test_the_first_length_changes_after_the_sample(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch is left then, and the segment is read."""
    walk, source = mapped_rows.walk_by_length, Mapped(DATA)

    def changing(window: memoryview, *options: int, most: int | None = None) -> tuple[np.ndarray, int, FormatError | None]:
        found = walk(window, *options, most=most)
        window[8:12] = length.to_bytes(4, "big")
        return found

    monkeypatch.setattr(mapped_rows, "walk_by_length", changing)
    assert_same(source)
    assert source.was_read
