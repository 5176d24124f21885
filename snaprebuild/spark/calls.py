"""Calls of a function on executors, as pickles, whose answers refer to what the driver has already.

A plan contains the listing of its partition, which the driver has sent. If it came back as a copy, the driver would hold both: several
gigabytes for a million segments. Calls that are sent together share what their arguments have in common.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from snaprebuild.snapshots.engine.partition_task import to_domain_error
from snaprebuild.snapshots.plan.plan_model import PartitionPlan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.spark.packing import in_turns
from snaprebuild.storage.store import ReadStore
from snaprebuild.storage.store_path import store_of
from snaprebuild.storage.thread_pool import local_map

__all__ = ["Calls", "answered", "some_at_once", "sources_of", "stores_of"]

CALL_BYTES_AT_ONCE = 32 << 20
"""Calls and their arguments that go through the driver at once: some ten thousand partitions."""

PICKLE_BYTES = 1 << 20
"""Calls that are pickled together: up to this size, or one."""

SENT_ONCE = PartitionSource, PartitionPlan
"""Arguments, or parts of them, that an answer refers to if it contains the same objects."""


def _references(item: object) -> Iterator[object]:
    """The objects of these classes in an argument, which may be in a tuple or a struct; in the same order wherever it is."""
    if isinstance(item, SENT_ONCE):
        yield item
    parts: Iterable[Any] = (
        item if isinstance(item, tuple) else (getattr(item, name) for name in getattr(item, "__struct_fields__", ()))
    )
    for part in parts:
        if isinstance(part, SENT_ONCE):
            yield from _references(part)


def sources_of(item: object) -> Iterator[PartitionSource]:
    """The partitions in an argument."""
    for each in _references(item):
        source = each.source if isinstance(each, PartitionPlan) else each
        assert isinstance(source, PartitionSource), "there are two classes of references"
        yield source


def stores_of(item: object) -> Iterator[ReadStore]:
    """The stores of the partitions in an argument, and of its request."""
    for source in sources_of(item):
        yield source.directory.store
    for name in getattr(item, "__struct_fields__", ()):
        part = getattr(item, name)
        if isinstance(part, RebuildRequest) and part.out is not None:
            yield store_of(part.out, part.s3)


class _Pickler(pickle.Pickler):
    """Puts numbers in place of objects that the other side has."""

    def __init__(self, file: io.BytesIO, references: Iterable[object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(each): number for number, each in enumerate(references)}

    def persistent_id(self, obj: object) -> int | None:
        """The number of an object that both sides have; None to pickle it (``pickle.Pickler``)."""
        return self._numbers.get(id(obj)) if isinstance(obj, SENT_ONCE) else None


class _Unpickler(pickle.Unpickler):
    """Puts the objects of the arguments in place of references."""

    def __init__(self, file: io.BytesIO, references: list[object]) -> None:
        super().__init__(file)
        self._references = references

    def persistent_load(self, pid: int) -> object:
        """The object with a number (``pickle.Unpickler``)."""
        return self._references[pid]


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one function that are sent together, on the driver.

    Attributes:
        sent: the function, and its arguments one after the other.
        items: the arguments.
    """

    sent: bytes
    items: list[Any]

    @classmethod
    def of(cls, function: Callable[[Any], object], items: Iterable[Any], most: int) -> Iterator[Calls]:
        """The calls with each of these arguments, at most ``most`` of them together."""
        file = io.BytesIO()
        some: list[Any] = []
        for item in items:
            if not some:
                file = io.BytesIO()
                pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
                pickler.dump(function)
            pickler.dump(item)
            some.append(item)
            if len(some) >= most or file.tell() >= PICKLE_BYTES:
                yield cls(file.getvalue(), some)
                some = []
        if some:
            yield cls(file.getvalue(), some)

    def answers(self, sent: bytes) -> list[Any]:
        """The results in order, or the exceptions that were raised, from what ``answered`` gave."""
        unpickler = _Unpickler(io.BytesIO(sent), [each for item in self.items for each in _references(item)])
        return [unpickler.load() for _ in self.items]


def answered(sent: bytes) -> bytes:
    """Makes the calls of a task."""
    file = io.BytesIO(sent)
    unpickler = pickle.Unpickler(file)  # noqa: S301  made by our own driver
    function = unpickler.load()
    items: list[Any] = []
    while file.tell() < len(sent):
        items.append(unpickler.load())
    references = [each for item in items for each in _references(item)]
    stores = (each.directory.store for each in references if isinstance(each, PartitionSource))

    def call(item: Any) -> Any:
        try:
            return function(item)
        except Exception as error:  # raised by the driver, as if it had been called there
            return to_domain_error(error)

    answer = io.BytesIO()
    pickler = _Pickler(answer, references)
    for each in local_map(stores)(call, items):
        pickler.dump(each)
    return answer.getvalue()


def some_at_once(calls: Iterable[Calls]) -> Iterator[list[Calls]]:
    """The calls in turns that are not large."""
    return in_turns(calls, CALL_BYTES_AT_ONCE, lambda each: len(each.sent))
