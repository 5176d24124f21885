"""A plan as a file: what was asked for, and the identity of every input, so that it is refused when the disk has moved on.

Its form is that of ``plan_lines`` (docs/json.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from formats.text_lines import shown
from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.plan.plan_lines import PlanLines, plan_lines, request_of
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.storage.local.document_file import write_text_file
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.store import FileIdentity

__all__ = ["load_plan", "save_plan"]

SCHEMA = "snaprebuild.saved-plan/6"


def save_plan(plan: Plan, path: str) -> None:
    """Writes a plan with the identity of its inputs.

    Raises:
        RefusedError: it may not be written there (``check_place``).
        WriteFailedError: it cannot be written.
    """
    write_text_file(path, _lines_of(plan))


def _lines_of(plan: Plan) -> Iterator[str]:
    header = {"schema": SCHEMA, "request": plan.request.as_json(), "expiration_ms": plan.clock.expiration_ms}
    return plan_lines(header, map(_fingerprint, plan.partitions))


def _fingerprint(plan: PartitionPlan) -> dict[str, Any]:
    """Everything that must not change between planning and doing."""
    directory = plan.source.directory
    not_planned: dict[str, list[int]] = {}
    for offset, reason in plan.not_planned:
        not_planned.setdefault(reason, []).append(offset)
    return {
        "path": directory.path,
        "target": plan.target,
        "log_start_offset": plan.source.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "clean_shutdown": plan.source.log_dir.was_shut_down_cleanly,
        "recovery_point": plan.source.recovery_point,
        "replay_index": plan.replay_index,
        "boundaries": [boundary.offset for boundary in plan.boundaries],
        "not_planned": not_planned,
        "segments": [_row(segment.base_offset, segment.log.identity) for segment in directory.segments],
        "snapshots": [_row(offset, listed.identity) for offset, listed in directory.snapshots],
    }


_ROW = "[offset, bytes, time in ns, inode or ETag]"


def _row(offset: int, identity: FileIdentity) -> list[int | str]:
    return [offset, *identity.row]


def load_plan(path: str) -> Plan:
    """Loads a plan and makes it again from the disk as it is now.

    Raises:
        UsageError: no such file, or no plan: cut off, changed, of another version; the line is named.
        ReadFailedError: it cannot be read.
        RefusedError: the disk has moved on; the first difference is named.
    """
    with open_named_file(path) as file:
        saved = PlanLines(path, file)
        header = saved.header(SCHEMA, "request", "expiration_ms")
        count = saved.check_whole()
        try:
            request = request_of(header["request"])
            resolved = request_of({**header["request"], "expiration_ms": header["expiration_ms"]})
        except (ValueError, TypeError) as error:
            raise saved.fault(1, "a request of this version", shown(str(error))) from error
        plan = make_plan(resolved)
        _check_unmoved(plan, saved, count)
    return replace(plan, request=replace(plan.request, expiration_ms=request.expiration_ms))


def _check_unmoved(plan: Plan, saved: PlanLines, count: int) -> None:
    """Holds each partition as it is now against its line.

    Raises:
        RefusedError: it is another, or came or went.
    """
    present = {partition.source.directory.path: partition for partition in plan.partitions}
    for number, was in saved.partitions(count):
        path = was.get("path")
        partition = present.pop(path, None) if isinstance(path, str) else None
        if partition is None:
            raise RefusedError(f"the plan is stale: the partition of its line {number} is gone", path=str(path))
        now = _fingerprint(partition)
        if was.keys() != now.keys():
            raise saved.fault(number, f"the fields {', '.join(now)}", shown(", ".join(was)))
        for key in now:
            if was[key] != now[key]:
                what = f"{key} {_ROW}" if key in ("segments", "snapshots") else key
                raise RefusedError(f"the plan is stale: {what}: {_first_difference(was[key], now[key])}", path=path)
    if present:
        raise RefusedError("the plan is stale: this partition came since it was made", path=min(present))


def _first_difference(was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        key = next(key for key in (*was, *now) if was.get(key) != now.get(key))
        return f"{key}: {_first_difference(was.get(key, []), now.get(key, []))}"
    if isinstance(was, list) and isinstance(now, list):
        for old, new in zip(was, now, strict=False):
            if old != new:
                return f"was {old}, is {new}"
        return f"had {len(was)} entries, has {len(now)}"
    return f"was {was}, is {now}"
