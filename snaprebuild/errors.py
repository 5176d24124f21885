"""Errors of reading and writing files, and the exit code of each.

::

    SnaprebuildError              root: message, path, exit_code
    ├── UsageError            2   the request itself makes no sense
    ├── RefusedError          3   unsafe source, live broker, stale plan, owner that cannot be kept
    │   ├── ChangedFileError  3   a file changed while it was read
    │   │   └── GoneFileError     a file that was listed is gone
    │   │       └── GonePartitionError    and its directory, too
    │   ├── HeldError         3   a broker, or another run, holds the log directory
    │   ├── DeadlinePassedError  3   the deadline of the caller has passed
    │   ├── LimitReachedError  3      a limit of the run on requests or bytes is used up
    │   ├── LockUnknownError  3   it is unknown whether a broker runs here
    │   ├── SnapshotRefusedError  3   an uploader gets no snapshot
    │   └── UploadRefusedError  3     a segment may not be uploaded, or not yet
    ├── OutOfMemoryError      5   the machine has no more memory, or ``max_memory`` allows no more
    └── StorageError          5   root of the failures of storage
        ├── ReadFailedError       a file or directory cannot be read
        │   └── DamagedCopyError  4   a copy in remote storage lacks objects, or has another size than recorded
        ├── WriteFailedError      nothing took effect
        │   ├── AlreadyExistsError    the name is taken; the file there was not touched
        │   └── BusyError             another run writes this very file now
        └── OutcomeUnknownError   it may have taken effect: check before you try again

Bytes that do not follow their format have their own tree, ``formats.errors``. No error here has the exit codes 0 and 1 (findings), and
one has that of damaged input, 4. Every error survives pickling with all its attributes, because worker processes handle the partitions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Self

__all__ = [
    "AlreadyExistsError",
    "BusyError",
    "ChangedFileError",
    "DamagedCopyError",
    "DeadlinePassedError",
    "GoneFileError",
    "GonePartitionError",
    "HeldError",
    "LimitReachedError",
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
        exit_code: of the command; an unclassified error is never reported as success.
    """

    exit_code: ClassVar[int] = 5

    # A subclass adds attributes as keyword arguments with defaults only: unpickling calls the class with the message alone and then
    # restores the attributes (`BaseException.__reduce__`).
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
    """Not enough memory: on the machine, or within the limit of the run."""


class RefusedError(SnaprebuildError):
    """Possible but unsafe: unsafe source, live broker, stale plan, owner that cannot be kept.

    Nothing was written.
    """

    exit_code = 3


class ChangedFileError(RefusedError):
    """A file changed while it was read, so its bytes may be those of two different logs. Reading it again may help."""


class GoneFileError(ChangedFileError):
    """A file that was listed is gone, or its name leads to another file: a broker deletes files while we read.

    List the partition again and read its present files (``snapshots.source.second_look``).
    """


class GonePartitionError(GoneFileError):
    """A partition was deleted, moved or created again after it was listed.

    Attributes:
        is_deleted: its broker gave it the name of a directory that it deletes: the topic, or this replica, was deleted. False if that
            is not known.
    """

    def __init__(self, message: str, *, path: str | None = None, is_deleted: bool = False) -> None:
        super().__init__(message, path=path)
        self.is_deleted = is_deleted


class HeldError(RefusedError):
    """A broker, or another run, holds the log directory."""


class LockUnknownError(RefusedError):
    """It is unknown whether a broker holds the log directory: its lock file or file system does not answer."""


class DeadlinePassedError(RefusedError):
    """The deadline of the caller has passed; nothing more was read."""


class LimitReachedError(RefusedError):
    """A limit of the run on requests or bytes is used up; nothing more is read."""


class RefusalReason(StrEnum):
    """Why a caller of the library gets no snapshot."""

    GONE = "gone"
    """The broker deleted or moved the partition."""
    BELOW_LOG_START = "below-log-start"
    """Retention deleted the segment, before the call or during it."""
    CHANGED = "changed"
    """A file changed while it was read. Another call may succeed."""
    DAMAGED = "damaged"
    """The log is damaged below the boundary, so no replay gets there."""
    UNPROVEN = "unproven"
    """The log is whole and does not prove the snapshot."""
    DEADLINE = "deadline"
    """``timeout_s`` is over."""
    LIMIT = "limit"
    """``max_bytes``, or a limit on requests, is used up."""
    NO_SOURCE = "no-source"
    """The directory may not be a source: it is in transition, or a segment is no regular file."""
    OUTPUT = "output"
    """The file may not be written to ``out``."""
    NEVER_TIERED = "never-tiered"
    """The topic is internal or compacted. No broker uploads it, and no log of it proves a snapshot."""


