"""Adds the lines of the parts of a receipt to it: at the end of a run, or by ``undo`` if the run was killed."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator

from snaprebuild.published import line_of
from snaprebuild.snapshots.receipts.part_files import PartsPlace, close_parts, remove_parts
from snaprebuild.snapshots.receipts.receipt_lines import (
    JoinedStep,
    NotWrittenStep,
    PartitionStep,
    ReceiptHeader,
    SetAsideStep,
    UndoingStep,
    UndoneStep,
    WriteStep,
    WrittenStep,
)
from snaprebuild.snapshots.receipts.receipt_reader import ReceiptParts, WrittenReceipt, read_receipt, steps_of
from snaprebuild.storage.local.journal_file import JournalFile, append_to_journal

__all__ = ["JoinedLines", "with_joined_parts"]

LINES_AT_ONCE = 10_000

_OF_FILES = PartitionStep, SetAsideStep, WriteStep, WrittenStep, NotWrittenStep, UndoingStep, UndoneStep


class JoinedLines:
    """The lines of parts, without those that the receipt has already.

    Attributes:
        partitions: numbers of the partitions that have a line.
    """

    def __init__(self, partitions: Iterable[int] = ()) -> None:
        """Begins with the numbers of the partitions that the receipt has."""
        self.partitions = set(partitions)
        self._written: set[tuple[int, int]] = set()

    @property
    def files(self) -> int:
        """Files that have their names. A file that several attempts wrote counts once."""
        return len(self._written)

    def lines_of(self, paths: Iterable[str]) -> Iterator[str]:
        """The lines of closed parts, each without its end.

        Raises:
            UsageError, ReadFailedError: a part cannot be read, or is damaged.
        """
        for path in paths:
            for step in steps_of(path, is_part=True):
                if not isinstance(step, _OF_FILES):
                    continue
                if isinstance(step, PartitionStep):
                    if step.number in self.partitions:
                        continue
                    self.partitions.add(step.number)
                elif isinstance(step, WrittenStep):
                    self._written.add((step.number, step.offset))
                yield line_of(step)


def with_joined_parts(receipt: WrittenReceipt) -> WrittenReceipt:
    """Does what a run that was killed could not do: closes its parts, adds their lines to the receipt, and removes them.

    Without the receipt, a part that has all lines takes its place. If this is killed, it can be repeated.

    Args:
        receipt: as it was read.

    Returns:
        A receipt that is one file.

    Raises:
        UsageError: a part is damaged.
        StorageError: a part cannot be closed, read or removed, or the receipt cannot be written. Nothing is lost.
    """
    left = receipt.joined_parts
    if left is not None and os.path.isdir(left.directory):
        remove_parts(close_parts(left.directory, left.run))
    return receipt if receipt.parts is None else _joined(receipt.parts)


def _joined(parts: ReceiptParts) -> WrittenReceipt:
    paths = close_parts(parts.directory, parts.run)
    target = parts.receipt or PartsPlace(parts.directory, parts.run, "").joined_path
    paths = [path for path in paths if path != target]
    if parts.receipt is None and not _has_header(target):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        JournalFile(target, _header_of(paths)).close()
    lines = JoinedLines(step.number for step in steps_of(target) if isinstance(step, PartitionStep)).lines_of(paths)
    if parts.receipt is not None:
        lines = itertools.chain(lines, [line_of(JoinedStep())])
    while some := list(itertools.islice(lines, LINES_AT_ONCE)):
        append_to_journal(target, "".join(f"{line}\n" for line in some))
    remove_parts(paths)
    return read_receipt(target)


def _has_header(path: str) -> bool:
    """Whether a part has its first line; not if it is absent, or its maker was killed."""
    return os.path.lexists(path) and next(steps_of(path, is_part=True), None) is not None


def _header_of(paths: list[str]) -> str:
    steps = itertools.chain.from_iterable(steps_of(path, is_part=True) for path in paths)
    header = next(steps)
    assert isinstance(header, ReceiptHeader), "the first line of a part"
    return line_of(header)
