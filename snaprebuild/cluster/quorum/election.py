"""The voters of a KRaft quorum that can be elected from these directories, and the directory that holds the most.

A voter grants its vote to a candidate whose log ends in a later epoch than its own, or in the same epoch and not before it. A majority of
the voters elects. The epoch in ``quorum-state`` prevents nothing: the candidate takes a later one.

Source: ``KafkaRaftClient.handleVoteRequest`` and ``UnattachedState.canGrantVote`` of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from formats.metadata.quorum_state import QuorumState
from snaprebuild.cluster.metadata.feature_levels import FeatureLevel
from snaprebuild.cluster.quorum.facts import NodeFacts
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.cluster.quorum.rules import Followers, QuorumRule, QuorumRuleResult
from snaprebuild.cluster.rule_result import Grade
from snaprebuild.published import Natural, Part

__all__ = ["CanWin", "Chance", "ElectionLog", "QuorumElection", "QuorumFacts", "VotingState", "chances", "election_of"]


class CanWin(StrEnum):
    """Whether a node can be elected."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Chance(Part, frozen=True):
    """Whether a voter can be elected, and one sentence why."""

    can_win: CanWin
    reason: str


def chances(voters: Collection[int], ends: Mapping[int, OffsetAndEpoch]) -> dict[int, Chance]:
    """The chance of each voter whose log is known.

    Args:
        voters: ids of all voters.
        ends: of logs of voters, as they are after a start: end offset, and epoch of the last record.
    """
    needed = len(voters) // 2 + 1
    unknown = sorted(set(voters) - ends.keys())
    chance_of = {}
    for candidate, end in ends.items():
        refusing = sorted(voter for voter, its_end in ends.items() if its_end > end)
        granting = len(ends) - len(refusing)
        votes = f"{granting} of {len(voters)} voters hold no more than it, and {needed} are needed"
        if granting >= needed:
            chance_of[candidate] = Chance(CanWin.YES, votes)
        elif granting + len(unknown) < needed:
            chance_of[candidate] = Chance(CanWin.NO, f"{votes}; {_ids(refusing)} hold more")
        else:
            chance_of[candidate] = Chance(CanWin.UNKNOWN, f"{votes}; the logs of {_ids(unknown)} are not known")
    return chance_of


def _ids(voters: Collection[int]) -> str:
    return "voters " + ", ".join(map(str, voters))


class VotingState(Part, frozen=True):
    """The quorum-state file."""

    epoch: int
    leader_id: int | None
    """Null for none."""
    voted_id: int | None
    """The node that got its vote in that epoch; null for none."""


class ElectionLog(Part, frozen=True):
    """The log of one directory, as an election compares it."""

    path: str
    """Directory of the metadata log."""
    node_id: Natural | None
    """From meta.properties; null if there is none."""
    end: OffsetAndEpoch
    """End of the log after a node has started from it."""
    quorum_state: VotingState | None
    """Null if the file is absent or cannot be read."""
    can_win: CanWin
    """Whether a majority of the voters can elect the node."""
    reason: str
    """One sentence; not stable."""
    has_most: bool
    """No other directory ends above it."""


class QuorumElection(Part, frozen=True):
    """The nodes that can be elected from these directories."""

    voters: tuple[Natural, ...] | None
    """Ids, from the directory with the highest end; null if none of its files has them."""
    voters_not_given: tuple[Natural, ...]
    """Voters without a directory."""
    directories: tuple[ElectionLog, ...]
    """One for each directory."""


class QuorumFacts(Part, frozen=True):
    """The state of a quorum, by all its directories together."""

    followers: Followers
    """The requirement of --start-rule for the starts of followers."""
    election: QuorumElection
    features: tuple[FeatureLevel, ...] | None
    """By the directory whose log ends highest; null if its records cannot be read."""


def election_of(checked: Sequence[tuple[NodeFacts, Sequence[QuorumRuleResult]]]) -> QuorumElection:
    """The election that the ends of all logs decide.

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
        voting_directories = {
            voter.voter_id: voter.directory_id for voters in best.voter_sets for voter in voters if any(voter.directory_id or b"")
        }
        directory_of = {each.voter_id: voting_directories.get(each.voter_id) for each in best.voter_sets[-1]}
    elif best.quorum_state is not None and best.quorum_state.voters:
        directory_of = dict.fromkeys(best.quorum_state.voters)
    known_chances = [_chance_without_vote(node, results, directory_of) for node, results in checked]
    if len({each.cluster_id for each in nodes if each.cluster_id is not None}) > 1:
        known_chances = [Chance(CanWin.UNKNOWN, "the directories are of several clusters")] * len(nodes)
    counted: dict[int, OffsetAndEpoch] = {}
    for node, end, known_chance in zip(nodes, ends, known_chances, strict=True):
        if known_chance is None and node.node_id is not None:
            counted[node.node_id] = max(end, counted.get(node.node_id, end))
    chance_of = chances(directory_of, counted)
    directories = []
    for node, end, known_chance in zip(nodes, ends, known_chances, strict=True):
        chance = known_chance or chance_of[node.node_id or 0]
        if known_chance is None and end < counted[node.node_id or 0]:
            chance = Chance(CanWin.NO, f"another directory of voter {node.node_id} ends higher, and counts")
        directories.append(
            ElectionLog(
                path=node.log.path,
                node_id=node.node_id,
                end=end,
                quorum_state=_voting_state(node.facts.quorum_state),
                can_win=chance.can_win,
                reason=chance.reason,
                has_most=end == most,
            )
        )
    node_ids = {each.node_id for each in nodes}
    voters = tuple(sorted(directory_of)) if directory_of else None
    voters_not_given = tuple(voter for voter in voters or () if voter not in node_ids)
    return QuorumElection(voters, voters_not_given, tuple(directories))


def _voting_state(state: QuorumState | None) -> VotingState | None:
    if state is None:
        return None
    leader_id = None if state.leader_id < 0 else state.leader_id
    voted_id = None if state.voted_id < 0 else state.voted_id
    return VotingState(state.leader_epoch, leader_id, voted_id)


def _chance_without_vote(
    node: NodeFacts, results: Sequence[QuorumRuleResult], directory_of: dict[int, bytes | None]
) -> Chance | None:
    """The chance of a directory that is not a voter's, or may not start; None for all others."""
    if not directory_of:
        return Chance(CanWin.UNKNOWN, "neither records nor quorum-state name the voters")
    if node.node_id is None:
        return Chance(CanWin.UNKNOWN, "meta.properties is absent, so the node of this directory is not known")
    if node.node_id not in directory_of:
        return Chance(CanWin.NO, f"node {node.node_id} is not a voter")
    voting_directory = directory_of[node.node_id]
    if None not in (voting_directory, node.directory_id) and voting_directory != node.directory_id:
        return Chance(CanWin.NO, f"voter {node.node_id} votes with another directory: its disk was replaced")
    if any(result.rule is QuorumRule.K17 and result.grade is not None for result in results):
        return Chance(CanWin.UNKNOWN, "its log may have lost its end (K17)")
    damage = sorted({result.rule.name for result in results if result.grade is Grade.DAMAGE})
    if damage or any(finding.is_unread for finding in node.findings):
        return Chance(CanWin.UNKNOWN, f"the directory is damaged ({', '.join(damage) or 'see the findings'})")
    return None
