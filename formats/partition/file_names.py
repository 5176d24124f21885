"""Names of the files in a partition directory, of partition directories, and of the files next to them.

Parsing is exact: a name is known only when Kafka itself would have written it. A name on which Kafka would fail, or which it would
read as something else, is *misnamed*; every other name is unknown (None).

Source: ``LogFileUtils``, ``LocalLog.parseTopicPartitionName``, ``LogLoader``, ``Snapshots``, ``Topic``.
"""

from __future__ import annotations

import enum
import re

import msgspec

from formats.errors import BadValueError
from formats.limits import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

__all__ = [
    "BROKER_FILES",
    "CLEANER_OFFSET_CHECKPOINT",
    "CLEAN_SHUTDOWN",
    "LEADER_EPOCH_CHECKPOINT",
    "LOCK_FILE_NAME",
    "LOG_START_OFFSET_CHECKPOINT",
    "META_PROPERTIES",
    "PARTITION_METADATA",
    "QUORUM_STATE",
    "RECOVERY_POINT_CHECKPOINT",
    "REPLICATION_OFFSET_CHECKPOINT",
    "TOPIC_LENGTH_MAX",
    "DirectoryForm",
    "DumpedKind",
    "FileKind",
    "FileSuffix",
    "PartitionDirectoryName",
    "PartitionFileName",
    "is_loadable_dir_name",
    "offset_index_file_name",
    "parse_file_name",
    "parse_partition_dir_name",
    "segment_file_name",
    "snapshot_file_name",
    "snapshot_temporary_file_name",
    "time_index_file_name",
    "topic_fault",
    "transaction_index_file_name",
]

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
QUORUM_STATE = "quorum-state"

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

LOCK_FILE_NAME = ".lock"
"""``LogManager.LockFileName``."""

BROKER_FILES = (
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
    CLEAN_SHUTDOWN,
    LOCK_FILE_NAME,
)
"""Any of these in a directory makes it a broker's log directory."""

TOPIC_LENGTH_MAX = 249
"""``Topic.MAX_NAME_LENGTH``: leaves room for ``-<partition>`` in a file name of 255 bytes."""

FILE_NAME_LENGTH_MAX = 255


class DumpedKind(enum.StrEnum):
    """Kinds of content of a file, as ``formats.partition.file_kind`` finds out; the values are the names in commands and tables."""

    LOG = "log"
    SNAPSHOT = "snapshot"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TRANSACTION_INDEX = "transaction-index"
    KRAFT_CHECKPOINT = "kraft-checkpoint"
    LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
    OFFSET_CHECKPOINT = "offset-checkpoint"
    PARTITION_METADATA = "partition-metadata"
    META_PROPERTIES = "meta-properties"
    CLEAN_SHUTDOWN = "clean-shutdown"
    QUORUM_STATE = "quorum-state"


class FileKind(enum.Enum):
    """The kind of a file in a partition directory."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    PRODUCER_SNAPSHOT_TEMPORARY = ".snapshot.tmp"
    """Ours while it is written, and the broker's when it takes a snapshot from the tier (``TierStateMachine``)."""
    KRAFT_CHECKPOINT = ".checkpoint"
    KRAFT_CHECKPOINT_PART = ".checkpoint.part"
    LEADER_EPOCH_CHECKPOINT = LEADER_EPOCH_CHECKPOINT
    PARTITION_METADATA = PARTITION_METADATA
    QUORUM_STATE = QUORUM_STATE
    MISNAMED_SNAPSHOT = "misnamed snapshot"
    """Ends with ``.snapshot`` and is not genuine. ``ProducerStateManager`` parses the text before the first dot as the offset: if
    that is no number, the whole log fails to load."""
    MISNAMED_SEGMENT_FILE = "misnamed segment file"
    """Ends with ``.log``, ``.index``, ``.timeindex``, ``.txnindex``, ``.cleaned`` or ``.swap`` and is not genuine. ``LogLoader``
    reads its offset in the same way, and fails in the same way."""


class FileSuffix(enum.Enum):
    """The suffix after the name proper."""

    NONE = ""
    DELETED = ".deleted"
    """Renamed for deletion; removed when the log is loaded."""
    CLEANED = ".cleaned"
    """Being written by the log cleaner or a segment split."""
    SWAP = ".swap"
    """Written whole by the log cleaner, its predecessors not yet gone."""


class PartitionFileName(msgspec.Struct, frozen=True):
    """A parsed file name of a partition directory.

    Attributes:
        kind: what the file is.
        offset: int64. Base offset of a segment file, exclusive end offset of a snapshot or KRaft checkpoint. For a misnamed file
            the offset that Kafka reads from it, None where Kafka throws NumberFormatException. None for kinds without one.
        suffix: after the name proper.
        epoch: int32, of a KRaft checkpoint only.
    """

    kind: FileKind
    offset: int | None = None
    suffix: FileSuffix = FileSuffix.NONE
    epoch: int | None = None


