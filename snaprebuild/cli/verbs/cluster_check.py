"""The verb ``cluster check``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.cluster.quorum.rules import Followers

if TYPE_CHECKING:
    from formats.metadata.quorum_state import QuorumState
    from snaprebuild.cluster.metadata.feature_levels import FeatureLevel, HoldingNode
    from snaprebuild.cluster.quorum.check import KraftCheck, NodeCheck
    from snaprebuild.cluster.quorum.election import Election, Standing
    from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
    from snaprebuild.cluster.quorum.rules import NodeRuleResult
    from snaprebuild.documents import cluster as doc

__all__ = ["Leader", "MetadataDirs", "cluster_check", "epoch_text", "node_label"]

MetadataDirs = Annotated[list[str], typer.Argument(metavar="DIR...")]
Leader = Annotated[
    str | None,
    typer.Option("--leader", metavar="DIR", help="Directory of the leader. Default: from quorum-state."),
]


@verb()
def cluster_check(
    *,
    directories: MetadataDirs,
    leader: Leader = None,
    followers: Annotated[
        Followers,
        typer.Option(
            "--followers",
            show_default=False,
            help="Requirement for the start offset of a follower. kafka: none. strict: not beyond the leader's. literal: equal "
            "to the leader's, with or without a checkpoint. Default: kafka.",
        ),
    ] = Followers.KAFKA,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: checks metadata logs of KRaft by rules K1 to K20: can a node start, do the nodes agree, which voter can be elected.

    DIR is a __cluster_metadata-0 directory, a log directory that holds one, or any directory above it; several are those of several
    nodes. It is safe while the node runs. Exit code 1 if a rule is violated, 4 if bytes are damaged or missing.
    """
    from snaprebuild.cluster.quorum.check import kraft_check as look

    out.begin()
    check_paths(directories)
    check = look(directories, followers, leader, int(time.time() * 1000), s3.run())
    return Result(lambda: _document(check), check.findings, lambda: _print(check))


def epoch_text(start: OffsetAndEpoch | None, offset: int) -> str:
    """A start as ``OffsetAndEpoch``."""
    return str(start) if start is not None else f"{offset} (epoch not known)"


def node_label(check: NodeCheck) -> str:
    """What a table calls a node."""
    return "-" if check.node.node_id is None else str(check.node.node_id)


def _document(check: KraftCheck) -> doc.ClusterCheck:
    from snaprebuild.documents import cluster as doc

    election = check.election
    return doc.ClusterCheck(
        followers=check.followers.value,
        nodes=[_node(each) for each in check.nodes],
        election=doc.Election(
            voters=election.voters,
            voters_not_given=election.not_given,
            directories=[_election_log(each) for each in election.standings],
        ),
        features=None if check.features is None else [_feature(each) for each in check.features],
    )


def _feature(feature: FeatureLevel) -> doc.Feature:
    from snaprebuild.documents import cluster as doc

    return doc.Feature(
        name=feature.name,
        level=feature.level,
        max_of_all=feature.max_of_all,
        max_of_any=feature.max_of_any,
        held_back_by=[
            doc.HoldingNode(kind=_kind(each), node_id=each.node_id, max_level=each.max_level, state=each.state.value)
            for each in feature.held_back_by
        ],
    )


def _kind(node: HoldingNode) -> str:
    return "controller" if node.state.is_controller else "broker"


def _election_log(standing: Standing) -> doc.ElectionLog:
    from snaprebuild.documents import cluster as doc
    from snaprebuild.documents.simulations import OffsetAndEpoch

    return doc.ElectionLog(
        directory=standing.node.log.path,
        node_id=standing.node.node_id,
        end=OffsetAndEpoch(offset=standing.end.offset, epoch=standing.end.epoch),
        quorum_state=_quorum_state(standing.node.facts.quorum_state),
        can_win=standing.chance.outcome.value,
        reason=standing.chance.reason,
        has_most=standing.has_most,
    )


def _quorum_state(state: QuorumState | None) -> doc.QuorumState | None:
    from snaprebuild.documents import cluster as doc

    if state is None:
        return None
    return doc.QuorumState(
        epoch=state.leader_epoch,
        leader_id=None if state.leader_id < 0 else state.leader_id,
        voted_id=None if state.voted_id < 0 else state.voted_id,
    )


def _node(check: NodeCheck) -> doc.Node:
    from snaprebuild.cli.render.shared_parts import unknown_contents
    from snaprebuild.documents import cluster as doc

    facts = check.node.facts
    start = check.node.facts.start
    return doc.Node(
        directory=check.node.log.path,
        node_id=check.node.node_id,
        cluster_id=check.node.cluster_id,
        is_leader=check.is_leader,
        first_base_offset=facts.first_base_offset,
        start=doc.LogStart(offset=facts.start_offset, epoch=None if start is None else start.epoch),
        end_offset=facts.end_offset,
        checkpoints=[
            doc.Checkpoint(
                offset=each.id.offset,
                epoch=each.id.epoch,
                size_bytes=each.size_bytes,
                timestamp_ms=each.timestamp_ms,
                fault=each.fault,
            )
            for each in facts.checkpoints
        ],
        rules=[_rule(each) for each in check.results],
        unknown_contents=unknown_contents(check.node.log.unknown, check.node.log.other_files),
    )


