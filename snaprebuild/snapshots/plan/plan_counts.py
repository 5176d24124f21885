"""How many snapshots a plan writes and compares: what is certain before the replay, and what only the replay shows.

At each boundary of its plan a run writes a snapshot, or compares the one that is there, or gives up. So the numbers of a run are within
those of its plan.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from formats.partition.file_names import snapshot_file_name
from snaprebuild.published import Natural, Part
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.storage.store import is_object

__all__ = ["PlanCounts", "plan_counts"]


class PlanCounts(Part, frozen=True):
    """What a plan does, in numbers of snapshots."""

    to_write: Natural
    """Boundaries where no file is: each gets one, if the replay gives a snapshot that may be written there."""
    to_compare: Natural
    """Files that are there, and that the run compares with the replay."""
    writes_at_least: Natural
    """Files that the run writes if every segment is whole."""
    writes_at_most: Natural
    """Files that the run may write. With --set-aside it replaces each file that the replay proves wrong."""


def plan_counts(plan: Plan) -> PlanCounts:
    """The numbers of a plan as it is shown, after ``rehearsed``. Lists the directories that the snapshots go to."""
    to_write = 0
    to_compare = 0
    at_least = 0
    for partition in plan.partitions:
        boundaries = partition.all_boundaries
        new = _new(partition, boundaries, plan.request)
        to_write += new
        to_compare += len(boundaries) - new
        if _is_certain(partition, plan.request):
            at_least += new
    return PlanCounts(
        to_write=to_write,
        to_compare=to_compare,
        writes_at_least=at_least,
        writes_at_most=to_write + (to_compare if plan.request.set_aside or plan.request.destination.installed_later else 0),
    )


def _new(partition: PartitionPlan, boundaries: Sequence[BoundaryPlan], request: RebuildRequest) -> int:
    """How many of the boundaries have no file where the snapshots go."""
    if request.destination.writes_into_log_dirs:
        return sum(not boundary.exists for boundary in boundaries)
    if not boundaries or is_object(partition.target):
        return len(boundaries)
    try:
        names = set(os.listdir(partition.target))
    except OSError:
        return len(boundaries)
    return sum(snapshot_file_name(boundary.offset) not in names for boundary in boundaries)


def _is_certain(partition: PartitionPlan, request: RebuildRequest) -> bool:
    """Whether a replay of whole segments gives snapshots that may be written.

    Where the log begins above offset 0, or the cleaner has removed batches, only the replay shows what is proven.
    """
    if partition.keeps_files is not None:
        return False
    if is_object(partition.target) and not request.destination.writes_into_log_dirs:
        return False  # objects that an earlier run has left there are not listed
    if partition.resumed is not None:
        return True
    segments = partition.source.directory.segments
    begins_at_zero = bool(segments) and segments[0].base_offset == 0
    return begins_at_zero and not partition.source.is_compacted and request.replay_from != ReplayFrom.WINDOW.value
