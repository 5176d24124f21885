"""The files that are parts of a receipt: what tasks in other processes, and on other machines, announce. Each task has a file of its own.

The driver of a run makes the first part, which has a header and nothing else. A task that finds that file is in the same place as the
driver, and begins a part of its own next to it. Each part is a receipt by itself. At the end the parts are closed, their lines are
added to the receipt of the run, and they are removed.

A part is closed by a new name. After each sync a task checks that the name of its part still leads to it. So a line that is synced
after the close is no announcement, the file gets no name, and a closed part never grows by a line that counts.

The first part is closed before the others. A task that begins a part checks afterwards that the first one is still open, so no part
appears that the driver does not see.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets

import msgspec

from snaprebuild.errors import ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.storage.local.directories import sync_entries
from snaprebuild.storage.local.journal_file import JournalFile

__all__ = ["FIRST", "JOINED", "PREFIX", "PartsPlace", "close_first_part", "close_parts", "part_names", "remove_parts"]

PREFIX = "snaprebuild-part-"
FIRST = "first"
"""Token of the part that the driver makes."""
JOINED = "joined"
"""Token of the part that ``undo`` makes of all others."""

_NAME = re.compile(rf"{PREFIX}(?P<run>[0-9a-f]{{16}})-(?P<token>[0-9a-f]{{16}}|{FIRST}|{JOINED})(?P<closed>\.closed)?\.jsonl")


class PartsPlace(msgspec.Struct, frozen=True):
    """Where the parts of a run go, as a value that is sent to tasks.

    Attributes:
        directory: path, which the driver and all tasks reach.
        run: hexadecimal digits in the names of the parts.
        header: first line of each part.
    """

    directory: str
    run: str
    header: str

    @classmethod
    def new(cls, directory: str, header: str) -> PartsPlace:
        """A place with names that no other run has."""
        return cls(directory, secrets.token_hex(8), header)

    def path_of(self, token: str) -> str:
        """The path of an open part."""
        return os.path.join(self.directory, f"{PREFIX}{self.run}-{token}.jsonl")

    @property
    def joined_path(self) -> str:
        """The path of the part that ``undo`` makes of all others. It is closed from the beginning."""
        return self.path_of(f"{JOINED}.closed")

    def begin(self) -> None:
        """Makes the first part.

        Raises:
            RefusedError: it would be among the files of a broker.
            WriteFailedError: it cannot be written.
        """
        JournalFile(self.path_of(FIRST), self.header).close()

    def begun_ns(self) -> int:
        """When the run began, ns since 1970, by the clock of the file system that has the parts.

        Raises:
            ReadFailedError: the first part is not there.
        """
        path = self.path_of(FIRST)
        try:
            return os.stat(path).st_mtime_ns
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be accessed", path) from error

    def check_open(self) -> None:
        """Makes sure that the first part is here, and open.

        Raises:
            RefusedError: it is not.
        """
        if not os.path.lexists(self.path_of(FIRST)):
            message = (
                "the receipt of the run has no place here: either the run has ended, or this machine does not have the directory of the"
                " driver. Name a directory that the driver and all executors reach with --receipt FILE, or --out DIR"
            )
            raise RefusedError(message, path=self.directory)


def part_names(directory: str) -> dict[str, list[str]]:
    """The names of the parts in a directory, by their run.

    Raises:
        ReadFailedError: it cannot be listed.
    """
    names: dict[str, list[str]] = {}
    try:
        present = sorted(os.listdir(directory))
    except OSError as error:
        raise ReadFailedError.from_os_error(error, "cannot be listed", directory) from error
    for name in present:
        parsed = _NAME.fullmatch(name)
        if parsed is not None:
            names.setdefault(parsed["run"], []).append(name)
    return names


def close_first_part(directory: str, run: str) -> bool:
    """Closes the first part of a run: no task begins a part after that.

    Returns:
        Whether this call closed it. Else somebody did before, and may have taken the lines of the parts.

    Raises:
        WriteFailedError: it cannot be closed.
    """
    return _close(directory, os.path.basename(PartsPlace(directory, run, "").path_of(FIRST)))


def close_parts(directory: str, run: str) -> list[str]:
    """Closes all parts of a run. Tasks that still run announce nothing more, and so write nothing more.

    Returns:
        The paths of the parts, which do not change any more.

    Raises:
        ReadFailedError: the directory cannot be listed.
        WriteFailedError: a part cannot be closed.
    """
    close_first_part(directory, run)
    while True:
        names = part_names(directory).get(run, [])
        still_open = [name for name in names if not _is_closed(name)]
        if not still_open:
            return [os.path.join(directory, name) for name in names]
        # A task that began a part after the first was closed removes it again, so the next list may have another one.
        for name in still_open:
            _close(directory, name)


def _is_closed(name: str) -> bool:
    parsed = _NAME.fullmatch(name)
    return parsed is not None and parsed["closed"] is not None


def _close(directory: str, name: str) -> bool:
    """Closes a part that is open. False if it was closed before, or is gone."""
    path = os.path.join(directory, name)
    try:
        os.rename(path, f"{path.removesuffix('.jsonl')}.closed.jsonl")
    except FileNotFoundError:
        return False
    except OSError as error:
        raise WriteFailedError.from_os_error(error, "cannot be renamed", path) from error
    return True


def remove_parts(paths: list[str]) -> None:
    """Removes parts whose lines are in a receipt, or that have none. The part ``JOINED`` and the first one are removed after the others.

    Raises:
        WriteFailedError: one cannot be removed.
    """
    for path in sorted(paths, key=lambda each: any(f"-{token}." in os.path.basename(each) for token in (FIRST, JOINED))):
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        except OSError as error:
            raise WriteFailedError.from_os_error(error, "cannot be removed", path) from error
    for directory in {os.path.dirname(path) for path in paths}:
        with contextlib.suppress(OSError):
            sync_entries(directory)
