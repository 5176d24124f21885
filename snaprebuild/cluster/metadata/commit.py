"""How far a metadata log is proven to be committed, from logs of voters that stand still.

The high watermark is on no disk, and every replica holds records that are not committed yet. Two things prove that a record is:

* A checkpoint that holds it: these are made of committed records alone.
* A majority of the voters holds it with the same leader epoch. That alone is not enough in Raft: a record of an old epoch may lie on a
  majority and still be lost to a leader of a later one, that was elected before it came there. So either no voter of the majority has
  heard of an epoch later than that of the last record they share, or the logs of all voters are known, and none that lacks that record
  ends with a later epoch. A voter that has the record and ends with a later epoch keeps it, whatever election it wins.

Two logs that hold the same epoch at the same offset are equal up to there, which is how Raft makes them (KIP-595).

Source: ``LeaderState.updateHighWatermark`` and ``KafkaRaftClient`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EpochLineage", "MajorityProof", "VoterLog", "common_end", "majority_proof"]


@dataclass(frozen=True, slots=True)
class EpochLineage:
    """Which leader epoch each offset of a log has.

    Attributes:
        starts: epoch, and its first offset in the log; both ascending.
        end_offset: of the log.
    """

    starts: tuple[tuple[int, int], ...]
    end_offset: int

    def ranges(self) -> list[tuple[int, int, int]]:
        """Epoch, first offset, and the one behind its last."""
        following = [start for _, start in self.starts[1:]]
        return [(epoch, start, end) for (epoch, start), end in zip(self.starts, [*following, self.end_offset], strict=False)]

    def epoch_of(self, offset: int) -> int | None:
        """Epoch of an offset, None where the log does not hold it."""
        return next((epoch for epoch, start, end in self.ranges() if start <= offset < end), None)

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, -1 of an empty log."""
        return self.starts[-1][0] if self.starts else -1


@dataclass(frozen=True, slots=True)
class VoterLog:
    """The log of a voter.

    Attributes:
        node_id: of the voter.
        lineage: of its log.
        known_epoch: latest epoch that it has heard of (``quorum-state``); None where that is not known.
    """

    node_id: int
    lineage: EpochLineage
    known_epoch: int | None


@dataclass(frozen=True, slots=True)
class MajorityProof:
    """What logs of voters prove of a log.

    Attributes:
        end_offset: behind the last offset that is proven to be committed; None where nothing is proven.
        shared_end: behind the last offset that a majority shares, proven or not; None without a majority.
        why: in words.
        common_ends: of each voter, behind the last offset that it shares with the log; None where it shares none that both hold.
    """

    end_offset: int | None
    shared_end: int | None
    why: str
    common_ends: tuple[tuple[int, int | None], ...]


def common_end(one: EpochLineage, other: EpochLineage) -> int | None:
    """Offset behind the last one that two logs hold with the same epoch; None where there is none."""
    ends = [
        min(end, other_end)
        for epoch, start, end in one.ranges()
        for other_epoch, other_start, other_end in other.ranges()
        if epoch == other_epoch and max(start, other_start) < min(end, other_end)
    ]
    return max(ends, default=None)


def majority_proof(log: EpochLineage, voters: frozenset[int], logs: Sequence[VoterLog]) -> MajorityProof:
    """What a majority proves.

    Args:
        log: in question.
        voters: ids of all of them.
        logs: of some voters, each once; that of the log in question among them, if it is one of a voter.
    """
    ends = {each.node_id: common_end(log, each.lineage) for each in logs if each.node_id in voters}
    common_ends = tuple(sorted(ends.items()))
    needed = len(voters) // 2 + 1
    shared = sorted(((end, node_id) for node_id, end in ends.items() if end is not None), reverse=True)
    if len(shared) < needed:
        why = f"{len(shared)} of {len(voters)} voters are known to share records with it, a majority are {needed}"
        return MajorityProof(None, None, why, common_ends)
    end = shared[needed - 1][0]
    epoch = log.epoch_of(end - 1)
    assert epoch is not None
    majority = {node_id for at, node_id in shared if at >= end}
    by_id = {each.node_id: each for each in logs if each.node_id in voters}
    told = f"{len(majority)} of {len(voters)} voters hold everything up to offset {end - 1}, of leader epoch {epoch}"
    known = [by_id[node_id].known_epoch for node_id in majority]
    later = [each for each in known if each is not None and each > epoch]
    if not later and None not in known:
        return MajorityProof(end, end, f"{told}, and none of them has heard of a later one", common_ends)
    reason = f"has heard of epoch {max(later)}" if later else "does not tell which epochs it has heard of (quorum-state)"
    if by_id.keys() >= voters:
        ahead = [each.node_id for each in by_id.values() if each.lineage.last_epoch > epoch and (ends[each.node_id] or 0) < end]
        if not ahead:
            return MajorityProof(end, end, f"{told}, and no voter without it ends with a later one", common_ends)
        why = f"{told}, but voter {ahead[0]} ends with a later one, lacks that record, and might win an election"
        return MajorityProof(None, end, why, common_ends)
    return MajorityProof(None, end, f"{told}, but one {reason}, and not all voters' logs are given", common_ends)
