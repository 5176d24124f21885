"""The work of ``isr check``: every change of in-sync replicas in a metadata log, against the invariant of KIP-903."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from formats.errors import BadValueError, FormatError
from formats.partition_metadata import uuid_to_text
from snaprebuild.cluster.isr_history import IsrEvent, IsrFault, IsrHistory, JoinKind
from snaprebuild.cluster.metadata_fold import ImageFold
from snaprebuild.errors import ReadFailedError
from snaprebuild.operations.findings import Finding, Severity, counted, finding_of_error
from snaprebuild.operations.metadata.listing import open_metadata_log
from snaprebuild.operations.metadata.log import MetadataCheckpoint, MetadataLog
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["EVENTS_MAX", "IsrCheckResult", "isr_check"]

ATTEMPTS = 3
"""What has gone since the listing, as old segments of a node that runs do, is listed again."""

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
class IsrCheckResult:
    """What a check found.

    Attributes:
        log: that was read.
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
    checkpoint: MetadataCheckpoint | None
    known_from: int
    end_offset: int
    changes: int
    joins: int
    counts: dict[IsrFault, int]
    events: tuple[IsrEvent, ...]
    findings: tuple[Finding, ...]


def isr_check(location: str, settings: S3Settings = USUAL_S3) -> IsrCheckResult:
    """Checks a metadata log.

    Args:
        location: a metadata log directory, or one that holds it.
        settings: of an object store.

    Raises:
        UsageError: there is no metadata log.
        FormatError: nothing can be looked at: records between the checkpoints and the log are missing.
        ReadFailedError: a file cannot be read.
    """
    for attempt in range(ATTEMPTS):
        try:
            return _check(open_metadata_log(location, settings))
        except ReadFailedError as error:
            if error.errno != errno.ENOENT or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


def _check(log: MetadataLog) -> IsrCheckResult:
    fold, checkpoint = _beginning(log)
    known_from = fold.offset + 1
    history, events, counts = IsrHistory(fold), list[IsrEvent](), Counter[IsrFault]()
    findings = []
    walk = log.walk(known_from)
    try:
        for batch in walk:
            for event in history.take(batch):
                counts[event.fault] += 1
                if len(events) < EVENTS_MAX:
                    events.append(event)
    except FormatError as error:
        findings.append(finding_of_error(error, log.path))
    if walk.torn_tail is not None:
        path, offset = log.segments[-1].path, fold.offset + 1
        findings.append(
            Finding("isr-torn-tail", Severity.NOTE, path, "the log ends in the middle of a batch, which is left out", offset)
        )
    findings += _findings(log, events)
    if sum(counts.values()) > len(events):
        more = counted(sum(counts.values()) - len(events), "more event")
        findings.append(Finding("isr-events-left-out", Severity.FINDING, log.path, f"{more}, of which none is shown"))
    if fold.fault_count:
        message = f"{counted(fold.fault_count, 'record')} left out, which contradict those before or cannot be read"
        findings.append(Finding("isr-record-left-out", Severity.FINDING, log.path, message, fold.faults[0].offset))
    return IsrCheckResult(
        log, checkpoint, known_from, fold.offset + 1, history.changes, history.joins, dict(counts), tuple(events), tuple(findings)
    )


def _beginning(log: MetadataLog) -> tuple[ImageFold, MetadataCheckpoint | None]:
    """The oldest image from which the log goes on, so that as much as possible is looked at."""
    first = log.first_base_offset
    if first == 0:
        return ImageFold(), None
    for checkpoint in sorted(log.checkpoints, key=lambda each: each.end_offset):
        if (first is None or checkpoint.end_offset >= first) and log.checkpoint_fault(checkpoint) is None:
            fold = ImageFold()
            fold.apply_checkpoint(log.checkpoint_batches(checkpoint), checkpoint.end_offset, checkpoint.epoch)
            return fold, checkpoint
    raise BadValueError(
        "metadata log",
        file=log.path,
        expected="a whole checkpoint, or a first segment that begins at 0",
        found=f"begins at {first}",
    )


def _findings(log: MetadataLog, events: list[IsrEvent]) -> Iterator[Finding]:
    """One for each violation; what happened to many replicas of a broker at once, and is as it should be, is one note."""
    alike: dict[tuple[IsrFault, int, int | None], list[IsrEvent]] = {}
    for event in events:
        if event.fault in NOTES:
            alike.setdefault((event.fault, event.broker_id, event.broker_epoch), []).append(event)
        else:
            yield Finding(f"isr-{event.fault}", Severity.FINDING, log.path, _text(event), event.offset)
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
