"""Files in our own files: inputs as they were listed, snapshots that were written, and names that JSON may not contain."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Annotated

import msgspec

from snaprebuild.documents.typed import Int64, Natural, Part, Sha256
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.store import FileIdentity

__all__ = [
    "AbsolutePath",
    "Inode",
    "InputFile",
    "MadeFile",
    "Nameable",
    "check_ascending",
    "is_nameable",
]

_NAME = r"[^\0\ud800-\udc7f\udd00-\udfff]*"
"""JSON has characters that no name has: NUL, and surrogates other than those that represent bytes."""

Inode = Annotated[int, msgspec.Meta(ge=0)]
"""Overlay file systems use all 64 bits."""
Nameable = Annotated[str, msgspec.Meta(pattern=rf"\A{_NAME}\Z")]
AbsolutePath = Annotated[str, msgspec.Meta(pattern=rf"\A/{_NAME}\Z")]


class InputFile(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A segment or snapshot that was read or listed.

    Attributes:
        offset: from its name.
        inode: None for an object, which has an ``etag`` instead.
    """

    offset: Natural
    size_bytes: Natural
    mtime_ns: Int64
    inode: Inode | None = None
    etag: str | None = None

    @classmethod
    def of(cls, offset: int, listed: FileIdentity) -> InputFile:
        """A file that was listed."""
        inode = listed.inode if listed.etag is None else None
        return cls(offset=offset, size_bytes=listed.size_bytes, mtime_ns=listed.mtime_ns, inode=inode, etag=listed.etag)

    @property
    def identity(self) -> FileIdentity:
        """The identity of a local file, to compare with a listing."""
        return FileIdentity(self.size_bytes, self.mtime_ns, self.inode or 0, self.etag)


class MadeFile(Part, frozen=True, kw_only=True):
    """A snapshot that was written; the fields are those of ``Fingerprint``."""

    sha256: Sha256
    size_bytes: Natural
    mtime_ns: Int64

    @property
    def file(self) -> Fingerprint:
        """The fingerprint, to compare with a file."""
        return Fingerprint(self.sha256, self.size_bytes, self.mtime_ns)


def check_ascending(offsets: Iterable[int]) -> None:
    """Makes sure that each offset is greater than the one before it.

    Raises:
        ValueError: an offset is not.
    """
    if any(offset >= following for offset, following in itertools.pairwise(offsets)):
        raise ValueError("offsets do not ascend")


def is_nameable(text: str) -> bool:
    """Whether a file may have this path or name."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
