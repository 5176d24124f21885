"""A plan as a file: what was asked for, and the identity of every input, so that it is refused when the disk has changed.

Its form is that of ``plan_lines`` (docs/json.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from snaprebuild.documents.file_facts import InputFile, Nameable, Positive
from snaprebuild.documents.typed import Natural
from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.plan.plan_lines import Line, PlanLines, plan_lines
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.local.small_file import write_text_file

__all__ = ["load_plan", "save_plan"]

SCHEMA = "snaprebuild.saved-plan/7"


class _Header(Line, frozen=True, kw_only=True):
    schema: str
    request: dict[str, Any]
    expiration_ms: Positive


class _Partition(Line, frozen=True, kw_only=True):
    """Everything that must not change between planning and doing."""

    path: Nameable
    topic_partition: str
    target: str
    log_start_offset: Natural
    log_end_offset: Natural | None
    clean_shutdown: bool
    recovery_point: Natural
    replay_index: Natural
    boundaries: tuple[Natural, ...]
    not_planned: dict[str, list[Natural]]
    segments: tuple[InputFile, ...]
    snapshots: tuple[InputFile, ...]

    @classmethod
    def of(cls, plan: PartitionPlan) -> _Partition:
        source, directory = plan.source, plan.source.directory
        not_planned: dict[str, list[int]] = {}
        for offset, reason in plan.not_planned:
            not_planned.setdefault(reason, []).append(offset)
        return cls(
            path=directory.path,
            topic_partition=source.topic_partition,
            target=plan.target,
            log_start_offset=source.log_start_offset,
            log_end_offset=plan.log_end_offset,
            clean_shutdown=source.log_dir.was_shut_down_cleanly,
            recovery_point=source.recovery_point,
            replay_index=plan.replay_index,
            boundaries=tuple(boundary.offset for boundary in plan.boundaries),
            not_planned=not_planned,
            segments=tuple(InputFile.of(segment.base_offset, segment.log.identity) for segment in directory.segments),
            snapshots=tuple(InputFile.of(offset, listed.identity) for offset, listed in directory.snapshots),
        )


def save_plan(plan: Plan, path: str) -> None:
    """Writes a plan with the identity of its inputs.

    Raises:
        RefusedError: it may not be written there (``check_place``).
        WriteFailedError: it cannot be written.
    """
    header = _Header(schema=SCHEMA, request=plan.request.as_json(), expiration_ms=plan.clock.expiration_ms)
    partitions = (msgspec.to_builtins(_Partition.of(partition)) for partition in plan.partitions)
    write_text_file(path, plan_lines(header, partitions))


def load_plan(path: str) -> Plan:
    """Loads a plan and makes it again from the disk as it is now.

    Raises:
        UsageError: no such file, or no plan: cut off, changed, of another version; the line is named.
        ReadFailedError: it cannot be read.
        RefusedError: the disk has changed; the first difference is named.
    """
    with open_named_file(path) as file:
        saved = PlanLines(path, file)
        header = saved.header(_Header, SCHEMA)
        count = saved.check_whole()
        request = saved.request(header.request)
        plan = make_plan(replace(request, expiration_ms=header.expiration_ms))
        _check_unchanged(plan, saved, count)
    return replace(plan, request=replace(plan.request, expiration_ms=request.expiration_ms))


def _check_unchanged(plan: Plan, saved: PlanLines, count: int) -> None:
    """Compares each partition with its line.

    Raises:
        RefusedError: it is another, or came or went.
    """
    present = {partition.source.directory.path: partition for partition in plan.partitions}
    for number, line in saved.partitions(count):
        was = saved.part(_Partition, line, number)
        partition = present.pop(was.path, None)
        if partition is None:
            raise RefusedError(f"the plan is stale: the partition of its line {number} is gone", path=was.path)
        now = _Partition.of(partition)
        for name in now.__struct_fields__:
            if getattr(was, name) != getattr(now, name):
                difference = _first_difference(getattr(was, name), getattr(now, name))
                raise RefusedError(f"the plan is stale: {name}: {difference}", path=was.path)
    if present:
        raise RefusedError("the plan is stale: this partition came since it was made", path=min(present))


def _first_difference(was: Any, now: Any) -> str:
    if isinstance(was, dict):
        key = next(key for key in (*was, *now) if was.get(key) != now.get(key))
        return f"{key}: {_first_difference(was.get(key, []), now.get(key, []))}"
    if isinstance(was, list | tuple):
        for old, new in zip(was, now, strict=False):
            if old != new:
                return f"was {_text(old)}, is {_text(new)}"
        return f"had {len(was)} entries, has {len(now)}"
    return f"was {was}, is {now}"


def _text(value: object) -> str:
    if not isinstance(value, InputFile):
        return str(value)
    members: dict[str, object] = msgspec.to_builtins(value)
    return " ".join(f"{name} {member}" for name, member in members.items())
