"""Holds metadata log directories against rules K1 to K16."""

from __future__ import annotations

import errno
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from formats.errors import FormatError
from snaprebuild.cluster.metadata.batches import MetadataRecord, UnreadRecord
from snaprebuild.cluster.metadata.log import MetadataCheckpoint
from snaprebuild.cluster.quorum.checkpoint_comparison import (
    CheckpointContent,
    checkpoint_content,
    compare_with_log,
    differing_records,
)
from snaprebuild.cluster.quorum.election import Election, election_of
from snaprebuild.cluster.quorum.facts import NodeFacts, read_node
from snaprebuild.cluster.quorum.log_facts import CheckpointFacts, epoch_before, first_difference
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.cluster.quorum.rules import (
    Followers,
    Grade,
    Outcome,
    Rule,
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
"""Findings of the rules; docs/findings.md lists them."""

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
        is_leader: of those that were given; None where that is not known.
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
        leader: one of the locations; None where the quorum states tell.
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
            alone = RuleResult(Rule.K13, Outcome.NOT_JUDGED, None, "one node was given", path)
            check.results.append(alone if len(nodes) == 1 else RuleResult(Rule.K13, Outcome.HELD, None, "", path))
        check.results.sort(key=lambda each: list(Rule).index(each.rule))
        findings += [finding_of(each) for each in check.results if each.grade is not None]
    return KraftCheck(checks, followers, election_of([(each.node, each.results) for each in checks]), findings)


def leader_among(nodes: Sequence[NodeFacts], named: str | None) -> NodeFacts | None:
    """The leader of the last epoch that any of the nodes knows; the longest log where several directories are of that node.

    Raises:
        UsageError: ``named`` is none of them.
    """
    if named is not None:
        found = next((each for each in nodes if named in (each.location, each.log.path)), None)
        if found is None:
            raise UsageError("--leader: is none of the directories", path=named)
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


def _agreement(nodes: Sequence[NodeFacts], lead: NodeFacts | None, followers: Followers) -> Iterator[RuleResult]:
    """K13."""
    clusters = {each.cluster_id for each in nodes if each.cluster_id is not None}
    if len(clusters) > 1:
        for node in nodes:
            evidence = f"the directories are of {len(clusters)} clusters, this one of {node.cluster_id or 'one that is not known'}"
            yield RuleResult(Rule.K13, Outcome.VIOLATED, Grade.ERROR, evidence, node.log.path)
        return
    yield from judge_starts(None if lead is None else lead.facts, [each.facts for each in nodes if each is not lead], followers)
    yield from _histories(nodes)
    holders: dict[OffsetAndEpoch, list[tuple[NodeFacts, MetadataCheckpoint]]] = defaultdict(list)
    for node in nodes:
        whole = {each.id for each in node.facts.checkpoints if each.fault is None}
        for checkpoint in node.log.checkpoints:
            id_ = OffsetAndEpoch(checkpoint.end_offset, checkpoint.epoch)
            if id_ in whole:
                holders[id_].append((node, checkpoint))
    for id_, copies in holders.items():
        if len(copies) > 1:
            yield from _equal_content(id_, copies)


def _contents(node: NodeFacts, nodes: Sequence[NodeFacts]) -> list[RuleResult]:
    """K16; a checkpoint that the node's own log does not reach is compared with the log of another node of the cluster (K13)."""
    whole = {each.id for each in node.facts.checkpoints if each.fault is None and each.id.offset}
    results = _compared_with(node, node, whole)
    for other in nodes:
        if other is not node and whole and other.cluster_id == node.cluster_id:
            results += [each for each in _compared_with(node, other, whole) if each.outcome is Outcome.VIOLATED]
    if all(each.rule is not Rule.K16 for each in results):
        results.append(RuleResult(Rule.K16, Outcome.HELD, None, "", node.log.path))
    return results


def _compared_with(node: NodeFacts, other: NodeFacts, waiting: set[OffsetAndEpoch]) -> list[RuleResult]:
    """Compares checkpoints of a node with a log, and takes away from ``waiting`` what was compared."""
    path, results = node.log.path, []
    rule, whose = (Rule.K16, "the log") if node is other else (Rule.K13, f"the log of {_name(other)}")
    try:
        for each in compare_with_log(other.log, node.log, set(waiting)):
            waiting.discard(OffsetAndEpoch(each.checkpoint.end_offset, each.checkpoint.epoch))
            checkpoint = each.checkpoint
            evidence = each.unread
            if each.difference:
                evidence = f"differs from {whose} up to offset {checkpoint.end_offset - 1}: {each.difference}"
                if not each.unread:
                    violated = RuleResult(rule, Outcome.VIOLATED, Grade.ERROR, evidence, checkpoint.path, checkpoint.end_offset)
                    results.append(violated)
                    continue
                evidence += f", and {each.unread}"
            if evidence:
                results.append(RuleResult(rule, Outcome.NOT_JUDGED, None, evidence, checkpoint.path, checkpoint.end_offset))
    except (ReadFailedError, ChangedFileError) as error:
        if isinstance(error, ReadFailedError) and error.errno != errno.ENOENT:
            raise
        results.append(RuleResult(rule, Outcome.NOT_JUDGED, None, "a file was deleted or changed while it was read", path))
    return results


def _histories(nodes: Sequence[NodeFacts]) -> Iterator[RuleResult]:
    """Every log is compared with those that end above it, by epoch first; the worst difference of each is reported."""
    ordered = sorted(nodes, key=lambda each: each.facts.end_after_start, reverse=True)
    for number, node in enumerate(ordered):
        found = [result for other in ordered[:number] for result in _differences(node, other)]
        if found:
            yield min(found, key=lambda each: (each.grade is not Grade.ERROR, each.offset or 0))


def _differences(node: NodeFacts, other: NodeFacts) -> Iterator[RuleResult]:
    """What contradicts in two nodes, of which the other has the higher epoch, or the longer log."""
    here, there, path = node.facts, other.facts, node.log.path
    states = here.quorum_state, there.quorum_state
    if states[0] is not None and states[1] is not None:
        named = [each.leader_id for each in states if each is not None]
        if states[0].leader_epoch == states[1].leader_epoch and -1 not in named and named[0] != named[1]:
            evidence = (
                f"quorum-state names node {named[0]} as the leader of epoch {states[0].leader_epoch}, and that of "
                f"{_name(other)} names node {named[1]}"
            )
            yield RuleResult(Rule.K13, Outcome.VIOLATED, Grade.ERROR, evidence, path)
        # Only version 0 holds voters, and a change of them takes effect with the next epoch.
        voters = [set(each.voters) for each in states if each is not None and each.voters]
        if states[0].leader_epoch == states[1].leader_epoch and len(voters) == 2 and voters[0] != voters[1]:
            evidence = (
                f"quorum-state of epoch {states[0].leader_epoch} names voters {ids_text(voters[0])}, and that of {_name(other)} names "
                f"{ids_text(voters[1])}"
            )
            yield RuleResult(Rule.K13, Outcome.VIOLATED, Grade.ERROR, evidence, path)
    for epoch in sorted(here.leaders.keys() & there.leaders.keys()):
        if here.leaders[epoch] != there.leaders[epoch]:
            evidence = f"the log names node {here.leaders[epoch]} as the leader of epoch {epoch}, and that of {_name(other)} names "
            evidence += f"node {there.leaders[epoch]}"
            yield RuleResult(Rule.K13, Outcome.VIOLATED, Grade.ERROR, evidence, path)
    leader = {**there.leaders, **here.leaders}.get(here.last_epoch)
    if leader is not None and leader == node.node_id and there.epoch_at(here.end_offset) == here.last_epoch:
        # Followers copy from the leader, so its own log of its epoch is never the shorter one.
        evidence = (
            f"led epoch {here.last_epoch} and ends at {here.end_offset}, and {_name(other)} holds more of that epoch: the end of this "
            "log was lost, or the directory was copied earlier"
        )
        yield RuleResult(Rule.K13, Outcome.VIOLATED, Grade.WARNING, evidence, path, here.end_offset)
    begin, end = max(here.base, there.base), min(here.end_offset, there.end_offset)
    difference = first_difference(here.batches, there.batches, begin, end, (here.gaps, there.gaps))
    if difference is not None:
        committed = max((each.id.offset for each in here.checkpoints if each.fault is None), default=0)
        is_error = difference.is_impossible or difference.offset < committed
        offset = _first_record(node, other, difference.offset)
        what = (
            f"differs from {_name(other)} from offset {offset} on: epoch {difference.epochs[0]} here, {difference.epochs[1]} there"
        )
        highest = "both end in the same epoch"
        if here.last_epoch != there.last_epoch:
            highest = f"{_name(other)} has the highest epoch, {there.last_epoch}"
        if difference.is_impossible:
            then = "a leader writes one record at an offset of its epoch, so one of the two was changed"
        elif is_error:
            then = f"offsets below {committed} were committed by a checkpoint of this node"
        else:
            then = f"this node drops offsets {offset} to {here.end_offset - 1} when it follows a leader with that log"
        grade = Grade.ERROR if is_error else Grade.WARNING
        yield RuleResult(Rule.K13, Outcome.VIOLATED, grade, f"{what}; {highest}; {then}", path, offset)
    yield from _checkpoint_epochs(node, other)
    yield from _checkpoint_epochs(other, node)


def _checkpoint_epochs(node: NodeFacts, other: NodeFacts) -> Iterator[RuleResult]:
    """The id of a checkpoint against the log and the checkpoints of another node."""
    ids = {each.id.offset: each.id.epoch for each in other.facts.checkpoints}
    for each in node.facts.checkpoints:
        epoch = other.facts.epoch_at(each.id.offset - 1)
        where = "the log"
        if epoch is None:
            epoch, where = ids.get(each.id.offset), "a checkpoint"
        if epoch is not None and each.id.offset and epoch != each.id.epoch and not _is_own_fault(each):
            evidence = f"has epoch {each.id.epoch} at offset {each.id.offset - 1}, and {where} of {_name(other)} has epoch {epoch}"
            yield RuleResult(Rule.K13, Outcome.VIOLATED, Grade.ERROR, evidence, each.path, each.id.offset)


def _is_own_fault(checkpoint: CheckpointFacts) -> bool:
    """K7 reports it."""
    epoch = epoch_before(checkpoint.id.offset, checkpoint.below)
    return epoch is not None and epoch != checkpoint.id.epoch


def _first_record(node: NodeFacts, other: NodeFacts, offset: int) -> int:
    """The first record that differs in the batches at an offset; the offset itself where no record does, or they cannot be read."""
    found = []
    for each in (node, other):
        try:
            with each.log.walk(offset).until() as batches:
                found.append(next(batches))
        except (StopIteration, FormatError, ReadFailedError, ChangedFileError):
            return offset
    one, two = found
    if one.leader_epoch == two.leader_epoch:
        for mine, theirs in zip(one.records, two.records, strict=False):
            if _content(mine) != _content(theirs):
                return mine.offset
    return offset


def _content(record: MetadataRecord) -> object:
    return record.content.value if isinstance(record.content, UnreadRecord) else record.content


def _name(node: NodeFacts) -> str:
    return node.log.path if node.node_id is None else f"node {node.node_id} ({node.log.path})"


def _equal_content(id_: OffsetAndEpoch, copies: list[tuple[NodeFacts, MetadataCheckpoint]]) -> Iterator[RuleResult]:
    """Every copy of a checkpoint is held against the first."""
    first: tuple[NodeFacts, MetadataCheckpoint, CheckpointContent] | None = None
    for node, checkpoint in copies:
        try:
            content = checkpoint_content(node.log.checkpoint_batches(checkpoint))
            if first is None:
                first = node, checkpoint, content
            elif content.compared != first[2].compared:
                told = _difference(first, (node, checkpoint, content))
                evidence = f"differs from {first[1].path}, which has the same id: {told}"
                yield RuleResult(Rule.K13, Outcome.VIOLATED, Grade.ERROR, evidence, checkpoint.path, id_.offset)
        except ReadFailedError as error:
            if error.errno != errno.ENOENT:
                raise
            evidence = f"the checkpoint at {id_} was deleted while it was read, and is not compared"
            yield RuleResult(Rule.K13, Outcome.NOT_JUDGED, None, evidence, checkpoint.path, id_.offset)
        except FormatError as error:
            evidence = f"the checkpoint at {id_} changed while it was read, and is not compared: {error.message}"
            yield RuleResult(Rule.K13, Outcome.NOT_JUDGED, None, evidence, checkpoint.path, id_.offset)


def _difference(
    one: tuple[NodeFacts, MetadataCheckpoint, CheckpointContent], other: tuple[NodeFacts, MetadataCheckpoint, CheckpointContent]
) -> str:
    here, there = (each[0].log.checkpoint_batches(each[1]) for each in (other, one))
    only = differing_records(there, here, (one[2].topics, other[2].topics))
    told = []
    for kinds, whose in zip(only, ("there", "here"), strict=True):
        if kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(kinds).items())[:4])
            told.append(f"{pluralize(len(kinds), 'record')} only {whose} ({counts})")
    return "; ".join(told)
