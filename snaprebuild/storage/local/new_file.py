"""A file of our own, outside of log directories, that appears whole or not at all and replaces none."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import IO

from snaprebuild.errors import RefusedError, WriteFailedError
from snaprebuild.storage.local.document_mode import document_mode
from snaprebuild.storage.local.durable_directory import sync_entries
from snaprebuild.storage.local.file_calls import OS
from snaprebuild.storage.local.journal_file import check_journal_place
from snaprebuild.storage.local.output_directory import reason_of

__all__ = ["new_file"]


@contextlib.contextmanager
def new_file(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing, which has its name when the block ends, unless that raises.

    Raises:
        RefusedError: the name is taken, or the file would lie among those of a broker.
        WriteFailedError: it cannot be written.
    """
    check_journal_place(path)
    directory, name = os.path.split(os.path.abspath(path))
    temporary: str | None = None
    try:
        with tempfile.NamedTemporaryFile("wb", dir=directory, prefix=f".{name}-", delete=False) as file:
            temporary = file.name
            yield file
            file.flush()
            os.fchmod(file.fileno(), document_mode())
            os.fsync(file.fileno())
        if _is_named(directory, os.path.basename(temporary), name):
            temporary = None
    except FileExistsError as error:
        raise RefusedError("is there and is not replaced", path=path) from error
    except OSError as error:
        raise WriteFailedError(f"cannot be written: {reason_of(error)}", path=path, errno=error.errno) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _is_named(directory: str, temporary: str, name: str) -> bool:
    """Gives the file its name; returns whether it has lost the other one by that. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            OS.link(temporary, name, dir_fd=fd)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            OS.rename_noreplace(temporary, name, dir_fd=fd)
            sync_entries(directory)
            return True
        sync_entries(directory)
        return False
    finally:
        os.close(fd)
