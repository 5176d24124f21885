"""Which snapshots are due in a broker's log directory, and what becomes of a boundary that is left out."""

from __future__ import annotations

from snaprebuild.operations.findings import Finding, Severity
from snaprebuild.operations.planned import PartitionPlan, Request
from snaprebuild.operations.source import PartitionSource, TopicKind

__all__ = ["IRREGULAR_NAME", "is_missed", "left_out_findings", "not_due", "not_due_in_place", "not_trusted"]

NO_BROKER_FILES = "no broker's files lie around it, so that nothing tells what a broker would do here: write with --out"
CLEANER_UNKNOWN = "the cleaner's checkpoint cannot be read, so that nothing tells whether the topic is compacted: write with --out"
IRREGULAR_NAME = "its name belongs to a directory, link or pipe: move that away first"
END_BELOW_RECOVERY_POINT = "the log ends below its recovery point: its last segment has lost its end"
NOT_KNOWN_TO_BE_DUE = frozenset((NO_BROKER_FILES, CLEANER_UNKNOWN, END_BELOW_RECOVERY_POINT, IRREGULAR_NAME))
"""Reasons for which something that a broker may need is left out."""


def not_due(request: Request, partition: PartitionSource, offset: int, *, is_log_end: bool) -> str | None:
    """Why a snapshot at this offset must not be written where the request wants it, which is no ``--out``, or None."""
    if request.stage:
        return _not_due_when_stopped(partition, offset)
    if request.broker_running:
        return _not_due_while_running(partition, offset)
    return not_due_in_place(partition, offset, is_log_end=is_log_end)


def not_due_in_place(partition: PartitionSource, offset: int, *, is_log_end: bool) -> str | None:
    """Why a snapshot at this offset must not be written into the log directory, or None."""
    reason = _not_due_anyhow(partition, offset, is_log_end=is_log_end)
    if reason is not None or partition.log_dir.was_shut_down_cleanly:
        return reason
    if is_log_end:
        return "the broker was not shut down cleanly: it writes the one at the log end itself"
    if offset > partition.recovery_point:
        return f"the broker was not shut down cleanly: above its recovery point {partition.recovery_point} it regenerates snapshots"
    return None


def _not_due_when_stopped(partition: PartitionSource, offset: int) -> str | None:
    """The same before a clean stop that is to come."""
    reason = _not_due_anyhow(partition, offset, is_log_end=False)
    if reason is None and offset > partition.directory.segments[-1].base_offset:
        return "the log end moves while the broker runs, which writes the one there itself when it stops"
    return reason


def _not_due_while_running(partition: PartitionSource, offset: int) -> str | None:
    """Only what no append, no truncation and no recovery comes near: closed, flushed, and committed."""
    reason = _not_due_anyhow(partition, offset, is_log_end=False)
    if reason is not None:
        return reason
    if offset >= partition.directory.segments[-1].base_offset:
        return "the broker is at work on the active segment: it writes snapshots from there on itself"
    if offset > partition.recovery_point:
        return f"it lies above the recovery point {partition.recovery_point}: a broker that is killed now regenerates it"
    high_watermark = (partition.log_dir.high_watermarks or {}).get(partition.topic_partition, 0)
    if offset > high_watermark:
        return f"it lies above the high watermark {high_watermark} of the checkpoint: the log may still be cut there"
    return None


def _not_due_anyhow(partition: PartitionSource, offset: int, *, is_log_end: bool) -> str | None:
    kind = partition.topic_kind
    if kind is TopicKind.CLUSTER_METADATA:
        return "the cluster metadata log keeps its own snapshots"
    if kind is not TopicKind.ORDINARY:
        return "an internal topic is never uploaded to tiered storage"
    if partition.is_compacted:
        return "a compacted topic is never uploaded to tiered storage"
    if is_log_end and offset < partition.recovery_point:
        return END_BELOW_RECOVERY_POINT
    if offset <= partition.log_start_offset:
        return f"a broker deletes snapshots at or below the log start offset {partition.log_start_offset}"
    if not partition.log_dir.is_broker_directory:
        return NO_BROKER_FILES
    if not partition.log_dir.is_cleaner_known:
        return CLEANER_UNKNOWN
    return None


def not_trusted(plan: PartitionPlan, offset: int) -> str | None:
    """Why the verdict on a replica keeps a snapshot at this offset from being written into it, or None."""
    verdict = plan.verdict
    if verdict is None or not (verdict.is_rejected or (verdict.offset is not None and offset > verdict.offset)):
        return None
    return f"the replica is {verdict}: {verdict.why}"


def is_missed(plan: PartitionPlan, offset: int, reason: str) -> bool:
    """Whether a boundary that was left out for a reason may be one that a broker needs, and does not make itself."""
    return reason in NOT_KNOWN_TO_BE_DUE or reason == not_trusted(plan, offset)


def left_out_findings(plan: PartitionPlan) -> list[Finding]:
    """What is to be told of the boundaries that a plan leaves out."""
    found = []
    for offset, reason in plan.left_out:
        # What a broker does not need, or makes itself, is nobody's business; what it needs and we may not write is.
        is_known = not is_missed(plan, offset, reason)
        code, severity = ("not-due", Severity.NOTE) if is_known else ("not-known-to-be-due", Severity.FINDING)
        found.append(Finding(code, severity, plan.source.directory.path, reason, offset))
    return found
