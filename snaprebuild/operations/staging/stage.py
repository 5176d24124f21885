"""Builds the missing snapshots of a broker that runs, outside of its log directories, and leaves a plan of what lies ready."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace

from formats.errors import FormatError
from formats.file_names import snapshot_file_name
from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.operations.broker_properties import log_dirs_of, read_server_properties
from snaprebuild.operations.planned import PartitionPlan, Plan
from snaprebuild.operations.rebuild import Progress, rebuild
from snaprebuild.operations.rebuild_result import EQUAL, LEFT_OUT, WRITTEN, PartitionResult, RebuildResult
from snaprebuild.operations.schedule import Engine
from snaprebuild.operations.staging.staged_plan import (
    PLAN_NAME,
    StagedPartition,
    StagedPlan,
    StagedSnapshot,
    load_staged_plan,
    save_staged_plan,
)
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.storage.fingerprint import Fingerprint
from snaprebuild.storage.log_dir import read_topic_id
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["known_topic_id", "stage"]


@dataclass(slots=True)
class StagedFiles:
    """What writers tell of the files that they stage, as they would tell a receipt.

    Attributes:
        made: by directory of the partition and offset: class, count of entries, bytes.
    """

    made: dict[tuple[str, int], tuple[str, int, Fingerprint]] = field(default_factory=dict)

    def announce_set_aside(self, partition: PartitionPlan, offset: int, aside: str, found: Fingerprint) -> None:
        """Nothing is set aside here."""
        raise AssertionError(f"{partition.source.topic_partition} {offset} {aside} {found}")

    def announce(self, partition: PartitionPlan, offset: int, snapshot_class: str, entries: int, made: Fingerprint) -> None:
        """A file that is about to get its name."""
        self.made[partition.source.directory.path, offset] = snapshot_class, entries, made

    def settle(self, partition: PartitionPlan, offset: int, error: SnaprebuildError | None = None) -> None:
        """It has it, or has it not."""
        if error is not None:
            self.made.pop((partition.source.directory.path, offset), None)


def stage(
    plan: Plan,
    *,
    jobs: int | None = None,
    engine: Engine | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RebuildResult:
    """Carries out a plan of which ``request.stage`` is set.

    Args:
        plan: from ``make_plan``.
        jobs: worker processes, None for as many as processors.
        engine: reads and replays in place of worker processes of this machine.
        dry_run: replay and judge, write nothing.
        progress: told of every segment.

    Raises:
        RefusedError: no links can be made there, or the name of the plan is taken.
        StorageError: nothing can be written there.
    """
    path = os.path.join(plan.request.stage[0], PLAN_NAME)
    before = load_staged_plan(path) if os.path.lexists(path) else None
    files = StagedFiles()
    result = rebuild(plan, jobs=jobs, engine=engine, dry_run=dry_run, progress=progress, told=files)
    if dry_run:
        return result
    began_ms = int(time.time() * 1000)
    partitions = [staged for each in result.partitions if (staged := _staged(each, files)) is not None]
    if not partitions:
        return result
    own = {each.path for each in partitions}
    earlier = () if before is None else before.partitions
    log_dirs = {*_log_dirs(plan), *(() if before is None else before.log_dirs)}
    merged = sorted([*partitions, *(each for each in earlier if each.path not in own)], key=lambda each: each.path)
    save_staged_plan(StagedPlan(path, plan.request, plan.clock, began_ms, tuple(sorted(log_dirs)), tuple(merged)))
    return replace(result, staged_plan=path)


def _log_dirs(plan: Plan) -> set[str]:
    properties = plan.request.server_properties
    configured = [] if properties is None else log_dirs_of(read_server_properties(properties))
    used = {each.source.log_dir.path for each in plan.partitions if each.source.log_dir.is_broker_directory}
    return {*map(os.path.realpath, configured), *used}


def _staged(result: PartitionResult, files: StagedFiles) -> StagedPartition | None:
    """What lies ready for a partition; None where nothing does that is due."""
    plan, directory = result.plan, result.plan.source.directory
    exists = {boundary.offset for boundary in plan.boundaries if boundary.exists}
    snapshots: list[StagedSnapshot] = []
    reasons: tuple[str, ...] = ()
    for boundary in result.boundaries:
        if boundary.action not in (WRITTEN, EQUAL) or (directory.path, boundary.offset) not in files.made:
            continue
        klass, entries, made = files.made[directory.path, boundary.offset]
        inode = os.lstat(os.path.join(plan.target, snapshot_file_name(boundary.offset))).st_ino
        is_due = boundary.offset not in exists
        snapshots.append(StagedSnapshot(boundary.offset, made, inode, SnapshotClass(klass), entries, is_due))
        reasons = boundary.reasons
    if not any(each.is_due for each in snapshots):
        return None
    segments = [each for each in directory.segments[result.replay_index :] if each.base_offset <= snapshots[-1].offset]
    return StagedPartition(
        path=directory.path,
        topic_partition=plan.source.topic_partition,
        topic_id=known_topic_id(directory),
        target=plan.target,
        log_start_offset=plan.source.log_start_offset,
        first_offset=segments[0].base_offset,
        segments=tuple((each.base_offset, each.log.identity) for each in segments),
        snapshots=tuple(snapshots),
        given_up=tuple(each.offset for each in result.boundaries if each.action == LEFT_OUT),
        reasons=reasons,
    )


def known_topic_id(directory: PartitionDir) -> str | None:
    """The topic id of ``partition.metadata``, in hexadecimal digits; None where there is none, as before 2.8, or it cannot be read."""
    try:
        topic_id = read_topic_id(directory)
    except (ReadFailedError, FormatError):
        return None
    return None if topic_id is None else topic_id.hex()
