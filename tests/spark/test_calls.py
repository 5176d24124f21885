"""Answers of executors contain the driver's own objects where they contain those of the argument, and copies of nothing else."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from manifests import FIXTURES
from msgspec.structs import replace

from snaprebuild.errors import ReadFailedError
from snaprebuild.snapshots.source.source import PartitionSource, open_source
from snaprebuild.spark import calls, job
from snaprebuild.spark.calls import Calls, answered, some_at_once
from snaprebuild.spark.job import SparkEngine

pytestmark = pytest.mark.full

Pair = tuple[PartitionSource, PartitionSource]


def in_turn(pair: Pair) -> tuple[PartitionSource, str, PartitionSource, PartitionSource]:
    one, other = pair
    return other, "and", one, replace(one, relative="elsewhere")


def fails(_: Pair) -> None:
    raise ReadFailedError("no", path="/p")


def test_what_was_sent_comes_back_as_itself() -> None:
    one, other, third, *_ = open_source((str(FIXTURES / "kafka27-mixed"),)).partitions
    pairs = [(one, other), (third, one)]
    (together,) = Calls.of(in_turn, pairs, 10)
    for (first, second), found in zip(pairs, together.answers(answered(together.sent)), strict=True):
        assert found[0] is second
        assert found[2] is first
        assert found[3] == replace(first, relative="elsewhere")
        assert found[3].directory is not first.directory, "a part of another object is a copy"
    (together,) = Calls.of(fails, pairs, 10)
    assert [str(each) for each in together.answers(answered(together.sent))] == ["/p: no", "/p: no"]


def test_arguments_are_sent_together_up_to_a_number_and_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.items for each in Calls.of(str, range(5), 2)] == [[0, 1], [2, 3], [4]]
    monkeypatch.setattr(calls, "PICKLE_BYTES", 1)
    found = list(Calls.of(str, range(3), 2))
    assert [each.items for each in found] == [[0], [1], [2]]
    assert [answer for each in found for answer in each.answers(answered(each.sent))] == ["0", "1", "2"]


@pytest.mark.parametrize(("most", "sizes"), [(1, [1, 1, 1]), (25, [2, 1]), (1 << 20, [3])])
def test_calls_go_through_the_driver_some_at_once(monkeypatch: pytest.MonkeyPatch, most: int, sizes: list[int]) -> None:
    monkeypatch.setattr(calls, "CALL_BYTES_AT_ONCE", most)
    assert list(map(len, some_at_once([Calls(b"0123456789", [])] * 3))) == sizes


@pytest.mark.parametrize(("seconds", "here"), [(0.001, 100), (0.09, 100), (0.12, 5), (2.0, 1)])
def test_who_makes_the_calls(monkeypatch: pytest.MonkeyPatch, seconds: float, here: int) -> None:
    """The driver, as long as the first half second, or as long as all of them seem to take less than ten."""
    now = [0.0]
    sent: list[int] = []

    def call(item: int) -> int:
        now[0] += seconds
        return -item

    def called(_: SparkEngine, some: list[Calls]) -> list[int]:
        sent.extend(item for each in some for item in each.items)
        return [-item for each in some for item in each.items]

    monkeypatch.setattr(job, "Calls", Unpickled)
    monkeypatch.setattr("snaprebuild.spark.job.time.monotonic", lambda: now[0])
    monkeypatch.setattr(SparkEngine, "_called", called)
    assert SparkEngine(cast(Any, None)).parallel_map(call, range(100)) == [-item for item in range(100)]
    assert sent == list(range(here, 100))


class Unpickled(Calls):
    """Calls of any function, which are not sent."""

    @classmethod
    def of(cls, function: Any, items: Any, most: int) -> Iterator[Calls]:  # noqa: ARG003  as its base
        """All together."""
        yield Calls(b"", list(items))
