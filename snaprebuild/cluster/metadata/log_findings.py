"""Findings of a metadata log: of its listing, its checkpoints, its end and its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from formats.errors import FormatError
from formats.log.batch_headers import TailKind
from snaprebuild.cluster.metadata.batches import MetadataBatch
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog
from snaprebuild.cluster.metadata.proof import EpochLineage
from snaprebuild.cluster.metadata.unknown_contents import unknown_findings
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, first_of, pluralize

__all__ = ["checkpoint_findings", "epoch_findings", "fault_findings", "listing_findings", "read_on"]


def listing_findings(log: MetadataLog) -> list[Finding]:
    """Files that are none of the log, or cannot be read."""
    notes = {
        "left-over-checkpoint": (log.part_files, "checkpoint that was not finished", "checkpoints that were not finished"),
        "deleted-files": (log.deleted_files, "file marked as deleted", "files marked as deleted"),
        "misnamed-files": (
            log.misnamed_files,
            "file of a name that Kafka would not give",
            "files of names that Kafka would not give",
        ),
        "unknown-files": (log.other_files, "file of a name that is not known", "files of names that are not known"),
    }
    findings = [
        Finding(code, Severity.NOTE, log.path, f"{pluralize(len(names), one, several)}, left out: {first_of(names)}")
        for code, (names, one, several) in notes.items()
        if names
    ]
    if log.unreadable_files:
        message = f"no regular files, left out: {first_of(log.unreadable_files)}"
        findings.append(Finding("no-regular-file", Severity.FINDING, log.path, message))
    faults = [fault for fault in (log.leader_epochs_fault, log.quorum_state_fault) if fault is not None]
    return findings + [
        Finding("damaged-file", Severity.DAMAGED, fault.file or log.path, fault.message, is_unread=True) for fault in faults
    ]


def checkpoint_findings(bad: Iterable[tuple[MetadataCheckpoint, FormatError]]) -> list[Finding]:
    """Checkpoints that are not whole, newer than the one that was taken."""
    return [
        Finding("damaged-checkpoint", Severity.DAMAGED, each.path, f"{error.message}; it is left out", is_unread=True)
        for each, error in bad
    ]


def epoch_findings(checkpoint: MetadataCheckpoint | None, lineage: EpochLineage) -> list[Finding]:
    """A finding if the checkpoint was made from another log: this log has another leader epoch at the checkpoint's last offset."""
    epoch = None if checkpoint is None else lineage.epoch_of(checkpoint.end_offset - 1)
    if checkpoint is None or epoch is None or epoch == checkpoint.epoch:
        return []
    message = f"the checkpoint ends in leader epoch {checkpoint.epoch}, and the log has {epoch} there: it is not the log of the checkpoint"
    return [Finding("diverged-checkpoint", Severity.DAMAGED, checkpoint.path, message, checkpoint.end_offset - 1)]


def _gap(log: MetadataLog, start: int, at: int | None) -> Finding | None:
    """A finding if records between the checkpoint and the beginning of the log are missing.

    Args:
        log: in question.
        start: first offset that the checkpoint does not hold.
        at: last offset that is wanted, None for all.

    Raises:
        UsageError: nothing is missing but what is below the oldest checkpoint, where the wanted offset is.
    """
    first = log.first_base_offset
    if first is None or first <= start or (at is not None and at < start):
        return None
    if at is not None and at < max((checkpoint.end_offset for checkpoint in log.checkpoints), default=0):
        raise UsageError(f"nothing is known at offset {at}: no checkpoint is so old, and the log begins at {first}", path=log.path)
    message = f"the log begins at offset {first}, and no whole checkpoint goes further than {start}: records between are missing"
    return Finding("metadata-gap", Severity.DAMAGED, log.segments[0].path, message, first)


def read_on(log: MetadataLog, start: int, take: Callable[[MetadataBatch], object], at: int | None = None) -> list[Finding]:
    """Reads a log as far as that is possible.

    Args:
        log: in question.
        start: first offset that the checkpoint does not hold.
        take: gets each batch; a true result ends the reading.
        at: last offset that is wanted, None for all.

    Returns:
        Findings of missing records, of damage and of a torn end.

    Raises:
        UsageError: as ``_gap``.
    """
    if (gap := _gap(log, start, at)) is not None:
        return [gap]
    walk = log.walk(start)
    try:
        with walk.until() as batches:
            any(map(take, batches))
    except FormatError as error:
        return [finding_of_error(error, log.path)]
    if walk.torn_tail is None:
        return []
    kind = "zeros" if walk.torn_tail.kind is TailKind.ZERO_FILLED else "a batch that is not whole"
    message = f"{kind} at byte {walk.torn_tail.position_bytes}, which a broker cuts off"
    return [Finding("torn-tail", Severity.NOTE, log.segments[-1].path, message, walk.end_offset)]


def fault_findings(log: MetadataLog, fold: ImageFold) -> list[Finding]:
    """Records that were left out, and what of the others is not known."""
    findings = unknown_findings(log.path, log.unknown)
    for fault in fold.faults:
        code, severity = ("unknown-record", Severity.FINDING) if fault.name is None else ("contradictory-record", Severity.DAMAGED)
        findings.append(Finding(code, severity, log.path, f"{fault.error.message}; it is left out", fault.offset))
    more = fold.fault_count - len(fold.faults)
    if more:
        message = f"{pluralize(more, 'more record')} that cannot be read or contradict what came before"
        findings.append(Finding("contradictory-record", Severity.DAMAGED, log.path, message))
    return findings
