"""Whether a metadata log can be started from, and read: rules K1 to K20 over one directory, or several.

A rule is held, violated with evidence, or not judged. It is not judged if what it needs is missing, or another rule has reported the
reason: each defect is reported once.

Source: ``KafkaRaftLog.recoverSnapshots`` and ``truncateToLatestSnapshot``, ``Snapshots.parse``, ``RaftLog.validateOffsetAndEpoch``,
``LogFileUtils.offsetFromFileName``, ``LogLoader``, ``ProducerStateManager.loadSnapshots`` of 4.3.1; KAFKA-14932.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from formats.partition.file_names import META_PROPERTIES, PARTITION_METADATA
from snaprebuild.cluster.quorum.log_facts import LogFacts
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch

__all__ = [
    "Followers",
    "Grade",
    "NameEffect",
    "Rule",
    "RuleOutcome",
    "RuleResult",
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
    """It is taken for a checkpoint whose file has another name: once log and checkpoints are too large, the cleaner throws."""
    TAKEN_FOR_SEGMENT = "taken-for-segment"
    """It becomes part of the log, whatever it holds; the log may lose its end by that."""
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
    return NameEffect.TAKEN_FOR_SEGMENT if name.endswith((".log", ".log.swap")) else NameEffect.REMOVED


def _is_number(text: str, bits: int) -> bool:
    """``Long.parseLong`` and ``Integer.parseInt``."""
    return _INTEGER.fullmatch(text) is not None and -(1 << bits) <= int(text) < 1 << bits


class Rule(StrEnum):
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


class Grade(StrEnum):
    """How bad a violation is, by what Kafka does with it."""

    INFO = "info"
    """Nothing is wrong, or the next start mends it."""
    WARNING = "warning"
    """Kafka starts and continues; it repairs the fault, or never looks at it."""
    ERROR = "error"
    """Kafka starts, and something fails or goes wrong later."""
    DAMAGE = "damage"
    """The node does not start, or it loses records, or an image is not whole."""


class RuleOutcome(StrEnum):
    """The outcome of a rule."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_JUDGED = "not-judged"


