"""Documents of our own outside of log directories: plans, reports and tables. Each is published whole."""

from __future__ import annotations

import contextlib
import os
import re
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
from snaprebuild.storage.local.write_checks import check_room, why_not_replaceable, why_not_writable
from snaprebuild.storage.store import Ownership

__all__ = ["check_document", "check_new_place", "check_place", "new_file", "write_text_file"]

OWN_DOCUMENT = b'"schema":"snaprebuild.'
"""Each of our plans, reports and files of metrics has this in its first bytes, with or without blanks; only such a file is replaced."""

STAGED_PLAN = b"staged-plan"
AUDIT_LEDGER = b"audit-ledger"
"""The part after the program's name in the schema ids of lasting files that are written again."""

_LASTING = re.compile(rb'"schema":"snaprebuild\.(receipt|[a-z]+-undo|audit-ledger|staged-plan)/')
"""Files of ours that a later command needs, and that cannot be made again: no document of another kind replaces them."""

_NAME_PART = 40
"""Characters of a name that its temporary name has, which is no longer than names may be."""


def check_place(path: str, *, replaces: bytes | None = None) -> None:
    """Makes sure that a plan or report may be written here: not in a log directory, and not over a file that is not ours.

    Links on the way are followed, and the directories need not exist.

    Args:
        path: of the file.
        replaces: the one kind of lasting file that may be there; None for none.

    Raises:
        RefusedError: it may not.
    """
    directory, name = os.path.split(os.path.abspath(path))
    if parse_file_name(name) is not None or name in BROKER_FILES:
        raise RefusedError("has the name of a file of Kafka", path=path)
    check_outside_log_dirs(path, in_directory=directory)
    written = os.path.join(directory, name)  # after a link, `..` may lead elsewhere than in the path as it was given
    if not os.path.lexists(written):
        return
    start = _first_bytes(written)
    if OWN_DOCUMENT not in start:
        raise RefusedError("already exists and is no plan or report of this program", path=path)
    lasting = _LASTING.search(start)
    if lasting is not None and lasting[1] != replaces:
        raise RefusedError(f"is not replaced: a later command needs this file ({lasting[1].decode()})", path=path)


def _first_bytes(path: str) -> bytes:
    """The first bytes of a regular file without their blanks; none if it cannot be read."""
    try:
        fd, _ = open_regular_file(path)
    except ReadFailedError:
        return b""
    with buffered(fd) as file, contextlib.suppress(OSError):
        return file.read(200).replace(b" ", b"")
    return b""


def check_document(path: str, *, replaces: bool) -> None:
    """Makes sure, before the work, that a file of ours can be written here at its end. Changes nothing.

    Args:
        path: of the file.
        replaces: it replaces an older document.

    Raises:
        RefusedError: it may not be there (``check_place``), or something has the name of a file that replaces none.
        WriteFailedError: the write would end with this error.
    """
    if not replaces:
        check_new_place(path)
        return
    check_place(path)
    _check_write(path)


def check_new_place(path: str, *, needs_directory: bool = True) -> None:
    """Makes sure that a new file can be created here. Changes nothing.

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
    if needs_directory:
        _check_write(path)


def _check_write(path: str) -> None:
    """Makes sure that nothing is in the way of a write.

    Raises:
        WriteFailedError: of its directory, its name, the older file or the room on the device.
    """
    absolute = os.path.abspath(path)
    directory = os.path.dirname(absolute)
    error = why_not_writable(directory) or why_not_replaceable(absolute)
    if error is not None:
        raise _write_failure(path, error)
    check_room(directory, 1)


def _write_failure(path: str, error: OSError) -> WriteFailedError:
    message = with_advice(f"cannot be written: {error.strerror}", error, path)
    return WriteFailedError(message, path=path, errno=error.errno)


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


def write_text_file(path: str, pieces: Iterable[str], owner: Ownership | None = None, *, replaces: bytes | None = None) -> None:
    """Writes a file whole, piece after piece, replacing an older one of the same name.

    Args:
        path: of the file.
        pieces: of its text.
        owner: gets the file if this process is root's; None for the process.
        replaces: the one kind of lasting file that it may replace; None for none.

    Raises:
        RefusedError: a document may not be written there (``check_place``).
        WriteFailedError: it cannot be written; an older one is as it was.
        OutcomeUnknownError: it was written; after a power failure the older file may be back.
    """
    check_place(path, replaces=replaces)
    with _published(path, replaces=True, owner=owner) as file:
        file.writelines(piece.encode() for piece in pieces)


@contextlib.contextmanager
def _published(path: str, *, replaces: bool, owner: Ownership | None = None) -> Iterator[IO[bytes]]:
    directory, name = os.path.split(os.path.abspath(path))
    temporary_name = f".{name[:_NAME_PART]}-{secrets.token_hex(4)}"  # no other run has it
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
                failure = _write_failure(path, OSError(error.errno, os.strerror(error.errno)))
                failure.leftover = error.leftover
                raise failure from error
        raise
    except OSError as error:
        raise WriteFailedError(f"cannot be written: {reason_of(error)}", path=path, errno=error.errno) from error
