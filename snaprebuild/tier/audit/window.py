"""Windows of a partition in remote storage, each replayed without any evidence from the segments below it, and how they are chosen.

A follower takes the snapshot of the copy that holds the offset below its start. It starts at the first offset on the leader's disk
(KIP-405), or at the first that is in no copy (KIP-1023). The former only increases, to the latter at most. From the other copies no
follower may start any more.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import ReadFailedError
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, Knowledge, impossible_entries
from snaprebuild.replay.segment_effect import RunningEffect
from snaprebuild.replay.window import Clock, window_start
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.engine.window_proof import Held
from snaprebuild.snapshots.source.source import PartitionSource, open_source
from snaprebuild.snapshots.verify import VerifyOutcome
from snaprebuild.storage.log_dir import known_topic_id
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir
from snaprebuild.tier.audit.copy_log import CopyLog, Stretch
from snaprebuild.tier.audit.partition_audit import SnapshotVerdict
from snaprebuild.tier.named_offsets import check_named_partitions, named_offset

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = [
    "LocalStarts",
    "Window",
    "WindowContents",
    "WindowOutcome",
    "WindowSnapshot",
    "reachable_windows",
    "read_local_starts",
    "whole_window",
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
        keeps_proven: the right content of wrong snapshots is wanted, for a repair.
    """

    source: PartitionSource
    first_index: int
    least_offset: int
    proof: str
    below_is_old: bool = True
    times: Mapping[int, int | None] = field(default_factory=dict)
    below: str | None = None
    above: str | None = None
    keeps_proven: bool = False

    @property
    def start_offset(self) -> int:
        """Base offset of the first segment that is read."""
        return self.source.directory.segments[self.first_index].base_offset

    @property
    def is_whole(self) -> bool:
        """The window begins at offset 0."""
        return self.start_offset == 0

    @property
    def read_bytes(self) -> int:
        """Bytes of segments."""
        return sum(each.size_bytes for each in self.source.directory.segments[self.first_index :])


@dataclass(frozen=True, slots=True)
class WindowContents:
    """The result of reading a window.

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
        if entries is None or impossible_entries(entries, offset) is not None:
            return None
        return entries


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
        exact_bases: boundaries whose own snapshot has every entry that the state of those above was replayed on.
        proven: bytes of the right snapshots, where two other snapshots confirm them (``right_sha256``), if they are wanted.
    """

    consistent: dict[str, str] = msgspec.field(default_factory=dict)
    suspect: dict[str, str] = msgspec.field(default_factory=dict)
    noted: dict[str, str] = msgspec.field(default_factory=dict)
    resume_at: int | None = None
    exact_bases: set[int] = msgspec.field(default_factory=set)
    proven: dict[int, bytes] = msgspec.field(default_factory=dict)

    def take(self, judged: WindowOutcome) -> None:
        """Adds the verdicts on segments that were read, or on some of them."""
        self.add(judged)
        self.consistent |= judged.consistent
        self.suspect |= judged.suspect
        self.noted |= judged.noted
        self.exact_bases |= judged.exact_bases
        self.proven |= judged.proven
        if self.resume_at is None:
            self.resume_at = judged.resume_at


# -------------------------------------------------------------------------------------------------- local log start offsets


@dataclass(frozen=True, slots=True)
class LocalStarts:
    """Local log start offsets that are known.

    Attributes:
        by_option: offsets by topic and partition.
        in_directories: offsets by topic, topic id and partition; the topic id is None where the directory has none.
    """

    by_option: Mapping[tuple[str, int], Sequence[int]] = field(default_factory=dict)
    in_directories: Mapping[tuple[str, bytes | None, int], Sequence[int]] = field(default_factory=dict)

    def of(self, partition: TopicIdPartition) -> int | None:
        """First offset on the leader's disk; the least of several that may be the leader's, None if unknown.

        A directory of another topic of that name shows nothing.
        """
        topic = partition.topic
        number = partition.partition
        by_option = self.by_option.get((topic, number), ())
        in_directories = [
            start for id_or_none in (partition.topic_id, None) for start in self.in_directories.get((topic, id_or_none, number), ())
        ]
        return min(by_option or in_directories, default=None)

    def checked(self, partitions: Collection[TopicIdPartition]) -> LocalStarts:
        """The starts for the partitions in remote storage. If a name has several ids there, a directory without an id shows nothing.

        Args:
            partitions: all that are there.

        Raises:
            UsageError: one that an option names is not there, or its name has several topic ids.
        """
        check_named_partitions("--local-log-start", self.by_option, partitions)
        count = Counter((each.topic, each.partition) for each in partitions)
        shared = {place for place, ids in count.items() if ids > 1}
        in_directories = {
            (topic, topic_id, partition): starts
            for (topic, topic_id, partition), starts in self.in_directories.items()
            if topic_id is not None or (topic, partition) not in shared
        }
        return dataclasses.replace(self, in_directories=in_directories)


