"""Findings: what a command reports about its input, and the exit code that follows."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum, auto
from typing import Annotated

import msgspec

from formats.errors import FormatError
from snaprebuild.errors import (
    ChangedFileError,
    DamagedCopyError,
    GoneFileError,
    GonePartitionError,
    OutOfMemoryError,
    ReadFailedError,
    RefusedError,
    SnaprebuildError,
)
from snaprebuild.published import Natural, Part, one_of

__all__ = [
    "BUSY_LOG",
    "GONE",
    "IN_FLUX",
    "Finding",
    "FindingCause",
    "ReportedFinding",
    "Severity",
    "choose_form",
    "deleted_count",
    "deleted_text",
    "exit_code_of",
    "finding_of_error",
    "first_of",
    "in_flux",
    "is_gone",
    "pluralize",
    "unread_paths",
]


BUSY_LOG = "busy-log"
"""A broker deletes files faster than they can be read: no failure of the storage."""

GONE = "gone-meanwhile"
"""A partition was deleted or moved after the run began."""

IN_FLUX = "in-flux"
"""A broker writes or deletes a file while it is read: the next run checks it."""


def pluralize(count: int, what: str, several: str | None = None) -> str:
    """A count with its noun: ``1 snapshot``, ``2 snapshots``; ``several`` is the plural if it is irregular."""
    return f"{count} {choose_form(count, what, several or what + 's')}"


def choose_form(count: int, one: str, several: str) -> str:
    """The words that go with a count: ``is`` or ``are``, ``it`` or ``them``."""
    return one if count == 1 else several


def first_of(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are: ``a, b, c and 2 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


Code = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]
"""A stable name: words joined by dashes."""


class Severity(IntEnum):
    """The severity of a finding; the value is its exit code."""

    NOTE = 0
    FINDING = 1
    REFUSED = 3
    DAMAGED = 4
    STORAGE = 5


_WORST_FIRST = (Severity.STORAGE, Severity.REFUSED, Severity.DAMAGED, Severity.FINDING, Severity.NOTE)


class FindingCause(Enum):
    """The cause of a finding, where another step or command decides by it. No code and no message is ever compared."""

    BAD_COPY = auto()
    """A copy in remote storage whose index or objects are damaged; its segment may be whole."""
    BROKEN_BATCHES = auto()
    """The batches of a segment are damaged."""
    CHANGED_MEANWHILE = auto()
    """It was deleted or changed after it was listed: another run reads what is there then."""
    CORRUPT_SNAPSHOT = auto()
    """A snapshot in a log directory does not parse."""
    DAMAGED_FILE = auto()
    """A file does not follow its format."""
    DEADLINE_PASSED = auto()
    """The deadline of the run passed before snapshots were written."""
    EMPTY_AT_NEXT_START = auto()
    """The next start of a broker writes empty snapshots in the place of ones that have entries."""
    LIVE_BROKER = auto()
    """A process holds the log directory."""
    METADATA_TOPIC = auto()
    """``__remote_log_metadata`` could not be read whole."""
    NOTHING_FOUND = auto()
    """The paths lead to no partition that was selected."""
    NOT_READABLE_BY_BROKER = auto()
    """The user of the broker may not read a file; nothing is known of its content."""
    OFFLINE_LOG_DIR = auto()
    """A log directory that a broker continues without."""
    REFUSED = auto()
    """A refusal ended the work."""
    REMOVED_AT_NEXT_START = auto()
    """The next start of a broker removes snapshots and writes none in their place."""
    SETTINGS_UNREADABLE = auto()
    """A small file of a log directory cannot be read."""
    SNAPSHOT_ABOVE_LOG_END = auto()
    """A snapshot is above the end of the log."""
    START_NOT_JUDGED = auto()
    """The next start of a broker was not looked at."""
    STORAGE_FAILED = auto()
    """The storage, or the program, failed."""
    SUSPECT_SNAPSHOT = auto()
    """A snapshot in a log directory parses, and cannot be correct."""
    TRANSACTION_INDEX = auto()
    """A transaction index differs from the log, or cannot be read."""
    UNSOUND_BOUNDARY = auto()
    """From an offset on the log proves nothing."""
    WHILE_BROKER_RUNS = auto()
    """Written snapshots take effect at the next start."""
    WITHOUT_CONCERN = auto()
    """A directory that its broker deletes, moves or recovers: nothing is prepared there, and nothing is missing."""
    WRONG_SNAPSHOT = auto()
    """A replay proves a snapshot in a log directory wrong."""
    WRONG_REMOTE_SNAPSHOT = auto()
    """A snapshot in remote storage is wrong."""


class Finding(msgspec.Struct, frozen=True):
    """Something that a command reports about its input.

    Attributes:
        code: stable name, words joined by dashes; docs/reference/findings.md lists them.
        severity: the exit code that it causes.
        path: file or directory concerned.
        message: one sentence for the user.
        offset: boundary or batch offset concerned, or None.
        reason: stable name of the cause, if one code has several causes with the same remedy.
        is_unread: something in the selection was not read, or not to its end, so that nothing is known about it. Not in the JSON:
            documents list the paths as ``unread_paths``.
        is_deleted: its broker deleted the partition during the run, which is no fault. Not in the JSON either.
        cause: by which another step or command decides; None if none does. Not in the JSON either.
    """

    code: str
    severity: Severity
    path: str
    message: str
    offset: int | None = None
    reason: str | None = None
    is_unread: bool = False
    is_deleted: bool = False
    cause: FindingCause | None = None

    @property
    def leaves_gap(self) -> bool:
        """Whether the result may lack something because of it: it is worse than a finding, or something was not read."""
        return self.is_unread or self.severity > Severity.FINDING


class ReportedFinding(Part, frozen=True):
    """A finding."""

    code: Code
    """Stable name (docs/reference/findings.md)."""
    severity: Annotated[str, one_of("note", "finding", "refused", "damaged", "storage")]
    """Causes exit code 0, 1, 3, 4, 5."""
    path: str
    """File or directory concerned."""
    message: str
    """One sentence for the user; not stable."""
    offset: Natural | None
    """Boundary or batch concerned."""
    reason: Code | None
    """Cause, if one code has several; null for others."""


def exit_code_of(findings: Iterable[Finding]) -> int:
    """The worst of all: 5, 3, 4, 1, 0; at least 1 where anything was not read."""
    present = {max(finding.severity, Severity.FINDING) if finding.is_unread else finding.severity for finding in findings}
    return int(next((severity for severity in _WORST_FIRST if severity in present), Severity.NOTE))


def finding_of_error(error: SnaprebuildError | FormatError, path: str, *, may_vanish: bool = False) -> Finding:
    """The finding of an error that ended the work on one partition or file, while the others continue.

    Args:
        error: that ended it.
        path: of the partition or file, used if the error has none.
        may_vanish: a local path that is absent is no storage failure: it is in a log directory, where a broker deletes.
    """
    if isinstance(error, FormatError):
        return Finding(
            "damaged-file", Severity.DAMAGED, error.file or path, error.message, is_unread=True, cause=FindingCause.DAMAGED_FILE
        )
    if isinstance(error, GonePartitionError):
        severity = Severity.NOTE if error.is_deleted else Severity.FINDING
        return Finding(
            GONE,
            severity,
            path,
            error.message,
            is_unread=not error.is_deleted,
            is_deleted=error.is_deleted,
            cause=FindingCause.CHANGED_MEANWHILE,
        )
    if isinstance(error, GoneFileError):
        return _busy_log(path, str(error) if error.path != path else error.message)
    if may_vanish and is_gone(error):
        from snaprebuild.storage.store import is_object  # heavy, and --help needs none of it

        if not is_object(error.path or path):
            return _busy_log(error.path or path, "was deleted during the run")
    if isinstance(error, DamagedCopyError):
        return Finding(
            "tier-bad-copy", Severity.DAMAGED, error.path or path, error.message, is_unread=True, cause=FindingCause.BAD_COPY
        )
    code = "storage-failed"
    severity = Severity.STORAGE
    cause: FindingCause | None = FindingCause.STORAGE_FAILED
    if isinstance(error, RefusedError):
        code = "refused"
        severity = Severity.REFUSED
        cause = FindingCause.REFUSED
    elif isinstance(error, OutOfMemoryError):
        code = "out-of-memory"
        cause = None
    elif type(error) is SnaprebuildError:
        code = "unforeseen-error"
    is_unread = isinstance(error, ReadFailedError | OutOfMemoryError) or type(error) is SnaprebuildError
    message = str(error) if error.path is None else error.message
    if isinstance(error, ReadFailedError) and error.errno in (errno.EACCES, errno.EPERM):
        from snaprebuild.storage.local.write_advice import reading_advice  # needed for such an error alone

        message += reading_advice(error)
    return Finding(code, severity, error.path or path, message, is_unread=is_unread, cause=cause)


def _busy_log(path: str, message: str) -> Finding:
    return Finding(BUSY_LOG, Severity.NOTE, path, message, is_unread=True, cause=FindingCause.CHANGED_MEANWHILE)


def is_gone(error: SnaprebuildError) -> bool:
    """Whether the error says that a file is absent: it has gone since it was listed."""
    return isinstance(error, GoneFileError) or (isinstance(error, ReadFailedError) and error.errno == errno.ENOENT)


def in_flux(error: ChangedFileError, path: str, offset: int) -> Finding:
    """The finding of a file that its broker writes while it is read."""
    return Finding(IN_FLUX, Severity.NOTE, error.path or path, error.message, offset)


def deleted_count(findings: Iterable[Finding]) -> int:
    """How many partitions of the selection a broker deleted during the run."""
    return len({finding.path for finding in findings if finding.is_deleted})


def deleted_text(findings: Iterable[Finding]) -> str:
    """A sentence and a blank, if a broker deleted partitions of the selection during the run; else nothing."""
    count = deleted_count(findings)
    if count:
        return f"{pluralize(count, 'partition was', 'partitions were')} deleted during the run. "
    return ""


def unread_paths(findings: Iterable[Finding]) -> list[str]:
    """Paths of everything in the selection that was not read, each once, in the order of the findings."""
    return list(dict.fromkeys(finding.path for finding in findings if finding.is_unread))
