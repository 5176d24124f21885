"""The files of a segment, read from its copy in remote storage, as if in a directory: ``<base offset>-<segment id><suffix>``.

LocalTieredStorage has such files. From a copy in Aiven's layout the segment is put together from its chunks, and each index is a
range of the ``.indexes`` object. Code that reads segments and snapshots through a `ReadStore` reads remote storage through this
one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from msgspec.structs import replace

from formats.compression import CODECS, decompress
from formats.errors import BadLengthError, FormatError, TruncatedError
from formats.limits import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX
from formats.remote.aiven_encryption import DataKey
from formats.remote.aiven_manifest import AivenManifest, SegmentIndex, read_aiven_manifest
from formats.remote.object_names import AivenObject, LocalTierFile
from snaprebuild.errors import ChangedFileError, DeadlinePassedError, GoneFileError, ReadFailedError, RefusedError
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.s3.object_bytes import SMALL_RANGE_BYTES
from snaprebuild.storage.store import FileIdentity, OpenBytes, ReadStore

__all__ = ["INDEX_OF", "CachedManifest", "TierStore"]

INDEX_OF = {
    LocalTierFile.OFFSET_INDEX: SegmentIndex.OFFSET,
    LocalTierFile.TIME_INDEX: SegmentIndex.TIMESTAMP,
    LocalTierFile.TRANSACTION_INDEX: SegmentIndex.TRANSACTION,
    LocalTierFile.LEADER_EPOCHS: SegmentIndex.LEADER_EPOCH,
    LocalTierFile.PRODUCER_SNAPSHOT: SegmentIndex.PRODUCER_SNAPSHOT,
}


@dataclass(frozen=True, slots=True)
class CachedManifest:
    """The manifest of a copy, so that it is not requested again for each of its files.

    Attributes:
        stem: location of its objects, without the endings of their names.
        manifest: its bytes.
        indexes: identity of the ``.indexes`` object in the listing.
    """

    stem: str
    manifest: bytes
    indexes: FileIdentity


@dataclass(frozen=True, slots=True)
class TierStore:
    """Copies in Aiven's layout as a ``store.ReadStore``.

    Attributes:
        base: the store that holds the objects.
        private_keys: for copies that are encrypted.
        manifests: those that were read before, ascending by stem. Of other copies the manifest is read for each of their files.
    """

    base: ReadStore
    private_keys: PrivateKeys = NO_KEYS
    manifests: tuple[CachedManifest, ...] = ()

    @property
    def is_local(self) -> bool:
        """False: no names that can be changed, no locks."""
        return False

    def for_file(self, location: str) -> TierStore:
        """``ReadStore.for_file`` with the manifest of that copy alone."""
        if len(self.manifests) < 2:
            return self
        cached = self._cached(location.rpartition(".")[0])
        return dataclasses.replace(self, manifests=() if cached is None else (cached,))

    def over(self, base: ReadStore) -> TierStore:
        """A store of these copies that reads their objects from another store."""
        return dataclasses.replace(self, base=base)

    def stored_bytes(self, location: str) -> int | None:
        """Size of the object of a segment, from its manifest; None if that was not read before."""
        cached = self._cached(location.rpartition(".")[0])
        return None if cached is None else read_aiven_manifest(cached.manifest).chunks.stored_bytes

    def _cached(self, stem: str) -> CachedManifest | None:
        place = bisect_left(self.manifests, stem, key=lambda each: each.stem)
        if place < len(self.manifests) and self.manifests[place].stem == stem:
            return self.manifests[place]
        return None

    def _manifest(self, location: str) -> tuple[str, LocalTierFile, AivenManifest]:
        """Stem and kind of a file, and the manifest of its copy.

        Raises:
            ReadFailedError: there is no manifest.
            FormatError: the manifest is bad.
        """
        stem, dot, suffix = location.rpartition(".")
        path = f"{stem}.{AivenObject.MANIFEST}"
        cached = self._cached(stem)
        data = self.base.read_small(path, MANIFEST_BYTES_MAX) if cached is None else cached.manifest
        if data is None:
            raise ReadFailedError("is not there, so that nothing of the copy can be read", path=path)
        return stem, LocalTierFile(dot + suffix), read_aiven_manifest(data, file=path)

    def data_key(self, manifest: AivenManifest, shown: str) -> DataKey | None:
        """The key of a copy, None if it is not encrypted.

        Raises:
            RefusedError: the private key is not given, or another one.
        """
        if manifest.encryption is None:
            return None
        return self.private_keys.data_key(manifest.encryption, shown)

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """``ReadStore.read_small`` of an index of a copy; None for a transaction index that does not exist."""
        stem, kind, manifest = self._manifest(location)
        place = manifest.indexes[INDEX_OF[kind]]
        if place is None:
            return None
        if place.size > bytes_max + 64:  # encryption adds 28
            raise ReadFailedError(f"has {place.size} bytes, more than the limit of {bytes_max}", path=location)
        if not place.size:
            return b""
        path = f"{stem}.{AivenObject.INDEXES}"
        key = self.data_key(manifest, location)
        buffer = bytearray(place.size)
        cached = self._cached(stem)
        with (
            _changed_is_unread(),
            self.base.open_bytes(path, None if cached is None else cached.indexes, may_grow=cached is None) as source,
        ):
            source.will_stop_at(place.position + place.size)
            count = source.read_into(place.position, memoryview(buffer))
        if count != place.size:
            what = f"{INDEX_OF[kind]} index"
            end = place.position + place.size
            raise TruncatedError(
                what, file=path, position=place.position, expected=f"bytes up to {end}", found=place.position + count
            )
        try:
            if key is None:
                return bytes(buffer)
            return key.decrypted(bytes(buffer), f"{INDEX_OF[kind]} index")
        except FormatError as error:
            raise error.in_file(path) from None

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool = False,
    ) -> OpenBytes:
        """``ReadStore.open_bytes`` of the segment of a copy. ``identity`` has the segment's size, and else that of the object."""
        _, _, manifest = self._manifest(location)
        chunks = manifest.chunks
        stored = chunks.stored_bytes
        if identity is not None:
            identity = replace(identity, size_bytes=stored)
        try:
            source = self.base.open_bytes(location, identity, deadline)
        except RefusedError:
            if self.base.is_local:  # another size contradicts its manifest, whatever was listed
                with self.base.open_bytes(location, may_grow=True) as found:
                    _check_length(location, found.identity.size_bytes, stored)
            raise
        try:
            _check_length(location, source.identity.size_bytes, stored)
        except FormatError:
            source.close()
            raise
        if manifest.encryption is None and not manifest.is_compressed:
            return source
        return _ChunkedBytes(source, manifest, self.data_key(manifest, location), deadline)

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        """``ReadStore.read_end`` of an index of a copy."""
        data = self.read_small(location, CHUNK_BYTES_MAX)
        return None if data is None else (len(data), data[-count:])