class Followers(StrEnum):
    """The requirement on a follower's start.

    ``kafka``: none, as up to 4.4 each node moves its own start. ``strict`` and ``literal`` are the heuristic's two readings: the start is
    not beyond the leader's start. With ``literal``, it may be at the leader's start without a checkpoint of its own there.
    """

    KAFKA = "kafka"
    STRICT = "strict"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The result of a rule. A rule that is violated several times has as many results.

    Attributes:
        rule: which.
        grade: how bad, where it is violated.
        evidence: one sentence; empty where it is held.
        path: file or directory concerned.
        offset: concerned, or None.
    """

    rule: Rule
    outcome: RuleOutcome
    grade: Grade | None
    evidence: str
    path: str
    offset: int | None = None

    @classmethod
    def violated(cls, rule: Rule, grade: Grade, evidence: str, path: str, offset: int | None = None) -> RuleResult:
        """A violation."""
        return cls(rule, RuleOutcome.VIOLATED, grade, evidence, path, offset)

    @classmethod
    def not_judged(cls, rule: Rule, why: str, path: str, offset: int | None = None) -> RuleResult:
        """A rule without what it needs."""
        return cls(rule, RuleOutcome.NOT_JUDGED, None, why, path, offset)

    @classmethod
    def held(cls, rule: Rule, path: str) -> RuleResult:
        """A rule that is not violated."""
        return cls(rule, RuleOutcome.HELD, None, "", path)


class _Case(NamedTuple):
    """A violation of a rule, or without a grade the reason why it is not judged."""

    grade: Grade | None
    evidence: str
    path: str | None = None
    offset: int | None = None


def judge_log(facts: LogFacts, leader_start: OffsetAndEpoch | None = None) -> list[RuleResult]:
    """The rules for one directory, but for K16, which needs the records, and K13 and K20, which compare directories.

    Args:
        facts: of the directory.
        leader_start: at which a follower may start without a checkpoint of its own; None if it may not.
    """
    results: list[RuleResult] = []
    for rule, judge in _RULES.items():
        cases = [*judge(facts, leader_start)]
        results += [_result(rule, each, facts.path) for each in cases] or [RuleResult.held(rule, facts.path)]
    return results


def _result(rule: Rule, case: _Case, path: str) -> RuleResult:
    outcome = RuleOutcome.NOT_JUDGED if case.grade is None else RuleOutcome.VIOLATED
    return RuleResult(rule, outcome, case.grade, case.evidence, case.path or path, case.offset)


def _is_covered(facts: LogFacts) -> bool:
    """K1: whether a node that starts here finds a checkpoint. It looks at names only."""
    return not facts.base or any(each.id.offset >= facts.base for each in facts.checkpoints)


_SEE_K1 = [_Case(None, "see K1")]


def _k1(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    if _is_covered(facts):
        return []
    latest = f"the latest ends at {facts.checkpoints[-1].id}" if facts.checkpoints else "there is none"
    evidence = f"the first segment begins at {facts.base}, and no checkpoint ends there or above: {latest}; a node does not start"
    return [_Case(Grade.DAMAGE, evidence, offset=facts.base)]


def _k2(facts: LogFacts, leader_start: OffsetAndEpoch | None) -> list[_Case]:
    if not _is_covered(facts):
        return _SEE_K1
    start = facts.start_offset
    is_leaders = leader_start is not None and start == leader_start.offset
    if not start or is_leaders or any(each.id.offset == start for each in facts.checkpoints):
        return []
    rest = "" if facts.base else "; the segments still begin at 0, where a node that starts begins anew"
    return [_Case(Grade.WARNING, f"the log starts at {start}, and no checkpoint ends there{rest}", offset=start)]


def _k3(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    start, known, first = facts.start_offset, facts.start_epoch, facts.first_epoch
    if not start:
        return []
    if not _is_covered(facts):
        return _SEE_K1
    if known is None:
        unknown = f"the log starts at {start}, and neither a checkpoint nor the log has the epoch of offset {start - 1}"
        return [_Case(Grade.WARNING, unknown, offset=start)]
    if first is not None and first < known:
        contradicts = (
            f"leader-epoch-checkpoint begins with epoch {first} at {start}, and offset {start - 1} has epoch {known}; a node that starts "
            "makes the file anew"
        )
        return [_Case(Grade.WARNING, contradicts, offset=start)]
    return []


def _k4(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    if not facts.start_offset or not facts.checkpoints:
        return []
    latest = facts.checkpoints[-1]
    if latest.id.offset != facts.start_offset:
        return []
    evidence = f"the only checkpoint is the one at the start, {facts.start_offset}; the start cannot move"
    return [_Case(Grade.INFO, evidence, latest.path, facts.start_offset)]


def _k5(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    # A follower that has downloaded a checkpoint has nothing else yet.
    if not facts.end_offset and not facts.is_torn:
        return []
    if facts.cut_offset is not None:
        return [_Case(None, "see K11")]
    then = "empties it, and begins at the latest" if facts.is_emptied else "leaves it as it is, as its last epoch is a later one"
    evidence = f"ends beyond the log, which ends at {facts.end_offset}; a node that starts {then}"
    beyond = [each for each in facts.checkpoints if each.id.offset > facts.end_offset]
    return [_Case(Grade.WARNING, evidence, each.path, each.id.offset) for each in beyond]


def _k6(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    return [
        _Case(
            Grade.ERROR,
            f"ends inside of the batch {each.below.base_offset} to {each.below.last_offset}; a replica that loads it fails when it "
            "fetches what follows",
            each.path,
            each.id.offset,
        )
        for each in facts.checkpoints
        if each.below is not None and each.id.offset <= each.below.last_offset
    ]


def _k7(facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[_Case]:
    for each in facts.checkpoints:
        if each.has_other_epoch:
            evidence = f"its name has epoch {each.id.epoch}, and offset {each.id.offset - 1} has epoch {each.epoch_below}"
            is_later = facts.is_emptied and each is facts.checkpoints[-1] and each.id.offset < facts.end_offset
            lost = f"{each.id.offset} to {facts.end_offset - 1}"
            then = f"; a node that starts takes it for later than the log, and drops offsets {lost}" if is_later else ""
            yield _Case(Grade.DAMAGE if is_later else Grade.ERROR, evidence + then, each.path, each.id.offset)


def _k8(facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[_Case]:
    """A node reads the latest checkpoint when it starts, and of older ones the header, which says how old they are."""
    for each in facts.checkpoints:
        below = each.below
        if each.fault is None:
            if below is not None and below.last_offset == each.id.offset - 1 and below.timestamp_ms != each.timestamp_ms:
                evidence = f"its header says {each.timestamp_ms} ms, and the batch before its end has {below.timestamp_ms} ms"
                yield _Case(Grade.INFO, evidence, each.path, each.id.offset)
        else:
            grade, then = Grade.ERROR, "a newer one is what nodes load"
            if each is facts.checkpoints[-1]:
                grade, then = Grade.DAMAGE, "it is the latest, which a node reads when it starts"
            elif each.timestamp_ms is None:
                grade, then = Grade.DAMAGE, "a running node fails when it asks how old this checkpoint is"
            yield _Case(grade, f"{each.fault}; {then}", each.path, each.id.offset)


def _k9(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    if not facts.left_overs:
        return []
    names = ", ".join(facts.left_overs[:3]) + (", ..." if len(facts.left_overs) > 3 else "")
    return [_Case(Grade.INFO, f"{len(facts.left_overs)} left over, which the next start removes: {names}")]


def _k10(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    effects = [(name, _EFFECTS[effect_of_name(name)]) for name in facts.strange_names]
    message = "ends like a file of Kafka and is not named like one"
    return [_Case(grade, f"{name} {message}: {then}") for name, (grade, then) in effects if grade is not None]


def _k11(facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[_Case]:
    if not _is_covered(facts):
        yield from _SEE_K1
        return
    usable = max((each.id.offset for each in facts.checkpoints if each.fault is None), default=0)
    if facts.cut_offset is not None:
        then = f", and begins anew at its latest checkpoint, {facts.checkpoints[-1].id.offset}" if facts.is_emptied else ""
        evidence = f"damaged from offset {facts.cut_offset} on: a node that starts cuts the log there{then}; later records are lost"
        yield _Case(Grade.DAMAGE, evidence, offset=facts.cut_offset)
    image = f"the latest checkpoint that is whole ends at {usable}" if usable else "no checkpoint is whole"
    missing = [(usable, facts.base)] if usable < facts.base else []
    for begin, end in (*missing, *(gap for gap in facts.gaps if gap[0] != facts.cut_offset)):
        detail = f"offsets {begin} to {end - 1} are missing"
        yield (
            _Case(Grade.DAMAGE, f"{detail}, and {image}", offset=begin)
            if end > usable
            else _Case(
                Grade.ERROR,
                f"{detail}; {image}, so that images are whole; a replica that fetches there gets the next records and not the missing ones",
                offset=begin,
            )
        )


def _k12(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    why = "no writer of this log has a producer id, and it is not a checkpoint"
    return [_Case(Grade.WARNING, f"{name} {what}; {why}") for name, what in facts.bad_snapshots]


def _k14(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    epochs = facts.batches.epoch
    rows = zip(facts.batches.base_offset[1:], epochs, epochs[1:], strict=False)
    return [
        _Case(
            Grade.ERROR,
            f"offset {offset} has epoch {epoch}, and the batch before it has epoch {before}; no leader writes that, so the log was changed",
            offset=offset,
        )
        for offset, before, epoch in rows
        if epoch < before
    ][:1]


def _k15(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    state, path = facts.quorum_state, f"{facts.path}/quorum-state"
    # The epoch of a checkpoint that contradicts the log is reported by K7.
    known_epoch = max([facts.last_epoch, *(each.id.epoch for each in facts.checkpoints if not each.has_other_epoch)])
    if facts.is_quorum_state_bad:
        return [_Case(None, "quorum-state cannot be read")]
    if state is None:
        if not facts.end_offset and not any(each.id.offset for each in facts.checkpoints):
            return []
        evidence = f"is absent: the node no longer knows for whom it voted, and may vote a second time in epoch {known_epoch}"
        return [_Case(Grade.ERROR, evidence, path)]
    leader = facts.leaders.get(state.leader_epoch)
    found: list[_Case] = []
    if state.leader_epoch < known_epoch:
        older = (
            f"has epoch {state.leader_epoch}, and the log or a checkpoint has epoch {known_epoch}: the file is older than the log, and "
            "the votes since then are forgotten"
        )
        found.append(_Case(Grade.ERROR, older, path))
    if leader is not None and state.leader_id not in (leader, -1):
        other_leader = f"names node {state.leader_id} as the leader of epoch {state.leader_epoch}, and the log names node {leader}"
        found.append(_Case(Grade.ERROR, other_leader, path))
    # Only version 0 holds voters, and a file that was written before a change of the voters keeps the old ones until the next vote.
    recorded = [{each.voter_id for each in voters} for voters in facts.voter_sets]
    if state.voters and recorded and set(state.voters) not in recorded:
        other_voters = f"names voters {ids_text(state.voters)}, and the log names {ids_text(recorded[-1])}"
        found.append(_Case(Grade.ERROR, other_voters, path))
    return found


def _k17(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    end = facts.end
    if facts.cut_offset is not None:
        return [_Case(None, "see K11")]
    if end is None:
        return []
    if end.lost is not None:
        return [_Case(Grade.ERROR, f"{end.lost}; the node may have voted for what is gone", offset=end.end_offset)]
    if facts.first_base_offset is None and _has_begun(facts):
        return [_Case(Grade.ERROR, "the directory has no segment, and its other files are those of a log that had some")]
    if end.ahead is not None:
        # Of a running node the log may have been copied before the other files.
        grade = Grade.ERROR if facts.has_marker else Grade.WARNING
        return [_Case(grade, end.ahead, offset=end.end_offset)]
    if facts.has_marker and end.unclosed is not None:
        return [_Case(Grade.WARNING, end.unclosed, offset=end.end_offset)]
    return []


def _has_begun(facts: LogFacts) -> bool:
    """Whether a node has run with this directory: formatting leaves a checkpoint at 0 and nothing else."""
    has_voted = facts.quorum_state is not None and facts.quorum_state.leader_epoch > 0
    return has_voted or facts.first_epoch is not None or any(each.id.offset for each in facts.checkpoints)


def _k18(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    if not facts.topic_fault:
        return []
    return [_Case(Grade.DAMAGE, facts.topic_fault, f"{facts.path}/{PARTITION_METADATA}")]


def _k19(facts: LogFacts, _: OffsetAndEpoch | None) -> list[_Case]:
    if facts.is_bare:
        return [_Case(None, "a copy of the metadata log alone: no other file of a log directory is around it")]
    if not facts.node_fault:
        return []
    return [_Case(Grade.DAMAGE, facts.node_fault, f"{os.path.dirname(facts.path)}/{META_PROPERTIES}")]


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

_RULES: dict[Rule, Callable[[LogFacts, OffsetAndEpoch | None], Iterable[_Case]]] = {
    Rule.K1: _k1,
    Rule.K2: _k2,
    Rule.K3: _k3,
    Rule.K4: _k4,
    Rule.K5: _k5,
    Rule.K6: _k6,
    Rule.K7: _k7,
    Rule.K8: _k8,
    Rule.K9: _k9,
    Rule.K10: _k10,
    Rule.K11: _k11,
    Rule.K12: _k12,
    Rule.K14: _k14,
    Rule.K15: _k15,
    Rule.K17: _k17,
    Rule.K18: _k18,
    Rule.K19: _k19,
}


def judge_starts(leader: LogFacts | None, followers: Sequence[LogFacts], mode: Followers) -> list[RuleResult]:
    """The part of K13 that is about starts: no follower's is beyond its leader's."""
    if leader is None:
        return [RuleResult.not_judged(Rule.K13, "which node is the leader is not known", each.path) for each in followers]
    grade = Grade.INFO if mode is Followers.KAFKA else Grade.ERROR
    return [
        RuleResult.violated(
            Rule.K13, grade, f"starts at {each.start_offset}, and its leader at {leader.start_offset}", each.path, each.start_offset
        )
        for each in followers
        if each.start_offset > leader.start_offset
    ]
