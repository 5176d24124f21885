"""The arguments of ``scan``, ``plan``, ``rebuild``, ``verify`` and ``audit``: each is checked in one place, and described by one request.

What the environment and the configuration file of the command say does not count here: a call means the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from formats.limits import INT32_MAX
from snaprebuild.argument_checks import (
    check_callable,
    check_flag,
    check_instance,
    check_jobs,
    check_moment,
    check_number,
    check_offset,
    check_one_of,
    check_partitions,
    check_path,
    check_paths,
    check_patterns,
    check_period,
    check_size,
    check_text,
    optional,
)
from snaprebuild.cli.file_kinds import SAVED_PLAN, check_directories, check_file
from snaprebuild.cli.options.kafka_release import release_of
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.reading import Impact, Load
from snaprebuild.cli.runs.sources import partition_named
from snaprebuild.errors import UsageError
from snaprebuild.library.call_engine import THIS_MACHINE, CallEngine
from snaprebuild.library.command_line import CommandLine
from snaprebuild.library.verb_result import PlanResult
from snaprebuild.snapshots.plan.plan_request import BOUNDARIES, REPLAY_STARTS, RebuildRequest
from snaprebuild.snapshots.run import Invocation, current_time_ms
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.store import S3Settings, check_settings
from snaprebuild.tier import AuditLevel

__all__ = [
    "Arguments",
    "checked_argument",
    "checked_arguments",
    "checked_values",
    "command_of",
    "given_with_a_plan",
    "moment_of",
    "reading",
    "request_of",
    "selection_of",
]

Arguments = Mapping[str, Any]
"""The arguments of a call by name, checked, each in one form."""


def checked_argument(name: str, value: Any) -> Any:
    """One argument, checked.

    Raises:
        UsageError: the value makes no sense.
    """
    return CHECKS[name](name, value)


def checked_arguments(arguments: Arguments) -> Arguments:
    """The arguments of a call, checked. Iterators are read once.

    Args:
        arguments: all parameters of the function: its ``locals()`` at its beginning.

    Raises:
        UsageError: a value makes no sense.
        ReadFailedError: a file cannot be read.
    """
    given = checked_values(arguments)
    offset_from = given.get("offset_from")
    offset_to = given.get("offset_to")
    if offset_from is not None and offset_to is not None and offset_from > offset_to:
        raise UsageError(f"expected offset_from <= offset_to, found {offset_from} and {offset_to}")
    check_directories(given["source"], server_properties=given["server_properties"], out=given.get("out"))
    check_metadata(given.get("metadata"))
    return given


def checked_values(arguments: Arguments) -> Arguments:
    """The arguments of a call, each checked alone. Iterators are read once.

    Args:
        arguments: all parameters of the function: its ``locals()`` at its beginning.

    Raises:
        UsageError: a value makes no sense.
        ReadFailedError: a file cannot be read.
    """
    return {name: checked_argument(name, value) for name, value in arguments.items()}


def selection_of(given: Arguments) -> Selection:
    """The selection that the arguments ask for."""
    return Selection(
        given["topics"],
        frozenset(given["partitions"]),
        given.get("offset_from"),
        given.get("offset_to"),
        frozenset(given["topic_partitions"]),
    )


def request_of(given: Arguments) -> RebuildRequest:
    """The request that the arguments make: each one that has the name of a member is that member.

    Raises:
        UsageError: they do not go together.
    """
    members = {name: given[name] for name in RebuildRequest.__struct_fields__ if name in given}
    request = RebuildRequest(**{**members, "paths": given["source"], "as_of_ms": moment_of(given)})
    return request.checked()


@contextmanager
def reading(invocation: Invocation, given: Arguments) -> Iterator[None]:
    """Inside the block the call reads with its ``impact`` and ``max_read_rate``, and what it records is of this invocation."""
    impact = given["impact"]
    load = Load(impact=None if impact is None else Impact(impact), max_read_rate=given["max_read_rate"])
    with invocation.active(), load.limits():
        yield


def moment_of(given: Arguments) -> int:
    """The moment for expiry, ms since 1970: now where none is given."""
    moment_ms: int | None = given["as_of_ms"]
    return current_time_ms() if moment_ms is None else moment_ms


def command_of(verb: str, given: Arguments, engine: CallEngine) -> CommandLine:
    """The command line that does what a call with these arguments does."""
    others = {name: value for name, value in given.items() if name not in ("source", "store", "engine", "progress")}
    if isinstance(others.get("plan"), PlanResult):
        del others["plan"]
    paths = given["source"] if "source" in given else (given["store"],)
    return CommandLine.of(verb, paths, engine_words=engine.words, **others)


def given_with_a_plan(given: Arguments, defaults: Arguments) -> list[str]:
    """The names of arguments of a request that are no defaults, in a call that has a plan.

    Args:
        given: of the call.
        defaults: of the function, by name.
    """
    of_request = [*RebuildRequest.__struct_fields__, "source"]
    usual = {name: checked_argument(name, value) for name, value in {"source": (), **defaults}.items()}
    return [name for name in of_request if name in given and given[name] != usual[name]]


def _check_release(name: str, value: Any) -> str:
    text = check_text(name, value)
    release_of(text)
    return text


def _check_names(name: str, value: Any) -> tuple[str, ...]:
    names = check_patterns(name, value)
    for each in names:
        partition_named(each)
    return names


def _check_key_prefix(name: str, value: Any) -> str:
    return check_text(name, value) if value != "" else ""


def _check_stores(name: str, value: Any) -> S3Settings:
    settings = check_instance(S3Settings)(name, value)
    check_settings(settings)
    return settings


def _check_plan(name: str, value: Any) -> PlanResult | str:
    if isinstance(value, PlanResult):
        return value
    path = check_path(name, value)
    check_file(path, SAVED_PLAN)
    return path


def _check_engine(name: str, value: Any) -> CallEngine:
    if value is None:
        return THIS_MACHINE
    members = ("cache", "words", "planning", "reading", "keep_effects")
    if not all(hasattr(value, each) for each in members):
        raise UsageError(f"{name}: expected a CallEngine; for Spark call the functions of snaprebuild.spark.notebook")
    engine: CallEngine = value
    return engine


def _check_tasks(name: str, value: Any) -> int:
    return check_number(name, value, 1, INT32_MAX)


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "source": check_paths,
    "store": check_path,
    "plan": optional(_check_plan),
    "server_properties": optional(check_path),
    "topics": check_patterns,
    "partitions": check_partitions,
    "topic_partitions": _check_names,
    "offset_from": optional(check_offset),
    "offset_to": optional(check_offset),
    "out": optional(check_path),
    "broker_running": check_flag,
    "boundaries": check_one_of(BOUNDARIES),
    "replay_from": check_one_of(REPLAY_STARTS),
    "set_aside": check_flag,
    "check_crc": check_flag,
    "drop_expired": check_flag,
    "allow_unproven": check_flag,
    "accept_topic_id_zero": check_flag,
    "kafka_release": optional(_check_release),
    "as_of_ms": optional(check_moment),
    "expiration_ms": optional(check_period),
    "metadata": optional(check_path),
    "bootstrap_server": optional(check_text),
    "command_config": optional(check_path),
    "ledger": optional(check_path),
    "s3": _check_stores,
    "dry_run": check_flag,
    "receipt": optional(check_path),
    "results": optional(check_path),
    "jobs": optional(check_jobs),
    "progress": optional(check_callable),
    "impact": optional(check_one_of([each.value for each in Impact])),
    "max_read_rate": optional(check_size),
    "engine": _check_engine,
    "level": check_one_of([each.value for each in AuditLevel]),
    "metadata_log": check_paths,
    "key_prefix": _check_key_prefix,
    "private_key": check_paths,
    "local_log_start": check_patterns,
    "log_dir": check_paths,
    "tasks": optional(_check_tasks),
    "cache": optional(check_path),
}
"""The check of each argument. ``tasks`` and ``cache`` are those of the functions for a Spark session."""
