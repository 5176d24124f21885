"""The snapshot that belongs to a segment, as the library's door gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.engine.partition_replay import ReplayPoint

__all__ = ["EnsuredSnapshot", "Origin"]


class Origin(Enum):
    """Where the bytes of a snapshot come from."""

    ON_DISK = "on_disk"
    """From the file in the partition directory, which the log proves right."""
    REBUILT = "rebuilt"
    """From a replay of the log: there is no such file, or it is wrong, or nothing proves it right."""


@dataclass(frozen=True, slots=True)
class EnsuredSnapshot:
    """A snapshot that belongs to a segment.

    Attributes:
        offset: the next base offset of the segment, which is the snapshot's own.
        data: the whole file, as Kafka writes it.
        path: of a file with these bytes: below ``out``, or the partition's own; None where there is none.
        origin: where the bytes come from.
        snapshot_class: what may be claimed of them (docs/evidence.md).
        reasons: why that class, and what is the matter with a file on disk that was not taken.
        entries: count of producers.
        bytes_read: of segments, to tell.
        point: where the replay stood, for the next call (``after``); nothing to look into. None where nothing can go on from here: at the
            log end, or where a window was replayed.
        index_fault: what is wrong with the ``.txnindex`` of the segment, as far as the replay tells; None where nothing is known to be.
    """

    offset: int
    data: bytes = field(repr=False)
    path: str | None
    origin: Origin
    snapshot_class: SnapshotClass
    reasons: tuple[str, ...]
    entries: int
    bytes_read: int
    point: ReplayPoint | None = field(default=None, repr=False, compare=False)
    index_fault: str | None = field(default=None, repr=False)
