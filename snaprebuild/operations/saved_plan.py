"""A plan as a file: what was asked for, and the identity of every input, so that it is refused when the disk has moved on.

One JSON object a line (docs/json.md): a header with the request, a line for each partition, and a closing line with the count of those and
the SHA-256 of all that stands above it, so that a file that was cut off or changed is no plan. It is written and read a line at a time:
a broker has millions of segments, and a partition some thousands.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, get_args, get_origin, get_type_hints

from formats.text_lines import shown
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.operations.plan import make_plan
from snaprebuild.operations.planned import PartitionPlan, Plan, Request
from snaprebuild.operations.replay_partition import ReplayFrom
from snaprebuild.storage.regular_file import open_named_file
from snaprebuild.storage.small_file import write_text_file
from snaprebuild.storage.store import USUAL_S3, FileIdentity, S3Settings

__all__ = ["load_plan", "save_plan"]

SCHEMA = "snaprebuild.saved-plan/4"

LINE_BYTES_MAX = 256 << 20
"""A partition directory holds at most 2,000,000 files (``partition_dir.ENTRIES_MAX``), each of which takes some 100 bytes of its line."""


def save_plan(plan: Plan, path: str) -> None:
    """Writes a plan with the identity of its inputs.

    Raises:
        RefusedError: it may not be written there (``check_place``).
        WriteFailedError: it cannot be written.
    """
    write_text_file(path, _lines_of(plan))


def _lines_of(plan: Plan) -> Iterator[str]:
    digest = hashlib.sha256()
    # With blanks, unlike the lines below it: ``check_place`` knows a document of ours by its beginning.
    line = json.dumps({"schema": SCHEMA, "request": plan.request.as_json(), "expiration_ms": plan.clock.expiration_ms}) + "\n"
    digest.update(line.encode())
    yield line
    for partition in plan.partitions:
        line = json.dumps(_fingerprint(partition), separators=(",", ":")) + "\n"
        digest.update(line.encode())
        yield line
    yield json.dumps({"partitions": len(plan.partitions), "sha256": digest.hexdigest()}) + "\n"


def _fingerprint(plan: PartitionPlan) -> dict[str, Any]:
    """Everything that must not change between planning and doing."""
    directory = plan.source.directory
    left_out: dict[str, list[int]] = {}
    for offset, reason in plan.left_out:
        left_out.setdefault(reason, []).append(offset)
    return {
        "path": directory.path,
        "target": plan.target,
        "log_start_offset": plan.source.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "clean_shutdown": plan.source.log_dir.was_shut_down_cleanly,
        "recovery_point": plan.source.recovery_point,
        "replay_index": plan.replay_index,
        "boundaries": [boundary.offset for boundary in plan.boundaries],
        "left_out": left_out,
        "segments": [_row(segment.base_offset, segment.log.identity) for segment in directory.segments],
        "snapshots": [_row(offset, listed.identity) for offset, listed in directory.snapshots],
    }


_ROW = "[offset, bytes, time in ns, inode or ETag]"


def _row(offset: int, identity: FileIdentity) -> list[int | str]:
    return [offset, *identity.row]


def load_plan(path: str) -> Plan:
    """Loads a plan and makes it again from the disk as it is now.

    Raises:
        UsageError: no such file, or no plan: cut off, changed, of another version; the line is named.
        ReadFailedError: it cannot be read.
        RefusedError: the disk has moved on; the first difference is named.
    """
    with open_named_file(path) as file:
        saved = _SavedPlan(path, file)
        header = saved.header()
        count = saved.check_whole()
        try:
            request = _request_of(header["request"])
            resolved = _request_of({**header["request"], "expiration_ms": header["expiration_ms"]})
        except (ValueError, TypeError) as error:
            raise saved.fault(1, "a request of this version", shown(str(error))) from error
        plan = make_plan(resolved)
        _check_unmoved(plan, saved, count)
    return replace(plan, request=replace(plan.request, expiration_ms=request.expiration_ms))


class _SavedPlan:
    """The file of a plan, one line at a time; lines are numbered from 1."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self._file = file

    def fault(self, number: int, expected: str, found: str) -> UsageError:
        """The error of a line that is none of a plan."""
        return UsageError(f"is no saved plan: line {number}: expected {expected}, found {found}", path=self.path)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line from the first on, and its number."""
        number = 0
        try:
            self._file.seek(0)
            while line := self._file.readline(LINE_BYTES_MAX):
                number += 1
                if not line.endswith(b"\n"):
                    raise self.fault(number, f"a whole line of at most {LINE_BYTES_MAX} bytes", f"{len(line)} bytes without an end")
                yield number, line
        except OSError as error:
            raise ReadFailedError(f"cannot be read: {error.strerror}", path=self.path, errno=error.errno) from error

    def header(self) -> dict[str, Any]:
        """The first line."""
        number, line = next(self.lines(), (1, b""))
        expected = f'the header of a plan, {{"schema": "{SCHEMA}", ...}}'
        header = self._object(number, line, expected)
        if header.get("schema") != SCHEMA or header.keys() != {"schema", "request", "expiration_ms"}:
            raise self.fault(number, expected, _shown(line))
        return header

    def check_whole(self) -> int:
        """Makes sure that nothing is missing and nothing was changed. Returns the count of partitions."""
        digest, last, number = hashlib.sha256(), b"", 0
        for number, line in self.lines():  # noqa: B007
            digest.update(last)
            last = line
        expected = 'the closing line with "partitions" and "sha256" (the file was cut off)'
        closing = self._object(number, last, expected)
        if closing.keys() != {"partitions", "sha256"}:
            raise self.fault(number, expected, _shown(last))
        if closing["sha256"] != digest.hexdigest():
            expected = f"the SHA-256 of the lines above, {digest.hexdigest()} (the file was changed)"
            raise self.fault(number, expected, shown(str(closing["sha256"])))
        if closing["partitions"] != number - 2:
            raise self.fault(number, f"{number - 2} partitions", shown(str(closing["partitions"])))
        return number - 2

    def partitions(self, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The lines between the first and the last."""
        for number, line in self.lines():
            if 1 < number < count + 2:
                yield number, self._object(number, line, "a partition")

    def _object(self, number: int, line: bytes, expected: str) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self.fault(number, expected, _shown(line))
        return found


