"""The lock that a broker keeps on its log directories, and which release of Kafka holds it.

A broker keeps a record lock on the file ``.lock`` in each of its log directories from start to stop (`LogManager.lockLogDirs`,
`FileLock`, `FileChannel.tryLock`). The file alone means nothing: up to 3.7 it remains when the broker stops, and it is empty.

The lock is taken here in the form that belongs to an open file (`record_lock`). A broker that starts meanwhile is kept out and
reports that. The kernel keeps out a second holder in the same process, so that no registry is needed. And the lock survives if
another part of the process opens and closes the file, which would silently drop a POSIX lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from formats.partition.file_names import LOCK_FILE_NAME, META_PROPERTIES, FileKind, parse_file_name, parse_partition_dir_name
from snaprebuild.errors import AlreadyExistsError, BusyError, HeldError, LockUnknownError, RefusedError, WriteFailedError
from snaprebuild.storage.local import record_lock
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.local.record_lock import HOLDER_NOT_VISIBLE
from snaprebuild.storage.local.write_advice import READ_ONLY, with_advice
from snaprebuild.storage.local.write_checks import check_new_files, check_owner
from snaprebuild.storage.store import Ownership

__all__ = [
    "HOLDER_NOT_VISIBLE",
    "BrokerProcess",
    "HeldLock",
    "broker_process",
    "broker_releases",
    "broker_version",
    "check_hold",
    "hold",
    "lock_holder",
]

_TEMPORARY_NAME = ".lock.tmp"  # a plain file next to the partitions: brokers look at directories only

_OF_THE_DISK = (errno.EROFS, errno.EIO)

# A broker from 3.8 on removes the file when it stops, and another run may create it: each round handles one such event.
_ROUNDS_MAX = 8


class HeldLock(msgspec.Struct, frozen=True):
    """A lock that is held.

    Attributes:
        path: the lock file.
        fd: the descriptor that the lock belongs to.
    """

    path: str
    fd: int

    def verify(self) -> None:
        """Makes sure that the lock still keeps brokers out; cheap enough to call before each file that is written.

        A broker from 3.8 on unlocks, then removes the file when it stops (KAFKA-16391). A lock taken in between is on a file
        without a name, and the next broker would create a new file.

        Raises:
            RefusedError: the name no longer leads to the locked file.
        """
        if not _is_named(self.path, self.fd):
            raise RefusedError("was removed or replaced while it was held: a broker may be starting or stopping", path=self.path)


def lock_holder(log_dir: str | os.PathLike[str]) -> int | None:
    """The process, usually a live broker, that holds a log directory. Changes nothing and creates nothing.

    Args:
        log_dir: the log directory, the parent of the partitions' directories.

    Returns:
        None when it is free, else the process id of the holder. `HOLDER_NOT_VISIBLE` if the kernel does not show it: a broker in
        another container or on another host, or a holder through `hold`, this process included.

    Raises:
        LockUnknownError: it is unknown.
    """
    path = os.path.join(log_dir, LOCK_FILE_NAME)
    try:
        # Checked before opening: opening a device or a pipe may have effects of its own.
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise LockUnknownError("is not a regular file", path=path)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        if os.path.isdir(log_dir):
            return None
        raise LockUnknownError("is no directory", path=os.fspath(log_dir)) from error
    except OSError as error:
        raise LockUnknownError(f"cannot be opened to ask who holds it: {error.strerror}", path=path) from error
    try:
        return record_lock.holder(fd)
    except OSError as error:
        raise LockUnknownError(f"the file system does not show which process holds it: {error.strerror}", path=path) from error
    finally:
        os.close(fd)


@contextlib.contextmanager
def hold(log_dir: str | os.PathLike[str]) -> Iterator[HeldLock]:
    """Holds a log directory as a broker does, so that no broker starts on it meanwhile.

    An absent lock file is created with mode 0644 and the owner and group of the segments, else of ``meta.properties``. A broker
    that may not open it for writing takes the log directory offline. The directory itself may have another owner, as the root of a
    volume with an fsGroup does in Kubernetes.
    The file remains, as the broker's own does: removing it would race with a broker that starts.

    Args:
        log_dir: the log directory, the parent of the partitions' directories.

    Yields:
        The lock, to be verified before each write.

    Raises:
        RefusedError: another process holds or creates it, or it cannot be created with the owner of the segments.
        LockUnknownError: it is unknown whether another process holds it, because the lock cannot be taken.
        WriteFailedError: the lock file cannot be created, or its disk fails or was mounted read-only: no broker can write there either.
    """
    path = os.path.join(log_dir, LOCK_FILE_NAME)
    fd = _locked(log_dir, path)
    try:
        yield HeldLock(path, fd)
    finally:
        # At once, because a forked process may still share the descriptor.
        with contextlib.suppress(OSError):
            record_lock.release(fd)
        os.close(fd)


def check_hold(log_dir: str | os.PathLike[str], owner: Ownership | None = None) -> None:
    """Makes sure that a log directory can be held. Changes nothing and creates nothing.

    Args:
        log_dir: the log directory, the parent of the partitions' directories.
        owner: of its segments, where the caller has listed them; None to look for one.

    Raises:
        RefusedError, LockUnknownError, WriteFailedError: as ``hold`` would.
    """
    path = os.path.join(log_dir, LOCK_FILE_NAME)
    try:
        if os.statvfs(log_dir).f_flag & os.ST_RDONLY:
            raise WriteFailedError(f"is mounted read-only. {READ_ONLY}", path=os.fspath(log_dir), errno=errno.EROFS)
        fd = _open_existing(path)
    except FileNotFoundError:
        _check_create(log_dir, path, owner)
        return
    try:
        if record_lock.holder(fd) is not None:
            raise _held_refusal(path, fd)
    except OSError as error:
        raise _no_locks(path, error) from error
    finally:
        os.close(fd)


def _check_create(log_dir: str | os.PathLike[str], path: str, owner: Ownership | None) -> None:
    directory = os.fspath(log_dir)
    try:
        check_new_files(directory)
        check_owner(directory, owner or _owner_of_lock(directory))
    except RefusedError as error:
        raise _owner_refusal(path, error) from error


def _locked(log_dir: str | os.PathLike[str], path: str) -> int:
    for _ in range(_ROUNDS_MAX):
        fd = _open(log_dir, path)
        if fd is None:
            continue
        try:
            _take(path, fd)
            if _is_named(path, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise RefusedError("keeps being removed or replaced: brokers or other runs start and stop here", path=path)


def _open(log_dir: str | os.PathLike[str], path: str) -> int | None:
    """Opens the lock file for writing. Returns None if it was absent and was created: then the caller opens it again."""
    try:
        return _open_existing(path)
    except FileNotFoundError:
        _create(log_dir, path)
        return None


def _open_existing(path: str) -> int:
    """Opens the lock file for writing.

    Raises:
        FileNotFoundError: it is absent.
        LockUnknownError, WriteFailedError: as ``hold``.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        message = f"cannot be opened for locking: {error.strerror}"
        if error.errno in _OF_THE_DISK:
            raise WriteFailedError(message, path=path, errno=error.errno) from error
        raise LockUnknownError(with_advice(message, error, path), path=path) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise LockUnknownError("is not a regular file", path=path)
    return fd


