"""Why this process may not write a file, and what helps: the part of a refusal that names users.

A user is a uid and a gid. A container that is run with a uid alone runs as group 0, and cannot give a file the group of a segment.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Self

import msgspec

from snaprebuild.errors import ReadFailedError
from snaprebuild.shell_words import shell_word
from snaprebuild.storage.store import Ownership

__all__ = [
    "DENIED",
    "READ_ONLY",
    "ProcessUser",
    "advice_on_directory",
    "advice_on_owner",
    "advice_on_path",
    "nearest_existing",
    "reading_advice",
    "with_advice",
]

DENIED = (errno.EACCES, errno.EPERM)
"""Errors of a system call that another user might not get."""

READ_ONLY = "Mount it with rw. If the kernel made it read-only after an error of the disk, dmesg shows that"
"""The advice for a file system that takes no writes."""

_READ = 0o4
_WRITE = 0o2
_SEARCH = 0o1
_NO_OWNERS = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})


class ProcessUser(msgspec.Struct, frozen=True):
    """The user that a process runs as.

    Attributes:
        groups: all groups that count for permissions, ``gid`` included.
    """

    uid: int
    gid: int
    groups: frozenset[int]

    @classmethod
    def current(cls) -> Self:
        """The user of this process."""
        gid = os.getegid()
        return cls(os.geteuid(), gid, frozenset((gid, *os.getgroups())))

    @classmethod
    def owner_of(cls, uid: int, gid: int) -> Self:
        """A user without further groups."""
        return cls(uid, gid, frozenset((gid,)))

    def may_write(self, status: os.stat_result) -> bool:
        """Whether the mode of a directory lets the user create files in it, or that of a file lets the user write it."""
        return self._may(status, _WRITE)

    def may_read(self, status: os.stat_result) -> bool:
        """Whether the mode of a directory lets the user read the files in it, or that of a file lets the user read it."""
        return self._may(status, _READ)

    def _may(self, status: os.stat_result, needed: int) -> bool:
        if self.uid == 0:
            return True
        if self.uid == status.st_uid:
            bits = status.st_mode >> 6
        elif status.st_gid in self.groups:
            bits = status.st_mode >> 3
        else:
            bits = status.st_mode
        if stat.S_ISDIR(status.st_mode):
            needed |= _SEARCH
        return bits & needed == needed

    def has_ids_of(self, other: ProcessUser) -> bool:
        """Whether files of this user can have owner and group of another one."""
        return self.uid == other.uid and other.gid in self.groups

    def __str__(self) -> str:
        text = f"uid {self.uid}, gid {self.gid}"
        further = sorted(self.groups - {self.gid})
        if further:
            text += f", groups {' '.join(map(str, further))}"
        return text


def advice_on_owner(owner: Ownership, first: Ownership, error: OSError, directory: str, user: ProcessUser | None = None) -> str:
    """The advice for a new file that cannot be given its owner.

    Args:
        owner: that it must have.
        first: that the file system gave to it.
        error: of the system call.
        directory: of the file.
        user: of this process; None to ask the system.

    Returns:
        Sentences without the last full stop.
    """
    user = user or ProcessUser.current()
    owner_user = ProcessUser.owner_of(owner.uid, owner.gid)
    process = f"This process has {user}"
    if error.errno in _NO_OWNERS:
        return f"{process}. The file system cannot change owners: mount it with uid={owner.uid},gid={owner.gid}"
    if error.errno == errno.EINVAL:
        return f"{process}. Its user namespace has no number for that owner or group: map both into the namespace"
    if user.uid == 0:
        return f"{process}, without CAP_CHOWN or CAP_FOWNER. {_run_as(owner_user, directory)}, or add these capabilities"
    if user.has_ids_of(owner_user):
        return f"{process}, but the file system gave the file {first}. Check its options (all_squash, uid=, gid=)"
    differs = []
    if user.uid != owner.uid:
        differs.append("the owner")
    if owner.gid not in user.groups:
        differs.append("the group")
    differ = "differ" if len(differs) > 1 else "differs"
    return f"{process}: {' and '.join(differs)} {differ}. {_run_as(owner_user, directory)}{_or_as_root(owner_user)}"


def advice_on_directory(directory: str, owner: Ownership | None, user: ProcessUser | None = None) -> str:
    """The advice for a directory in which no file can be created, or a file that cannot be written.

    Args:
        directory: or the file, that exists.
        owner: that new files must have; None for no certain one.
        user: of this process; None to ask the system.

    Returns:
        Sentences without the last full stop.
    """
    user = user or ProcessUser.current()
    facts = f"This process has {user}"
    if owner is not None:
        facts += f"; the segments have uid {owner.uid}, gid {owner.gid}"
    try:
        status = os.stat(directory)
    except OSError as error:
        who = "the broker's user" if owner is None else _user_text(ProcessUser.owner_of(owner.uid, owner.gid))
        return f"{facts}; {directory} cannot be looked at: {error.strerror}. Run as {who}, or as root"
    kind = "directory" if stat.S_ISDIR(status.st_mode) else "file"
    facts += f"; the {kind} has uid {status.st_uid}, gid {status.st_gid}, mode {stat.S_IMODE(status.st_mode):04o}"
    owner_user = ProcessUser.owner_of(status.st_uid, status.st_gid)
    if owner is not None:
        owner_user = ProcessUser.owner_of(owner.uid, owner.gid)
    if user.uid == 0:
        reasons = f"Root lacks CAP_DAC_OVERRIDE, the {kind} is immutable (lsattr -d), or NFS maps root to another user"
        other_user = "" if owner_user.uid == 0 else f". {_run_as(owner_user, directory)}"
        return f"{facts}. {reasons}{other_user}"
    if user.may_write(status):
        return f"{facts}, which lets it write. Check access lists (getfacl), SELinux or AppArmor, and lsattr -d"
    if user.has_ids_of(owner_user):
        return f"{facts}. Run {_opening(owner_user, status, directory)} as {_opener(owner_user, status)}"
    return f"{facts}. {_run_as(owner_user, directory)}{_or_as_root(owner_user)}"


def advice_on_path(path: str) -> str:
    """The advice for a file that cannot be created or written: about the file if it exists, else about the nearest directory above it."""
    directory = nearest_existing(path)
    user = ProcessUser.current()
    try:
        is_file_open_to_user = not os.path.isdir(directory) and user.may_write(os.lstat(directory))
    except OSError:
        is_file_open_to_user = False
    if is_file_open_to_user:
        directory = os.path.dirname(directory)  # a file may be written, and not removed
    return advice_on_directory(directory, None, user)


def reading_advice(error: ReadFailedError) -> str:
    """The advice for a local path that this user may not read: about the directory on the way that may not be searched, if there is one.

    Returns:
        A full stop, and sentences without the last one; empty if another user would get the same error.
    """
    if error.errno not in DENIED or error.path is None:
        return ""
    path = os.path.abspath(error.path)
    place = path
    while not os.path.lexists(place) and place != "/":  # `stat` is denied below a directory that may not be searched
        place = os.path.dirname(place)
    return f". {_advice_on_reading(path, place)}"


def _advice_on_reading(path: str, place: str) -> str:
    user = ProcessUser.current()
    try:
        status = os.stat(place)
    except OSError:
        return f"This process has {user}. Run as the broker's user, or as root"
    what = "it" if place == path else shell_word(place)
    facts = f"This process has {user}; {what} has uid {status.st_uid}, gid {status.st_gid}, mode {stat.S_IMODE(status.st_mode):04o}"
    if user.uid == 0:
        return f"{facts}. Root lacks CAP_DAC_READ_SEARCH, or NFS maps root to another user"
    if user.may_read(status):
        return f"{facts}, which lets it read. Check access lists (getfacl), SELinux or AppArmor"
    owner = ProcessUser.owner_of(status.st_uid, status.st_gid)
    if user.uid == owner.uid:
        return f"{facts}. Run chmod u+r{'x' if stat.S_ISDIR(status.st_mode) else ''} {shell_word(place)} as this user"
    return f"{facts}. Run as {_user_text(owner)}{_or_as_root(owner)}"


def with_advice(message: str, error: OSError, path: str) -> str:
    """A message about a path that cannot be created or written, with what helps if another user might be able to."""
    if error.errno == errno.EROFS:
        return f"{message}. {READ_ONLY}"
    if error.errno not in DENIED:
        return message
    return f"{message}. {advice_on_path(path)}"


def nearest_existing(path: str) -> str:
    """The path itself, or the nearest existing directory above it."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _run_as(user: ProcessUser, directory: str) -> str:
    """The user to run as, and what that user needs first."""
    text = f"Run as {_user_text(user)}"
    try:
        status = os.stat(directory)
    except OSError:
        return text
    if user.may_write(status):
        return text
    return f"That user may not write here either: run {_opening(user, status, directory)}, then r{text[1:]}"


def _user_text(user: ProcessUser) -> str:
    return f"uid {user.uid}, gid {user.gid} (of a container: --user {user.uid}:{user.gid})"


def _or_as_root(user: ProcessUser) -> str:
    return "" if user.uid == 0 else ", or as root"


def _opening(user: ProcessUser, status: os.stat_result, directory: str) -> str:
    """The command that lets a user write to a directory."""
    path = shell_word(directory)
    if user.uid == status.st_uid:
        return f"chmod u+wx {path}"
    if status.st_gid in user.groups:
        return f"chmod g+wx {path}"
    return f"chown {user.uid}:{user.gid} {path}"


def _opener(user: ProcessUser, status: os.stat_result) -> str:
    """Who may run that command."""
    return "this user" if user.uid == status.st_uid else "root"
