"""Holds metadata log directories against rules K1 to K16."""

from __future__ import annotations

import contextlib
import errno
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from formats.errors import FormatError
from snaprebuild.cluster.metadata.batches import MetadataBatch, MetadataRecord, UnreadRecord
from snaprebuild.cluster.metadata.log import MetadataCheckpoint
from snaprebuild.cluster.metadata.unknown_contents import unknown_findings
from snaprebuild.cluster.quorum.checkpoint_comparison import (
    CheckpointContent,
    checkpoint_content,
    compare_with_log,
    differing_records,
)
from snaprebuild.cluster.quorum.election import Election, election_of
from snaprebuild.cluster.quorum.facts import NodeFacts, read_node
from snaprebuild.cluster.quorum.log_facts import Difference, first_difference
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.cluster.quorum.rules import (
    Followers,
    Grade,
    Rule,
    RuleOutcome,
    RuleResult,
    ids_text,
    judge_log,
    judge_starts,
)
from snaprebuild.errors import ChangedFileError, ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["CODES", "KraftCheck", "NodeCheck", "finding_of", "kraft_check", "leader_among"]

CODES = {
    Rule.K1: "start-without-checkpoint",
    Rule.K2: "start-not-at-checkpoint",
    Rule.K3: "start-epoch-unknown",
    Rule.K4: "only-start-checkpoint",
    Rule.K5: "checkpoint-beyond-log",
    Rule.K6: "checkpoint-inside-batch",
    Rule.K7: "checkpoint-epoch",
    Rule.K8: "bad-checkpoint",
    Rule.K9: "metadata-left-overs",
    Rule.K10: "misnamed-checkpoint",
    Rule.K11: "metadata-gap",
    Rule.K12: "metadata-producer-snapshot",
    Rule.K13: "nodes-disagree",
    Rule.K14: "leader-epoch-decreases",
    Rule.K15: "quorum-state-contradiction",
    Rule.K16: "checkpoint-contradiction",
}
"""Findings of the rules; docs/reference/findings.md lists them."""

_SEVERITIES = {
    Grade.INFO: Severity.NOTE,
    Grade.WARNING: Severity.FINDING,
    Grade.ERROR: Severity.FINDING,
    Grade.DAMAGE: Severity.DAMAGED,
}


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
    results: list[RuleResult]


@dataclass(slots=True)
class KraftCheck:
    """Everything.

    Attributes:
        nodes: in the order of the locations.
        followers: what was asked of followers.
        election: who can be elected, by what the directories hold.
        findings: violations, and what could not be read.
    """

    nodes: list[NodeCheck]
    followers: Followers
    election: Election
    findings: list[Finding]


def kraft_check(
    locations: Sequence[str],
    followers: Followers = Followers.KAFKA,
    leader: str | None = None,
    settings: S3Settings = USUAL_S3,
) -> KraftCheck:
    """Reads directories, each of one node, and judges them.

    Args:
        locations: directories.
        followers: what is asked of their starts.
        leader: one of the locations; None if the quorum states tell.
        settings: of object stores.

    Raises:
        UsageError: a location holds no metadata log, the leader is none of them, or one directory is named twice.
        ReadFailedError: one cannot be read.
    """
    nodes = [read_node(each, settings) for each in locations]
    paths = Counter(each.log.path for each in nodes)
    if twice := next((path for path, count in paths.items() if count > 1), None):
        raise UsageError("is named twice", path=twice)
    lead = leader_among(nodes, leader)
    findings = [finding for node in nodes for finding in node.findings]
    checks = []
    for node in nodes:
        is_follower = lead is not None and node is not lead
        literal = lead.facts.start if lead is not None and is_follower and followers is Followers.LITERAL else None
        checks.append(NodeCheck(node, None if lead is None else node is lead, judge_log(node.facts, literal)))
    agreements = list(_agreement(nodes, lead, followers)) if len(nodes) > 1 else []
    for check in checks:
        path = check.node.log.path
        check.results += [each for each in agreements if each.path == path or each.path.startswith(f"{path}/")]
        check.results += _contents(check.node, nodes)
        if all(each.rule is not Rule.K13 for each in check.results):
            alone = RuleResult.not_judged(Rule.K13, "one node was given", path)
            check.results.append(alone if len(nodes) == 1 else RuleResult.held(Rule.K13, path))
        check.results.sort(key=lambda each: list(Rule).index(each.rule))
        findings += [finding_of(each) for each in check.results if each.grade is not None]
    for node in nodes:
        _decode_rest(node)
        findings += unknown_findings(node.log.path, node.log.unknown)
    return KraftCheck(checks, followers, election_of([(each.node, each.results) for each in checks]), findings)


