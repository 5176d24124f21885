"""Calls of a function on executors, as pickles, whose answers refer to what the driver has already.

A plan contains the listing of its partition, which the driver has sent. If it came back as a copy, the driver would hold both: several
gigabytes for a million segments.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from snaprebuild.snapshots.engine.partition_task import to_domain_error
from snaprebuild.snapshots.plan.plan_model import PartitionPlan
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["Call", "answered", "some_at_once"]

CALL_BYTES_AT_ONCE = 32 << 20
"""Calls and their arguments that go through the driver at once: some ten thousand partitions."""

SENT_ONCE = PartitionSource, PartitionPlan
"""Arguments, or parts of them, that an answer refers to if it contains the same objects."""


class _Pickler(pickle.Pickler):
    """Finds the objects of these classes of an argument, in the same order wherever it is pickled; or refers to them by their number."""

    def __init__(self, file: io.BytesIO, numbers: dict[int, int] | None = None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.referenced: dict[int, object] = {}
        self._numbers = numbers

    def persistent_id(self, obj: object) -> int | None:
        """The number of an object that both sides have; None to pickle it (``pickle.Pickler``)."""
        if not isinstance(obj, SENT_ONCE):
            return None
        if self._numbers is None:
            self.referenced.setdefault(id(obj), obj)
            return None
        return self._numbers.get(id(obj))


class _Unpickler(pickle.Unpickler):
    """Puts the objects of the argument in place of references."""

    def __init__(self, file: io.BytesIO, references: list[object]) -> None:
        super().__init__(file)
        self._references = references

    def persistent_load(self, pid: int) -> object:
        """The object with a number (``pickle.Unpickler``)."""
        return self._references[pid]


def _pickled(value: object) -> tuple[bytes, list[object]]:
    """The pickle of a value, and the objects of these classes inside it."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), [*pickler.referenced.values()]


@dataclass(frozen=True, slots=True)
class Call:
    """A call, on the driver.

    Attributes:
        sent: function and argument.
        kept: objects of the argument to which the answer may refer.
    """

    sent: bytes
    references: list[object]

    @classmethod
    def of(cls, function: Callable[[Any], object], item: object) -> Call:
        """The call of a function with one argument."""
        return cls(*_pickled((function, item)))

    def answer(self, sent: bytes) -> Any:
        """The result, or the exception that was raised, from what ``answered`` gave."""
        return _Unpickler(io.BytesIO(sent), self.references).load()


def answered(sent: bytes) -> bytes:
    """In a task: makes a call."""
    function, item = pickle.loads(sent)  # noqa: S301  made by our own driver
    _, references = _pickled((function, item))
    try:
        answer = function(item)
    except Exception as error:  # raised by the driver, as if it had been called there
        answer = to_domain_error(error)
    file = io.BytesIO()
    _Pickler(file, {id(each): number for number, each in enumerate(references)}).dump(answer)
    return file.getvalue()


def some_at_once(calls: Iterable[Call]) -> Iterator[list[Call]]:
    """The calls in turns that are not large."""
    some: list[Call] = []
    size_bytes = 0
    for call in calls:
        if some and size_bytes + len(call.sent) > CALL_BYTES_AT_ONCE:
            yield some
            some = []
            size_bytes = 0
        some.append(call)
        size_bytes += len(call.sent)
    if some:
        yield some
