"""A construct ``Struct`` of fixed-size fields as a numpy record layout.

The grammar is the only definition of a layout. The fast readers derive their dtype from it at import, so a field that moves in the
grammar moves in both engines.
"""

from __future__ import annotations

import numpy as np
from construct import Array, Bytes, Const, Construct, Default, FormatField, Renamed, SizeofError, Struct

__all__ = ["dtype_of"]

# By struct code, because construct's Int32sb is ">l", which numpy reads as eight bytes.
_INTEGER_TYPES = {
    "b": "i1",
    "B": "u1",
    "h": "i2",
    "H": "u2",
    "i": "i4",
    "I": "u4",
    "l": "i4",
    "L": "u4",
    "q": "i8",
    "Q": "u8",
}


def dtype_of(grammar: Struct) -> np.dtype[np.void]:
    """Turns a Struct of fixed-size big-endian fields into the packed numpy dtype of the same bytes.

    Integer fields become ``>i1`` to ``>u8``, ``Bytes(n)`` becomes ``V<n>``, a nested Struct a nested dtype,
    ``Array(n, ...)`` a sub-array. Fields without a name (padding) are left out, their bytes stay part of the item.

    Args:
        grammar: the Struct; ``Renamed`` around it or its fields, ``Const`` and ``Default`` are looked through.

    Returns:
        A dtype with ``itemsize == grammar.sizeof()``, usable with ``numpy.frombuffer``.

    Raises:
        TypeError: a field has no fixed size, is little-endian, or is of a kind that numpy cannot view in place.
    """
    struct = _unwrapped(grammar)
    if not isinstance(struct, Struct):
        raise TypeError(f"{grammar!r} is not a Struct")
    names: list[str] = []
    formats: list[object] = []
    offsets: list[int] = []
    position = 0
    for field in struct.subcons:
        size = _size_of(field)
        if field.name:
            names.append(field.name)
            formats.append(_field_type(field))
            offsets.append(position)
        position += size
    layout = {"names": names, "formats": formats, "offsets": offsets, "itemsize": position}
    return np.dtype(layout)  # type: ignore[call-overload, no-any-return]


def _field_type(field: Construct) -> object:
    """The type of one field, in a form that numpy.dtype accepts."""
    inner = _unwrapped(field)
    if isinstance(inner, FormatField):
        order = inner.fmtstr[0]
        code = inner.fmtstr[1:]
        if code not in _INTEGER_TYPES or (order != ">" and inner.length > 1):
            raise TypeError(f"{field.name}: {inner.fmtstr!r} is not a big-endian integer")
        return ">" + _INTEGER_TYPES[code]
    if isinstance(inner, Bytes):
        # Not "S": numpy cuts trailing zero bytes off strings.
        return f"V{_size_of(field)}"
    if isinstance(inner, Struct):
        return dtype_of(inner)
    if isinstance(inner, Array):
        _size_of(field)
        return (_field_type(inner.subcon), (inner.count,))
    raise TypeError(f"{field.name}: a {type(inner).__name__} cannot be viewed in place")


def _unwrapped(field: Construct) -> Construct:
    """Takes away the wrappers that do not change a byte of the layout."""
    while isinstance(field, Renamed | Const | Default):
        field = field.subcon
    return field


def _size_of(field: Construct) -> int:
    try:
        return int(field.sizeof())
    except SizeofError:
        raise TypeError(f"{field.name}: no fixed size") from None