def _create(log_dir: str | os.PathLike[str], path: str) -> None:
    # As any other file it has its owner before it has its name, so that a killed run cannot leave one that keeps brokers out.
    owner = _owner_of_lock(log_dir)
    try:
        create_file(log_dir, LOCK_FILE_NAME, b"", owner=owner, temporary_name=_TEMPORARY_NAME)
    except AlreadyExistsError:
        pass  # another run was faster
    except BusyError as error:
        raise HeldError("another run creates it at this moment: wait until that run is done", path=path) from error
    except RefusedError as error:
        raise _owner_refusal(path, error) from error
    except WriteFailedError:
        if not os.path.lexists(path):  # another run may have created it since
            raise


def _owner_refusal(path: str, error: RefusedError) -> RefusedError:
    return RefusedError(f"cannot be created so that the broker's user can open it: it {error.message}", path=path)


def _owner_of_lock(log_dir: str | os.PathLike[str]) -> Ownership:
    """Owner, group and mode of a new lock file."""
    try:
        status = _made_by_broker(log_dir)
    except OSError as error:
        raise WriteFailedError.from_os_error(error, "cannot look at it", os.fspath(log_dir)) from error
    return Ownership(status.st_uid, status.st_gid, 0o644)


def _made_by_broker(log_dir: str | os.PathLike[str]) -> os.stat_result:
    """The status of a file whose owner is the broker's user: a segment, else ``meta.properties``, else the directory itself.

    Raises:
        OSError: their status cannot be read.
    """
    with os.scandir(log_dir) as entries:
        partitions = sorted(
            entry.path
            for entry in entries
            if parse_partition_dir_name(entry.name) is not None and entry.is_dir(follow_symlinks=False)
        )
    for partition in partitions:
        with os.scandir(partition) as files:
            for file in sorted(files, key=lambda each: each.name):
                parsed = parse_file_name(file.name)
                if parsed is not None and parsed.kind is FileKind.LOG and file.is_file(follow_symlinks=False):
                    return file.stat(follow_symlinks=False)
    with contextlib.suppress(FileNotFoundError):
        return os.lstat(os.path.join(log_dir, META_PROPERTIES))
    return os.stat(log_dir)


