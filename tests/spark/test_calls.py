"""Answers of executors contain the driver's own objects where they contain those of the argument, and copies of nothing else."""

import pytest
from manifests import FIXTURES
from msgspec.structs import replace

from snaprebuild.errors import ReadFailedError
from snaprebuild.snapshots.source.source import PartitionSource, open_source
from snaprebuild.spark import calls
from snaprebuild.spark.calls import Call, answered, some_at_once

pytestmark = pytest.mark.full

Pair = tuple[PartitionSource, PartitionSource]


def in_turn(pair: Pair) -> tuple[PartitionSource, str, PartitionSource, PartitionSource]:
    one, other = pair
    return other, "and", one, replace(one, relative="elsewhere")


def fails(_: Pair) -> None:
    raise ReadFailedError("no", path="/p")


def test_what_was_sent_comes_back_as_itself() -> None:
    one, other, *_ = open_source((str(FIXTURES / "kafka27-mixed"),)).partitions
    call = Call.of(in_turn, (one, other))
    found = call.answer(answered(call.sent))
    assert found[0] is other
    assert found[2] is one
    assert found[3] == replace(one, relative="elsewhere")
    assert found[3].directory is not one.directory, "a part of another object is a copy"
    call = Call.of(fails, (one, other))
    assert str(call.answer(answered(call.sent))) == "/p: no"


@pytest.mark.parametrize(("most", "sizes"), [(1, [1, 1, 1]), (25, [2, 1]), (1 << 20, [3])])
def test_calls_go_through_the_driver_some_at_once(monkeypatch: pytest.MonkeyPatch, most: int, sizes: list[int]) -> None:
    monkeypatch.setattr(calls, "CALL_BYTES_AT_ONCE", most)
    assert list(map(len, some_at_once([Call(b"0123456789", [])] * 3))) == sizes
