"""Code that the offset, time and transaction index share: entries of one size as columns, followed by zeros.

Each index module has the grammar of one entry and the rule which entry may follow which; the numpy dtype is derived from the
grammar. The reference reader reads entry by entry with the grammar, the fast one reads all bytes at once. They give equal values
and equal errors.

Source: ``AbstractIndex``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec
import numpy as np
from construct import Struct
from numpy.typing import NDArray

from formats import limits
from formats.errors import BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.layout import dtype_of

__all__ = ["Fault", "Index", "IndexGrammar", "used_bytes"]

E = TypeVar("E")

_ZERO_BLOCK = bytes(1 << 16)


class Fault(msgspec.Struct, frozen=True):
    """Why an entry is not allowed: the field, its expected value, its actual value."""

    field: str
    expected: str
    found: int
    error: type[FormatError] = BadValueError


class Index(msgspec.Struct, Generic[E], frozen=True, eq=False):
    """The content of an index file. Iterates over its entries; ``column`` gives one field of all of them.

    Attributes:
        columns: read-only big-endian records with the field names and widths of the grammar; shape (n,).
        preallocated_bytes: zeros after the last entry. A broker allocates ``segment.index.bytes`` (10 MiB) for the active segment,
            and leaves the zeros when it is killed; it trims them when the segment is rolled or closed.
    """

    grammar: IndexGrammar[E]
    columns: NDArray[np.void]
    preallocated_bytes: int = 0

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[E]:
        return (self.grammar.make(*row) for row in self.columns.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Index):
            return NotImplemented
        return (
            # Not by identity: values cross process boundaries.
            self.grammar.what == other.grammar.what
            and self.preallocated_bytes == other.preallocated_bytes
            and self.columns.tobytes() == other.columns.tobytes()
        )

    def __hash__(self) -> int:
        return hash((self.preallocated_bytes, self.columns.tobytes()))

    def __repr__(self) -> str:
        return f"Index({self.grammar.what}, {len(self)} entries, preallocated_bytes={self.preallocated_bytes})"

    def column(self, field: str) -> NDArray[np.int64]:
        """One field of all entries as native int64; shape (n,)."""
        return self.columns[field].astype(np.int64)


class IndexGrammar(Generic[E]):
    """One index format: the grammar of its entry and the rule of its order.

    Args:
        what: name of the file's kind, for messages.
        entry: the grammar of one entry.
        make: builds the frozen value of an entry from its fields, in the order of the grammar.
        fault_of: the rule: the fault of an entry, given the one before it (None before the first).
        faulty: the same rule on columns: True for an entry at fault.
        preallocated: whether Kafka allocates the file ahead, so that zeros at its end are no entries.
    """

    def __init__(
        self,
        what: str,
        entry: Struct,
        make: Callable[..., E],
        fault_of: Callable[[E | None, E], Fault | None],
        faulty: Callable[[NDArray[np.void]], NDArray[np.bool_]],
        *,
        preallocated: bool,
    ) -> None:
        self.what = what
        self.entry = entry
        self.make = make
        self.dtype = dtype_of(entry)
        self.entry_bytes: int = self.dtype.itemsize
        self._fields = self.dtype.names or ()
        self._fault_of = fault_of
        self._faulty = faulty
        self._preallocated = preallocated

    def read(self, data: bytes | memoryview, file: str | None) -> Index[E]:
        """Reads an index at once, with numpy."""
        self._check_size(data, file)
        used = used_bytes(data, self.entry_bytes) if self._preallocated else len(data)
        columns = self.view(data, used).copy()
        at_fault = np.flatnonzero(self._faulty(columns))
        if len(at_fault):
            number = int(at_fault[0])
            previous = self.make(*columns[number - 1].item()) if number else None
            fault = self._fault_of(previous, self.make(*columns[number].item()))
            assert fault is not None, "the rule of an entry and the rule of columns disagree"
            raise self._error(fault, number, file)
        columns.flags.writeable = False
        return Index(self, columns, len(data) - used)

    def view(self, data: bytes | memoryview, used: int) -> NDArray[np.void]:
        """The whole entries within the first ``used`` bytes, as a view of ``data``; shape (n,)."""
        if used < self.entry_bytes:
            return np.empty(0, self.dtype)
        return np.frombuffer(data, self.dtype, used // self.entry_bytes)

    def _check_size(self, data: bytes | memoryview, file: str | None) -> None:
        if len(data) > limits.INDEX_BYTES_MAX:
            raise LimitExceededError(self.what, file=file, expected=f"at most {limits.INDEX_BYTES_MAX} bytes", found=len(data))
        surplus = len(data) % self.entry_bytes
        if surplus:
            raise TruncatedError(
                f"{self.what} entry",
                file=file,
                position=len(data) - surplus,
                expected=f"{self.entry_bytes} bytes",
                found=surplus,
            )

    def _error(self, fault: Fault, number: int, file: str | None) -> FormatError:
        return fault.error(
            f"{self.what} {fault.field}",
            file=file,
            position=number * self.entry_bytes,
            expected=fault.expected,
            found=fault.found,
        )


def used_bytes(data: bytes | memoryview, entry_bytes: int) -> int:
    """Bytes up to and with the last entry that is not all zero: a multiple of ``entry_bytes``, or all of ``data``."""
    view = memoryview(data).cast("B")
    end = len(view)
    # From the end in blocks, because the file is nearly always all zeros there (10 MiB of them).
    while end and view[max(0, end - len(_ZERO_BLOCK)) : end] == _ZERO_BLOCK[: min(end, len(_ZERO_BLOCK))]:
        end = max(0, end - len(_ZERO_BLOCK))
    block = bytes(view[max(0, end - len(_ZERO_BLOCK)) : end])
    last = end - len(block) + len(block.rstrip(b"\0"))
    return min(len(view), -(-last // entry_bytes) * entry_bytes)
