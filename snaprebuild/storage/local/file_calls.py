"""The system calls of the writing side as one class, so that a test can record each call or let it fail."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import threading
from collections.abc import Callable

from snaprebuild.storage.local import record_lock

__all__ = ["NO_RENAME_NOREPLACE", "OS", "FileCalls"]

_RENAME_NOREPLACE = 1

# The umask belongs to the process: two threads that create files must not restore each other's.
_UMASK = threading.Lock()


class FileCalls:
    """The system calls of `create_file`, `replace_file` and `set_aside`, one method for each.

    Names are relative to ``dir_fd``, a descriptor of the directory, so that a directory renamed meanwhile (as Kafka does before
    it deletes one) cannot lead a write elsewhere. Symbolic links are never followed. Every method raises OSError as the system
    call does.
    """

    def open(self, name: str, flags: int, mode: int = 0, *, dir_fd: int | None = None) -> int:
        """Opens a file. A created one gets exactly ``mode`` less 0022, whatever the umask of the process.

        A umask of 077 would leave the new file unreadable to the broker until its mode is set. A run that is killed in between
        would keep the broker from starting (`LogLoader.removeTempFilesAndCollectSwapFiles`).
        """
        flags |= os.O_CLOEXEC
        if not flags & os.O_CREAT:
            return os.open(name, flags, dir_fd=dir_fd)
        with _UMASK:
            umask = os.umask(0o022)
            try:
                return os.open(name, flags, mode, dir_fd=dir_fd)
            finally:
                os.umask(umask)

    def lock(self, fd: int) -> None:
        """Takes the exclusive lock of the whole file, or raises BlockingIOError."""
        record_lock.take(fd)

    def fstat(self, fd: int) -> os.stat_result:
        """The status of an open file."""
        return os.fstat(fd)

    def stat(self, name: str, *, dir_fd: int) -> os.stat_result:
        """The status of a name itself, not of the target of a symbolic link."""
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        """Sets owner and group."""
        os.fchown(fd, uid, gid)

    def fchmod(self, fd: int, mode: int) -> None:
        """Sets the permission bits."""
        os.fchmod(fd, mode)

    def write(self, fd: int, data: memoryview) -> int:
        """Writes at the end. Returns how many bytes were written, which may be fewer."""
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        """Makes a file's bytes and metadata, or a directory's entries, survive a power failure."""
        os.fsync(fd)

    def forget_cached(self, fd: int) -> None:
        """Asks for the file's pages to be dropped from memory, so that reading it again asks the device."""
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, fd: int, size_bytes: int) -> bytes:
        """Reads the next bytes. They may be fewer than requested; none means the end."""
        return os.read(fd, size_bytes)

    def link(self, name: str, new_name: str, *, dir_fd: int) -> None:
        """Gives the file a second name, or raises FileExistsError."""
        os.link(name, new_name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)

    def rename(self, name: str, new_name: str, *, dir_fd: int) -> None:
        """Renames; replaces a file with the new name."""
        os.rename(name, new_name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def rename_noreplace(self, name: str, new_name: str, *, dir_fd: int) -> None:
        """Renames, or raises FileExistsError (`renameat2` with RENAME_NOREPLACE, which Python does not offer)."""
        if _renameat2()(dir_fd, os.fsencode(name), dir_fd, os.fsencode(new_name), _RENAME_NOREPLACE) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), name, None, new_name)

    def unlink(self, name: str, *, dir_fd: int) -> None:
        """Removes a name."""
        os.unlink(name, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        """Closes a descriptor and releases its lock."""
        os.close(fd)


@functools.cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int]:
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:  # a C library older than the system call (glibc before 2.28)
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]


OS = FileCalls()
"""The operating system itself."""

NO_RENAME_NOREPLACE = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
"""Errors of ``rename_noreplace`` where the file system or the kernel has no such rename."""
