r"""Text checkpoints: a version line, a line with the number of entries, one line for each entry.

Four offset checkpoints of a log directory share one grammar (``topic partition offset``): ``recovery-point-offset-checkpoint``,
``log-start-offset-checkpoint``, ``replication-offset-checkpoint`` (high watermarks) and ``cleaner-offset-checkpoint``. The
``leader-epoch-checkpoint`` of a partition, also kept in the tier, has ``epoch startOffset``.

Source: ``CheckpointFile``, ``OffsetCheckpointFile``, ``LeaderEpochCheckpointFile``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

import msgspec

from formats.errors import BadLengthError, BadValueError, BadVersionError
from formats.limits import INT32_MAX, INT64_MAX
from formats.text_lines import INT32, INT64, java_integer, java_lines, shown_number

__all__ = [
    "LeaderEpochEntry",
    "OffsetCheckpointEntry",
    "has_negative_leader_epoch",
    "read_leader_epoch_checkpoint",
    "read_offset_checkpoint",
    "write_leader_epoch_checkpoint",
]

CHECKPOINT_VERSION = 0


# Java's \s, which is ASCII only; Python's str.split would also split at no-break spaces. In Java's String.split a leading space
# makes an empty first field, and one at the end is dropped.
_OFFSET_LINE = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s*", re.ASCII)
_EPOCH_LINE = re.compile(r"(\S+)\s+(\S+)\s*", re.ASCII)

E = TypeVar("E")

NaturalInt32 = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
NaturalInt64 = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]


class OffsetCheckpointEntry(msgspec.Struct, frozen=True):
    """One line of an offset checkpoint.

    Attributes:
        topic: topic name, not checked against Kafka's rules for topics, as Kafka does not check it either.
        partition: int32.
        offset: int64.
    """

    topic: str
    partition: int
    offset: int


class LeaderEpochEntry(msgspec.Struct, frozen=True):
    """One line of a leader epoch checkpoint.

    Attributes:
        epoch: int32, not negative.
        start_offset: int64, not negative; the first offset written in this epoch.
    """

    epoch: NaturalInt32
    start_offset: NaturalInt64


def read_offset_checkpoint(data: bytes | memoryview, *, file: str | None = None) -> tuple[OffsetCheckpointEntry, ...]:
    """Reads an offset checkpoint.

    Args:
        data: the whole file. Empty, or nothing but the version, means no entries (``CheckpointFile`` creates it empty).
        file: name of the file, for messages.

    Returns:
        The entries in file order; a topic partition that occurs twice is returned twice (Kafka takes the last).

    Raises:
        BadVersionError: the version is not 0.
        BadLengthError: the count does not match the lines.
        BadValueError: a line is malformed; positions are lines, from 1.
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    topics: dict[str, str] = {}  # a name is held once for all its partitions
    return _read(data, "offset checkpoint", "topic partition offset", lambda line: _offset_entry(line, topics), file)


def read_leader_epoch_checkpoint(data: bytes | memoryview, *, file: str | None = None) -> tuple[LeaderEpochEntry, ...]:
    """Reads a leader epoch checkpoint.

    Args:
        data: the whole file. Empty, or nothing but the version, means no entries.
        file: name of the file, for messages.

    Returns:
        The entries in file order. They need not ascend: ``LeaderEpochFileCache`` drops conflicting ones when it loads the file.

    Raises:
        BadVersionError: the version is not 0.
        BadLengthError: the count does not match the lines.
        BadValueError: a line is malformed, or a number negative (``LeaderEpochFileCache.assign`` refuses it).
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    return _read(data, "leader epoch checkpoint", "epoch startOffset, not negative", _epoch_entry, file)


def has_negative_leader_epoch(data: bytes | memoryview) -> bool:
    """Whether a leader epoch checkpoint parses, but for a negative number.

    ``LeaderEpochFileCache.assign`` throws an IllegalArgumentException then. At anything else a broker throws an IOException.

    Raises:
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    try:
        entries = _read(data, "leader epoch checkpoint", "epoch startOffset", _epoch_numbers, None)
    except (BadVersionError, BadLengthError, BadValueError):
        return False
    return any(entry.epoch < 0 or entry.start_offset < 0 for entry in entries)


