"""Receipts of verbs that write one kind of thing, such as repaired copies or partition directories: JSON lines of steps.

The first line is a header. Each other line is a step, which is synced before what it announces is written. A killed run leaves half a line
at most, which readers skip.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from formats.text_lines import shown
from snaprebuild import __version__
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.published import Natural, Part, line_of
from snaprebuild.snapshots.receipts.receipt_lines import OTHER_VERSION_ADVICE
from snaprebuild.snapshots.receipts.receipt_places import register_receipt
from snaprebuild.snapshots.run import current_time_ms
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.storage.local.journal_file import JournalFile
from snaprebuild.storage.local.regular_file import open_named_file

__all__ = ["LastStep", "ReceiptForm", "ReceiptStep", "StepHeader", "StepReceipt"]


class StepHeader(Part, frozen=True, kw_only=True):
    """The first line.

    Attributes:
        snaprebuild: version of the program.
        began_ms: when the first step was announced, ms since 1970.
    """

    schema: str
    snaprebuild: str = ""
    began_ms: Natural = 0


class ReceiptStep(Part, frozen=True, tag_field="step"):
    """A line after the first one. The member ``step`` names its kind."""


class LastStep(ReceiptStep, frozen=True, tag="end"):
    """The last line of a run that was not killed."""

    ended_ms: Natural


Header = TypeVar("Header", bound=StepHeader)


class ReceiptForm(msgspec.Struct, Generic[Header], frozen=True, kw_only=True):
    """The format of the receipts of one verb.

    Attributes:
        verb: that writes them.
        kind: begin of the schema ids of all versions.
        version: that is written and read.
        header: type of the first line.
        steps: type of each other line, a union of ``ReceiptStep``.
        line_bytes_max: a longer line is an error.
    """

    verb: str
    kind: str
    version: int
    header: type[Header]
    steps: Any
    line_bytes_max: int

    @property
    def schema(self) -> str:
        """The schema id."""
        return f"{self.kind}{self.version}"

    def read(self, path: str) -> tuple[Header, list[Any]]:
        """Reads a receipt: its header and its steps.

        Raises:
            UsageError: no such file, or it is no receipt of this verb and version; the line is named.
            ReadFailedError: it cannot be read.
        """
        header: Header | None = None
        steps = []
        for number, line in enumerate(self._lines(path), start=1):
            try:
                value = json.loads(line)
                if header is None:
                    self._check_schema(value, path)
                    header = msgspec.convert(value, self.header)
                else:
                    steps.append(msgspec.convert(value, self.steps))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                what = f"line {number}: is not a line of a receipt of {self.verb}"
                if header is None:
                    what = f"is not a receipt of {self.verb}"
                raise UsageError(what, path=path) from None
        if header is None:
            raise UsageError(f"is empty, and not a receipt of {self.verb}", path=path)
        return header, steps

    def _check_schema(self, header: Any, path: str) -> None:
        """Makes sure that the first line is of this kind and version.

        Raises:
            ValueError: it is of another kind.
            UsageError: it is of another version.
        """
        schema = header.get("schema") if isinstance(header, dict) else None
        if schema == self.schema:
            return
        if not isinstance(schema, str) or not schema.startswith(self.kind):
            raise ValueError(f"expected {self.schema}")
        message = f"is of another version: expected {self.schema}, found {shown(schema)}; {OTHER_VERSION_ADVICE}"
        raise UsageError(message, path=path)

    def _lines(self, path: str) -> Iterator[bytes]:
        """Lines of a file, without half a line at its end, unless it is the only one."""
        with open_named_file(path) as file:
            try:
                is_first = True
                while line := file.readline(self.line_bytes_max):
                    if not is_first and not line.endswith(b"\n") and len(line) < self.line_bytes_max:
                        return
                    is_first = False
                    yield line
            except OSError as error:
                raise ReadFailedError.from_os_error(error, "cannot be read", path) from error


class StepReceipt:
    """The receipt of a run that writes. The file is created with its first step.

    Attributes:
        path: absolute.
    """

    def __init__(self, path: str, form: ReceiptForm[Header], **header: object) -> None:
        """Takes where it is created.

        Args:
            path: of the new file.
            form: of its lines.
            header: members of the first line next to those of ``StepHeader``.
        """
        self.path = os.path.abspath(path)
        self._form = form
        self._header = header
        self._journal: JournalFile | None = None

    @property
    def is_there(self) -> bool:
        """Whether anything was announced, so that it was created."""
        return self._journal is not None

    def check_place(self) -> None:
        """Makes sure, as far as possible before, that the file can be created.

        Raises:
            RefusedError, WriteFailedError: it cannot.
        """
        check_new_place(self.path)

    def append(self, step: ReceiptStep, *, sync: bool = True) -> None:
        """Adds a step, before what it announces is written.

        Args:
            step: of the form.
            sync: on the device when this returns; else the line may be lost.

        Raises:
            RefusedError, WriteFailedError: the file cannot be written, so that nothing may be.
        """
        if self._journal is None:
            form = self._form
            header = form.header(schema=form.schema, snaprebuild=__version__, began_ms=current_time_ms(), **self._header)
            self._journal = JournalFile(self.path, line_of(header))
            register_receipt(self.path)
        self._journal.append(line_of(step), sync=sync)

    def close(self) -> None:
        """Ends the file of a run that completed.

        Raises:
            WriteFailedError: it cannot be written.
        """
        if self._journal is not None:
            try:
                self._journal.append(line_of(LastStep(ended_ms=current_time_ms())))
            finally:
                self._journal.close()
