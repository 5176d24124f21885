"""The dtype that is derived from a grammar lies on the same bytes."""

from __future__ import annotations

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
    Int16ub,
    Int24ub,
    Int32ub,
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


def test_each_integer_has_its_width_and_sign() -> None:
    grammar = Struct("a" / INT8, "b" / INT16, "c" / INT32, "d" / INT64, "e" / UINT16, "f" / UINT32, "g" / Int8ub, "h" / Int64ub)
    dtype = dtype_of(grammar)
    assert dtype == np.dtype(
        [("a", "i1"), ("b", ">i2"), ("c", ">i4"), ("d", ">i8"), ("e", ">u2"), ("f", ">u4"), ("g", "u1"), ("h", ">u8")]
    )
    assert dtype.itemsize == 1 + 2 + 4 + 8 + 2 + 4 + 1 + 8


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


def test_a_field_that_moves_in_the_grammar_moves_in_the_dtype() -> None:
    data = bytes.fromhex("00000001 0002")
    before = Struct("wide" / INT32, "narrow" / INT16)
    after = Struct("narrow" / INT16, "wide" / INT32)
    for grammar, wide, narrow in ((before, 1, 2), (after, 0x00010002, 0)):
        row = np.frombuffer(data, dtype_of(grammar))[0]
        parsed = grammar.parse(data)
        assert (row["wide"], row["narrow"]) == (parsed.wide, parsed.narrow) == (wide, narrow)


@pytest.mark.parametrize(
    "grammar",
    [
        Struct("a" / Int16sl),
        Struct("a" / Int24ub),
        Struct("a" / VarInt),
        Struct("a" / GreedyBytes),
        Struct("n" / INT8, "a" / Bytes(this.n)),
        Struct("n" / INT8, "a" / Array(this.n, INT8)),
        INT32,
    ],
    ids=["little endian", "three bytes", "varint", "greedy", "bytes of a variable length", "variable array", "no struct"],
)
def test_what_numpy_cannot_view_is_refused(grammar: object) -> None:
    with pytest.raises(TypeError):
        dtype_of(grammar)


INTEGERS = {INT8: (8, True), INT16: (16, True), INT32: (32, True), INT64: (64, True), Int16ub: (16, False), Int32ub: (32, False)}


@given(st.lists(st.sampled_from(list(INTEGERS)), min_size=1, max_size=12), st.data())
def test_construct_and_numpy_read_the_same_values(kinds: list[object], data: st.DataObject) -> None:
    grammar = Struct(*(f"f{index}" / kind for index, kind in enumerate(kinds)))
    raw = data.draw(st.binary(min_size=grammar.sizeof(), max_size=grammar.sizeof()))
    dtype = dtype_of(grammar)
    assert dtype.itemsize == grammar.sizeof()
    parsed = grammar.parse(raw)
    assert np.frombuffer(raw, dtype)[0].item() == tuple(parsed[f"f{index}"] for index in range(len(kinds)))


def test_default_is_looked_through() -> None:
    assert dtype_of(Struct("a" / Default(Int64sb, -1))) == np.dtype([("a", ">i8")])
