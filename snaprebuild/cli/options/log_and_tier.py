"""Options of the verbs on a log and its remote storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import S3Options, check_directories, selection_of
from snaprebuild.cli.options.remote_storage import TierOptions, opened_tier
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.snapshots.source.source import Source
    from snaprebuild.tier.remote_partition import Tier

__all__ = [
    "LogPath",
    "OptionalStore",
    "opened_log_and_tier",
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
    from snaprebuild.snapshots.source.source import open_source, yield_to_brokers
    from snaprebuild.tier.remote_partition import open_tier

    check_directories([path, *([] if store is None else [store]), *(options.metadata_log or [])])
    if store is None and options.metadata_log:
        raise UsageError("--metadata-log belongs to a STORE: name it after PATH")
    keys = options.keys()
    source = open_source([path], None, selection_of(topic, partition, None), s3.run())
    yield_to_brokers(source)
    if store is None:
        return source, None
    root, prefix = opened_tier(store, s3, options.key_prefix)
    return source, open_tier(root, options.metadata_log or (), s3.settings(), keys, prefix, may_be_empty=True)
