"""The parts of a dump: a file, its items as columns, the request, and the findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.limits import INT64_MAX, INT64_MIN
from formats.log.batch_headers import Tail
from formats.partition.file_names import DumpedKind
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.inspect.decoder_names import Decoder, MinorRelease
from snaprebuild.inspect.record_decoders import RecordDecoder
from snaprebuild.storage.store import FileIdentity, OpenBytes
from snaprebuild.storage.store_path import StorePath

__all__ = ["BATCH_FORMS", "ROWS_MAX", "Dump", "DumpRequest", "DumpedFinding", "ItemForm", "Items", "Words"]

ROWS_MAX = 16_384
"""Items that are yielded together, if their file is in memory as a whole."""


class ItemForm(Enum):
    """The kind of an item. The JSON reference describes the fields of each."""

    BATCH = "batch"
    LEGACY_BATCH = "legacy_batch"
    RECORD = "record"
    SIZED_RECORD = "sized_record"
    """A record without headers, of which only sizes are shown; a ``record`` for the reader."""
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
    """A column with few different words.

    Attributes:
        words: the different words.
        codes: index of the word of each row; integers or booleans.
    """

    words: Sequence[str]
    codes: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Words:
        return Words(self.words, self.codes[rows])

    def word(self, row: int) -> str:
        """The word of a row."""
        return self.words[int(self.codes[row])]


@dataclass(frozen=True, slots=True)
class Items:
    """Consecutive items of one form: some rows of columns. Their other rows may follow after items of another form.

    Attributes:
        columns: one list of plain values for each field, all of one length; for batches and sized records integers as arrays and
            everything else as words.
        start: the first row.
        stop: the row after the last; None for all.
    """

    form: ItemForm
    columns: dict[str, Any]
    start: int = 0
    stop: int | None = None

    @property
    def column_length(self) -> int:
        """Count of rows of the columns."""
        return len(next(iter(self.columns.values())))

    def __len__(self) -> int:
        return (self.column_length if self.stop is None else self.stop) - self.start


class DumpedFinding(Finding, frozen=True):
    """A finding with its position in the file.

    Attributes:
        position: in bytes from the start of the file, in lines from 1 for text files; None if it has none.
        expected: what the format requires, as text, or None.
        found: what is there.
    """

    position: int | None = None
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """The items to dump. All of a file is checked, whatever is shown.

    Attributes:
        kind: of every file; None to use its name or content.
        deep: also the records of every batch.
        payload: also their keys, values and header values.
        decoder: how records of Kafka's own topics are decoded; None for not at all.
        release: whose kafka-dump-log decoded records look like; None for the newest.
        offset_from: only items that reach this offset.
        offset_to: only items that begin at or below this offset.
    """

    kind: DumpedKind | None = None
    deep: bool = False
    payload: bool = False
    decoder: Decoder | None = None
    release: MinorRelease | None = None
    offset_from: int = INT64_MIN
    offset_to: int = INT64_MAX

    @property
    def takes_all(self) -> bool:
        """Whether no range of offsets is given."""
        return (self.offset_from, self.offset_to) == (INT64_MIN, INT64_MAX)


@dataclass(slots=True)
class Dump:
    """One file, its items (iterate them once), and after the last item its findings.

    Attributes:
        file: that is dumped.
        kind_from: where the kind was taken from: ``option``, ``name`` or ``content``.
        offset: from the name, or None.
        epoch: from the name of a KRaft checkpoint, or None.
        size_bytes: when the file was opened; for a log, when its items were read.
        identity: of the file when it was opened.
        decoder: of the records of a log; None if they are not decoded.
        item_count: items that were yielded.
        tail: how the batches of a log end, or None.
        preallocated_bytes: zeros after the last entry of an index, or after the last batch of a log.
        findings: one for each code, with a count.
    """

    file: StorePath
    kind: DumpedKind
    kind_from: str
    offset: int | None
    epoch: int | None
    size_bytes: int
    identity: FileIdentity | None = None
    decoder: RecordDecoder | None = None
    items: Iterator[Items] = field(default_factory=lambda: iter(()))
    item_count: int = 0
    tail: Tail | None = None
    preallocated_bytes: int | None = None
    findings: list[Finding] = field(default_factory=list)
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.file.path

    def opened(self) -> OpenBytes:
        """Opens the file once more; an object must be the one that was opened first.

        Raises:
            ReadFailedError: it cannot be opened.
        """
        return self.file.open(self.identity, may_grow=True)

    def add_finding(self, code: str, severity: Severity, error: FormatError, offset: int | None = None, *, count: int = 1) -> None:
        """Adds a finding; of a second one with this code only the count is kept."""
        index, before = self._counts.get(code, (len(self.findings), 0))
        self._counts[code] = index, before + count
        if not before:
            error.in_file(self.path)
            expected, found = (None if value is None else str(value) for value in (error.expected, error.found))
            self.findings.append(
                DumpedFinding(
                    code, severity, self.path, error.message, offset, position=error.position, expected=expected, found=found
                )
            )

    def count_findings(self) -> None:
        """Adds to each finding how many more there were."""
        for index, count in self._counts.values():
            first = self.findings[index]
            if count > 1:
                message = f"{first.message}; and {pluralize(count - 1, 'more', 'more')} of this kind after it"
                self.findings[index] = replace(first, message=message)
