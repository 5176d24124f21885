"""Holds metadata log directories against rules K1 to K20."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.errors import FormatError
from formats.partition.file_names import META_PROPERTIES
from snaprebuild.cluster.metadata.feature_levels import FeatureLevel, feature_levels, held_back_findings
from snaprebuild.cluster.metadata.image_reader import image_at
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY
from snaprebuild.cluster.metadata.unknown_contents import unknown_findings
from snaprebuild.cluster.quorum.agreement import agreement, contents
from snaprebuild.cluster.quorum.election import QuorumFacts, election_of
from snaprebuild.cluster.quorum.facts import NodeFacts, read_node
from snaprebuild.cluster.quorum.rules import Followers, QuorumRule, QuorumRuleResult, judge_log
from snaprebuild.cluster.rule_result import Grade, RuleState, broken, finding_of, holds, not_applicable
from snaprebuild.cluster.scan_producer_ids import producer_id_findings
from snaprebuild.errors import ChangedFileError, ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage.store import is_object

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = ["CODES", "NodeCheck", "QuorumCheck", "check_quorum", "leader_among", "violations"]

CODES = {
    QuorumRule.K1: "start-without-checkpoint",
    QuorumRule.K2: "start-not-at-checkpoint",
    QuorumRule.K3: "start-epoch-unknown",
    QuorumRule.K4: "only-start-checkpoint",
    QuorumRule.K5: "checkpoint-beyond-log",
    QuorumRule.K6: "checkpoint-inside-batch",
    QuorumRule.K7: "checkpoint-epoch",
    QuorumRule.K8: "bad-checkpoint",
    QuorumRule.K9: "metadata-left-overs",
    QuorumRule.K10: "misnamed-checkpoint",
    QuorumRule.K11: "metadata-gap",
    QuorumRule.K12: "metadata-producer-snapshot",
    QuorumRule.K13: "nodes-disagree",
    QuorumRule.K14: "leader-epoch-decreases",
    QuorumRule.K15: "quorum-state-contradiction",
    QuorumRule.K16: "checkpoint-contradiction",
    QuorumRule.K17: "metadata-end-lost",
    QuorumRule.K18: "metadata-topic-id",
    QuorumRule.K19: "node-unknown",
    QuorumRule.K20: "node-twice",
}
"""Findings of the rules; docs/reference/findings.md lists them."""


@dataclass(slots=True)
class NodeCheck:
    """One directory.

    Attributes:
        node: what was read.
        is_leader: of those that were given; None if that is not known.
        results: of all rules; K13 is about this node's start and its checkpoints.
    """

    node: NodeFacts
    is_leader: bool | None
    results: list[QuorumRuleResult]


class QuorumCheck(QuorumFacts, frozen=True):
    """The check of all directories.

    Attributes:
        nodes: in the order of the locations.
        findings: violations, and what could not be read.
    """

    nodes: list[NodeCheck]
    findings: list[Finding]


def check_quorum(
    locations: Sequence[str],
    followers: Followers = Followers.KAFKA,
    leader: str | None = None,
    now_ms: int | None = None,
    run: Run | None = None,
) -> QuorumCheck:
    """Reads directories, each of one node, and judges them.

    Args:
        locations: directories.
        followers: what is asked of their starts.
        leader: one of the locations; None if the quorum states tell.
        now_ms: the clock, ms since 1970, for producers that have expired. The producer ids of partitions next to a metadata log are
            compared with its next one; None to leave that out.
        run: as for ``open_metadata_log``.

    Raises:
        UsageError: a location holds no metadata log, the leader is none of them, or one directory is named twice.
        ReadFailedError: one cannot be read.
    """
    nodes = [read_node(location, run) for location in locations]
    paths = Counter(each.log.path for each in nodes)
    if twice := next((path for path, count in paths.items() if count > 1), None):
        raise UsageError("is named twice", path=twice)
    lead = leader_among(nodes, leader)
    findings = [finding for node in nodes for finding in node.findings]
    checks = []
    for node in nodes:
        is_leader = None if lead is None else node is lead
        literal_start = None
        if lead is not None and node is not lead and followers is Followers.LITERAL:
            literal_start = lead.facts.start
        checks.append(NodeCheck(node, is_leader, judge_log(node.facts, literal_start)))
    agreements = [*agreement(nodes, lead, followers), *_owners(nodes)] if len(nodes) > 1 else []
    for check in checks:
        path = check.node.log.path
        compared = [each for each in agreements if each.path == path or each.path.startswith(f"{path}/")]
        if any(each.rule is QuorumRule.K19 for each in compared):  # which was not judged of the directory alone
            check.results = [result for result in check.results if result.rule is not QuorumRule.K19]
        check.results += compared
        check.results += contents(check.node, nodes)
        for rule in (QuorumRule.K13, QuorumRule.K20):
            if all(result.rule is not rule for result in check.results):
                alone = not_applicable(rule, "one node was given", path)
                check.results.append(alone if len(nodes) == 1 else holds(rule, path=path))
        check.results.sort(key=lambda result: list(QuorumRule).index(result.rule))
        findings += violations(check.results)
    for node in nodes:
        _decode_rest(node)
        findings += unknown_findings(node.log.path, node.log.unknown)
        findings += [] if now_ms is None else _foreign_producers(node.log.path, now_ms)
    election = election_of([(each.node, each.results) for each in checks])
    most = next(node for node, log in zip(nodes, election.directories, strict=True) if log.has_most)
    features = _features(most)
    findings += _feature_findings(most, features)
    return QuorumCheck(followers=followers, election=election, features=features, nodes=checks, findings=findings)


def _features(node: NodeFacts) -> tuple[FeatureLevel, ...] | None:
    try:
        read = image_at(node.log)
    except (FormatError, ReadFailedError, ChangedFileError, UsageError):
        return None
    state = node.log.quorum_state
    return feature_levels(read.fold.image(), None if state is None else state.voters)


def _feature_findings(node: NodeFacts, features: tuple[FeatureLevel, ...] | None) -> list[Finding]:
    if features is not None:
        return held_back_findings(node.log.path, features)
    message = "the registrations of the nodes cannot be read, so it is not known whether one holds a feature back"
    return [Finding("features-unknown", Severity.FINDING, node.log.path, message)]


def _foreign_producers(path: str, now_ms: int) -> list[Finding]:
    """Findings about the other partitions in the log directory of a metadata log."""
    log_dir, name = os.path.split(path)
    if is_object(path) or name != METADATA_DIRECTORY or not os.path.isfile(os.path.join(log_dir, META_PROPERTIES)):
        return []
    source = open_source([log_dir])
    unread = [finding for finding in source.findings if finding.is_unread]
    return [*unread, *producer_id_findings(source, now_ms)]


def _decode_rest(node: NodeFacts) -> None:
    """Decodes the records after the newest checkpoint, which no rule needs: what of them is not known is counted as well."""
    compared = max((checkpoint.id.offset for checkpoint in node.facts.checkpoints if checkpoint.fault is None), default=0)
    # What is wrong with the bytes, the rules have found.
    with contextlib.suppress(FormatError, ReadFailedError, ChangedFileError), node.log.walk(compared).until() as batches:
        for _ in batches:
            pass


def violations(results: Iterable[QuorumRuleResult]) -> list[Finding]:
    """The findings of the rules that are broken."""
    return [finding_of(result, CODES[result.rule]) for result in results if result.state is RuleState.BROKEN]


def leader_among(nodes: Sequence[NodeFacts], named: str | None) -> NodeFacts | None:
    """The leader of the last epoch that any of the nodes knows; the longest log where several directories are of that node.

    Raises:
        UsageError: ``named`` is none of them.
    """
    if named is not None:
        for node in nodes:
            if named in (node.location, node.log.path):
                return node
        raise UsageError("--leader: is not one of the directories", path=named)
    states = [node.log.quorum_state for node in nodes]
    leaders = [(state.leader_epoch, state.leader_id) for state in states if state is not None and state.leader_id >= 0]
    if not leaders:
        return None
    _, leader_id = max(leaders)
    candidates = [node for node in nodes if node.node_id == leader_id]
    return max(candidates, key=lambda candidate: candidate.facts.end_offset, default=None)


def _owners(nodes: Sequence[NodeFacts]) -> Iterator[QuorumRuleResult]:
    """K20, and what of K19 shows only next to other nodes: a directory alone may be a copy of the metadata log without anything else."""
    counts = Counter((each.cluster_id, each.node_id) for each in nodes if each.node_id is not None)
    for node in nodes:
        path = node.log.path
        if node.node_id is not None and counts[node.cluster_id, node.node_id] > 1:
            others = [each.log.path for each in nodes if each is not node and each.node_id == node.node_id]
            evidence = (
                f"node {node.node_id} has another directory here, {', '.join(others)}: a node does not start with two metadata logs. "
                "One of them is an old copy, or of a disk that was replaced"
            )
            yield broken(QuorumRule.K20, Grade.WARNING, evidence, path)
        if node.facts.is_bare and counts and os.path.basename(path) == METADATA_DIRECTORY:
            evidence = f"there is no {META_PROPERTIES} next to it, as next to the others: whose it is is not known"
            yield broken(QuorumRule.K19, Grade.WARNING, evidence, path)
