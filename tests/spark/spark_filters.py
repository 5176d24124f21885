"""The filters that Spark passes to a data source since 4.1.

Earlier releases lack these classes. There each name is a class with the same attributes.
Readers recognise filters by the names of their classes. So the tests of readers run with every release that has data sources.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

from pyspark.sql import datasource

__all__ = [
    "EqualNullSafe",
    "EqualTo",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "IsNotNull",
    "IsNull",
    "LessThan",
    "LessThanOrEqual",
    "Not",
    "StringContains",
    "StringEndsWith",
    "StringStartsWith",
]


def _filter(name: str, *attributes: str) -> Any:
    own = getattr(datasource, name, None)
    return own if own is not None else make_dataclass(name, attributes, frozen=True)


EqualNullSafe = _filter("EqualNullSafe", "attribute", "value")
EqualTo = _filter("EqualTo", "attribute", "value")
GreaterThan = _filter("GreaterThan", "attribute", "value")
GreaterThanOrEqual = _filter("GreaterThanOrEqual", "attribute", "value")
In = _filter("In", "attribute", "value")
IsNotNull = _filter("IsNotNull", "attribute")
IsNull = _filter("IsNull", "attribute")
LessThan = _filter("LessThan", "attribute", "value")
LessThanOrEqual = _filter("LessThanOrEqual", "attribute", "value")
Not = _filter("Not", "child")
StringContains = _filter("StringContains", "attribute", "value")
StringEndsWith = _filter("StringEndsWith", "attribute", "value")
StringStartsWith = _filter("StringStartsWith", "attribute", "value")
