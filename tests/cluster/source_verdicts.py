"""Verdicts on replicas, and changes of a broker's directory that a verdict must notice."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from log_dirs import cut
from metadata_logs import append_metadata_record

from formats.metadata.cluster_metadata import MetadataRecordType
from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.cluster.rule_result import RuleState
from snaprebuild.cluster.source_check.check import SourceCheck, check_sources
from snaprebuild.cluster.source_check.rules import SourceRule
from snaprebuild.cluster.source_check.source_question import SourceQuestion
from snaprebuild.cluster.source_check.verdict import SourceVerdict
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.snapshots.run import Run

NOW_MS = 1_795_300_000_000
ORDERS = "TbEpDujbR1a9Y_KYwm3sPQ"


def check(*paths: Path, purpose: Purpose = Purpose.REBUILD, metadata: Path | None = None, **more: Any) -> SourceCheck:
    question = SourceQuestion(
        paths=tuple(map(str, paths)),
        purpose=purpose,
        metadata=None if metadata is None else str(metadata),
        **{**more, "peers": tuple(more.get("peers", ()))},
    )
    return check_sources(question, Run(clock=Clock(NOW_MS, DEFAULT_EXPIRATION_MS), jobs=1))


def without_result(verdict: SourceVerdict) -> tuple[SourceRule, ...]:
    """The rules of a verdict that are unknown or not applicable, in their order."""
    states = (RuleState.UNKNOWN, RuleState.NOT_APPLICABLE)
    return tuple(result.rule for result in verdict.results if result.state in states)


def verdicts(result: SourceCheck) -> dict[str, SourceVerdict]:
    return {os.path.basename(each.log.path): each.verdict for each in result.replicas}


def meta(node: Path, **changed: str) -> None:
    path = node / "meta.properties"
    lines = [line for line in path.read_text().splitlines() if line.partition("=")[0].replace(".", "_") not in changed]
    path.write_text("\n".join([*lines, *(f"{key.replace('_', '.', 1)}={value}" for key, value in changed.items())]) + "\n")


NO_CHANGE: dict[str, Any] = {
    "isr": None,
    "leader": -2,
    "replicas": None,
    "removingReplicas": None,
    "addingReplicas": None,
    "leaderRecoveryState": -1,
    "directories": None,
    "eligibleLeaderReplicas": None,
    "lastKnownElr": None,
}
Break = Callable[[Path], object]
"""Changes the directory of a broker."""


def renamed(old: str, new: str) -> Break:
    return lambda node: (node / old).rename(node / new)


def written(path: str, text: str) -> Break:
    return lambda node: (node / path).write_text(text)


def ids_changed(**ids: str) -> Break:
    return lambda node: meta(node, **ids)


def partition_changed(offset: int = 348, **fields: Any) -> Break:
    """By a record at the end of the metadata log."""
    record = {**NO_CHANGE, "partitionId": 1, "topicId": uuid_from_text(ORDERS), **fields}
    return lambda node: append_metadata_record(node, MetadataRecordType.PARTITION_CHANGE, record, 2, offset)


def break_end(node: Path) -> None:
    cut(node / "orders-1" / f"{322:020d}.log", 0)


def break_marker(node: Path) -> None:
    (node / ".kafka_cleanshutdown").unlink()


REBUILD, UPLOAD = Purpose.REBUILD, Purpose.UPLOAD


def removed(path: str) -> Break:
    return lambda node: (node / path).unlink()
