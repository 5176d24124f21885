"""Spark's filters, evaluated on what is known of a file before it is opened.

Filters are recognised by the names of their classes (``pyspark.sql.datasource``), which Spark 4.0 does not have yet.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Sequence
from typing import Any

from snaprebuild.consume.record_query import TimeBounds

__all__ = ["column_of", "holds", "may_hold", "time_bounds"]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}
_OTHERS = {"EqualNullSafe", "In", "IsNull", "IsNotNull"}


def column_of(condition: Any) -> str | None:
    """The column of a filter; None if the filter is not understood."""
    kind = type(condition).__name__
    if kind == "Not":
        return column_of(condition.child)
    if kind not in _COMPARISONS and kind not in _OTHERS:
        return None
    return condition.attribute[0] if len(condition.attribute) == 1 else None


def holds(condition: Any, value: Any) -> bool | None:
    """Whether an understood filter holds for a value: one of the three answers of SQL, None for unknown."""
    kind = type(condition).__name__
    if kind == "Not":
        answer = holds(condition.child, value)
        return None if answer is None else not answer
    if kind == "IsNull":
        return value is None
    if kind == "IsNotNull":
        return value is not None
    if kind == "EqualNullSafe":
        return bool(value == condition.value)
    if value is None:
        return None
    if kind == "In":
        if value in condition.value:
            return True
        return None if None in condition.value else False
    return None if condition.value is None else _COMPARISONS[kind](value, condition.value)


def may_hold(condition: Any, low: int, high: int) -> bool:
    """Whether an understood filter may hold for a number from ``low`` to ``high``, both included."""
    kind = type(condition).__name__
    if low == high:
        return holds(condition, low) is True
    if kind in ("EqualTo", "EqualNullSafe", "In"):
        values = condition.value if kind == "In" else (condition.value,)
        return any(value is not None and low <= value <= high for value in values)
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return holds(condition, high) is True
    if kind in ("LessThan", "LessThanOrEqual"):
        return holds(condition, low) is True
    return kind != "IsNull"


def time_bounds(filters: Sequence[Any], column: str) -> TimeBounds:
    """The bounds that filters set for the timestamps of a column, rounded outwards to ms; filters that set none are left out."""
    least: list[int] = []
    most: list[int] = []
    for condition in filters:
        if column_of(condition) != column:
            continue
        kind = type(condition).__name__
        values = list(condition.value) if kind == "In" else [getattr(condition, "value", None)]
        moments = [_microseconds(value) for value in values if value is not None]
        known = [each for each in moments if each is not None]
        if not known or len(known) < len(moments):
            continue
        if kind in ("EqualTo", "EqualNullSafe", "In", "GreaterThan", "GreaterThanOrEqual"):
            least.append(min(known) // 1000)
        if kind in ("EqualTo", "EqualNullSafe", "In", "LessThan", "LessThanOrEqual"):
            most.append(-(-max(known) // 1000))
    return TimeBounds(max(least, default=None), min(most, default=None))


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _microseconds(value: Any) -> int | None:
    """A moment as microseconds since 1970; None for a value that is none, or has no time zone."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // datetime.timedelta(microseconds=1)
