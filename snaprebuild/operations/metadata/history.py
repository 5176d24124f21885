"""The verb ``metadata history``: how a partition or a broker came to be what it is."""

from __future__ import annotations

from dataclasses import dataclass

from formats.errors import FormatError
from snaprebuild.cluster.metadata_fold import ImageFold
from snaprebuild.cluster.metadata_timeline import Moment, Timelines
from snaprebuild.errors import UsageError
from snaprebuild.operations.findings import Finding, Severity, counted, finding_of_error
from snaprebuild.operations.metadata.image import fold_oldest, with_fresh_listing
from snaprebuild.operations.metadata.log import MetadataLog
from snaprebuild.operations.metadata.log_findings import (
    checkpoint_findings,
    fault_findings,
    gap_finding,
    listing_findings,
    torn_findings,
)
from snaprebuild.operations.metadata.proof import Proof, proof_findings, prove
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["HistoryQuestion", "HistoryResult", "metadata_history"]


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """What is asked.

    Attributes:
        location: of the metadata log.
        topic: name, or None; every topic that had it.
        partition: number, None for all of the topic.
        broker_id: or None.
        others: logs of other voters, by id (None for what ``meta.properties`` says) and location.
        voter_ids: all voters, None for what the log says.
        settings: of object stores.
    """

    location: str
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    others: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None
    settings: S3Settings = USUAL_S3


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """The answer.

    Attributes:
        path: of the log.
        first_offset: where the timelines begin: 0, or behind what a checkpoint holds.
        last_offset: last one that was read.
        last_timestamp_ms: of its batch.
        timelines: what was asked for.
        proof: how much is proven to be committed.
        findings: what is wrong.
    """

    path: str
    first_offset: int
    last_offset: int
    last_timestamp_ms: int
    timelines: Timelines
    proof: Proof
    findings: tuple[Finding, ...]


def metadata_history(question: HistoryQuestion) -> HistoryResult:
    """Reads a metadata log from as far back as it goes.

    Raises:
        UsageError: the location holds no metadata log, or nothing in it is or was of the name or number that is asked for.
        ReadFailedError: a file cannot be read.
    """
    return with_fresh_listing(question.location, question.settings, lambda log: _history(log, question))


def _history(log: MetadataLog, question: HistoryQuestion) -> HistoryResult:
    proof = prove(log, question.others, question.voter_ids, question.settings)
    fold, checkpoint, bad = fold_oldest(log)
    findings = [*listing_findings(log), *checkpoint_findings(bad)]
    timelines = Timelines(question.topic, question.partition, question.broker_id)
    if checkpoint is not None:
        moment = Moment(fold.offset, fold.timestamp_ms, fold.epoch, None)
        timelines.begin(moment, fold.brokers, fold.topics.values())
    first_offset = fold.offset + 1
    gap = gap_finding(log, first_offset, None)
    if gap is not None:
        findings.append(gap)
    else:
        findings += _read(log, fold, timelines)
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
    return HistoryResult(log.path, first_offset, fold.offset, fold.timestamp_ms, timelines, proof, tuple(findings))


def _asked(question: HistoryQuestion) -> str:
    asked = []
    if question.topic is not None:
        asked.append(question.topic if question.partition is None else f"{question.topic}-{question.partition}")
    if question.broker_id is not None:
        asked.append(f"broker {question.broker_id}")
    return " or ".join(asked)


def _read(log: MetadataLog, fold: ImageFold, timelines: Timelines) -> list[Finding]:
    walk = log.walk(fold.offset + 1)
    try:
        for batch in walk:
            timelines.add(fold.apply_batch(batch), batch.append_timestamp_ms, batch.leader_epoch)
    except FormatError as error:
        return [finding_of_error(error, log.path)]
    return torn_findings(log, walk)