def _rule(result: NodeRuleResult) -> doc.NodeRule:
    from snaprebuild.documents import cluster as doc

    return doc.NodeRule(
        rule=result.rule.name,
        text=result.rule.value,
        outcome=result.state_name,
        grade=None if result.grade is None else result.grade.value,
        evidence=result.evidence,
        path=result.path,
        offset=result.offset,
    )


def _print(check: KraftCheck) -> None:
    from snaprebuild.cli.result import print_table, print_text, shown, unless_unread
    from snaprebuild.cluster.rule_result import Grade, RuleState
    from snaprebuild.findings import pluralize

    rows = []
    for each in check.nodes:
        facts = each.node.facts
        latest = str(facts.checkpoints[-1].id) if facts.checkpoints else "-"
        role = {True: "leader", False: "follower", None: "-"}[each.is_leader]
        start = epoch_text(facts.start, facts.start_offset)
        base = "-" if facts.first_base_offset is None else facts.first_base_offset
        rows.append(
            (node_label(each), role, base, start, facts.end_offset, len(facts.checkpoints), latest, shown(each.node.log.path))
        )
    columns = ("node", "role", "first segment", "start", "end", "checkpoints", "the latest", "directory")
    drop = ("first segment", "checkpoints", "the latest")
    print_table("Metadata logs", columns, rows, right=("first segment", "end", "checkpoints"), drop=drop)
    outcomes = [
        (node_label(each), result.rule.name, result.state_name, result.grade or "-", result.evidence)
        for each in check.nodes
        for result in each.results
        if result.state in (RuleState.BROKEN, RuleState.UNKNOWN)
    ]
    if outcomes:
        title = "Rules that are not held"
        print_table(title, ("node", "rule", "outcome", "grade", "evidence"), outcomes, drop=("outcome",))
    if len(check.nodes) > 1 or check.election.not_given:
        _print_election(check.election)
    _print_features(check.features or ())
    results = [result for each in check.nodes for result in each.results]
    grades = Counter(result.grade for result in results if result.grade is not None)
    violations = ", ".join(f"{grades[grade]} {grade}" for grade in reversed(list(Grade)) if grades[grade])
    violations = violations or unless_unread("no violation", check.findings)
    held = pluralize(sum(result.state is RuleState.HOLDS for result in results), "rule")
    unknown = {each.node.log.unknown.sentence for each in check.nodes if each.node.log.unknown}
    covered = " over what this version knows" if unknown else ""
    holding = {(_kind(node), node.node_id) for feature in check.features or () for node in feature.held_back_by}
    held_back = f"; features held back by {pluralize(len(holding), 'registration')}" if holding else ""
    print_text(f"{pluralize(len(check.nodes), 'node')}: {held} held{covered}; {violations}{held_back}")
    for text in sorted(unknown):
        print_text(f"Not covered: {text}.")


def _print_features(features: Sequence[FeatureLevel]) -> None:
    """The registrations that hold a feature back, if there are any."""
    from snaprebuild.cli.result import print_table

    rows = [
        (f"{_kind(node)} {node.node_id}", node.state.value, feature.name, node.max_level, feature.max_of_any, feature.level)
        for feature in features
        for node in feature.held_back_by
    ]
    if rows:
        columns = ("node", "state", "feature", "supports up to", "others up to", "cluster has")
        print_table("Registrations that hold features back", columns, rows, right=columns[3:])


def _print_election(election: Election) -> None:
    from snaprebuild.cli.result import print_table, print_text, shown

    rows = []
    for each in election.standings:
        state = each.node.facts.quorum_state
        vote = "quorum-state is unknown"
        if state is not None:
            vote = f"epoch {state.leader_epoch}"
            vote += f", leader {state.leader_id}" if state.leader_id >= 0 else ""
            vote += f", voted for {state.voted_id}" if state.voted_id >= 0 else ""
        node = "-" if each.node.node_id is None else each.node.node_id
        last = "-" if not each.end.offset else each.end.offset - 1
        rows.append((node, last, each.end.epoch, vote, each.chance.outcome.value, each.chance.reason))
    columns = ("node", "last offset", "of epoch", "quorum-state", "can win", "because")
    print_table("Elections, if these nodes are started", columns, rows, right=("last offset", "of epoch"), drop=("quorum-state",))
    if election.not_given:
        print_text(f"Voters without a directory here: {', '.join(map(str, election.not_given))}.")
    print_text(f"The most is in {', '.join(shown(each.node.log.path) for each in election.standings if each.has_most)}.")
