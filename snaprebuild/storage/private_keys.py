"""The private keys that decrypt copies of Aiven's plugin, by the name of the key pair (``dataKey`` of the manifest begins with it)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from formats.errors import FormatError
from formats.remote.aiven_encryption import DataKey, NoCryptographyError, PrivateKey
from formats.remote.aiven_manifest import EncryptedKey
from snaprebuild.errors import RefusedError, UsageError

__all__ = ["NO_KEYS", "PrivateKeys", "split_private_key"]

OPTION = "private_key"


@functools.lru_cache(maxsize=64)
def _read_private_key(path: str) -> PrivateKey:
    """Raises UsageError: the file cannot be read or is no such key, or the package that decrypts is not installed."""
    try:
        with open(path, "rb") as file:
            return PrivateKey.of_pem(file.read(1 << 20))
    except OSError as error:
        raise UsageError(f"the private key cannot be read: {error.strerror}", path=path) from error
    except FormatError as error:
        raise UsageError(error.message, path=path) from error
    except NoCryptographyError as error:
        raise UsageError("encrypted segments need a package: pip install cryptography", path=path) from error


@functools.lru_cache(maxsize=1024)
def _decrypted_data_key(private_key: PrivateKey, key: EncryptedKey) -> DataKey:
    """Each file of a copy needs it, and RSA takes some hundredths of a second. Raises FormatError: it is for another private key."""
    return private_key.data_key(key.data_key, key.additional)


def split_private_key(text: str) -> tuple[str | None, str]:
    """``NAME=FILE`` or ``FILE`` as (name or None, file). A text with a slash before its first ``=`` is a file."""
    name, equals, path = text.partition("=")
    if equals and "/" not in name:
        return (name, path)
    return (None, text)


@dataclass(frozen=True, slots=True)
class PrivateKeys:
    """Files of private RSA keys in PEM. They are read when a copy needs them, on the machine that reads the copy.

    Attributes:
        files: (name of the key pair, file); the name None is for all names without a file of their own.
    """

    files: tuple[tuple[str | None, str], ...] = ()

    @classmethod
    def of(cls, options: Sequence[str]) -> PrivateKeys:
        """The keys of the option.

        Args:
            options: ``NAME=FILE`` or ``FILE`` each.

        Raises:
            UsageError: two have one name, or none; a part is empty; or a file is no private key.
        """
        paths: dict[str | None, str] = {}
        for text in options:
            name, path = split_private_key(text)
            if not path or name == "":
                raise UsageError(f"{OPTION}: expected FILE or NAME=FILE, found {text!r}")
            if name in paths:
                if name is None:
                    what = "two files without a name: write NAME=FILE"
                else:
                    what = f"two files for the key {name!r}"
                raise UsageError(f"{OPTION}: {what}")
            paths[name] = path
        for path in paths.values():
            _read_private_key(path)
        return cls(tuple(paths.items()))

    def fault(self, key: EncryptedKey) -> str | None:
        """Why copies with this data key cannot be decrypted, with the option that helps; None if they can."""
        try:
            self.data_key(key, "")
        except RefusedError as error:
            return error.message
        return None

    def data_key(self, key: EncryptedKey, place: str) -> DataKey:
        """The data key of a copy.

        Raises:
            RefusedError: its private key is not given, or the file is another key; ``place`` is the path of the error.
        """
        files = dict(self.files)
        path = files.get(key.key_id, files.get(None))
        option = f"--set {OPTION}={key.key_id}=FILE" if key.key_id.isprintable() else f"--set {OPTION}=NAME=FILE"
        message = f"is encrypted for the key {key.key_id!r}"
        if path is None:
            raise RefusedError(f"{message}: the setting private_key names the file of its private half ({option})", path=place)
        try:
            return _decrypted_data_key(_read_private_key(path), key)
        except FormatError as error:
            raise RefusedError(f"{message}, and {path} is another one: add {option}", path=place) from error


NO_KEYS = PrivateKeys()
