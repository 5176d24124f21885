"""The rules of a verdict on a source, and those of them that the files of the replica answer.

``lineage`` has the rule on leader epochs, ``cluster_rules`` those that the metadata log answers (R3 to R8, R10). ``verdict`` asks all.

Source: ``LogManager``, ``LogLoader`` of Kafka 4.3.1.
"""

from __future__ import annotations

from enum import StrEnum

from formats.partition.file_names import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, DirectoryForm
from snaprebuild.cluster.rule_result import Basis, Grade, RuleId, RuleResult, RuleState, broken, holds, not_applicable, unknown
from snaprebuild.cluster.source_check.evidence import LogDirEvidence, SourceEvidence
from snaprebuild.snapshots.plan.source_verdict import Purpose

__all__ = [
    "SourceRule",
    "SourceRuleResult",
    "broker_ids",
    "clean_shutdown",
    "directory_form",
    "high_watermark",
    "log_end",
    "rejects",
    "warns",
]


class SourceRule(RuleId):
    """The rules, by their numbers."""

    R1 = "directory-form"
    R2 = "broker-ids"
    R3 = "registration"
    R4 = "directory-id"
    R5 = "topic-id"
    R6 = "assignment"
    R7 = "in-sync"
    R8 = "recovery-state"
    R9 = "clean-shutdown"
    R10 = "broker-epoch"
    R11 = "high-watermark"
    R12 = "leader-epochs"
    R13 = "log-end"

    def sentence(self, evidence: str) -> str:
        """The evidence of a result as the message of a finding."""
        return f"{evidence} (rule {self.name}, {self.value})"

    def state_name(self, state: RuleState, grade: Grade | None) -> str:
        """The state in the documents and tables of ``cluster source``."""
        if state is RuleState.HOLDS and grade is not None:
            return SourceRuleState.WARN
        return _STATE_NAMES[state]


class SourceRuleState(StrEnum):
    """The states of a rule in the documents and tables of ``cluster source``."""

    PASS = "pass"  # noqa: S105  no password
    WARN = "warn"
    """The rule holds, with a reservation."""
    FAIL = "fail"
    NOT_KNOWN = "not-known"
    """Evidence that should exist is missing, cannot be read, or contradicts itself."""
    NOT_APPLICABLE = "not-applicable"
    """This kind of cluster, or this question, has no evidence."""


_STATE_NAMES = {
    RuleState.HOLDS: SourceRuleState.PASS,
    RuleState.BROKEN: SourceRuleState.FAIL,
    RuleState.UNKNOWN: SourceRuleState.NOT_KNOWN,
    RuleState.NOT_APPLICABLE: SourceRuleState.NOT_APPLICABLE,
}


SourceRuleResult = RuleResult[SourceRule]


def warns(rule: SourceRule, evidence: str, trusted_below: int | None = None) -> SourceRuleResult:
    """A rule that holds with a reservation: it rejects nothing, but needs attention."""
    return SourceRuleResult(rule, RuleState.HOLDS, evidence, Grade.INFO, trusted_below=trusted_below)


def rejects(rule: SourceRule, evidence: str) -> SourceRuleResult:
    """A rule that is broken: the replica is rejected."""
    return broken(rule, Grade.REFUSAL, evidence)


NO_BROKER_FILES = "a bare copy of a partition: no file of a broker is around it"
NO_REPLICA_YET = "there is no replica yet"

_FORMS = {
    DirectoryForm.DELETE: "the broker will delete this directory",
    DirectoryForm.STRAY: "the partition is no longer assigned to this broker",
    DirectoryForm.FUTURE: "the partition is being moved here from another log directory",
}


def directory_form(evidence: SourceEvidence) -> SourceRuleResult:
    """R1: the name is plain, and no compaction was interrupted."""
    log = evidence.log
    if log.form in _FORMS:
        return rejects(SourceRule.R1, f"the directory name is not plain ({log.form.value}): {_FORMS.get(log.form)}")
    if log.swapped is not None:
        return rejects(SourceRule.R1, f"a compaction was interrupted ({log.swapped}): start and stop a broker first")
    return holds(SourceRule.R1, "the name is plain, and no compaction was interrupted")


