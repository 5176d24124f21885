"""The remote storage that a verb names: STORE or the configuration of a broker, its records on disk or of a running cluster, its ledger."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from snaprebuild.cli.begin_verb import check_file_path
from snaprebuild.cli.file_kinds import AUDIT_LEDGER, CLIENT_PROPERTIES, check_directories, check_kind
from snaprebuild.cli.options.common import S3Options, quoted
from snaprebuild.cli.options.remote_storage import ConfiguredOptions, RemoteOptions
from snaprebuild.cli.runs.run_settings import run_facts, stores_of
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.value_text import size_text
from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.findings import pluralize
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys, split_private_key
from snaprebuild.storage.remote.client_config import read_client_config
from snaprebuild.storage.remote.plugin_config import PluginConfig, plugin_config_of, read_access_key
from snaprebuild.storage.store import S3Settings, absolute, check_settings, is_object
from snaprebuild.storage.store_path import StorePath, path_of
from snaprebuild.tier import remote_store
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.ledger.ledger_file import AuditLedger
from snaprebuild.tier.remote_store import StoreAccess, Tier
from snaprebuild.tier.running_topic import RunningTopic

__all__ = [
    "ConfiguredStore",
    "announced",
    "check_order",
    "check_outside_store",
    "client_settings",
    "configured_store",
    "key_files",
    "open_tier",
    "opened_ledger",
    "running_topic",
    "servers_of",
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


Options = TypeVar("Options", bound=ConfiguredOptions)


# ---------------------------------------------------------------------------------------------------- the configuration of a broker


@dataclass(frozen=True, slots=True)
class ConfiguredStore:
    """A store as the command line and the configuration of a broker name it.

    Attributes:
        location: of the store.
        s3: how it is reached.
        key_prefix: of the plugin.
        private_keys: ``NAME=FILE`` or ``FILE`` each.
        plugin: the configuration; None without one.
    """

    location: str
    s3: S3Options
    key_prefix: str
    private_keys: tuple[str, ...]
    plugin: PluginConfig | None = None

    @property
    def known_key_prefix(self) -> str | None:
        """The plugin's key prefix below the location; None if neither a setting nor the configuration shows it."""
        is_root = self.plugin is not None and absolute(self.location) == self.plugin.location
        if self.key_prefix or is_root:
            return self.key_prefix
        return None

    def options(self, options: Options) -> Options:
        """The options of a verb with the key prefix and the private keys of the store."""
        return replace(options, key_prefix=self.key_prefix, private_key=self.private_keys)


def configured_store(store: str | None, s3: S3Options, options: ConfiguredOptions, *, writes: bool) -> ConfiguredStore:
    """The store that a verb names; what the command line leaves out comes from the configuration of the broker.

    It comes before the first call of ``stores_of``. The access key of the broker is used only with ``--broker-credentials``.

    Args:
        store: STORE; None for that of the configuration.
        s3: how it is reached.
        options: of the verb.
        writes: the verb writes, so that it uses the private keys of the broker only with ``--broker-credentials``, too.

    Raises:
        UsageError: no store is named, or the file cannot be read or lacks what was asked for, or STORE is another bucket than that of the
            configuration.
    """
    keys = tuple(options.private_key)
    path = options.server_properties
    if path is None:
        if options.broker_credentials:
            raise UsageError("--broker-credentials goes with --server-properties, which is not given")
        if store is None:
            raise UsageError("Missing argument 'STORE': name it, or the --server-properties of a broker")
        return ConfiguredStore(store, s3, options.key_prefix, keys)
    check_directories([], server_properties=path)
    plugin = plugin_config_of(run_facts().properties(path), path)
    check_settings(S3Settings(endpoint_url=plugin.endpoint_url))  # documents show it
    location = store or plugin.location
    if location is None:
        raise UsageError("has no bucket and no directory of a remote storage manager: name STORE", path=path)
    if is_object(location):
        s3 = _configured_bucket(location, s3, options, plugin)
    elif options.broker_credentials:
        _check_used_credentials(location, path, plugin, has_typed_key=bool(keys))
    if not keys and (options.broker_credentials or not writes):
        keys = tuple(f"{each.name}={each.private_key_file}" for each in plugin.key_pairs if each.private_key_file is not None)
    prefix = plugin.key_prefix if absolute(location) == plugin.location else ""
    return ConfiguredStore(location, s3, options.key_prefix or prefix, keys, plugin)


