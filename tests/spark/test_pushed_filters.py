"""Filters on what is known before a file is opened: the answers of SQL, as SQLite gives them."""

import sqlite3
from typing import Any

import pytest
import spark_filters
from hypothesis import given
from hypothesis import strategies as st

from snaprebuild.spark.pushed_filters import column_of, holds, may_hold

pytestmark = pytest.mark.full

SQL = {
    "EqualTo": "v = ?",
    "EqualNullSafe": "v IS ?",
    "GreaterThan": "v > ?",
    "GreaterThanOrEqual": "v >= ?",
    "LessThan": "v < ?",
    "LessThanOrEqual": "v <= ?",
    "IsNull": "v IS NULL",
    "IsNotNull": "v IS NOT NULL",
    # Without wildcards in the values, and with all letters small: GLOB and instr tell capitals, as Spark does.
    "StringStartsWith": "v GLOB ? || '*'",
    "StringEndsWith": "v GLOB '*' || ?",
    "StringContains": "instr(v, ?) > 0",
}
UNARY = ("IsNull", "IsNotNull")
ON_TEXT = ("StringStartsWith", "StringEndsWith", "StringContains")

NUMBERS = st.integers(-3, 6) | st.just(2**63 - 1) | st.just(-(2**63))
TEXTS = st.text("ab-.é", max_size=3)


def conditions(values: st.SearchStrategy[Any], kinds: list[str]) -> st.SearchStrategy[tuple[Any, str, list[Any]]]:
    """Filters as Spark makes them, each with the same in SQL and its values."""

    def of_kind(kind: str) -> st.SearchStrategy[tuple[Any, str, list[Any]]]:
        make = getattr(spark_filters, kind)
        if kind in UNARY:
            return st.just((make(("v",)), SQL[kind], []))
        return values.map(lambda value: (make(("v",), value), SQL[kind], [value]))

    many = st.lists(values | st.none(), min_size=1, max_size=4).map(
        lambda items: (spark_filters.In(("v",), tuple(items)), f"v IN ({', '.join('?' * len(items))})", items)
    )
    plain = st.one_of(*map(of_kind, kinds), many)
    return plain | plain.map(lambda each: (spark_filters.Not(each[0]), f"NOT ({each[1]})", each[2]))


ON_NUMBERS = conditions(NUMBERS, [kind for kind in SQL if kind not in ON_TEXT])


def sqlite_says(value: Any, statement: str, parameters: list[Any]) -> bool | None:
    with sqlite3.connect(":memory:") as connection:
        (answer,) = connection.execute(f"SELECT {statement} FROM (SELECT ? AS v)", [*parameters, value]).fetchone()
    connection.close()
    return None if answer is None else bool(answer)


@given(NUMBERS | st.none(), ON_NUMBERS)
def test_answers_on_numbers_are_those_of_sql(value: int | None, asked: tuple[Any, str, list[Any]]) -> None:
    condition, statement, parameters = asked
    assert column_of(condition) == "v"
    assert holds(condition, value) is sqlite_says(value, statement, parameters)


@given(TEXTS | st.none(), conditions(TEXTS, list(SQL)))
def test_answers_on_text_are_those_of_sql(value: str | None, asked: tuple[Any, str, list[Any]]) -> None:
    condition, statement, parameters = asked
    assert holds(condition, value) is sqlite_says(value, statement, parameters)


@given(st.integers(-4, 6), st.integers(0, 5), ON_NUMBERS)
def test_a_range_is_left_out_only_where_none_of_it_passes(low: int, width: int, asked: tuple[Any, str, list[Any]]) -> None:
    condition, statement, parameters = asked
    passing = [value for value in range(low, low + width + 1) if sqlite_says(value, statement, parameters)]
    assert may_hold(condition, low, low + width) or not passing


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (spark_filters.EqualTo(("v",), 9), False),
        (spark_filters.EqualTo(("v",), 10), True),
        (spark_filters.In(("v",), (9, 21)), False),
        (spark_filters.In(("v",), (9, 20)), True),
        (spark_filters.GreaterThan(("v",), 20), False),
        (spark_filters.GreaterThanOrEqual(("v",), 20), True),
        (spark_filters.LessThan(("v",), 10), False),
        (spark_filters.LessThanOrEqual(("v",), 10), True),
        (spark_filters.IsNull(("v",)), False),
    ],
    ids=str,
)
def test_a_range_is_left_out_where_its_ends_show_it(condition: Any, expected: bool) -> None:
    assert may_hold(condition, 10, 20) is expected


def test_what_is_not_understood_is_left_to_spark() -> None:
    class Novel:
        attribute = ("v",)

    assert column_of(Novel()) is None
    assert column_of(spark_filters.EqualTo(("a", "b"), 1)) is None
