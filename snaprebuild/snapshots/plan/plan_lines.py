"""Plans as files of lines: a header with the request, a line for each partition, and what proves that nothing is missing.

One JSON object a line. The closing line has the count of the others and the SHA-256 of all that stands above it, so that a file that was
cut off or changed is no plan. Written and read a line at a time: a broker has millions of segments, and a partition some thousands.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, get_args, get_origin, get_type_hints

from formats.text_lines import shown
from snaprebuild.documents.json_values import is_nameable
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.plan.plan_model import Request
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["PlanLines", "plan_lines", "request_of"]

LINE_BYTES_MAX = 256 << 20
"""A partition directory holds at most 2,000,000 files (``partition_dir.ENTRIES_MAX``), each of which takes some 100 bytes of its line."""


def plan_lines(header: dict[str, Any], partitions: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The text of a plan, line by line.

    Args:
        header: its ``schema`` comes first.
        partitions: a value for each.
    """
    digest = hashlib.sha256()
    # With blanks, unlike the lines below it: ``check_place`` knows a document of ours by its beginning.
    line = json.dumps(header) + "\n"
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
        """Takes where it is read from.

        Args:
            path: of the file.
            file: open for reading.
            what: it should be.
        """
        self.path = path
        self._file = file
        self._what = what

    def fault(self, number: int, expected: str, found: str) -> UsageError:
        """The error of a line that is none of a plan."""
        return UsageError(f"is no {self._what}: line {number}: expected {expected}, found {found}", path=self.path)

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

    def header(self, schema: str, *keys: str) -> dict[str, Any]:
        """The first line, with a schema and these keys."""
        number, line = next(self.lines(), (1, b""))
        expected = f'the header of a plan, {{"schema": "{schema}", ...}}'
        header = self._object(number, line, expected)
        if header.get("schema") != schema or header.keys() != {"schema", *keys}:
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


def request_of(saved: Any) -> Request:
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
    return type(value) is kind and (type(value) is not str or is_nameable(value))
