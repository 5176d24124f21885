"""The verb ``cluster history``: how a partition or a broker came to be what it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from formats.errors import FormatError
from snaprebuild.cluster.metadata.batch import MetadataBatch
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_reader import fold_oldest, with_fresh_listing
from snaprebuild.cluster.metadata.log import MetadataLog
from snaprebuild.cluster.metadata.log_findings import (
    checkpoint_findings,
    fault_findings,
    gap_finding,
    listing_findings,
    torn_findings,
)
from snaprebuild.cluster.metadata.proof import Proof, proof_findings, prove
from snaprebuild.cluster.metadata.timeline import Moment, Timelines
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, counted, finding_of_error
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["HistoryQuestion", "HistoryResult", "LogPoint", "metadata_history"]


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A place in a metadata log: an offset, or a time, ms since 1970, which is that of batches; one of them is None."""

    offset: int | None
    timestamp_ms: int | None = None

    def is_before(self, batch: MetadataBatch) -> bool:
        """Whether all of a batch lies behind it."""
        if self.offset is not None:
            return self.offset < batch.base_offset
        return self.timestamp_ms is not None and self.timestamp_ms < batch.append_timestamp_ms

    def first_offset_in(self, batch: MetadataBatch) -> int:
        """First offset of a batch that does not lie before it; the one behind the batch where all do."""
        if self.offset is not None:
            return min(max(self.offset, batch.base_offset), batch.last_offset + 1)
        is_older = self.timestamp_ms is not None and batch.append_timestamp_ms < self.timestamp_ms
        return batch.last_offset + 1 if is_older else batch.base_offset


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """What is asked.

    Attributes:
        location: of the metadata log.
        topic: name, or None; every topic that had it.
        partition: number, None for all of the topic.
        broker_id: or None.
        begin: where the history begins, None for as far back as the log goes; what was before is one entry, as with a checkpoint.
        end: last place that belongs to it, None for the end of the log; by time, it ends before the first batch that is younger.
        others: logs of other voters, by id (None for what ``meta.properties`` says) and location.
        voter_ids: all voters, None for what the log says.
        settings: of object stores.
    """

    location: str
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    begin: LogPoint | None = None
    end: LogPoint | None = None
    others: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None
    settings: S3Settings = USUAL_S3


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """The answer.

    Attributes:
        path: of the log.
        first_offset: where the timelines begin: 0, behind what a checkpoint holds, or where was asked for.
        checkpoint_end: end offset of the checkpoint that it was read from, None for none.
        last_offset: last one that was read.
        last_timestamp_ms: of its batch.
        timelines: what was asked for.
        proof: how much is proven to be committed.
        findings: what is wrong.
    """

    path: str
    first_offset: int
    checkpoint_end: int | None
    last_offset: int
    last_timestamp_ms: int
    timelines: Timelines
    proof: Proof
    findings: tuple[Finding, ...]


def metadata_history(question: HistoryQuestion) -> HistoryResult:
    """Reads a metadata log from as far back as it goes, and tells of what was asked for.

    Raises:
        UsageError: the location holds no metadata log, the log does not reach into what is asked for, or nothing there is or was of the
            name or number.
        ReadFailedError: a file cannot be read.
    """
    return with_fresh_listing(question.location, question.settings, lambda log: _history(log, question))