@contextlib.contextmanager
def _changed_is_unread() -> Iterator[None]:
    """Has an object that is not that of the listing any more be one that cannot be read: the other copies are read all the same.

    After a ``ChangedFileError`` a log directory is listed again. A store is listed once.
    """
    try:
        yield
    except GoneFileError as error:
        message = "was deleted or replaced since the store was listed"
        raise ReadFailedError(message, path=error.path, errno=errno.ENOENT) from error
    except ChangedFileError as error:
        raise ReadFailedError(error.message, path=error.path, errno=errno.ESTALE) from error


def _check_length(location: str, found_bytes: int, stored_bytes: int) -> None:
    """Raises BadLengthError if an object does not have the size in its manifest."""
    if found_bytes != stored_bytes:
        raise BadLengthError("chunks", file=location, expected=f"{stored_bytes} bytes", found=f"{found_bytes}")


RUN_BYTES = 1 << 20
"""Stored bytes that are read at once for a reader that goes through the segment: more than ``object_bytes`` takes for a small
range. So small chunks cost no more requests than one large one."""


class _ChunkedBytes:
    """A segment whose chunks are compressed or encrypted; a ``store.OpenBytes``.

    One chunk is in memory at a time, and some MiB of stored bytes, which are read in order whatever the chunks are.
    """

    def __init__(self, source: OpenBytes, manifest: AivenManifest, key: DataKey | None, deadline: float | None) -> None:
        self._source = source
        self._chunks = manifest.chunks
        self._positions = manifest.chunks.positions
        self._is_compressed = manifest.is_compressed
        self._key = key
        self._deadline = deadline
        self._held: tuple[int, bytes] = (-1, b"")
        self._run = bytearray()
        self._run_begin = 0
        self._goes_on = False

    @property
    def name(self) -> str:
        """Location of the object."""
        return self._source.name

    @property
    def identity(self) -> FileIdentity:
        """The identity of the object, with the size of the segment."""
        stored = self._source.identity
        return FileIdentity(self._chunks.file_size, stored.modified_ns, stored.inode, stored.etag)

    @property
    def size_bytes(self) -> int:
        """Size of the segment."""
        return self._chunks.file_size

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Fills ``buffer`` from ``position_bytes``; returns the count of bytes, less than requested only at the end.

        Raises:
            FormatError: a chunk does not match the manifest.
            ReadFailedError, RefusedError: as the store that holds the object.
        """
        end = min(position_bytes + len(buffer), self.size_bytes)
        position = position_bytes
        self._goes_on = len(buffer) > SMALL_RANGE_BYTES
        while position < end:
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise DeadlinePassedError("the deadline has passed", path=self.name)
            number = position // self._chunks.original_size
            begin, stop = self._chunks.original(number)
            count = min(stop, end) - position
            data = self._chunk(number)
            buffer[position - position_bytes : position - position_bytes + count] = data[
                position - begin : position - begin + count
            ]
            position += count
        return max(end - position_bytes, 0)

    def _chunk(self, number: int) -> bytes:
        if self._held[0] == number:
            return self._held[1]
        begin, stop = self._chunks.original(number)
        place = int(self._positions[number])
        size = self._chunks.sizes[number]
        if max(stop - begin, size) > CHUNK_BYTES_MAX:
            expected = f"at most {CHUNK_BYTES_MAX} bytes"
            raise BadLengthError("chunk", file=self.name, position=place, expected=expected, found=max(stop - begin, size))
        self._held = (-1, b"")  # not two at once
        data = self._stored(place, size)
        if len(data) != size:
            raise TruncatedError("chunk", file=self.name, position=place, expected=f"{size} bytes", found="fewer")
        try:
            if self._key is not None:
                data = self._key.decrypted(data, "chunk")
            if self._is_compressed:
                data = decompress(CODECS.index("zstd"), data, bytes_max=stop - begin)
            if len(data) != stop - begin:
                raise BadLengthError("chunk", expected=f"{stop - begin} bytes", found=len(data))
        except FormatError as error:
            raise error.shifted_by(place).in_file(self.name) from None
        self._held = (number, data)
        return data

    def _stored(self, place: int, size: int) -> bytes:
        """Bytes of the object; fewer at its end. Continues where the last read ended, if possible."""
        begin = self._run_begin
        reached = self._run_begin + len(self._run)
        if not begin <= place <= reached:
            self._run = bytearray()
            self._run_begin = place
            begin = place
            reached = place
        if place + size > reached:
            del self._run[: max(place - RUN_BYTES - begin, 0)]  # a reader goes back to a batch that was not whole
            self._run_begin = begin = reached - len(self._run)
            wanted = max(place + size - reached, RUN_BYTES if self._goes_on else 0)
            buffer = bytearray(min(wanted, int(self._positions[-1]) - reached))
            count = self._source.read_into(reached, memoryview(buffer))
            self._run += buffer[:count]
        return bytes(self._run[place - begin : place - begin + size])

    def will_stop_at(self, position_bytes: int) -> None:
        """``OpenBytes.will_stop_at``: up to some whole chunks more may be fetched ahead."""

    def check_unchanged(self) -> None:
        """``OpenBytes.check_unchanged`` of the object."""
        self._source.check_unchanged()

    def close(self) -> None:
        """Closes the object."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._source.__exit__(*error)
