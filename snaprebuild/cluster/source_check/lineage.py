"""Rule R12: the leader epochs of a replica against those of the cluster, and of other replicas.

Source: ``LeaderEpochFileCache``; KIP-101: records that a follower would truncate were never part of the log that continued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import LEADER_EPOCH_CHECKPOINT
from snaprebuild.cluster.rule_result import Basis, holds, not_applicable, unknown
from snaprebuild.cluster.source_check.evidence import PeerEvidence, SourceEvidence
from snaprebuild.cluster.source_check.rules import SourceRule, SourceRuleResult, rejects, warns
from snaprebuild.replay.leader_epochs import end_of_epoch

__all__ = ["diverging_epoch", "leader_epochs", "truncated_at"]


def leader_epochs(evidence: SourceEvidence) -> SourceRuleResult:
    """R12: ascending, none below that of the last batch, and none that begins elsewhere in another replica.

    One above the cluster's shows that the metadata log is older than the replica (``older_than_replica``).
    """
    log = evidence.log
    epochs = evidence.log.epochs
    tail = evidence.log.tail_epoch
    if (fault := log.fault_of(LEADER_EPOCH_CHECKPOINT)) is not None:
        return unknown(SourceRule.R12, fault, basis=Basis.DAMAGED_FILE)
    if not epochs:
        problem = "is missing" if epochs is None else "is empty"
        if tail is not None and tail >= 0:
            return unknown(
                SourceRule.R12,
                f"leader-epoch-checkpoint {problem}, and the last batch has leader epoch {tail}: do not let this replica lead",
                basis=Basis.DAMAGED_FILE,
            )
        return not_applicable(SourceRule.R12, "it has no leader epochs: no replica yet, an empty log, or message formats 0 and 1")
    unordered = next(
        (
            f"leader epoch {after.epoch} from {after.start_offset} follows {before.epoch} from {before.start_offset}"
            for before, after in pairwise(epochs)
            if after.epoch <= before.epoch or after.start_offset < before.start_offset
        ),
        None,
    )
    comparable = [peer for peer in evidence.peers if peer.epochs and not evidence.is_of_another_log(peer)]
    diverged = _first_divergence(epochs, comparable)
    if unordered or (diverged and not log.is_compacted):
        return rejects(SourceRule.R12, unordered or diverged)
    if log.is_uncovered:
        first = epochs[0]
        return unknown(
            SourceRule.R12,
            f"leader-epoch-checkpoint begins with {first.epoch} from {first.start_offset}, and batches below it are there: "
            "do not let this replica lead",
            basis=Basis.DAMAGED_FILE,
        )
    limit = None
    reservations = []
    for peer in evidence.peers:
        end = truncated_at(epochs, log.log_end_offset, peer) if peer in comparable else None
        if peer not in comparable:
            reservations.append(f"{peer.path} cannot be compared: another topic id or cluster, or no leader epochs")
        elif end is not None and (limit is None or end < limit):
            limit = end
            reservations.append(f"the log continued without it from {end}, by {peer.path}")
    last = epochs[-1].epoch
    reason = evidence.unregistered_reason
    summary = f"up to {last}, ascending" + (f"; the cluster's is {evidence.registered.leader_epoch}" if reason is None else "")
    compared = f"; as {len(evidence.peers)} other replicas have them" if evidence.peers else ""
    alone = f"; compared with nothing: {reason}" if not compared and reason is not None else ""
    if limit is None and (tail or 0) > last and evidence.log_dir.has_marker:
        return unknown(
            SourceRule.R12,
            f"leader-epoch-checkpoint ends with {last}, and the last batch has leader epoch {tail}: do not let this replica lead",
            basis=Basis.DAMAGED_FILE,
        )
    if reservations:
        return warns(SourceRule.R12, "; ".join((summary, *reservations)), limit)
    return holds(SourceRule.R12, summary + alone + compared)


def _first_divergence(epochs: Sequence[LeaderEpochEntry], peers: Iterable[PeerEvidence]) -> str:
    """The first epoch that begins elsewhere in a peer; empty without one."""
    for peer in peers:
        reason = diverging_epoch(epochs, peer.epochs or ())
        if reason is not None:
            return f"{reason}, in {peer.path}"
    return ""


def diverging_epoch(mine: Sequence[LeaderEpochEntry], theirs: Sequence[LeaderEpochEntry]) -> str | None:
    """The first epoch that begins elsewhere in another replica; None if there is none.

    The first entry of a log begins no lower than the log does, and so it may have been raised.
    """
    epoch_entries = {entry.epoch: entry for entry in theirs}
    for entry in mine:
        other = epoch_entries.get(entry.epoch)
        if other is None or other.start_offset == entry.start_offset:
            continue
        raised = mine[0] if entry.start_offset > other.start_offset else theirs[0]
        if raised.epoch != entry.epoch:
            return f"leader epoch {entry.epoch} begins at {entry.start_offset} here and at {other.start_offset} there"
    return None


def truncated_at(mine: Sequence[LeaderEpochEntry], log_end_offset: int | None, peer: PeerEvidence) -> int | None:
    """Where a follower of a peer that knows a later epoch would cut its log; None if it would not (``OffsetsForLeaderEpoch``)."""
    theirs = peer.epochs or ()
    last = mine[-1].epoch
    if log_end_offset is None or peer.log_end_offset is None or theirs[-1].epoch <= last:
        return None
    answer = end_of_epoch(theirs, last, peer.log_end_offset)
    if answer is None:
        return None
    own = end_of_epoch(mine, answer.epoch, log_end_offset)
    end = min(answer.end_offset, log_end_offset if own is None else own.end_offset)
    return end if end < log_end_offset else None
