"""A log and its remote storage, as the options of the verbs on followers name them."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import ConfiguredOptions
from snaprebuild.cli.runs.remote_storage import check_order, configured_store, store_access
from snaprebuild.cli.runs.run_settings import run_of, stores_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.source.source import Source, open_source, yield_to_brokers
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.tier import remote_store
from snaprebuild.tier.remote_store import Tier

__all__ = ["open_log_and_tier", "store_and_path"]


def store_and_path(places: list[str]) -> tuple[str | None, str]:
    """STORE (None without one) and PATH of the arguments ``[STORE] PATH``.

    Raises:
        UsageError: these are more than two.
    """
    if len(places) > 2:
        raise UsageError(f"expected [STORE] PATH, found {len(places)} places")
    return (places[0] if len(places) == 2 else None), places[-1]


def open_log_and_tier(
    store: str | None,
    path: str,
    options: ConfiguredOptions,
    s3: S3Options,
) -> tuple[Source, Tier | None]:
    """The log and the store that arguments and options ask for.

    Raises:
        UsageError: a path leads nowhere, or the key is none; or a metadata log is given, and no store.
    """
    if store is not None or options.server_properties is not None or options.broker_credentials:
        configured = configured_store(store, s3, options, writes=False)
        options = configured.options(options)
        s3 = configured.s3
        store = configured.location
    check_directories([*([] if store is None else [store]), path, *(options.metadata_log or [])])
    if store is None and options.metadata_log:
        raise UsageError("--metadata-log belongs to a STORE: name it before PATH")
    keys = PrivateKeys.of(options.private_key)
    source = open_source([path], None, selection_of(options), run_of(s3))
    yield_to_brokers(source)
    if store is None:
        return source, None
    check_order(store, source)
    return source, remote_store.open_tier(store_access(store, s3, options, keys), stores_of(s3), may_be_empty=True)
