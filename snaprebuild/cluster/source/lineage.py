"""Rule R12: the leader epochs of a replica against those of the cluster, and of other replicas.

Source: ``LeaderEpochFileCache``; KIP-101: what a follower would truncate was never part of the log that went on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import LEADER_EPOCH_CHECKPOINT
from snaprebuild.cluster.source.evidence import PeerEvidence, SourceEvidence
from snaprebuild.cluster.source.rules import (
    Ruling,
    fails,
    is_of_another_log,
    not_applicable,
    not_known,
    passes,
    registered_partition,
    warns,
)
from snaprebuild.replay.broker_answer import end_of_epoch

__all__ = ["diverging_epoch", "leader_epochs", "truncated_at"]


def leader_epochs(evidence: SourceEvidence) -> Ruling:
    """R12: ascending, none below that of the last batch, and none that begins elsewhere in another replica.

    One above the cluster's shows that the metadata log is older than the replica (``older_than_replica``).
    """
    log, epochs = evidence.log, evidence.log.epochs
    fault = next((each for each in log.faults if LEADER_EPOCH_CHECKPOINT in each), None)
    if fault is not None:
        return not_known(fault, is_damaged=True)
    if not epochs:
        if log.tail_epoch is not None and log.tail_epoch >= 0:
            found = "is missing" if epochs is None else "is empty"
            return not_known(
                f"leader-epoch-checkpoint {found}, and the last batch has leader epoch {log.tail_epoch}", is_damaged=True
            )
        return not_applicable("it has no leader epochs: no replica yet, an empty log, or message formats 0 and 1")
    for before, after in pairwise(epochs):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            return fails(
                f"leader epoch {after.epoch} from {after.start_offset} stands behind {before.epoch} from {before.start_offset}"
            )
    partition = registered_partition(evidence)
    last = epochs[-1].epoch
    limit, told = None, []
    for peer in evidence.peers:
        if not peer.epochs or is_of_another_log(evidence, peer):
            told.append(f"{peer.path} cannot be compared: another topic id or cluster, or no leader epochs")
            continue
        diverging = diverging_epoch(epochs, peer.epochs)
        if diverging is not None and not log.is_compacted:
            return fails(f"{diverging}, in {peer.path}")
        end = truncated_at(epochs, log.log_end, peer)
        if end is not None and (limit is None or end < limit):
            limit = end
            told.append(f"the log went on without it from {end}, as {peer.path} has it")
    if limit is None and log.tail_epoch is not None and log.tail_epoch > last and evidence.log_dir.has_marker:
        return not_known(f"leader-epoch-checkpoint ends with {last}, and the last batch has leader epoch {log.tail_epoch}")
    known = f"up to {last}, ascending" + ("" if isinstance(partition, str) else f"; the cluster's is {partition.leader_epoch}")
    if told:
        return warns("; ".join((known, *told)), limit)
    compared = f"; as {len(evidence.peers)} other replicas have them" if evidence.peers else ""
    if not compared and isinstance(partition, str):
        known += f"; compared with nothing: {partition}"
    return passes(known + compared)


def diverging_epoch(mine: Sequence[LeaderEpochEntry], theirs: Sequence[LeaderEpochEntry]) -> str | None:
    """The first epoch that begins elsewhere in another replica; None where there is none.

    The first entry of a log begins no lower than the log does, and so it may have been raised.
    """
    known = {entry.epoch: entry for entry in theirs}
    for entry in mine:
        other = known.get(entry.epoch)
        if other is None or other.start_offset == entry.start_offset:
            continue
        raised = mine[0] if entry.start_offset > other.start_offset else theirs[0]
        if raised.epoch != entry.epoch:
            return f"leader epoch {entry.epoch} begins at {entry.start_offset} here and at {other.start_offset} there"
    return None


def truncated_at(mine: Sequence[LeaderEpochEntry], log_end: int | None, peer: PeerEvidence) -> int | None:
    """Where a follower of a peer that knows a later epoch would cut its log; None where it would not (``OffsetsForLeaderEpoch``)."""
    theirs = peer.epochs or ()
    last = mine[-1].epoch
    if log_end is None or peer.log_end is None or theirs[-1].epoch <= last:
        return None
    answer = end_of_epoch(theirs, last, peer.log_end)
    if answer is None:
        return None
    own = end_of_epoch(mine, answer.epoch, log_end)
    end = min(answer.end_offset, log_end if own is None else own.end_offset)
    return end if end < log_end else None
