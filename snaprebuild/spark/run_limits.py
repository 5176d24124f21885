"""What a run may ask of an object store, divided among tasks that do not count together.

Before a job begins it is reckoned what its tasks need, and refused if that is more than the run may ask for. Each task then is held to
what it needs and a share of what is left over, for requests that have to be repeated: together they never use up more than the limits.
A task that Spark runs once more has its share once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from snaprebuild.errors import RefusedError
from snaprebuild.operations.feed import Arrivals
from snaprebuild.operations.schedule import Job, ReadTask
from snaprebuild.storage.meter import Share, held_to, meter_of
from snaprebuild.storage.object_bytes import RANGE_BYTES
from snaprebuild.storage.store import ReadStore
from snaprebuild.storage.tier_store import TierStore

if TYPE_CHECKING:
    from snaprebuild.storage.store import S3Settings

__all__ = ["HeldJob", "Needs", "RunLimits", "settings_of"]

Needs = tuple[int, int]
"""Requests, and bytes that are read."""


@runtime_checkable
class ReckonedJob(Protocol):
    """A job that knows what it will ask for, beside its segments."""

    def needs(self) -> Needs | None:
        """So much; None where it cannot be told."""


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that is held to its share (``schedule.Job``)."""

    job: Job
    share: Share

    def carry_out(self, arrivals: Arrivals) -> tuple[object, list[ReadTask]]:
        """As ``schedule.Job``."""
        with held_to(self.share):
            return self.job.carry_out(arrivals)


def settings_of(store: ReadStore) -> S3Settings | None:
    """Of the object store that lies below; None for files."""
    base = store.base if isinstance(store, TierStore) else store
    if base.is_local:
        return None
    from snaprebuild.storage.s3 import S3Store

    assert isinstance(base, S3Store)
    return base.settings


def needs_of(task: ReadTask) -> Needs:
    """What reading a segment takes: its ranges, one behind the other."""
    stored = task.store.stored_bytes(task.path) if isinstance(task.store, TierStore) else None
    size = task.identity.size_bytes if stored is None else stored
    return -(-size // RANGE_BYTES), size


class RunLimits:
    """Of one run of an engine, all its jobs together.

    Attributes:
        is_last_wave: no further partitions follow. Before that, what is over is needed by those that do, mostly.
    """

    def __init__(self) -> None:
        self._given = [0, 0]
        self.is_last_wave = False

    def take(
        self, wanted: Mapping[int, Sequence[ReadTask]], jobs: Mapping[int, Job]
    ) -> tuple[dict[tuple[int, int], Share], dict[int, Share]]:
        """Divides what is left among the tasks of the next job.

        Args:
            wanted: segments to be read, by partition.
            jobs: of these partitions.

        Returns:
            The shares of the segments, by partition and base offset, and those of the jobs, by partition; of stores without limits none.

        Raises:
            RefusedError: they need more than the run may ask for.
        """
        asked: dict[tuple[int, int | None], Needs] = {}
        settings: S3Settings | None = None
        for number, tasks in wanted.items():
            for task in tasks:
                found = settings_of(task.store)
                if found is not None:
                    settings, asked[number, task.base_offset] = found, needs_of(task)
            job = jobs[number]
            needs = job.needs() if isinstance(job, ReckonedJob) else None
            if needs is not None:
                asked[number, None] = needs
        if settings is None or (settings.max_requests, settings.max_read_bytes) == (None, None):
            return {}, {}
        meter = meter_of(settings.run)
        shares: dict[tuple[int, int | None], list[int | None]] = {key: [None, None] for key in asked}
        limits = (
            ("--max-requests", settings.max_requests, meter.requests),
            ("--max-read-bytes", settings.max_read_bytes, meter.read_bytes),
        )
        for kind, (option, most, used) in enumerate(limits):
            if most is None:
                continue
            total = sum(needs[kind] for needs in asked.values())
            left = most - used - self._given[kind]
            if total > left:
                told = f"{total} are needed for what is to be read, and {max(left, 0)} are left"
                raise RefusedError(f"the limit of {option} {most} does not suffice: {told}; nothing more is read")
            # Not all of what is over: a later round may need the rest.
            over = (left - total) // (2 if self.is_last_wave else 8)
            for key, needs in asked.items():
                shares[key][kind] = needs[kind] + (over * needs[kind] // total if total else 0)
            self._given[kind] += sum(share[kind] or 0 for share in shares.values())
        made = {key: Share(settings.run, *share) for key, share in shares.items()}
        segments = {(number, base): share for (number, base), share in made.items() if base is not None}
        return segments, {number: share for (number, base), share in made.items() if base is None}
