"""Who can become the leader of a KRaft quorum, from the ends of the logs of its voters.

A voter grants its vote to a candidate whose log ends in a later epoch than its own, or in the same one and not before it. A majority of
the voters elects. The epoch in ``quorum-state`` hinders nobody: the candidate takes a later one.

Source: ``KafkaRaftClient.handleVoteRequest`` and ``UnattachedState.canGrantVote`` of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch

__all__ = ["CanWin", "Chance", "chances"]


class CanWin(StrEnum):
    """Whether a node can be elected."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Chance:
    """Whether a voter can be elected, and one sentence why."""

    outcome: CanWin
    reason: str


def chances(voters: Collection[int], ends: Mapping[int, OffsetAndEpoch]) -> dict[int, Chance]:
    """The chance of each voter whose log is known.

    Args:
        voters: ids of all voters.
        ends: of logs of voters, as they are after a start: end offset, and epoch of the last record.
    """
    needed = len(voters) // 2 + 1
    unknown = sorted(set(voters) - ends.keys())
    found = {}
    for candidate, end in ends.items():
        refusing = sorted(voter for voter, its_end in ends.items() if its_end > end)
        granting = len(ends) - len(refusing)
        votes = f"{granting} of {len(voters)} voters hold no more than it, and {needed} are needed"
        if granting >= needed:
            found[candidate] = Chance(CanWin.YES, votes)
        elif granting + len(unknown) < needed:
            found[candidate] = Chance(CanWin.NO, f"{votes}; {_ids(refusing)} hold more")
        else:
            found[candidate] = Chance(CanWin.UNKNOWN, f"{votes}; the logs of {_ids(unknown)} are not known")
    return found


def _ids(voters: Collection[int]) -> str:
    return "voters " + ", ".join(map(str, voters))
