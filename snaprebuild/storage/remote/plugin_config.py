"""The configuration of the remote storage manager in a broker's ``server.properties``: where the copies are, and how they are encrypted.

Only a fixed list of keys is read. Key pairs are named by their files. The access key is read apart (``read_access_key``), only for a
command that was told to use it, and is in no value that a document could show.

Source: ``RemoteLogManagerConfig`` of Kafka; ``RemoteStorageManagerConfig``, ``S3StorageConfig``, ``FileSystemStorageConfig`` and
``KeyPairPaths`` of Aiven's plugin; ``LocalTieredStorage``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from formats.broker.broker_files import Properties, read_properties
from formats.errors import FormatError
from formats.limits import PROPERTIES_BYTES_MAX
from formats.text_lines import shown
from snaprebuild.errors import UsageError
from snaprebuild.published import Natural, Part
from snaprebuild.storage.store import OBJECT_SCHEME
from snaprebuild.typed_paths import unexpanded_part

__all__ = ["AccessKey", "PluginConfig", "plugin_config_of", "read_access_key"]

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
ENCRYPTION = "encryption.enabled"
KEY_PAIRS = "encryption.key.pairs"
PRIVATE_KEY = "encryption.key.pairs.{}.private.key.file"

ACCESS_KEY_ID = "storage.aws.access.key.id"
SECRET_ACCESS_KEY = "storage.aws.secret.access.key"  # noqa: S105 - a name
SESSION_TOKEN = "storage.aws.session.token"  # noqa: S105 - a name

KEY_PAIRS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class AccessKey:
    """The credentials of a broker for its bucket. Neither ``repr`` nor a message shows them.

    Attributes:
        key_id: of the access key.
        secret: of the access key.
        session_token: None without one.
    """

    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


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
    encryption_enabled: bool
    """The plugin encrypts what it uploads."""
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
        path_style=values.is_true(PATH_STYLE),
        key_prefix=values.get(KEY_PREFIX) or "",
        chunk_size=int(chunk_size) if chunk_size.isascii() and chunk_size.isdigit() and len(chunk_size) < 12 else None,
        custom_metadata_fields=tuple(each.strip() for each in fields.split(",") if each.strip()),
        encryption_enabled=values.is_true(ENCRYPTION),
        key_pairs=tuple(KeyPair(name=name, private_key_file=values.get(PRIVATE_KEY.format(name))) for name in names),
    )


def read_access_key(path: str) -> AccessKey:
    """The access key in the configuration of a broker.

    Args:
        path: of its properties.

    Raises:
        UsageError: the file cannot be read, has no access key, or only the broker can ask its config provider for it.
    """
    try:
        with open(path, "rb") as file:
            properties = read_properties(file.read(PROPERTIES_BYTES_MAX + 1), file=path)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", path=path) from None
    except FormatError as error:
        raise UsageError(f"is no configuration of a broker: line {error.position}", path=path) from None
    values = _Values(properties, path)
    key_id = values.secret(ACCESS_KEY_ID)
    secret = values.secret(SECRET_ACCESS_KEY)
    if key_id is None or secret is None:
        missing = ACCESS_KEY_ID if key_id is None else SECRET_ACCESS_KEY
        message = f"has no {values.name_of(missing)}: without --broker-credentials the usual chain of the SDK has the credentials"
        raise UsageError(message, path=path)
    return AccessKey(key_id, secret, values.secret(SESSION_TOKEN))


class _Values:
    """The settings of the remote storage manager, by their names without the prefix."""

    def __init__(self, properties: Properties, path: str) -> None:
        self._properties = properties
        self._path = path
        prefix = properties.get(PREFIX_KEY)
        self._prefix = DEFAULT_PREFIX if prefix is None else prefix.strip()

    def name_of(self, name: str) -> str:
        """The name of a setting in the file."""
        return f"{self._prefix}{name}"

    def get(self, name: str) -> str | None:
        """A value; None if it is absent or empty.

        Raises:
            UsageError: only the broker can ask its config provider for the value.
        """
        value, part = self._value(name)
        if part is not None:
            raise self._unexpanded(name, f"found {shown(part)}, which")
        return value

    def is_true(self, name: str) -> bool:
        """Whether a value is ``true``, in letters of any case, as Kafka takes it (``ConfigDef.parseType``).

        Raises:
            UsageError: only the broker can ask its config provider for the value.
        """
        return (self.get(name) or "").lower() == "true"

    def secret(self, name: str) -> str | None:
        """A value that no message repeats; None if it is absent or empty.

        Raises:
            UsageError: only the broker can ask its config provider for the value.
        """
        value, part = self._value(name)
        if part is not None:
            raise self._unexpanded(name, "its value is one that")
        return value

    def _value(self, name: str) -> tuple[str | None, str | None]:
        """A value, None if it is absent or empty; and the part of it that a config provider replaces, None without one."""
        value = (self._properties.get(self.name_of(name)) or "").strip()
        part = unexpanded_part(value) if value else None
        return value or None, part if part is not None and part.startswith("${") else None

    def _unexpanded(self, name: str, found: str) -> UsageError:
        message = f"{self.name_of(name)}: {found} only the config provider of the broker can replace"
        return UsageError(f"{message}. Write the value into a copy of the file", path=self._path)
