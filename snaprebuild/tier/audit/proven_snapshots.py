"""Snapshots that a replay of copies in remote storage proved, for a repair."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import dataclass
from typing import Self

from snaprebuild.errors import WriteFailedError
from snaprebuild.storage.local.temporary_directory import choose_temporary_directory

__all__ = ["ProvenSnapshot", "ProvenSnapshots"]


@dataclass(frozen=True, slots=True)
class ProvenSnapshot:
    """A snapshot that a replay proved, in the file of ``ProvenSnapshots``.

    Attributes:
        snapshot_class: name of its class (``replay.classes``).
        position: in the file, bytes.
    """

    snapshot_class: str
    position: int
    size_bytes: int


class ProvenSnapshots:
    """Snapshots that a replay proved, for a repair. In a temporary file without a name, as there may be many; a context manager."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        choose_temporary_directory()
        try:
            self._file = tempfile.TemporaryFile(prefix="snaprebuild-")  # noqa: SIM115
        except OSError as error:
            raise WriteFailedError(f"no temporary file can be made: {error.strerror}", errno=error.errno) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, snapshot_class: str, data: bytes) -> ProvenSnapshot:
        """Keeps one.

        Raises:
            WriteFailedError: the file cannot be written.
        """
        with self._lock:
            try:
                position = self._file.seek(0, 2)
                self._file.write(data)
                self._file.flush()
            except OSError as error:
                message = f"the temporary file cannot be written: {error.strerror}"
                raise WriteFailedError(message, path=tempfile.gettempdir(), errno=error.errno) from error
        return ProvenSnapshot(snapshot_class, position, len(data))

    def read(self, snapshot: ProvenSnapshot) -> bytes:
        """The bytes of a proven snapshot."""
        with self._lock:
            self._file.seek(snapshot.position)
            return self._file.read(snapshot.size_bytes)