def broker_ids(evidence: SourceEvidence) -> SourceRuleResult:
    """R2: meta.properties can be read, and all directories of the broker are of one cluster and node."""
    own = evidence.log_dir
    if own.meta_fault is not None:
        return rejects(SourceRule.R2, f"meta.properties cannot be read: {own.meta_fault}")
    if not own.has_meta and not own.is_broker_directory:
        return not_applicable(SourceRule.R2, NO_BROKER_FILES)
    if not own.has_meta and evidence.has_metadata_log:
        return rejects(
            SourceRule.R2,
            "there is no meta.properties, which a KRaft broker has in each log directory: the owner of the replica is unknown",
        )
    if not own.has_meta:
        return unknown(SourceRule.R2, "there is no meta.properties")
    if own.node_id is None:
        return rejects(SourceRule.R2, "meta.properties names no broker")
    mixed = _other_broker(own)
    if mixed is not None:
        return rejects(SourceRule.R2, mixed)
    log_of = None if evidence.cluster is None else evidence.cluster.cluster_id
    if None not in (log_of, own.cluster_id) and log_of != own.cluster_id:
        return rejects(
            SourceRule.R2, f"cluster.id is {own.cluster_id} here and {log_of} next to the metadata log: of another cluster"
        )
    siblings = f", as in {len(own.siblings)} other log directories" if own.siblings else ""
    return holds(SourceRule.R2, f"node {own.node_id} of cluster {own.cluster_id}{siblings}")


def _other_broker(own: LogDirEvidence) -> str | None:
    """Where another log directory has the id of another cluster or node, in words; None if all are of one broker."""
    for other in own.siblings:
        for name, mine, theirs in (("cluster.id", own.cluster_id, other.cluster_id), ("node.id", own.node_id, other.node_id)):
            if mine is not None and theirs is not None and mine != theirs:
                return f"{name} is {mine} here and {theirs} in {other.path}: not of one broker"
    return None


def clean_shutdown(evidence: SourceEvidence) -> SourceRuleResult:
    """R9: the broker stopped cleanly, or only what was flushed and replicated is trusted."""
    own = evidence.log_dir
    log = evidence.log
    if not log.exists:
        return not_applicable(SourceRule.R9, NO_REPLICA_YET)
    if not own.is_broker_directory:
        return unknown(SourceRule.R9, NO_BROKER_FILES)
    # A broker takes 0 for what has no line in a checkpoint.
    flushed = max(log.recovery_point or 0, 0)
    replicated = max(log.high_watermark or 0, 0)
    siblings = _registered_siblings(evidence)
    unclean = next((sibling.path for sibling in siblings if not sibling.has_marker), None)
    if own.is_live and own.live_epoch is not None and not own.has_marker:
        return holds(
            SourceRule.R9,
            f"a live broker, of epoch {own.live_epoch} as --broker-epoch says: rolled segments below its high watermark",
            trusted_below=log.closed_below(replicated),
        )
    if own.is_live or not own.has_marker or (unclean is not None and evidence.purpose is not Purpose.REBUILD):
        reason = "no clean-shutdown marker"
        if own.is_live:
            reason = "a live broker is at work"
        elif own.has_marker:
            reason = f"no clean-shutdown marker in {unclean}"
        return warns(
            SourceRule.R9,
            f"{reason}: only rolled segments below its recovery point {flushed} and its high watermark {replicated}",
            log.closed_below(min(flushed, replicated)),
        )
    if unclean is not None:
        return warns(SourceRule.R9, f"stopped cleanly here, and {unclean} has no clean-shutdown marker")
    others = {sibling.marker_epoch for sibling in siblings} - {own.marker_epoch}
    if others:
        return warns(
            SourceRule.R9, f"stopped cleanly, with epoch {own.marker_epoch} here and {', '.join(map(str, others))} elsewhere"
        )
    if own.marker_epoch is None:
        return holds(SourceRule.R9, "stopped cleanly; the marker has no epoch")
    return holds(SourceRule.R9, "stopped cleanly")


def _registered_siblings(evidence: SourceEvidence) -> tuple[LogDirEvidence, ...]:
    """The other log directories of the broker, without disks that were taken out of it, as far as the cluster knows them."""
    registered = evidence.cluster_facts.broker_directories
    if not registered:
        return evidence.log_dir.siblings
    return tuple(each for each in evidence.log_dir.siblings if not each.has_meta or each.directory in registered)


