"""A store whose small objects are read once for a ledger: manifests, snapshots, indexes, and the ends of segments.

That an object is gone is not kept: it was listed, so that another run may find it.

It is only for the process that judges. Segments are read through the store below (``for_file``), and the ledger keeps their summaries.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from snaprebuild.storage.store import FileIdentity, OpenBytes, ReadStore
from snaprebuild.tier.ledger.ledger_file import AuditLedger, CopyKey

__all__ = ["KeptStore"]

RANGE_BYTES_MAX = 1 << 20
"""A part of an object that is larger is not kept."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptStore:
    """Another store, whose small objects are in a ledger once they were read; a ``store.ReadStore``.

    Attributes:
        base: the store.
        ledger: that has, and gets, what was read.
        keys: the copy of each object that is kept, by location. Others are read from the store.
    """

    base: ReadStore
    ledger: AuditLedger = field(repr=False)
    keys: Mapping[str, CopyKey] = field(repr=False)

    @property
    def is_local(self) -> bool:
        """Whether the other store is local."""
        return self.base.is_local

    def for_file(self, location: str) -> ReadStore:
        """The store below: what another process reads is not kept."""
        return self.base.for_file(location)

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """``ReadStore.read_small`` of the other store, once."""
        key = self.keys.get(location)
        if key is None:
            return self.base.read_small(location, bytes_max)
        of = f"{_name(location)}:all"
        kept = self.ledger.range(key, of)
        if kept is not None and kept.data is not None:
            return kept.data
        data = self.base.read_small(location, bytes_max)
        if data is not None and len(data) <= RANGE_BYTES_MAX:
            self.ledger.keep_range(key, of, len(data), data)
        return data

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        """``ReadStore.read_end`` of the other store, once."""
        key = self.keys.get(location)
        if key is None:
            return self.base.read_end(location, count)
        of = f"{_name(location)}:-{count}"
        kept = self.ledger.range(key, of)
        if kept is not None and kept.data is not None:
            return kept.size_bytes, kept.data
        end = self.base.read_end(location, count)
        if end is not None and len(end[1]) <= RANGE_BYTES_MAX:
            self.ledger.keep_range(key, of, *end)
        return end

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool = False,
    ) -> OpenBytes:
        """``ReadStore.open_bytes`` of the other store. It is opened when something is read of it that the ledger does not have."""
        key = self.keys.get(location)
        if key is None or identity is None:
            return self.base.open_bytes(location, identity, deadline, may_grow)
        return _KeptBytes(self, key, location, identity, deadline, may_grow=may_grow)


def _name(location: str) -> str:
    """The ending of the name of an object, which distinguishes it from the others of its copy."""
    return os.path.basename(location).rpartition(".")[2]


class _KeptBytes:
    """An object of which each part is read once; a ``store.OpenBytes``."""

    def __init__(
        self, store: KeptStore, key: CopyKey, location: str, identity: FileIdentity, deadline: float | None, *, may_grow: bool
    ) -> None:
        self._store = store
        self._key = key
        self._location = location
        self._identity = identity
        self._deadline = deadline
        self._may_grow = may_grow
        self._source: OpenBytes | None = None
        self._stop: int | None = None
        self._new: list[tuple[str, bytes]] = []

    @property
    def name(self) -> str:
        """Location of the object."""
        return self._location

    @property
    def identity(self) -> FileIdentity:
        """The identity in the listing, which every part was read with."""
        return self._identity

    @property
    def size_bytes(self) -> int:
        """Size of the object."""
        return self._identity.size_bytes

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """``SegmentBytes.read_into``, from the ledger if this part was read before."""
        of = f"{_name(self._location)}:{position_bytes}+{len(buffer)}"
        kept = self._store.ledger.range(self._key, of)
        if kept is not None and kept.data is not None:
            buffer[: len(kept.data)] = kept.data
            return len(kept.data)
        count = self._opened().read_into(position_bytes, buffer)
        if count <= RANGE_BYTES_MAX:
            self._new.append((of, bytes(buffer[:count])))
        return count

    def _opened(self) -> OpenBytes:
        if self._source is None:
            self._source = self._store.base.open_bytes(self._location, self._identity, self._deadline, self._may_grow)
            if self._stop is not None:
                self._source.will_stop_at(self._stop)
        return self._source

    def will_stop_at(self, position_bytes: int) -> None:
        """``OpenBytes.will_stop_at`` of the object, once it is opened."""
        self._stop = position_bytes
        if self._source is not None:
            self._source.will_stop_at(position_bytes)

    def check_unchanged(self) -> None:
        """``OpenBytes.check_unchanged``, if anything was read."""
        if self._source is not None:
            self._source.check_unchanged()

    def close(self) -> None:
        """Closes the object, if it was opened."""
        if self._source is not None:
            self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._source is not None:
            self._source.__exit__(*error)
        # Only bytes of an object that did not change while it was read.
        for of, data in self._new:
            self._store.ledger.keep_range(self._key, of, self.size_bytes, data)
        self._new = []
