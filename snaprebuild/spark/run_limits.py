"""The limits of a run, and whether they are sufficient for the segments that it reads from an object store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from snaprebuild.errors import LimitReachedError
from snaprebuild.snapshots.engine.partition_task import PartitionTask
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.s3.object_bytes import RANGE_BYTES
from snaprebuild.storage.s3.request_limits import OPTIONS, meter_of
from snaprebuild.storage.store import ReadStore
from snaprebuild.storage.store_path import ReadPath

if TYPE_CHECKING:
    from snaprebuild.storage.store import S3Settings

__all__ = ["Needs", "check_limits", "left_of", "limits_of", "limits_of_stores", "needs_of", "settings_of", "stored_needs"]

Needs = tuple[int, int]
"""Requests, and bytes that are read."""


def settings_of(store: ReadStore) -> S3Settings | None:
    """The settings of the object store below; None for files."""
    base = store.base if isinstance(store, TierStore) else store
    if base.is_local:
        return None
    from snaprebuild.storage.s3.store import S3Store

    assert isinstance(base, S3Store)
    return base.settings


def needs_of(task: ReadTask) -> Needs:
    """The cost of reading a segment: of its ranges, one after the other, and of the indexes that are compared with it."""
    return stored_needs(ReadPath(task.store, task.path), [task.identity.size_bytes, *(task.compared_bytes or ())])


def stored_needs(first: ReadPath, sizes: Sequence[int]) -> Needs:
    """The cost of reading objects, each in ranges one after the other.

    Args:
        first: of them, a segment, which may be stored in another size.
        sizes: of the objects in bytes.
    """
    stored = first.store.stored_bytes(first.path) if isinstance(first.store, TierStore) else None
    sizes = [*sizes] if stored is None else [stored, *sizes[1:]]
    return sum(-(-size // RANGE_BYTES) for size in sizes), sum(sizes)


def limits_of(tasks: Iterable[PartitionTask]) -> S3Settings | None:
    """The settings of an object store that tasks read or write, with the limits of the run; None if nothing limits it."""
    return limits_of_stores(store for task in tasks for store in task.stores())


def limits_of_stores(stores: Iterable[ReadStore]) -> S3Settings | None:
    """The settings of an object store with the limits of the run; None if nothing limits it."""
    for store in stores:
        settings = settings_of(store)
        if settings is not None and settings.is_limited:
            return settings
    return None


def left_of(settings: S3Settings) -> tuple[int | None, int | None]:
    """Requests and bytes that a run may still use; None for any number.

    Args:
        settings: with the limits of the run.
    """
    meter = meter_of(settings.run)
    requests = None if settings.max_requests is None else max(settings.max_requests - meter.requests, 0)
    read_bytes = None if settings.max_read_bytes is None else max(settings.max_read_bytes - meter.read_bytes, 0)
    return requests, read_bytes


def check_limits(settings: S3Settings, segments: Iterable[ReadTask], tasks: Iterable[PartitionTask]) -> None:
    """Estimates what a run requests, as far as that is known.

    Args:
        settings: with the limits.
        segments: that are read.
        tasks: that replay them.

    Raises:
        LimitReachedError: it is more than the limits of the run.
    """
    needed = [0, 0]
    for segment in segments:
        if settings_of(segment.store) is not None:
            needed = [sum(each) for each in zip(needed, needs_of(segment), strict=True)]
    for task in tasks:
        if (needs := task.needs()) is not None:
            needed = [sum(each) for each in zip(needed, needs, strict=True)]
    limits = settings.max_requests, settings.max_read_bytes
    for option, most, left, total in zip(OPTIONS, limits, left_of(settings), needed, strict=True):
        if left is not None and total > left:
            needs_text = f"{total} are needed for this run, and {left} are left"
            raise LimitReachedError(f"the limit of {option} {most} does not suffice: {needs_text}; nothing more is read")
