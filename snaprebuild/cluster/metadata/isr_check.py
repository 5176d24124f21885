"""The work of ``cluster isr``: every change of in-sync replicas in a metadata log, against the invariant of KIP-903."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.image_reader import fold_oldest, with_fresh_listing
from snaprebuild.cluster.metadata.isr_history import IsrEvent, IsrFault, IsrHistory, JoinKind
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog
from snaprebuild.cluster.metadata.log_findings import checkpoint_findings, gap_finding, torn_findings
from snaprebuild.cluster.metadata.proof import Proof, proof_findings, prove
from snaprebuild.findings import Finding, Severity, counted, finding_of_error
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["EVENTS_MAX", "IsrCheckResult", "IsrQuestion", "isr_check"]

EVENTS_MAX = 10_000
"""Events that are kept; the others are counted."""

NOTES = {
    IsrFault.NEW_DISK: "it joined with another disk than it had left with, when its leader said that it had caught up",
    IsrFault.UNCLEAN_ELECTION: "it was elected uncleanly: what only others had is lost",
}
FAULTS = {
    IsrFault.UNREGISTERED: "it joined, and its broker was not registered",
    IsrFault.FENCED: "it joined, and its broker was fenced",
    IsrFault.SHUTTING_DOWN: "it joined, and its broker was shutting down",
    IsrFault.EPOCH_AHEAD: "it joined, and its broker's registration was still to come",
    IsrFault.STALE_MEMBER: "a new process of its broker registered, and it stayed in sync beside others",
    IsrFault.LAST_MEMBER_NEW_DISK: "a new process of its broker registered without the disk of this replica, which stayed in sync as the "
    "last one: what it had is lost (KIP-903 accepts that)",
    IsrFault.ELECTED_NEW_DISK: "it was elected to lead, and the disk on which it was is gone: what it had is lost",
}


@dataclass(frozen=True, slots=True)
class IsrQuestion:
    """What is asked.

    Attributes:
        location: a metadata log directory, or one that holds it.
        others: logs of other voters, by id (None for what ``meta.properties`` says) and location.
        voter_ids: all voters, None for what the log says.
        settings: of object stores.
    """

    location: str
    others: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None
    settings: S3Settings = USUAL_S3


@dataclass(frozen=True, slots=True)
class IsrCheckResult:
    """What a check found.

    Attributes:
        log: that was read.
        proof: how much of it is proven to be committed.
        checkpoint: that the history begins with; None for the beginning of the log.
        known_from: first offset whose record was looked at; what came before is not known.
        end_offset: behind the last one.
        changes: of in-sync replicas.
        joins: replicas that joined.
        counts: of events, by what they are.
        events: the first ``EVENTS_MAX``, by offset.
        findings: about them and the log.
    """

    log: MetadataLog
    proof: Proof
    checkpoint: MetadataCheckpoint | None
    known_from: int
    end_offset: int
    changes: int
    joins: int
    counts: dict[IsrFault, int]
    events: tuple[IsrEvent, ...]
    findings: tuple[Finding, ...]

    def is_proven(self, event: IsrEvent) -> bool:
        """The record of an event is proven to be committed."""
        return _is_proven(event, self.proof)


def isr_check(question: IsrQuestion) -> IsrCheckResult:
    """Checks a metadata log.

    Raises:
        UsageError: a location holds no metadata log, or two logs are of one voter or of several clusters.
        ReadFailedError: a file cannot be read.
    """
    return with_fresh_listing(question.location, question.settings, lambda log: _check(log, question))


def _check(log: MetadataLog, question: IsrQuestion) -> IsrCheckResult:
    proof = prove(log, question.others, question.voter_ids, question.settings)
    fold, checkpoint, bad = fold_oldest(log)
    known_from = fold.offset + 1
    found = _Found(IsrHistory(fold))
    findings = checkpoint_findings(bad)
    gap = gap_finding(log, known_from, None)
    findings += _read(log, known_from, found) if gap is None else [gap]
    findings += _findings(log, proof, found.events)
    if sum(found.counts.values()) > len(found.events):
        more = counted(sum(found.counts.values()) - len(found.events), "more event")
        findings.append(Finding("isr-events-left-out", Severity.FINDING, log.path, f"{more}, of which none is shown"))
    if fold.fault_count:
        message = f"{counted(fold.fault_count, 'record')} left out, which contradict those before or cannot be read"
        findings.append(Finding("isr-record-left-out", Severity.FINDING, log.path, message, fold.faults[0].offset))
    findings += proof_findings(log, proof, fold.offset, told=findings)
    history = found.history
    return IsrCheckResult(
        log=log,
        proof=proof,
        checkpoint=checkpoint,
        known_from=known_from,
        end_offset=fold.offset + 1,
        changes=history.changes,
        joins=history.joins,
        counts=dict(found.counts),
        events=tuple(found.events),
        findings=tuple(findings),
    )


@dataclass(slots=True)
class _Found:
    """What a history has told so far; of the events the first ``EVENTS_MAX``."""

    history: IsrHistory
    events: list[IsrEvent] = field(default_factory=list)
    counts: Counter[IsrFault] = field(default_factory=Counter)


def _read(log: MetadataLog, known_from: int, found: _Found) -> list[Finding]:
    """Takes the log behind the checkpoint, as far as it can be read."""
    walk = log.walk(known_from)
    try:
        for batch in walk:
            for event in found.history.take(batch):
                found.counts[event.fault] += 1
                if len(found.events) < EVENTS_MAX:
                    found.events.append(event)
    except FormatError as error:
        return [finding_of_error(error, log.path)]
    return torn_findings(log, walk)


def _is_proven(event: IsrEvent, proof: Proof) -> bool:
    return event.effect_offset < proof.end_offset


def _findings(log: MetadataLog, proof: Proof, events: list[IsrEvent]) -> Iterator[Finding]:
    """One for each violation; what happened to many replicas of a broker at once, and is as it should be, is one note."""
    alike: dict[tuple[IsrFault, int, int | None], list[IsrEvent]] = {}
    for event in events:
        if event.fault in NOTES:
            alike.setdefault((event.fault, event.broker_id, event.broker_epoch), []).append(event)
        else:
            whether = "committed" if _is_proven(event, proof) else "not proven to be committed"
            yield Finding(f"isr-{event.fault}", Severity.FINDING, log.path, f"{_text(event)}; {whether}", event.offset)
    for several in alike.values():
        first = several[0]
        more = f"; and {counted(len(several) - 1, 'more partition')}" if len(several) > 1 else ""
        yield Finding(f"isr-{first.fault}", Severity.NOTE, log.path, _text(first) + more, first.offset)


def _text(event: IsrEvent) -> str:
    what = {**NOTES, **FAULTS}[event.fault]
    epoch = "" if event.broker_epoch is None else f" (broker epoch {event.broker_epoch})"
    left = "" if event.left_offset is None else f"; it had left at offset {event.left_offset}"
    gone = f"; gone: {', '.join(map(uuid_to_text, event.gone_directories))}" if event.gone_directories else ""
    change = f" {list(event.isr)}" if event.kind is JoinKind.STAYED else f" {list(event.isr_before)} -> {list(event.isr)}"
    return f"{event.topic}-{event.partition}, replica of broker {event.broker_id}{epoch}: {what}; ISR{change}{left}{gone}"
