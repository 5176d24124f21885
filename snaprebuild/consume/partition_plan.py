"""The range of offsets of a partition that is read, with the outcomes of its transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from formats.errors import FormatError
from formats.log.batch_headers import HeaderBlock
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.log_pieces import LogPiece, split_offsets
from snaprebuild.consume.record_query import EARLIEST, LATEST, Moments, NoMatch, Offsets, RecordIsolation, RecordQuery
from snaprebuild.consume.survey import LogSurvey, survey_log
from snaprebuild.consume.transaction_outcomes import TransactionOutcomes
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity

__all__ = ["RecordPlan", "check_offsets", "parts_of", "plan_partition"]


class RecordPlan(msgspec.Struct, frozen=True):
    """The range of a partition that is read.

    Attributes:
        log: the log.
        start: the first offset.
        end: the offset after the last one.
        outcomes: of the transactions; None if they do not matter.
        damage: where the read ends with an error, after the records below ``end``; None if it does not.
        findings: about the log and the range.
        headers: of segments, by path, as far as they were read and kept. The read of the range removes them.
    """

    log: ChosenLog
    start: int
    end: int
    outcomes: TransactionOutcomes | None
    damage: FormatError | None = None
    findings: tuple[Finding, ...] = ()
    headers: dict[str, list[HeaderBlock]] = msgspec.field(default_factory=dict)

    @property
    def pieces(self) -> tuple[LogPiece, ...]:
        """The segments that may have records of the range."""
        return tuple(each for each in self.log.pieces if each.low < self.end and self.start < each.high)


PARTS_MAX = 4096
"""Parts of the range of one partition."""


def parts_of(plan: RecordPlan, part_bytes: int) -> list[RecordPlan]:
    """The range of a plan in parts, each of about so many bytes, which can be read at the same time.

    Each part has a range of offsets, so that every record is in one part. The offset index of a segment only shows where to split, and
    where to begin to read.
    """
    bounds = [plan.start]
    filled = 0
    for piece in plan.pieces:
        if filled and filled + piece.size_bytes > part_bytes:
            bounds.append(max(piece.low, plan.start))
            filled = 0
        filled += piece.size_bytes
        if piece.size_bytes > part_bytes:
            bounds += [offset for offset in split_offsets(piece, part_bytes) if plan.start < offset < plan.end]
    bounds = sorted({*bounds})[:PARTS_MAX]
    parts = []
    for number, start in enumerate(bounds):
        is_last = number == len(bounds) - 1
        end = plan.end if is_last else bounds[number + 1]
        pieces = tuple(each for each in plan.log.pieces if each.low < end and start < each.high)
        log = replace(plan.log, pieces=pieces, source=None, findings=())
        outcomes = None if plan.outcomes is None else plan.outcomes.within(start, end)
        parts.append(RecordPlan(log, start, end, outcomes, plan.damage if is_last else None))
    return parts


def check_offsets(query: RecordQuery, partitions: Iterable[tuple[str, int]]) -> None:
    """Checks that offsets are given for all selected partitions, and for no others, as Spark's Kafka source does.

    Raises:
        UsageError: they are not.
    """
    selected = set(partitions)
    named = {
        "starting_offsets": query.starting_offsets,
        "ending_offsets": query.ending_offsets,
        "starting_offsets_by_timestamp": query.starting_timestamp,
        "ending_offsets_by_timestamp": query.ending_timestamp,
    }
    for name, offsets in named.items():
        if not isinstance(offsets, Mapping):
            continue
        given = {(topic, number) for topic, each in offsets.items() for number in each}
        for problem, which in (("lacks", selected - given), ("names", given - selected)):
            if which:
                listed = ", ".join(f"{topic}-{number}" for topic, number in sorted(which)[:3])
                reason = "which is selected" if problem == "lacks" else "which is not selected, or does not exist"
                raise UsageError(f"{name}: {problem} {listed}, {reason}")


def plan_partition(log: ChosenLog, query: RecordQuery) -> RecordPlan:
    """Decides what is read of a partition. Reads its headers, if transactions or times matter.

    Raises:
        UsageError: no record is at or after the starting time, or the range ends before it begins.
        ReadFailedError: offsets of the range do not exist, and that ends the read; or a segment cannot be read.
        RefusedError: a segment changed.
        FormatError: damage hides where the range begins.
    """
    return _Planner(log, query).plan()


class _Planner:
    def __init__(self, log: ChosenLog, query: RecordQuery) -> None:
        self._log = log
        self._query = query
        self._findings = list(log.findings)
        self._starting_ms = self._moment(query.starting_timestamp)
        self._ending_ms = self._moment(query.ending_timestamp)

    def _moment(self, moments: Moments | None) -> int | None:
        if isinstance(moments, Mapping):
            return moments[self._log.topic][self._log.partition]
        return moments

    def plan(self) -> RecordPlan:
        log = self._log
        query = self._query
        if self._starting_ms is not None and self._ending_ms is not None and self._starting_ms > self._ending_ms:
            message = (
                f"the range of {log.topic_partition} begins at {self._starting_ms} ms and ends before, at {self._ending_ms} ms"
            )
            raise UsageError(message, path=log.place)
        named_end = self._named(query.ending_offsets) if self._ending_ms is None else LATEST
        horizon = log.visible_end
        if named_end != LATEST and query.isolation is not RecordIsolation.READ_COMMITTED:
            horizon = max(horizon, min(named_end, log.log_end))
        start = None if self._starting_ms is not None else self._start()
        survey = self._survey(horizon, start)
        if start is None:
            start = self._start_by_time(survey, horizon)
        end = self._end(named_end, horizon, survey)
        named_start = EARLIEST if self._starting_ms is not None else self._named(query.starting_offsets)
        if named_start > named_end >= 0:
            message = f"the range of {log.topic_partition} begins at {named_start} and ends at {named_end}"
            raise UsageError(message, path=log.place)
        damage = None
        outcomes = None
        if survey is not None and query.needs_outcomes:
            outcomes = survey.outcomes
            end, damage = self._stable_end(survey, start, end)
        if survey is not None:
            self._findings += survey.findings
        headers = {} if survey is None else survey.headers
        return RecordPlan(log, start, max(start, end), outcomes, damage, tuple(self._findings), headers)

    def _named(self, offsets: Offsets) -> int:
        if isinstance(offsets, Mapping):
            return offsets[self._log.topic][self._log.partition]
        return offsets

    def _start(self) -> int:
        named = self._named(self._query.starting_offsets)
        log = self._log
        if named == EARLIEST:
            return min(log.log_start, log.visible_end)
        if named < log.log_start:
            self._lose(named, log.log_start, f"the log starts at {log.log_start}")
            return log.log_start
        if named > log.log_end:
            self._lose(log.log_end, named, f"the log ends at {log.log_end}")
            return log.log_end
        return named

    def _lose(self, begin: int, end: int, reason: str) -> None:
        """Offsets of the range that are not in the log: an error, or a finding."""
        message = f"offsets {begin} to {end - 1} of {self._log.topic_partition} are not there: {reason}"
        if self._query.fails_on_data_loss:
            raise ReadFailedError(f"{message}; without fail_on_data_loss the rest is read", path=self._log.place)
        self._findings.append(Finding("records-lost", Severity.FINDING, self._log.place, message, begin))

    def _survey(self, horizon: int, start: int | None) -> LogSurvey | None:
        query = self._query
        times = [each for each in (self._starting_ms, self._ending_ms) if each is not None]
        if not query.needs_outcomes and not times:
            return None
        fails_from = None if query.skips_faults else start or 0
        return survey_log(self._log, horizon, times=times, fails_from=fails_from, with_outcomes=query.needs_outcomes)

    def _start_by_time(self, survey: LogSurvey | None, horizon: int) -> int:
        time_ms = self._starting_ms
        assert survey is not None
        assert time_ms is not None
        offset = survey.times[time_ms]
        if offset is not None:
            return offset
        if survey.damage is not None:
            raise survey.damage.error
        if self._query.no_match is NoMatch.ERROR:
            message = f"no record of {self._log.topic_partition} is at or after the starting time {time_ms} ms"
            raise UsageError(
                f"{message}; with starting_offsets_by_timestamp_strategy='latest' nothing of it is read", path=self._log.place
            )
        return horizon

    def _end(self, named: int, horizon: int, survey: LogSurvey | None) -> int:
        log = self._log
        time_ms = self._ending_ms
        if time_ms is not None:
            assert survey is not None
            offset = survey.times[time_ms]
            return horizon if offset is None else offset
        if named == LATEST:
            if log.high_watermark is not None and log.high_watermark > log.log_end:
                self._lose(log.log_end, log.high_watermark, f"the log ends at {log.log_end}, below its high watermark")
            return horizon
        if named > log.log_end:
            self._lose(log.log_end, named, f"the log ends at {log.log_end}")
        elif named > log.visible_end:
            message = (
                f"the ending offset {named} is above the high watermark {log.visible_end}: records there may never be acknowledged"
            )
            if self._query.isolation is RecordIsolation.READ_COMMITTED:
                message = f"the ending offset {named} is above the high watermark {log.visible_end}: the read ends there"
            self._findings.append(Finding("records-above-high-watermark", Severity.FINDING, log.place, message, log.visible_end))
        return min(named, horizon)

    def _stable_end(self, survey: LogSurvey, start: int, end: int) -> tuple[int, FormatError | None]:
        """Where the range ends because of transactions, or because of damage that hides how they ended."""
        if end <= start:
            return end, None
        damage = survey.damage
        if damage is not None and survey.damage_offset < end:
            first_open = next((each.first_offset for each in survey.outcomes.open_at_end), survey.damage_offset)
            return min(first_open, survey.damage_offset, end), damage.error
        if damage is not None:
            undecided = [each.first_offset for each in survey.outcomes.open_at_end if each.first_offset < end]
            if undecided:
                return undecided[0], damage.error
        self._note_passed(survey)
        if self._query.isolation is not RecordIsolation.READ_COMMITTED:
            return end, None
        unstable = next(iter(survey.outcomes.unstable), None)
        if unstable is None:
            return end, None
        stable = max(unstable.first_offset, self._log.log_start)
        if stable >= end:
            return end, None
        hidden = next((each for each in survey.passed if (each.offset or 0) >= unstable.first_offset), None)
        if hidden is not None and not self._query.skips_faults:
            return max(stable, start), hidden.error
        if survey.missing is not None and survey.missing[1] > unstable.first_offset:
            begin, missing_end = survey.missing
            reason = (
                f"producer {unstable.producer_id} has a transaction from {unstable.first_offset} on whose marker may be in them"
            )
            self._lose(begin, missing_end, f"they are in no batch, and {reason}")
        message = (
            f"producer {unstable.producer_id} has a transaction from {unstable.first_offset} on without a marker below the high "
            f"watermark: the read ends there, and {end - stable} offsets are left out"
        )
        self._findings.append(Finding("records-end-at-transaction", Severity.FINDING, self._log.place, message, stable))
        return max(stable, start), None

    def _note_passed(self, survey: LogSurvey) -> None:
        if survey.passed and self._query.skips_faults:
            message = "damaged batches may hide how transactions ended: these are judged by the batches that can be read"
            count = len(survey.outcomes.undecided)
            if count:
                producer, first, last = (int(each) for each in survey.outcomes.undecided[0])
                of_others = f", and there are {count - 1} more such ranges" if count > 1 else ""
                message = (
                    f"{message}; records of producer {producer} at offsets {first} to {last} may have been aborted or "
                    f"committed{of_others}: the column transaction has 'open', unless the next marker aborts them"
                )
            self._findings.append(Finding("records-judged-after-damage", Severity.DAMAGED, self._log.place, message))
