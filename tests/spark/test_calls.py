"""Answers of executors contain the driver's own objects where they contain those of the argument, and copies of nothing else."""

import pytest
from manifests import FIXTURES
from msgspec.structs import replace

from snaprebuild.errors import ReadFailedError
from snaprebuild.snapshots.source.source import PartitionSource, open_source
from snaprebuild.spark import calls
from snaprebuild.spark.calls import Calls, answered, some_at_once

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
