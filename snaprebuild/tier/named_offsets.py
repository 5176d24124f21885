"""Offsets that an option names for partitions in remote storage, ``TOPIC-PARTITION=OFFSET``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from formats.limits import INT32_MAX, INT64_MAX
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import UsageError
from snaprebuild.findings import first_of

__all__ = ["check_named_partitions", "named_offset"]

_FORM = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})=(?P<offset>[0-9]{1,19})", re.ASCII)


def named_offset(option: str, text: str) -> tuple[tuple[str, int], int]:
    """The topic and the partition that an option names, and the offset.

    Args:
        option: its name, with the hyphens.
        text: its value.

    Raises:
        UsageError: it has another form.
    """
    match = _FORM.fullmatch(text)
    if match is None or int(match["partition"]) > INT32_MAX or int(match["offset"]) > INT64_MAX:
        raise UsageError(f"{option}: expected TOPIC-PARTITION=OFFSET, as orders-0=1151, found {text!r}")
    return (match["topic"], int(match["partition"])), int(match["offset"])


def check_named_partitions(option: str, named: Iterable[tuple[str, int]], partitions: Iterable[TopicIdPartition]) -> None:
    """Makes sure that each partition that an option names is in remote storage, under one topic id.

    Args:
        option: its name, with the hyphens.
        named: topics and partitions that it names.
        partitions: all that are there.

    Raises:
        UsageError: one is not there, or its name has several topic ids.
    """
    count = Counter((each.topic, each.partition) for each in partitions)
    for topic, number in named:
        name = f"{topic}-{number}"
        if not count[topic, number]:
            there = first_of(sorted(f"{other}-{partition}" for other, partition in count))
            raise UsageError(f"{option}: {name} is not in remote storage, which has {there}")
        if count[topic, number] > 1:
            message = f"{name} has several topic ids in remote storage: use --log-dir, whose directories have the id"
            raise UsageError(f"{option}: {message}")
