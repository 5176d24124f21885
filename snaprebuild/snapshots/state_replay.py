"""Replays of an install: boundaries that were rolled, or whose segments were touched, since the partition was staged."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.findings import Severity
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, Plan
from snaprebuild.snapshots.plan.planner import plan_partition
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult
from snaprebuild.snapshots.staging.resume import is_valid_state, resumed_plan
from snaprebuild.snapshots.staging.staged_check import CheckedPartition
from snaprebuild.snapshots.staging.staged_plan import StagedSnapshot
from snaprebuild.storage.log_dir import listed_again

__all__ = ["StateReplay", "replays_by_state"]


@dataclass(slots=True)
class StateReplay:
    """Boundaries of a partition that are replayed from one staged state.

    Attributes:
        checked: the partition.
        state: the nearest staged state below the boundaries that is valid; None if there is none.
        boundaries: ascending, at least one.
        begun_from: the plan of the partition before any of its replays: no fault of one is passed on to the next.
    """

    checked: CheckedPartition
    state: StagedSnapshot | None
    boundaries: tuple[BoundaryPlan, ...]
    begun_from: PartitionPlan

    @property
    def path(self) -> str:
        """Path of the partition directory."""
        return self.checked.path

    def plan(self, whole: Plan, deadline: float | None) -> PartitionPlan | None:
        """From the staged state on, or from where a rebuild begins without one; None and a finding if that fails."""
        plan = self.begun_from
        try:
            source = replace(plan.source, directory=listed_again(plan.source.directory))  # with what was linked a moment ago
            if self.state is not None:
                return resumed_plan(replace(plan, source=source), self.checked.staged, self.boundaries, self.state)
            planned, findings = plan_partition(source, plan.target, whole.request, whole.clock, deadline)
            self.checked.result.findings.extend(each for each in findings if each.severity is not Severity.NOTE)
            due = {each.offset for each in self.boundaries}
            return replace(planned, boundaries=tuple(each for each in planned.boundaries if each.offset in due))
        except (ReadFailedError, FormatError) as error:
            self.give_up(f"the staged state cannot be read: {error}", BoundaryAction.FAILED)
        except RefusedError as error:
            self.give_up(error.message, BoundaryAction.REFUSED)
        return None

    def give_up(self, reason: str, action: BoundaryAction) -> None:
        """Replays nothing of it."""
        message = f"{reason}: segments that were rolled since are not rebuilt; stage again"
        self.checked.result.add_finding("not-staged", Severity.FINDING, message, self.boundaries[0].offset)
        for boundary in self.boundaries:
            self.checked.result.give_up(boundary, reason, action)

    def end(self, replayed: PartitionResult) -> None:
        """Adds the result of the replay to that of the partition. What is wanted there stays.

        Boundaries of a replica that was rejected, or not judged in time, get no snapshot; nor do those whose segments went meanwhile.
        """
        result = self.checked.result
        plan = replayed.plan
        settled = {each.offset for each in replayed.boundaries}
        reasons = dict(plan.not_planned)
        for boundary in self.boundaries:
            if boundary.offset in settled:
                continue
            if boundary.offset in reasons:
                reason = reasons[boundary.offset].text
            elif plan.fault is not None:
                reason = plan.fault
            else:
                reason = "segments went while they were replayed: no segment ends here any more"
                result.add_finding("boundary-not-reached", Severity.FINDING, reason, boundary.offset)
            result.give_up(boundary, reason, BoundaryAction.SKIPPED if plan.verdict is None else BoundaryAction.REFUSED)
        result.plan = replace(plan, boundaries=result.plan.boundaries, ready=result.plan.ready)
        result.outcome.add(replayed.outcome)
        result.outcome.replay_index = replayed.outcome.replay_index
        result.outcome.replay_reason = replayed.outcome.replay_reason


def replays_by_state(checked: CheckedPartition) -> list[StateReplay]:
    """The boundaries that are due, by the nearest valid staged state below each: a lost file costs the replay from the one below it."""
    replays: list[StateReplay] = []
    is_valid: dict[int, bool] = {}
    for boundary in checked.plan.boundaries:
        state = _nearest_state(checked, boundary.offset, is_valid)
        if replays and replays[-1].state == state:
            replays[-1].boundaries = (*replays[-1].boundaries, boundary)
        else:
            replays.append(StateReplay(checked, state, (boundary,), checked.plan))
    return replays


def _nearest_state(checked: CheckedPartition, offset: int, is_valid: dict[int, bool]) -> StagedSnapshot | None:
    """The nearest valid staged snapshot below an offset; None without one.

    Args:
        checked: the partition.
        offset: of a boundary.
        is_valid: by offset, of the snapshots that were read before. Those that are read now are added.
    """
    for each in reversed(checked.staged.snapshots):
        if each.offset >= offset or not checked.is_untouched_below(each.offset):
            continue
        if each.offset not in is_valid:
            is_valid[each.offset] = is_valid_state(checked.staged, each)
        if is_valid[each.offset]:
            return each
    return None
