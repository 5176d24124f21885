"""Whether a metadata log can be started from, and read: rules K1 to K20 over one directory, or several.

A rule is unknown if what it needs is missing, or another rule has reported the reason: each defect is reported once.

Source: ``KafkaRaftLog.recoverSnapshots`` and ``truncateToLatestSnapshot``, ``Snapshots.parse``, ``RaftLog.validateOffsetAndEpoch``,
``LogFileUtils.offsetFromFileName``, ``LogLoader``, ``ProducerStateManager.loadSnapshots`` of 4.3.1; KAFKA-14932.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

from formats.partition.file_names import META_PROPERTIES, PARTITION_METADATA
from snaprebuild.cluster.quorum.log_facts import LogFacts
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.cluster.rule_result import Grade, RuleId, RuleResult, RuleState, broken, holds, not_applicable, unknown

__all__ = [
    "Followers",
    "NameEffect",
    "QuorumRule",
    "QuorumRuleResult",
    "effect_of_name",
    "ids_text",
    "judge_log",
    "judge_starts",
]


_INTEGER = re.compile(r"[+-]?[0-9]{1,255}")
_CHECKPOINT = ".checkpoint"
_REMOVED_CHECKPOINTS = (".checkpoint.part", ".checkpoint.deleted")
_INDEXES = (".index", ".timeindex", ".txnindex")


class NameEffect(StrEnum):
    """The effect of a file name on the start of a node."""

    NONE = "none"
    REMOVED = "removed"
    """The file is deleted."""
    CLEANER_FAILS = "cleaner-fails"
    """The file is taken for a checkpoint whose file has another name: once log and checkpoints are too large, the cleaner throws."""
    TAKEN_FOR_SEGMENT = "taken-for-segment"
    """The file becomes part of the log, whatever it holds; the log may lose its end by that."""
    REFUSED = "refused"
    """The node does not start."""


def effect_of_name(name: str) -> NameEffect:
    """The effect of a file that is not Kafka's, by the end of its name."""
    if name.endswith((_CHECKPOINT, *_REMOVED_CHECKPOINTS)):
        # Cut at fixed places, whatever is between and after.
        is_read = len(name) >= 31 and _is_number(name[:20], 63) and _is_number(name[21:31], 31)
        if not is_read:
            return NameEffect.REFUSED
        return NameEffect.CLEANER_FAILS if name.endswith(_CHECKPOINT) else NameEffect.REMOVED
    if name.endswith(".deleted"):
        return NameEffect.REMOVED
    if not name.endswith((".cleaned", ".swap", ".log", ".snapshot", *_INDEXES)):
        return NameEffect.NONE
    if not _is_number(name[: name.index(".")], 63):
        return NameEffect.REFUSED
    if name.endswith((".log", ".log.swap")):
        return NameEffect.TAKEN_FOR_SEGMENT
    return NameEffect.REMOVED


def _is_number(text: str, bits: int) -> bool:
    """``Long.parseLong`` and ``Integer.parseInt``."""
    return _INTEGER.fullmatch(text) is not None and -(1 << bits) <= int(text) < 1 << bits


class QuorumRule(RuleId):
    """The rules; the value says what holds."""

    K1 = "a log that begins above 0 has a checkpoint at its first base offset or above"
    K2 = "the start is 0, or where a checkpoint ends"
    K3 = "the epoch before the start is known"
    K4 = "two checkpoints, where the start is above 0"
    K5 = "no checkpoint ends beyond the log"
    K6 = "checkpoints end between batches"
    K7 = "a checkpoint has the epoch of the record before its end"
    K8 = "checkpoints are whole"
    K9 = "no left-overs"
    K10 = "names are Kafka's"
    K11 = "no record is missing between the latest checkpoint and the end of the log"
    K12 = "producer snapshots here are empty"
    K13 = "nodes agree"
    K14 = "leader epochs never decrease in the log"
    K15 = "quorum-state is there and agrees with the log"
    K16 = "checkpoints hold what the log says up to their ends"
    K17 = "the log has not lost its end"
    K18 = "partition.metadata names the metadata log"
    K19 = "meta.properties names the node"
    K20 = "each node has one metadata log"

    def sentence(self, evidence: str) -> str:
        """The evidence of a result as the message of a finding."""
        return f"{self.name}: {evidence}"

    def state_name(self, state: RuleState, grade: Grade | None) -> str:  # each violation has a grade of its own
        """The state in the documents and tables of ``cluster check``."""
        return _STATE_NAMES[state]


