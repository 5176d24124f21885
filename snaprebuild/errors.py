"""What can go wrong while files are read and written, and what the command then exits with.

::

    SnaprebuildError              root: message, path, exit_code
    ├── UsageError            2   the request itself makes no sense
    ├── RefusedError          3   unsafe source, live broker, stale plan, owner that cannot be kept
    │   ├── ChangedFileError  3   a file changed while it was read
    │   │   └── GoneFileError     a file that was listed is gone
    │   │       └── GonePartitionError    and its directory, too
    │   ├── DeadlinePassedError  3   the time that was given is over
    │   ├── LockUnknownError  3   it is not known whether a broker runs here
    │   ├── SnapshotRefusedError  3   an uploader gets no snapshot
    │   └── UploadRefusedError  3     a segment may not be uploaded, or not yet
    ├── OutOfMemoryError      5   there is no more of it, or ``max_memory`` leaves no more
    └── StorageError          5   root of what the storage did
        ├── ReadFailedError       a file or directory cannot be read
        ├── WriteFailedError      nothing took effect
        │   ├── AlreadyExistsError    the name is taken; the file there was not touched
        │   └── BusyError             another run writes this very file now
        └── OutcomeUnknownError   it may have taken effect: look before trying again

Bytes that do not follow their format have a tree of their own, ``formats.errors``. Exit codes 0, 1 and 4 (findings, damaged input) belong
to no error of this one. Every error survives pickling with all its facts, because partitions are worked on in other processes.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlreadyExistsError",
    "BusyError",
    "ChangedFileError",
    "DeadlinePassedError",
    "GoneFileError",
    "GonePartitionError",
    "LockUnknownError",
    "OutOfMemoryError",
    "OutcomeUnknownError",
    "ReadFailedError",
    "RefusedError",
    "SnaprebuildError",
    "SnapshotRefusedError",
    "StorageError",
    "UploadRefusedError",
    "UsageError",
    "WriteFailedError",
]


class SnaprebuildError(Exception):
    """Root of the tree.

    Attributes:
        message: what happened, one sentence without the path.
        path: the file or directory concerned, or None.
        exit_code: what the command exits with; an unclassified error is never reported as success.
    """

    exit_code: ClassVar[int] = 5

    # A subclass adds facts as keyword arguments with defaults only: unpickling calls the class with the message alone and
    # then restores the attributes (`BaseException.__reduce__`).
    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return self.message if self.path is None else f"{self.path}: {self.message}"


class UsageError(SnaprebuildError):
    """The request itself makes no sense."""

    exit_code = 2


class OutOfMemoryError(SnaprebuildError):
    """What was to be held in memory has no room there: of the machine, or of what the run was given."""


class RefusedError(SnaprebuildError):
    """It could be done and would be unsafe: unsafe source, live broker, stale plan, owner that cannot be kept.

    Nothing was written.
    """

    exit_code = 3


class ChangedFileError(RefusedError):
    """A file changed while it was read: what was read of it may be half of one log and half of another. Reading it again may help."""


class GoneFileError(ChangedFileError):
    """A file that was listed is gone, or another one has its name: a broker deletes while we read.

    List the partition again and read what is there now (``snapshots.source.source.with_new_listings``).
    """


class GonePartitionError(GoneFileError):
    """A partition was deleted or moved, or made anew, after it was listed."""


class LockUnknownError(RefusedError):
    """It is not known whether a broker holds the log directory: its lock file or its file system does not answer."""


class DeadlinePassedError(RefusedError):
    """The time that the caller gave is over; nothing more was read."""


class SnapshotRefusedError(RefusedError):
    """No snapshot can be given that may be relied on, or not within the limits (``snaprebuild.ensure_snapshot``).

    Attributes:
        bytes_read: of segments, until then.
        snapshot_class: name of the class that it would have had; None where it was not rebuilt.
        reasons: why that class.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        bytes_read: int = 0,
        snapshot_class: str | None = None,
        reasons: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, path=path)
        self.bytes_read = bytes_read
        self.snapshot_class = snapshot_class
        self.reasons = reasons


class UploadRefusedError(RefusedError):
    """A segment may not go to remote storage, or not yet (``snaprebuild.prepare_upload``).

    Attributes:
        reason: a stable name, words joined by dashes, as docs/guides/upload.md lists them.
    """

    def __init__(self, message: str, *, path: str | None = None, reason: str = "") -> None:
        super().__init__(message, path=path)
        self.reason = reason


class StorageError(SnaprebuildError):
    """The storage did not do what it was asked.

    Attributes:
        errno: the error number of the system call at fault, or None.
        leftover: name of a temporary file that could not be removed, or None. Kafka ignores it and the next run removes it.
    """

    exit_code = 5

    def __init__(self, message: str, *, path: str | None = None, errno: int | None = None) -> None:
        super().__init__(message, path=path)
        self.errno = errno
        self.leftover: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.leftover is None else f"{text} (the temporary file {self.leftover} could not be removed)"


class ReadFailedError(StorageError):
    """A file or directory cannot be read: no permission, no such device, or no regular file."""


class WriteFailedError(StorageError):
    """Nothing took effect: no name appeared, none changed, and trying again is safe."""


class AlreadyExistsError(WriteFailedError):
    """The name is taken; the file there was not touched.

    Attributes:
        name: the name inside its directory.
    """

    def __init__(self, message: str, *, path: str | None = None, errno: int | None = None, name: str = "") -> None:
        super().__init__(message, path=path, errno=errno)
        self.name = name


class BusyError(WriteFailedError):
    """Another run writes this very file now: soon it is there, or that run has ended."""


class OutcomeUnknownError(StorageError):
    """It may have taken effect, or may be undone by a power failure: look at the path before trying again."""
