"""Objects read in ranges, several ahead: the bytes are those of the object, and no request is useless."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snaprebuild.storage.s3 import object_bytes
from snaprebuild.storage.s3.object_bytes import ObjectBytes, ReadInto
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


def opened(asked: list[tuple[int, int]], buffers: dict[int, object] | None = None, *, fails: Sequence[int] = ()) -> ObjectBytes:
    """The object; what is asked of its store is noted.

    Args:
        asked: gets begin and end of each request.
        buffers: gets the memory that was filled.
        fails: bodies that reach these positions break off there, each once.
    """
    lock = threading.Lock()
    breaks = list(fails)

    @contextlib.contextmanager
    def body(start: int, count: int) -> Iterator[ReadInto]:
        position = start
        with lock:
            asked.append((start, start + count))

        def read_into(buffer: memoryview) -> int:
            nonlocal position
            end = min(start + count, position + min(len(buffer), 7))
            with lock:
                if buffers is not None:
                    buffers[id(buffer.obj)] = buffer.obj  # kept, so that no other gets its id
                if (at := next((each for each in breaks if position <= each < end), None)) is not None:
                    breaks.remove(at)
                    raise EOFError
            assert end > position, "asked for more than the body has"
            filled = end - position
            buffer[:filled] = CONTENT[position:end]
            position = end
            return filled

        yield read_into

    def attempted(get: Callable[[], None], _what: str) -> None:
        while True:
            with contextlib.suppress(EOFError):
                return get()

    return ObjectBytes("s3://b/k", FileIdentity(SIZE, 0, 0, '"e"'), body, attempted, None)


def read(source: ObjectBytes, position: int, count: int) -> bytes:
    """This many bytes, or fewer at the end."""
    buffer = bytearray(count)
    return bytes(buffer[: source.read_into(position, memoryview(buffer))])


@given(
    st.lists(st.tuples(st.integers(0, SIZE + 10), st.integers(1, 300)), max_size=20),
    st.integers(0, SIZE),
    st.lists(st.integers(0, SIZE), max_size=3),
)
def test_any_reads_give_the_bytes_of_the_object(reads: list[tuple[int, int]], stop: int, fails: list[int]) -> None:
    """Forward, back, small and large, also after the place where the reader said it would stop, over connections that break."""
    with opened([], fails=fails) as source:
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
    """There is one for each range that it may hold."""
    buffers: dict[int, object] = {}
    with opened([], buffers) as source:
        found = b"".join(read(source, position, 40) for position in range(0, SIZE, 40))
    assert found == CONTENT
    assert len(buffers) <= object_bytes.HELD_MAX + 1  # the last range is shorter


def test_what_is_looked_up_on_the_way_is_a_request_of_its_own() -> None:
    """A marker is read again after the reader has passed it; the ranges ahead are kept."""
    asked: list[tuple[int, int]] = []
    with opened(asked) as source:
        for position in range(0, 400, 40):
            read(source, position, 40)
            assert read(source, position + 1, SMALL) == CONTENT[position + 1 : position + 1 + SMALL]
    assert all(end - start in (RANGE, SMALL) or end == SIZE for start, end in asked)


def test_a_range_that_breaks_continues_where_it_broke() -> None:
    asked: list[tuple[int, int]] = []
    with opened(asked, fails=(100, 333)) as source:
        assert b"".join(read(source, position, 40) for position in range(0, SIZE, 40)) == CONTENT
    assert {start for start, _ in asked} == {*range(0, SIZE, RANGE), 99, 327}
