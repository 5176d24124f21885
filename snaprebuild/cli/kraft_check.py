"""The verb ``kraft check``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options import OutputFormat, OutputOption, Report, S3Options, Verbose, check_paths, takes_s3
from snaprebuild.cluster.log_start_rules import Followers

if TYPE_CHECKING:
    from snaprebuild.cluster.log_start import OffsetAndEpoch
    from snaprebuild.cluster.log_start_rules import RuleResult
    from snaprebuild.operations.kraft.check import KraftCheck, NodeCheck

__all__ = ["Leader", "MetadataDirs", "epoch_text", "kraft_check", "node_label"]

MetadataDirs = Annotated[list[str], typer.Argument(metavar="DIR...")]
Leader = Annotated[
    str | None,
    typer.Option("--leader", metavar="DIR", help="Which of the directories is the leader's. Default: as their quorum-state says."),
]


@takes_s3
def kraft_check(
    s3: S3Options,
    directories: MetadataDirs,
    leader: Leader = None,
    followers: Annotated[
        Followers,
        typer.Option(
            "--followers",
            show_default=False,
            help="What is asked of a follower's start: kafka, nothing, as each node moves its own; strict, it is not beyond the "
            "leader's; literal, and it needs no checkpoint where it is the leader's. Default: kafka.",
        ),
    ] = Followers.KAFKA,
    output: OutputOption = OutputFormat.TABLE,
    report: Report = None,
    verbose: Verbose = 0,
) -> None:
    """Reads only: holds metadata logs of KRaft against rules K1 to K13: can a node start from it, can an image be read, do nodes agree.

    DIR is a __cluster_metadata-0 directory, a log directory that holds one, or any directory above it; several are those of several
    nodes. It is safe beside a live node. Exit code 1 where a rule is violated, 4 where bytes are damaged or missing (docs/kraft.md).
    """
    from snaprebuild.cli.result import begin, leave, verdict_document
    from snaprebuild.operations.kraft.check import kraft_check as look

    begin(verbose, {"--report": report})
    check_paths(directories)
    check = look(directories, followers, leader, s3.settings())
    leave(
        lambda: verdict_document("kraft-check", 1, _body(check), check.findings),
        check.findings,
        as_json=output is OutputFormat.JSON,
        show=lambda: _print(check),
        report=report,
        everything=verbose > 0,
    )


def epoch_text(start: OffsetAndEpoch | None, offset: int) -> str:
    """A start as ``OffsetAndEpoch``."""
    return str(start) if start is not None else f"{offset} (epoch not known)"


def node_label(check: NodeCheck) -> str:
    """What a table calls a node."""
    return "-" if check.node.node_id is None else str(check.node.node_id)


def _body(check: KraftCheck) -> dict[str, object]:
    return {"followers": check.followers.value, "nodes": [_node(each) for each in check.nodes]}


def _node(check: NodeCheck) -> dict[str, object]:
    facts, start = check.node.facts, check.node.facts.start
    return {
        "directory": check.node.log.path,
        "node_id": check.node.node_id,
        "cluster_id": check.node.cluster_id,
        "is_leader": check.is_leader,
        "first_base_offset": facts.first_base_offset,
        "start": {"offset": facts.start_offset, "epoch": None if start is None else start.epoch},
        "end_offset": facts.end_offset,
        "checkpoints": [
            {
                "offset": each.id.offset,
                "epoch": each.id.epoch,
                "bytes": each.size_bytes,
                "timestamp_ms": each.timestamp_ms,
                "fault": each.fault,
            }
            for each in facts.checkpoints
        ],
        "rules": [_result(each) for each in check.results],
    }


def _result(result: RuleResult) -> dict[str, object]:
    return {
        "rule": result.rule.name,
        "says": result.rule.value,
        "outcome": result.outcome.value,
        "grade": None if result.grade is None else result.grade.value,
        "evidence": result.evidence,
        "path": result.path,
        "offset": result.offset,
    }


def _print(check: KraftCheck) -> None:
    from snaprebuild.cli.result import print_table, print_text, shown, unless_unread
    from snaprebuild.cluster.log_start_rules import Grade, Outcome, Rule
    from snaprebuild.operations.findings import counted

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
    print_table("Metadata logs", columns, rows, right=("first segment", "end", "checkpoints"))
    told = [
        (node_label(each), result.rule.name, result.outcome.value, result.grade or "-", result.evidence)
        for each in check.nodes
        for result in each.results
        if result.outcome is not Outcome.HELD and (len(check.nodes) > 1 or result.rule is not Rule.K13)
    ]
    if told:
        print_table("Rules that are not held", ("node", "rule", "outcome", "grade", "evidence"), told)
    results = [result for each in check.nodes for result in each.results]
    grades = Counter(result.grade for result in results if result.grade is not None)
    violations = ", ".join(f"{grades[grade]} {grade}" for grade in reversed(list(Grade)) if grades[grade])
    violations = violations or unless_unread("no violation", check.findings)
    held = counted(sum(result.outcome is Outcome.HELD for result in results), "rule")
    print_text(f"{counted(len(check.nodes), 'node')}: {held} held; {violations}")
