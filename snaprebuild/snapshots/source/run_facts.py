"""What a run reads once: the configuration of a broker, and which process holds each log directory."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from formats.broker.broker_files import Properties
from snaprebuild.errors import LockUnknownError
from snaprebuild.snapshots.source.broker_properties import read_server_properties
from snaprebuild.storage.local.broker_lock import lock_holder

__all__ = ["RunFacts"]


@dataclass(slots=True)
class RunFacts:
    """Facts that are read where they are needed first, and are the same for the rest of a run.

    A broker may start or stop meanwhile. Therefore nothing is written on the word of a fact: what writes in place takes the lock itself.
    After all segments were read, which may take hours, a lock that was free is asked for once more (``forget_free_locks``).
    """

    _properties: dict[str, Properties] = field(default_factory=dict)
    _holders: dict[str, int | LockUnknownError | None] = field(default_factory=dict)

    def properties(self, path: str) -> Properties:
        """The configuration of a broker (``server.properties``).

        Raises:
            UsageError: it is absent or does not parse.
        """
        place = os.path.abspath(path)
        if place not in self._properties:
            self._properties[place] = read_server_properties(path)
        return self._properties[place]

    def holder(self, log_dir: str) -> int | None:
        """The process that holds a log directory, as ``lock_holder``; None when it is free.

        Raises:
            LockUnknownError: it is unknown.
        """
        if log_dir not in self._holders:
            try:
                self._holders[log_dir] = lock_holder(log_dir)
            except LockUnknownError as error:
                self._holders[log_dir] = error
        holder = self._holders[log_dir]
        if isinstance(holder, LockUnknownError):
            raise holder
        return holder

    def forget_free_locks(self) -> None:
        """The next question about a log directory that was free reads its lock again: a broker may have started since."""
        self._holders = {log_dir: holder for log_dir, holder in self._holders.items() if holder is not None}
