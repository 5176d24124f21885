"""K13: whether metadata logs of the nodes of one quorum agree, and which of them is the odd one.

More than half of the directories that hold an answer decide. Where no answer has a majority, the node with the lower epoch or the shorter
log is named: it would follow the other.

Source: KIP-595, ``KafkaRaftClient``, ``ReplicatedLog.truncateToEndOffset`` of Kafka 4.3.1.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from formats.errors import FormatError
from snaprebuild.cluster.metadata.batches import MetadataBatch, MetadataRecord, UnreadRecord
from snaprebuild.cluster.metadata.log import MetadataCheckpoint
from snaprebuild.cluster.quorum.checkpoint_comparison import (
    CheckpointContent,
    checkpoint_content,
    compare_with_log,
    differing_records,
)
from snaprebuild.cluster.quorum.facts import NodeFacts
from snaprebuild.cluster.quorum.log_facts import LogDifference, first_difference
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.cluster.quorum.rules import Followers, QuorumRule, QuorumRuleResult, ids_text, judge_starts
from snaprebuild.cluster.rule_result import Grade, RuleState, broken, holds, unknown
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.findings import pluralize

__all__ = ["agreed", "agreement", "contents"]


def agreed(answers: Iterable[Hashable]) -> Hashable | None:
    """The answer of more than half, and of at least two; None if there is none."""
    counts = Counter(answers)
    total = sum(counts.values())
    return next((answer for answer, count in counts.most_common(1) if count > 1 and count * 2 > total), None)


def _disagrees(
    node: NodeFacts, grade: Grade, evidence: str, path: str | None = None, offset: int | None = None
) -> QuorumRuleResult:
    return broken(QuorumRule.K13, grade, evidence, path or node.log.path, offset)


def agreement(nodes: Sequence[NodeFacts], lead: NodeFacts | None, followers: Followers) -> list[QuorumRuleResult]:
    """K13 for directories, each of one node; what of it depends on the content of a log below a checkpoint is in ``contents``.

    Args:
        nodes: what was read.
        lead: the leader among them; None if it is not known.
        followers: what is asked of their starts.

    Raises:
        ReadFailedError: a file cannot be read.
    """
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
    leader_facts = None if lead is None else lead.facts
    follower_facts = [each.facts for each in nodes if each is not lead]
    results = judge_starts(leader_facts, follower_facts, followers)
    results += _histories(nodes)
    return results + [each for copies in holders.values() for each in _equal_content(copies)]


def _histories(nodes: Sequence[NodeFacts]) -> Iterator[QuorumRuleResult]:
    """Every log is compared with those that end above it, by epoch first; the worst difference of each node is reported."""
    ordered = sorted(nodes, key=lambda each: each.facts.end_after_start, reverse=True)
    found: dict[str, list[QuorumRuleResult]] = defaultdict(list)
    for number, node in enumerate(ordered):
        for other in ordered[:number]:
            for odd, result in _differences(node, other, nodes):
                found[odd.log.path].append(result)
    for results in found.values():
        yield min(results, key=lambda each: (_ORDER.index(each.grade), each.offset or 0))


_ORDER = (Grade.DAMAGE, Grade.ERROR, Grade.WARNING, Grade.INFO, None)


class _Contradiction(NamedTuple):
    """Two nodes that answer one question differently.

    Attributes:
        node: with the lower epoch, or the shorter log.
        other: the other node.
        answers: of all nodes that have one, by path.
    """

    node: NodeFacts
    other: NodeFacts
    answers: dict[str, Hashable]

    def odd_ones(self) -> list[tuple[NodeFacts, NodeFacts, str]]:
        """Which of the two are odd, each with the one that it is compared with, and how that was decided."""
        right = agreed(self.answers.values())
        if right is None:
            return [(self.node, self.other, "")]
        count = sum(answer == right for answer in self.answers.values())
        how = f"; {count} of {len(self.answers)} directories agree against this one"
        pair = ((self.node, self.other), (self.other, self.node))
        # Two odd ones are each compared with one that is right.
        return [(odd, peer, how) for odd, peer in pair if self.answers[odd.log.path] != right == self.answers[peer.log.path]]


def _differences(node: NodeFacts, other: NodeFacts, nodes: Sequence[NodeFacts]) -> Iterator[tuple[NodeFacts, QuorumRuleResult]]:
    """Contradictions between two nodes, with the odd one of them. The other node has the higher epoch, or the longer log."""
    yield from _quorum_states(node, other, nodes)
    here = node.facts
    there = other.facts
    for epoch in sorted(here.leaders.keys() & there.leaders.keys()):
        if here.leaders[epoch] != there.leaders[epoch]:
            answers: dict[str, Hashable] = {
                each.log.path: each.facts.leaders[epoch] for each in nodes if epoch in each.facts.leaders
            }
            for odd, peer, how in _Contradiction(node, other, answers).odd_ones():
                detail = f"the log names node {odd.facts.leaders[epoch]} as the leader of epoch {epoch}"
                text = f"{detail}, and that of {_name(peer)} names node {peer.facts.leaders[epoch]}{how}"
                yield odd, _disagrees(odd, Grade.ERROR, text)
    leader = {**there.leaders, **here.leaders}.get(here.last_epoch)
    if leader is not None and leader == node.node_id and there.epoch_at(here.end_offset) == here.last_epoch:
        yield node, _shorter_leader(node, other)
    begin = max(here.base, there.base)
    end = min(here.end_offset, there.end_offset)
    difference = first_difference(here.batches, there.batches, begin, end, (here.gaps, there.gaps))
    if difference is not None:
        yield from _diverged(node, other, nodes, difference)
    for result in _checkpoint_epochs(node, other, nodes):
        yield node, result
    for result in _checkpoint_epochs(other, node, nodes):
        yield other, result


def _quorum_states(node: NodeFacts, other: NodeFacts, nodes: Sequence[NodeFacts]) -> Iterator[tuple[NodeFacts, QuorumRuleResult]]:
    one = node.facts.quorum_state
    two = other.facts.quorum_state
    if one is None or two is None or one.leader_epoch != two.leader_epoch:
        return
    states = {
        each.log.path: state
        for each in nodes
        if (state := each.facts.quorum_state) is not None and state.leader_epoch == one.leader_epoch
    }
    if -1 not in (one.leader_id, two.leader_id) and one.leader_id != two.leader_id:
        leaders: dict[str, Hashable] = {path: state.leader_id for path, state in states.items() if state.leader_id != -1}
        for odd, peer, how in _Contradiction(node, other, leaders).odd_ones():
            detail = f"quorum-state names node {leaders[odd.log.path]} as the leader of epoch {one.leader_epoch}"
            text = f"{detail}, and that of {_name(peer)} names node {leaders[peer.log.path]}{how}"
            yield odd, _disagrees(odd, Grade.ERROR, text)
    # Only version 0 holds voters, and a change of them takes effect with the next epoch.
    if one.voters and two.voters and {*one.voters} != {*two.voters}:
        voters: dict[str, Hashable] = {path: ids_text({*state.voters}) for path, state in states.items() if state.voters}
        for odd, peer, how in _Contradiction(node, other, voters).odd_ones():
            detail = f"quorum-state of epoch {one.leader_epoch} names voters {voters[odd.log.path]}"
            text = f"{detail}, and that of {_name(peer)} names {voters[peer.log.path]}{how}"
            yield odd, _disagrees(odd, Grade.ERROR, text)


def _shorter_leader(node: NodeFacts, other: NodeFacts) -> QuorumRuleResult:
    """Followers copy from the leader, so its own log of its epoch is never the shorter one, once it has stopped.

    Of a quorum that runs, the directory of the leader may have been copied before the others.
    """
    here = node.facts
    name = _name(other)
    evidence = f"led epoch {here.last_epoch} and ends at {here.end_offset}, and {name} holds more of that epoch"
    if here.has_marker:
        evidence += ": it stopped cleanly, so the end of this log was lost, or the directory was copied earlier"
        return _disagrees(node, Grade.WARNING, evidence, offset=here.end_offset)
    evidence += ": the directory was copied earlier, or the end of this log was lost"
    return _disagrees(node, Grade.INFO, evidence, offset=here.end_offset)


def _batch_at(node: NodeFacts, offset: int) -> Hashable | None:
    """The batch with an offset, as a value that is equal for equal batches; None if the log does not hold it."""
    if node.facts.epoch_at(offset) is None:
        return None
    batches = node.facts.batches
    at = bisect_right(batches.base_offset, offset) - 1
    return batches.base_offset[at], batches.epoch[at], batches.crc[at]


def _diverged(
    node: NodeFacts, other: NodeFacts, nodes: Sequence[NodeFacts], difference: LogDifference
) -> Iterator[tuple[NodeFacts, QuorumRuleResult]]:
    here = node.facts
    committed = max((checkpoint.id.offset for checkpoint in here.checkpoints if checkpoint.fault is None), default=0)
    if not difference.is_impossible and difference.offset >= committed:
        then = f"this node drops offsets {{0}} to {here.end_offset - 1} when it follows a leader with that log"
        yield node, _tail_differs(node, other, difference, Grade.WARNING, then)
        return
    then = "a leader writes one record at an offset of its epoch, so one of the two was changed"
    if not difference.is_impossible:
        then = f"offsets below {committed} were committed by a checkpoint of this node"
    batches = {each.log.path: _batch_at(each, difference.offset) for each in nodes}
    if batches[node.log.path] == batches[other.log.path]:  # they part in a gap, which no majority fills
        yield node, _tail_differs(node, other, difference, Grade.ERROR, then)
        return
    answers = {path: batch for path, batch in batches.items() if batch is not None}
    for each in (node, other):
        answers.setdefault(each.log.path, None)
    for odd, peer, how in _Contradiction(node, other, answers).odd_ones():
        if odd is node:
            seen = difference
        else:
            seen = replace(difference, epochs=(difference.epochs[1], difference.epochs[0]))
        yield odd, _tail_differs(odd, peer, seen, Grade.ERROR, then + how)


def _tail_differs(node: NodeFacts, other: NodeFacts, difference: LogDifference, grade: Grade, then: str) -> QuorumRuleResult:
    here = node.facts
    there = other.facts
    name = _name(other)
    offset = _first_record(node, other, difference.offset)
    what = f"differs from {name} from offset {offset} on: epoch {difference.epochs[0]} here, {difference.epochs[1]} there"
    highest = "both end in the same epoch"
    if here.last_epoch != there.last_epoch:
        lead, epoch = (name, there.last_epoch) if there.last_epoch > here.last_epoch else ("this node", here.last_epoch)
        highest = f"{lead} has the highest epoch, {epoch}"
    return _disagrees(node, grade, f"{what}; {highest}; {then.format(offset)}", offset=offset)


def _epoch_before(node: NodeFacts, offset: int) -> tuple[int | None, str]:
    """The epoch of the record before an offset, by the log of a node, else by the id of a checkpoint; and which of them says so."""
    epoch = node.facts.epoch_at(offset - 1)
    if epoch is not None:
        return epoch, "the log"
    ids = {checkpoint.id.offset: checkpoint.id.epoch for checkpoint in node.facts.checkpoints}
    return ids.get(offset), "a checkpoint"


def _checkpoint_epochs(node: NodeFacts, other: NodeFacts, nodes: Sequence[NodeFacts]) -> Iterator[QuorumRuleResult]:
    """The id of a checkpoint against the log and the checkpoints of another node. K7 reports one that contradicts its own log."""
    for checkpoint in node.facts.checkpoints:
        offset = checkpoint.id.offset
        epoch, where = _epoch_before(other, offset)
        if epoch is None or not offset or epoch == checkpoint.id.epoch or checkpoint.has_other_epoch:
            continue
        epochs = [_epoch_before(other_node, offset)[0] for other_node in nodes]
        if agreed(answer for answer in epochs if answer is not None) == checkpoint.id.epoch:
            continue  # the other node is the odd one
        evidence = f"has epoch {checkpoint.id.epoch} at offset {offset - 1}, and {where} of {_name(other)} has epoch {epoch}"
        yield _disagrees(node, Grade.ERROR, evidence, checkpoint.path, offset)


def _first_record(node: NodeFacts, other: NodeFacts, offset: int) -> int:
    """The first record that differs in the batches at an offset; the offset itself where no record does, or they cannot be read."""
    first_batches = []
    for each in (node, other):
        try:
            with each.log.walk(offset).until() as batches:
                first_batches.append(next(batches))
        except (StopIteration, FormatError, ReadFailedError, ChangedFileError):
            return offset
    own_batch, other_batch = first_batches
    if own_batch.leader_epoch != other_batch.leader_epoch:
        return offset
    for mine, theirs in zip(own_batch.records, other_batch.records, strict=False):
        if _content(mine) != _content(theirs):
            return mine.offset
    return offset


def _content(record: MetadataRecord) -> object:
    return record.content.value if isinstance(record.content, UnreadRecord) else record.content


def _name(node: NodeFacts) -> str:
    return node.log.path if node.node_id is None else f"node {node.node_id} ({node.log.path})"


class _Copy(NamedTuple):
    """A checkpoint of a node."""

    node: NodeFacts
    checkpoint: MetadataCheckpoint

    @property
    def id_text(self) -> str:
        return f"the checkpoint at {OffsetAndEpoch(self.checkpoint.end_offset, self.checkpoint.epoch)}"

    def batches(self) -> Iterator[MetadataBatch]:
        return self.node.log.checkpoint_batches(self.checkpoint)


def _equal_content(copies: list[_Copy]) -> Iterator[QuorumRuleResult]:
    """Compares the copies of a checkpoint: each with one of the majority, else with the first."""
    contents: list[tuple[_Copy, CheckpointContent]] = []
    for copy in copies if len(copies) > 1 else ():
        path = copy.checkpoint.path
        end = copy.checkpoint.end_offset
        try:
            contents.append((copy, checkpoint_content(copy.batches())))
        except ReadFailedError as error:
            if error.errno != errno.ENOENT:
                raise
            reason = f"{copy.id_text} was deleted while it was read, and is not compared"
            yield unknown(QuorumRule.K13, reason, path, end)
        except FormatError as error:
            reason = f"{copy.id_text} changed while it was read, and is not compared: {error.message}"
            yield unknown(QuorumRule.K13, reason, path, end)
    right = agreed(content.compared for _, content in contents)
    model = next((each for each in contents if right in (None, each[1].compared)), None)
    for copy, content in contents:
        if model is not None and content.compared != model[1].compared:
            yield _other_content(model, copy, content)


def _other_content(model: tuple[_Copy, CheckpointContent], copy: _Copy, content: CheckpointContent) -> QuorumRuleResult:
    path = copy.checkpoint.path
    end = copy.checkpoint.end_offset
    try:
        only = differing_records(model[0].batches(), copy.batches(), (model[1].topics, content.topics))
    except ReadFailedError as error:
        if error.errno != errno.ENOENT:
            raise
        reason = f"{copy.id_text}, or the copy that it differs from, was deleted while it was read"
        return unknown(QuorumRule.K13, reason, path, end)
    evidence = f"differs from {model[0].checkpoint.path}, which has the same id: {_difference(only)}"
    return _disagrees(copy.node, Grade.ERROR, evidence, path, end)


def _difference(only: tuple[list[str], list[str]]) -> str:
    parts = []
    for kinds, whose in zip(only, ("there", "here"), strict=True):
        if kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(kinds).items())[:4])
            parts.append(f"{pluralize(len(kinds), 'record')} only {whose} ({counts})")
    return "; ".join(parts)


def contents(node: NodeFacts, nodes: Sequence[NodeFacts]) -> list[QuorumRuleResult]:
    """K16; a checkpoint that the node's own log does not reach is compared with the logs of other nodes of the cluster (K13).

    Raises:
        ReadFailedError: a file cannot be read.
    """
    waiting = {checkpoint.id for checkpoint in node.facts.checkpoints if checkpoint.fault is None and checkpoint.id.offset}
    results = _compared_with(node, node, waiting)
    contradictions = [each for each in results.values() if each is not None]
    waiting -= results.keys()
    disputed: dict[OffsetAndEpoch, QuorumRuleResult] = {}
    for other in nodes:
        if other is node or not waiting or other.cluster_id != node.cluster_id:
            continue
        for id_, result in _compared_with(node, other, waiting).items():
            if result is None:  # the checkpoint and this log agree, so a log that differs is the odd one
                waiting.discard(id_)
                disputed.pop(id_, None)
            elif result.state is RuleState.BROKEN:
                disputed.setdefault(id_, result)
    contradictions += disputed.values()
    is_held = all(contradiction.rule is not QuorumRule.K16 for contradiction in contradictions)
    if is_held:
        return [*contradictions, holds(QuorumRule.K16, path=node.log.path)]
    return contradictions


def _compared_with(
    node: NodeFacts, other: NodeFacts, waiting: Collection[OffsetAndEpoch]
) -> dict[OffsetAndEpoch, QuorumRuleResult | None]:
    """Compares checkpoints of a node with a log: the result of each that the log reaches, None for one that is equal."""
    rule, whose = (QuorumRule.K16, "the log") if node is other else (QuorumRule.K13, f"the log of {_name(other)}")
    results: dict[OffsetAndEpoch, QuorumRuleResult | None] = {}
    try:
        for each in compare_with_log(other.log, node.log, set(waiting)):
            path = each.checkpoint.path
            end = each.checkpoint.end_offset
            differs = f"differs from {whose} up to offset {end - 1}: {each.difference}" if each.difference else ""
            result = None
            if each.unread:
                result = unknown(rule, ", and ".join(filter(None, (differs, each.unread))), path, end)
            elif differs:
                result = broken(rule, Grade.ERROR, differs, path, end)
            results[OffsetAndEpoch(end, each.checkpoint.epoch)] = result
    except (ReadFailedError, ChangedFileError) as error:
        if isinstance(error, ReadFailedError) and error.errno != errno.ENOENT:
            raise
        reason = "a file was deleted or changed while it was read"
        results[_NO_CHECKPOINT] = unknown(rule, reason, node.log.path)
    return results


_NO_CHECKPOINT = OffsetAndEpoch(-1, -1)
"""Key of a result that is of no checkpoint."""
