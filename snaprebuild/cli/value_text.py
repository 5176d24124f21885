"""Values as text for people: paths, sizes, moments, and the names of partitions in a table."""

from __future__ import annotations

import datetime
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.typed_paths import lacks_slash

if TYPE_CHECKING:
    from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["id_labels", "labels_of", "shown", "size_text", "time_text"]


def shown(path: str) -> str:
    """A path for a person: relative if it is below the working directory."""
    try:
        below = os.path.join(os.getcwd(), "")
    except OSError:
        return path  # the working directory was removed
    if below == os.sep or not path.startswith(below):
        return path
    relative = path[len(below) :]
    # It may be a word of the next command, in which it is no option, and no URL.
    if relative.startswith("-") or lacks_slash(relative):
        return f"./{relative}"
    return relative


def labels_of(partitions: Iterable[PartitionSource], topic_ids: Mapping[str, bytes | None] | None = None) -> dict[str, str]:
    """The name of each partition in a table, by its path: its name, or its path below the sources if several have that name.

    Args:
        partitions: all of the table.
        topic_ids: by path, None where it is unknown: a name with several ids is followed by the id.
    """
    partitions = list(partitions)
    names = Counter(partition.directory.topic_partition for partition in partitions)
    keys = {each.directory.path: (each.directory.name.topic, (topic_ids or {}).get(each.directory.path)) for each in partitions}
    ids = id_labels(keys.values())
    return {
        partition.directory.path: (
            partition.directory.topic_partition if names[partition.directory.topic_partition] == 1 else partition.relative
        )
        + ids.get(keys[partition.directory.path], "")
        for partition in partitions
    }


def id_labels(topics: Iterable[tuple[str, bytes | None]]) -> dict[tuple[str, bytes | None], str]:
    """The text after a partition's name in a table, where its topic's name has several ids; nothing for others.

    Args:
        topics: name and topic id (16 bytes, None where it is unknown) of all of the table.
    """
    known = {(name, topic_id) for name, topic_id in topics if topic_id is not None}
    count = Counter(name for name, _ in known)
    return {(name, topic_id): f" ({uuid_to_text(topic_id)})" for name, topic_id in known if topic_id and count[name] > 1}


def size_text(size_bytes: int) -> str:
    """A count of bytes for a person."""
    value = float(size_bytes)
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value = value / 1024
        unit = larger
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def time_text(ms: int) -> str:
    """A moment for a person, UTC; milliseconds where it has no date."""
    try:
        return f"{datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%SZ}"
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