def _check_used_credentials(location: str, path: str, plugin: PluginConfig, *, has_typed_key: bool) -> None:
    """Makes sure that a directory has use for the credentials of the broker, which are its private keys alone.

    Raises:
        UsageError: the configuration has no private key, or its copies are in a bucket, or another private key is used.
    """
    if has_typed_key:
        message = "--broker-credentials: STORE is a directory, which needs no access key, and private_key names another key"
        raise UsageError(message, path=location)
    if plugin.bucket_name is not None:
        message = f"--broker-credentials: STORE is a directory, and the store of --server-properties is s3://{plugin.bucket_name}"
        raise UsageError(message, path=location)
    if all(each.private_key_file is None for each in plugin.key_pairs):
        message = "--broker-credentials: STORE is a directory, which needs no access key, and the configuration has no private key"
        raise UsageError(message, path=path)


def _configured_bucket(location: str, s3: S3Options, options: ConfiguredOptions, plugin: PluginConfig) -> S3Options:
    """How a bucket is reached, after the stores of the run were made with what the configuration has.

    Raises:
        UsageError: it is another bucket than that of the configuration, or the credentials do not go together, or are not there.
    """
    path = options.server_properties
    if plugin.bucket_name is not None and location.split("/")[2] != plugin.bucket_name:
        raise UsageError(
            f"STORE is in another bucket than that of --server-properties: expected s3://{plugin.bucket_name}", path=location
        )
    if options.broker_credentials:
        assert path is not None, "the caller has checked it"
        if plugin.bucket_name is None:
            raise UsageError("--broker-credentials: the configuration names no bucket", path=path)
        if s3.s3_profile is not None or s3.s3_anonymous:
            raise UsageError("--broker-credentials: neither s3_profile nor s3_anonymous goes with it")
        read_access_key(path)  # before anything is written
    if plugin.bucket_name is None:
        return s3
    endpoint = s3.s3_endpoint_url or plugin.endpoint_url
    s3 = replace(s3, s3_endpoint_url=endpoint, s3_path_style=s3.s3_path_style or plugin.path_style)
    stores_of(s3, region=plugin.region, broker_properties=path if options.broker_credentials else None)  # made at its first call
    return s3


# ---------------------------------------------------------------------------------------------------- a running cluster

_PORT = re.compile("[0-9]{1,5}")


def servers_of(text: str, option: str) -> str:
    """Bootstrap servers, checked: ``HOST:PORT``, several with commas between.

    Args:
        text: as it was given.
        option: that gives it.

    Raises:
        UsageError: it has another form.
    """
    servers = [each.strip() for each in text.split(",")]
    for each in servers:
        host, colon, port = each.rpartition(":")
        is_port = _PORT.fullmatch(port) is not None and 0 < int(port) < 2**16
        if not colon or not host or not is_port or "/" in host or "@" in host:
            raise UsageError(f"{option}: expected HOST:PORT, several with commas between; found {quoted(each)}")
    return ",".join(servers)


def client_settings(path: str | None) -> dict[str, str]:
    """The settings of a client in a file; none without one.

    Raises:
        UsageError: the file is no such one, or has settings that may not be set.
    """
    if path is None:
        return {}
    check_kind(path, CLIENT_PROPERTIES)
    return read_client_config(path)


def running_topic(
    bootstrap_server: str | None, command_config: str | None, metadata_logs: Sequence[str] | None
) -> RunningTopic | None:
    """The records of a running cluster; None if no option names one.

    Args:
        bootstrap_server: value of ``--bootstrap-server``.
        command_config: value of ``--command-config``.
        metadata_logs: values of ``--metadata-log``.

    Raises:
        UsageError: an option has another form, or options do not go together.
    """
    if bootstrap_server is None:
        if command_config is not None:
            raise UsageError("--command-config goes with --bootstrap-server, which is not given")
        return None
    if metadata_logs:
        raise UsageError("--bootstrap-server and --metadata-log name the same records: give one of them")
    return RunningTopic(servers_of(bootstrap_server, "--bootstrap-server"), client_settings(command_config))
