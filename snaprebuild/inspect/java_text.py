"""Texts as the Java and Scala classes of Kafka's tools write them: JSON of Jackson, floating-point numbers, and the order of hash tables.

Source: ``com.fasterxml.jackson.core.io.JsonStringEncoder``, ``java.lang.Double.toString``, ``java.lang.String.hashCode``,
``scala.collection.mutable.HashSet`` and ``HashMap`` of Scala 2.13.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal
from typing import TypeVar

__all__ = ["double_text", "hash_order", "json_text", "string_hash"]

Element = TypeVar("Element", bound=Hashable)

_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}

PLAIN_FROM = 1e-3
PLAIN_BELOW = 1e7
"""The range of numbers that ``Double.toString`` writes without an exponent."""

TABLE_SIZE = 16
LOAD_FACTOR = 0.75
INT_BITS = 32
SMALL_SET = 4
"""Elements of the largest immutable ``Set`` that is no ``HashSet``."""


def json_text(value: object) -> str:
    """A value as ``JsonNode.toString`` writes it: no blanks, and no escapes but those that JSON requires.

    Args:
        value: null, a boolean, a number, a text, or a list or dict of such.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            text = double_text(value)
            return text if text[-1].isdigit() else f'"{text}"'
        case str():
            return f'"{_ESCAPED.sub(_escape, value)}"'
        case dict():
            return "{" + ",".join(f"{json_text(name)}:{json_text(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
    raise TypeError(f"no JSON value: {type(value).__name__}")


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT_ESCAPES.get(char) or f"\\u{ord(char):04X}"


def double_text(value: float) -> str:
    """The text of a float64 in Java: ``1.0``, ``1.0E10``, ``NaN``, ``-Infinity``."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if str(value).startswith("-") else ""
    size = abs(value)
    if size == float("inf"):
        return f"{sign}Infinity"
    if size == 0:
        return f"{sign}0.0"
    if PLAIN_FROM <= size < PLAIN_BELOW:
        text = format(Decimal(repr(size)), "f")
        return sign + (text if "." in text else f"{text}.0")
    _, digits, exponent = Decimal(repr(size)).normalize().as_tuple()
    assert isinstance(exponent, int)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{sign}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


def string_hash(text: str) -> int:
    """``String.hashCode``: a signed number of 32 bits, of the UTF-16 units of the text."""
    data = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        result = (31 * result + (high << 8 | low)) & 0xFFFFFFFF
    return signed(result)


def signed(number: int) -> int:
    """The low 32 bits of a number as a Java int."""
    number &= 0xFFFFFFFF
    return number - (1 << INT_BITS) if number >> (INT_BITS - 1) else number


def hash_order(groups: Iterable[Sequence[Element]], hash_of: Callable[[Element], int]) -> list[Element]:
    """The order in which a mutable ``HashSet`` of Scala yields elements that were added to it with ``addAll``.

    The keys of a mutable ``HashMap`` that were put there one by one have the order of as many groups of one element.

    Args:
        groups: the elements of each call, as an immutable ``Set`` of Scala has them.
        hash_of: ``hashCode`` of an element.
    """
    table = TABLE_SIZE
    hashes: dict[Element, int] = {}
    for group in groups:
        elements = dict.fromkeys(group)
        table = max(table, _table_size_for(int((len(elements) + 1) / LOAD_FACTOR)))
        for element in elements:
            # An immutable HashSet hands over its hashes, and the table does not grow while it takes them.
            if len(elements) <= SMALL_SET and len(hashes) + 1 >= int(table * LOAD_FACTOR):
                table *= 2
            if element not in hashes:
                code = hash_of(element) & 0xFFFFFFFF
                hashes[element] = signed(code ^ code >> 16)
    return sorted(hashes, key=lambda element: (hashes[element] & (table - 1), hashes[element]))


def _table_size_for(capacity: int) -> int:
    return 1 << max(capacity - 1, 4).bit_length()
