"""A store that remembers small files: snapshots of a window are evidence for one another, and each is read once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from snaprebuild.errors import ReadFailedError
from snaprebuild.storage.store import FileIdentity, OpenBytes, ReadStore

__all__ = ["RememberingStore"]

REMEMBERED_BYTES_MAX = 64 << 20
"""Bytes of the snapshots of a window that are kept in memory. Further ones are read again when they are evidence."""


@dataclass(slots=True)
class RememberingStore:
    """Another store, small files of which are read once.

    Attributes:
        ended: why nothing more is read; None as long as the other store is read.
    """

    base: ReadStore
    ended: str | None = None
    _found: dict[str, bytes | None] = field(default_factory=dict)
    _size: int = 0

    @property
    def is_local(self) -> bool:
        """Whether the other store is local."""
        return self.base.is_local

    def for_file(self, location: str) -> ReadStore:
        """``ReadStore.for_file`` of the other store."""
        return self.base.for_file(location)

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether a file of this size would be kept."""
        return self._size + size_bytes <= REMEMBERED_BYTES_MAX

    def has_read(self, location: str) -> bool:
        """Whether a file is kept."""
        return location in self._found

    def without_requests(self, reason: str) -> RememberingStore:
        """The files that are kept. To read any other one fails for a reason."""
        return replace(self, ended=reason)

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """``ReadStore.read_small``, from memory if the file was read before."""
        if location in self._found:
            return self._found[location]
        if self.ended is not None:
            raise ReadFailedError(f"was not read: {self.ended}", path=location)
        data = self.base.read_small(location, bytes_max)
        size = 0 if data is None else len(data)
        if self._size + size <= REMEMBERED_BYTES_MAX:
            self._found[location] = data
            self._size += size
        return data

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        """``ReadStore.read_end`` of the other store."""
        return self.base.read_end(location, count)

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool = False,
    ) -> OpenBytes:
        """``ReadStore.open_bytes`` of the other store."""
        return self.base.open_bytes(location, identity, deadline, may_grow)
