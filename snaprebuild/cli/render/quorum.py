"""The directories of a metadata quorum: the views of ``cluster check`` and ``cluster advise``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from snaprebuild.cli.answer import unless_unread
from snaprebuild.cli.printing import draws_blocks, print_line, print_table, print_text
from snaprebuild.cli.render.log_start_chart import duration_text, with_duration_texts
from snaprebuild.cli.render.status import judgement_lines
from snaprebuild.cli.value_text import shown, size_text
from snaprebuild.cli.view import Answer, View
from snaprebuild.cluster.metadata.feature_levels import FeatureLevel
from snaprebuild.cluster.quorum.advise import StartAdvice
from snaprebuild.cluster.quorum.check import NodeCheck, QuorumCheck
from snaprebuild.cluster.quorum.election import ElectionLog, QuorumElection, QuorumFacts
from snaprebuild.cluster.quorum.rules import QuorumRuleResult
from snaprebuild.cluster.rule_result import Grade, RuleState
from snaprebuild.documents import cluster as doc
from snaprebuild.findings import pluralize
from snaprebuild.published import members_of_base

__all__ = ["QuorumCheckView", "StartAdviceView"]


# --------------------------------------------------------------------------------------------------------------- cluster check


class QuorumCheckView(View):
    """Directories of metadata logs, and which rules they break."""

    names_unread = True

    def __init__(self, check: QuorumCheck) -> None:
        super().__init__(check.findings)
        self._check = check

    def document(self) -> doc.ClusterCheck:
        nodes = [_checked_node(each) for each in self._check.nodes]
        return doc.ClusterCheck(**members_of_base(QuorumFacts, self._check), nodes=nodes)

    def answer(self) -> Answer:
        """The rules that hold, and the violations. What corrects them is Kafka's own."""
        return judgement_lines(self.findings, _summary(self._check)), []

    def print_table(self) -> None:
        check = self._check
        _print_nodes(check.nodes)
        _print_broken_rules(check.nodes)
        if len(check.nodes) > 1 or check.election.voters_not_given:
            _print_election(check.election)
        _print_features(check.features or ())
        for text in _not_covered(check):
            print_text(f"Not covered: {text}.")


def _checked_node(check: NodeCheck) -> doc.CheckedNode:
    facts = check.node.facts
    return doc.CheckedNode(
        path=check.node.log.path,
        node_id=check.node.node_id,
        cluster_id=check.node.cluster_id,
        is_leader=check.is_leader,
        first_base_offset=facts.first_base_offset,
        start=facts.log_start,
        end_offset=facts.end_offset,
        checkpoints=[
            doc.NodeCheckpoint(
                offset=each.id.offset,
                epoch=each.id.epoch,
                size_bytes=each.size_bytes,
                timestamp_ms=each.timestamp_ms,
                fault=each.fault,
            )
            for each in facts.checkpoints
        ],
        rules=[_rule_state(each) for each in check.results],
        unknown_contents=check.node.log.unknown.contents(check.node.log.other_files),
    )


def _rule_state(result: QuorumRuleResult) -> doc.NodeRuleResult:
    return doc.NodeRuleResult(
        rule=result.rule.name,
        text=result.rule.value,
        state=result.state_name,
        grade=result.grade,
        evidence=result.evidence,
        path=result.path,
        offset=result.offset,
    )


def _print_nodes(nodes: Sequence[NodeCheck]) -> None:
    rows = []
    for each in nodes:
        facts = each.node.facts
        latest = str(facts.checkpoints[-1].id) if facts.checkpoints else "-"
        role = {True: "leader", False: "follower", None: "-"}[each.is_leader]
        offsets = (facts.first_base_offset, facts.log_start, facts.end_offset)
        path = shown(each.node.log.path)
        rows.append((_node_label(each), role, *offsets, len(facts.checkpoints), latest, path))
    columns = ("node", "role", "first segment", "start", "end", "checkpoints", "the latest", "directory")
    drop = ("first segment", "checkpoints", "the latest")
    print_table("Metadata logs", columns, rows, right=("first segment", "end", "checkpoints"), drop=drop)


def _node_label(check: NodeCheck) -> str:
    return "-" if check.node.node_id is None else str(check.node.node_id)


