"""Wrong and suspect snapshots next to what is staged: an install leaves them as they are, and reports those that are still there."""

from __future__ import annotations

import os
from collections.abc import Iterable

from formats.partition.file_names import snapshot_file_name
from snaprebuild.findings import Finding, FindingCause, Severity
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.staging.staged_plan import FaultySnapshot, StagedPlan

__all__ = ["faults_left", "faulty_snapshots"]


def faulty_snapshots(result: RebuildResult, before: StagedPlan | None) -> tuple[FaultySnapshot, ...]:
    """The wrong and suspect snapshots that a run of ``stage`` found, with those of earlier runs, by path and offset.

    Args:
        result: of the run.
        before: the staged plan of earlier runs; None without one.
    """
    faults = result.faults()
    directories = {partition.path: partition.plan.source.directory for partition in result.partitions}
    found: dict[tuple[str, int], FaultySnapshot] = {}
    if before is not None:
        found = {(each.path, each.offset): each for each in before.faulty_snapshots}
    for path, offset in (*faults.suspect, *faults.wrong):
        directory = directories.get(path)
        listed = None if directory is None else directory.snapshot_at(offset)
        if listed is not None:
            found[path, offset] = FaultySnapshot(
                path=path,
                offset=offset,
                size_bytes=listed.identity.size_bytes,
                modified_ns=listed.identity.modified_ns,
                is_proven=(path, offset) in faults.wrong,
            )
    return tuple(found[at] for at in sorted(found))


def faults_left(staged: StagedPlan, paths: Iterable[str] | None = None) -> list[Finding]:
    """The findings about those of a staged plan that are still there, unchanged.

    Args:
        staged: what ``stage`` has left.
        paths: of the partitions that count; None for all.
    """
    wanted = None if paths is None else set(paths)
    selected = [each for each in staged.faulty_snapshots if wanted is None or each.path in wanted]
    return [_finding(each) for each in selected if _is_unchanged(each)]


def _is_unchanged(snapshot: FaultySnapshot) -> bool:
    try:
        status = os.lstat(os.path.join(snapshot.path, snapshot_file_name(snapshot.offset)))
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (snapshot.size_bytes, snapshot.modified_ns)


def _finding(snapshot: FaultySnapshot) -> Finding:
    if snapshot.is_proven:
        message = "the snapshot was wrong when `stage` compared it, and is unchanged; `rebuild --set-aside` replaces it"
        return Finding(
            "wrong-snapshot", Severity.FINDING, snapshot.path, message, snapshot.offset, cause=FindingCause.WRONG_SNAPSHOT
        )
    path = os.path.join(snapshot.path, snapshot_file_name(snapshot.offset))
    message = "could not be correct when `stage` read it, and is unchanged; `verify` proves it right or wrong"
    return Finding("suspect-snapshot", Severity.FINDING, path, message, snapshot.offset, cause=FindingCause.SUSPECT_SNAPSHOT)