class SnapshotRefusedError(RefusedError):
    """No reliable snapshot can be returned, or not within the limits (``snaprebuild.ensure_snapshot``).

    Attributes:
        reason: a stable name of the cause.
        read_bytes: of segments, until then.
        snapshot_class: name of the class that it would have had; None if it was not rebuilt.
        reasons: of that class.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        reason: RefusalReason = RefusalReason.UNPROVEN,
        read_bytes: int = 0,
        snapshot_class: str | None = None,
        reasons: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, path=path)
        self.reason = reason
        self.read_bytes = read_bytes
        self.snapshot_class = snapshot_class
        self.reasons = reasons


class UploadRefusalReason(StrEnum):
    """Why a segment may not go to remote storage, or not yet."""

    ABOVE_HIGH_WATERMARK = "above-high-watermark"
    """The segment ends above the checkpointed high watermark: the rest may not be replicated."""
    ABOVE_LAST_STABLE_OFFSET = "above-last-stable-offset"
    """A transaction that began in or below it is open, or its marker is not replicated."""
    ABOVE_TRUSTED_OFFSET = "above-trusted-offset"
    """The cluster's rules trust this replica only up to a lower offset (``tier upload``)."""
    ACTIVE_SEGMENT = "active-segment"
    """The segment is still written to."""
    BAD_LEADER_EPOCHS = "bad-leader-epochs"
    """The leader epochs do not parse, or do not ascend."""
    BELOW_LOG_START = "below-log-start"
    """All its records are deleted, perhaps during the call."""
    CHANGED = "changed"
    """A file changed while it was read. Another call may succeed."""
    CLAIM_LOST = "claim-lost"
    """Another uploader has taken the claim of the copy over (``tier upload``)."""
    DAMAGED_SEGMENT = "damaged-segment"
    """The batches do not end with the file, or a checksum is wrong."""
    DELETED = "deleted"
    """Brokers delete the partition, or have deleted the copy (``tier upload``)."""
    EMPTY_SEGMENT = "empty-segment"
    """The segment is rolled and has no bytes."""
    ENCRYPTED_STORE = "encrypted-store"
    """The copies before it are encrypted, or the plugin encrypts, and an unencrypted one would follow (``tier upload``)."""
    GAP = "gap"
    """Remote storage ends below it, and segments between are missing (``tier upload``)."""
    GONE = "gone"
    """The broker deleted or moved the partition."""
    INDEX_CONTRADICTS_LOG = "index-contradicts-log"
    """An index entry differs from the segment."""
    MISSING_OFFSET_INDEX = "missing-offset-index"
    """There is no ``.index``. The broker makes one when it loads the log."""
    MISSING_TIME_INDEX = "missing-time-index"
    """There is no ``.timeindex``. The broker makes one when it loads the log."""
    NEVER_TIERED = "never-tiered"
    """Internal and compacted topics never go to remote storage."""
    NO_LEADER_EPOCHS = "no-leader-epochs"
    """No leader epoch covers it: brokers refuse such a segment."""
    NO_SOURCE = "no-source"
    """The directory is in transition, or the segment is no regular file."""
    NO_TOPIC_ID = "no-topic-id"
    """There is no ``partition.metadata``, and no topic id was given."""
    NOT_IN_CLUSTER = "not-in-cluster"
    """The cluster has no such partition (``tier upload``)."""
    OTHER_STORE = "other-store"
    """The copies before it are in another object store (``tier upload``)."""
    OTHER_TOPIC_ID = "other-topic-id"
    """The topic id that was given is not that of the directory, or of the cluster."""
    SEGMENT_TOO_LARGE = "segment-too-large"
    """The segment is larger than 2,147,483,647 bytes, for which its metadata has no room."""
    STALE_BROKER_EPOCH = "stale-broker-epoch"
    """The broker has registered again since this upload began (``tier upload``)."""
    UNKNOWN_BROKER_EPOCH = "unknown-broker-epoch"
    """An earlier claim has a broker epoch, and this run knows none (``tier upload``)."""
    UNKNOWN_CLEANER = "unknown-cleaner"
    """``cleaner-offset-checkpoint`` cannot be read, so the topic may be compacted."""
    UNKNOWN_HIGH_WATERMARK = "unknown-high-watermark"
    """No ``replication-offset-checkpoint`` has the high watermark."""
    UNKNOWN_PRODUCERS = "unknown-producers"
    """The replica lacks the producers of offsets that only remote storage holds."""


class UploadRefusedError(RefusedError):
    """A segment may not go to remote storage, or not yet (``snaprebuild.prepare_upload``).

    Attributes:
        reason: a stable name of the cause. docs/guides/uploader.md says for each whether an uploader stops or continues.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        reason: UploadRefusalReason = UploadRefusalReason.NO_SOURCE,
    ) -> None:
        super().__init__(message, path=path)
        self.reason = reason


class StorageError(SnaprebuildError):
    """The storage failed.

    Attributes:
        errno: the error number of the system call at fault, or None.
        leftover: name of a temporary file that could not be removed, or None. Kafka ignores it and the next run removes it.
    """

    exit_code = 5

    def __init__(self, message: str, *, path: str | None = None, errno: int | None = None) -> None:
        super().__init__(message, path=path)
        self.errno = errno
        self.leftover: str | None = None

    @classmethod
    def from_os_error(cls, error: OSError, failure: str, path: str) -> Self:
        """The error of a system call that failed on a path.

        Args:
            error: its cause.
            failure: of the operation, such as ``cannot be read``.
            path: of the file or directory.
        """
        return cls(f"{failure}: {error.strerror}", path=path, errno=error.errno)

    def __str__(self) -> str:
        text = super().__str__()
        if self.leftover is None:
            return text
        return f"{text} (the temporary file {self.leftover} could not be removed)"


class ReadFailedError(StorageError):
    """A file or directory cannot be read: no permission, no such device, or no regular file."""


class DamagedCopyError(ReadFailedError):
    """A finished copy of a segment in remote storage lacks objects, or has another size than recorded. The storage itself works.

    Attributes:
        segment_id: 16 bytes, of the copy.
    """

    exit_code = 4

    def __init__(self, message: str, *, path: str | None = None, errno: int | None = None, segment_id: bytes | None = None) -> None:
        super().__init__(message, path=path, errno=errno)
        self.segment_id = segment_id


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
    """Another run writes the same file now. Soon the file exists, or that run has ended."""


class OutcomeUnknownError(StorageError):
    """A write may have taken effect, or may be undone by a power failure: check the path before you try again."""
