"""The locks of a run that writes into log directories: each is held once, from the first file to the last."""

from __future__ import annotations

import contextlib

from msgspec.structs import replace

from snaprebuild.errors import RefusedError, WriteFailedError
from snaprebuild.snapshots.plan.plan_model import PartitionPlan
from snaprebuild.storage.local.broker_lock import HeldLock, hold
from snaprebuild.storage.log_dir import listed_again, read_log_dir

__all__ = ["RunLocks"]


class RunLocks:
    """Holds each log directory once while it is written to, so that no broker starts on it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        """Holds nothing yet; the locks are released with ``stack``."""
        self._stack = stack
        self._held: dict[str, HeldLock | RefusedError | WriteFailedError] = {}

    def hold(self, log_dir: str) -> HeldLock:
        """The lock of a log directory. A failure is remembered, and raised again.

        Raises:
            RefusedError: a broker, or another run, holds it, or that is not known.
            WriteFailedError: nothing can be written there.
        """
        if log_dir not in self._held:
            try:
                self._held[log_dir] = self._stack.enter_context(hold(log_dir))
            except (RefusedError, WriteFailedError) as error:
                self._held[log_dir] = error
        lock = self._held[log_dir]
        if not isinstance(lock, HeldLock):
            raise lock
        return lock

    def is_held(self, log_dir: str) -> bool:
        """Whether this run holds the lock of a log directory: no broker runs on it then."""
        return isinstance(self._held.get(log_dir), HeldLock)

    def hold_for(self, plan: PartitionPlan) -> HeldLock | None:
        """The lock for a partition that is replayed; None where no broker can be at work. The partition must be what was planned for.

        Raises:
            RefusedError, WriteFailedError: as ``hold``; or the partition has changed since it was planned.
        """
        log_dir = plan.source.log_dir
        if not log_dir.is_broker_directory:
            return None
        lock = self.hold(log_dir.path) if log_dir.store.is_local else None  # no broker works on objects
        _check_unchanged(plan)
        return lock


def _check_unchanged(plan: PartitionPlan) -> None:
    """A broker may have run between the plan and the lock.

    Raises:
        RefusedError: the partition, or the state that its broker recorded, is not what was planned for.
    """
    directory = plan.source.directory
    state = plan.source.log_dir
    if replace(read_log_dir(state.place), faults=()) != replace(state, faults=()):
        raise RefusedError("the broker's files changed since the plan was made: plan again", path=state.path)
    now = listed_again(directory)
    if (now.segments, now.snapshots) != (directory.segments, directory.snapshots):
        raise RefusedError("segments or snapshots changed since the plan was made: plan again", path=directory.path)
