"""The status of one compared snapshot: whether it is wrong, and what the next start of its broker does to its partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from snaprebuild.broker.status import Status, findings_of, status_of
from snaprebuild.cluster.scan_storage import judged_scan
from snaprebuild.findings import Finding, unread_paths
from snaprebuild.replay.difference import Comparison, ComparisonStatus
from snaprebuild.snapshots.run import current_time_ms
from snaprebuild.snapshots.source.source import Source

__all__ = ["JudgedSnapshot", "judged_snapshot"]


@dataclass(frozen=True, slots=True)
class JudgedSnapshot:
    """The status of one snapshot.

    Attributes:
        status: the fates of the next start, and this one snapshot if it is wrong, or suspect and not proven right.
        findings: about the snapshot, its partition and the next start.
    """

    status: Status
    findings: tuple[Finding, ...]


def judged_snapshot(source: Source, path: str, comparison: Comparison | None, findings: Sequence[Finding]) -> JudgedSnapshot:
    """Adds what the next start does to the partition, as `verify` reports it. No broker starts on an object store.

    Args:
        source: of the one partition.
        path: of the snapshot.
        comparison: with a replay; None if it was not read.
        findings: of the comparison.
    """
    wrong = int(comparison is not None and comparison.proven_wrong)
    if not source.is_local:
        count = len(unread_paths(findings))
        return JudgedSnapshot(status_of((), wrong=wrong, suspect=0, missing=0, waiting=0, unread=count), tuple(findings))
    scan = judged_scan(source, current_time_ms(), reads_log=True)
    suspects: list[Finding] = []
    if comparison is not None and comparison.status is ComparisonStatus.UNVERIFIABLE:
        suspects = [suspect for partition in scan.partitions for suspect in partition.suspects if suspect.path == path]
    fates = {(fate.code, fate.path) for fate in scan.fates}
    own = [finding for finding in findings if finding.is_unread or (finding.code, finding.path) not in fates]
    named = {(each.code, each.path) for each in own}
    unread = [finding for finding in scan.other_findings if finding.is_unread and finding.path not in set(unread_paths(own))]
    others = [*unread, *(each for each in findings_of(scan.fates) if (each.code, each.path) not in named)]
    all_findings = (*own, *suspects, *others)
    status = replace(
        scan.status,
        wrong=wrong,
        suspect=len(suspects),
        missing=0,
        waiting=0,
        waiting_unknown=0,
        topics_without_id=(),
        unread=len(unread_paths(all_findings)),
    )
    return JudgedSnapshot(status, all_findings)
