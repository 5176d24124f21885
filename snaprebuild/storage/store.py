"""The port to bytes at rest: which values name them, and what a store of them can do.

A location is a string: an absolute path, or ``s3://bucket/key``. ``os.path.join``, ``dirname`` and ``basename`` serve both; whatever asks
the storage itself goes through a `Store`. Stores are small values (settings and nothing else), so that they travel to worker processes with
what they belong to, and two of equal settings are equal.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

from formats.log.batch_headers import SegmentBytes
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError

__all__ = [
    "ABOVE_BUCKETS",
    "OBJECT_SCHEME",
    "USUAL_S3",
    "FileIdentity",
    "LargeObjects",
    "NarrowStore",
    "OpenBytes",
    "Ownership",
    "ReadStore",
    "ReplacingStore",
    "S3Settings",
    "Status",
    "Store",
    "WholeObject",
    "absolute",
    "common_ancestor",
    "holds_bytes",
    "is_object",
    "parts_of",
    "relative",
]

OBJECT_SCHEME = "s3://"
"""What the location of an object begins with."""

ABOVE_BUCKETS = "s3:"
"""What ``os.path.dirname`` makes of a bucket; nothing lies there."""

BLOCK_BYTES = 1 << 20
"""Of a large file, compared at once."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Status(Protocol):
    """The status of a file in a listing: ``os.stat_result``, or its counterpart for an object."""

    @property
    def st_size(self) -> int:
        """Bytes."""

    @property
    def st_mtime_ns(self) -> int:
        """Modification time, ns since 1970."""

    @property
    def st_ino(self) -> int:
        """Inode; 0 for an object."""

    @property
    def st_mode(self) -> int:
        """Kind and permissions."""

    @property
    def st_uid(self) -> int:
        """Owner."""

    @property
    def st_gid(self) -> int:
        """Group."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What shows that a file has changed: size in bytes, modification time in ns, inode; of an object the ETag instead."""

    size_bytes: int
    mtime_ns: int
    inode: int
    etag: str | None = None

    @classmethod
    def of(cls, status: Status) -> FileIdentity:
        """From a ``stat`` result, or its counterpart for an object."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, getattr(status, "st_etag", None))

    def is_still(self, found: FileIdentity, *, may_grow: bool = False) -> bool:
        """Whether a file that was listed as this one is still the same.

        Args:
            found: what it is now.
            may_grow: a broker may have appended to it.
        """
        if not may_grow:
            return self == found
        return (self.inode, self.etag) == (found.inode, found.etag) and found.size_bytes >= self.size_bytes

    @property
    def row(self) -> tuple[int, int, int | str]:
        """Size, modification time, and inode or ETag: how documents name an input."""
        return self.size_bytes, self.mtime_ns, self.inode if self.etag is None else self.etag


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who owns a file and who may use it.

    Attributes:
        mode: the nine permission bits.
    """

    uid: int
    gid: int
    mode: int

    @classmethod
    def of(cls, status: Status) -> Self:
        """Takes owner, group and permission bits of a file, usually of the segment that a snapshot belongs to."""
        return cls(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode) & 0o777)

    def __str__(self) -> str:
        return f"owner {self.uid}, group {self.gid}, mode {self.mode:04o}"


