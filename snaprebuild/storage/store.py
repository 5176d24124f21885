"""The interface to files and objects: the values that name them, and the operations of a store.

A location is a string: an absolute path, or ``s3://bucket/key``. ``os.path.join``, ``dirname`` and ``basename`` work for both;
access to the storage itself goes through a `Store`. Stores are small values (only settings), so that they can be sent to worker
processes, and two with equal settings are equal.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Protocol, Self, runtime_checkable

import msgspec

from formats.log.batch_headers import SegmentBytes
from snaprebuild.argument_checks import check_flag, check_size, check_text, optional
from snaprebuild.argument_names import names_members
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.published import Inode, Int64, Natural, Positive

__all__ = [
    "ABOVE_BUCKETS",
    "MORE_REQUESTS",
    "OBJECT_SCHEME",
    "USUAL_S3",
    "FileIdentity",
    "ObjectStatus",
    "OpenBytes",
    "Ownership",
    "ReadStore",
    "S3Connection",
    "S3Settings",
    "Status",
    "Store",
    "WholeObject",
    "absolute",
    "check_settings",
    "common_ancestor",
    "holds_bytes",
    "is_object",
    "parts_of",
    "relative",
]

OBJECT_SCHEME = "s3://"
"""Prefix of the location of an object."""

ABOVE_BUCKETS = "s3:"
"""The ``os.path.dirname`` of a bucket; it contains nothing."""

MORE_REQUESTS = ", or set max_requests to allow more"
"""Advice about a listing that is too long. Data sources of Spark leave it out, which have no such option."""

BLOCK_BYTES = 1 << 20
"""Bytes of a large file that are compared at once."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class ObjectStatus(msgspec.Struct, frozen=True):
    """The status of an object in a listing, like that of a regular file that every user may read.

    Attributes:
        st_size: bytes.
        st_mtime_ns: when it was last written, ns since 1970.
        st_etag: as the store gave it.
        st_storage_class: as the store gave it; without one, the usual class.
    """

    st_size: int
    st_mtime_ns: int
    st_etag: str
    st_mode: int = stat.S_IFREG | 0o644
    st_ino: int = 0
    st_uid: int = 0
    st_gid: int = 0
    st_storage_class: str = "STANDARD"


Status = os.stat_result | ObjectStatus
"""The status of a file or an object in a listing."""