def _take(path: str, fd: int) -> None:
    try:
        record_lock.take(fd)
    except BlockingIOError as error:
        raise _held_refusal(path, fd) from error
    except OSError as error:
        raise _no_locks(path, error) from error


def _held_refusal(path: str, fd: int) -> HeldError:
    message = f"{_holder_text(fd)}: a broker, or another run, uses this log directory. Stop it, then run this command again"
    return HeldError(message, path=path)


def _no_locks(path: str, error: OSError) -> LockUnknownError:
    return LockUnknownError(f"the file system offers no locks: {error.strerror}", path=path)


def _holder_text(fd: int) -> str:
    try:
        process_id = record_lock.holder(fd)
    except OSError:
        process_id = HOLDER_NOT_VISIBLE
    if process_id is None:
        return "was held a moment ago"
    if process_id == HOLDER_NOT_VISIBLE:
        return "is held by a process that is not visible from here"
    return f"is held by process {process_id}"


def _is_named(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except OSError:
        return False


_ARCHIVE = re.compile(r"(?:^|[/:])kafka_2\.\d+-(\d{1,3})\.(\d{1,3})\.(\d{1,3})[^/:]{0,40}\.jar")
"""Archive of the broker itself; those of clients may come with a plugin, and be of another release."""

CMDLINE_BYTES_MAX = 4 << 20
"""A class path may name hundreds of archives; the kernel allows some megabytes of arguments."""

PROC = Path("/proc")


class BrokerProcess(msgspec.Struct, frozen=True):
    """The process that holds a log directory.

    Attributes:
        process_id: of it.
        releases: of Kafka that its archives name: (major, minor, patch), ascending. Empty if that is not known.
    """

    process_id: int
    releases: tuple[tuple[int, int, int], ...] = ()


def broker_process(log_dir: str | os.PathLike[str], process_id: int, proc: Path = PROC) -> BrokerProcess:
    """The process that holds a log directory, with its release. Whatever cannot be read is not known, and no error.

    Args:
        log_dir: the log directory.
        process_id: its holder (``lock_holder``).
        proc: where the kernel describes processes.
    """
    releases = () if process_id == HOLDER_NOT_VISIBLE else broker_releases(process_id, proc)
    with contextlib.suppress(LockUnknownError):
        if releases and lock_holder(log_dir) == process_id:
            return BrokerProcess(process_id, releases)
    # It ended meanwhile, and its number may be that of another process by now.
    return BrokerProcess(process_id)


def broker_version(process_id: int, proc: Path = PROC) -> tuple[int, int] | None:
    """The major and minor version of the Kafka that runs in a process.

    Args:
        process_id: of a broker.
        proc: where the kernel describes processes.

    Returns:
        None if it is unknown: another user's process, another container, archives under other names. If several versions are there,
        the lowest.
    """
    releases = broker_releases(process_id, proc)
    return releases[0][:2] if releases else None


def broker_releases(process_id: int, proc: Path) -> tuple[tuple[int, int, int], ...]:
    """The releases of Kafka that the archives of a process name: (major, minor, patch), ascending; empty if that is not known."""
    archives = [match for text in _texts(proc / str(process_id)) for match in _ARCHIVE.finditer(text)]
    return tuple(sorted({(int(match[1]), int(match[2]), int(match[3])) for match in archives}))


def _texts(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError), open(process / "cmdline", "rb") as file:
        yield from file.read(CMDLINE_BYTES_MAX).decode(errors="replace").split("\0")
    with contextlib.suppress(OSError):
        for name in os.listdir(process / "fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(process / "fd" / name)
