"""The rules of a verdict on a source that the files of the replica answer, and what a ruling is.

``lineage`` has the rule on leader epochs, ``cluster_rules`` those that the metadata log answers.

Source: ``LogManager``, ``LogLoader`` of Kafka 4.3.1.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from formats.partition.file_names import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, DirectoryForm
from snaprebuild.cluster.source_check.evidence import LogDirEvidence, Purpose, SourceEvidence

__all__ = [
    "RuleState",
    "Ruling",
    "broker_ids",
    "clean_shutdown",
    "directory_form",
    "fails",
    "high_watermark",
    "log_end",
    "not_applicable",
    "not_known",
    "passes",
    "warns",
]


class RuleState(StrEnum):
    """The outcome of a rule."""

    PASS = "pass"  # noqa: S105  # no password
    WARN = "warn"
    """It does not reject, but needs attention."""
    FAIL = "fail"
    NOT_KNOWN = "not-known"
    """Evidence that should be there is missing, cannot be read, or contradicts itself."""
    NOT_APPLICABLE = "not-applicable"
    """Nothing is missing: this kind of cluster, or this question, has no such evidence."""


class Ruling(msgspec.Struct, frozen=True):
    """The outcome of a rule for one replica.

    Attributes:
        evidence: the facts, one sentence.
        limit: the replica is trusted below this offset only; None for all of it.
        is_asserted: it rests on what the operator asserts.
        is_damaged: a file of the replica that could reject it is damaged, or missing although each broker of this kind writes it.
        is_own_log_alone: only the broker's own metadata log has evidence, after an unclean stop.
        is_broken_so_far: the records that a metadata log still has break the rule, and only records that it lost could mend that.
    """

    state: RuleState
    evidence: str
    limit: int | None = None
    is_asserted: bool = False
    is_damaged: bool = False
    is_own_log_alone: bool = False
    is_broken_so_far: bool = False


def passes(evidence: str, limit: int | None = None, *, is_asserted: bool = False) -> Ruling:
    """A rule that holds."""
    return Ruling(RuleState.PASS, evidence, limit, is_asserted)


def warns(evidence: str, limit: int | None = None) -> Ruling:
    """A rule that holds with a reservation."""
    return Ruling(RuleState.WARN, evidence, limit)


def fails(evidence: str) -> Ruling:
    """A rule that rejects the replica."""
    return Ruling(RuleState.FAIL, evidence)


def not_known(
    evidence: str | None,
    limit: int | None = None,
    *,
    is_damaged: bool = False,
    is_own_log_alone: bool = False,
    is_broken_so_far: bool = False,
) -> Ruling:
    """A rule without evidence that should be there."""
    return Ruling(
        RuleState.NOT_KNOWN,
        evidence or "",
        limit,
        is_damaged=is_damaged,
        is_own_log_alone=is_own_log_alone,
        is_broken_so_far=is_broken_so_far,
    )


def not_applicable(evidence: str | None) -> Ruling:
    """A rule without evidence that this kind of cluster, or this question, never has."""
    return Ruling(RuleState.NOT_APPLICABLE, evidence or "")


NO_BROKER_FILES = "a bare copy of a partition: no file of a broker is around it"
NO_REPLICA_YET = "there is no replica yet"

_FORMS = {
    DirectoryForm.DELETE: "the broker will delete this directory",
    DirectoryForm.STRAY: "the partition is no longer assigned to this broker",
    DirectoryForm.FUTURE: "the partition is being moved here from another log directory",
}


def directory_form(evidence: SourceEvidence) -> Ruling:
    """R1: the name is plain, and no compaction was interrupted."""
    log = evidence.log
    if log.form in _FORMS:
        return fails(f"the directory name is not plain ({log.form.value}): {_FORMS.get(log.form)}")
    if log.swapped is not None:
        return fails(f"a compaction was interrupted ({log.swapped}): start and stop a broker first")
    return passes("the name is plain, and no compaction was interrupted")


def broker_ids(evidence: SourceEvidence) -> Ruling:
    """R2: meta.properties can be read, and all directories of the broker are of one cluster and node."""
    own, log_of = evidence.log_dir, None if evidence.cluster is None else evidence.cluster.cluster_id
    mixed = [
        f"{what} is {mine} here and {theirs} in {other.path}: not of one broker"
        for other in own.siblings
        for what, mine, theirs in (("cluster.id", own.cluster_id, other.cluster_id), ("node.id", own.node_id, other.node_id))
        if mine is not None and theirs is not None and mine != theirs
    ]
    siblings = f", as in {len(own.siblings)} other log directories" if own.siblings else ""
    if own.meta_fault is not None:
        return fails(f"meta.properties cannot be read: {own.meta_fault}")
    if not own.has_meta and not own.is_broker_directory:
        return not_applicable(NO_BROKER_FILES)
    if not own.has_meta and evidence.has_metadata_log:
        return fails(
            "there is no meta.properties, which a KRaft broker has in each log directory: the owner of the replica is unknown"
        )
    if not own.has_meta:
        return not_known("there is no meta.properties")
    if own.node_id is None:
        return fails("meta.properties names no broker")
    if mixed:
        return fails(mixed[0])
    if None not in (log_of, own.cluster_id) and log_of != own.cluster_id:
        return fails(f"cluster.id is {own.cluster_id} here and {log_of} next to the metadata log: of another cluster")
    return passes(f"node {own.node_id} of cluster {own.cluster_id}{siblings}")


def clean_shutdown(evidence: SourceEvidence) -> Ruling:
    """R9: the broker stopped cleanly, or only what was flushed and replicated is trusted."""
    own, log = evidence.log_dir, evidence.log
    # A broker takes 0 for what has no line in a checkpoint.
    flushed, replicated = max(log.recovery_point or 0, 0), max(log.high_watermark or 0, 0)
    siblings = _registered_siblings(evidence)
    unclean = next((each.path for each in siblings if not each.has_marker), None)
    why = "a live broker is at work" if own.is_live else "no clean-shutdown marker"
    why += f" in {unclean}" if own.has_marker and not own.is_live else ""
    others = {each.marker_epoch for each in siblings} - {own.marker_epoch}
    if not log.exists:
        return not_applicable(NO_REPLICA_YET)
    if not own.is_broker_directory:
        return not_known(NO_BROKER_FILES)
    if own.is_live and own.live_epoch is not None and not own.has_marker:
        return passes(
            f"a live broker, of epoch {own.live_epoch} as --broker-epoch says: rolled segments below its high watermark",
            log.closed_below(replicated),
        )
    if own.is_live or not own.has_marker or (unclean is not None and evidence.purpose is not Purpose.REBUILD):
        return warns(
            f"{why}: only rolled segments below its recovery point {flushed} and its high watermark {replicated}",
            log.closed_below(min(flushed, replicated)),
        )
    if unclean is not None:
        return warns(f"stopped cleanly here, and {unclean} has no clean-shutdown marker")
    if others:
        return warns(f"stopped cleanly, with epoch {own.marker_epoch} here and {', '.join(map(str, others))} elsewhere")
    if own.marker_epoch is None:
        return passes("stopped cleanly; the marker has no epoch")
    return passes("stopped cleanly")


def _registered_siblings(evidence: SourceEvidence) -> tuple[LogDirEvidence, ...]:
    """The other log directories of the broker, without disks that were taken out of it, as far as the cluster knows them."""
    registered = evidence.known.broker_directories
    return tuple(
        each for each in evidence.log_dir.siblings if not (registered and each.has_meta) or each.directory_id in registered
    )


def high_watermark(evidence: SourceEvidence) -> Ruling:
    """R11: only what was committed leaves the replica; for an upload also only what is stable."""
    log, mark, is_rebuild = evidence.log, evidence.log.high_watermark, evidence.purpose is Purpose.REBUILD
    is_missing = mark is None or mark < 0
    found = "has no high watermark" if mark is None else f"has a negative high watermark, {mark}"
    detail = f"replication-offset-checkpoint {found} for it"
    limits = [each for each in (mark, log.log_end, log.last_stable) if each is not None]
    stable = "" if log.last_stable is None else f", the last stable offset {log.last_stable}"
    if not log.exists:
        return not_applicable(NO_REPLICA_YET)
    if is_missing and is_rebuild:
        return not_applicable(f"{detail}; a rebuild does not ask for it")
    if is_missing:
        return not_known(f"{detail}: a broker takes 0", 0)
    if is_rebuild:
        return passes(f"the high watermark is {mark}, the log ends at {log.log_end}: a rebuild describes local bytes")
    if log.is_stable_asked and log.last_stable is None:
        return not_known(f"the high watermark is {mark}, and the last stable offset could not be found", 0)
    return passes(f"the high watermark is {mark}{stable}", min(limits, default=None))


def log_end(evidence: SourceEvidence) -> Ruling:
    """R13: nothing is missing that was there: the log reaches its high watermark, and is not that of a fresh disk."""
    log, own, mark = evidence.log, evidence.log_dir, evidence.log.high_watermark
    if not log.exists:
        return not_applicable(NO_REPLICA_YET)
    if log.log_end is None:
        return not_known("the end of the log cannot be read" if log.bases else "it has no segment")
    end, is_rebuild = log.log_end, evidence.purpose is Purpose.REBUILD
    start_fault, flush_fault = own.fault_of(LOG_START_OFFSET_CHECKPOINT), own.fault_of(RECOVERY_POINT_CHECKPOINT)
    is_below_mark = mark is not None and end < mark
    below = f"the log ends at {end}, below its high watermark {mark}"
    # After an unclean stop the high watermark must show it, too: a follower that was cut may not have written its recovery point again.
    is_short = (own.has_marker or is_below_mark) and log.recovery_point is not None and end < log.recovery_point
    if end < log.log_start and log.bases and not own.is_live:
        return fails(f"the log ends at {end}, below its log start offset {log.log_start}: a broker deletes it at its start")
    if is_short and not own.is_live:
        return fails(f"the log ends at {end}, below its recovery point {log.recovery_point}: flushed records are gone")
    if start_fault:
        return not_known(start_fault, is_damaged=True)
    if own.has_marker and mark is not None and log.recovery_point is None:
        return not_known(
            flush_fault or f"{RECOVERY_POINT_CHECKPOINT} has no line of it, and each clean stop writes one", is_damaged=True
        )
    if is_below_mark and is_rebuild and not own.has_marker:
        return warns(f"{below}: lost with the unclean stop", log.closed_below(end))
    if is_below_mark:
        return fails(f"{below}: committed records are gone")
    if mark is None and not is_rebuild:
        return not_known(f"the log ends at {end}, and whether it reached further is not known: it has no high watermark")
    if log.is_empty:
        return _empty(evidence)
    return passes(f"the log ends at {end}" + ("" if mark is None else f", its high watermark is {mark}"))


def _empty(evidence: SourceEvidence) -> Ruling:
    """A replaced disk leaves an empty log, with a high watermark of 0; nothing on it shows that."""
    replaced_at, epoch = evidence.known.replaced_at, evidence.registered.leader_epoch
    peers = [peer for peer in evidence.peers if not evidence.is_of_another_log(peer)]
    longer = [f"{peer.path} ends at {peer.log_end}" for peer in peers if (peer.log_end or 0) > (evidence.log.log_end or 0)]
    if replaced_at is not None:
        return fails(f"empty, and this log directory was first registered at {replaced_at}, when the partition was there")
    if longer and evidence.purpose is not Purpose.REBUILD:
        return fails(f"empty, and {longer[0]}")
    if epoch > 0:
        return warns(f"empty, in leader epoch {epoch}: never written to, or the disk was replaced")
    return passes("empty")
