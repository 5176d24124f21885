"""Rules for log directories: which snapshot may be written into them, by place and class; findings about boundaries that are skipped.

Reasons about the log are those of ``boundary_needs``. Reasons about the place are here: they matter in a log directory, and not under
``--out``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from snaprebuild.broker.fates import Fate
from snaprebuild.broker.status import CONSEQUENCES
from snaprebuild.errors import RefusedError
from snaprebuild.findings import Finding, FindingCause, Severity
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.source.boundary_needs import LeftOut, LeftOutReason, reason_not_needed
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.storage.local.broker_lock import HOLDER_NOT_VISIBLE, broker_version

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_model import PartitionPlan

__all__ = [
    "IRREGULAR_NAME",
    "TOPIC_ID_ZERO",
    "check_running_brokers",
    "is_needed_after",
    "not_planned_findings",
    "reason_against_class",
    "reason_against_writing_in_place",
    "reason_against_writing_while_running",
    "reason_for_distrust",
    "reason_of_fate",
]

KEEPS_SNAPSHOTS_FROM = (2, 8)
"""Up to 2.7 ``Log.deleteSnapshotsAfterRecoveryPointCheckpoint`` removes all but the newest, within a minute."""

UNKNOWN_RELEASE = (
    "the release of Kafka that runs here is not known: one of 2.7 or older deletes the snapshots again within a minute; for such a broker "
    "use `stage` and `install`"
)


NO_BROKER_FILES = LeftOutReason(
    LeftOut.NO_BROKER_FILES,
    "this is not a broker's log directory: meta.properties and the checkpoints are missing; use --out DIR",
)
CLEANER_UNKNOWN = LeftOutReason(
    LeftOut.CLEANER_UNKNOWN, "the cleaner's checkpoint cannot be read, so the topic may be compacted; use --out DIR"
)
IRREGULAR_NAME = LeftOutReason(LeftOut.IRREGULAR_NAME, "its name belongs to a directory, link or pipe: move that away first")
TOPIC_ID_ZERO = LeftOutReason(LeftOut.TOPIC_ID_ZERO, "the segment below would be uploaded under topic id zero")


def reason_against_class(snapshot_class: SnapshotClass, *, allow_unproven: bool) -> str | None:
    """Why its class keeps a snapshot from log directories, or None."""
    if snapshot_class.may_be_written(allow_unproven=allow_unproven):
        return None
    if snapshot_class is SnapshotClass.UNPROVEN:
        return "an UNPROVEN snapshot is written with --allow-unproven only"
    return f"an {snapshot_class.value} snapshot is never written into a log directory"


def reason_against_writing_in_place(
    partition: PartitionSource, offset: int, *, is_log_end: bool, before_stop: bool = False
) -> LeftOutReason | None:
    """Why a snapshot at a boundary must not be written into the log directory, or None. Arguments as of ``reason_not_needed``."""
    why_not = reason_not_needed(partition, offset, is_log_end=is_log_end, before_stop=before_stop)
    if why_not is not None:
        return why_not
    if not partition.log_dir.is_broker_directory:
        return NO_BROKER_FILES
    if not partition.log_dir.is_cleaner_known:
        return CLEANER_UNKNOWN
    return None


def reason_against_writing_while_running(partition: PartitionSource, offset: int) -> LeftOutReason | None:
    """Why a snapshot must not be written into the log directory of a running broker, or None.

    Its segments must be rolled, flushed and committed: no append, truncation or recovery changes those.
    """
    reason = reason_against_writing_in_place(partition, offset, is_log_end=False, before_stop=True)
    if reason is not None:
        return reason
    if offset >= partition.directory.segments[-1].base_offset:
        text = "the broker still writes the active segment: it writes the snapshots from there on itself"
        return LeftOutReason(LeftOut.MADE_BY_BROKER, text)
    if offset > partition.recovery_point:
        text = f"it is above the recovery point {partition.recovery_point}: a broker that is killed now regenerates it"
        return LeftOutReason(LeftOut.MADE_BY_BROKER, text)
    high_watermark = (partition.log_dir.high_watermarks or {}).get(partition.directory.topic_partition, 0)
    if offset > high_watermark:
        text = f"it is above the high watermark {high_watermark} of the checkpoint: the log may still be cut there"
        return LeftOutReason(LeftOut.MADE_BY_BROKER, text)
    return None


def reason_for_distrust(plan: PartitionPlan, offset: int, *, after_clean_stop: bool = False) -> LeftOutReason | None:
    """Why the verdict on a replica keeps a snapshot at this offset from being written into it, or None.

    Args:
        plan: of the partition, with its verdict.
        offset: of the snapshot.
        after_clean_stop: answer for the time after the next clean stop, as for a broker that runs.
    """
    verdict = plan.verdict
    if verdict is None:
        return None
    if verdict.is_rejected:
        return LeftOutReason(LeftOut.DISTRUSTED, f"the replica is {verdict}: {verdict.reason}")
    limit = verdict.trusted_below_after_clean_stop if after_clean_stop else verdict.trusted_below
    if limit is None or offset <= limit:
        return None
    return LeftOutReason(LeftOut.DISTRUSTED, f"nothing above offset {limit} is trusted: {verdict.reason_of_limit(limit)}")


def is_needed_after(fate: Fate) -> bool:
    """Whether a broker may need the snapshots that are left out."""
    return fate.severity is not Severity.NOTE


def reason_of_fate(fate: Fate) -> LeftOutReason:
    """Why nothing is written because of the next start."""
    releases = "" if fate.releases is None else f" (Kafka {fate.releases})"
    kind = LeftOut.UNSAFE_START if is_needed_after(fate) else LeftOut.OLD_REPLICA
    return LeftOutReason(kind, f"{fate.cause}: {CONSEQUENCES[fate.kind]}{releases}")


def not_planned_findings(plan: PartitionPlan) -> list[Finding]:
    """A finding for each boundary that is not planned: a note where no broker needs it. ``TOPIC_ID_ZERO`` has one for its broker."""
    findings = []
    for offset, reason in plan.not_planned:
        if reason.kind is LeftOut.TOPIC_ID_ZERO:
            continue
        code, severity = ("not-known-to-be-due", Severity.FINDING) if reason.may_be_needed else ("not-due", Severity.NOTE)
        findings.append(Finding(code, severity, plan.path, reason.text, offset))
    return findings


def check_running_brokers(source: Source) -> list[Finding]:
    """Makes sure that a broker runs on each log directory that would be written to, and that it leaves the snapshots alone.

    Returns:
        A note for each directory.

    Raises:
        RefusedError: no broker runs on one of them, or one that would delete what is written, or that is not known.
    """
    notes = []
    for state in source.log_dirs:
        if not state.is_broker_directory:
            continue  # nothing is due there
        holder = source.facts.holder(state.path)
        if holder is None:
            raise RefusedError(
                "no broker runs here: leave out --broker-running, so that no broker can start meanwhile", path=state.path
            )
        version = None if holder == HOLDER_NOT_VISIBLE else broker_version(holder)
        if version is not None and version < KEEPS_SNAPSHOTS_FROM:
            raise RefusedError(
                f"Kafka {version[0]}.{version[1]} runs here, which deletes such snapshots within a minute: use `stage` and `install`",
                path=state.path,
            )
        runs = UNKNOWN_RELEASE if version is None else f"Kafka {version[0]}.{version[1]} runs here"
        notes.append(
            Finding(
                "while-broker-runs",
                Severity.NOTE,
                state.path,
                f"{runs}; it uses the written snapshots after its next start",
                cause=FindingCause.WHILE_BROKER_RUNS,
            )
        )
    return notes
