"""The offsets of a partition, as its leader would answer them, in documents and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cli.result import print_text
from snaprebuild.documents import followers as doc
from snaprebuild.followers.leader_view import PartitionView
from snaprebuild.snapshots.last_stable import Known
from snaprebuild.storage.partition_names import names_of

__all__ = ["known_offset", "known_text", "print_assumed", "view_offsets", "viewed_partition"]


def known_offset(known: Known) -> doc.KnownOffset:
    """An offset with its origin."""
    return doc.KnownOffset(offset=known.value, origin=known.origin, assumed=known.is_assumed)


def viewed_partition(view: PartitionView, high_watermark: Known) -> dict[str, Any]:
    """The members of a ``ViewedPartition``."""
    return {
        **names_of(view.directory),
        "path": view.directory.path,
        "topic_id": None if view.topic_id is None else uuid_to_text(view.topic_id),
        "remote_storage": doc.RemoteStorage(
            enabled=view.has_remote, origin=view.has_remote_origin, assumed=view.has_remote_assumed
        ),
        "log_start": known_offset(view.log_start),
        "local_start": known_offset(view.local_start),
        "highest_remote": None if view.highest_remote is None else known_offset(view.highest_remote),
        "high_watermark": known_offset(high_watermark),
        "log_end": known_offset(view.log_end),
    }


def view_offsets(view: PartitionView) -> dict[str, Known | None]:
    """The offsets that tables of these verbs are made from, by name."""
    return {
        "log start": view.log_start,
        "local start": view.local_start,
        "highest remote": view.highest_remote,
        "log end": view.log_end,
    }


def known_text(known: Known | None) -> str:
    """An offset for a person, with a star where it is assumed."""
    return "-" if known is None else f"{known.value}{'*' if known.is_assumed else ''}"


def print_assumed(taken: Iterable[tuple[PartitionView, Mapping[str, Known | None]]]) -> None:
    """One line with what no file shows: of the offsets that are named, and whether remote storage is on."""
    assumed = dict[str, None]()
    for view, named in taken:
        assumed |= {f"{what} ({known.origin})": None for what, known in named.items() if known is not None and known.is_assumed}
        if view.has_remote_assumed:
            assumed[f"remote storage is {'on' if view.has_remote else 'off'} ({view.has_remote_origin})"] = None
    if assumed:
        print_text(f"* assumed: {'; '.join(assumed)}")
