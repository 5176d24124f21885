"""What a hard link carries into another directory: the security label, the access control list and the quota project of its file.

A new file inherits all three from its directory. A link brings those of the directory that the file was made in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import struct

__all__ = ["attributes_of", "correction", "difference", "project_of"]

LABELS_AND_LISTS = {
    "security.selinux": "security label",
    "security.SMACK64": "security label",
    "system.posix_acl_access": "access control list",
    "system.nfs4_acl": "access control list",
}
"""Extended attributes, and what each is called."""

_FS_IOC_FSGETXATTR, _FSXATTR = 0x801C581F, struct.Struct("=5I8x")
"""See ioctl_xfs_fsgetxattr(2); the fourth number is the project."""


def attributes_of(path: str) -> dict[str, bytes]:
    """Security label and access control list of a file, by the name of the extended attribute. A link is not followed.

    Of an SELinux label the user is left out: it is that of the shell that made the file, and no policy of a service decides by it.
    """
    found = {}
    with contextlib.suppress(OSError):  # a file system without extended attributes has neither
        for name in os.listxattr(path, follow_symlinks=False):
            if name in LABELS_AND_LISTS:
                value = os.getxattr(path, name, follow_symlinks=False)
                found[name] = value.rstrip(b"\0").partition(b":")[2] if name == "security.selinux" else value
    return found


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
    """What a file has that its segment has not, or has otherwise: ``security label`` or ``access control list``. None where they agree."""
    mine, wanted = attributes_of(path), attributes_of(segment)
    return next((what for name, what in LABELS_AND_LISTS.items() if mine.get(name) != wanted.get(name)), None)


def correction(path: str, segment: str) -> str:
    """The commands that give a file the label and the list of its segment."""
    path, segment = shlex.quote(path), shlex.quote(segment)
    return f"chcon --reference={segment} {path}; getfacl -p {segment} | setfacl --set-file=- {path}"