_SEGMENT_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)

# What follows the 20 digits. Snapshots are marked for deletion and never cleaned or swapped.
_AFTER_OFFSET: dict[str, tuple[FileKind, FileSuffix]] = {
    **{kind.value + suffix.value: (kind, suffix) for kind in _SEGMENT_KINDS for suffix in FileSuffix},
    FileKind.PRODUCER_SNAPSHOT.value: (FileKind.PRODUCER_SNAPSHOT, FileSuffix.NONE),
    FileKind.PRODUCER_SNAPSHOT.value + FileSuffix.DELETED.value: (FileKind.PRODUCER_SNAPSHOT, FileSuffix.DELETED),
    FileKind.PRODUCER_SNAPSHOT_TEMPORARY.value: (FileKind.PRODUCER_SNAPSHOT_TEMPORARY, FileSuffix.NONE),
}

_WHOLE_NAMES = {
    kind.value: PartitionFileName(kind)
    for kind in (FileKind.LEADER_EPOCH_CHECKPOINT, FileKind.PARTITION_METADATA, FileKind.QUORUM_STATE)
}

# The part file carries a random number between the id and its suffix (`Snapshots.createTempFile`).
_KRAFT_CHECKPOINT = re.compile(r"([0-9]{20})-([0-9]{10})(?:\.checkpoint(\.deleted)?|-[0-9]+(\.checkpoint\.part))")

# Digits of any script, as Java accepts them, but for those beyond U+FFFF, which Java sees as two characters.
_LONG = re.compile(r"[+-]?[^\D\U00010000-\U0010ffff]+")

_SEGMENT_ENDINGS = (*(kind.value for kind in _SEGMENT_KINDS), FileSuffix.CLEANED.value, FileSuffix.SWAP.value)


def parse_file_name(name: str) -> PartitionFileName | None:
    """Reads the name of a file of a partition directory.

    Args:
        name: the last part of a path.

    Returns:
        The parsed name; None when Kafka and we do not know it. Never raises.
    """
    # Sliced, not matched: a scan calls this some 800,000 times.
    kind_and_suffix = _AFTER_OFFSET.get(name[20:])
    if kind_and_suffix is not None:
        digits = name[:20]
        # isdecimal alone knows the digits of other scripts.
        if digits.isascii() and digits.isdecimal():
            offset = int(digits)
            if offset <= INT64_MAX:
                return PartitionFileName(kind_and_suffix[0], offset, kind_and_suffix[1])
    return _WHOLE_NAMES.get(name) or _parse_kraft_checkpoint(name) or _parse_misnamed(name)


def _parse_kraft_checkpoint(name: str) -> PartitionFileName | None:
    match = _KRAFT_CHECKPOINT.fullmatch(name)
    if match is None:
        return None
    offset = int(match[1])
    epoch = int(match[2])
    if offset > INT64_MAX or epoch > INT32_MAX:
        return None
    kind = FileKind.KRAFT_CHECKPOINT_PART if match[4] else FileKind.KRAFT_CHECKPOINT
    return PartitionFileName(kind, offset, FileSuffix.DELETED if match[3] else FileSuffix.NONE, epoch)


def _parse_misnamed(name: str) -> PartitionFileName | None:
    if name.endswith(FileKind.PRODUCER_SNAPSHOT.value):
        return PartitionFileName(FileKind.MISNAMED_SNAPSHOT, _offset_that_kafka_reads(name))
    if not name.endswith(_SEGMENT_ENDINGS):
        return None
    suffix = next((mark for mark in (FileSuffix.CLEANED, FileSuffix.SWAP) if name.endswith(mark.value)), FileSuffix.NONE)
    return PartitionFileName(FileKind.MISNAMED_SEGMENT_FILE, _offset_that_kafka_reads(name), suffix)


def _offset_that_kafka_reads(name: str) -> int | None:
    """``LogFileUtils.offsetFromFileName``: Long.parseLong of the text before the first dot."""
    text = name[: name.index(".")]
    # Bounded, because a huge number of digits costs quadratic time; a file name has at most 255 bytes.
    if _LONG.fullmatch(text) is None or len(text) > FILE_NAME_LENGTH_MAX:
        return None
    offset = int(text)
    return offset if INT64_MIN <= offset <= INT64_MAX else None


def _file_name(kind: FileKind, offset: int) -> str:
    """Name of a file that is named after an offset (``LogFileUtils.filenamePrefixFromOffset``).

    Raises:
        BadValueError: the offset is no offset.
    """
    if not 0 <= offset <= INT64_MAX:
        raise BadValueError("offset", expected=f"0..{INT64_MAX}", found=offset)
    return f"{offset:020d}{kind.value}"


def segment_file_name(offset: int) -> str:
    """Name of the segment that begins at ``offset``."""
    return _file_name(FileKind.LOG, offset)


def offset_index_file_name(offset: int) -> str:
    """``<offset>.index`` of the segment with this base offset."""
    return _file_name(FileKind.OFFSET_INDEX, offset)


