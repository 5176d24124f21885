"""Whether a file of one directory can be given a name in another one: a hard link leads from no mount to another."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass

from snaprebuild.errors import GoneFileError, ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.storage.local.durable_directory import make_directories

__all__ = ["Mount", "check_links", "mount_of"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A place in which links can be made.

    Attributes:
        device: number of the device (``st_dev``).
        number: of the mount: one device may be mounted twice, and no link leads from one to the other; None where the kernel does not tell.
    """

    device: int
    number: int | None


def mount_of(path: str) -> Mount:
    """The mount that a directory lies on, or would lie on once it is made.

    Raises:
        ReadFailedError: it cannot be opened.
        GoneFileError: it was deleted or moved meanwhile.
    """
    above = os.path.abspath(path)
    while not os.path.lexists(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    try:
        fd = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise GoneFileError("was deleted or moved while it was looked at", path=above) from error
    except OSError as error:
        raise ReadFailedError(f"cannot be opened: {error.strerror}", path=above, errno=error.errno) from error
    try:
        return Mount(os.fstat(fd).st_dev, _mount_number(fd))
    finally:
        os.close(fd)


def _mount_number(fd: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, StopIteration), open(f"/proc/self/fdinfo/{fd}") as lines:
        return int(next(line.partition(":")[2] for line in lines if line.startswith("mnt_id:")))
    return None


def check_links(directory: str) -> None:
    """Makes a directory, and a file with two names in it, which are removed again.

    Raises:
        WriteFailedError: it cannot be made, or not be written to.
        RefusedError: its file system has no hard links.
    """
    name, link = (os.path.join(directory, f".probe-{secrets.token_hex(4)}") for _ in range(2))
    try:
        make_directories(directory)
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise WriteFailedError(f"cannot be written to: {error.strerror}", path=directory, errno=error.errno) from error
    try:
        os.link(name, link, follow_symlinks=False)
        os.unlink(link)
    except OSError as error:
        raise RefusedError(f"its file system makes no hard links: {error.strerror}", path=directory) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
