"""Checks whether this process may write files, without writing any: permissions, owners, room.

Each check raises the error that the write itself would end with. A check can be out of date a moment later, so each write is guarded, too.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from snaprebuild.errors import WriteFailedError
from snaprebuild.storage.local.publish import owner_refusal
from snaprebuild.storage.local.write_advice import nearest_existing, with_advice
from snaprebuild.storage.store import Ownership

__all__ = [
    "check_new_files",
    "check_owner",
    "check_room",
    "free_bytes_of",
    "is_link_allowed",
    "why_not_replaceable",
    "why_not_writable",
]

CAP_CHOWN = 0
CAP_FOWNER = 3
CAP_SYS_RESOURCE = 24
"""Numbers of capabilities (capabilities(7))."""

KERNEL_FILE_SYSTEMS = frozenset(
    (
        *("binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs", "fusectl", "mqueue", "nsfs"),
        *("proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs"),
    )
)
"""Types of file systems that show the state of the kernel. Permissions of root allow everything there, and no file can be created."""

MOUNTS = "/proc/self/mountinfo"

PROTECTED_LINKS = "/proc/sys/fs/protected_hardlinks"


def why_not_writable(directory: str) -> OSError | None:
    """The error of the system call that would create a file in a directory, or the directory itself; None if nothing is in the way.

    Args:
        directory: that is there, or would be made in the nearest one above it.
    """
    above = nearest_existing(os.path.abspath(directory))
    try:
        status = os.stat(above)
    except OSError as error:  # of a link that leads nowhere
        return error
    if not stat.S_ISDIR(status.st_mode):
        return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), above)
    kind = _file_system_type(status.st_dev)
    if kind in KERNEL_FILE_SYSTEMS:
        return OSError(errno.EOPNOTSUPP, f"a file system of the kernel ({kind}) takes no files", above)
    if os.access(above, os.W_OK | os.X_OK, effective_ids=True):
        return None
    number = errno.EROFS if os.statvfs(above).f_flag & os.ST_RDONLY else errno.EACCES
    return OSError(number, os.strerror(number), above)


def why_not_replaceable(path: str) -> OSError | None:
    """The error of the system call that would give a new file a name, and replace an older file; None if nothing is in the way.

    Args:
        path: absolute; its directory can be written to.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:  # of a name that is too long
        return error
    place = os.stat(os.path.dirname(path))
    is_owner = os.geteuid() in (status.st_uid, place.st_uid)
    if place.st_mode & stat.S_ISVTX and not is_owner and not _has_capability(CAP_FOWNER):
        return PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
    if _is_mount_point(path):
        return OSError(errno.EBUSY, "is a mount of its own, which no file replaces: mount its directory instead", path)
    return None


def _is_mount_point(path: str) -> bool:
    """Whether something is mounted over a file, as by a container for a volume of one file; False if the kernel does not show it."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    for character in ("\\", " ", "\t", "\n"):
        real = real.replace(character, f"\\{ord(character):03o}")
    return any(words[4] == real for words in _mounts())


def _mounts() -> Iterator[list[str]]:
    """The words of each line about a mount (proc_pid_mountinfo(5)); none if the kernel does not show them."""
    with suppress(OSError), open(MOUNTS, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split(" ")  # other blanks may be in a name


@functools.lru_cache(maxsize=64)
def _file_system_type(device: int) -> str | None:
    """The type of the file system of a device, such as ``ext4``; None if the kernel does not show it.

    Args:
        device: its number (``st_dev``).
    """
    numbers = f"{os.major(device)}:{os.minor(device)}"
    for words in _mounts():
        if words[2] == numbers:
            return words[words.index("-", 6) + 1]
    return None


def check_new_files(directory: str) -> None:
    """Makes sure that files can be created in a directory, and that it can be made if it is missing.

    Raises:
        WriteFailedError: they cannot.
    """
    error = why_not_writable(directory)
    if error is not None:
        message = with_advice(f"cannot be written to: {error.strerror}", error, directory)
        raise WriteFailedError(message, path=directory, errno=error.errno)


def check_owner(directory: str, owner: Ownership) -> None:
    """Makes sure that a new file can be given its owner and group.

    Args:
        directory: of the file, or one that would be made.
        owner: of the segment.

    Raises:
        RefusedError: it cannot be.
    """
    status = os.stat(nearest_existing(os.path.abspath(directory)))
    is_group_inherited = bool(status.st_mode & 0o2000)
    first = Ownership(os.geteuid(), status.st_gid if is_group_inherited else os.getegid(), owner.mode)
    if (first.uid, first.gid) == (owner.uid, owner.gid) or _has_capability(CAP_CHOWN):
        return
    if first.uid == owner.uid and owner.gid in (os.getegid(), *os.getgroups()):
        return
    error = PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    raise owner_refusal(owner, first, error, directory=directory, path=directory)


def check_room(directory: str, files: int) -> None:
    """Makes sure that a file system has a block and an inode for each of some new files. They may need more.

    Args:
        directory: that the files go to, or one that would be made.
        files: how many.

    Raises:
        WriteFailedError: it has not.
    """
    status = os.statvfs(nearest_existing(os.path.abspath(directory)))
    is_privileged = _has_capability(CAP_SYS_RESOURCE)
    blocks = status.f_bfree if is_privileged else status.f_bavail
    inodes = status.f_ffree if is_privileged else status.f_favail
    need = "a file needs" if files == 1 else f"{files} files need"
    if status.f_blocks and blocks < files:
        message = f"{need} at least {files * status.f_frsize} bytes, and {blocks * status.f_frsize} are free on their file system"
    elif status.f_files and inodes < files:
        message = f"{need} {files} inodes, and {inodes} are free on their file system"
    else:
        return
    raise WriteFailedError(f"{os.strerror(errno.ENOSPC)}: {message}", path=directory, errno=errno.ENOSPC)


def is_link_allowed(path: str) -> bool:
    """Whether the kernel lets this process make a hard link to a file of another user (``fs.protected_hardlinks``)."""
    try:
        if os.lstat(path).st_uid == os.geteuid() or _has_capability(CAP_FOWNER):
            return True
        with open(PROTECTED_LINKS) as file:
            is_protected = file.read().strip() != "0"
    except OSError:
        return True  # the link itself shows it
    return not is_protected or os.access(path, os.R_OK | os.W_OK, effective_ids=True)


def _has_capability(number: int) -> bool:
    """Whether a capability of this process is effective."""
    return bool(_effective_capabilities(os.getpid(), os.geteuid()) >> number & 1)


@functools.lru_cache(maxsize=1)
def _effective_capabilities(process_id: int, uid: int) -> int:
    """The capabilities of this process, one bit for each; root has all of them where the kernel does not show them.

    Args:
        process_id: of this process: a child may have others.
        uid: of this process: another user has others.
    """
    try:
        with open(f"/proc/{process_id}/status") as lines:
            return next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    except (OSError, StopIteration, ValueError):
        return 0 if uid else -1


def free_bytes_of(path: str) -> int | None:
    """Bytes that users without privileges can still write; None if the path is not on this machine, or cannot be looked at."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