def _shown(line: bytes) -> str:
    return shown(line[:200].decode(errors="replace"))


def _check_unmoved(plan: Plan, saved: _SavedPlan, count: int) -> None:
    """Holds each partition as it is now against its line.

    Raises:
        RefusedError: it is another, or came or went.
    """
    present = {partition.source.directory.path: partition for partition in plan.partitions}
    for number, was in saved.partitions(count):
        path = was.get("path")
        partition = present.pop(path, None) if isinstance(path, str) else None
        if partition is None:
            raise RefusedError(f"the plan is stale: the partition of its line {number} is gone", path=str(path))
        now = _fingerprint(partition)
        if was.keys() != now.keys():
            raise saved.fault(number, f"the fields {', '.join(now)}", shown(", ".join(was)))
        for key in now:
            if was[key] != now[key]:
                what = f"{key} {_ROW}" if key in ("segments", "snapshots") else key
                raise RefusedError(f"the plan is stale: {what}: {_first_difference(was[key], now[key])}", path=path)
    if present:
        raise RefusedError("the plan is stale: this partition came since it was made", path=min(present))


def _request_of(saved: Any) -> Request:
    """A request from its JSON form. The closing line tells that nothing was lost, not who wrote it.

    Raises:
        TypeError, ValueError: an option that is none, or a value that is not of its kind.
    """
    if not isinstance(saved, dict):
        raise TypeError("no object")
    s3 = saved.get("s3")
    settings = USUAL_S3 if s3 is None else S3Settings(**_fields_of(S3Settings, s3, without="run"), run=secrets.token_hex(8))
    request = Request(**_fields_of(Request, {**saved, "s3": settings} if "s3" in saved else saved))
    if request.boundaries not in ("missing", "all"):
        raise ValueError(f"boundaries: {request.boundaries!r}")
    ReplayFrom(request.replay_from)
    return request


def _fields_of(kind: type, saved: Any, without: str = "") -> dict[str, Any]:
    kinds = {key: each for key, each in get_type_hints(kind).items() if key != without}
    if not isinstance(saved, dict) or saved.keys() != kinds.keys():
        raise TypeError(f"other fields than {', '.join(kinds)}")
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in saved.items()}
    for key, value in fields.items():
        if not _is_of(value, kinds[key]):
            raise TypeError(f"{key}: {value!r}")
    return fields


def _is_of(value: object, kind: Any) -> bool:
    if get_origin(kind) is tuple:
        return type(value) is tuple and all(_is_of(each, get_args(kind)[0]) for each in value)
    if get_args(kind):
        return any(_is_of(value, each) for each in get_args(kind))
    if type(value) is int:
        return kind is int and 0 <= value < 2**63
    return type(value) is kind and (type(value) is not str or "\0" not in value)


def _first_difference(was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        key = next(key for key in (*was, *now) if was.get(key) != now.get(key))
        return f"{key}: {_first_difference(was.get(key, []), now.get(key, []))}"
    if isinstance(was, list) and isinstance(now, list):
        for old, new in zip(was, now, strict=False):
            if old != new:
                return f"was {old}, is {new}"
        return f"had {len(was)} entries, has {len(now)}"
    return f"was {was}, is {now}"
