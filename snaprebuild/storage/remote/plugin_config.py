"""The configuration of the remote storage manager in a broker's ``server.properties``: where the copies are, and how they are encrypted.

Only a fixed list of keys is read. None of them holds a secret: key pairs are named by their files, and credentials are left out.

Source: ``RemoteLogManagerConfig`` of Kafka; ``RemoteStorageManagerConfig``, ``S3StorageConfig``, ``FileSystemStorageConfig`` and
``KeyPairPaths`` of Aiven's plugin; ``LocalTieredStorage``.
"""

from __future__ import annotations

import os

from formats.broker.broker_files import Properties
from formats.text_lines import shown
from snaprebuild.errors import UsageError
from snaprebuild.published import Natural, Part
from snaprebuild.storage.store import OBJECT_SCHEME
from snaprebuild.typed_paths import unexpanded_part

__all__ = ["PluginConfig", "plugin_config_of"]

PREFIX_KEY = "remote.log.storage.manager.impl.prefix"
DEFAULT_PREFIX = "rsm.config."

BUCKET = "storage.s3.bucket.name"
ENDPOINT = "storage.s3.endpoint.url"
REGION = "storage.s3.region"
PATH_STYLE = "storage.s3.path.style.access.enabled"
ROOT = "storage.root"
LOCAL_DIRECTORY = "dir"
KEY_PREFIX = "key.prefix"
CHUNK_SIZE = "chunk.size"
CUSTOM_METADATA_FIELDS = "custom.metadata.fields.include"
KEY_PAIRS = "encryption.key.pairs"
PRIVATE_KEY = "encryption.key.pairs.{}.private.key.file"

KEY_PAIRS_MAX = 1_000


class KeyPair(Part, frozen=True):
    """A key pair for copies."""

    name: str
    private_key_file: str | None
    """Path on the broker; null if there is none."""


class PluginConfig(Part, frozen=True):
    """The configuration of a remote storage manager, as far as it shows where copies are and how they are encrypted."""

    bucket_name: str | None
    directory: str | None
    """Directory of the copies, if they are in no bucket."""
    endpoint_url: str | None
    """Null for that of the SDK."""
    region: str | None
    path_style: bool
    key_prefix: str
    chunk_size: Natural | None
    """Bytes of a segment in each chunk; null if it is not set, or no number."""
    key_pairs: tuple[KeyPair, ...]
    custom_metadata_fields: tuple[str, ...]
    """Fields that the plugin includes in the custom metadata of each copy."""

    @property
    def location(self) -> str | None:
        """Location of the store without the key prefix; None if the configuration does not name it."""
        return self.directory if self.bucket_name is None else f"{OBJECT_SCHEME}{self.bucket_name}"


def plugin_config_of(properties: Properties, path: str) -> PluginConfig:
    """The configuration in the properties of a broker.

    Args:
        properties: of the broker.
        path: of their file, for messages.

    Raises:
        UsageError: a value is replaced by a config provider of the broker, or there are more key pairs than any broker has.
    """
    values = _Values(properties, path)
    names = [each.strip() for each in (values.get(KEY_PAIRS) or "").split(",") if each.strip()]
    if len(names) > KEY_PAIRS_MAX:
        raise UsageError(f"{KEY_PAIRS}: expected at most {KEY_PAIRS_MAX} key pairs, found {len(names)}", path=path)
    chunk_size = values.get(CHUNK_SIZE) or ""
    fields = values.get(CUSTOM_METADATA_FIELDS) or ""
    directory = values.get(ROOT) or values.get(LOCAL_DIRECTORY)
    return PluginConfig(
        bucket_name=values.get(BUCKET),
        directory=None if directory is None else os.path.abspath(directory),
        endpoint_url=values.get(ENDPOINT),
        region=values.get(REGION),
        path_style=(values.get(PATH_STYLE) or "").lower() == "true",
        key_prefix=values.get(KEY_PREFIX) or "",
        chunk_size=int(chunk_size) if chunk_size.isascii() and chunk_size.isdigit() and len(chunk_size) < 12 else None,
        custom_metadata_fields=tuple(each.strip() for each in fields.split(",") if each.strip()),
        key_pairs=tuple(KeyPair(name=name, private_key_file=values.get(PRIVATE_KEY.format(name))) for name in names),
    )


class _Values:
    """The settings of the remote storage manager, by their names without the prefix."""

    def __init__(self, properties: Properties, path: str) -> None:
        self._properties = properties
        self._path = path
        prefix = properties.get(PREFIX_KEY)
        self._prefix = DEFAULT_PREFIX if prefix is None else prefix.strip()

    def get(self, name: str) -> str | None:
        """A value; None if it is absent or empty.

        Raises:
            UsageError: only the broker can ask its config provider for the value.
        """
        value = (self._properties.get(f"{self._prefix}{name}") or "").strip()
        part = unexpanded_part(value) if value else None
        if part is not None and part.startswith("${"):
            message = f"{self._prefix}{name}: found {shown(part)}, which only the config provider of the broker can replace"
            raise UsageError(f"{message}. Write the value into a copy of the file", path=self._path)
        return value or None
