"""Whether a metadata log can be started from, and read: rules K1 to K16 over one directory, or several.

A rule is held, violated with evidence, or not judged. It is not judged if what it needs is missing, or another rule has reported the
reason: each defect is reported once.

Source: ``KafkaRaftLog.recoverSnapshots`` and ``truncateToLatestSnapshot``, ``Snapshots.parse``, ``RaftLog.validateOffsetAndEpoch``,
``LogFileUtils.offsetFromFileName``, ``LogLoader``, ``ProducerStateManager.loadSnapshots`` of 4.3.1; KAFKA-14932.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from snaprebuild.cluster.quorum.log_facts import CheckpointFacts, LogFacts, epoch_before
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch

if TYPE_CHECKING:
    from formats.metadata.quorum_state import QuorumState

__all__ = [
    "Followers",
    "Grade",
    "NameEffect",
    "Outcome",
    "Rule",
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
    """What a name does."""

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
    """What becomes of a file that is none of Kafka's, by the end of its name."""
    if name.endswith((_CHECKPOINT, *_REMOVED_CHECKPOINTS)):
        # Cut at fixed places, whatever stands between and behind.
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


class Grade(StrEnum):
    """How bad a violation is, by what Kafka does with it."""

    INFO = "info"
    """Nothing is wrong, or the next start mends it."""
    WARNING = "warning"
    """Kafka starts and goes on; it mends it, or never looks."""
    ERROR = "error"
    """Kafka starts, and something fails or goes wrong later."""
    DAMAGE = "damage"
    """The node does not start, or it loses records, or an image is not whole."""


class Outcome(StrEnum):
    """What became of a rule."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_JUDGED = "not-judged"


class Followers(StrEnum):
    """What is asked of a follower's start.

    ``kafka``: nothing, as up to 4.4 each node moves its own start. ``strict`` and ``literal`` are the heuristic's two readings: it is not
    beyond the leader's start; literally, it may stand at the leader's start without a checkpoint of its own there.
    """

    KAFKA = "kafka"
    STRICT = "strict"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a rule came to; a rule that is violated several times has as many results.

    Attributes:
        rule: which.
        outcome: see there.
        grade: how bad, where it is violated.
        evidence: one sentence; empty where it is held.
        path: file or directory concerned.
        offset: concerned, or None.
    """

    rule: Rule
    outcome: Outcome
    grade: Grade | None
    evidence: str
    path: str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class _Judge:
    facts: LogFacts
    rule: Rule

    def violated(self, grade: Grade, evidence: str, path: str | None = None, offset: int | None = None) -> RuleResult:
        return RuleResult(self.rule, Outcome.VIOLATED, grade, evidence, path or self.facts.path, offset)

    def not_judged(self, evidence: str) -> RuleResult:
        return RuleResult(self.rule, Outcome.NOT_JUDGED, None, evidence, self.facts.path)


def judge_log(facts: LogFacts, leader_start: OffsetAndEpoch | None = None) -> list[RuleResult]:
    """The rules for one directory, but for K16, which needs the records.

    Args:
        facts: of the directory.
        leader_start: at which a follower may stand without a checkpoint of its own; None where it may not.
    """
    results: list[RuleResult] = []
    for rule, judge in _RULES.items():
        found = list(judge(_Judge(facts, rule), facts, leader_start))
        results += found or [RuleResult(rule, Outcome.HELD, None, "", facts.path)]
    return results


def _is_covered(facts: LogFacts) -> bool:
    """K1: whether a node that starts here finds a checkpoint. It looks at names only."""
    return not facts.base or any(each.id.offset >= facts.base for each in facts.checkpoints)