def _print_broken_rules(nodes: Sequence[NodeCheck]) -> None:
    rows = [
        (_node_label(each), result.rule.name, result.state_name, result.grade or "-", result.evidence)
        for each in nodes
        for result in each.results
        if result.state in (RuleState.BROKEN, RuleState.UNKNOWN)
    ]
    if rows:
        title = "Rules that are not held"
        print_table(title, ("node", "rule", "outcome", "grade", "evidence"), rows, drop=("outcome",))


def _print_election(election: QuorumElection) -> None:
    rows = []
    for each in election.directories:
        last = "-" if not each.end.offset else each.end.offset - 1
        rows.append((each.node_id, last, each.end.epoch, _vote_text(each), each.can_win.value, each.reason))
    columns = ("node", "last offset", "of epoch", "quorum-state", "can win", "because")
    print_table("Elections, if these nodes are started", columns, rows, right=("last offset", "of epoch"), drop=("quorum-state",))
    if election.voters_not_given:
        print_text(f"Voters without a directory here: {', '.join(map(str, election.voters_not_given))}.")
    print_text(f"The most is in {', '.join(shown(each.path) for each in election.directories if each.has_most)}.")


def _vote_text(log: ElectionLog) -> str:
    state = log.quorum_state
    if state is None:
        return "quorum-state is unknown"
    text = f"epoch {state.epoch}"
    if state.leader_id is not None:
        text += f", leader {state.leader_id}"
    if state.voted_id is not None:
        text += f", voted for {state.voted_id}"
    return text


def _print_features(features: Sequence[FeatureLevel]) -> None:
    """Prints the registrations that hold a feature back, if there are any."""
    rows = [
        (f"{node.kind} {node.node_id}", node.state.value, feature.name, node.max_level, feature.max_of_any, feature.finalized_level)
        for feature in features
        for node in feature.held_back_by
    ]
    if rows:
        columns = ("node", "state", "feature", "supports up to", "others up to", "cluster has")
        print_table("Registrations that hold features back", columns, rows, right=columns[3:])


def _summary(check: QuorumCheck) -> str:
    results = [result for each in check.nodes for result in each.results]
    grades = Counter(result.grade for result in results if result.grade is not None)
    violations = ", ".join(f"{grades[grade]} {grade}" for grade in reversed(list(Grade)) if grades[grade])
    violations = violations or unless_unread("no violation", check.findings)
    held = pluralize(sum(result.state is RuleState.HOLDS for result in results), "rule")
    covered = " over what this version knows" if _not_covered(check) else ""
    holding = {(node.kind, node.node_id) for feature in check.features or () for node in feature.held_back_by}
    held_back = f"; features held back by {pluralize(len(holding), 'registration')}" if holding else ""
    return f"{pluralize(len(check.nodes), 'node')}: {held} held{covered}; {violations}{held_back}"


def _not_covered(check: QuorumCheck) -> list[str]:
    """Contents of the metadata logs that this version does not know."""
    return sorted({each.node.log.unknown.sentence for each in check.nodes if each.node.log.unknown})


# -------------------------------------------------------------------------------------------------------------- cluster advise

COLUMNS = 64
"""Characters of a line of the chart."""


