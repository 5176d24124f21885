"""Options of the form ``TOPIC-PARTITION=OFFSET``: which texts name an offset, and which partitions must be in remote storage."""

import pytest

from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import UsageError
from snaprebuild.tier.named_offsets import check_named_partitions, named_offset

ONE, OTHER = bytes([1]) * 16, bytes([2]) * 16


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders-0=1151", (("orders", 0), 1151)),
        ("my.orders-2-10=0", (("my.orders-2", 10), 0)),
        ("t-2147483647=9223372036854775807", (("t", 2147483647), 9223372036854775807)),
    ],
)
def test_a_partition_and_its_offset(text: str, expected: tuple[tuple[str, int], int]) -> None:
    assert named_offset("--log-start", text) == expected


@pytest.mark.parametrize(
    "text", ["", "orders-0", "orders=5", "orders-0=", "orders-0=-1", "orders-00=5", "t-2147483648=5", "t-0=9223372036854775808"]
)
def test_a_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--log-start: expected TOPIC-PARTITION=OFFSET"):
        named_offset("--log-start", text)


def test_a_named_partition_is_in_remote_storage_under_one_id() -> None:
    there = [TopicIdPartition("a", ONE, 0), TopicIdPartition("b", ONE, 0), TopicIdPartition("b", OTHER, 0)]
    check_named_partitions("--log-start", [("a", 0)], there)
    with pytest.raises(UsageError, match="--log-start: a-1 is not in remote storage, which has a-0"):
        check_named_partitions("--log-start", [("a", 1)], there)
    with pytest.raises(UsageError, match="--log-start: b-0 has several topic ids in remote storage"):
        check_named_partitions("--log-start", [("b", 0)], there)
