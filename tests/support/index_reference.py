"""Index files entry by entry through the grammar: the reference for ``formats.partition.index_entries``, and a writer."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from construct import ConstructError

from formats import limits
from formats.errors import BadLengthError, BadValueError, LimitExceededError
from formats.partition import offset_index, time_index, transaction_index
from formats.partition.index_entries import Index, IndexGrammar


def _read(self: IndexGrammar[Any], data: bytes | memoryview, file: str | None) -> Index[Any]:
    self._check_size(data, file)
    raw = bytes(data)
    used = len(raw)
    if self._preallocated:
        used = -(-len(raw.rstrip(b"\0")) // self.entry_bytes) * self.entry_bytes
    rows: list[tuple[int, ...]] = []
    previous = None
    for number, position in enumerate(range(0, used, self.entry_bytes)):
        parsed = self.entry.parse(raw[position : position + self.entry_bytes])
        row = tuple(parsed[field] for field in self._fields)
        entry = self.make(*row)
        fault = self._fault_of(previous, entry)
        if fault is not None:
            raise self._error(fault, number, file)
        rows.append(row)
        previous = entry
    columns = np.array(rows, dtype=self.dtype)
    columns.flags.writeable = False
    return Index(self, columns, len(raw) - used)


def _write(self: IndexGrammar[Any], entries: Iterable[Any], preallocated_bytes: int) -> bytes:
    what = f"{self.what} preallocated bytes"
    if preallocated_bytes < 0 or preallocated_bytes % self.entry_bytes:
        raise BadLengthError(what, expected=f"a multiple of {self.entry_bytes}", found=preallocated_bytes)
    if preallocated_bytes > limits.INDEX_BYTES_MAX:
        raise LimitExceededError(what, expected=f"at most {limits.INDEX_BYTES_MAX}", found=preallocated_bytes)
    parts = []
    previous = None
    for number, entry in enumerate(entries):
        fault = self._fault_of(previous, entry)
        if fault is not None:
            raise self._error(fault, number, None)
        try:
            parts.append(self.entry.build({field: getattr(entry, field) for field in self._fields}))
        except ConstructError:
            position = number * self.entry_bytes
            raise BadValueError(self.what, position=position, expected="fields within their widths", found=entry) from None
        previous = entry
    return b"".join(parts) + bytes(preallocated_bytes)


def _reader(grammar: IndexGrammar[Any]) -> Callable[..., Index[Any]]:
    return lambda data, *, file=None: _read(grammar, data, file)


def _writer(grammar: IndexGrammar[Any]) -> Callable[..., bytes]:
    return lambda entries, *, preallocated_bytes=0: _write(grammar, entries, preallocated_bytes)


read_offset_index_reference, write_offset_index = _reader(offset_index._GRAMMAR), _writer(offset_index._GRAMMAR)
read_time_index_reference, write_time_index = _reader(time_index._GRAMMAR), _writer(time_index._GRAMMAR)
read_transaction_index_reference = _reader(transaction_index._GRAMMAR)
write_transaction_index = _writer(transaction_index._GRAMMAR)