def write_leader_epoch_checkpoint(entries: Iterable[LeaderEpochEntry], *, created_only: bool = False) -> bytes:
    """Writes a leader epoch checkpoint as the broker does, entries in the order given.

    Args:
        entries: the entries.
        created_only: the empty file of a checkpoint that was created and never written; ``entries`` must be empty.

    Raises:
        BadValueError: an entry that could not be read back.
    """
    return _write(entries, _epoch_line, created_only)


def _read(
    data: bytes | memoryview, what: str, grammar: str, entry_of: Callable[[str], E | None], file: str | None
) -> tuple[E, ...]:
    """Reads a checkpoint as Kafka does (``CheckpointFile.CheckpointReadBuffer.read``); errors have the line of the fault."""
    lines = java_lines(data, what, file=file)
    first = next(lines, None)
    second = next(lines, None)
    if first is None:
        return ()
    version = java_integer(first, INT32)
    if version != CHECKPOINT_VERSION:
        raise BadVersionError(
            f"{what} version", file=file, position=1, expected=CHECKPOINT_VERSION, found=shown_number(first), unit="line"
        )
    if second is None:
        return ()
    count = java_integer(second, INT32)
    if count is None or count < 0:
        raise BadLengthError(
            f"{what} count", file=file, position=2, expected="a number of entries", found=shown_number(second), unit="line"
        )
    entries = []
    for number, line in enumerate(lines, start=3):
        entry = entry_of(line)
        if entry is None:
            raise BadValueError(f"{what} line", file=file, position=number, expected=grammar, found=shown_number(line), unit="line")
        entries.append(entry)
    if len(entries) != count:
        raise BadLengthError(f"{what} count", file=file, position=2, expected=f"{count} entries", found=len(entries), unit="line")
    return tuple(entries)


def _offset_entry(line: str, topics: dict[str, str]) -> OffsetCheckpointEntry | None:
    match = _OFFSET_LINE.fullmatch(line)
    if match is None:
        return None
    partition = java_integer(match[2], INT32)
    offset = java_integer(match[3], INT64)
    if partition is None or offset is None:
        return None
    return OffsetCheckpointEntry(topics.setdefault(match[1], match[1]), partition, offset)


def _epoch_entry(line: str) -> LeaderEpochEntry | None:
    entry = _epoch_numbers(line)
    if entry is None or entry.epoch < 0 or entry.start_offset < 0:
        return None
    return entry


def _epoch_numbers(line: str) -> LeaderEpochEntry | None:
    match = _EPOCH_LINE.fullmatch(line)
    if match is None:
        return None
    epoch = java_integer(match[1], INT32)
    start_offset = java_integer(match[2], INT64)
    if epoch is None or start_offset is None:
        return None
    return LeaderEpochEntry(epoch, start_offset)


def _write(entries: Iterable[E], line_of: Callable[[E], str], created_only: bool) -> bytes:
    lines = [line_of(entry) for entry in entries]
    if created_only:
        if lines:
            raise BadValueError("checkpoint", expected="no entries in a file that was never written", found=len(lines))
        return b""
    return "".join(f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(lines)), *lines)).encode()


def _epoch_line(entry: LeaderEpochEntry) -> str:
    _check_natural("epoch", entry.epoch, INT32_MAX)
    _check_natural("start offset", entry.start_offset, INT64_MAX)
    return f"{entry.epoch} {entry.start_offset}"


def _check_natural(what: str, value: int, high: int) -> None:
    if not 0 <= value <= high:
        raise BadValueError(what, expected=f"0..{high}", found=value)
