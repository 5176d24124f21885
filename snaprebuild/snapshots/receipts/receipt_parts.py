"""The receivers of the events of a task in another process: a part of the receipt (``part_files``), or a list in the outcome."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading

import msgspec

from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.plan.plan_model import PartitionPlan
from snaprebuild.snapshots.receipts.announcements import Announcements
from snaprebuild.snapshots.receipts.part_files import PartsPlace
from snaprebuild.snapshots.receipts.receipt_lines import WriteEvent
from snaprebuild.storage.local.journal_file import JournalFile

__all__ = ["EventList", "PartReport", "end_own_parts"]


class _PartFile(JournalFile):
    """The part of one task."""

    def __init__(self, place: PartsPlace) -> None:
        place.check_open()
        super().__init__(place.path_of(secrets.token_hex(8)), place.header)
        try:
            place.check_open()
        except RefusedError:
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            raise

    def _sync_up_to(self, position: int) -> None:
        super()._sync_up_to(position)
        if not self.has_its_name():
            raise RefusedError("this part of a receipt was closed: the run has ended, and nothing more is written", path=self.path)


class PartReport(msgspec.Struct, frozen=True):
    """Takes the events about the files of a partition in a task, and writes them to the part of this process.

    Attributes:
        place: of the parts.
        number: of the partition in the receipt.
        partition: that is written to.
    """

    place: PartsPlace
    number: int
    partition: PartitionPlan

    def __call__(self, event: WriteEvent) -> None:
        """Records an event. An announcement is on the device when this returns.

        Raises:
            WriteFailedError: it cannot be written, so that nothing may be.
            RefusedError: the run has ended, or this machine does not have the place of the parts.
        """
        _own_parts.of(self.place).record(self.number, self.partition, event)


class EventList:
    """Takes the events of a task that makes objects, in its own process. They return to the driver with the outcome of the task.

    An object shows by itself which run made it: its metadata have the name of the run from its first moment on (``ObjectsStep``).
    """

    def __init__(self) -> None:
        """Begins with none."""
        self.events: list[WriteEvent] = []

    def __call__(self, event: WriteEvent) -> None:
        """Adds an event."""
        self.events.append(event)


class _OwnParts:
    """The parts that this process writes, one for each run whose task it does now."""

    def __init__(self) -> None:
        self._parts: dict[str, Announcements] = {}
        self._lock = threading.Lock()

    def of(self, place: PartsPlace) -> Announcements:
        with self._lock:
            return self._parts.setdefault(place.run, Announcements(lambda: _PartFile(place)))

    def end(self) -> None:
        with self._lock:
            parts = list(self._parts.values())
            self._parts.clear()
        for each in parts:
            if each.journal is not None:
                each.journal.close()


_own_parts = _OwnParts()


def end_own_parts() -> None:
    """Called at the end of each task of this process: the next one begins a part of its own."""
    _own_parts.end()
