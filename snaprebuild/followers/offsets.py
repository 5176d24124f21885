"""The answers that a leader would give to ListOffsets, from its directory and the store: each with the rule that gave it."""

from __future__ import annotations

from dataclasses import dataclass, field

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, finding_of_error
from snaprebuild.followers import Profile
from snaprebuild.followers.leader_view import PartitionView, view_partitions
from snaprebuild.followers.list_offsets import (
    Isolation,
    ListedOffset,
    LogOffsets,
    SpecialTimestamp,
    list_offset,
    pending_upload_of_proposal,
)
from snaprebuild.followers.time_search import LogSearch
from snaprebuild.snapshots.last_stable import Known, last_stable_offsets
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import Source
from snaprebuild.tier.remote_partition import Tier

__all__ = [
    "Answer",
    "OffsetsQuestion",
    "OffsetsResult",
    "PartitionOffsets",
    "list_offsets",
    "log_offsets_of",
]

UNSETTLED = (SpecialTimestamp.LATEST_TIERED, SpecialTimestamp.EARLIEST_PENDING_UPLOAD)
"""The special timestamps whose answer depends on remote storage."""

UNCOMPARED = (SpecialTimestamp.EARLIEST, SpecialTimestamp.EARLIEST_LOCAL)
"""Those whose answer is not compared with what may be fetched."""


@dataclass(frozen=True, slots=True)
class OffsetsQuestion:
    """The timestamps, and the facts that decide the answers.

    Attributes:
        timestamps: ms since 1970, or special ones.
        isolation: who asks.
        version: of the request.
        profile: whose rules for -6.
        leader_epoch: of today's leader; None for the last one in the checkpoint, of a leader that has settled.
        high_watermark: None for that of the checkpoint.
        remote_storage: whether remote storage is on; None to take it from checkpoints and copies.
    """

    timestamps: tuple[int, ...]
    isolation: Isolation
    version: int
    profile: Profile
    leader_epoch: int | None = None
    high_watermark: int | None = None
    remote_storage: bool | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.

    Attributes:
        timestamp: asked for.
        listed: the answer; None if it is unknown.
        found_in: the segment or copy that a search ended in, or None.
        why: the rule that gave it, or why it is unknown.
    """

    timestamp: int
    listed: ListedOffset | None
    found_in: str | None
    why: str


@dataclass(slots=True)
class PartitionOffsets:
    """One partition.

    Attributes:
        view: of its files and the store.
        high_watermark: that is used, as ``leader_epoch``.
        last_stable: that is used; None unless only committed records are asked for.
        answers: in the order of the question.
    """

    view: PartitionView
    high_watermark: Known
    last_stable: Known | None
    leader_epoch: Known
    answers: list[Answer] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class OffsetsResult:
    """All partitions, with their findings."""

    question: OffsetsQuestion
    partitions: list[PartitionOffsets] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def list_offsets(source: Source, tier: Tier | None, question: OffsetsQuestion, run: Run) -> OffsetsResult:
    """The answers that the leader of each partition would give.

    Args:
        source: from ``open_source``.
        tier: the store, or None.
        question: the timestamps.
        run: its clock decides which snapshot at the first offset is trusted.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    found, findings = view_partitions(source, tier, question.remote_storage)
    views = [(view, view.high_watermark_of(question.high_watermark)) for view in found]
    stable = dict[str, Known]()
    if question.isolation is Isolation.READ_COMMITTED:
        stable, damage = last_stable_offsets([(view.source, view.log_start.value, mark) for view, mark in views], run)
        findings += damage
    result = OffsetsResult(question, findings=findings)
    for view, mark in views:
        path = view.directory.path
        try:
            offsets = _answered(view, mark, question, stable.get(path))
        except (FormatError, SnaprebuildError) as error:
            findings.append(finding_of_error(error, path))
        else:
            result.partitions.append(offsets)
            findings += offsets.findings
    return result


def _answered(view: PartitionView, mark: Known, question: OffsetsQuestion, stable: Known | None) -> PartitionOffsets:
    log, epoch = log_offsets_of(view, mark.value, mark.value if stable is None else stable.value, question.leader_epoch)
    offsets = PartitionOffsets(view, mark, stable, epoch)
    search = LogSearch(view)
    for timestamp in question.timestamps:
        try:
            answer = _answer(view, log, timestamp, question, search, has_stable=stable is not None)
        except (FormatError, SnaprebuildError) as error:
            offsets.findings.append(finding_of_error(error, view.directory.path))
            why = error.message if isinstance(error, FormatError) else str(error)
            answer = Answer(timestamp, None, search.found_in, f"the search ended: {why}")
        offsets.answers.append(answer)
    return offsets


def log_offsets_of(
    view: PartitionView, high_watermark: int, last_stable: int, leader_epoch: int | None
) -> tuple[LogOffsets, Known]:
    """A partition as ``list_offset`` takes it, and the leader epoch with where it comes from."""
    last = view.epochs[-1] if view.epochs else None
    if leader_epoch is None:
        epoch = Known(-1 if last is None else last.epoch, "the last leader epoch of the checkpoint, whose leader has settled", True)
        start = 0
    else:
        epoch = Known(leader_epoch, "--assume leader_epoch")
        start = last.start_offset if last is not None and last.epoch == leader_epoch else view.log_end.value
    log = LogOffsets(
        has_remote=view.has_remote,
        log_start=view.log_start.value,
        local_start=view.local_start.value,
        highest_remote=-1 if view.highest_remote is None else view.highest_remote.value,
        high_watermark=high_watermark,
        last_stable=last_stable,
        log_end=view.log_end.value,
        epochs=view.epochs,
        leader_epoch=epoch.value,
        epoch_start=start,
    )
    return log, epoch


def _answer(
    view: PartitionView,
    log: LogOffsets,
    timestamp: int,
    question: OffsetsQuestion,
    search: LogSearch,
    *,
    has_stable: bool,
) -> Answer:
    if question.isolation is Isolation.READ_COMMITTED and not has_stable and timestamp not in UNCOMPARED:
        return Answer(timestamp, None, None, "the last stable offset is unknown, because the log on disk is damaged")
    asks_remote = timestamp in UNSETTLED or (timestamp >= 0 and log.log_end > log.log_start)
    if asks_remote and view.has_remote and view.remote is None:
        return Answer(timestamp, None, None, "remote storage is on for the topic, and its content is unknown: name the store")
    search.found_in = None
    listed = list_offset(log, timestamp, question.isolation, search, question.version)
    if timestamp == SpecialTimestamp.EARLIEST_PENDING_UPLOAD and question.profile is Profile.PROPOSAL and listed.error is None:
        listed = pending_upload_of_proposal(log)
    return Answer(timestamp, listed, search.found_in if listed.offset >= 0 else None, listed.why)