class OpenBytes(SegmentBytes, Protocol):
    """A file or object, read at any position. A context manager."""

    @property
    def identity(self) -> FileIdentity:
        """What it was when it was opened."""

    def will_stop_at(self, position_bytes: int) -> None:
        """Its reader means to go no farther: what lies behind need not be fetched ahead of it."""

    def check_unchanged(self) -> None:
        """Makes sure that all bytes that were read are those of one file at one moment.

        Leaving the context does it, also early and after a ``FormatError``: bytes that are half of one log and half of another follow no
        format. Call it before bytes take effect.

        Raises:
            ChangedFileError: they may not be.
        """

    def close(self) -> None:
        """Lets go of whatever reading took."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class ReadStore(Protocol):
    """Bytes at rest, read by their location."""

    @property
    def is_local(self) -> bool:
        """A file system, with locks, owners, links, and names that can be changed. Elsewhere small reads mostly wait: use threads."""

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """All bytes of a small regular file, or None when it is absent.

        Raises:
            ReadFailedError: it cannot be read, is no regular file, or is larger than ``bytes_max``.
            RefusedError: a limit of the run is used up.
        """

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        """Size of a file, and its last ``count`` bytes, or all where it is smaller; None when it is absent.

        Raises:
            ReadFailedError, RefusedError: as ``read_small``.
        """

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool | None = None,
    ) -> OpenBytes:
        """Opens a file to be read in ranges. It is held to ``identity`` from the first range to the last, so that no reader can forget it.

        Args:
            location: of the file.
            identity: from the listing; None for what is there now.
            deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
            may_grow: a broker may append to it meanwhile (the active segment); None for no where ``identity`` is given, else for yes.

        Raises:
            ReadFailedError: it cannot be opened (``errno`` is ENOENT where it is absent).
            RefusedError: it is not the file of the listing (GoneFileError where that file is gone). So does reading an object. Leaving the
                context of a file that was read raises ChangedFileError (``OpenBytes.check_unchanged``).
        """


@runtime_checkable
class NarrowStore(Protocol):
    """A store that carries something for each of many files."""

    def narrowed(self, location: str) -> ReadStore:
        """What of it is enough to read one file: this is what is sent to where the file is read."""


@runtime_checkable
class Store(ReadStore, Protocol):
    """Listings, and creation that never replaces."""

    def present(self, directory: str, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that are taken in a directory.

        Raises:
            ReadFailedError: it is unknown.
        """

    def holds_segments(self, directory: str) -> bool:
        """Whether segments lie directly in a directory, as far as it can be listed."""

    def names_in(self, directory: str) -> frozenset[str]:
        """The files directly in a directory; none where it is absent.

        Raises:
            ReadFailedError: it cannot be listed.
            RefusedError: a limit of the run is used up.
        """

    def list_below(self, location: str, name_prefix: str = "") -> Iterator[tuple[str, Status]]:
        """Path below a location and status of every file there, of each directory in one piece.

        Args:
            location: a directory.
            name_prefix: only paths that begin with it.

        Raises:
            ReadFailedError: it cannot be listed.
            GoneFileError: a local directory does not exist any more.
            RefusedError: a limit of the run is used up.
        """

    def prepare_writes(self, directory: str) -> None:
        """Makes sure, once for each place, that nothing below a directory would ever be replaced.

        Raises:
            RefusedError: the store would replace what is there.
            StorageError: it is unknown.
        """

    def wrote(self, location: str, since_ns: int) -> bool:
        """Whether this run made a file: by what an object says of itself; of a file the time must do.

        Args:
            location: of the file.
            since_ns: when the run began, ns since 1970.

        Raises:
            ReadFailedError: it is unknown.
            RefusedError: a limit of the run is used up.
        """

    def create(
        self,
        directory: str,
        name: str,
        data: bytes,
        *,
        owner: Ownership | None,
        temporary_name: str,
        before_name: Callable[[int], None] | None = None,
    ) -> None:
        """Creates a file that appears whole or not at all, and never replaces one.

        Args:
            directory: that it goes to; made where it is missing.
            name: inside the directory.
            data: all of its bytes.
            owner: it must have, if the store knows owners; None for that of the process.
            temporary_name: to write under, if the store needs one.
            before_name: told the modification time, ns, before the file gets its name; 0 where the store sets that itself. What it
                raises leaves nothing behind.

        Raises:
            AlreadyExistsError: the name is taken; what stands there was not touched.
            BusyError: another run writes the same file now.
            RefusedError: it may not be written.
            WriteFailedError: nothing took effect.
            OutcomeUnknownError: the file is there or may be there.
        """


class LargeObjects(Protocol):
    """Creation of large files, which never replaces one."""

    def prepare_writes(self, directory: str, largest_bytes: int) -> None:
        """As ``Store.prepare_writes``, for files up to a size.

        Raises:
            RefusedError: the store would replace what is there.
            StorageError: it is unknown.
        """

    def create(self, location: str, source: OpenBytes) -> None:
        """Creates a file with the bytes of an open one. What an earlier run began is gone on with, where the store keeps parts.

        Raises:
            AlreadyExistsError: the name is taken, perhaps by this very run, whose answer was lost: ``holds`` tells.
            BusyError, RefusedError, WriteFailedError, OutcomeUnknownError: as ``Store.create``.
            ReadFailedError: the source cannot be read.
        """

    def holds(self, location: str, source: OpenBytes) -> bool | None:
        """Whether a file has the bytes of an open one; None where there is none.

        Raises:
            ReadFailedError: it is unknown.
        """


@dataclass(frozen=True, slots=True)
class WholeObject:
    """An object as it was read.

    Attributes:
        data: all of its bytes.
        identity: what it was when they were read: a replacement is held to it.
        kept: headers that a replacement repeats, where a store has them: storage class, encryption, what its writer says of it.
        not_kept: what a replacement would lose, so that it is refused; None where nothing is lost.
    """

    data: bytes = field(repr=False)
    identity: FileIdentity
    kept: Mapping[str, object] = field(default_factory=dict)
    not_kept: str | None = None


