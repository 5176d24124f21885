"""Where a call of the library plans, reads and replays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from snaprebuild.snapshots.engine.partition_task import Engine, Progress
    from snaprebuild.snapshots.source.source import PartitionSource
    from snaprebuild.storage.store import S3Settings
    from snaprebuild.storage.thread_pool import ParallelMap

__all__ = ["THIS_MACHINE", "CallEngine"]


class CallEngine(Protocol):
    """Where a call of the library plans, reads and replays: ``--engine`` of the command.

    Attributes:
        cache: directory of the effects of earlier calls; None for a call that keeps none.
        words: of the command line.
    """

    @property
    def cache(self) -> str | None:
        """Directory of the effects of earlier calls; None for a call that keeps none."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command line that choose this engine."""

    def planning(self) -> ParallelMap | None:
        """The map that plans partitions; None for this process."""

    def reading(self, progress: Progress | None) -> Engine | None:
        """The engine that reads; None for worker processes of this machine.

        Args:
            progress: called with a topic-partition and the bytes that were read since the last call; None for no calls.
        """

    def keep_effects(self, partitions: Iterable[PartitionSource], stores: S3Settings) -> None:
        """Makes sure that ``cache`` may be written to, before anything is read.

        Args:
            partitions: that are read.
            stores: how object stores are reached.

        Raises:
            UsageError: it leads to no directory.
            RefusedError: it leads into a directory of a broker, or the store would replace what is there.
            StorageError: an object store does not answer.
        """


class _ThisMachine:
    """Worker processes of this machine, which keep nothing."""

    cache: str | None = None
    words: tuple[str, ...] = ()

    def planning(self) -> ParallelMap | None:
        return None

    def reading(self, progress: Progress | None) -> Engine | None:
        return None

    def keep_effects(self, partitions: Iterable[PartitionSource], stores: S3Settings) -> None:
        pass


THIS_MACHINE: CallEngine = _ThisMachine()
