"""Lines of many rows at once are those that the plain way gives, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from snaprebuild.cli.render.row_text import ROWS_AT_ONCE, RowText
from snaprebuild.inspect.dump_items import Words

INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = INT64 | st.integers(-1, 1) | st.builds(lambda power, more: 10**power + more, st.integers(0, 18), st.integers(-1, 1))
TYPES = [np.int64, np.int32, np.int16, np.int8, np.uint32]
WORDS = ("CreateTime", "none", "")


def plain(template: str, columns: dict[str, list[Any]]) -> str:
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "".join(template.format(**row) for row in rows)


@st.composite
def columns_of_numbers(draw: st.DrawFn, length: int) -> np.ndarray:
    kind = np.dtype(draw(st.sampled_from(TYPES)))
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    values = draw(st.lists(NUMBERS, min_size=length, max_size=length))
    return np.array([min(max(value, low), high) for value in values], dtype=kind)


@given(st.data(), st.integers(1, 40))
def test_the_lines_are_those_of_the_plain_way(data: st.DataObject, length: int) -> None:
    numbers, others = data.draw(columns_of_numbers(length)), data.draw(columns_of_numbers(length))
    codes = data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
    texts = data.draw(st.lists(st.none() | NUMBERS | st.sampled_from(["OptionalLong[7]", "x"]), min_size=length, max_size=length))
    template = "a: {a} {b}|{c}, {d}{e}\n"
    expected = plain(
        template,
        {"a": numbers.tolist(), "b": others.tolist(), "c": [WORDS[code] for code in codes], "d": texts, "e": numbers.tolist()},
    )
    words = Words(WORDS, np.array(codes, dtype=np.uint8))
    found = RowText.of(template).lines({"e": numbers, "d": texts, "c": words, "b": others, "a": numbers, "unused": [1]})
    assert found == expected


def test_more_rows_than_are_worked_on_at_once() -> None:
    numbers = np.arange(-7, 3 * ROWS_AT_ONCE)
    assert RowText.of("{n}\n").lines({"n": numbers}) == plain("{n}\n", {"n": numbers.tolist()})


def test_braces_around_anything_else_are_text() -> None:
    assert (
        RowText.of('{"item":"batch","n":{n}}\n').lines({"n": np.array([1, 20])})
        == '{"item":"batch","n":1}\n{"item":"batch","n":20}\n'
    )