class ReplacingStore(Protocol):
    """Conditional replacement."""

    def read_whole(self, location: str, bytes_max: int) -> WholeObject | None:
        """All bytes of an object with what it is; None when it is absent.

        Raises:
            ReadFailedError: it cannot be read, or is larger than ``bytes_max``.
            RefusedError: a limit of the run is used up.
        """

    def prepare(self, directory: str) -> None:
        """Makes sure, before anything is replaced below a directory, that conditions are honoured there.

        Raises:
            RefusedError: they are not.
            StorageError: it is unknown.
        """

    def replace(self, location: str, data: bytes, was: WholeObject) -> None:
        """Replaces an object that is still what it was; it is the old one or the new one, whole, at every moment.

        Raises:
            RefusedError: it is another one now, or gone, or may not be written; it was not touched.
            BusyError: another run writes it now.
            WriteFailedError: nothing took effect.
            OutcomeUnknownError: it is the old one or the new one; which is unknown.
        """


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How an object store is reached. No secret stands in it: those come from the usual chain of the SDK, or from files.

    Attributes:
        endpoint_url: None for that of the environment, else Amazon's.
        path_style: ``endpoint/bucket/key`` instead of a host name for each bucket.
        profile: of the shared configuration files; None for the usual choice.
        anonymous: requests are not signed, and no credentials are looked for.
        requester_pays: the caller pays for requests and transfer.
        sse_c_key_file: file with the 32 bytes of a customer's key, raw or in base64; None for what the variable
            ``SNAPREBUILD_S3_SSE_C_KEY`` holds in base64, if it is set in the process that sends the request.
        max_requests: that a run may send, None for any number; likewise ``max_read_bytes``.
        run: which run the two limits are counted for, and which made an object; stores are equal without it.
    """

    endpoint_url: str | None = None
    path_style: bool = False
    profile: str | None = None
    anonymous: bool = False
    requester_pays: bool = False
    sse_c_key_file: str | None = None
    max_requests: int | None = None
    max_read_bytes: int | None = None
    run: str = field(default="", compare=False, repr=False)


USUAL_S3 = S3Settings()
"""Everything as the environment and the SDK have it."""


def is_object(location: str) -> bool:
    """Whether a location leads into an object store."""
    return location.startswith(OBJECT_SCHEME)


def absolute(location: str) -> str:
    """A location that does not depend on the working directory; of a prefix without slashes at its end.

    Raises:
        UsageError: a location of an object names no bucket, or has a part that no directory may have; or it is one of another kind of
            store.
    """
    if not is_object(location):
        # Taken for a path, ``s3a://BUCKET`` would be a directory here, and --out would go there.
        if (scheme := _SCHEME.match(location)) is not None:
            raise UsageError("expected a path, or s3://BUCKET/PREFIX", path=f"{scheme[0]}...")  # a password may stand there
        return os.path.abspath(location)
    bucket, _, key = location.removeprefix(OBJECT_SCHEME).partition("/")
    key = key.rstrip("/")
    if not bucket or any(character in bucket for character in "@:?#\\ "):
        raise UsageError("expected s3://BUCKET/PREFIX", path=f"{OBJECT_SCHEME}...")  # what stands there instead may be a password
    if key and not all(part not in ("", ".", "..") for part in key.split("/")):
        raise UsageError("a part of the prefix is empty, '.' or '..', which no directory is called", path=location)
    return f"{OBJECT_SCHEME}{bucket}/{key}" if key else f"{OBJECT_SCHEME}{bucket}"


def common_ancestor(locations: Iterable[str]) -> str:
    """The lowest directory that all locations lie in, for ``relative``."""
    return os.path.commonpath([_as_path(each) for each in locations])


def relative(location: str, ancestor: str) -> str:
    """The path of a location below what ``common_ancestor`` gave."""
    return os.path.relpath(_as_path(location), ancestor)


def _as_path(location: str) -> str:
    location = absolute(location)
    return "/" + location.removeprefix(OBJECT_SCHEME) if is_object(location) else location


def parts_of(source: OpenBytes, part_bytes: int) -> Iterator[memoryview]:
    """All bytes of an open file, in pieces; each is gone when the next is asked for.

    Raises:
        RefusedError: it became shorter, or changed; this is known before the last piece is followed by the end.
        ReadFailedError: it cannot be read.
    """
    buffer = bytearray(min(part_bytes, source.size_bytes))
    for start in range(0, source.size_bytes, part_bytes):
        part = memoryview(buffer)[: min(part_bytes, source.size_bytes - start)]
        if source.read_into(start, part) != len(part):
            raise RefusedError("became shorter while it was read", path=source.name)
        yield part
    source.check_unchanged()


def holds_bytes(store: ReadStore, location: str, source: OpenBytes) -> bool | None:
    """Whether a file has the bytes of an open one, all of which are read; None where there is none.

    Raises:
        ReadFailedError: it cannot be read.
    """
    try:
        found = store.open_bytes(location)
    except ReadFailedError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    with found:
        if found.size_bytes != source.size_bytes:
            return False
        pairs = zip(parts_of(found, BLOCK_BYTES), parts_of(source, BLOCK_BYTES), strict=True)
        return all(one == other for one, other in pairs)
