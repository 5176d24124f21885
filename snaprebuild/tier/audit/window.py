"""The window of a partition in remote storage that is replayed without any evidence from the segments below it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, Knowledge, impossible_entries
from snaprebuild.replay.segment_effect import RunningEffect
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.engine.window_proof import Held
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.snapshots.verify import VerifyOutcome
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir

__all__ = [
    "Window",
    "WindowContents",
    "WindowOutcome",
    "WindowSnapshot",
]


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a partition that is replayed.

    Attributes:
        source: the partition, with all of its segments; of its snapshots those from the window on.
        first_index: of the first segment that is read.
        least_offset: snapshots below it are evidence only, and get no verdict.
        proof: advice, how to prove what the window does not prove.
        below_is_old: all producers below the window have expired, as the KIP's window promises. Otherwise, and in a log with
            transactions, another snapshot counts as evidence only if it holds an entry from below the window. The reason is a broker that
            once lost its state: it writes snapshots that all agree and hold no such entry.
        times: largest timestamp below each boundary, ms; None if unknown.
        below: why the copies right below the first segment are not among the segments; None where there never was one, or retention has
            deleted them.
        above: why the copies right above the last segment are not among the segments; None for the newest.
    """

    source: PartitionSource
    first_index: int
    least_offset: int
    proof: str
    below_is_old: bool = True
    times: Mapping[int, int | None] = field(default_factory=dict)
    below: str | None = None
    above: str | None = None

    @property
    def start_offset(self) -> int:
        """Base offset of the first segment that is read."""
        return self.source.directory.segments[self.first_index].base_offset

    @property
    def is_whole(self) -> bool:
        """It begins at offset 0."""
        return self.start_offset == 0

    @property
    def read_bytes(self) -> int:
        """Bytes of segments."""
        return sum(each.size_bytes for each in self.source.directory.segments[self.first_index :])


@dataclass(frozen=True, slots=True)
class WindowContents:
    """What was read of a window.

    Attributes:
        directory: the partition, as far as it was read; its store has the snapshots.
        held: summaries of the segments from the first of the window on, with first events.
        clock: for expiry: entries that a load at that moment drops are not compared.
    """

    window: Window
    directory: PartitionDir
    held: Held
    clock: Clock

    def knowledge(self, unproven: str | None, *, is_complete: bool) -> Knowledge:
        """For the comparison of a snapshot with a replay of the window.

        Args:
            unproven: why the replay proves nothing; None if it does.
            is_complete: the replay has everything that is below, too.
        """
        start = self.window.start_offset
        clock = self.clock
        return Knowledge(is_complete, unproven, start, start, clock.as_of_ms, clock.expiration_ms)

    def evidence(self, offset: int, listed: ListedFile) -> np.ndarray | None:
        """Entries of a snapshot; None if it cannot be read, or cannot be true."""
        try:
            entries = read_snapshot_file(self.directory, offset, listed)
        except (FormatError, ReadFailedError):
            return None
        return None if entries is None or impossible_entries(entries, offset) is not None else entries


@dataclass(slots=True)
class WindowSnapshot:
    """A snapshot at a boundary of the window.

    Attributes:
        offset: of it.
        listed: the file.
        prefix: everything from the window up to there, as long as it is open what the snapshot is: a state may take 100 MB.
        unproven_reason: why the replay proves nothing there; None if it does.
        entries: of the snapshot, kept as long as the prefix; None if it does not parse.
        comparison: with the window alone, then with what else is evidence.
        snapshot_class: of the replay.
    """

    offset: int
    listed: ListedFile
    prefix: RunningEffect
    unproven_reason: str | None
    entries: np.ndarray | None
    comparison: Comparison
    snapshot_class: SnapshotClass | None = None


class WindowOutcome(VerifyOutcome):
    """The result of a window. Names are those of snapshots in the directory.

    Attributes:
        consistent: why each of some snapshots is consistent.
        suspect: why each of some snapshots may be wrong.
        noted: why each of some snapshots may be wrong if brokers keep idle producers for longer.
        resume_at: segments that begin here or above are replayed next, without those below, which are damaged; None if none is.
    """

    consistent: dict[str, str] = msgspec.field(default_factory=dict)
    suspect: dict[str, str] = msgspec.field(default_factory=dict)
    noted: dict[str, str] = msgspec.field(default_factory=dict)
    resume_at: int | None = None

    def take(self, judged: WindowOutcome) -> None:
        """Adds the verdicts on segments that were read, or on some of them."""
        self.add(judged)
        self.consistent |= judged.consistent
        self.suspect |= judged.suspect
        self.noted |= judged.noted
        if self.resume_at is None:
            self.resume_at = judged.resume_at
