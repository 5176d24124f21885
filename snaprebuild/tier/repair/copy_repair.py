"""Gives a copy in Aiven's layout another producer snapshot, by two conditional writes that leave it readable at every moment.

``.indexes`` becomes its old bytes, unchanged, followed by the right snapshot: the old manifest stays valid. Then the manifest becomes one
that differs in the place of the snapshot alone. A reader with an old manifest in its cache reads the old bytes, whole. A run that died
between the two leaves the snapshot after the indexes, where the next run finds it and writes the manifest only. After any other bytes
there, as of a run whose replay had another result, the right snapshot is appended: the bytes that were there stay.

Source: ``SegmentManifestV1``, ``KafkaRemoteStorageManager.fetchIndex`` of the plugin.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.limits import MANIFEST_BYTES_MAX
from formats.remote.aiven_encryption import VECTOR_BYTES, DataKey
from formats.remote.aiven_manifest import AivenManifest, IndexPlace, SegmentIndex, read_aiven_manifest, write_aiven_manifest
from formats.remote.object_names import AivenObject
from snaprebuild.errors import OutcomeUnknownError, ReadFailedError, RefusedError
from snaprebuild.storage.remote.listing import CopyObjects
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store import FileIdentity, WholeObject
from snaprebuild.storage.store_path import StorePath

__all__ = ["CopyRepair", "RepairPlace", "copy_repair", "read_back", "write_repair"]

INDEXES_BYTES_MAX = 2**31 - 1
"""Positions in a manifest are int32."""


@dataclass(frozen=True, slots=True)
class RepairPlace:
    """The places that a repair changes, without the bytes, because a run with many copies cannot hold all of them.

    Attributes:
        manifest_key: below the root, as ``indexes_key``.
        indexes_bytes: size of ``.indexes`` before.
        appended_bytes: to it; 0 if a run that died has done that.
        old: place of the wrong snapshot, in ``.indexes``.
        new: of the right one.
    """

    manifest_key: str
    indexes_key: str
    indexes_bytes: int
    appended_bytes: int
    old: IndexPlace
    new: IndexPlace


@dataclass(frozen=True, slots=True)
class CopyRepair:
    """The bytes that are written to one copy.

    Attributes:
        manifest_at: where it is, as ``indexes_at``.
        manifest: as it was read, as ``indexes``.
        appended: to ``.indexes``.
        new_manifest: its bytes.
    """

    place: RepairPlace
    manifest_at: StorePath
    indexes_at: StorePath
    manifest: WholeObject = field(repr=False)
    indexes: WholeObject = field(repr=False)
    appended: bytes = field(repr=False)
    new_manifest: bytes = field(repr=False)


def copy_repair(root: StorePath, tier: TierStore, copy: CopyObjects, right: bytes) -> CopyRepair:
    """Reads the objects, and makes what replaces them. Writes nothing.

    Args:
        root: of the listing.
        tier: its store, with the private key.
        copy: as it was listed, and audited.
        right: the snapshot.

    Raises:
        RefusedError: the objects are not what they were, or are such that they are left alone.
        ReadFailedError: they cannot be read.
        FormatError: the manifest is bad.
    """
    keys = {kind: copy.by_kind[kind].key for kind in AivenObject}
    stem = keys[AivenObject.LOG].removesuffix(f".{AivenObject.LOG}")
    if copy.others or any(key != f"{stem}.{kind}" for kind, key in keys.items()):
        message = "objects of this copy are below several prefixes: name the one that brokers use"
        raise RefusedError(message, path=f"{root}/{keys[AivenObject.MANIFEST]}")
    manifest_at, manifest = _read(root, copy, AivenObject.MANIFEST, MANIFEST_BYTES_MAX)
    indexes_at, indexes = _read(root, copy, AivenObject.INDEXES, INDEXES_BYTES_MAX)
    parsed = read_aiven_manifest(manifest.data, file=manifest_at.path)
    if write_aiven_manifest(parsed.document) != manifest.data:
        raise RefusedError("is not written as the plugin writes, and would change in more than one place", path=manifest_at.path)
    used = max(place.position + place.size for place in parsed.indexes.values() if place is not None)
    if used > len(indexes.data):
        raise RefusedError(f"has {len(indexes.data)} bytes, and its manifest names {used}", path=indexes_at.path)
    appended, size = _appended(tier.data_key(parsed, manifest_at.path), indexes.data[used:], right)
    end = len(indexes.data) + len(appended)
    if end > INDEXES_BYTES_MAX:
        raise RefusedError(f"would be larger than {INDEXES_BYTES_MAX} bytes", path=indexes_at.path)
    old = parsed.indexes[SegmentIndex.PRODUCER_SNAPSHOT]
    new = IndexPlace(end - size, size)
    assert old is not None, "every manifest has one"
    place = RepairPlace(keys[AivenObject.MANIFEST], keys[AivenObject.INDEXES], len(indexes.data), len(appended), old, new)
    return CopyRepair(
        place=place,
        manifest_at=manifest_at,
        indexes_at=indexes_at,
        manifest=manifest,
        indexes=indexes,
        appended=appended,
        new_manifest=_with_place(parsed, new),
    )


def _read(root: StorePath, copy: CopyObjects, kind: AivenObject, bytes_max: int) -> tuple[StorePath, WholeObject]:
    listed = copy.by_kind[kind]
    file = root.below(listed.key)
    location = file.path
    found = file.read_whole(bytes_max)
    if found is None:
        raise RefusedError("is gone since it was listed (another program writes here): run again", path=location)
    if not _is_same(found.identity, listed.identity):
        raise RefusedError("changed since it was listed (another program writes here): run again", path=location)
    if found.not_kept is not None:
        raise RefusedError(f"has {found.not_kept}, which a replacement would lose", path=location)
    return file, found


def _is_same(found: FileIdentity, listed: FileIdentity) -> bool:
    if listed.etag is None:
        return found == listed
    return (found.size_bytes, found.etag) == (listed.size_bytes, listed.etag)  # times are rounded differently


def _appended(key: DataKey | None, tail: bytes, right: bytes) -> tuple[bytes, int]:
    """The bytes to append, and their size there; none if the tail ends with the right snapshot already."""
    stored = right if key is None else key.encrypted(right, os.urandom(VECTOR_BYTES))
    last = tail[-len(stored) :]
    try:
        is_right = len(last) == len(stored) and (last if key is None else key.decrypted(last, "snapshot")) == right
    except FormatError:
        is_right = False
    return b"" if is_right else stored, len(stored)


def _with_place(manifest: AivenManifest, place: IndexPlace) -> bytes:
    document = deepcopy(manifest.document)
    document["segmentIndexes"][SegmentIndex.PRODUCER_SNAPSHOT].update(position=place.position, size=place.size)
    return write_aiven_manifest(document)


def write_repair(repair: CopyRepair, announce: Callable[[], None]) -> FileIdentity:
    """Writes. An error leaves the copy as it was, or with the right snapshot after its indexes, or repaired.

    Returns:
        The identity of the new manifest.

    Args:
        repair: what is written.
        announce: called before the first write; if it raises, nothing is written.

    Raises:
        RefusedError: an object changed meanwhile, and was not touched.
        StorageError: as ``Store.replace``, or what was written cannot be read back.
    """
    announce()
    if repair.appended:
        data = repair.indexes.data + repair.appended
        repair.indexes_at.replace(data, repair.indexes)
        read_back(repair.indexes_at, data)
    repair.manifest_at.replace(repair.new_manifest, repair.manifest)
    return read_back(repair.manifest_at, repair.new_manifest)


def read_back(file: StorePath, data: bytes) -> FileIdentity:
    """Compares what is there with what was just written.

    Returns:
        Its identity.

    Raises:
        OutcomeUnknownError: it is something else, or cannot be read.
    """
    try:
        found = file.read_whole(max(len(data), MANIFEST_BYTES_MAX))
    except (ReadFailedError, RefusedError) as error:
        raise OutcomeUnknownError(f"was written, and cannot be read back: {error.message}", path=file.path) from None
    if found is None or found.data != data:
        what = "is gone" if found is None else "holds other bytes"
        raise OutcomeUnknownError(f"was written, and {what} when it is read back", path=file.path)
    return found.identity