def _decode_rest(node: NodeFacts) -> None:
    """Decodes the records after the newest checkpoint, which no rule needs: what of them is not known is counted as well."""
    compared = max((each.id.offset for each in node.facts.checkpoints if each.fault is None), default=0)
    # What is wrong with the bytes, the rules have found.
    with contextlib.suppress(FormatError, ReadFailedError, ChangedFileError), node.log.walk(compared).until() as batches:
        for _ in batches:
            pass


def leader_among(nodes: Sequence[NodeFacts], named: str | None) -> NodeFacts | None:
    """The leader of the last epoch that any of the nodes knows; the longest log where several directories are of that node.

    Raises:
        UsageError: ``named`` is none of them.
    """
    if named is not None:
        found = next((each for each in nodes if named in (each.location, each.log.path)), None)
        if found is None:
            raise UsageError("--leader: is not one of the directories", path=named)
        return found
    states = [each.log.quorum_state for each in nodes]
    known = [(state.leader_epoch, state.leader_id) for state in states if state is not None and state.leader_id >= 0]
    if not known:
        return None
    _, leader_id = max(known)
    candidates = [each for each in nodes if each.node_id == leader_id]
    return max(candidates, key=lambda each: each.facts.end_offset, default=None)


def finding_of(result: RuleResult) -> Finding:
    """A violation as a finding."""
    assert result.grade is not None
    message = f"{result.rule.name}: {result.evidence}"
    return Finding(CODES[result.rule], _SEVERITIES[result.grade], result.path, message, result.offset)


def _disagrees(node: NodeFacts, grade: Grade, evidence: str, path: str | None = None, offset: int | None = None) -> RuleResult:
    return RuleResult.violated(Rule.K13, grade, evidence, path or node.log.path, offset)


def _agreement(nodes: Sequence[NodeFacts], lead: NodeFacts | None, followers: Followers) -> list[RuleResult]:
    """K13."""
    clusters = {each.cluster_id for each in nodes if each.cluster_id is not None}
    if len(clusters) > 1:
        detail = f"the directories are of {len(clusters)} clusters, this one of"
        return [_disagrees(node, Grade.ERROR, f"{detail} {node.cluster_id or 'one that is not known'}") for node in nodes]
    holders: dict[OffsetAndEpoch, list[_Copy]] = defaultdict(list)
    for node in nodes:
        whole = {each.id for each in node.facts.checkpoints if each.fault is None}
        for checkpoint in node.log.checkpoints:
            id_ = OffsetAndEpoch(checkpoint.end_offset, checkpoint.epoch)
            if id_ in whole:
                holders[id_].append(_Copy(node, checkpoint))
    results = judge_starts(None if lead is None else lead.facts, [each.facts for each in nodes if each is not lead], followers)
    results += _histories(nodes)
    return results + [each for copies in holders.values() for each in _equal_content(copies)]


def _contents(node: NodeFacts, nodes: Sequence[NodeFacts]) -> list[RuleResult]:
    """K16; a checkpoint that the node's own log does not reach is compared with the log of another node of the cluster (K13)."""
    whole = {each.id for each in node.facts.checkpoints if each.fault is None and each.id.offset}
    results = _compared_with(node, node, whole)
    for other in nodes:
        if other is not node and whole and other.cluster_id == node.cluster_id:
            results += [each for each in _compared_with(node, other, whole) if each.outcome is RuleOutcome.VIOLATED]
    is_held = all(each.rule is not Rule.K16 for each in results)
    return [*results, RuleResult.held(Rule.K16, node.log.path)] if is_held else results


