"""The identity of a snapshot as it was written: the SHA-256 of its bytes, and its modification time.

The time distinguishes our file from another one with the same bytes. The inode is not included, because a copy that keeps times is
still ours.
"""

from __future__ import annotations

import hashlib
import os

import msgspec

from formats.limits import SNAPSHOT_BYTES_MAX
from snaprebuild.errors import ReadFailedError
from snaprebuild.published import Int64, Natural, Sha256
from snaprebuild.storage.local.regular_file import open_regular_file

__all__ = ["Fingerprint", "fingerprint_at", "fingerprint_of"]

BLOCK_BYTES = 1 << 20


class Fingerprint(msgspec.Struct, frozen=True):
    """A file's bytes and time. The lines of our files that name a snapshot are this struct with more members.

    Attributes:
        sha256: of all bytes, 64 digits in lower case.
        size_bytes: count of them.
        modified_ns: modification time, ns since 1970.
    """

    sha256: Sha256
    size_bytes: Natural
    modified_ns: Int64

    @classmethod
    def of(cls, data: bytes, modified_ns: int) -> Fingerprint:
        """The fingerprint of bytes that are being written; ``modified_ns`` is the time that their file has, or 0 if that is not known."""
        return cls(hashlib.sha256(data).hexdigest(), len(data), modified_ns)

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint alone, to compare with that of a file."""
        return Fingerprint(self.sha256, self.size_bytes, self.modified_ns)


def fingerprint_at(path: str) -> Fingerprint:
    """The fingerprint of a regular file; a link is not followed.

    Raises:
        ReadFailedError: it is absent (``errno`` is ENOENT), is no regular file, cannot be read, or is too large for a snapshot.
    """
    fd, _ = open_regular_file(path)
    try:
        return fingerprint_of(fd, path)
    finally:
        os.close(fd)


def fingerprint_of(fd: int, path: str) -> Fingerprint:
    """The fingerprint of an open file; does not use or move its position.

    Raises:
        ReadFailedError: it cannot be read, or is too large for a snapshot: a file with holes may have any size.
    """
    digest = hashlib.sha256()
    size = 0
    try:
        status = os.fstat(fd)
        while max(status.st_size, size) <= SNAPSHOT_BYTES_MAX and (block := os.pread(fd, BLOCK_BYTES, size)):
            digest.update(block)
            size += len(block)
    except OSError as error:
        raise ReadFailedError.from_os_error(error, "cannot be read", path) from error
    if max(status.st_size, size) > SNAPSHOT_BYTES_MAX:
        raise ReadFailedError(f"has {max(status.st_size, size)} bytes, and no snapshot more than {SNAPSHOT_BYTES_MAX}", path=path)
    return Fingerprint(digest.hexdigest(), size, status.st_mtime_ns)
