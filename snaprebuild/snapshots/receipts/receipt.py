"""The receipt of a run: a file that is correct at every moment. It has JSON lines, each on the device before the step it announces.

It has a header, then a line with the inputs of each partition that is written to. Each file has a line before it gets its name and one
after. A run that is killed leaves a receipt that ends early, and maybe half a line; its readers look at the files themselves.
``undo`` and ``verify --written-by`` do. The receipt is created with its first announcement, so a run that writes nothing leaves none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from snaprebuild import __version__
from snaprebuild.errors import RefusedError, SnaprebuildError, UsageError, WriteFailedError
from snaprebuild.published import RunRecord, line_of
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan
from snaprebuild.snapshots.receipts.announcements import Announcements
from snaprebuild.snapshots.receipts.part_files import FIRST, PartsPlace, close_first_part, close_parts, remove_parts
from snaprebuild.snapshots.receipts.receipt_lines import (
    SCHEMA,
    EndStep,
    JoinedStep,
    ObjectsStep,
    PartsStep,
    ReceiptHeader,
    UndoingStep,
    UndoneStep,
    WriteAnnounced,
    WriteEvent,
)
from snaprebuild.snapshots.receipts.receipt_parts import EventList, PartReport
from snaprebuild.snapshots.receipts.receipt_places import can_be_written, default_receipt_places, new_receipt_name, register_receipt
from snaprebuild.snapshots.run import current_time_ms, run_record
from snaprebuild.storage.local.directories import missing_directories, remove_empty_directories
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.storage.local.journal_file import JournalFile, append_to_journal
from snaprebuild.storage.local.log_dir_guard import log_dir_above
from snaprebuild.storage.local.write_advice import ProcessUser
from snaprebuild.storage.store import is_object

__all__ = [
    "Receipt",
    "default_receipt_path",
    "noting_receipt",
    "record_undo",
]

log = logging.getLogger(__name__)


def default_receipt_path(out: str | None) -> str:
    """A new name in the first of ``default_receipt_places`` that can be used.

    Raises:
        UsageError: there is none.
    """
    places = default_receipt_places(out)
    directory = next(filter(can_be_written, places), None)
    if directory is None:
        described = " nor to ".join(map(_described, places))
        process = f"this process has {ProcessUser.current()}"
        raise UsageError(f"a receipt can be written neither to {described} ({process}): name one with --receipt FILE")
    return os.path.join(directory, new_receipt_name())


def _described(directory: str) -> str:
    """The path, with the log directory that it is in."""
    log_dir = log_dir_above(directory)
    return directory if log_dir is None else f"{directory} (in the log directory {log_dir})"


# ------------------------------------------------------------------------------------------------------------------ writing


class Receipt:
    """The receipt of a run that writes; several threads may add to it at once."""

    def __init__(self, path: str, plan: Plan) -> None:
        """Creates nothing yet.

        Args:
            path: of the file, which must not exist.
            plan: what is carried out; partitions that it does not name are numbered as they come.
        """
        self.path = os.path.abspath(path)
        self._plan = plan
        # Here: a thread that announces the first file may be one of another invocation.
        self._run = run_record(partition.source.log_dir for partition in plan.partitions)
        self._numbers = {partition.source.directory.path: number for number, partition in enumerate(plan.partitions)}
        self._numbering = threading.Lock()
        self._header = ""
        self._lines = Announcements(self._new_journal)
        self._elsewhere = threading.Lock()
        self._parts: PartsPlace | None = None
        self._joined_partitions: set[int] = set()
        self._makes_objects = False
        self._without_outcome: set[int] = set()
        self._new_directories: list[str] = []
        self._link: str | None = None
        self._was_removed = False

    @property
    def is_there(self) -> bool:
        """Whether there was anything to announce, so that the file was created."""
        return self._lines.journal is not None and not self._was_removed

    def check_place(self) -> None:
        """Makes sure, as far as possible beforehand, that the file can be created.

        Raises:
            RefusedError: it would be among the files of a broker, or its name is taken.
            WriteFailedError: its directory cannot be written to.
        """
        try:
            # A receipt in --out can be written where the snapshots can, and is not needed where nothing is.
            check_new_place(
                self.path, needs_directory=os.path.dirname(self.path) != self._plan.request.destination.receipt_directory
            )
        except WriteFailedError as error:
            message = f"{error.message}. The run needs this receipt: name another place with --receipt FILE"
            raise WriteFailedError(message, path=error.path, errno=error.errno) from error

    def record(self, partition: PartitionPlan, event: WriteEvent) -> None:
        """Records an event. An announcement is on the device when this returns.

        This does not wait for the line about the end of a write, and does not fail without it: the file itself shows its end.

        Raises:
            WriteFailedError, RefusedError: an announcement cannot be written, so that nothing may be.
        """
        self._lines.record(self._number(partition), partition, event)

    def announce_all(self, partition: PartitionPlan, files: Iterable[WriteAnnounced]) -> None:
        """Records several announcements for a partition. No file may have its name before ``sync`` has returned.

        Args:
            partition: that the files belong to.
            files: what is announced.

        Raises:
            WriteFailedError, RefusedError: the receipt cannot be written, so that nothing may be.
        """
        self._lines.announce_all(self._number(partition), partition, files, sync=False)

    def sync(self) -> None:
        """Returns when all that was announced is on the device.

        Raises:
            WriteFailedError: it cannot be.
        """
        if self._lines.journal is not None:
            self._lines.journal.sync()

    def settle_all(self, partition: PartitionPlan, offsets: Sequence[int]) -> None:
        """Records that announced files have their names. It does not wait for the device, as ``record``."""
        self._lines.settle_all(self._number(partition), offsets)

    def report_elsewhere(self, partition: PartitionPlan, objects_run: str) -> PartReport | EventList:
        """A value for the tasks of a partition in other processes, which takes their events.

        From now on the file is there, so that ``undo`` finds what these tasks announce also if this process is killed.

        Args:
            partition: of the plan.
            objects_run: what the objects of the run have in their metadata.

        Raises:
            WriteFailedError, RefusedError: the receipt cannot be written, so that no file may be.
        """
        number = self._number(partition)
        with self._elsewhere:
            if is_object(partition.target):
                if not self._makes_objects:
                    self._lines.open().append(line_of(ObjectsStep(run=objects_run)))
                    self._makes_objects = True
                self._without_outcome.add(number)
                return EventList()
            if self._parts is None:
                self._parts = self._begin_parts()
            return PartReport(self._parts, number, partition)

    def take_events(self, partition: PartitionPlan, events: Iterable[WriteEvent]) -> None:
        """Records the events of a task that made objects, and has ended.

        Raises:
            WriteFailedError: they cannot be written.
        """
        number = self._number(partition)
        for event in events:
            if isinstance(event, WriteAnnounced):
                self._lines.announce_all(number, partition, [event], sync=False)
            else:
                self._lines.record(number, partition, event)
        self.sync()
        self._without_outcome.discard(number)

    def close(self) -> None:
        """Ends the receipt of a run that was completed. Without any file there is none.

        Raises:
            SnaprebuildError: it cannot be written, or a part of it cannot be read. The parts stay then, and ``undo`` reads them.
            RefusedError: an ``undo`` closed the parts during the run, so tasks were refused. The receipt stays.
        """
        try:
            self._join()
            self._remove_if_empty()
            if self.is_there:
                self._lines.open().append(line_of(EndStep(ended_ms=current_time_ms(), written=self._lines.files)))
        finally:
            self._close_journal()

    def abandon(self) -> None:
        """Takes in what tasks in other processes announced until now; they announce nothing more. For a run that was not completed.

        What cannot be taken in stays in its part, where ``undo`` finds it.
        """
        try:
            with contextlib.suppress(SnaprebuildError):
                self._join()
                self._remove_if_empty()
        finally:
            self._close_journal()

    def _close_journal(self) -> None:
        if self._lines.journal is not None:
            self._lines.journal.close()

    def _number(self, partition: PartitionPlan) -> int:
        with self._numbering:
            return self._numbers.setdefault(partition.source.directory.path, len(self._numbers))

    def _new_journal(self) -> JournalFile:
        self._header = line_of(_header(self._plan, self._run))
        self._new_directories += missing_directories(os.path.dirname(self.path))
        journal = JournalFile(self.path, self._header)
        self._link = register_receipt(self.path)
        log.info("receipt: %s", self.path)
        return journal

    # ------------------------------------------------------------------------------------------------------------- parts

    def _begin_parts(self) -> PartsPlace:
        journal = self._lines.open()
        # The files go to --out, so that each task reaches it. A log directory has no place for files of ours.
        directory = self._plan.request.destination.receipt_directory or os.path.dirname(self.path)
        place = PartsPlace.new(os.path.realpath(directory), self._header)
        self._new_directories += missing_directories(place.directory)
        place.begin()
        try:
            journal.append(line_of(PartsStep(directory=place.directory, run=place.run)))
        except BaseException:
            # No task knows this place.
            with contextlib.suppress(SnaprebuildError):
                remove_parts([place.path_of(FIRST)])
            raise
        return place

    def _join(self) -> None:
        """Closes the parts, adds their lines, and removes them."""
        place = self._parts
        if place is None:
            return
        from snaprebuild.snapshots.receipts.receipt_join import JoinedLines  # a run in one process reads no receipt

        journal = self._lines.open()
        if not close_first_part(place.directory, place.run):
            # The lines are in the receipt by now, or the other process is about to add them.
            message = "an `undo` of this receipt closed its parts during the run: run `snaprebuild undo` with it once more"
            raise RefusedError(message, path=self.path)
        paths = close_parts(place.directory, place.run)
        joined = JoinedLines()
        for line in joined.lines_of(paths):
            journal.append(line, sync=False)
        journal.append(line_of(JoinedStep()))
        self._parts = None
        self._joined_partitions |= joined.partitions
        self._lines.files += joined.files
        remove_parts(paths)

    def _remove_if_empty(self) -> None:
        """Removes a receipt without files, and the directories that were made for it: a run that writes nothing leaves nothing."""
        journal = self._lines.journal
        if journal is None or self._joined_partitions or self._without_outcome or not self._lines.is_empty:
            return
        journal.remove()
        if self._link is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._link)
        self._was_removed = True
        remove_empty_directories(self._new_directories)


@contextlib.contextmanager
def noting_receipt(receipt: Receipt | None) -> Iterator[None]:
    """An error inside the block has a note with the receipt of what was written until then, if anything was.

    Args:
        receipt: of the run; None for a run that writes nothing.
    """
    try:
        yield
    except BaseException as error:
        if receipt is not None and receipt.is_there:
            error.add_note(f"receipt of what was written: {receipt.path} (`snaprebuild undo` takes it back)")
        raise


def record_undo(path: str, step: type[UndoingStep | UndoneStep], offsets_by_number: Mapping[int, Sequence[int]]) -> None:
    """Appends to a receipt which files ``undo`` is about to remove, or has removed, for ``verify --written-by``.

    Args:
        path: of the receipt.
        step: which of the two.
        offsets_by_number: by the number that the receipt gives to the partition.

    Raises:
        WriteFailedError: it cannot be written.
    """
    lines = (line_of(step(number=number, offsets=tuple(each))) + "\n" for number, each in offsets_by_number.items())
    append_to_journal(path, "".join(lines))


def _header(plan: Plan, run: RunRecord) -> ReceiptHeader:
    return ReceiptHeader(
        schema=SCHEMA,
        snaprebuild=__version__,
        began_ms=current_time_ms(),
        in_place=plan.request.destination.is_for_broker,
        run=run,
        request=msgspec.to_builtins(plan.request.document),
        expiration_ms=plan.clock.expiration_ms,
    )