def _compared_with(node: NodeFacts, other: NodeFacts, waiting: set[OffsetAndEpoch]) -> list[RuleResult]:
    """Compares checkpoints of a node with a log, and takes away from ``waiting`` what was compared."""
    rule, whose = (Rule.K16, "the log") if node is other else (Rule.K13, f"the log of {_name(other)}")
    results = []
    try:
        for each in compare_with_log(other.log, node.log, set(waiting)):
            path, end = each.checkpoint.path, each.checkpoint.end_offset
            waiting.discard(OffsetAndEpoch(end, each.checkpoint.epoch))
            differs = f"differs from {whose} up to offset {end - 1}: {each.difference}" if each.difference else ""
            if differs and not each.unread:
                results.append(RuleResult.violated(rule, Grade.ERROR, differs, path, end))
            elif each.unread:
                results.append(RuleResult.not_judged(rule, ", and ".join(filter(None, (differs, each.unread))), path, end))
    except (ReadFailedError, ChangedFileError) as error:
        if isinstance(error, ReadFailedError) and error.errno != errno.ENOENT:
            raise
        results.append(RuleResult.not_judged(rule, "a file was deleted or changed while it was read", node.log.path))
    return results


def _histories(nodes: Sequence[NodeFacts]) -> Iterator[RuleResult]:
    """Every log is compared with those that end above it, by epoch first; the worst difference of each is reported."""
    ordered = sorted(nodes, key=lambda each: each.facts.end_after_start, reverse=True)
    for number, node in enumerate(ordered):
        found = [result for other in ordered[:number] for result in _differences(node, other)]
        if found:
            yield min(found, key=lambda each: (each.grade is not Grade.ERROR, each.offset or 0))


def _differences(node: NodeFacts, other: NodeFacts) -> Iterator[RuleResult]:
    """Contradictions between two nodes. The other node has the higher epoch, or the longer log."""
    here, there, name = node.facts, other.facts, _name(other)
    one, two = here.quorum_state, there.quorum_state
    if one is not None and two is not None and one.leader_epoch == two.leader_epoch:
        if -1 not in (one.leader_id, two.leader_id) and one.leader_id != two.leader_id:
            detail = f"quorum-state names node {one.leader_id} as the leader of epoch {one.leader_epoch}"
            yield _disagrees(node, Grade.ERROR, f"{detail}, and that of {name} names node {two.leader_id}")
        # Only version 0 holds voters, and a change of them takes effect with the next epoch.
        if one.voters and two.voters and {*one.voters} != {*two.voters}:
            detail = f"quorum-state of epoch {one.leader_epoch} names voters {ids_text({*one.voters})}"
            yield _disagrees(node, Grade.ERROR, f"{detail}, and that of {name} names {ids_text({*two.voters})}")
    for epoch in sorted(here.leaders.keys() & there.leaders.keys()):
        if here.leaders[epoch] != there.leaders[epoch]:
            detail = f"the log names node {here.leaders[epoch]} as the leader of epoch {epoch}"
            yield _disagrees(node, Grade.ERROR, f"{detail}, and that of {name} names node {there.leaders[epoch]}")
    leader = {**there.leaders, **here.leaders}.get(here.last_epoch)
    if leader is not None and leader == node.node_id and there.epoch_at(here.end_offset) == here.last_epoch:
        # Followers copy from the leader, so its own log of its epoch is never the shorter one.
        evidence = (
            f"led epoch {here.last_epoch} and ends at {here.end_offset}, and {name} holds more of that epoch: the end of this "
            "log was lost, or the directory was copied earlier"
        )
        yield _disagrees(node, Grade.WARNING, evidence, offset=here.end_offset)
    begin, end = max(here.base, there.base), min(here.end_offset, there.end_offset)
    difference = first_difference(here.batches, there.batches, begin, end, (here.gaps, there.gaps))
    if difference is not None:
        yield _diverged(node, other, difference)
    yield from _checkpoint_epochs(node, other)
    yield from _checkpoint_epochs(other, node)


