"""The remote storage that the options of a verb name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from snaprebuild.cli.begin_verb import check_file_path
from snaprebuild.cli.file_kinds import AUDIT_LEDGER, check_directories, check_kind
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import RemoteOptions
from snaprebuild.cli.runs.run_settings import stores_of
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.value_text import size_text
from snaprebuild.errors import RefusedError
from snaprebuild.findings import pluralize
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys, split_private_key
from snaprebuild.storage.store import is_object
from snaprebuild.storage.store_path import StorePath, path_of
from snaprebuild.tier import remote_store
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.ledger.ledger_file import AuditLedger
from snaprebuild.tier.remote_store import StoreAccess, Tier
from snaprebuild.tier.running_topic import RunningTopic

__all__ = [
    "announced",
    "check_order",
    "check_outside_store",
    "key_files",
    "open_tier",
    "opened_ledger",
    "store_access",
]


def key_files(options: RemoteOptions) -> list[str]:
    """The files of private keys that the options name."""
    return [split_private_key(each)[1] for each in options.private_key]


def open_tier(store: str, s3: S3Options, options: RemoteOptions) -> Tier:
    """Lists the remote storage that a verb names.

    Raises:
        UsageError: nothing is there, or the private key is none.
        ReadFailedError: ``tier.remote_store.open_tier`` raises it.
        RefusedError: ``tier.remote_store.open_tier`` raises it.
    """
    check_directories([store, *(options.metadata_log or [])])
    keys = PrivateKeys.of(options.private_key)
    return remote_store.open_tier(store_access(store, s3, options, keys), stores_of(s3))


def store_access(
    location: str, s3: S3Options, options: RemoteOptions, keys: PrivateKeys = NO_KEYS, running: RunningTopic | None = None
) -> StoreAccess:
    """The access to the store at a location.

    Args:
        location: of the store.
        s3: how it is reached.
        options: of the verb.
        keys: for what reads segments or snapshots.
        running: the records of a running cluster, in place of those of ``--metadata-log``.

    Raises:
        UsageError: ``remote_store.store_access`` raises it.
    """
    return remote_store.store_access(
        location,
        stores_of(s3),
        metadata_logs=options.metadata_log or (),
        private_keys=keys,
        key_prefix=options.key_prefix,
        running=running,
    )


def check_order(store: str, source: Source | None = None) -> None:
    """Makes sure that STORE and PATH were not swapped: a log directory holds no copies.

    Args:
        store: that was named.
        source: of PATH; None for a path that is written to.

    Raises:
        UsageError: STORE is the log directory of a broker, and PATH holds no partition.
    """
    if is_object(store) or (source is not None and (source.partitions or source.skipped)):
        return
    remote_store.refuse_log_directory(path_of(store), "is a log directory: STORE comes before PATH")


def check_outside_store(store: StorePath, files: Sequence[str | None]) -> None:
    """Makes sure that no file of ours is created in a store that is a directory: it holds objects of brokers alone.

    Args:
        store: the location.
        files: that are going to be created, None for those that are not wanted. They need not exist; links to their directories count.

    Raises:
        RefusedError: one would be in the store.
    """
    if not store.is_local:
        return
    root = os.path.realpath(store.path)
    for path in files:
        if path is None:
            continue
        directory = os.path.realpath(os.path.dirname(os.path.abspath(path)))
        if os.path.commonpath([root, directory]) == root:
            message = f"is in STORE ({store.path}), where only brokers may write files: name a file outside of it"
            raise RefusedError(message, path=path)


def announced(cost: AuditCost) -> None:
    """Prints on stderr what will be read."""
    classes = ", ".join(f"{name} {size_text(size)}" for name, size in cost.storage_classes.items())
    price = "" if cost.dollars is None else f", about {cost.dollars:.2f} USD by list prices without transfer"
    what = f"{pluralize(cost.copies, 'copy', 'copies')}, {pluralize(cost.objects, 'object')}, {size_text(cost.read_bytes)}"
    if classes:
        what += f" ({classes}), about {pluralize(cost.requests, 'request')}{price}"
    print_on_stderr(f"to be read: {what}")


@contextlib.contextmanager
def opened_ledger(path: str | None, access: StoreAccess) -> Iterator[AuditLedger | None]:
    """The ledger of a store; None without a path.

    Raises:
        UsageError: the file is none, or that of another store or ``key_prefix``, or it cannot be created there.
        RefusedError: another run uses it, or it may not be created there, as in the store.
    """
    if path is None:
        yield None
        return
    check_file_path("--ledger", path)
    check_kind(path, AUDIT_LEDGER)
    check_outside_store(access.root, [path])
    with AuditLedger.open(path, access.root.path, access.key_prefix) as ledger:
        yield ledger
