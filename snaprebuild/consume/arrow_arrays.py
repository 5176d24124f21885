"""Arrays of Arrow from columns of numpy.

``pa.array`` and ``pa.scalar`` import pandas where it is installed, which takes 0.2 s and 40 MB in each process: of Spark, some for each
query. Nothing here does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

__all__ = ["flags", "numbers", "one_row", "repeated", "texts"]


def numbers(column: np.ndarray, is_null: np.ndarray | None = None, kind: pa.DataType | None = None) -> pa.Array:
    """Integers.

    Args:
        column: of the integers, in the byte order of this machine.
        is_null: bool of the same length; None for no nulls.
        kind: of the array, as wide as the integers; None for integers.
    """
    values = np.ascontiguousarray(column)
    nulls = None if is_null is None or not is_null.any() else _bits(~is_null)
    return pa.Array.from_buffers(kind or pa.from_numpy_dtype(values.dtype), len(values), [nulls, pa.py_buffer(values)])


def flags(column: np.ndarray) -> pa.Array:
    """Booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(column), [None, _bits(column)])


def _bits(column: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(column, bitorder="little"))


def texts(values: Sequence[str]) -> pa.Array:
    """Strings."""
    coded = [value.encode() for value in values]
    ends = np.array([0, *accumulate(map(len, coded))], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(coded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(coded))])


def repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    """A value again and again.

    Args:
        value: a string or an integer, as the array has them; None for nulls.
        kind: of the array.
        count: how often.
    """
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, str):
        return texts([value]).take(numbers(np.zeros(count, dtype=np.int32)))
    return numbers(np.full(count, value, dtype=kind.to_pandas_dtype()))


def one_row(values: Mapping[str, object], schema: pa.Schema) -> pa.RecordBatch:
    """A batch with one row.

    Args:
        values: strings and integers by name; a column without one is null.
        schema: of the batch.
    """
    arrays = [repeated(values.get(field.name), field.type, 1) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
