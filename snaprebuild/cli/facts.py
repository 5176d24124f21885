"""What a command has once, kept with its context: the facts that it reads, and how it reaches object stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import RunFacts
    from snaprebuild.storage.store import S3Settings

__all__ = ["run_facts", "stores_of_command"]

_FACTS = "snaprebuild.facts"
_STORES = "snaprebuild.stores"


def run_facts() -> RunFacts:
    """The facts that the command of this process reads once: ``server.properties``, and who holds each log directory."""
    from snaprebuild.snapshots.run import RunFacts

    ctx = click.get_current_context(silent=True)
    facts: RunFacts = RunFacts() if ctx is None else ctx.meta.setdefault(_FACTS, RunFacts())
    return facts


def stores_of_command(make: Callable[[], S3Settings]) -> S3Settings:
    """How the command of this process reaches object stores, made at the first call: its limits count for all that it reads."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return make()
    if _STORES not in ctx.meta:
        ctx.meta[_STORES] = make()
    stores: S3Settings = ctx.meta[_STORES]
    return stores
