"""Spark's filters, evaluated on what is known of a file before it is opened.

Filters are recognised by the names of their classes (``pyspark.sql.datasource``), which Spark 4.0 does not have yet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

__all__ = ["column_of", "holds", "may_hold"]

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
        return True if value in condition.value else None if None in condition.value else False
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
