"""The store of a location."""

from __future__ import annotations

from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store import USUAL_S3, S3Settings, Store, is_object
from snaprebuild.storage.store_path import StorePath

__all__ = ["path_of", "store_of"]


def store_of(location: str, stores: S3Settings = USUAL_S3) -> Store:
    """The store that holds a location."""
    if not is_object(location):
        return LOCAL
    # The SDK takes longer to import than most commands run.
    from snaprebuild.storage.s3.store import S3Store

    return S3Store(stores)


def path_of(location: str, stores: S3Settings = USUAL_S3) -> StorePath:
    """A location with the store that holds it."""
    return StorePath(store_of(location, stores), location)
