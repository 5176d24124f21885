"""The staged plan, as a file: each snapshot with its bytes, and the identity of every segment that it was replayed from.

Its form is that of ``plan_file`` (docs/reference/json/stage.md, docs/schema/staged-plan.schema.json).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.published import Inode, Int64, Natural, Positive
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.plan.plan_file import Line, PlanLines, plan_lines
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.storage.file_facts import AbsolutePath, InputFile, check_ascending
from snaprebuild.storage.local.document_file import STAGED_PLAN, write_text_file
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.store import FileIdentity, Ownership

__all__ = [
    "PLAN_NAME",
    "FaultySnapshot",
    "NotStaged",
    "StagedEvidence",
    "StagedPartition",
    "StagedPlan",
    "StagedSegment",
    "StagedSnapshot",
    "load_staged_plan",
    "save_staged_plan",
]

SCHEMA = "snaprebuild.staged-plan/7"

PLAN_NAME = "plan.jsonl"
"""In the first of the directories that were asked for."""


class StagedSegment(InputFile, frozen=True, kw_only=True, omit_defaults=True):
    """A segment that staged snapshots depend on.

    Attributes:
        ctime_ns: inode change time before it was read: it shows a change after which the modification time was set back. None if it is
            not known; the segment is then read again.
    """

    ctime_ns: Int64 | None = None

    @classmethod
    def of_segment(cls, base_offset: int, listed: FileIdentity, ctime_ns: int | None) -> StagedSegment:
        """A segment that was listed, with its inode change time in ns."""
        return cls(**asdict(listed), offset=base_offset, ctime_ns=ctime_ns)


class StagedSnapshot(Fingerprint, Line, frozen=True, kw_only=True):
    """A snapshot that is staged.

    Attributes:
        inode: of the file.
        is_due: it was missing then; else it is the state from which segments that are rolled later are replayed, and is installed if it is
            missing now.
        checked_ctime_ns: inode change time when its bytes were last compared with the SHA-256, after it had its name; None where nothing
            has compared them since they were staged.
    """

    offset: Natural
    inode: Inode
    snapshot_class: SnapshotClass = msgspec.field(name="class")
    entries: Natural
    is_due: bool
    checked_ctime_ns: Int64 | None = None


class StagedEvidence(Line, frozen=True, kw_only=True):
    """How the snapshots of a partition were replayed, each partition for itself: several runs may stage into one directory.

    Attributes:
        as_of_ms, expiration_ms: expiry; the class of what a replay window proves depends on it.
    """

    check_crc: bool
    replay_from: ReplayFrom
    as_of_ms: Natural
    expiration_ms: Positive

    @classmethod
    def of(cls, request: RebuildRequest, clock: Clock) -> StagedEvidence:
        """The evidence of a future run."""
        return cls(
            check_crc=request.check_crc,
            replay_from=ReplayFrom(request.replay_from),
            as_of_ms=clock.as_of_ms,
            expiration_ms=clock.expiration_ms,
        )

    @property
    def clock(self) -> Clock:
        """Expiry."""
        return Clock(self.as_of_ms, self.expiration_ms)

    def is_at_least_as_strong_as(self, other: StagedEvidence) -> bool:
        """Whether this replay gives what a run like ``other`` would give: with the same options, and for a moment that is not earlier.

        An entry that had expired then has expired later, too.
        """
        return msgspec.structs.replace(self, as_of_ms=0) == msgspec.structs.replace(other, as_of_ms=0) and (
            self.as_of_ms <= other.as_of_ms
        )


class StagedPartition(Line, frozen=True, kw_only=True):
    """A partition for which snapshots are staged.

    Attributes:
        path: of its directory.
        topic_id: from ``partition.metadata``, 16 bytes in hexadecimal digits; None where there was none.
        target: directory of the staged files.
        log_start_offset: then.
        first_offset: where the replay began: base offset of a segment.
        segments: each from there on, then, up to the one that begins at the last snapshot; ascending.
        snapshots: by offset, ascending.
        given_up: boundaries that were to be staged, and for which no replay gives a snapshot that may be installed.
        reasons: for the class of the last snapshot.
        request: what was asked for when they were staged; where one run continued another, what counts of all. In the file it is the
            number of one of the ``requests`` of the header.
        evidence: how they were replayed.
    """

    path: AbsolutePath
    topic_partition: str
    topic_id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")] | None
    target: AbsolutePath
    log_start_offset: Natural
    first_offset: Natural
    segments: tuple[StagedSegment, ...]
    snapshots: tuple[StagedSnapshot, ...]
    given_up: tuple[Natural, ...]
    reasons: tuple[str, ...]
    request: RebuildRequest
    evidence: StagedEvidence

    def __post_init__(self) -> None:
        if len(self.segments) < 2 or not self.snapshots or self.segments[-1].offset != self.snapshots[-1].offset:
            raise ValueError("the last segment does not begin at the last snapshot")
        check_ascending(each.offset for each in self.segments)
        check_ascending(each.offset for each in self.snapshots)

    def first_change(self, segments: Mapping[int, FileIdentity]) -> tuple[int, str] | None:
        """The first segment of the replay that is another one now: base offset, and what happened. None where all are the same.

        Segments below the first one now were deleted by retention; what was replayed of them stays true. Segments below the replay do not
        matter, nor the bytes of the segment that begins at the last snapshot.

        Args:
            segments: of the partition now, by base offset; at least one.
        """
        was = {each.offset: each.identity for each in self.segments}
        last = self.snapshots[-1].offset
        first = max(min(segments), self.first_offset)
        for base in sorted(base for base in {*segments, *was} if first <= base <= last):
            if base not in segments:
                return base, "is not there any more"
            if base not in was:
                return base, "was not there"
            if base != last and segments[base] != was[base]:
                return base, "is another file"
        return None

    def first_touched(self, ctimes: Mapping[int, int]) -> int | None:
        """The base offset of the first segment with another inode change time than when it was read; None if all have the same.

        Its owner or mode may have been set, or a hard link made. Its bytes may also be others, with the old modification time set back.

        Args:
            ctimes: ns, of the segments that are there now, by base offset.
        """
        for each in self.segments[:-1]:
            if each.offset in ctimes and ctimes[each.offset] != each.ctime_ns:
                return each.offset
        return None

    @property
    def due(self) -> tuple[StagedSnapshot, ...]:
        """The snapshots that must be installed."""
        return tuple(each for each in self.snapshots if each.is_due)

    @property
    def blocked_bytes(self) -> int:
        """Bytes of the first rolled segment whose snapshot was missing, and of every later one: none of them can be uploaded."""
        first = min((each.offset for each in self.snapshots if each.is_due), default=None)
        rolled = itertools.pairwise(self.segments)
        if first is None:
            return 0
        return sum(segment.size_bytes for segment, following in rolled if following.offset >= first)


class NotStaged(Line, frozen=True, kw_only=True):
    """A partition of which nothing could be staged.

    Attributes:
        path: of its directory.
        offsets: of the boundaries that were to be staged, ascending; empty if the partition could not be judged at all.
    """

    path: AbsolutePath
    offsets: tuple[Natural, ...]


class FaultySnapshot(Line, frozen=True, kw_only=True):
    """A snapshot in a log directory that is wrong, or cannot be correct. Nobody repairs it by an install.

    Attributes:
        path: of its partition directory.
        size_bytes, modified_ns: of the file, then.
        is_proven: it does not parse, or the replay proves it wrong; else it is suspect.
    """

    path: AbsolutePath
    offset: Natural
    size_bytes: Natural
    modified_ns: Int64
    is_proven: bool


class StagedPlan(msgspec.Struct, frozen=True):
    """All staged snapshots.

    Attributes:
        path: of the file.
        request: of the last run; each partition has its own.
        clock: expiry.
        staged_ms: when that was, ms since 1970.
        log_dirs: every log directory of the broker, as far as it was known.
        partitions: those for which snapshots are staged.
        not_staged: those for which the last run that looked at them staged nothing.
        faulty_snapshots: the existing ones that runs found to be wrong or suspect, by path and offset.
        sha256: of the file, 64 digits; None before it is saved.
    """

    path: str
    request: RebuildRequest
    clock: Clock
    staged_ms: int
    log_dirs: tuple[str, ...]
    partitions: tuple[StagedPartition, ...]
    not_staged: tuple[NotStaged, ...]
    faulty_snapshots: tuple[FaultySnapshot, ...] = ()
    sha256: str | None = None

    def require(self, sha256: str) -> None:
        """Makes sure that this is the plan that was approved.

        Raises:
            RefusedError: its file has another SHA-256.
        """
        if self.sha256 != sha256:
            message = (
                f"is not the approved plan: its SHA-256 is {self.sha256}, --require-plan has {sha256}. Nothing was installed. "
                "Check which `stage` wrote it, and approve it or stage again"
            )
            raise RefusedError(message, path=self.path)


class _StagedPlanHeader(Line, frozen=True, kw_only=True):
    schema: str
    request: dict[str, Any]
    requests: tuple[dict[str, Any], ...]
    as_of_ms: Natural
    expiration_ms: Positive
    staged_ms: Natural
    log_dirs: tuple[AbsolutePath, ...]
    not_staged: tuple[NotStaged, ...]
    faulty_snapshots: tuple[FaultySnapshot, ...] = ()


def save_staged_plan(plan: StagedPlan, owner: Ownership | None = None) -> None:
    """Writes the file, whole, over an older one.

    Args:
        plan: what it shows.
        owner: gets the file if root writes it; None for the process.

    Raises:
        RefusedError: it may not be written there (``check_place``).
        WriteFailedError: it cannot be written.
    """
    # Few runs stage many partitions: the header has each request once.
    numbers: dict[RebuildRequest, int] = {}
    for each in plan.partitions:
        numbers.setdefault(each.request, len(numbers))
    header = _StagedPlanHeader(
        schema=SCHEMA,
        request=msgspec.to_builtins(plan.request.document),
        requests=tuple(msgspec.to_builtins(each.document) for each in numbers),
        as_of_ms=plan.clock.as_of_ms,
        expiration_ms=plan.clock.expiration_ms,
        staged_ms=plan.staged_ms,
        log_dirs=plan.log_dirs,
        not_staged=plan.not_staged,
        faulty_snapshots=plan.faulty_snapshots,
    )
    lines = ({**msgspec.to_builtins(each), "request": numbers[each.request]} for each in plan.partitions)
    write_text_file(plan.path, plan_lines(header, lines), owner, replaces=STAGED_PLAN)


def load_staged_plan(path: str) -> StagedPlan:
    """Loads what ``stage`` has left. Looks at no file but this one.

    Raises:
        UsageError: no such file, or no staged plan: cut off, changed, of another version; the line is named.
        ReadFailedError: it cannot be read.
    """
    with open_named_file(path) as file:
        lines = PlanLines(path, file, "staged plan")
        header = lines.header(_StagedPlanHeader, SCHEMA)
        count = lines.check_whole()
        request = lines.request(header.request)
        requests = [lines.request(each) for each in header.requests]
        partitions = tuple(_partitions(lines, count, requests))
    clock = Clock(header.as_of_ms, header.expiration_ms)
    return StagedPlan(
        path=path,
        request=request,
        clock=clock,
        staged_ms=header.staged_ms,
        log_dirs=header.log_dirs,
        partitions=partitions,
        not_staged=header.not_staged,
        faulty_snapshots=header.faulty_snapshots,
        sha256=lines.sha256,
    )


def _partitions(lines: PlanLines, count: int, requests: Sequence[RebuildRequest]) -> Iterator[StagedPartition]:
    requests_by_number = dict(enumerate(requests))
    for number, line in lines.partitions(count):
        request = line.get("request")
        if not isinstance(request, int) or request not in requests_by_number:
            raise UsageError(f"is damaged: line {number}: expected the number of a request of the first line", path=lines.path)
        yield lines.part(StagedPartition, {**line, "request": requests_by_number[request]}, number)