class FileIdentity(msgspec.Struct, frozen=True):
    """Shows whether a file has changed.

    Attributes:
        size_bytes: count of its bytes.
        modified_ns: modification time, ns since 1970.
        inode: of a file; 0 for an object.
        etag: of an object, instead of the inode; None for a file.
    """

    size_bytes: Natural
    modified_ns: Int64
    inode: Inode = 0
    etag: str | None = None

    @classmethod
    def of(cls, status: Status) -> FileIdentity:
        """The identity in a ``stat`` result, or its counterpart for an object."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, getattr(status, "st_etag", None))

    def is_still(self, present: FileIdentity, *, may_grow: bool) -> bool:
        """Whether a file that was listed as this one is still the same.

        Args:
            present: its identity now.
            may_grow: a broker may have appended to it.
        """
        if not may_grow:
            return self == present
        return (self.inode, self.etag) == (present.inode, present.etag) and present.size_bytes >= self.size_bytes

    @property
    def row(self) -> tuple[int, int, int | str]:
        """Size, modification time, and inode or ETag: documents identify an input by them."""
        return self.size_bytes, self.modified_ns, self.inode if self.etag is None else self.etag


class Ownership(msgspec.Struct, frozen=True):
    """Owner and permissions of a file.

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
        """The identity of the file when it was opened."""

    def will_stop_at(self, position_bytes: int) -> None:
        """Announces that nothing after this position will be read, so that it need not be fetched ahead."""

    def check_unchanged(self) -> None:
        """Makes sure that all bytes that were read are those of one file at one moment.

        Leaving the context calls it, also early and after a ``FormatError``: bytes that are half of one log and half of another
        follow no format. Call it before bytes take effect.

        Raises:
            ChangedFileError: they may not be.
        """

    def close(self) -> None:
        """Releases all resources of reading."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class ReadStore(Protocol):
    """Files or objects, read by their location: all that is needed of copies in remote storage, which have no listing of their own."""

    @property
    def is_local(self) -> bool:
        """Whether it is a file system: with locks, owners, links, and renames. Elsewhere small reads mostly wait : use threads."""

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """All bytes of a small regular file, or None when it is absent.

        Raises:
            ReadFailedError: it cannot be read, is no regular file, or is larger than ``bytes_max``.
            RefusedError: a limit of the run is used up.
        """

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        """Size of a file, and its last ``count`` bytes, or all if it is smaller; None when it is absent.

        Raises:
            ReadFailedError: it cannot be read, or is no regular file.
            RefusedError: a limit of the run is used up.
        """

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool = False,
    ) -> OpenBytes:
        """Opens a file to be read in ranges. Every range is checked against ``identity``, so that no reader can forget it.

        Args:
            location: of the file.
            identity: from the listing; None for the file that is there now.
            deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
            may_grow: a program may append to it meanwhile, as a broker does to the active segment.

        Raises:
            ReadFailedError: it cannot be opened (``errno`` is ENOENT if it is absent).
            RefusedError: it is not the file of the listing (GoneFileError if that file is gone). Reading an object raises it, too.
                Leaving the context of a file that was read raises ChangedFileError (``OpenBytes.check_unchanged``).
        """

    def for_file(self, location: str) -> ReadStore:
        """The part that is enough to read one file: it is sent to the process that reads the file."""


@runtime_checkable
class Store(ReadStore, Protocol):
    """Listings, creation that never replaces, and replacement of what was read.

    ``LocalStore`` and ``S3Store`` are the two stores.
    """

    def present(self, directory: str, names: Iterable[str]) -> frozenset[str]:
        """The names that exist already in a directory.

        Raises:
            ReadFailedError: it is unknown.
        """

    def holds_segments(self, directory: str) -> bool:
        """Whether segments are directly in a directory, as far as it can be listed."""

    def names_in(self, directory: str) -> frozenset[str]:
        """The files directly in a directory; none if it is absent.

        Raises:
            ReadFailedError: it cannot be listed.
            RefusedError: a limit of the run is used up.
        """

    def list_below(self, location: str, name_prefix: str = "") -> Iterator[tuple[str, Status]]:
        """Path below a location and status of every file there; the files of each directory are consecutive.

        Args:
            location: a directory.
            name_prefix: only paths that begin with it.

        Raises:
            ReadFailedError: it cannot be listed.
            GoneFileError: a local directory does not exist any more.
            RefusedError: a limit of the run is used up.
        """

    def prepare_writes(self, directory: str, largest_bytes: int = 0) -> None:
        """Makes sure, once for each place, that nothing below a directory would ever be replaced.

        Args:
            directory: that is written to.
            largest_bytes: of the files that ``create_large`` will create; 0 for none.

        Raises:
            RefusedError: the store would replace an existing file.
            StorageError: it is unknown.
        """

    def wrote(self, location: str, since_ns: int) -> bool:
        """Whether this run made a file. An object has the run in its metadata; for a file the modification time decides.

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
            directory: of the file; made if it is missing.
            name: inside the directory.
            data: all of its bytes.
            owner: it must have, if the store knows owners; None for that of the process.
            temporary_name: to write under, if the store needs one.
            before_name: called with the modification time, ns, before the file gets its name; 0 if the store sets the time itself.
                If it raises, nothing is left.

        Raises:
            AlreadyExistsError: the name is taken; the file there was not touched.
            BusyError: another run writes the same file now.
            RefusedError: it may not be written.
            WriteFailedError: nothing took effect.
            OutcomeUnknownError: the file exists or may exist.
        """

    def create_large(self, location: str, source: OpenBytes) -> None:
        """Creates a file with the bytes of an open one. Continues what an earlier run began, if the store keeps parts.

        Raises:
            AlreadyExistsError: the name is taken, perhaps by this very run, whose answer was lost: ``holds`` shows it.
            BusyError: another run writes the same file now.
            RefusedError: it may not be written.
            WriteFailedError: nothing took effect.
            OutcomeUnknownError: the file exists or may exist.
            ReadFailedError: the source cannot be read.
        """

    def holds(self, location: str, source: OpenBytes) -> bool | None:
        """Whether a file has the bytes of an open one; None if there is no such file.

        Raises:
            ReadFailedError: it is unknown.
        """

    def read_whole(self, location: str, bytes_max: int) -> WholeObject | None:
        """All bytes of a file with its identity, for ``replace``; None when it is absent.

        Raises:
            ReadFailedError: it cannot be read, or is larger than ``bytes_max``.
            RefusedError: a limit of the run is used up.
        """

    def prepare_replacing(self, directory: str) -> None:
        """Makes sure, before anything is replaced below a directory, that the store honours conditions there.

        Raises:
            RefusedError: it does not.
            StorageError: it is unknown.
        """

    def replace(self, location: str, data: bytes, was: WholeObject) -> None:
        """Replaces a file if it is still the one that was read; at every moment it is whole, either the old or the new one.

        Raises:
            RefusedError: it is another one now, or gone, or may not be written; it was not touched.
            BusyError: another run writes it now.
            WriteFailedError: nothing took effect.
            OutcomeUnknownError: it is the old one or the new one.
        """


@dataclass(frozen=True, slots=True)
class WholeObject:
    """An object as it was read.

    Attributes:
        data: all of its bytes.
        identity: its identity when it was read: only this object may be replaced.
        kept: headers that a replacement repeats, if the store has them: storage class, encryption, metadata of its writer.
        not_kept: what a replacement would lose, so that it is refused; None if nothing is lost.
    """

    data: bytes = field(repr=False)
    identity: FileIdentity
    kept: Mapping[str, object] = field(default_factory=dict)
    not_kept: str | None = None


@dataclass(frozen=True, slots=True)
class S3Connection:
    """How object stores are reached."""

    # The members are described at ``S3Settings``; documents have these and no run.
    endpoint_url: str | None = None
    path_style: bool = False
    profile: str | None = None
    anonymous: bool = False
    requester_pays: bool = False
    sse_c_key_file: str | None = None
    """Path of the file, never its content."""
    max_requests: Positive | None = None
    max_read_bytes: Positive | None = None


@names_members
@dataclass(frozen=True, slots=True)
class S3Settings(S3Connection):
    """How an object store is reached. It contains no secret: secrets come from the usual chain of the SDK, or from files.

    Attributes:
        endpoint_url: None for that of the environment, else Amazon's.
        path_style: ``endpoint/bucket/key`` instead of a host name for each bucket.
        profile: of the shared configuration files; None for the usual choice.
        anonymous: requests are not signed, and no credentials are looked for.
        requester_pays: the caller pays for requests and transfer.
        sse_c_key_file: file with the 32 bytes of a customer's key, raw or in base64. If None, the process that sends the request
            uses the key in base64 in the variable ``SNAPREBUILD_S3_SSE_C_KEY``, if that is set.
        max_requests: requests that a run may send, None for any number.
        max_read_bytes: bytes that a run may read, None for any number.
        run: for which the two limits count, and whose name its objects have; stores are equal without it. Without a name each value with
            a limit is of a run of its own, as are the values that ``dataclasses.replace`` makes of it.
        region: of the bucket; None for that of the SDK.
        broker_properties: configuration of a broker whose access key is used, read by the process that sends the requests; None for
            the usual chain of the SDK.
    """

    run: str = field(default="", compare=False, repr=False)
    region: str | None = None
    broker_properties: str | None = None

    def __post_init__(self) -> None:
        if self.is_limited and not self.run:
            object.__setattr__(self, "run", secrets.token_hex(8))

    @property
    def is_limited(self) -> bool:
        """Whether the run may send some number of requests only, or read some number of bytes."""
        return self.max_requests is not None or self.max_read_bytes is not None

    @property
    def connection(self) -> S3Connection:
        """The settings without the run, for a document."""
        return S3Connection(**{each.name: getattr(self, each.name) for each in fields(S3Connection)})

    def for_run(self) -> S3Settings:
        """The settings with a run: this one's, or a new one if it has none."""
        return self if self.run else replace(self, run=secrets.token_hex(8))


