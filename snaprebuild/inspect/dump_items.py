"""What a dump consists of: a file, its items as columns, what is wanted of it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from formats.errors import FormatError
from formats.limits import INT64_MAX, INT64_MIN
from formats.log.batch_headers import Tail
from formats.partition.file_names import DumpedKind
from snaprebuild.findings import Finding, Severity, counted
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store import FileIdentity, OpenBytes, Store

__all__ = ["BATCH_FORMS", "ROWS_MAX", "Dump", "DumpRequest", "DumpedFinding", "ItemForm", "Items", "Words"]

ROWS_MAX = 16_384
"""Items that are handed out together, where they come from a file that is held as a whole."""


class ItemForm(Enum):
    """What an item is. ``docs/json.md`` describes the fields of each."""

    BATCH = "batch"
    LEGACY_BATCH = "legacy_batch"
    RECORD = "record"
    LEGACY_RECORD = "legacy_record"
    CONTROL_RECORD = "control_record"
    PRODUCER = "producer"
    OFFSET_INDEX_ENTRY = "offset_index_entry"
    TIME_INDEX_ENTRY = "time_index_entry"
    ABORTED_TRANSACTION = "aborted_transaction"
    LEADER_EPOCH = "leader_epoch"
    PARTITION_OFFSET = "partition_offset"
    PARTITION_METADATA = "partition_metadata"
    META_PROPERTIES = "meta_properties"
    CLEAN_SHUTDOWN = "clean_shutdown"
    QUORUM_STATE = "quorum_state"


BATCH_FORMS = (ItemForm.BATCH, ItemForm.LEGACY_BATCH)


@dataclass(frozen=True, slots=True)
class Words:
    """A column of few different words.

    Attributes:
        words: which there are.
        codes: the index of that of each row; whole numbers or booleans.
    """

    words: Sequence[str]
    codes: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Words:
        return Words(self.words, self.codes[rows])

    def word(self, row: int) -> str:
        """That of a row."""
        return self.words[int(self.codes[row])]


@dataclass(frozen=True, slots=True)
class Items:
    """Consecutive items of one form: some rows of columns, whose others may come in later ones, behind items of another form.

    Attributes:
        form: of all of them.
        columns: one list of plain values for each field, all of one length; of batches, which may be many, whole numbers as arrays and
            everything else as words.
        start: the first row.
        stop: the row behind the last; None for all.
    """

    form: ItemForm
    columns: dict[str, Any]
    start: int = 0
    stop: int | None = None

    @property
    def column_length(self) -> int:
        """Rows of the columns."""
        return len(next(iter(self.columns.values())))

    def __len__(self) -> int:
        return (self.column_length if self.stop is None else self.stop) - self.start


@dataclass(frozen=True, slots=True)
class DumpedFinding(Finding):
    """A finding with the place in the file.

    Attributes:
        position: in bytes from the start of the file, in lines from 1 for text files; None where it has none.
        expected: what the format asks for, as text, or None.
        found: what stands there.
    """

    position: int | None = None
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """What is wanted.

    Attributes:
        kind: what every file is; None for what its name or content says.
        deep: the records of every batch, too.
        payload: their keys, values and header values.
        offset_from: only items that reach this offset; ``offset_to``: only those that begin at or below it. Everything is checked.
        offset_to: see there.
    """

    kind: DumpedKind | None = None
    deep: bool = False
    payload: bool = False
    offset_from: int = INT64_MIN
    offset_to: int = INT64_MAX

    @property
    def takes_all(self) -> bool:
        """No range is asked for."""
        return (self.offset_from, self.offset_to) == (INT64_MIN, INT64_MAX)


@dataclass(slots=True)
class Dump:
    """One file: what it is, its items (iterate them once), and when they are through, the findings.

    Attributes:
        path: as it was given.
        kind: what the file is.
        told_by: ``option``, ``name`` or ``content``.
        offset: from the name, or None.
        epoch: from the name of a KRaft checkpoint, or None.
        size_bytes: when it was opened; of a log, once its items are read, when that began.
        store: that holds it; ``identity``: what it was when it was opened.
        items: the content.
        item_count: items that were handed out.
        tail: how the batches of a log end, or None.
        preallocated_bytes: zeros behind the last entry of an index; of a log behind the last batch.
        findings: what is wrong, once for each code, with the count.
    """

    path: str
    kind: DumpedKind
    told_by: str
    offset: int | None
    epoch: int | None
    size_bytes: int
    store: Store = LOCAL
    identity: FileIdentity | None = None
    items: Iterator[Items] = field(default_factory=lambda: iter(()))
    item_count: int = 0
    tail: Tail | None = None
    preallocated_bytes: int | None = None
    findings: list[Finding] = field(default_factory=list)
    _told: dict[str, tuple[int, int]] = field(default_factory=dict)

    def opened(self) -> OpenBytes:
        """The file, to be read once more; an object must be the one that it was.

        Raises:
            ReadFailedError: it cannot be opened.
        """
        return self.store.open_bytes(self.path, self.identity, None, True)

    def tell(self, code: str, severity: Severity, error: FormatError, offset: int | None = None, *, count: int = 1) -> None:
        """Adds a finding; of a second one with this code only the count is kept."""
        if code in self._told:
            index, before = self._told[code]
            self._told[code] = index, before + count
            return
        self._told[code] = len(self.findings), count
        error.in_file(self.path)
        expected, found = (None if value is None else str(value) for value in (error.expected, error.found))
        self.findings.append(
            DumpedFinding(code, severity, self.path, error.message, offset, position=error.position, expected=expected, found=found)
        )

    def count_findings(self) -> None:
        """Adds to each finding how many more there were."""
        for index, count in self._told.values():
            first = self.findings[index]
            if count > 1:
                message = f"{first.message}; and {counted(count - 1, 'more', 'more')} of this kind behind it"
                self.findings[index] = replace(first, message=message)
