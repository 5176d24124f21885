"""A plan as a file: what was asked for, and the identity of every input, so that it is refused when the disk has moved on."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any, get_args, get_origin, get_type_hints

from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.operations.plan import PartitionPlan, Plan, Request, make_plan
from snaprebuild.operations.replay_partition import ReplayFrom
from snaprebuild.storage.log_dir import read_small_file
from snaprebuild.storage.partition_dir import FileIdentity
from snaprebuild.storage.small_file import write_text_file

__all__ = ["load_plan", "partition_fingerprint", "save_plan"]

PLAN_VERSION = 1


def partition_fingerprint(plan: PartitionPlan) -> dict[str, Any]:
    """Everything that must not change between planning and doing."""
    directory = plan.source.directory
    return {
        "path": directory.path,
        "target": plan.target,
        "segments": [[segment.log.name, *_identity(segment.log.identity)] for segment in directory.segments],
        "snapshots": [[listed.name, *_identity(listed.identity)] for _, listed in directory.snapshots],
        "boundaries": [[boundary.offset, boundary.is_log_end, boundary.exists] for boundary in plan.boundaries],
        "left_out": [list(pair) for pair in plan.left_out],
        "log_end_offset": plan.log_end_offset,
        "log_start_offset": plan.source.log_start_offset,
        "clean_shutdown": plan.source.log_dir.was_shut_down_cleanly,
        "recovery_point": plan.source.recovery_point,
        "replay_index": plan.replay_index,
    }


def _identity(identity: FileIdentity) -> tuple[int, int, int]:
    return identity.size_bytes, identity.mtime_ns, identity.inode


def save_plan(plan: Plan, path: str) -> None:
    """Writes a plan with the identity of its inputs.

    Raises:
        WriteFailedError: it cannot be written.
    """
    saved = {
        "schema": f"snaprebuild.saved-plan/{PLAN_VERSION}",
        "request": asdict(plan.request),
        "expiration_ms": plan.clock.expiration_ms,
        "partitions": [partition_fingerprint(partition) for partition in plan.partitions],
    }
    write_text_file(path, json.dumps(saved, indent=1) + "\n")


def load_plan(path: str) -> Plan:
    """Loads a plan and makes it again from the disk as it is now.

    Raises:
        UsageError: no such file, or no plan.
        RefusedError: the disk has moved on; the first difference is named.
    """
    data = read_small_file(path)
    if data is None:
        raise UsageError("does not exist", path=path)
    try:
        saved = json.loads(data)
        if saved["schema"] != f"snaprebuild.saved-plan/{PLAN_VERSION}":
            raise UsageError(f"is a plan of another version: {saved['schema']}", path=path)
        request = _request_of(saved["request"])
        resolved = _request_of({**saved["request"], "expiration_ms": saved["expiration_ms"]})
        expected = {partition["path"]: dict(partition) for partition in saved["partitions"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError("is no saved plan, or was damaged or edited", path=path) from error
    plan = make_plan(resolved)
    plan = replace(plan, request=replace(plan.request, expiration_ms=request.expiration_ms))
    present = {partition.source.directory.path: partition_fingerprint(partition) for partition in plan.partitions}
    if present.keys() != expected.keys():
        changed = sorted(present.keys() ^ expected.keys())[0]
        raise RefusedError("the plan is stale: this partition came or went since it was made", path=changed)
    for directory, was in expected.items():
        now = json.loads(json.dumps(present[directory]))
        for key, value in was.items():
            if now.get(key) != value:
                raise RefusedError(f"the plan is stale: {key} {_first_difference(value, now.get(key))}", path=directory)
    return plan


def _request_of(saved: dict[str, Any]) -> Request:
    """A request from its JSON form. Raises TypeError or ValueError where a value is not of its kind: the file may have been edited."""
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in saved.items()}
    request = Request(**fields)
    for key, kind in get_type_hints(Request).items():
        value = getattr(request, key)
        if not _is_of(value, kind):
            raise TypeError(f"{key}: {value!r}")
    if request.boundaries not in ("missing", "all"):
        raise ValueError(f"boundaries: {request.boundaries!r}")
    ReplayFrom(request.replay_from)
    return request


def _is_of(value: object, kind: Any) -> bool:
    if get_origin(kind) is tuple:
        return type(value) is tuple and all(_is_of(each, get_args(kind)[0]) for each in value)
    if get_args(kind):
        return any(_is_of(value, each) for each in get_args(kind))
    if type(value) is int:
        return kind is int and 0 <= value < 2**63
    return type(value) is kind and (type(value) is not str or "\0" not in value)


def _first_difference(was: Any, now: Any) -> str:
    if isinstance(was, list) and isinstance(now, list):
        for old, new in zip(was, now, strict=False):
            if old != new:
                return f"was {old}, is {new}"
        return f"had {len(was)} entries, has {len(now)}"
    return f"was {was}, is {now}"
