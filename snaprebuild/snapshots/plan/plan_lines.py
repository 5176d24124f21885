"""Plans as files of lines: a header with the request, a line for each partition, and a closing line that shows that nothing is missing.

One JSON object a line. The closing line has the count of the others and the SHA-256 of everything above it, so that a file that was cut
off or changed is no plan. Written and read a line at a time: a broker has millions of segments, and a partition some thousands.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any, BinaryIO, TypeVar

import msgspec

from formats.text_lines import shown
from snaprebuild.documents.file_facts import is_nameable
from snaprebuild.documents.typed import Natural, Part, part_of
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.snapshots.plan.plan_model import Request

__all__ = ["Line", "PlanLines", "plan_lines"]

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
    # With blanks, unlike the lines below it: ``check_place`` knows a document of ours by its beginning.
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

    def header(self, kind: type[LineKind], schema: str) -> LineKind:
        """The first line.

        Raises:
            UsageError: it is none, or of another version.
        """
        number, line = next(self._lines(), (1, b""))
        expected = f'the header of a plan, {{"schema": "{schema}", ...}}'
        header = self._object(number, line, expected)
        if header.get("schema") != schema:
            raise self._fault(number, expected, _shown(line))
        return self.part(kind, header, number)

    def check_whole(self) -> int:
        """Makes sure that nothing is missing and nothing was changed. Returns the count of partitions."""
        digest, last, number = hashlib.sha256(), b"", 0
        for number, line in self._lines():  # noqa: B007
            digest.update(last)
            last = line
        expected = 'the closing line with "partitions" and "sha256" (the file was cut off)'
        found = self._object(number, last, expected)
        if "sha256" not in found:
            raise self._fault(number, expected, _shown(last))
        closing = self.part(_Closing, found, number)
        if closing.sha256 != digest.hexdigest():
            expected = f"the SHA-256 of the lines above, {digest.hexdigest()} (the file was changed)"
            raise self._fault(number, expected, shown(closing.sha256))
        if closing.partitions != number - 2:
            raise self._fault(number, f"{number - 2} partitions", str(closing.partitions))
        return number - 2

    def partitions(self, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The lines between the first and the last, as plain values."""
        for number, line in self._lines():
            if 1 < number < count + 2:
                yield number, self._object(number, line, "a partition")

    def part(self, kind: type[LineKind], found: Any, number: int) -> LineKind:
        """A line as a value.

        Raises:
            UsageError: it has another form.
        """
        return part_of(kind, found, path=self.path, what=f"line {number}")

    def request(self, saved: dict[str, Any]) -> Request:
        """A request of the first line.

        Raises:
            UsageError: it is none, or has other members than those of this version.
        """
        members = {name: value for name, value in saved.items() if (name, value) != ("s3", None)}
        request = part_of(Request, members, path=self.path, what="line 1: request")
        names = (value for value in asdict(request.s3).values() if isinstance(value, str))
        if json.loads(json.dumps(request.as_json())) != saved or not all(map(is_nameable, names)):
            raise UsageError("is damaged: line 1: expected a request with the members of this version", path=self.path)
        return replace(request, s3=replace(request.s3, run=secrets.token_hex(8))) if "s3" in members else request

    def _fault(self, number: int, expected: str, found: str) -> UsageError:
        return UsageError(f"is no {self._what}: line {number}: expected {expected}, found {found}", path=self.path)

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
            raise ReadFailedError(f"cannot be read: {error.strerror}", path=self.path, errno=error.errno) from error

    def _object(self, number: int, line: bytes, expected: str) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._fault(number, expected, _shown(line))
        return found


def _shown(line: bytes) -> str:
    return shown(line[:200].decode(errors="replace"))
