"""The store of a location, and how it creates large files and replaces files."""

from __future__ import annotations

from snaprebuild.storage.local.store import LOCAL, LocalLargeObjects, LocalReplacing, LocalStore
from snaprebuild.storage.store import USUAL_S3, LargeObjects, ReplacingStore, S3Settings, Store, is_object

__all__ = ["large_objects_of", "replacing", "store_of"]

PART_BYTES = 16 << 20
"""Bytes of an object that are sent in one request, and held: 128 parts for the largest segment. S3 accepts 10,000."""


# The SDK takes longer to import than most commands run.


def store_of(location: str, settings: S3Settings = USUAL_S3) -> Store:
    """The store that holds a location."""
    if not is_object(location):
        return LOCAL
    from snaprebuild.storage.s3.store import S3Store

    return S3Store(settings)


def large_objects_of(store: Store, part_bytes: int = PART_BYTES) -> LargeObjects:
    """Creation of the large files of a store."""
    if isinstance(store, LocalStore):
        return LocalLargeObjects(store)
    from snaprebuild.storage.s3.multipart import S3LargeObjects

    return S3LargeObjects(store, part_bytes)  # type: ignore[arg-type]


def replacing(store: Store) -> ReplacingStore:
    """Replacement of the files of a store."""
    if store.is_local:
        return LocalReplacing()
    from snaprebuild.storage.s3.replace import S3Replacing
    from snaprebuild.storage.s3.store import S3Store

    assert isinstance(store, S3Store), "no other store is remote"
    return S3Replacing(store)