def read_local_starts(options: Sequence[str], log_dirs: Sequence[str], run: Run) -> LocalStarts:
    """The local log start offsets by options, which count first, and by log directories.

    Args:
        options: ``TOPIC-PARTITION=OFFSET``.
        log_dirs: of brokers, the leaders best.
        run: how the object stores are reached that ``log_dirs`` lead into.

    Raises:
        UsageError: an option is of another form, or a directory has no partition.
    """
    by_option: dict[tuple[str, int], list[int]] = {}
    in_directories: dict[tuple[str, bytes | None, int], list[int]] = {}
    sources = open_source(log_dirs, run=run).partitions if log_dirs else ()
    for source in sources:
        segments = source.directory.segments
        if segments:
            # ``UnifiedLog.localLogStartOffset``, as it is when the log is loaded.
            start = max(source.checkpointed_log_start_offset, segments[0].base_offset)
            name = source.directory.name
            in_directories.setdefault((name.topic, known_topic_id(source.directory), name.partition), []).append(start)
    for text in options:
        place, offset = named_offset("--local-log-start", text)
        by_option.setdefault(place, []).append(offset)
    return LocalStarts(by_option, in_directories)


# -------------------------------------------------------------------------------------------------------- choice of windows


def reachable_windows(log: CopyLog, clock: Clock, local_log_start: int | None) -> list[tuple[Stretch, Window]]:
    """The windows for the snapshots that a follower may still start from. Settles the verdicts on the others.

    Args:
        log: the copies.
        clock: for expiry: what is older matters only where a transaction is open.
        local_log_start: first offset on the leader's disk; None if unknown.
    """
    log.audit.local_log_start_offset = local_log_start
    ends = [each.copy.next_offset for each in log.members]
    last = max(ends, default=0)
    # Also above the last copy, as a mistaken or a later one is: a follower may start after that one in any case.
    least = last if local_log_start is None else min(local_log_start, last)
    if local_log_start is None or local_log_start > last:
        reason = "a follower may start from the last copy (KIP-1023); --local-log-start or --log-dir shows from which others"
    else:
        reason = f"the leader's disk begins at {local_log_start}, and no follower starts below"
    verdict = SnapshotVerdict.REACH_UNKNOWN if local_log_start is None else SnapshotVerdict.UNREACHABLE
    for each in log.members:
        if each.copy.next_offset < least and each.verdict is SnapshotVerdict.NOT_READ:  # its size alone may have settled it
            each.settle(verdict, reason)
    windows = []
    for stretch in log.stretches:
        reachable = [end for end in ends if end >= least and stretch.holds_boundary(end)]
        if reachable:
            windows.append((stretch, _window(log, stretch, clock, min(reachable))))
    return windows


def _window(log: CopyLog, stretch: Stretch, clock: Clock, least_offset: int) -> Window:
    """The window of a stretch for the snapshots from an offset on."""
    source = stretch.source
    ending = bisect_left(source.directory.segments, least_offset, key=lambda segment: segment.base_offset) - 1
    young = _first_young(log, stretch, clock)
    first = max(min(young, ending), 0)
    start = source.directory.segments[first].base_offset
    evidence = tuple(each for each in source.directory.snapshots if each[0] >= start)
    narrowed = replace(source, directory=dataclasses.replace(source.directory, snapshots=evidence))
    return Window(
        narrowed,
        first,
        least_offset,
        stretch.proof(start),
        below_is_old=young > 0,
        times=log.times(),
        below=None if stretch.below is None else stretch.below.reason,
        above=None if stretch.above is None else stretch.above.reason,
    )


def whole_window(log: CopyLog, stretch: Stretch, clock: Clock) -> Window:
    """All copies of a stretch that does not begin at offset 0: an equal replay alone does not prove a snapshot."""
    return _window(log, stretch, clock, 0)


def _first_young(log: CopyLog, stretch: Stretch, clock: Clock) -> int:
    """Index of the first copy of a stretch that holds a timestamp within the expiration."""
    return window_start([each.copy.max_timestamp_ms for each in log.parts_of(stretch)], clock.as_of_ms, clock.expiration_ms)
