"""Objects read in ranges, several ahead: the bytes are those of the object, and nothing is asked for in vain."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snaprebuild.storage import object_bytes
from snaprebuild.storage.object_bytes import ObjectBytes
from snaprebuild.storage.store import FileIdentity

RANGE, SMALL = 64, 8
SIZE = 1000
CONTENT = bytes((7 * place + place // 256) % 256 for place in range(SIZE))


@pytest.fixture(autouse=True, scope="module")
def _small_ranges() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_bytes, "RANGE_BYTES", RANGE)
        patch.setattr(object_bytes, "SMALL_RANGE_BYTES", SMALL)
        yield


def opened(asked: list[tuple[int, int]], buffers: dict[int, object] | None = None) -> ObjectBytes:
    """The object; what is asked of its store is noted."""
    lock = threading.Lock()

    def fetch(position: int, buffer: memoryview, given_up: threading.Event) -> None:
        with lock:
            asked.append((position, position + len(buffer)))
            if buffers is not None:
                buffers[id(buffer.obj)] = buffer.obj  # kept, so that no other gets its id
        buffer[:] = CONTENT[position : position + len(buffer)]

    return ObjectBytes("s3://b/k", FileIdentity(SIZE, 0, 0, '"e"'), fetch, None)


def read(source: ObjectBytes, position: int, count: int) -> bytes:
    """So many bytes, or fewer at the end."""
    buffer = bytearray(count)
    return bytes(buffer[: source.read_into(position, memoryview(buffer))])


@given(st.lists(st.tuples(st.integers(0, SIZE + 10), st.integers(1, 300)), max_size=20), st.integers(0, SIZE))
def test_any_reads_give_the_bytes_of_the_object(reads: list[tuple[int, int]], stop: int) -> None:
    """Forward, back, small and large, also behind the place where the reader said it would stop."""
    with opened([]) as source:
        source.will_stop_at(stop)
        for position, count in reads:
            assert read(source, position, count) == CONTENT[position : position + count]


def test_nothing_is_fetched_behind_the_place_where_the_reader_stops() -> None:
    """Each byte before it once."""
    asked: list[tuple[int, int]] = []
    with opened(asked) as source:
        source.will_stop_at(500)
        for position in range(100, 500, 40):
            read(source, position, 40)
    assert sorted(asked) == [(at, min(at + RANGE, 500)) for at in range(100, 500, RANGE)]


def test_a_reader_that_goes_forward_takes_few_buffers() -> None:
    """As many as it may hold ranges."""
    buffers: dict[int, object] = {}
    with opened([], buffers) as source:
        found = b"".join(read(source, position, 40) for position in range(0, SIZE, 40))
    assert found == CONTENT
    assert len(buffers) <= object_bytes.HELD_MAX + 1  # the last range is shorter
