"""The remote storage that ``--server-properties`` names, for verbs on remote storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import ConfiguredOptions
from snaprebuild.cli.runs.run_settings import run_facts, stores_of
from snaprebuild.errors import UsageError
from snaprebuild.storage.remote.plugin_config import PluginConfig, plugin_config_of, read_access_key
from snaprebuild.storage.store import S3Settings, absolute, check_settings, is_object

__all__ = ["ConfiguredStore", "configured_store"]

Options = TypeVar("Options", bound=ConfiguredOptions)


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
        return self.key_prefix if self.key_prefix or is_root else None

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
