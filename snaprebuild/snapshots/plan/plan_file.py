"""Plans as files: lines of JSON, and the saved plan with the identity of every input, so that it is refused when the disk has changed.

The file has a header with the request, a line for each partition, and a closing line. The closing line has the count of the others and the
SHA-256 of everything above it, so that a file that was cut off or changed is no plan (docs/reference/json/plan.md). It is written and read
a line at a time: a broker has millions of segments, and a partition some thousands. A staged plan has the same form.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from formats.text_lines import shown
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.findings import pluralize
from snaprebuild.published import Natural, Part, Positive, part_of
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan, SourceGate
from snaprebuild.snapshots.plan.plan_request import RebuildRequest, SavedRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.plan.start_gate import StartJudge
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.file_facts import InputFile, Nameable, is_nameable
from snaprebuild.storage.local.document_file import write_text_file
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.store import S3Connection

__all__ = ["Line", "PlanLines", "load_plan", "plan_lines", "save_plan"]

SCHEMA = "snaprebuild.saved-plan/8"

LINE_BYTES_MAX = 512 << 20
"""A partition directory holds at most 2,000,000 files (``partition_dir.ENTRIES_MAX``), each of which takes some 130 bytes of its line."""


class Line(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a plan."""


LineKind = TypeVar("LineKind", bound=Line)


class _Closing(Line, frozen=True, kw_only=True):
    partitions: Natural
    sha256: str


