"""The receipt of a run: a file that is correct at every moment. It has JSON lines, each on the device before the step it announces.

It has a header, then a line with the inputs of each partition that is written to. Each file has a line before it gets its name and one
after. A run that is killed leaves a receipt that ends early, and maybe half a line; its readers look at the files themselves.
``undo`` and ``verify --written-by`` do. The receipt is created with its first announcement, so a run that writes nothing leaves none.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import asdict

from formats.partition.file_names import snapshot_file_name
from snaprebuild import __version__
from snaprebuild.errors import OutcomeUnknownError, UsageError, WriteFailedError
from snaprebuild.published import RunRecord, line_of
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan
from snaprebuild.snapshots.receipts.own_snapshots import can_be_written, default_receipt_places
from snaprebuild.snapshots.receipts.receipt_lines import (
    SCHEMA,
    EndStep,
    NotWrittenStep,
    PartitionStep,
    ReceiptHeader,
    SetAsideAnnounced,
    SetAsideStep,
    UndoingStep,
    UndoneStep,
    WriteAnnounced,
    WriteEvent,
    WriteStep,
    WrittenStep,
)
from snaprebuild.snapshots.run_record import run_record
from snaprebuild.storage.file_facts import InputFile
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.storage.local.journal_file import JournalFile, append_to_journal
from snaprebuild.storage.local.log_dir_guard import log_dir_above
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
        raise UsageError(f"a receipt can be written neither to {described}: name one with --receipt FILE")
    now = datetime.datetime.now(datetime.UTC)
    return os.path.join(directory, f"snaprebuild-receipt-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}.jsonl")


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
        self._opening = threading.Lock()
        self._reported: set[int] = set()
        self._files = 0
        self._journal: JournalFile | None = None

    @property
    def is_there(self) -> bool:
        """Whether there was anything to announce, so that the file was created."""
        return self._journal is not None

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
            message = f"{error.message}, so no receipt of this run can be written there: use --receipt FILE"
            raise WriteFailedError(message, path=error.path, errno=error.errno) from error

    def record(self, partition: PartitionPlan, event: WriteEvent) -> None:
        """Records an event. An announcement is on the device when this returns.

        This does not wait for the line about the end of a write, and does not fail without it: the file itself shows its end.

        Raises:
            WriteFailedError, RefusedError: an announcement cannot be written, so that nothing may be.
        """
        if isinstance(event, WriteAnnounced):
            self.announce_all(partition, [event], sync=True)
            return
        number = self._number(partition)
        offset = event.offset
        if isinstance(event, SetAsideAnnounced):
            name = snapshot_file_name(offset)
            step = SetAsideStep(number=number, offset=offset, name=name, set_aside=event.name, **asdict(event.file))
            self._opened(number, partition).append(line_of(step))
        elif self._journal is not None and number in self._reported and not isinstance(event.error, OutcomeUnknownError):
            settled = WrittenStep if event.error is None else NotWrittenStep
            self._files += event.error is None
            with contextlib.suppress(WriteFailedError):  # the next announcement fails, too
                self._journal.append(line_of(settled(number=number, offset=offset)), sync=False)

    def announce_all(self, partition: PartitionPlan, files: Iterable[WriteAnnounced], *, sync: bool = False) -> None:
        """Records several announcements for a partition.

        Args:
            partition: that the files belong to.
            files: what is announced.
            sync: wait until this is on the device; else no file may have its name before ``sync`` has returned.

        Raises:
            WriteFailedError, RefusedError: the receipt cannot be written, so that nothing may be.
        """
        number = self._number(partition)
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
        self._opened(number, partition).append("\n".join(map(line_of, steps)), sync=sync)

    def sync(self) -> None:
        """Returns when all that was announced is on the device.

        Raises:
            WriteFailedError: it cannot be.
        """
        if self._journal is not None:
            self._journal.sync()

    def settle_all(self, partition: PartitionPlan, offsets: Sequence[int]) -> None:
        """Records that announced files have their names. It does not wait for the device, as ``record``."""
        number = self._number(partition)
        if self._journal is None or not offsets:
            return
        self._files += len(offsets)
        lines = (line_of(WrittenStep(number=number, offset=offset)) for offset in offsets)
        with contextlib.suppress(WriteFailedError):
            self._journal.append("\n".join(lines), sync=False)

    def close(self) -> None:
        """Ends the receipt of a run that was completed.

        Raises:
            WriteFailedError: it cannot be written.
        """
        if self._journal is not None:
            self._journal.append(line_of(EndStep(ended_ms=int(time.time() * 1000), written=self._files)))
            self._journal.close()

    def _number(self, partition: PartitionPlan) -> int:
        with self._opening:
            return self._numbers.setdefault(partition.source.directory.path, len(self._numbers))

    def _opened(self, number: int, partition: PartitionPlan) -> JournalFile:
        """The file, with the line of the partition, which gets to the device with the line of its first file."""
        with self._opening:
            if self._journal is None:
                self._journal = JournalFile(self.path, line_of(_header(self._plan, self._run)))
                log.info("receipt: %s", self.path)
            if number not in self._reported:
                self._journal.append(line_of(_partition_step(number, partition)), sync=False)
                self._reported.add(number)
            return self._journal


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
        began_ms=int(time.time() * 1000),
        in_place=plan.request.destination.is_for_broker,
        run=run,
        request=msgspec.to_builtins(plan.request.document),
        expiration_ms=plan.clock.expiration_ms,
    )


def _partition_step(number: int, plan: PartitionPlan) -> PartitionStep:
    source = plan.source
    directory = plan.source.directory
    return PartitionStep(
        number=number,
        topic_partition=source.directory.topic_partition,
        source=directory.path,
        # Where it really is: a link on the way may lead elsewhere one day.
        target=plan.target if is_object(plan.target) else os.path.realpath(plan.target),
        checkpointed_log_start_offset=source.checkpointed_log_start_offset,
        log_end_offset=plan.log_end_offset,
        clean_shutdown=source.log_dir.was_shut_down_cleanly,
        recovery_point=source.recovery_point,
        is_tiered=source.is_tiered,
        segments=tuple(InputFile.at(each.base_offset, each.log.identity) for each in directory.segments),
        without_index=tuple(each.base_offset for each in directory.segments if each.offset_index is None),
        snapshots=tuple(InputFile.at(offset, listed.identity) for offset, listed in directory.snapshots),
    )