def time_index_file_name(offset: int) -> str:
    """``<offset>.timeindex`` of the segment with this base offset."""
    return _file_name(FileKind.TIME_INDEX, offset)


def transaction_index_file_name(offset: int) -> str:
    """``<offset>.txnindex`` of the segment with this base offset."""
    return _file_name(FileKind.TRANSACTION_INDEX, offset)


def snapshot_file_name(offset: int) -> str:
    """``<offset>.snapshot``: the producer state after every batch below this offset."""
    return _file_name(FileKind.PRODUCER_SNAPSHOT, offset)


def snapshot_temporary_file_name(offset: int) -> str:
    """``<offset>.snapshot.tmp``, which Kafka ignores (not ``.snapshot``, ``.deleted``, ``.cleaned`` or ``.swap``)."""
    return _file_name(FileKind.PRODUCER_SNAPSHOT_TEMPORARY, offset)


class DirectoryForm(enum.Enum):
    """The state of a partition directory that its name shows."""

    PLAIN = ""
    DELETE = "-delete"
    """Renamed for deletion: the broker removes it after file.delete.delay.ms, or at its next start."""
    FUTURE = "-future"
    """Being filled by a move between log directories."""
    STRAY = "-stray"
    """Belongs to a partition that is no longer assigned to this broker, or whose topic id changed."""


class PartitionDirectoryName(msgspec.Struct, frozen=True):
    """The parsed name of a partition directory.

    Attributes:
        topic: the topic; only its beginning where ``topic_may_be_cut``.
        partition: int32.
        form: plain, delete, future or stray.
        unique_id: between the dot and the form, 32 hexadecimal digits when a broker wrote it; empty for PLAIN.
        topic_may_be_cut: the name has the full 255 characters and a form for which Kafka shortens the topic
            (``LocalLog.logDirNameWithSuffixCappedLength``).
    """

    topic: str
    partition: int
    form: DirectoryForm = DirectoryForm.PLAIN
    unique_id: str = ""
    topic_may_be_cut: bool = False


_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]*")

# Partition numbers as Kafka writes them: a directory `t-007` would load as partition 7 and collide with `t-7`, so it stays unknown.
_PLAIN_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})")

# Kafka splits at the last dot, takes any text for the unique id (`LocalLog.DELETE_DIR_PATTERN`), and deletes what matches. So a
# marked directory is recognised with any id, not only with 32 hexadecimal digits.
_MARKED_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})\.([^\s./]+)(-delete|-future|-stray)")


def parse_partition_dir_name(name: str) -> PartitionDirectoryName | None:
    """Reads the name of a partition directory.

    The topic ends at the last dash, so topics may contain dashes and dots.

    Args:
        name: the last part of a path.

    Returns:
        The parsed name; None when it is no name of a partition directory. Never raises.
    """
    marked = _MARKED_DIRECTORY.fullmatch(name)
    match = marked or _PLAIN_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    topic = match[1]
    partition = int(match[2])
    if partition > INT32_MAX or topic_fault(topic) is not None:
        return None
    if marked is None:
        return PartitionDirectoryName(topic, partition)
    form = DirectoryForm(marked[4])
    may_be_cut = form is not DirectoryForm.FUTURE and len(name) >= FILE_NAME_LENGTH_MAX
    return PartitionDirectoryName(topic, partition, form, marked[3], may_be_cut)


_MARKS = tuple(form.value for form in DirectoryForm if form.value)
_ANY_MARKED_DIRECTORY = re.compile(r"\S+-\S+\.\S+", re.ASCII)
_JAVA_INT = re.compile(r"[+-]?0*[0-9]{1,10}")


def is_loadable_dir_name(name: str) -> bool:
    """Whether a broker loads a directory of its log directory as a partition; with any other name it does not start.

    Args:
        name: the last part of a path.

    Source: ``LocalLog.parseTopicPartitionName``, which is more tolerant than ``parse_partition_dir_name``.
    """
    if name.endswith(_MARKS):
        mark = next(mark for mark in _MARKS if name.endswith(mark))
        if _ANY_MARKED_DIRECTORY.fullmatch(name.removesuffix(mark)) is None:
            return False
        name = name[: name.rindex(".")]
    topic, _, partition = name.rpartition("-")
    return bool(topic) and _JAVA_INT.fullmatch(partition) is not None and INT32_MIN <= int(partition) <= INT32_MAX


def topic_fault(topic: str) -> str | None:
    """Why Kafka rejects a topic name (``Topic.detectInvalidTopic``); None when it is legal."""
    if not topic:
        return "a name that is not empty"
    if topic in (".", ".."):
        return "a name other than '.' and '..'"
    if len(topic) > TOPIC_LENGTH_MAX:
        return f"at most {TOPIC_LENGTH_MAX} characters"
    if _LEGAL_TOPIC.fullmatch(topic) is None:
        return "ASCII letters, digits, '.', '_' and '-' only"
    return None
