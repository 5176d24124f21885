"""The port for what must replace an object: whole reads that remember what was there, and writes that hold only while it is still that.

Apart from ``store``, because hardly anything in this program replaces what it finds: repairs of remote storage, and claims of uploads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from snaprebuild.storage.local.replace_file import read_identified, replace_file
from snaprebuild.storage.store import FileIdentity, Store

__all__ = ["LocalReplacing", "ReplacingStore", "WholeObject", "replacing"]


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
            StorageError: it cannot be told.
        """

    def replace(self, location: str, data: bytes, was: WholeObject) -> None:
        """Replaces an object that is still what it was; it is the old one or the new one, whole, at every moment.

        Raises:
            RefusedError: it is another one now, or gone, or may not be written; it was not touched.
            BusyError: another run writes it now.
            WriteFailedError: nothing took effect.
            OutcomeUnknownError: it is the old one or the new one, and nobody tells which.
        """


@dataclass(frozen=True, slots=True)
class LocalReplacing:
    """Files of this machine.

    Between two runs of this program a lock decides. Nothing keeps another program from writing between the last look at a file and the
    rename.
    """

    def read_whole(self, location: str, bytes_max: int) -> WholeObject | None:
        """See ``ReplacingStore.read_whole``."""
        found = read_identified(location, bytes_max)
        return None if found is None else WholeObject(*found)

    def prepare(self, directory: str) -> None:
        """See ``ReplacingStore.prepare``: nothing to ask."""

    def replace(self, location: str, data: bytes, was: WholeObject) -> None:
        """See ``ReplacingStore.replace``."""
        replace_file(location, data, was.identity)


def replacing(store: Store) -> ReplacingStore:
    """The way to replace what a store holds."""
    if store.is_local:
        return LocalReplacing()
    from snaprebuild.storage.s3.replace import S3Replacing
    from snaprebuild.storage.s3.store import S3Store

    assert isinstance(store, S3Store), "no other store is remote"
    return S3Replacing(store)
