"""The greatest timestamp of a segment, by a time index that may be anything. The entries themselves: ``test_indexes``."""

from pathlib import Path

import pytest
from fixture_files import each_broker_file
from hypothesis import given
from index_reference import read_time_index_reference
from test_indexes import LIKELY, hostile

from formats.partition.time_index import last_timestamp_hint


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", None),
        ("00" * 24, None),
        ("0000000000000005 00000001", 5),
        ("0000000000000005 00000001 0000000000000007 00000002", 7),
        ("0000000000000005 00000001 0000000000000007 00000002" + "00" * 36, 7),
        ("0000000000000005 00000001 0000000000000007 00000002 0000", 7),
        ("0000000000000005 00000001 0000000000000004 00000002 0000000000000009 00000003", 5),
        ("0000000000000005 00000002 0000000000000007 00000001", 5),
        ("ffffffffffffffff 00000001 0000000000000007 00000002", None),
        ("0000000000000005 ffffffff", None),
        ("000000000000", None),
    ],
)
def test_last_timestamp_hint(data: str, expected: int | None) -> None:
    assert last_timestamp_hint(bytes.fromhex(data)) == expected


@given(hostile(12, LIKELY["time"]))
def test_last_timestamp_hint_never_raises(data: bytes) -> None:
    hint = last_timestamp_hint(memoryview(data))
    assert hint is None or 0 <= hint < 2**63


@each_broker_file("*.timeindex", "*.timeindex.deleted")
def test_the_hint_of_a_sound_index_is_its_last_timestamp(path: Path) -> None:
    data = path.read_bytes()
    entries = list(read_time_index_reference(data))
    assert last_timestamp_hint(data) == (entries[-1].timestamp if entries else None)