def _diverged(node: NodeFacts, other: NodeFacts, difference: Difference) -> RuleResult:
    here, there, name = node.facts, other.facts, _name(other)
    committed = max((each.id.offset for each in here.checkpoints if each.fault is None), default=0)
    offset = _first_record(node, other, difference.offset)
    what = f"differs from {name} from offset {offset} on: epoch {difference.epochs[0]} here, {difference.epochs[1]} there"
    highest = "both end in the same epoch"
    if here.last_epoch != there.last_epoch:
        highest = f"{name} has the highest epoch, {there.last_epoch}"
    grade, then = Grade.WARNING, f"this node drops offsets {offset} to {here.end_offset - 1} when it follows a leader with that log"
    if difference.is_impossible:
        grade, then = Grade.ERROR, "a leader writes one record at an offset of its epoch, so one of the two was changed"
    elif difference.offset < committed:
        grade, then = Grade.ERROR, f"offsets below {committed} were committed by a checkpoint of this node"
    return _disagrees(node, grade, f"{what}; {highest}; {then}", offset=offset)


def _checkpoint_epochs(node: NodeFacts, other: NodeFacts) -> Iterator[RuleResult]:
    """The id of a checkpoint against the log and the checkpoints of another node. K7 reports one that contradicts its own log."""
    ids = {each.id.offset: each.id.epoch for each in other.facts.checkpoints}
    for each in node.facts.checkpoints:
        epoch, where = other.facts.epoch_at(each.id.offset - 1), "the log"
        if epoch is None:
            epoch, where = ids.get(each.id.offset), "a checkpoint"
        if epoch is not None and each.id.offset and epoch != each.id.epoch and not each.has_other_epoch:
            evidence = f"has epoch {each.id.epoch} at offset {each.id.offset - 1}, and {where} of {_name(other)} has epoch {epoch}"
            yield _disagrees(node, Grade.ERROR, evidence, each.path, each.id.offset)


def _first_record(node: NodeFacts, other: NodeFacts, offset: int) -> int:
    """The first record that differs in the batches at an offset; the offset itself where no record does, or they cannot be read."""
    found = []
    for each in (node, other):
        try:
            with each.log.walk(offset).until() as batches:
                found.append(next(batches))
        except (StopIteration, FormatError, ReadFailedError, ChangedFileError):
            return offset
    pairs = zip(found[0].records, found[1].records, strict=False) if found[0].leader_epoch == found[1].leader_epoch else ()
    return next((mine.offset for mine, theirs in pairs if _content(mine) != _content(theirs)), offset)


def _content(record: MetadataRecord) -> object:
    return record.content.value if isinstance(record.content, UnreadRecord) else record.content


def _name(node: NodeFacts) -> str:
    return node.log.path if node.node_id is None else f"node {node.node_id} ({node.log.path})"


class _Copy(NamedTuple):
    """A checkpoint of a node."""

    node: NodeFacts
    checkpoint: MetadataCheckpoint

    def batches(self) -> Iterator[MetadataBatch]:
        return self.node.log.checkpoint_batches(self.checkpoint)


def _equal_content(copies: list[_Copy]) -> Iterator[RuleResult]:
    """Compares every copy of a checkpoint with the first."""
    first: tuple[_Copy, CheckpointContent] | None = None
    for copy in copies if len(copies) > 1 else ():
        path, end = copy.checkpoint.path, copy.checkpoint.end_offset
        detail = f"the checkpoint at {OffsetAndEpoch(end, copy.checkpoint.epoch)}"
        try:
            content = checkpoint_content(copy.batches())
            first = first or (copy, content)
            if content.compared != first[1].compared:
                only = differing_records(first[0].batches(), copy.batches(), (first[1].topics, content.topics))
                evidence = f"differs from {first[0].checkpoint.path}, which has the same id: {_difference(only)}"
                yield _disagrees(copy.node, Grade.ERROR, evidence, path, end)
        except ReadFailedError as error:
            if error.errno != errno.ENOENT:
                raise
            yield RuleResult.not_judged(Rule.K13, f"{detail} was deleted while it was read, and is not compared", path, end)
        except FormatError as error:
            why = f"{detail} changed while it was read, and is not compared: {error.message}"
            yield RuleResult.not_judged(Rule.K13, why, path, end)


def _difference(only: tuple[list[str], list[str]]) -> str:
    parts = []
    for kinds, whose in zip(only, ("there", "here"), strict=True):
        if kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(kinds).items())[:4])
            parts.append(f"{pluralize(len(kinds), 'record')} only {whose} ({counts})")
    return "; ".join(parts)