def high_watermark(evidence: SourceEvidence) -> SourceRuleResult:
    """R11: only what was committed leaves the replica; for an upload also only what is stable."""
    log = evidence.log
    mark = log.high_watermark
    is_rebuild = evidence.purpose is Purpose.REBUILD
    if not log.exists:
        return not_applicable(SourceRule.R11, NO_REPLICA_YET)
    if mark is None or mark < 0:
        problem = "has no high watermark" if mark is None else f"has a negative high watermark, {mark}"
        detail = f"replication-offset-checkpoint {problem} for it"
        if is_rebuild:
            return not_applicable(SourceRule.R11, f"{detail}; a rebuild does not ask for it")
        return unknown(SourceRule.R11, f"{detail}: a broker takes 0", trusted_below=0)
    if is_rebuild:
        return holds(
            SourceRule.R11, f"the high watermark is {mark}, the log ends at {log.log_end_offset}: a rebuild describes local bytes"
        )
    if log.is_stable_asked and log.last_stable_offset is None:
        return unknown(
            SourceRule.R11, f"the high watermark is {mark}, and the last stable offset could not be found", trusted_below=0
        )
    stable = "" if log.last_stable_offset is None else f", the last stable offset {log.last_stable_offset}"
    limits = [each for each in (mark, log.log_end_offset, log.last_stable_offset) if each is not None]
    return holds(SourceRule.R11, f"the high watermark is {mark}{stable}", trusted_below=min(limits))


def log_end(evidence: SourceEvidence) -> SourceRuleResult:
    """R13: nothing is missing that was there: the log reaches its high watermark, and is not that of a fresh disk."""
    log = evidence.log
    own = evidence.log_dir
    mark = log.high_watermark
    if not log.exists:
        return not_applicable(SourceRule.R13, NO_REPLICA_YET)
    if log.log_end_offset is None:
        return unknown(SourceRule.R13, "the end of the log cannot be read" if log.bases else "it has no segment")
    end = log.log_end_offset
    is_rebuild = evidence.purpose is Purpose.REBUILD
    start_fault = own.fault_of(LOG_START_OFFSET_CHECKPOINT)
    flush_fault = own.fault_of(RECOVERY_POINT_CHECKPOINT)
    is_below_mark = mark is not None and end < mark
    below = f"the log ends at {end}, below its high watermark {mark}"
    # After an unclean stop the high watermark must show it, too: a follower that was cut may not have written its recovery point again.
    is_short = (own.has_marker or is_below_mark) and log.recovery_point is not None and end < log.recovery_point
    if end < log.log_start_offset and log.bases and not own.is_live:
        return rejects(
            SourceRule.R13,
            f"the log ends at {end}, below its log start offset {log.log_start_offset}: a broker deletes it at its start",
        )
    if is_short and not own.is_live:
        return rejects(
            SourceRule.R13, f"the log ends at {end}, below its recovery point {log.recovery_point}: flushed records are gone"
        )
    if start_fault:
        return unknown(SourceRule.R13, start_fault, basis=Basis.DAMAGED_FILE)
    if own.has_marker and mark is not None and log.recovery_point is None:
        return unknown(
            SourceRule.R13,
            flush_fault or f"{RECOVERY_POINT_CHECKPOINT} has no line of it, and each clean stop writes one",
            basis=Basis.DAMAGED_FILE,
        )
    if is_below_mark and is_rebuild and not own.has_marker:
        return warns(SourceRule.R13, f"{below}: lost with the unclean stop", log.closed_below(end))
    if is_below_mark:
        return rejects(SourceRule.R13, f"{below}: committed records are gone")
    if mark is None and not is_rebuild:
        return unknown(
            SourceRule.R13, f"the log ends at {end}, and whether it reached further is not known: it has no high watermark"
        )
    if log.is_empty:
        return _empty(evidence)
    return holds(SourceRule.R13, f"the log ends at {end}" + ("" if mark is None else f", its high watermark is {mark}"))


def _empty(evidence: SourceEvidence) -> SourceRuleResult:
    """A replaced disk leaves an empty log, with a high watermark of 0; nothing on it shows that."""
    replaced_at = evidence.cluster_facts.replaced_at
    epoch = evidence.registered.leader_epoch
    peers = [peer for peer in evidence.peers if not evidence.is_of_another_log(peer)]
    longer = [
        f"{peer.path} ends at {peer.log_end_offset}"
        for peer in peers
        if (peer.log_end_offset or 0) > (evidence.log.log_end_offset or 0)
    ]
    if replaced_at is not None:
        return rejects(
            SourceRule.R13, f"empty, and this log directory was first registered at {replaced_at}, when the partition was there"
        )
    if longer and evidence.purpose is not Purpose.REBUILD:
        return rejects(SourceRule.R13, f"empty, and {longer[0]}")
    if epoch > 0:
        return warns(SourceRule.R13, f"empty, in leader epoch {epoch}: never written to, or the disk was replaced")
    return holds(SourceRule.R13, "empty")
