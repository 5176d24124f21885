"""Options, rows and members that the verbs on a log and its remote storage share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import TierOptions, opened_tier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from snaprebuild.documents import followers as doc
    from snaprebuild.followers.leader_view import PartitionView
    from snaprebuild.snapshots.last_stable import Known
    from snaprebuild.snapshots.source.source import Source
    from snaprebuild.tier.remote_partition import Tier

__all__ = [
    "LogPath",
    "OptionalStore",
    "known_offset",
    "known_text",
    "opened_log_and_tier",
    "print_assumed",
    "view_offsets",
    "viewed_partition",
]


LogPath = Annotated[str, typer.Argument(metavar="PATH", hidden=True)]


OptionalStore = Annotated[str | None, typer.Argument(metavar="[STORE]", hidden=True)]


def opened_log_and_tier(
    path: str,
    store: str | None,
    options: TierOptions,
    topic: list[str] | None,
    partition: list[int] | None,
    s3: S3Options,
) -> tuple[Source, Tier | None]:
    """The log and the store that arguments and options ask for.

    Raises:
        UsageError: a path leads nowhere, or the key is none; or a metadata log is given, and no store.
    """
    from snaprebuild.cli.options.common import check_paths, selection_of
    from snaprebuild.errors import UsageError
    from snaprebuild.snapshots.source.source import open_source, yield_to_brokers
    from snaprebuild.tier.remote_partition import open_tier

    check_paths([path, *([] if store is None else [store]), *(options.metadata_log or [])])
    if store is None and options.metadata_log:
        raise UsageError("--metadata-log belongs to a STORE: name it after PATH")
    keys = options.keys()
    source = open_source([path], None, selection_of(topic, partition, None), s3.run())
    yield_to_brokers(source)
    if store is None:
        return source, None
    root, prefix = opened_tier(store, s3, options.key_prefix)
    return source, open_tier(root, options.metadata_log or (), s3.settings(), keys, prefix, may_be_empty=True)


def known_offset(known: Known) -> doc.KnownOffset:
    """An offset with its origin."""
    from snaprebuild.documents import followers as doc

    return doc.KnownOffset(offset=known.value, origin=known.origin, assumed=known.is_assumed)


def viewed_partition(view: PartitionView, high_watermark: Known) -> dict[str, Any]:
    """The members of a ``ViewedPartition``."""
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.documents import followers as doc
    from snaprebuild.documents.common import names_of

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
    from snaprebuild.cli.result import print_text

    assumed = dict[str, None]()
    for view, named in taken:
        assumed |= {f"{what} ({known.origin})": None for what, known in named.items() if known is not None and known.is_assumed}
        if view.has_remote_assumed:
            assumed[f"remote storage is {'on' if view.has_remote else 'off'} ({view.has_remote_origin})"] = None
    if assumed:
        print_text(f"* assumed: {'; '.join(assumed)}")