class QuorumRuleState(StrEnum):
    """The states of a rule in the documents and tables of ``cluster check``."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_JUDGED = "not-judged"
    """Facts that the rule needs are missing, or another rule reports the reason."""
    NOT_APPLICABLE = "not-applicable"
    """There is nothing to judge."""


_STATE_NAMES = {
    RuleState.HOLDS: QuorumRuleState.HELD,
    RuleState.BROKEN: QuorumRuleState.VIOLATED,
    RuleState.UNKNOWN: QuorumRuleState.NOT_JUDGED,
    RuleState.NOT_APPLICABLE: QuorumRuleState.NOT_APPLICABLE,
}


class Followers(StrEnum):
    """The requirement on a follower's start.

    ``kafka``: none, as up to 4.4 each node moves its own start. ``strict`` and ``literal`` are the heuristic's two readings: the start is
    not beyond the leader's start. With ``literal``, it may be at the leader's start without a checkpoint of its own there.
    """

    KAFKA = "kafka"
    STRICT = "strict"
    LITERAL = "literal"


QuorumRuleResult = RuleResult[QuorumRule]


def judge_log(facts: LogFacts, leader_start: OffsetAndEpoch | None = None) -> list[QuorumRuleResult]:
    """The rules for one directory, but for K16, which needs the records, and K13 and K20, which compare directories.

    Args:
        facts: of the directory.
        leader_start: at which a follower may start without a checkpoint of its own; None if it may not.
    """
    results: list[QuorumRuleResult] = []
    for rule, judge in _RULES.items():
        results += [*judge(facts, leader_start)] or [holds(rule, path=facts.path)]
    return results


def _is_covered(facts: LogFacts) -> bool:
    """K1: whether a node that starts here finds a checkpoint. It looks at names only."""
    return not facts.base or any(checkpoint.id.offset >= facts.base for checkpoint in facts.checkpoints)


def _see(rule: QuorumRule, other: QuorumRule, facts: LogFacts) -> QuorumRuleResult:
    """A rule that another one leaves without what it needs."""
    return unknown(rule, f"see {other.name}", facts.path)


def _k1(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    if _is_covered(facts):
        return []
    latest = f"the latest ends at {facts.checkpoints[-1].id}" if facts.checkpoints else "there is none"
    evidence = f"the first segment begins at {facts.base}, and no checkpoint ends there or above: {latest}; a node does not start"
    return [broken(QuorumRule.K1, Grade.DAMAGE, evidence, facts.path, facts.base)]


def _k2(facts: LogFacts, leader_start: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    if not _is_covered(facts):
        return [_see(QuorumRule.K2, QuorumRule.K1, facts)]
    start = facts.start_offset
    is_leaders = leader_start is not None and start == leader_start.offset
    if not start or is_leaders or any(checkpoint.id.offset == start for checkpoint in facts.checkpoints):
        return []
    rest = "" if facts.base else "; the segments still begin at 0, where a node that starts begins anew"
    return [
        broken(QuorumRule.K2, Grade.WARNING, f"the log starts at {start}, and no checkpoint ends there{rest}", facts.path, start)
    ]


def _k3(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    start = facts.start_offset
    start_epoch = facts.start_epoch
    first = facts.first_epoch
    if not start:
        return []
    if not _is_covered(facts):
        return [_see(QuorumRule.K3, QuorumRule.K1, facts)]
    if start_epoch is None:
        no_epoch = f"the log starts at {start}, and neither a checkpoint nor the log has the epoch of offset {start - 1}"
        return [broken(QuorumRule.K3, Grade.WARNING, no_epoch, facts.path, start)]
    if first is not None and first < start_epoch:
        contradicts = (
            f"leader-epoch-checkpoint begins with epoch {first} at {start}, and offset {start - 1} has epoch {start_epoch}; "
            "a node that starts makes the file anew"
        )
        return [broken(QuorumRule.K3, Grade.WARNING, contradicts, facts.path, start)]
    return []


def _k4(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    if not facts.start_offset or not facts.checkpoints:
        return []
    latest = facts.checkpoints[-1]
    if latest.id.offset != facts.start_offset:
        return []
    evidence = f"the only checkpoint is the one at the start, {facts.start_offset}; the start cannot move"
    return [broken(QuorumRule.K4, Grade.INFO, evidence, latest.path, facts.start_offset)]


def _k5(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    # A follower that has downloaded a checkpoint has nothing else yet.
    if not facts.end_offset and not facts.is_torn:
        return []
    if facts.cut_offset is not None:
        return [_see(QuorumRule.K5, QuorumRule.K11, facts)]
    if facts.is_emptied:
        then = "empties it, and begins at the latest"
    else:
        then = "leaves it as it is, as its last epoch is a later one"
    evidence = f"ends beyond the log, which ends at {facts.end_offset}; a node that starts {then}"
    beyond = [checkpoint for checkpoint in facts.checkpoints if checkpoint.id.offset > facts.end_offset]
    return [broken(QuorumRule.K5, Grade.WARNING, evidence, each.path, each.id.offset) for each in beyond]


def _k6(facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[QuorumRuleResult]:
    for checkpoint in facts.checkpoints:
        below = checkpoint.below
        if below is None or checkpoint.id.offset > below.last_offset:
            continue
        then = "a replica that loads it fails when it fetches what follows"
        evidence = f"ends inside of the batch {below.base_offset} to {below.last_offset}; {then}"
        yield broken(QuorumRule.K6, Grade.ERROR, evidence, checkpoint.path, checkpoint.id.offset)


def _k7(facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[QuorumRuleResult]:
    for checkpoint in facts.checkpoints:
        if checkpoint.has_other_epoch:
            evidence = f"its name has epoch {checkpoint.id.epoch}, and offset {checkpoint.id.offset - 1} has epoch {checkpoint.epoch_below}"
            is_later = facts.is_emptied and checkpoint is facts.checkpoints[-1] and checkpoint.id.offset < facts.end_offset
            lost = f"{checkpoint.id.offset} to {facts.end_offset - 1}"
            grade = Grade.ERROR
            if is_later:
                grade = Grade.DAMAGE
                evidence += f"; a node that starts takes it for later than the log, and drops offsets {lost}"
            yield broken(QuorumRule.K7, grade, evidence, checkpoint.path, checkpoint.id.offset)


def _k8(facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[QuorumRuleResult]:
    """A node reads the latest checkpoint when it starts, and of older ones the header, which says how old they are."""
    for checkpoint in facts.checkpoints:
        below = checkpoint.below
        if checkpoint.fault is None:
            if (
                below is not None
                and below.last_offset == checkpoint.id.offset - 1
                and below.timestamp_ms != checkpoint.timestamp_ms
            ):
                evidence = f"its header says {checkpoint.timestamp_ms} ms, and the batch before its end has {below.timestamp_ms} ms"
                yield broken(QuorumRule.K8, Grade.INFO, evidence, checkpoint.path, checkpoint.id.offset)
        else:
            grade = Grade.ERROR
            then = "a newer one is what nodes load"
            if checkpoint is facts.checkpoints[-1]:
                grade = Grade.DAMAGE
                then = "it is the latest, which a node reads when it starts"
            elif checkpoint.timestamp_ms is None:
                grade = Grade.DAMAGE
                then = "a running node fails when it asks how old this checkpoint is"
            yield broken(QuorumRule.K8, grade, f"{checkpoint.fault}; {then}", checkpoint.path, checkpoint.id.offset)


def _k9(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    if not facts.left_overs:
        return []
    names = ", ".join(facts.left_overs[:3]) + (", ..." if len(facts.left_overs) > 3 else "")
    return [
        broken(QuorumRule.K9, Grade.INFO, f"{len(facts.left_overs)} left over, which the next start removes: {names}", facts.path)
    ]


def _k10(facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[QuorumRuleResult]:
    message = "ends like a file of Kafka and is not named like one"
    for name in facts.strange_names:
        grade, then = _EFFECTS[effect_of_name(name)]
        if grade is not None:
            yield broken(QuorumRule.K10, grade, f"{name} {message}: {then}", facts.path)


def _k11(facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[QuorumRuleResult]:
    if not _is_covered(facts):
        yield _see(QuorumRule.K11, QuorumRule.K1, facts)
        return
    usable = max((checkpoint.id.offset for checkpoint in facts.checkpoints if checkpoint.fault is None), default=0)
    if facts.cut_offset is not None:
        if facts.is_emptied:
            then = f", and begins anew at its latest checkpoint, {facts.checkpoints[-1].id.offset}"
        else:
            then = ""
        evidence = f"damaged from offset {facts.cut_offset} on: a node that starts cuts the log there{then}; later records are lost"
        yield broken(QuorumRule.K11, Grade.DAMAGE, evidence, facts.path, facts.cut_offset)
    image = f"the latest checkpoint that is whole ends at {usable}" if usable else "no checkpoint is whole"
    missing = [(usable, facts.base)] if usable < facts.base else []
    for begin, end in (*missing, *(gap for gap in facts.gaps if gap[0] != facts.cut_offset)):
        detail = f"offsets {begin} to {end - 1} are missing"
        if end > usable:
            yield broken(QuorumRule.K11, Grade.DAMAGE, f"{detail}, and {image}", facts.path, begin)
        else:
            then = "images are whole; a replica that fetches there gets the next records and not the missing ones"
            yield broken(QuorumRule.K11, Grade.ERROR, f"{detail}; {image}, so that {then}", facts.path, begin)


def _k12(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    reason = "no writer of this log has a producer id, and it is not a checkpoint"
    return [broken(QuorumRule.K12, Grade.WARNING, f"{name} {what}; {reason}", facts.path) for name, what in facts.bad_snapshots]


def _k14(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    epochs = facts.batches.epoch
    for offset, before, epoch in zip(facts.batches.base_offset[1:], epochs, epochs[1:], strict=False):
        if epoch < before:
            detail = f"offset {offset} has epoch {epoch}, and the batch before it has epoch {before}"
            evidence = f"{detail}; no leader writes that, so the log was changed"
            return [broken(QuorumRule.K14, Grade.ERROR, evidence, facts.path, offset)]
    return []


def _k15(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    state = facts.quorum_state
    path = f"{facts.path}/quorum-state"
    # The epoch of a checkpoint that contradicts the log is reported by K7.
    known_epoch = max(
        [facts.last_epoch, *(checkpoint.id.epoch for checkpoint in facts.checkpoints if not checkpoint.has_other_epoch)]
    )
    if facts.is_quorum_state_bad:
        return [unknown(QuorumRule.K15, "quorum-state cannot be read", facts.path)]
    if state is None:
        if not facts.end_offset and not any(checkpoint.id.offset for checkpoint in facts.checkpoints):
            return []
        evidence = f"is absent: the node no longer knows for whom it voted, and may vote a second time in epoch {known_epoch}"
        return [broken(QuorumRule.K15, Grade.ERROR, evidence, path)]
    leader = facts.leaders.get(state.leader_epoch)
    results: list[QuorumRuleResult] = []
    if state.leader_epoch < known_epoch:
        older = (
            f"has epoch {state.leader_epoch}, and the log or a checkpoint has epoch {known_epoch}: the file is older than the log, and "
            "the votes since then are forgotten"
        )
        results.append(broken(QuorumRule.K15, Grade.ERROR, older, path))
    if leader is not None and state.leader_id not in (leader, -1):
        other_leader = f"names node {state.leader_id} as the leader of epoch {state.leader_epoch}, and the log names node {leader}"
        results.append(broken(QuorumRule.K15, Grade.ERROR, other_leader, path))
    # Only version 0 holds voters, and a file that was written before a change of the voters keeps the old ones until the next vote.
    recorded = [{voter.voter_id for voter in voters} for voters in facts.voter_sets]
    if state.voters and recorded and set(state.voters) not in recorded:
        other_voters = f"names voters {ids_text(state.voters)}, and the log names {ids_text(recorded[-1])}"
        results.append(broken(QuorumRule.K15, Grade.ERROR, other_voters, path))
    return results


def _k17(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    end = facts.end
    if facts.cut_offset is not None:
        return [_see(QuorumRule.K17, QuorumRule.K11, facts)]
    if end is None:
        return []
    if end.lost is not None:
        return [
            broken(QuorumRule.K17, Grade.ERROR, f"{end.lost}; the node may have voted for what is gone", facts.path, end.end_offset)
        ]
    if facts.first_base_offset is None and _has_begun(facts):
        evidence = "the directory has no segment, and its other files are those of a log that had some"
        return [broken(QuorumRule.K17, Grade.ERROR, evidence, facts.path)]
    if end.ahead is not None:
        # Of a running node the log may have been copied before the other files.
        grade = Grade.ERROR if facts.has_marker else Grade.WARNING
        return [broken(QuorumRule.K17, grade, end.ahead, facts.path, end.end_offset)]
    if facts.has_marker and end.unclosed is not None:
        return [broken(QuorumRule.K17, Grade.WARNING, end.unclosed, facts.path, end.end_offset)]
    return []


def _has_begun(facts: LogFacts) -> bool:
    """Whether a node has run with this directory: formatting leaves a checkpoint at 0 and nothing else."""
    has_voted = facts.quorum_state is not None and facts.quorum_state.leader_epoch > 0
    return has_voted or facts.first_epoch is not None or any(checkpoint.id.offset for checkpoint in facts.checkpoints)


def _k18(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    if not facts.topic_fault:
        return []
    return [broken(QuorumRule.K18, Grade.DAMAGE, facts.topic_fault, f"{facts.path}/{PARTITION_METADATA}")]


def _k19(facts: LogFacts, _: OffsetAndEpoch | None) -> list[QuorumRuleResult]:
    if facts.is_bare:
        return [
            not_applicable(
                QuorumRule.K19, "a copy of the metadata log alone: no other file of a log directory is around it", facts.path
            )
        ]
    if not facts.node_fault:
        return []
    return [broken(QuorumRule.K19, Grade.DAMAGE, facts.node_fault, f"{os.path.dirname(facts.path)}/{META_PROPERTIES}")]


def ids_text(ids: Iterable[int]) -> str:
    """Ids of nodes, ascending."""
    return ", ".join(map(str, sorted(ids)))


_EFFECTS: dict[NameEffect, tuple[Grade | None, str]] = {
    NameEffect.NONE: (None, ""),
    NameEffect.REMOVED: (Grade.INFO, "the next start removes it"),
    NameEffect.CLEANER_FAILS: (Grade.ERROR, "Kafka takes it for a checkpoint that it does not find, and its cleaner fails"),
    NameEffect.TAKEN_FOR_SEGMENT: (Grade.DAMAGE, "a node that starts takes it for a part of the log, which may lose its end"),
    NameEffect.REFUSED: (Grade.DAMAGE, "a node does not start"),
}

_RULES: dict[QuorumRule, Callable[[LogFacts, OffsetAndEpoch | None], Iterable[QuorumRuleResult]]] = {
    QuorumRule.K1: _k1,
    QuorumRule.K2: _k2,
    QuorumRule.K3: _k3,
    QuorumRule.K4: _k4,
    QuorumRule.K5: _k5,
    QuorumRule.K6: _k6,
    QuorumRule.K7: _k7,
    QuorumRule.K8: _k8,
    QuorumRule.K9: _k9,
    QuorumRule.K10: _k10,
    QuorumRule.K11: _k11,
    QuorumRule.K12: _k12,
    QuorumRule.K14: _k14,
    QuorumRule.K15: _k15,
    QuorumRule.K17: _k17,
    QuorumRule.K18: _k18,
    QuorumRule.K19: _k19,
}


def judge_starts(leader: LogFacts | None, followers: Sequence[LogFacts], mode: Followers) -> list[QuorumRuleResult]:
    """The part of K13 that is about starts: no follower's is beyond its leader's."""
    if leader is None:
        return [unknown(QuorumRule.K13, "which node is the leader is not known", follower.path) for follower in followers]
    grade = Grade.INFO if mode is Followers.KAFKA else Grade.ERROR
    return [
        broken(
            QuorumRule.K13,
            grade,
            f"starts at {follower.start_offset}, and its leader at {leader.start_offset}",
            follower.path,
            follower.start_offset,
        )
        for follower in followers
        if follower.start_offset > leader.start_offset
    ]
