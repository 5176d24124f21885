"""Plans and reports: small text files of our own, outside of log directories, replaced whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable

from formats.partition.file_names import parse_file_name, parse_partition_dir_name
from snaprebuild.errors import ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.storage.local.directory_kind import BROKER_FILES
from snaprebuild.storage.local.document_mode import document_mode
from snaprebuild.storage.local.durable_directory import sync_entries
from snaprebuild.storage.local.regular_file import buffered, open_regular_file

__all__ = ["check_place", "write_text_file"]

OWN_DOCUMENT = b'"schema": "snaprebuild.'
"""What every plan and report of ours has in its first bytes; only such a file is replaced."""


def check_place(path: str) -> None:
    """Makes sure that a plan or report may be written here: not among the files of a broker, and not over anything but one of ours.

    Raises:
        RefusedError: it may not.
    """
    directory, name = os.path.split(os.path.abspath(path))
    try:
        names = set(os.listdir(directory))
    except OSError:
        return  # to write there will fail by itself
    if parse_file_name(name) is not None or name in BROKER_FILES:
        raise RefusedError("has the name of a file of Kafka", path=path)
    is_partition = parse_partition_dir_name(os.path.basename(os.path.realpath(directory))) is not None
    if not names.isdisjoint(BROKER_FILES) or (is_partition and any(parse_file_name(each) is not None for each in names)):
        raise RefusedError("lies in a directory of a broker, which holds nothing but its own files", path=path)
    if name in names and not _is_own(os.path.join(directory, name)):
        raise RefusedError("is there and is no plan or report of ours", path=path)


def _is_own(path: str) -> bool:
    try:
        fd, _ = open_regular_file(path)
    except ReadFailedError:
        return False
    with buffered(fd) as file, contextlib.suppress(OSError):
        return OWN_DOCUMENT in file.read(200)
    return False


def write_text_file(path: str, pieces: Iterable[str]) -> None:
    """Writes a file whole, piece after piece, replacing an older one of the same name.

    Raises:
        RefusedError: as ``check_place``.
        WriteFailedError: it cannot be written; an older one is as it was.
    """
    check_place(path)
    directory, name = os.path.split(os.path.abspath(path))
    temporary: str | None = None
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=directory, prefix=f".{name}-", delete=False) as file:
            temporary = file.name
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, document_mode())
        os.replace(temporary, path)
        temporary = None
        sync_entries(directory)
    except OSError as error:
        raise WriteFailedError(f"cannot be written: {error.strerror}", path=path, errno=error.errno) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