def _k1(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    if not _is_covered(facts):
        latest = f"the latest ends at {facts.checkpoints[-1].id}" if facts.checkpoints else "there is none"
        evidence = (
            f"the first segment begins at {facts.base}, and no checkpoint ends there or above: {latest}; a node does not start"
        )
        yield judge.violated(Grade.DAMAGE, evidence, offset=facts.base)


def _k2(judge: _Judge, facts: LogFacts, leader_start: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    start = facts.start_offset
    if not _is_covered(facts):
        yield judge.not_judged("see K1")
    elif start and all(each.id.offset != start for each in facts.checkpoints):
        if leader_start is not None and start == leader_start.offset:
            return
        rest = "" if facts.base else "; the segments still begin at 0, where a node that starts begins anew"
        yield judge.violated(Grade.WARNING, f"the log starts at {start}, and no checkpoint ends there{rest}", offset=start)


def _k3(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    start, known, first = facts.start_offset, facts.start_epoch, facts.first_epoch
    if not start:
        return
    if not _is_covered(facts):
        yield judge.not_judged("see K1")
    elif known is None:
        evidence = f"the log starts at {start}, and neither a checkpoint nor the log tells the epoch of offset {start - 1}"
        yield judge.violated(Grade.WARNING, evidence, offset=start)
    elif first is not None and first < known:
        evidence = (
            f"leader-epoch-checkpoint begins with epoch {first} at {start}, and offset {start - 1} has epoch {known}; a node that starts "
            "makes the file anew"
        )
        yield judge.violated(Grade.WARNING, evidence, offset=start)


def _k4(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    if facts.start_offset and facts.checkpoints and facts.checkpoints[-1].id.offset == facts.start_offset:
        evidence = f"the only checkpoint is the one at the start, {facts.start_offset}; the start cannot move"
        yield judge.violated(Grade.INFO, evidence, facts.checkpoints[-1].path, facts.start_offset)


def _k5(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    if not facts.end_offset and not facts.is_torn:
        return  # a follower that has downloaded a checkpoint and nothing else yet
    if facts.cut_offset is not None:
        yield judge.not_judged("see K11")
        return
    empties = facts.is_emptied
    for each in facts.checkpoints:
        if each.id.offset > facts.end_offset:
            then = "empties it, and begins at the latest" if empties else "leaves it as it is, as its last epoch is a later one"
            evidence = f"ends beyond the log, which ends at {facts.end_offset}; a node that starts {then}"
            yield judge.violated(Grade.WARNING, evidence, each.path, each.id.offset)


def _k6(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    for each in facts.checkpoints:
        if each.below is not None and each.id.offset <= each.below.last_offset:
            evidence = (
                f"ends inside of the batch {each.below.base_offset} to {each.below.last_offset}; a replica that loads it fails when it "
                "fetches what follows"
            )
            yield judge.violated(Grade.ERROR, evidence, each.path, each.id.offset)


def _k7(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    for each in facts.checkpoints:
        epoch = epoch_before(each.id.offset, each.below)
        if epoch is not None and epoch != each.id.epoch:
            evidence = f"its name has epoch {each.id.epoch}, and offset {each.id.offset - 1} has epoch {epoch}"
            grade = Grade.ERROR
            if facts.is_emptied and each is facts.checkpoints[-1] and each.id.offset < facts.end_offset:
                grade = Grade.DAMAGE
                lost = f"{each.id.offset} to {facts.end_offset - 1}"
                evidence += f"; a node that starts takes it for later than the log, and drops offsets {lost}"
            yield judge.violated(grade, evidence, each.path, each.id.offset)


def _k8(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    for each in facts.checkpoints:
        if each.fault is not None:
            yield judge.violated(*_fault_of(facts, each), each.path, each.id.offset)
        elif (
            each.below is not None and each.below.last_offset == each.id.offset - 1 and each.timestamp_ms != each.below.timestamp_ms
        ):
            evidence = f"its header says {each.timestamp_ms} ms, and the batch before its end has {each.below.timestamp_ms} ms"
            yield judge.violated(Grade.INFO, evidence, each.path, each.id.offset)


def _fault_of(facts: LogFacts, checkpoint: CheckpointFacts) -> tuple[Grade, str]:
    """A node reads the latest checkpoint when it starts, and of older ones the header, which says how old they are."""
    if checkpoint is facts.checkpoints[-1]:
        return Grade.DAMAGE, f"{checkpoint.fault}; it is the latest, which a node reads when it starts"
    if checkpoint.timestamp_ms is None:
        return Grade.DAMAGE, f"{checkpoint.fault}; a running node fails when it asks how old this checkpoint is"
    return Grade.ERROR, f"{checkpoint.fault}; a newer one is what nodes load"


def _k9(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    if facts.left_overs:
        names = ", ".join(facts.left_overs[:3]) + (", ..." if len(facts.left_overs) > 3 else "")
        yield judge.violated(Grade.INFO, f"{len(facts.left_overs)} left over, which the next start removes: {names}")


def _k10(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    for name in facts.strange_names:
        effect = effect_of_name(name)
        if effect is not NameEffect.NONE:
            grade, then = _EFFECTS[effect]
            yield judge.violated(grade, f"{name} ends like a file of Kafka and is not named like one: {then}")


def _k11(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    if not _is_covered(facts):
        yield judge.not_judged("see K1")
        return
    usable = max((each.id.offset for each in facts.checkpoints if each.fault is None), default=0)
    missing = [(usable, facts.base)] if usable < facts.base else []
    if facts.cut_offset is not None:
        then = f", and begins anew at its latest checkpoint, {facts.checkpoints[-1].id.offset}" if facts.is_emptied else ""
        evidence = (
            f"damaged from offset {facts.cut_offset} on: a node that starts cuts the log there{then}; what is behind that is lost"
        )
        yield judge.violated(Grade.DAMAGE, evidence, offset=facts.cut_offset)
    for begin, end in (*missing, *(gap for gap in facts.gaps if gap[0] != facts.cut_offset)):
        image = f"the latest checkpoint that is whole ends at {usable}" if usable else "no checkpoint is whole"
        if end > usable:
            yield judge.violated(Grade.DAMAGE, f"offsets {begin} to {end - 1} are missing, and {image}", offset=begin)
        else:
            evidence = (
                f"offsets {begin} to {end - 1} are missing; {image}, so that images are whole; a replica that fetches there gets what "
                "follows, and never hears of them"
            )
            yield judge.violated(Grade.ERROR, evidence, offset=begin)


def _k12(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    for name, what in facts.bad_snapshots:
        yield judge.violated(Grade.WARNING, f"{name} {what}; nobody who writes here has a producer id, and it is no checkpoint")


def _k14(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    epochs = facts.batches.epoch
    at = next((at for at in range(1, len(epochs)) if epochs[at] < epochs[at - 1]), None)
    if at is not None:
        offset = facts.batches.base_offset[at]
        evidence = (
            f"offset {offset} has epoch {epochs[at]}, and the batch before it has epoch {epochs[at - 1]}; no leader writes that, so "
            "the log was changed"
        )
        yield judge.violated(Grade.ERROR, evidence, offset=offset)


def _k15(judge: _Judge, facts: LogFacts, _: OffsetAndEpoch | None) -> Iterator[RuleResult]:
    state = facts.quorum_state
    # The epoch of a checkpoint that contradicts the log is reported by K7.
    sound = [each.id.epoch for each in facts.checkpoints if epoch_before(each.id.offset, each.below) in (None, each.id.epoch)]
    known_epoch = max([facts.last_epoch, *sound])
    has_begun = facts.end_offset > 0 or any(each.id.offset for each in facts.checkpoints)
    path = f"{facts.path}/quorum-state"
    if facts.is_quorum_state_bad:
        yield judge.not_judged("quorum-state cannot be read")
    elif state is None:
        if has_begun:
            evidence = f"is absent: the node no longer knows for whom it voted, and may vote a second time in epoch {known_epoch}"
            yield judge.violated(Grade.ERROR, evidence, path)
    else:
        yield from (judge.violated(Grade.ERROR, evidence, path) for evidence in _contradictions(facts, state, known_epoch))


def _contradictions(facts: LogFacts, state: QuorumState, known_epoch: int) -> Iterator[str]:
    if state.leader_epoch < known_epoch:
        yield (
            f"has epoch {state.leader_epoch}, and the log or a checkpoint has epoch {known_epoch}: the file is older than the log, and "
            "the votes since then are forgotten"
        )
    leader = facts.leaders.get(state.leader_epoch)
    if leader is not None and state.leader_id not in (leader, -1):
        yield f"names node {state.leader_id} as the leader of epoch {state.leader_epoch}, and the log names node {leader}"
    # Only version 0 holds voters, and a file that was written before a change of the voters keeps the old ones until the next vote.
    recorded = [{each.voter_id for each in voters} for voters in facts.voter_sets]
    if state.voters and recorded and set(state.voters) not in recorded:
        yield f"names voters {ids_text(state.voters)}, and the log names {ids_text(recorded[-1])}"


def ids_text(ids: Iterable[int]) -> str:
    """Ids of nodes, ascending."""
    return ", ".join(map(str, sorted(ids)))


_EFFECTS = {
    NameEffect.REMOVED: (Grade.INFO, "the next start removes it"),
    NameEffect.CLEANER_FAILS: (Grade.ERROR, "Kafka takes it for a checkpoint that it does not find, and its cleaner fails"),
    NameEffect.TAKEN_FOR_SEGMENT: (Grade.DAMAGE, "a node that starts takes it for a part of the log, which may lose its end"),
    NameEffect.REFUSED: (Grade.DAMAGE, "a node does not start"),
}

_RULES = {
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
}


def judge_starts(leader: LogFacts | None, followers: Sequence[LogFacts], mode: Followers) -> list[RuleResult]:
    """The part of K13 that is about starts: no follower's is beyond its leader's."""
    results = []
    for each in followers:
        judge = _Judge(each, Rule.K13)
        if leader is None:
            results.append(judge.not_judged("which node is the leader is not known"))
        elif each.start_offset > leader.start_offset:
            grade = Grade.INFO if mode is Followers.KAFKA else Grade.ERROR
            evidence = f"starts at {each.start_offset}, and its leader at {leader.start_offset}"
            results.append(judge.violated(grade, evidence, offset=each.start_offset))
    return results
