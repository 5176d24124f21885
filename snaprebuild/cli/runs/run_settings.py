"""The ``Run`` of a verb: how its command reaches object stores, the facts that it reads once, and when producers expire."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from snaprebuild.cli.options.common import S3Options, as_of_ms, check_paths
from snaprebuild.errors import UsageError
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.run import Run, RunFacts
from snaprebuild.storage.store import S3Settings, absolute, check_settings, is_object

if TYPE_CHECKING:  # a verb that reads no segments loads no engine
    from snaprebuild.snapshots.engine.partition_task import Engine

__all__ = [
    "clock_at",
    "locations_of",
    "run_facts",
    "run_of",
    "stores_of",
]

_STORES = "snaprebuild.stores"
_FACTS = "snaprebuild.facts"


def stores_of(s3: S3Options, region: str | None = None, broker_properties: str | None = None) -> S3Settings:
    """How object stores are reached in this run, made at the first call: its limits count for all that the command reads.

    Args:
        s3: the options.
        region: of the bucket; None for that of the SDK.
        broker_properties: configuration of a broker whose access key is used; None for the usual chain of the SDK.

    Raises:
        UsageError: the endpoint is no URL, or holds what documents would show: a user, a password, a query; or no one would pay.
    """
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return _settings_of(s3, region, broker_properties)
    if _STORES not in ctx.meta:
        ctx.meta[_STORES] = _settings_of(s3, region, broker_properties)
    stores: S3Settings = ctx.meta[_STORES]
    return stores


def _settings_of(s3: S3Options, region: str | None, broker_properties: str | None) -> S3Settings:
    check_paths(None, s3_sse_c_key_file=s3.s3_sse_c_key_file)
    key_file = s3.s3_sse_c_key_file
    settings = S3Settings(
        endpoint_url=s3.s3_endpoint_url,
        path_style=s3.s3_path_style,
        profile=s3.s3_profile,
        anonymous=s3.s3_anonymous,
        requester_pays=s3.s3_requester_pays,
        sse_c_key_file=None if key_file is None else os.path.abspath(key_file),
        max_requests=s3.max_requests,
        max_read_bytes=s3.max_read_bytes,
        run=secrets.token_hex(8),
        region=region,
        broker_properties=None if broker_properties is None else os.path.abspath(broker_properties),
    )
    check_settings(settings)
    return settings


def locations_of(paths: list[str]) -> list[str]:
    """Files as they were typed, and objects by their location.

    Raises:
        UsageError: ``s3://`` names no object, or a path is a directory.
    """
    for path in paths:
        if not is_object(path) and os.path.isdir(path):
            raise UsageError("is a directory; name the files in it", path=path)
    return [absolute(path) if is_object(path) else path for path in paths]


def run_of(
    s3: S3Options | None = None,
    *,
    clock: Clock | None = None,
    jobs: int | None = None,
    engine: Engine | None = None,
    deadline: float | None = None,
) -> Run:
    """The run of a verb with the facts of its command.

    Args:
        s3: how object stores are reached; None for the settings of the environment.
        clock: when producers expire; None for now, by Kafka's default.
        jobs: value of ``--jobs``.
        engine: that reads; None for worker processes of this machine.
        deadline: a ``time.monotonic()`` after which nothing of a segment is read; None for none.

    Raises:
        UsageError: ``stores_of`` raises it.
    """
    run = Run(jobs=jobs, engine=engine, deadline=deadline, facts=run_facts())
    if s3 is not None:
        run = replace(run, stores=stores_of(s3))
    return run if clock is None else replace(run, clock=clock)


def clock_at(as_of: str | None, expiration_ms: int | None) -> Clock:
    """The moment of ``--as-of``, and an expiration, ms; None for Kafka's default.

    Raises:
        UsageError: ``--as-of`` is no moment.
    """
    return Clock(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS)


def run_facts() -> RunFacts:
    """The facts that the command of this process reads once: ``server.properties``, and who holds each log directory."""
    ctx = click.get_current_context(silent=True)
    facts: RunFacts = RunFacts() if ctx is None else ctx.meta.setdefault(_FACTS, RunFacts())
    return facts
