"""Documents of our own outside of log directories: plans, reports and tables. Each is published whole."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from typing import IO

from formats.partition.file_names import BROKER_FILES, parse_file_name
from snaprebuild.errors import AlreadyExistsError, ReadFailedError, RefusedError, StorageError, WriteFailedError
from snaprebuild.storage.local.directories import opened, reason_of
from snaprebuild.storage.local.file_calls import OS
from snaprebuild.storage.local.log_dir_guard import check_outside_log_dirs
from snaprebuild.storage.local.process_settings import document_mode
from snaprebuild.storage.local.publish import temporary_file
from snaprebuild.storage.local.regular_file import buffered, open_regular_file
from snaprebuild.storage.local.write_advice import with_advice
from snaprebuild.storage.local.write_checks import check_new_files
from snaprebuild.storage.store import Ownership

__all__ = ["check_new_place", "check_place", "new_file", "write_text_file"]

OWN_DOCUMENT = b'"schema":"snaprebuild.'
"""Each of our plans, reports and files of metrics has this in its first bytes, with or without blanks; only such a file is replaced."""


def check_place(path: str) -> None:
    """Makes sure that a plan or report may be written here: not in a log directory, and not over a file that is not ours.

    Links on the way are followed, and the directories need not exist.

    Raises:
        RefusedError: it may not.
    """
    directory, name = os.path.split(os.path.abspath(path))
    if parse_file_name(name) is not None or name in BROKER_FILES:
        raise RefusedError("has the name of a file of Kafka", path=path)
    check_outside_log_dirs(path, in_directory=directory)
    written = os.path.join(directory, name)  # after a link, `..` may lead elsewhere than in the path as it was given
    if os.path.lexists(written) and not _is_own(written):
        raise RefusedError("already exists and is no plan or report of this program", path=path)


def _is_own(path: str) -> bool:
    try:
        fd, _ = open_regular_file(path)
    except ReadFailedError:
        return False
    with buffered(fd) as file, contextlib.suppress(OSError):
        return OWN_DOCUMENT in file.read(200).replace(b" ", b"")
    return False


def check_new_place(path: str, *, needs_directory: bool = True) -> None:
    """Makes sure that a new file may be created here, and that its directory can be written to. Changes nothing.

    Args:
        path: of the file.
        needs_directory: check whether its directory can be written to.

    Raises:
        RefusedError: it would be among the files of a broker, or something has this name.
        WriteFailedError: its directory cannot be written to, or cannot be made.
    """
    if os.path.lexists(os.path.abspath(path)):
        raise RefusedError("already exists and is not replaced", path=path)
    check_place(path)
    if not needs_directory:
        return
    check_new_files(os.path.dirname(os.path.abspath(path)))


@contextlib.contextmanager
def new_file(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing, which gets its name when the block ends, unless the block raises.

    Raises:
        RefusedError: the name is taken, or the file would be among those of a broker.
        WriteFailedError: it cannot be written.
        OutcomeUnknownError: it is there, and something after that failed.
    """
    check_new_place(path)
    with _published(path, replaces=False) as file:
        yield file


def write_text_file(path: str, pieces: Iterable[str], owner: Ownership | None = None) -> None:
    """Writes a file whole, piece after piece, replacing an older one of the same name.

    Args:
        path: of the file.
        pieces: of its text.
        owner: gets the file if this process is root's; None for the process.

    Raises:
        RefusedError: a document may not be written there (``check_place``).
        WriteFailedError: it cannot be written; an older one is as it was.
        OutcomeUnknownError: it was written; after a power failure the older file may be back.
    """
    check_place(path)
    with _published(path, replaces=True, owner=owner) as file:
        file.writelines(piece.encode() for piece in pieces)


@contextlib.contextmanager
def _published(path: str, *, replaces: bool, owner: Ownership | None = None) -> Iterator[IO[bytes]]:
    directory, name = os.path.split(os.path.abspath(path))
    temporary_name = f".{name}-{secrets.token_hex(4)}"  # no other run has it
    try:
        with opened(directory, OS) as place, temporary_file(place, temporary_name, document_mode(), is_locked=False) as temporary:
            with open(temporary.fd, "wb", closefd=False) as file:
                yield file
            if owner is not None and os.geteuid() == 0:
                with contextlib.suppress(OSError):  # a file system may not allow it: the file stays root's
                    os.fchown(temporary.fd, owner.uid, owner.gid)
            temporary.sync()
            if replaces:
                temporary.rename_over(name)
            else:
                temporary.link_as(name)
    except AlreadyExistsError as error:
        raise RefusedError("already exists and is not replaced", path=path) from error
    except StorageError as error:
        if error.path == os.path.join(directory, temporary_name):
            error.path = path  # the temporary name means nothing to its reader
            if isinstance(error, WriteFailedError) and error.errno is not None:
                cause = OSError(error.errno, os.strerror(error.errno))
                message = with_advice(f"cannot be written: {cause.strerror}", cause, path)
                failure = WriteFailedError(message, path=path, errno=error.errno)
                failure.leftover = error.leftover
                raise failure from error
        raise
    except OSError as error:
        raise WriteFailedError(f"cannot be written: {reason_of(error)}", path=path, errno=error.errno) from error
