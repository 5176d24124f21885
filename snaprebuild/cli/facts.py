"""The facts that a command reads once, kept with its context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from snaprebuild.snapshots.source.run_facts import RunFacts

__all__ = ["run_facts"]

_FACTS = "snaprebuild.facts"


def run_facts() -> RunFacts:
    """The facts that the command of this process reads once: ``server.properties``, and who holds each log directory."""
    from snaprebuild.snapshots.source.run_facts import RunFacts

    ctx = click.get_current_context(silent=True)
    facts: RunFacts = RunFacts() if ctx is None else ctx.meta.setdefault(_FACTS, RunFacts())
    return facts
