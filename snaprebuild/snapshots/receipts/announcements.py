"""Events about files as lines of a journal: of a receipt, or of a part of one (``part_files``)."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import asdict

from formats.partition.file_names import snapshot_file_name
from snaprebuild.errors import OutcomeUnknownError, WriteFailedError
from snaprebuild.published import line_of
from snaprebuild.snapshots.plan.plan_model import PartitionPlan
from snaprebuild.snapshots.receipts.receipt_lines import (
    NotWrittenStep,
    PartitionStep,
    SetAsideAnnounced,
    SetAsideStep,
    WriteAnnounced,
    WriteEvent,
    WriteStep,
    WrittenStep,
)
from snaprebuild.storage.file_facts import InputFile
from snaprebuild.storage.local.journal_file import JournalFile
from snaprebuild.storage.store import is_object

__all__ = ["Announcements"]


class Announcements:
    """The events of a run in one journal, which is made for the first of them; several threads may add to it at once."""

    def __init__(self, open_journal: Callable[[], JournalFile]) -> None:
        """Makes nothing yet.

        Args:
            open_journal: makes the journal with its header, and is called at most once if it does not raise.
        """
        self._open_journal = open_journal
        self._opening = threading.Lock()
        self._reported: set[int] = set()
        self._journal: JournalFile | None = None
        self.files = 0
        """Files that have their names, by the lines of this journal."""

    @property
    def journal(self) -> JournalFile | None:
        """The journal; None if there was nothing to announce."""
        return self._journal

    @property
    def is_empty(self) -> bool:
        """Whether no partition has a line."""
        return not self._reported

    def open(self) -> JournalFile:
        """The journal, which is made if there is none.

        Raises:
            WriteFailedError, RefusedError: it cannot be.
        """
        with self._opening:
            return self._opened()

    def record(self, number: int, partition: PartitionPlan, event: WriteEvent) -> None:
        """Records an event. An announcement is on the device when this returns.

        This does not wait for the line about the end of a write, and does not fail without it: the file itself shows its end.

        Raises:
            WriteFailedError, RefusedError: an announcement cannot be written, so that nothing may be.
        """
        if isinstance(event, WriteAnnounced):
            self.announce_all(number, partition, [event], sync=True)
            return
        offset = event.offset
        if isinstance(event, SetAsideAnnounced):
            name = snapshot_file_name(offset)
            step = SetAsideStep(number=number, offset=offset, name=name, set_aside=event.name, **asdict(event.file))
            self._opened_for(number, partition).append(line_of(step))
        elif self._journal is not None and number in self._reported and not isinstance(event.error, OutcomeUnknownError):
            settled = WrittenStep if event.error is None else NotWrittenStep
            self.files += event.error is None
            with contextlib.suppress(WriteFailedError):  # the next announcement fails, too
                self._journal.append(line_of(settled(number=number, offset=offset)), sync=False)

    def announce_all(self, number: int, partition: PartitionPlan, files: Iterable[WriteAnnounced], *, sync: bool) -> None:
        """Records several announcements for a partition.

        Args:
            number: of the partition.
            partition: that the files belong to.
            files: what is announced.
            sync: wait until this is on the device; else no file may have its name before ``sync`` of the journal has returned.

        Raises:
            WriteFailedError, RefusedError: they cannot be written, so that no file may be.
        """
        steps = [
            WriteStep(
                number=number,
                offset=each.offset,
                name=snapshot_file_name(each.offset),
                snapshot_class=each.snapshot_class,
                entries=each.entries,
                **asdict(each.file),
            )
            for each in files
        ]
        self._opened_for(number, partition).append("\n".join(map(line_of, steps)), sync=sync)

    def settle_all(self, number: int, offsets: Sequence[int]) -> None:
        """Records that announced files have their names. It does not wait for the device, as ``record``."""
        if self._journal is None or not offsets:
            return
        self.files += len(offsets)
        lines = (line_of(WrittenStep(number=number, offset=offset)) for offset in offsets)
        with contextlib.suppress(WriteFailedError):
            self._journal.append("\n".join(lines), sync=False)

    def _opened(self) -> JournalFile:
        if self._journal is None:
            self._journal = self._open_journal()
        return self._journal

    def _opened_for(self, number: int, partition: PartitionPlan) -> JournalFile:
        """The journal, with the line of the partition, which gets to the device with the line of its first file."""
        with self._opening:
            journal = self._opened()
            if number not in self._reported:
                journal.append(line_of(_partition_step(number, partition)), sync=False)
                self._reported.add(number)
            return journal


def _partition_step(number: int, plan: PartitionPlan) -> PartitionStep:
    source = plan.source
    directory = plan.source.directory
    target = plan.target
    if not is_object(target):
        target = os.path.realpath(target)  # a link on the way may lead elsewhere one day
    return PartitionStep(
        number=number,
        topic_partition=source.directory.topic_partition,
        source=directory.path,
        target=target,
        checkpointed_log_start_offset=source.checkpointed_log_start_offset,
        log_end_offset=plan.log_end_offset,
        clean_shutdown=source.log_dir.was_shut_down_cleanly,
        recovery_point=source.recovery_point,
        is_tiered=source.is_tiered,
        segments=tuple(InputFile.at(each.base_offset, each.log.identity) for each in directory.segments),
        without_index=tuple(each.base_offset for each in directory.segments if each.offset_index is None),
        snapshots=tuple(InputFile.at(offset, listed.identity) for offset, listed in directory.snapshots),
    )