USUAL_S3 = S3Settings()
"""The settings of the environment and the SDK."""


def check_settings(settings: S3Settings) -> None:
    """Makes sure that the settings of object stores go together, and that the address of the store holds no password.

    Receipts and the next command name the address.

    Raises:
        UsageError: they do not, or it does, or a value is of another type.
    """
    for name in ("path_style", "anonymous", "requester_pays"):
        check_flag(name, getattr(settings, name))
    for name in ("endpoint_url", "profile", "sse_c_key_file", "region", "broker_properties"):
        optional(check_text)(name, getattr(settings, name))
    for name in ("max_requests", "max_read_bytes"):
        optional(check_size)(name, getattr(settings, name))
    if settings.anonymous and settings.requester_pays:
        raise UsageError("s3_anonymous: an anonymous request has no account that pays, as s3_requester_pays asks for")
    if settings.endpoint_url is not None:
        _check_endpoint(settings.endpoint_url)


def _check_endpoint(url: str) -> None:
    from urllib.parse import urlsplit  # most runs name no endpoint

    expected = "--s3-endpoint-url: expected http://HOST:PORT or https://HOST, without user, password, query or fragment"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(expected) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in url or "?" in url or "#" in url or port == 0:
        raise UsageError(expected)  # without the URL: it may hold a password


