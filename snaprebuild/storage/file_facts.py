"""Files in our own files: inputs as they were listed, and names that JSON may not contain."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Annotated

import msgspec

from snaprebuild.published import Natural, Part
from snaprebuild.storage.store import FileIdentity

__all__ = [
    "AbsolutePath",
    "InputFile",
    "Nameable",
    "check_ascending",
    "is_nameable",
]

_NAME = r"[^\0\ud800-\udc7f\udd00-\udfff]*"
"""JSON has characters that no name has: NUL, and surrogates other than those that represent bytes."""

Nameable = Annotated[str, msgspec.Meta(pattern=rf"\A{_NAME}\Z")]
AbsolutePath = Annotated[str, msgspec.Meta(pattern=rf"\A/{_NAME}\Z")]


class InputFile(FileIdentity, Part, frozen=True, kw_only=True, omit_defaults=True):
    """A segment or snapshot that was read or listed: its identity, and the offset in its name."""

    offset: Natural

    @classmethod
    def at(cls, offset: int, listed: FileIdentity) -> InputFile:
        """A file that was listed."""
        return cls(listed.size_bytes, listed.modified_ns, listed.inode, listed.etag, offset=offset)

    @property
    def identity(self) -> FileIdentity:
        """The identity alone, to compare with a listing."""
        return FileIdentity(self.size_bytes, self.modified_ns, self.inode, self.etag)


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