def plan_lines(header: Line, partitions: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The text of a plan, line by line.

    Args:
        header: its ``schema`` comes first.
        partitions: plain values, one for each line.
    """
    digest = hashlib.sha256()
    line = json.dumps(msgspec.to_builtins(header)) + "\n"
    digest.update(line.encode())
    yield line
    count = 0
    for partition in partitions:
        count += 1
        line = json.dumps(partition, separators=(",", ":")) + "\n"
        digest.update(line.encode())
        yield line
    yield json.dumps({"partitions": count, "sha256": digest.hexdigest()}) + "\n"


class PlanLines:
    """The file of a plan, one line at a time; lines are numbered from 1."""

    def __init__(self, path: str, file: BinaryIO, what: str = "saved plan") -> None:
        """Reads nothing yet.

        Args:
            path: of the file.
            file: open for reading.
            what: it should be, for messages.
        """
        self.path = path
        self._file = file
        self._what = what
        self.sha256 = ""
        """SHA-256 of all bytes of the file, once it is known to be whole."""

    def header(self, kind: type[LineKind], schema: str) -> LineKind:
        """The first line.

        Raises:
            UsageError: it is none, or of another version.
        """
        number, line = next(self._lines(), (1, b""))
        expected = f'the header of a plan, {{"schema": "{schema}", ...}}'
        header = self._object(number, line, expected)
        found = header.get("schema")
        if found != schema:
            name, _, _ = schema.rpartition("/")
            if isinstance(found, str) and found.startswith(f"{name}/"):
                text = f"is of another version: line 1: expected {schema}, found {shown(found)}; make it again with this program"
                raise UsageError(text, path=self.path)
            raise self._fault(number, expected, _shown(line))
        return self.part(kind, header, number)

    def check_whole(self) -> int:
        """Makes sure that nothing is missing and nothing was changed. Returns the count of partitions."""
        digest = hashlib.sha256()
        last = b""
        number = 0
        for number, line in self._lines():  # noqa: B007
            digest.update(last)
            last = line
        expected = 'the closing line with "partitions" and "sha256" (the file was cut off)'
        closing_line = self._object(number, last, expected)
        if "sha256" not in closing_line:
            raise self._fault(number, expected, _shown(last))
        closing = self.part(_Closing, closing_line, number)
        if closing.sha256 != digest.hexdigest():
            expected = f"the SHA-256 of the lines above, {digest.hexdigest()} (the file was changed)"
            raise self._fault(number, expected, shown(closing.sha256))
        digest.update(last)
        self.sha256 = digest.hexdigest()
        if closing.partitions != number - 2:
            raise self._fault(number, pluralize(number - 2, "partition"), str(closing.partitions))
        return number - 2

    def partitions(self, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The lines between the first and the last, as plain values."""
        for number, line in self._lines():
            if 1 < number < count + 2:
                yield number, self._object(number, line, "a partition")

    def part(self, kind: type[LineKind], value: Any, number: int) -> LineKind:
        """A line as a value.

        Raises:
            UsageError: it has another form.
        """
        return part_of(kind, value, path=self.path, what=f"line {number}")

    def request(self, saved: dict[str, Any]) -> RebuildRequest:
        """A request of the first line.

        Raises:
            UsageError: it is none, or has other members than those of this version.
        """
        document = part_of(SavedRequest, saved, path=self.path, what="line 1: request")
        request = RebuildRequest.of(document)
        if document.s3 is None:
            names = []
        else:
            names = [each for each in dataclasses.astuple(document.s3) if isinstance(each, str)]
        if not _has_all_members(saved) or request.document != document or not all(map(is_nameable, names)):
            raise UsageError("is damaged: line 1: expected a request with the members of this version", path=self.path)
        return request

    def _fault(self, number: int, expected: str, found: str) -> UsageError:
        return UsageError(f"is not a {self._what}: line {number}: expected {expected}, found {found}", path=self.path)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        try:
            self._file.seek(0)
            while line := self._file.readline(LINE_BYTES_MAX):
                number += 1
                if not line.endswith(b"\n"):
                    expected = f"a whole line of at most {LINE_BYTES_MAX} bytes"
                    raise self._fault(number, expected, f"{len(line)} bytes without an end")
                yield number, line
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be read", self.path) from error

    def _object(self, number: int, line: bytes, expected: str) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self._fault(number, expected, _shown(line))
        return value


def _has_all_members(saved: dict[str, Any]) -> bool:
    """Whether a request has the members of this version, and no other ones."""
    s3 = saved.get("s3")
    is_whole = s3 is None or s3.keys() == {each.name for each in dataclasses.fields(S3Connection)}
    return is_whole and saved.keys() == set(SavedRequest.__struct_fields__)


def _shown(line: bytes) -> str:
    return shown(line[:200].decode(errors="replace"))


# ---------------------------------------------------------------------------------------------------------------------- a saved plan


class _PlanHeader(Line, frozen=True, kw_only=True):
    schema: str
    request: dict[str, Any]
    expiration_ms: Positive


class _PartitionLine(Line, frozen=True, kw_only=True):
    """Everything that must not change between planning and doing."""

    path: Nameable
    topic_partition: str
    target: str
    log_start_offset: Natural
    log_end_offset: Natural | None
    clean_shutdown: bool
    recovery_point: Natural
    replay_index: Natural
    boundaries: tuple[Natural, ...]
    not_planned: dict[str, list[Natural]]
    segments: tuple[InputFile, ...]
    snapshots: tuple[InputFile, ...]

    @classmethod
    def of(cls, plan: PartitionPlan) -> _PartitionLine:
        source = plan.source
        directory = plan.source.directory
        not_planned: dict[str, list[int]] = {}
        for offset, reason in plan.not_planned:
            not_planned.setdefault(reason.text, []).append(offset)
        return cls(
            path=directory.path,
            topic_partition=source.directory.topic_partition,
            target=plan.target,
            log_start_offset=source.log_start_offset,
            log_end_offset=plan.log_end_offset,
            clean_shutdown=source.log_dir.was_shut_down_cleanly,
            recovery_point=source.recovery_point,
            replay_index=plan.replay_index,
            boundaries=tuple(boundary.offset for boundary in plan.boundaries),
            not_planned=not_planned,
            segments=tuple(InputFile.at(segment.base_offset, segment.log.identity) for segment in directory.segments),
            snapshots=tuple(InputFile.at(offset, listed.identity) for offset, listed in directory.snapshots),
        )


def save_plan(plan: Plan, path: str) -> None:
    """Writes a plan with the identity of its inputs.

    Raises:
        RefusedError: it may not be written there (``check_place``).
        WriteFailedError: it cannot be written.
    """
    header = _PlanHeader(schema=SCHEMA, request=msgspec.to_builtins(plan.request.document), expiration_ms=plan.clock.expiration_ms)
    partitions = (msgspec.to_builtins(_PartitionLine.of(partition)) for partition in plan.partitions)
    write_text_file(path, plan_lines(header, partitions))


def load_plan(path: str, gate: SourceGate, judge_start: StartJudge | None = None, run: Run | None = None) -> Plan:
    """Loads a plan and makes it again from the disk as it is now, with the gate, ``judge_start`` and the run of ``make_plan``.

    Raises:
        UsageError: no such file, or no plan: cut off, changed, of another version; the line is named.
        ReadFailedError: it cannot be read.
        RefusedError: the disk has changed; the first difference is named.
    """
    with open_named_file(path) as file:
        saved = PlanLines(path, file)
        header = saved.header(_PlanHeader, SCHEMA)
        count = saved.check_whole()
        request = saved.request(header.request)
        plan = make_plan(replace(request, expiration_ms=header.expiration_ms), gate, run, judge_start=judge_start)
        _check_unchanged(plan, saved, count)
    return replace(plan, request=replace(plan.request, expiration_ms=request.expiration_ms))


class _Change(NamedTuple):
    """A partition that is another than its line in the plan.

    Attributes:
        path: of the partition.
        text: what changed.
        has_work: the plan has, or would have, a snapshot to write there.
    """

    path: str
    text: str
    has_work: bool


def _check_unchanged(plan: Plan, saved: PlanLines, count: int) -> None:
    """Compares each partition with its line.

    Raises:
        RefusedError: some are others, or came or went. One that has something to write is named.
    """
    present = {partition.source.directory.path: partition for partition in plan.partitions}
    changes: list[_Change] = []
    for number, line in saved.partitions(count):
        was = saved.part(_PartitionLine, line, number)
        partition = present.pop(was.path, None)
        if partition is None:
            changes.append(_Change(was.path, f"the partition of line {number} is gone", bool(was.boundaries)))
            continue
        now = _PartitionLine.of(partition)
        text = _difference(was, now)
        if text:
            changes.append(_Change(was.path, text, bool(was.boundaries or now.boundaries)))
    changes += [
        _Change(path, "this partition was created after the plan", bool(present[path].boundaries)) for path in sorted(present)
    ]
    if not changes:
        return
    named = next((each for each in changes if each.has_work), changes[0])
    needless = "" if named.has_work else "; none of them has anything to write"
    whole = pluralize(max(count, len(plan.partitions)), "partition")
    raise RefusedError(
        f"the plan is stale: {len(changes)} of {whole} changed, this one: {named.text}{needless}. Nothing was written. Make the plan"
        " again with `snaprebuild plan`",
        path=named.path,
    )


_WORDS = {
    "boundaries": "snapshots to write",
    "not_planned": "snapshots not to write",
    "replay_index": "number of the segment that replay begins with",
}
"""Fields of a line whose names mean nothing to a user, with the words for them."""


def _difference(was: _PartitionLine, now: _PartitionLine) -> str:
    """The first difference, in words; empty without one."""
    for name in now.__struct_fields__:
        if getattr(was, name) != getattr(now, name):
            return f"{_WORDS.get(name, name.replace('_', ' '))}: {_first_difference(getattr(was, name), getattr(now, name))}"
    return ""


def _first_difference(was: Any, now: Any) -> str:
    if isinstance(was, dict):
        key = next(key for key in (*was, *now) if was.get(key) != now.get(key))
        return f"{key}: {_first_difference(was.get(key, []), now.get(key, []))}"
    if isinstance(was, list | tuple):
        for old, new in zip(was, now, strict=False):
            if isinstance(old, InputFile) and old != new:
                return _file_difference(old, new)
            if old != new:
                return f"was {old}, is {new}"
        return f"had {pluralize(len(was), 'entry', 'entries')}, has {len(now)}"
    if isinstance(now, bool):
        return "no more" if was else "now"
    return f"was {was}, is {now}"


def _file_difference(was: InputFile, now: InputFile) -> str:
    """The change of a segment or a snapshot, in words."""
    if was.offset < now.offset:
        return f"the one at offset {was.offset} is gone"
    if was.offset > now.offset:
        return f"the one at offset {now.offset} is new"
    begin = f"the one at offset {was.offset}"
    if was.size_bytes != now.size_bytes:
        return f"{begin} had {was.size_bytes} bytes, and has {now.size_bytes}"
    if was.modified_ns != now.modified_ns:
        return f"{begin} was written at {_moment(was.modified_ns)}, and again at {_moment(now.modified_ns)}"
    return f"{begin} is another file of the same size and time"


def _moment(time_ns: int) -> str:
    """A moment in UTC with all its digits; nanoseconds where it has no date."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{nanoseconds:09d}Z"