class StartAdviceView(View):
    """Where each policy would move the start of a metadata log."""

    def __init__(self, advice: StartAdvice) -> None:
        super().__init__(advice.findings)
        self._advice = advice

    def document(self) -> doc.ClusterAdvise:
        advice = self._advice
        facts = advice.node.facts
        settings = advice.settings
        return doc.ClusterAdvise(
            path=advice.node.log.path,
            node_id=advice.node.node_id,
            is_leader=advice.is_leader,
            as_of_ms=advice.as_of_ms,
            retention_bytes=settings.retention_bytes,
            retention_ms=settings.retention_ms,
            lag_time_max_ms=settings.lag_time_max_ms,
            checkpoint_interval_ms=settings.checkpoints.interval_ms,
            checkpoint_record_bytes=settings.checkpoints.record_bytes,
            next_checkpoint=advice.next_checkpoint,
            first_base_offset=facts.first_base_offset,
            start=facts.log_start,
            end_offset=facts.end_offset,
            size_bytes=advice.size_bytes,
            replicas=advice.replicas,
            unknown_replicas=advice.unknown_replicas,
            listeners=advice.listeners,
            leader_start=advice.leader_start,
            policies=advice.policies,
            assumptions=advice.assumptions,
            unknown_contents=advice.node.log.unknown.contents(advice.node.log.other_files),
        )

    def print_table(self) -> None:
        advice = self._advice
        rows: list[tuple[object, ...]] = [
            ("now", advice.node.facts.log_start, "-", "-", size_text(advice.size_bytes), "-", "-", "")
        ]
        for each in advice.policies:
            segments = sum(len(move.deleted_segments) for move in each.moves)
            checkpoints = sum(len(move.deleted_checkpoints) for move in each.moves)
            because = with_duration_texts(each.stays_because or each.moves[-1].reason)
            start = each.start if each.moves else "stays"
            invalidated = ", ".join(each.invalidated) or "-"
            reloaded = ", ".join(each.reloaded) or "-"
            size = size_text(each.size_bytes)
            rows.append((each.policy.value, start, segments or "-", checkpoints or "-", size, invalidated, reloaded, because))
        node = "" if advice.node.node_id is None else f" of node {advice.node.node_id}"
        role = "leader" if advice.is_leader else "follower"
        title = f"Start of the metadata log{node}, {role}: {shown(advice.node.log.path)}"
        columns = ("policy", "start", "segments go", "checkpoints go", "kept", "invalidated", "reloaded", "because")
        print_table(title, columns, rows, right=columns[2:5], drop=("checkpoints go", "segments go"))
        for line in _chart(advice):
            print_line(line)
        print_text(_next_checkpoint_text(advice))
        for assumption in advice.assumptions:
            print_text(f"Assumed: {assumption}")
        if advice.node.log.unknown:
            print_text(f"Not covered: {advice.node.log.unknown.sentence}.")


def _next_checkpoint_text(advice: StartAdvice) -> str:
    """When there is another checkpoint to which the start may move."""
    due = advice.next_checkpoint
    settings = advice.settings.checkpoints
    amount = f"{size_text(due.record_bytes)} of {size_text(settings.record_bytes)} of records follow the latest"
    if settings.interval_ms:
        age = "which is of unknown age"
        if due.age_ms is not None:
            age = f"which is {duration_text(due.age_ms)} old; the limit is {duration_text(settings.interval_ms)}"
        amount += f", {age}"
    state = "not due"
    if due.is_due:
        by_time = due.record_bytes < settings.record_bytes
        state = "due, if the node has been up since the latest" if by_time else "due"
    return f"Next checkpoint: {state} ({amount})"


def _chart(advice: StartAdvice) -> list[str]:
    """The log as a line of offsets, what each policy would keep of it, and where checkpoints end."""
    facts = advice.node.facts
    first = min(facts.base, facts.start_offset)
    end = facts.end_offset
    kept, gone, mark, edge = "█░▲│" if draws_blocks() else "#.^|"
    if end <= first:
        return []

    def column(offset: int) -> int:
        return min(COLUMNS - 1, (offset - first) * COLUMNS // (end - first))

    def marked(offsets: Sequence[int], sign: str, blank: str) -> str:
        columns = {column(each) for each in offsets if first <= each <= end}
        return "".join(sign if each in columns else blank for each in range(COLUMNS)).rstrip()

    def bar(start: int) -> str:
        return gone * column(max(first, start)) + kept * (COLUMNS - column(max(first, start)))

    lines = [f" {'offsets':<12}{first:<{COLUMNS - len(str(end))}}{end}"]
    lines.append(f" {'segments':<12}{marked([each.base_offset for each in advice.node.segments], edge, ' ')}")
    lines.append(f" {'checkpoints':<12}{marked([each.id.offset for each in facts.checkpoints], mark, ' ')}")
    for name, readers in (("replicas", advice.replicas), ("listeners", advice.listeners)):
        if readers:
            lines.append(f" {name:<12}{marked([each.offset for each in readers], '*', ' ')}")
    lines.append(f" {'now':<12}{bar(facts.start_offset)}")
    lines += [f" {each.policy.value:<12}{bar(each.start.offset)}" for each in advice.policies]
    return [*lines, ""]
