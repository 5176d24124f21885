"""The dtype that is derived from a grammar covers the same bytes."""

import numpy as np
import pytest
from construct import (
    Array,
    Bytes,
    Const,
    Default,
    GreedyBytes,
    Int8ub,
    Int16sb,
    Int16sl,
    Int24ub,
    Int64sb,
    Int64ub,
    Padding,
    Struct,
    VarInt,
    this,
)
from hypothesis import given
from hypothesis import strategies as st

from formats.layout import dtype_of
from formats.primitives import INT8, INT16, INT32, INT64, UINT16, UINT32


def test_reads_hand_computed_bytes() -> None:
    grammar = "entry" / Struct(
        "version" / Const(1, INT16), Padding(1), "inner" / Struct("x" / INT8, "raw" / Bytes(3)), "list" / Array(2, Int16sb)
    )
    data = bytes.fromhex("0001 ff fe 410000 0102 fffe") * 2
    records = np.frombuffer(data, dtype_of(grammar))
    assert len(records) == 2
    row = records[1]
    assert row["version"] == 1
    assert row["inner"]["x"] == -2
    assert row["inner"]["raw"].tobytes() == b"A\0\0"
    assert row["list"].tolist() == [0x0102, -2]


@pytest.mark.parametrize(
    "grammar",
    [
        Struct("a" / Int16sl),
        Struct("a" / Int24ub),
        Struct("a" / VarInt),
        Struct("a" / GreedyBytes),
        Struct("n" / INT8, "a" / Bytes(this.n)),
        INT32,
    ],
    ids=["little endian", "three bytes", "varint", "greedy", "bytes of a variable length", "no struct"],
)
def test_what_numpy_cannot_view_is_refused(grammar: object) -> None:
    with pytest.raises(TypeError):
        dtype_of(grammar)


INTEGERS = [INT8, INT16, INT32, INT64, UINT16, UINT32, Int8ub, Int64ub, Default(Int64sb, -1)]


@given(st.lists(st.sampled_from(INTEGERS), min_size=1, max_size=12), st.data())
def test_construct_and_numpy_read_the_same_values(kinds: list[object], data: st.DataObject) -> None:
    grammar = Struct(*(f"f{index}" / kind for index, kind in enumerate(kinds)))
    raw = data.draw(st.binary(min_size=grammar.sizeof(), max_size=grammar.sizeof()))
    dtype = dtype_of(grammar)
    assert dtype.itemsize == grammar.sizeof()
    parsed = grammar.parse(raw)
    assert np.frombuffer(raw, dtype)[0].item() == tuple(parsed[f"f{index}"] for index in range(len(kinds)))