def _history(log: MetadataLog, question: HistoryQuestion) -> HistoryResult:
    proof = prove(log, question.others, question.voter_ids, question.settings)
    fold, checkpoint, bad = fold_oldest(log)
    findings = [*listing_findings(log), *checkpoint_findings(bad)]
    timelines = Timelines(question.topic, question.partition, question.broker_id)
    if checkpoint is not None and question.begin is None:
        _begin(timelines, fold, "as a checkpoint has it")
    first_offset = fold.offset + 1
    gap = gap_finding(log, first_offset, None)
    if gap is not None:
        findings.append(gap)
    else:
        first_offset, read = _read(log, fold, timelines, question)
        findings += read
    findings += fault_findings(log, fold)
    is_empty = not timelines.partitions and (timelines.broker is None or not timelines.broker.entries)
    if is_empty and not any(each.severity is Severity.DAMAGED for each in findings):
        raise UsageError(f"nothing from offset {first_offset} to {fold.offset} tells of {_asked(question)}", path=log.path)
    findings += proof_findings(log, proof, fold.offset, told=findings)
    dropped = sum(each.dropped for each in timelines.partitions.values())
    dropped += 0 if timelines.broker is None else timelines.broker.dropped
    if dropped:
        message = f"{counted(dropped, 'older entry', 'older entries')} are left out"
        findings.append(Finding("history-cut", Severity.NOTE, log.path, message))
    return HistoryResult(
        path=log.path,
        first_offset=first_offset,
        checkpoint_end=None if checkpoint is None else checkpoint.end_offset,
        last_offset=fold.offset,
        last_timestamp_ms=fold.timestamp_ms,
        timelines=timelines,
        proof=proof,
        findings=tuple(findings),
    )


def _asked(question: HistoryQuestion) -> str:
    asked = []
    if question.topic is not None:
        asked.append(question.topic if question.partition is None else f"{question.topic}-{question.partition}")
    if question.broker_id is not None:
        asked.append(f"broker {question.broker_id}")
    return " or ".join(asked)


def _begin(timelines: Timelines, fold: ImageFold, what: str) -> None:
    moment = Moment(fold.offset, fold.timestamp_ms, fold.epoch, None)
    timelines.begin(moment, fold.brokers, fold.topics.values(), what)


def _read(log: MetadataLog, fold: ImageFold, timelines: Timelines, question: HistoryQuestion) -> tuple[int, list[Finding]]:
    """Folds the log and gathers what lies between the places that are asked for.

    Returns:
        First offset that was gathered, and findings.
    """
    begin, end, log_begin = question.begin, question.end, fold.offset + 1
    first_offset = log_begin if begin is None else None
    findings: list[Finding] = []
    walk = log.walk(log_begin)
    try:
        with walk.until() as batches:
            for whole in batches:
                if end is not None and end.is_before(whole):
                    break
                batch: MetadataBatch | None = whole
                if begin is not None and first_offset is None:
                    before, batch = _cut(whole, begin.first_offset_in(whole))
                    if before is not None:
                        fold.apply_batch(before)
                    if batch is None:
                        continue
                    first_offset = batch.base_offset
                    _begin(timelines, fold, "as it was before" if first_offset > log_begin else "as a checkpoint has it")
                if batch is not None:
                    changes = fold.apply_batch(batch, None if end is None else end.offset)
                    timelines.add(changes, batch.append_timestamp_ms, batch.leader_epoch)
        findings = torn_findings(log, walk)
    except FormatError as error:
        findings = [finding_of_error(error, log.path)]
    is_nothing = first_offset is None or (end is not None and fold.offset < first_offset)
    if is_nothing and not any(each.severity is Severity.DAMAGED for each in findings):
        told = (
            f"what was read are offsets {log_begin} to {fold.offset}" if fold.offset >= log_begin else f"it begins at {log_begin}"
        )
        raise UsageError(f"the log has nothing between --from and --to: {told}", path=log.path)
    return log_begin if first_offset is None else first_offset, findings


def _cut(batch: MetadataBatch, offset: int) -> tuple[MetadataBatch | None, MetadataBatch | None]:
    """What of a batch lies below an offset, and the rest; None for nothing."""
    if offset <= batch.base_offset:
        return None, batch
    if offset > batch.last_offset:
        return batch, None
    below = tuple(each for each in batch.records if each.offset < offset)
    behind = batch.records[len(below) :]
    return replace(batch, last_offset=offset - 1, records=below), replace(batch, base_offset=offset, records=behind)
