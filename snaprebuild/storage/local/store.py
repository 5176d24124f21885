"""The store that is the file system of this machine."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from formats.partition.file_names import parse_file_name
from snaprebuild.errors import GoneFileError, ReadFailedError, WriteFailedError
from snaprebuild.storage.local.directories import make_directories
from snaprebuild.storage.local.publish import create_file, replace_file, temporary_name_of
from snaprebuild.storage.local.regular_file import read_identified, read_small_file
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.write_advice import with_advice
from snaprebuild.storage.store import BLOCK_BYTES, FileIdentity, OpenBytes, Ownership, WholeObject, holds_bytes, parts_of

__all__ = ["LOCAL", "LocalStore"]


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Files; see ``store.Store``. Writing a large one that was begun starts again.

    When a file is replaced, a lock decides between two runs of this program. Nothing keeps another program from writing between the
    last check of the file and the rename.
    """

    @property
    def is_local(self) -> bool:
        """True: locations are paths on this machine."""
        return True

    def present(self, directory: str, names: Iterable[str]) -> frozenset[str]:
        """The names that exist in a directory; a link counts, whatever its target is."""
        return frozenset(name for name in names if os.path.lexists(os.path.join(directory, name)))

    def holds_segments(self, directory: str) -> bool:
        """Whether segments are directly in a directory, as far as it can be listed."""
        try:
            return any(name.endswith(".log") and parse_file_name(name) is not None for name in os.listdir(directory))
        except OSError:
            return False

    def names_in(self, directory: str) -> frozenset[str]:
        """The files directly in a directory (``Store.names_in``)."""
        try:
            return frozenset(os.listdir(directory))
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be listed", directory) from error

    def list_below(self, location: str, name_prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """Path and status of every regular file below a directory (``Store.list_below``); links are not followed."""
        pending = [os.path.dirname(name_prefix)]
        if pending[0] and not os.path.isdir(os.path.join(location, pending[0])):
            return
        while pending:
            below = pending.pop()
            try:
                with os.scandir(os.path.join(location, below)) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
                names = [entry for entry in entries if os.path.join(below, entry.name).startswith(name_prefix)]
                statuses = [(entry, entry.stat(follow_symlinks=False)) for entry in names]
            except FileNotFoundError as error:
                path = os.path.join(location, below)
                raise GoneFileError("was deleted or moved during the run", path=path) from error
            except OSError as error:
                path = os.path.join(location, below)
                raise ReadFailedError.from_os_error(error, "cannot be listed", path) from error
            yield from ((os.path.join(below, entry.name), status) for entry, status in statuses if stat.S_ISREG(status.st_mode))
            directories = [os.path.join(below, entry.name) for entry, status in statuses if stat.S_ISDIR(status.st_mode)]
            pending += reversed(directories)

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """All bytes of a small regular file (``Store.read_small``)."""
        return read_small_file(location, bytes_max)

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        """Size of a file and its last bytes (``Store.read_end``)."""
        try:
            with SegmentFile(location, may_grow=True) as source:
                buffer = bytearray(min(count, source.size_bytes))
                done = source.read_into(source.size_bytes - len(buffer), memoryview(buffer))
                return source.size_bytes, bytes(buffer[:done])
        except ReadFailedError as error:
            if error.errno == errno.ENOENT:
                return None
            raise

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool = False,
    ) -> SegmentFile:
        """Opens a file to be read in ranges (``Store.open_bytes``)."""
        return SegmentFile(location, deadline, identity, may_grow)

    def for_file(self, location: str) -> LocalStore:
        """This store: it has no settings that a reader does without."""
        return self

    def prepare_writes(self, directory: str, largest_bytes: int = 0) -> None:
        """Nothing to prepare: a link is never made over a name that is taken."""

    def wrote(self, location: str, since_ns: int) -> bool:
        """Whether this run made a file, by its modification time (``Store.wrote``)."""
        try:
            return os.lstat(location).st_mtime_ns >= since_ns
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be accessed", location) from error

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
        """Creates a file whole or not at all (``Store.create``); without an owner the directory is made if it is missing."""
        if owner is None:
            _make_directories(directory)
        create_file(
            directory,
            name,
            data,
            owner=owner,
            temporary_name=temporary_name,
            before_name=None if before_name is None else lambda status: before_name(status.st_mtime_ns),
        )

    def create_large(self, location: str, source: OpenBytes) -> None:
        """Creates a file with the bytes of an open one (``Store.create_large``)."""
        directory, name = os.path.split(location)
        _make_directories(directory)
        create_file(directory, name, lambda: parts_of(source, BLOCK_BYTES), owner=None, temporary_name=temporary_name_of(name))

    def holds(self, location: str, source: OpenBytes) -> bool | None:
        """Whether a file has the bytes of an open one (``Store.holds``)."""
        return holds_bytes(self, location, source)

    def read_whole(self, location: str, bytes_max: int) -> WholeObject | None:
        """All bytes of a file with its identity, for ``replace`` (``Store.read_whole``)."""
        content = read_identified(location, bytes_max)
        return None if content is None else WholeObject(*content)

    def prepare_replacing(self, directory: str) -> None:
        """Nothing to prepare on a disk."""

    def replace(self, location: str, data: bytes, was: WholeObject) -> None:
        """Replaces a file that was read whole (``Store.replace``)."""
        replace_file(location, data, was.identity)


def _make_directories(directory: str) -> None:
    try:
        make_directories(directory)
    except OSError as error:
        message = with_advice(f"cannot be created: {error.strerror}", error, directory)
        raise WriteFailedError(message, path=directory, errno=error.errno) from error


LOCAL = LocalStore()
"""The file system of this machine."""
