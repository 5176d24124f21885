"""Hard links from one directory into another: where they can be made, many at once, and the attributes that come with them.

A link cannot lead from one mount to another. It has the security label, the access control list and the quota project of its file,
which come from the directory in which the file was made. A new file inherits all three from its own directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
from collections.abc import Iterable, Iterator

import msgspec

from snaprebuild.errors import AlreadyExistsError, GoneFileError, ReadFailedError, RefusedError, StorageError, WriteFailedError
from snaprebuild.shell_words import shell_word
from snaprebuild.storage.local.directories import check_names, make_directories, opened, reason_of
from snaprebuild.storage.local.file_calls import OS
from snaprebuild.storage.local.write_advice import with_advice

__all__ = ["Mount", "attributes_of", "check_links", "correction", "difference", "link_files", "mount_of", "project_of"]


class Mount(msgspec.Struct, frozen=True):
    """The mount of a directory: links can be made only within one mount.

    Attributes:
        device: number of the device (``st_dev``).
        number: of the mount: one device may be mounted twice, and no link leads from one to the other; None if the kernel does not
            show it.
    """

    device: int
    number: int | None


def mount_of(path: str) -> Mount:
    """The mount of a directory, also of one that does not exist yet.

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
        raise GoneFileError("was deleted or moved during the run", path=above) from error
    except OSError as error:
        raise ReadFailedError.from_os_error(error, "cannot be opened", above) from error
    try:
        return Mount(os.fstat(fd).st_dev, _mount_number(fd))
    finally:
        os.close(fd)


def _mount_number(fd: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, StopIteration), open(f"/proc/self/fdinfo/{fd}") as lines:
        return int(next(line.partition(":")[2] for line in lines if line.startswith("mnt_id:")))
    return None


def check_links(directory: str) -> None:
    """Makes a directory, and in it a file with two names, which is removed again.

    Raises:
        WriteFailedError: it cannot be made, or not be written to.
        RefusedError: its file system has no hard links.
    """
    name, link = (os.path.join(directory, f".probe-{secrets.token_hex(4)}") for _ in range(2))
    try:
        make_directories(directory)
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
    except OSError as error:
        message = with_advice(f"cannot be written to: {error.strerror}", error, directory)
        raise WriteFailedError(message, path=directory, errno=error.errno) from error
    try:
        os.link(name, link, follow_symlinks=False)
        os.unlink(link)
    except OSError as error:
        raise RefusedError(f"its file system makes no hard links: {error.strerror}", path=directory) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def link_files(source: str, target: str, names: Iterable[str]) -> Iterator[tuple[str, StorageError | None]]:
    """Gives whole, synced files of one directory the same names in another one. Nothing is durable before that one is synced.

    Args:
        source: directory of the files; symbolic links are not followed.
        target: directory that the names are made in.
        names: of the files.

    Yields:
        Each name, and None if it is there now, else why it is not; the failure of one file does not stop the others.

    Raises:
        WriteFailedError: one of the directories cannot be opened.
    """
    flags = os.O_NOFOLLOW
    with opened(source, OS, flags) as from_place, opened(target, OS, flags) as to_place:
        for name in names:
            check_names(name)
            yield name, _linked(from_place.fd, to_place.fd, name, target)


def _linked(source_fd: int, target_fd: int, name: str, target: str) -> StorageError | None:
    try:
        os.link(name, name, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
    except FileExistsError as error:
        if _is_same(source_fd, target_fd, name):
            return None  # of an earlier run, or the reply of a network file system was lost and the request repeated
        return AlreadyExistsError("exists and is not replaced", path=os.path.join(target, name), errno=error.errno, name=name)
    except OSError as error:
        path = os.path.join(target, name)
        message = with_advice(f"cannot be linked: {reason_of(error)}", error, path)
        return WriteFailedError(message, path=path, errno=error.errno)
    return None


def _is_same(source_fd: int, target_fd: int, name: str) -> bool:
    try:
        one, other = (os.stat(name, dir_fd=fd, follow_symlinks=False) for fd in (source_fd, target_fd))
    except OSError:
        return False
    return os.path.samestat(one, other)


LABELS_AND_LISTS = {
    "security.selinux": "security label",
    "security.SMACK64": "security label",
    "system.posix_acl_access": "access control list",
    "system.nfs4_acl": "access control list",
}
"""Extended attributes, and the name of each in messages."""

_FS_IOC_FSGETXATTR = 0x801C581F
_FSXATTR = struct.Struct("=5I8x")
"""Request and struct of ioctl_xfs_fsgetxattr(2); the fourth number is the project."""


def attributes_of(path: str) -> dict[str, bytes]:
    """Security label and access control list of a file, by the name of the extended attribute. A link is not followed.

    The user of an SELinux label is left out: it is that of the shell that made the file, and no policy of a service uses it.
    """
    attributes = {}
    with contextlib.suppress(OSError):  # a file system without extended attributes has neither
        for name in os.listxattr(path, follow_symlinks=False):
            if name in LABELS_AND_LISTS:
                value = os.getxattr(path, name, follow_symlinks=False)
                attributes[name] = value.rstrip(b"\0").partition(b":")[2] if name == "security.selinux" else value
    return attributes


def project_of(path: str) -> int:
    """Quota project of a file; 0 for none, and where the file system has no projects."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(_FSXATTR.unpack(fcntl.ioctl(fd, _FS_IOC_FSGETXATTR, bytes(_FSXATTR.size)))[3])
    except OSError:
        return 0
    finally:
        os.close(fd)


def difference(path: str, segment: str) -> str | None:
    """The attribute in which a file differs from its segment: ``security label`` or ``access control list``; or None."""
    mine = attributes_of(path)
    expected = attributes_of(segment)
    return next((what for name, what in LABELS_AND_LISTS.items() if mine.get(name) != expected.get(name)), None)


def correction(path: str, segment: str) -> str:
    """The commands that give a file the label and the list of its segment."""
    path = shell_word(path)
    segment = shell_word(segment)
    return f"chcon --reference={segment} {path}; getfacl -p {segment} | setfacl --set-file=- {path}"
