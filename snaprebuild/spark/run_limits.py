"""Whether what a run may ask of an object store suffices for the segments that a job is to read: else it is not begun.

What is asked for in earnest is counted by the driver, for all tasks together (``driver_line``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.engine.schedule import Job, ReadTask
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.s3.object_bytes import RANGE_BYTES
from snaprebuild.storage.s3.request_limits import meter_of
from snaprebuild.storage.store import ReadStore

if TYPE_CHECKING:
    from snaprebuild.storage.store import S3Settings

__all__ = ["Needs", "check_limits", "needs_of", "settings_of"]

Needs = tuple[int, int]
"""Requests, and bytes that are read."""


@runtime_checkable
class ReckonedJob(Protocol):
    """A job that knows what it will ask for, beside its segments."""

    def needs(self) -> Needs | None:
        """So much; None where it cannot be told."""


def settings_of(store: ReadStore) -> S3Settings | None:
    """Of the object store that lies below; None for files."""
    base = store.base if isinstance(store, TierStore) else store
    if base.is_local:
        return None
    from snaprebuild.storage.s3.store import S3Store

    assert isinstance(base, S3Store)
    return base.settings


def needs_of(task: ReadTask) -> Needs:
    """What reading a segment takes: its ranges, one behind the other."""
    stored = task.store.stored_bytes(task.path) if isinstance(task.store, TierStore) else None
    size = task.identity.size_bytes if stored is None else stored
    return -(-size // RANGE_BYTES), size


def check_limits(tasks: Iterable[ReadTask], jobs: Iterable[Job]) -> None:
    """Reckons what a job is to ask for, as far as that can be told, before any of it is asked for.

    Args:
        tasks: segments to be read.
        jobs: that put them together.

    Raises:
        RefusedError: it is more than the run may ask for.
    """
    needed, settings = [0, 0], None
    for task in tasks:
        found = settings_of(task.store)
        if found is not None:
            settings = found
            needed = [sum(each) for each in zip(needed, needs_of(task), strict=True)]
    if settings is None or (settings.max_requests, settings.max_read_bytes) == (None, None):
        return
    for job in jobs:
        if isinstance(job, ReckonedJob) and (needs := job.needs()) is not None:
            needed = [sum(each) for each in zip(needed, needs, strict=True)]
    meter = meter_of(settings.run)
    limits = (
        ("--max-requests", settings.max_requests, meter.requests),
        ("--max-read-bytes", settings.max_read_bytes, meter.read_bytes),
    )
    for (option, most, used), total in zip(limits, needed, strict=True):
        if most is not None and total > most - used:
            told = f"{total} are needed for what is to be read, and {max(most - used, 0)} are left"
            raise RefusedError(f"the limit of {option} {most} does not suffice: {told}; nothing more is read")
