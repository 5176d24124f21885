"""What was staged, as a file: each snapshot with its bytes, and the identity of every segment that it rests on.

Its form is that of ``plan_lines`` (docs/json.md, docs/schema/staged-plan.schema.json).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from formats.limits import INT64_MAX
from formats.text_lines import shown
from snaprebuild.documents.json_values import is_nameable, whole
from snaprebuild.errors import UsageError
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.engine.partition_replay import Clock, ReplayFrom
from snaprebuild.snapshots.plan.plan_lines import PlanLines, plan_lines, request_of
from snaprebuild.snapshots.plan.plan_model import Request
from snaprebuild.storage.local.document_file import write_text_file
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.store import FileIdentity

__all__ = [
    "PLAN_NAME",
    "StagedEvidence",
    "StagedPartition",
    "StagedPlan",
    "StagedSnapshot",
    "load_staged_plan",
    "save_staged_plan",
]

SCHEMA = "snaprebuild.staged-plan/3"

PLAN_NAME = "plan.jsonl"
"""In the first of the directories that were asked for."""


@dataclass(frozen=True, slots=True)
class StagedSnapshot:
    """A snapshot that lies ready.

    Attributes:
        offset: the boundary.
        file: its bytes and time.
        inode: of the file.
        snapshot_class: its class.
        entries: count.
        is_due: it was missing then; else it is the state from which what closes later is replayed, and is installed if it is missing now.
        checked_ctime_ns: inode change time when its bytes were last compared with the SHA-256, after it had its name; None where nothing
            has compared them since they were staged.
    """

    offset: int
    file: Fingerprint
    inode: int
    snapshot_class: SnapshotClass
    entries: int
    is_due: bool
    checked_ctime_ns: int | None = None

    @property
    def row(self) -> list[object]:
        """As a plan has it."""
        made = self.file
        klass, ctime_ns = self.snapshot_class.value, self.checked_ctime_ns
        return [self.offset, made.size_bytes, made.mtime_ns, self.inode, made.sha256, klass, self.entries, self.is_due, ctime_ns]


@dataclass(frozen=True, slots=True)
class StagedEvidence:
    """How the snapshots of a partition were replayed, each partition for itself: several runs may stage into one directory.

    Attributes:
        check_crc: with checksums.
        replay_from: as in the request.
        clock: expiry; the class of what a replay window proves goes by it.
    """

    check_crc: bool
    replay_from: str
    clock: Clock

    @classmethod
    def of(cls, request: Request, clock: Clock) -> StagedEvidence:
        """Of a run that is to come."""
        return cls(request.check_crc, request.replay_from, clock)

    def speaks_for(self, wanted: StagedEvidence) -> bool:
        """Whether what was replayed so is what a run like ``wanted`` would give: as sure, and for a moment that is not earlier.

        What had expired then has expired later, too.
        """
        same = (self.check_crc, self.replay_from, self.clock.expiration_ms)
        return same == (wanted.check_crc, wanted.replay_from, wanted.clock.expiration_ms) and (
            self.clock.as_of_ms <= wanted.clock.as_of_ms
        )

    @property
    def as_json(self) -> dict[str, object]:
        """As a plan has it."""
        return {
            "check_crc": self.check_crc,
            "replay_from": self.replay_from,
            "as_of_ms": self.clock.as_of_ms,
            "expiration_ms": self.clock.expiration_ms,
        }


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """A partition for which snapshots lie ready.

    Attributes:
        path: of its directory.
        topic_partition: ``<topic>-<partition>``.
        topic_id: from ``partition.metadata``, 16 bytes in hexadecimal digits; None where there was none.
        target: directory of the staged files.
        log_start_offset: then.
        first_offset: where the replay began: base offset of a segment.
        segments: base offset and identity of each from there on, then, up to the one that begins where the last snapshot lies.
        snapshots: by offset, ascending.
        given_up: boundaries that were to be staged, and for which no replay gives a snapshot that may be installed.
        reasons: for the class of the last snapshot.
        request: what was asked for when they were staged; of several runs that went on from each other, what counts of all.
        evidence: how they were replayed.
    """

    path: str
    topic_partition: str
    topic_id: str | None
    target: str
    log_start_offset: int
    first_offset: int
    segments: tuple[tuple[int, FileIdentity], ...]
    snapshots: tuple[StagedSnapshot, ...]
    given_up: tuple[int, ...]
    reasons: tuple[str, ...]
    request: Request
    evidence: StagedEvidence

    def first_change(self, segments: Mapping[int, FileIdentity]) -> tuple[int, str] | None:
        """Where the segments that this rests on are others now: base offset, and what happened. None where they are what they were.

        Those below the first were deleted meanwhile, as retention does; what was replayed of them stays true. What lies below the replay
        is no matter, nor what the segment holds that begins at the last snapshot.

        Args:
            segments: of the partition now, by base offset; at least one.
        """
        was, last = dict(self.segments), self.snapshots[-1].offset
        first = max(min(segments), self.first_offset)
        for base in sorted(base for base in {*segments, *was} if first <= base <= last):
            if base not in segments:
                return base, "is not there any more"
            if base not in was:
                return base, "was not there"
            if base != last and segments[base] != was[base]:
                return base, "is another file"
        return None

    @property
    def due(self) -> tuple[StagedSnapshot, ...]:
        """Those that are to be installed."""
        return tuple(each for each in self.snapshots if each.is_due)

    @property
    def bytes_blocked(self) -> int:
        """Of the first closed segment whose snapshot was missing and of every later one: they wait for it in remote storage."""
        first = min((each.offset for each in self.snapshots if each.is_due), default=None)
        closed = itertools.pairwise(self.segments)
        return 0 if first is None else sum(at.size_bytes for (_, at), (following, _) in closed if following >= first)


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """What was staged.

    Attributes:
        path: of the file.
        request: what was asked for by the last run; each partition has its own.
        clock: expiry.
        staged_ms: when that was, ms since 1970.
        log_dirs: every log directory of the broker, as far as it was known.
        partitions: those for which something lies ready.
    """

    path: str
    request: Request
    clock: Clock
    staged_ms: int
    log_dirs: tuple[str, ...]
    partitions: tuple[StagedPartition, ...]


def save_staged_plan(plan: StagedPlan) -> None:
    """Writes the file, whole, over an older one.

    Raises:
        RefusedError: it may not be written there (``check_place``).
        WriteFailedError: it cannot be written.
    """
    # Few runs stage many partitions: each request stands once, and by the same number wherever it counts.
    numbers: dict[Request, int] = {}
    rows = [(each, numbers.setdefault(each.request, len(numbers))) for each in plan.partitions]
    header = {
        "schema": SCHEMA,
        "request": plan.request.as_json(),
        "requests": [each.as_json() for each in numbers],
        "as_of_ms": plan.clock.as_of_ms,
        "expiration_ms": plan.clock.expiration_ms,
        "staged_ms": plan.staged_ms,
        "log_dirs": plan.log_dirs,
    }
    write_text_file(plan.path, plan_lines(header, (_line_of(each, number) for each, number in rows)))


def _line_of(partition: StagedPartition, request: int) -> dict[str, Any]:
    return {
        "path": partition.path,
        "topic_partition": partition.topic_partition,
        "topic_id": partition.topic_id,
        "target": partition.target,
        "log_start_offset": partition.log_start_offset,
        "first_offset": partition.first_offset,
        "segments": [[base, *identity.row] for base, identity in partition.segments],
        "snapshots": [each.row for each in partition.snapshots],
        "given_up": partition.given_up,
        "reasons": partition.reasons,
        "request": request,
        "evidence": partition.evidence.as_json,
    }


def load_staged_plan(path: str) -> StagedPlan:
    """Loads what ``stage`` has left. Looks at no file but this one.

    Raises:
        UsageError: no such file, or no staged plan: cut off, changed, of another version; the line is named.
        ReadFailedError: it cannot be read.
    """
    with open_named_file(path) as file:
        lines = PlanLines(path, file, "staged plan")
        header = lines.header(SCHEMA, "request", "requests", "as_of_ms", "expiration_ms", "staged_ms", "log_dirs")
        count = lines.check_whole()
        try:
            request, requests = request_of(header["request"]), tuple(map(request_of, header["requests"]))
            clock = Clock(whole(header["as_of_ms"]), whole(header["expiration_ms"], least=1))
            log_dirs = tuple(_path(each) for each in header["log_dirs"])
            staged_ms = whole(header["staged_ms"])
        except (ValueError, TypeError) as error:
            raise _fault(lines, 1, "a header of this version", error) from error
        partitions = []
        for number, line in lines.partitions(count):
            try:
                partitions.append(_partition_of(line, requests))
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise _fault(lines, number, "a partition", error) from error
    return StagedPlan(path, request, clock, staged_ms, log_dirs, tuple(partitions))


def _fault(lines: PlanLines, number: int, expected: str, error: Exception) -> UsageError:
    return lines.fault(number, expected, shown(f"{type(error).__name__}: {error}"))


def _partition_of(line: dict[str, Any], requests: tuple[Request, ...]) -> StagedPartition:
    topic_id = line["topic_id"]
    if topic_id is not None and re.fullmatch("[0-9a-f]{32}", topic_id) is None:
        raise ValueError(f"topic_id {topic_id}")
    segments = tuple((base, _identity_of(row)) for base, row in _ascending(line["segments"], 4))
    snapshots = tuple(_snapshot_of(offset, row) for offset, row in _ascending(line["snapshots"], 9))
    if len(segments) < 2 or not snapshots or segments[-1][0] != snapshots[-1].offset:
        raise ValueError("the last segment does not begin at the last snapshot")
    return StagedPartition(
        path=_path(line["path"]),
        topic_partition=_text(line["topic_partition"]),
        topic_id=topic_id,
        target=_path(line["target"]),
        log_start_offset=whole(line["log_start_offset"]),
        first_offset=whole(line["first_offset"]),
        segments=segments,
        snapshots=snapshots,
        given_up=tuple(map(whole, line["given_up"])),
        reasons=tuple(map(_text, line["reasons"])),
        request=requests[whole(line["request"])],
        evidence=_evidence_of(line["evidence"]),
    )


def _evidence_of(value: dict[str, Any]) -> StagedEvidence:
    check_crc, replay_from = value["check_crc"], ReplayFrom(value["replay_from"]).value
    if type(check_crc) is not bool:
        raise TypeError(f"check_crc {check_crc!r}")
    return StagedEvidence(check_crc, replay_from, Clock(whole(value["as_of_ms"]), whole(value["expiration_ms"], least=1)))


def _identity_of(row: list[Any]) -> FileIdentity:
    size_bytes, mtime_ns, inode = row
    return FileIdentity(whole(size_bytes), whole(mtime_ns, least=-INT64_MAX), whole(inode))


def _ascending(rows: Any, count: int) -> Iterator[tuple[int, list[Any]]]:
    previous = -1
    for row in rows:
        if len(row) != count or whole(row[0]) <= previous:
            raise ValueError(f"{row[:1]} does not ascend, or is no row of {count}")
        previous = row[0]
        yield previous, row[1:]


def _snapshot_of(offset: int, row: list[Any]) -> StagedSnapshot:
    size, mtime_ns, inode, sha256, klass, entries, is_due, ctime = row
    if type(is_due) is not bool or re.fullmatch("[0-9a-f]{64}", sha256) is None:
        raise ValueError(f"snapshot {offset}")
    made = Fingerprint(sha256, whole(size), whole(mtime_ns, least=-INT64_MAX))
    checked_ctime_ns = None if ctime is None else whole(ctime, least=-INT64_MAX)
    return StagedSnapshot(offset, made, whole(inode), SnapshotClass(klass), whole(entries), is_due, checked_ctime_ns)


def _path(value: object) -> str:
    text = _text(value)
    if not text.startswith("/") or not is_nameable(text):
        raise ValueError(f"path {text!r}")
    return text


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value