_SCHEME_ADVICE = {
    "file://": "; a local path has no scheme",
    "http://": "; the URL of a store goes with --s3-endpoint-url",
    "https://": "; the URL of a store goes with --s3-endpoint-url",
    "s3://": ", in lower case",
    "s3a://": ": that is the scheme of Hadoop for the same bucket",
    "s3n://": ": that is the scheme of Hadoop for the same bucket",
    "gs://": "; Google's store answers as S3 at --s3-endpoint-url https://storage.googleapis.com",
}
"""The advice for each scheme that is not supported, which continues an error."""


def is_object(location: str) -> bool:
    """Whether a location leads into an object store."""
    return location.startswith(OBJECT_SCHEME)


def absolute(location: str) -> str:
    """A location that does not depend on the working directory; a prefix has no slashes at its end.

    Raises:
        UsageError: a location of an object names no bucket, or has a part that no directory may have. Or it belongs to another kind
            of store.
    """
    if not is_object(location):
        # As a path, ``s3a://BUCKET`` would be a directory here, and --out would write there.
        if (scheme := _SCHEME.match(location)) is not None:
            advice = _SCHEME_ADVICE.get(scheme[0].lower(), "")
            # The rest may hold a password.
            raise UsageError(f"expected a path, or s3://BUCKET/PREFIX{advice}", path=f"{scheme[0]}...")
        return os.path.abspath(location)
    bucket, _, key = location.removeprefix(OBJECT_SCHEME).partition("/")
    key = key.rstrip("/")
    if not bucket or any(character in bucket for character in "@:?#\\ "):
        raise UsageError("expected s3://BUCKET/PREFIX", path=f"{OBJECT_SCHEME}...")  # the text may contain a password
    if key and not all(part not in ("", ".", "..") for part in key.split("/")):
        raise UsageError("a part of the prefix is empty, '.' or '..': no directory may have this name", path=location)
    return f"{OBJECT_SCHEME}{bucket}/{key}" if key else f"{OBJECT_SCHEME}{bucket}"


def common_ancestor(locations: Iterable[str]) -> str:
    """The lowest directory that contains all locations, for ``relative``."""
    return os.path.commonpath([_as_path(each) for each in locations])


def relative(location: str, ancestor: str) -> str:
    """The path of a location below the result of ``common_ancestor``."""
    if location.startswith(f"{ancestor}{os.sep}") and location == os.path.normpath(location):
        return location[len(ancestor) + 1 :]
    return os.path.relpath(_as_path(location), ancestor)


def _as_path(location: str) -> str:
    location = absolute(location)
    return "/" + location.removeprefix(OBJECT_SCHEME) if is_object(location) else location


def parts_of(source: OpenBytes, part_bytes: int) -> Iterator[memoryview]:
    """All bytes of an open file, in pieces; each piece is valid until the next one is requested.

    Raises:
        RefusedError: it became shorter, or changed; raised before the iterator ends after the last piece.
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
    """Whether a file has the bytes of an open one, all of which are read; None if there is no such file.

    Raises:
        ReadFailedError: it cannot be read.
    """
    try:
        existing = store.open_bytes(location, may_grow=True)
    except ReadFailedError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    with existing:
        if existing.size_bytes != source.size_bytes:
            return False
        pairs = zip(parts_of(existing, BLOCK_BYTES), parts_of(source, BLOCK_BYTES), strict=True)
        return all(one == other for one, other in pairs)
