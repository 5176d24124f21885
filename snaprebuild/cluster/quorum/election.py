"""The voters of a KRaft quorum that can be elected from these directories, and the directory that holds the most.

A voter grants its vote to a candidate whose log ends in a later epoch than its own, or in the same epoch and not before it. A majority of
the voters elects. The epoch in ``quorum-state`` prevents nothing: the candidate takes a later one.

Source: ``KafkaRaftClient.handleVoteRequest`` and ``UnattachedState.canGrantVote`` of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from snaprebuild.cluster.quorum.facts import NodeFacts
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.cluster.quorum.rules import NodeRuleResult, Rule
from snaprebuild.cluster.rule_result import Grade

__all__ = ["CanWin", "Chance", "Election", "Standing", "chances", "election_of"]


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


@dataclass(frozen=True, slots=True)
class Standing:
    """One directory.

    Attributes:
        node: what was read.
        end: of the log after a start, with the epoch of its last record.
        chance: whether its node can be elected.
        has_most: no other directory ends above it.
    """

    node: NodeFacts
    end: OffsetAndEpoch
    chance: Chance
    has_most: bool


@dataclass(frozen=True, slots=True)
class Election:
    """All of them.

    Attributes:
        voters: ids, by the directory that holds the most; None if none of its files names them.
        not_given: voters without a directory.
        standings: in the order of the directories.
    """

    voters: tuple[int, ...] | None
    not_given: tuple[int, ...]
    standings: tuple[Standing, ...]


def election_of(checked: Sequence[tuple[NodeFacts, Sequence[NodeRuleResult]]]) -> Election:
    """Looks at the ends of all logs.

    A directory with damage counts as unknown: its node may not start. If one voter has two directories, the one that ends higher counts.

    Args:
        checked: directories with the results of the rules.
    """
    nodes = [node for node, _ in checked]
    ends = [each.facts.end_after_start for each in nodes]
    most = max(ends)
    best = nodes[ends.index(most)].facts
    directory_of: dict[int, bytes | None] = {}
    if best.voter_sets:
        # A LeaderChange names voters without their directories.
        known = {each.voter_id: each.directory_id for voters in best.voter_sets for each in voters if any(each.directory_id or b"")}
        directory_of = {each.voter_id: known.get(each.voter_id) for each in best.voter_sets[-1]}
    elif best.quorum_state is not None and best.quorum_state.voters:
        directory_of = dict.fromkeys(best.quorum_state.voters)
    known_chances = [_why_not_counted(node, results, directory_of) for node, results in checked]
    if len({each.cluster_id for each in nodes if each.cluster_id is not None}) > 1:
        known_chances = [Chance(CanWin.UNKNOWN, "the directories are of several clusters")] * len(nodes)
    counted: dict[int, OffsetAndEpoch] = {}
    for node, end, known_chance in zip(nodes, ends, known_chances, strict=True):
        if known_chance is None and node.node_id is not None:
            counted[node.node_id] = max(end, counted.get(node.node_id, end))
    found = chances(directory_of, counted)
    standings = []
    for node, end, known_chance in zip(nodes, ends, known_chances, strict=True):
        chance = known_chance or found[node.node_id or 0]
        if known_chance is None and end < counted[node.node_id or 0]:
            chance = Chance(CanWin.NO, f"another directory of voter {node.node_id} ends higher, and counts")
        standings.append(Standing(node, end, chance, end == most))
    given = {each.node_id for each in nodes}
    voters = tuple(sorted(directory_of)) if directory_of else None
    return Election(voters, tuple(each for each in voters or () if each not in given), tuple(standings))


def _why_not_counted(node: NodeFacts, results: Sequence[NodeRuleResult], directory_of: dict[int, bytes | None]) -> Chance | None:
    """The chance of a directory that is not a voter's, or may not start; None for all others."""
    if not directory_of:
        return Chance(CanWin.UNKNOWN, "neither records nor quorum-state name the voters")
    if node.node_id is None:
        return Chance(CanWin.UNKNOWN, "meta.properties is absent, so the node of this directory is not known")
    if node.node_id not in directory_of:
        return Chance(CanWin.NO, f"node {node.node_id} is not a voter")
    wanted = directory_of[node.node_id]
    if None not in (wanted, node.directory_id) and wanted != node.directory_id:
        return Chance(CanWin.NO, f"voter {node.node_id} votes with another directory: its disk was replaced")
    if any(each.rule is Rule.K17 and each.grade is not None for each in results):
        return Chance(CanWin.UNKNOWN, "its log may have lost its end (K17)")
    damage = sorted({each.rule.name for each in results if each.grade is Grade.DAMAGE})
    if damage or any(each.is_unread for each in node.findings):
        return Chance(CanWin.UNKNOWN, f"the directory is damaged ({', '.join(damage) or 'see the findings'})")
    return None
