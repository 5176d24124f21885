"""One pass over the headers of a log: how its transactions ended, where the stable part ends, and the first records after given times.

Headers of rolled segments are kept for the read that follows, as far as they are few. The active segment may be cut and written again
between the two: its headers are read once more, next to its records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from formats import limits
from formats.errors import FormatError
from formats.log.batch_headers import HEADER_COLUMNS, HeaderBlock
from formats.log.record_groups import bad_checksum
from formats.partition.transaction_index import read_transaction_index
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.log_pieces import MAGIC_V2, BatchFault, LogPiece, blocks_of
from snaprebuild.consume.transaction_outcomes import OUTCOME_COLUMNS, OutcomeReplay, TransactionOutcomes
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.snapshots.source.log_records import batch_records
from snaprebuild.storage.store import OpenBytes
from snaprebuild.storage.store_path import ReadPath

__all__ = ["LogSurvey", "good_parts", "survey_log"]


SURVEY_COLUMNS = (*OUTCOME_COLUMNS, "magic")

PASSED_MAX = 1024
"""Faults of a log that are kept."""

KEPT_BYTES = 16 << 20
"""Headers of a log that are kept: of some 200,000 batches."""

BLOCK_OBJECT_BYTES = 4 << 10
"""Memory of a block without its columns, which counts where a log has many small segments: its arrays are Python objects."""


@dataclass(slots=True)
class LogSurvey:
    """The facts that the headers of a log show.

    Attributes:
        outcomes: of the transactions, up to the end of the survey.
        times: for each time that was searched the offset of the first record that is not older, or None.
        damage: where the survey ended early; None if it did not.
        damage_offset: the offsets below it were surveyed, if it ended early.
        passed: faults that the survey went past; of very many the last.
        missing: the first and the next offset of the last part of the log that is in no batch; None without one, or if compaction may
            have removed it.
        findings: about transaction indexes, and about batches in which a time was searched.
        headers: of whole rolled segments without a fault, by path.
    """

    outcomes: TransactionOutcomes
    times: dict[int, int | None]
    damage: BatchFault | None = None
    damage_offset: int = 0
    passed: list[BatchFault] = field(default_factory=list)
    missing: tuple[int, int] | None = None
    findings: list[Finding] = field(default_factory=list)
    headers: dict[str, list[HeaderBlock]] = field(default_factory=dict)


def survey_log(
    log: ChosenLog, end: int, *, times: Iterable[int] = (), fails_from: int | None = None, with_outcomes: bool = True
) -> LogSurvey:
    """Reads the headers of a log.

    Args:
        log: that is read.
        end: batches that begin at or above it are not read.
        times: ms since 1970; the first record at or after each is searched, from the log start on.
        fails_from: damage at or above this offset ends the survey; None for damage anywhere to be passed.
        with_outcomes: whether the outcomes of transactions are wanted; without them the survey ends when all times were found.

    Raises:
        FormatError: records that are searched for a time are damaged, and damage there is not passed.
        ReadFailedError, RefusedError: a segment cannot be read.
    """
    return _Survey(log, end, times, fails_from, with_outcomes=with_outcomes).run()


def good_parts(block: HeaderBlock) -> Iterator[tuple[HeaderBlock, int | None]]:
    """The parts of a block between batches with wrong checksums, each with the row of the bad batch after it; None at the end."""
    start = 0
    for row in block.bad_crc.tolist():
        yield block.part(start, row), row
        start = row + 1
    yield block.part(start, len(block)), None


class _Survey:
    def __init__(self, log: ChosenLog, end: int, times: Iterable[int], fails_from: int | None, *, with_outcomes: bool) -> None:
        self._log = log
        self._end = end
        self._fails_from = fails_from
        self._with_outcomes = with_outcomes
        self._times: dict[int, int | None] = dict.fromkeys(times)
        self._replay = OutcomeReplay(log.visible_end, log.open_before)
        self._next_offset = log.log_start
        self._damage: BatchFault | None = None
        self._passed: deque[BatchFault] = deque(maxlen=PASSED_MAX)
        self._findings: list[Finding] = []
        self._unlisted = 0
        self._unlisted_in = ""
        self._faults = 0
        self._faults_before = 0
        self._may_have_gaps = log.may_have_gaps
        self._missing: tuple[int, int] | None = None
        self._headers: dict[str, list[HeaderBlock]] = {}
        self._kept_bytes = 0

    def run(self) -> LogSurvey:
        for piece in self._log.pieces:
            if piece.base_offset >= self._end or self._is_done():
                break
            with piece.open() as source:
                self._take_piece(piece, source)
        survey = LogSurvey(
            self._replay.outcomes(),
            self._times,
            self._damage,
            self._next_offset,
            list(self._passed),
            None if self._may_have_gaps else self._missing,
            self._findings,
            self._headers,
        )
        if self._unlisted:
            message = (
                f"{pluralize(self._unlisted, 'aborted transaction')} of the log are missing in transaction indexes: the records are "
                f"left out here, and consumers of a broker get them as if they were committed"
            )
            survey.findings.append(Finding("records-aborted-without-index", Severity.FINDING, self._unlisted_in, message))
        return survey

    def _is_done(self) -> bool:
        return self._damage is not None or (not self._with_outcomes and None not in self._times.values())

    def _take_piece(self, piece: LogPiece, source: OpenBytes) -> None:
        aborted: set[tuple[int, int]] = set()
        keeps = not piece.is_last and piece.high > self._log.log_start and self._kept_bytes < KEPT_BYTES
        columns = HEADER_COLUMNS if self._times or keeps else SURVEY_COLUMNS
        kept: list[HeaderBlock] = []
        faults = self._faults
        # What is above is read from the next segment. A copy of another leader may have other batches there.
        high = min(self._end, piece.high)
        for block in blocks_of(piece, source, columns, self._on_fault):
            if self._is_done():
                return
            if keeps:
                kept.append(block)
                self._kept_bytes += BLOCK_OBJECT_BYTES + sum(column.nbytes for column in block.columns.values())
                keeps = self._kept_bytes < KEPT_BYTES
            for part, bad_row in good_parts(block):
                self._take(part, source, high, aborted)
                if bad_row is not None:
                    position = int(block.position_bytes[bad_row])
                    error = bad_checksum(source, position).in_file(piece.path)
                    self._on_fault(BatchFault(piece, position, error, int(block.column("base_offset")[bad_row])))
                if self._is_done():
                    return
            if len(block) and int(block.column("base_offset")[-1]) >= high:
                break
        else:
            if keeps and self._faults == faults:
                self._headers[piece.path] = kept
        if aborted:
            self._compare_index(piece, aborted)

    def _take(self, block: HeaderBlock, source: OpenBytes, high: int, aborted: set[tuple[int, int]]) -> None:
        block = block.part(0, int(np.searchsorted(block.column("base_offset"), high)))
        if not len(block):
            return
        if self._with_outcomes:
            self._note_missing(block)
            self._replay.take(block)
            aborted.update((each.producer_id, each.marker_offset) for each in self._replay.aborted)
        for time_ms, offset in self._times.items():
            if offset is None:
                self._times[time_ms] = self._first_record(block, source, time_ms)
        self._next_offset = block.next_offset

    def _note_missing(self, block: HeaderBlock) -> None:
        """Notes the offsets between a block and the one before it, in which the end of a transaction may have been."""
        has_damage_before = self._faults > self._faults_before
        self._faults_before = self._faults
        counted = block.column("record_count")
        self._may_have_gaps |= bool(((counted >= 0) & (counted <= block.column("last_offset_delta"))).any())
        begin = max(self._next_offset, self._log.log_start)
        end = int(block.column("base_offset")[0])
        # The header of a wrapper of magic 0 or 1 has its last offset.
        if end <= begin or has_damage_before or self._may_have_gaps or block.column("magic")[0] < MAGIC_V2:
            return
        self._missing = begin, end

    def _first_record(self, block: HeaderBlock, source: OpenBytes, time_ms: int) -> int | None:
        """The offset of the first record of a block at or after a time, control records included, as a broker searches it."""
        last = block.column("base_offset") + block.column("last_offset_delta")
        rows = np.flatnonzero((block.column("max_timestamp") >= time_ms) & (last >= self._log.log_start))
        for row in rows.tolist():
            header = block.header(row)
            try:
                for record in batch_records(source, header, int(block.position_bytes[row])):
                    if record.timestamp >= time_ms and record.offset >= self._log.log_start:
                        return record.offset
            except FormatError as error:
                if self._fails_from is not None:
                    raise
                message = f"{error.message}: the time {time_ms} ms is taken as that of this batch, whose records cannot be read"
                self._findings.append(Finding("records-damaged", Severity.DAMAGED, source.name, message, header.base_offset))
                return max(header.base_offset, self._log.log_start)
        return None

    def _on_fault(self, fault: BatchFault) -> None:
        self._faults += 1
        if self._fails_from is not None and self._next_offset >= self._fails_from:
            self._damage = fault
        else:
            self._passed.append(fault)
            self._replay.pass_damage(self._next_offset)

    def _compare_index(self, piece: LogPiece, aborted: set[tuple[int, int]]) -> None:
        """Counts the aborted transactions of a segment that its transaction index lacks."""
        path = piece.path.removesuffix(".log") + ".txnindex"
        listed: set[tuple[int, int]] = set()
        try:
            data = ReadPath(piece.store, path).read_small(limits.INDEX_BYTES_MAX)
            index = None if data is None else read_transaction_index(data, file=path)
        except (FormatError, ReadFailedError, ChangedFileError):
            index = None
        if index is not None:
            producers = index.column("producer_id").tolist()
            listed = set(zip(producers, index.column("last_offset").tolist(), strict=True))
        missing = len(aborted - listed)
        if missing:
            self._unlisted += missing
            self._unlisted_in = self._unlisted_in or path
