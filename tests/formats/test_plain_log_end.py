"""The walk of a small segment in plain Python: it gives what the grammar gives, or leaves the segment to the other reader."""

import pytest
from budgets import FEWER_EXAMPLES
from header_engines import read_reference, segment
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONTROL, GeneratedLog, batch_of, header_of, logs

from formats.log.batch_headers import TailKind
from formats.log.batch_walk import plain_log_end

DATA = GeneratedLog(tuple(batch_of(header_of(offset), b"payload" * offset) for offset in range(3)))


@settings(max_examples=FEWER_EXAMPLES // 4)
@given(log=logs(start=5, max_batches=12), edit=st.none() | st.tuples(st.integers(0, 10**6), st.integers(0, 255)))
def test_any_log_and_any_changed_byte(log: GeneratedLog, edit: tuple[int, int] | None) -> None:
    data = bytearray(log.data)
    if edit is not None and data:
        data[edit[0] % len(data)] = edit[1]
    found = plain_log_end(data)
    expected = read_reference(segment(bytes(data)))
    if found is not None:
        last = expected.headers[-1]
        assert found == (last.base_offset + last.last_offset_delta + 1, expected.positions[-1])
        assert expected.tail.kind is TailKind.CLEAN
    else:
        is_plain = all(header.magic == 2 and not header.is_control for header in expected.headers)
        assert edit is not None or not expected.headers or not is_plain


def test_a_segment_without_anything_unusual() -> None:
    assert plain_log_end(DATA.data) == (3, DATA.positions[-1])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        DATA.data[:-1],
        DATA.data + b"\0",
        DATA.data + bytes(100),
        DATA.data + batch_of(header_of(3, attributes=CONTROL), b"").data,
    ],
    ids=["empty", "torn", "one byte more", "preallocated", "control batch"],
)
def test_what_it_leaves_to_the_other_reader(data: bytes) -> None:
    assert plain_log_end(data) is None
