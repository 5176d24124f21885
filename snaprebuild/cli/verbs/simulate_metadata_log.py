"""The verb ``simulate metadata-log``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.cluster.quorum.log_start import FollowerMode, Policy

__all__ = ["Followers", "PolicyOption", "simulate_metadata_log"]

PolicyOption = Annotated[
    list[Policy] | None,
    option(
        "--policy",
        short="immediate, retention or kafka-14932; repeatable",
        default="all three",
    ),
]
Followers = Annotated[
    FollowerMode,
    option(
        "--followers",
        short="Start offset of a follower under kafka-14932",
        details="strict: its newest checkpoint that is not beyond the leader's start. literal: the leader's start.",
        default="strict",
    ),
]


@verb()
def simulate_metadata_log(
    *,
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO")],
    policy: PolicyOption = None,
    followers: Followers = FollowerMode.STRICT,
    out: OutputOptions,
) -> View:
    """Reads only: simulates how the start of a metadata log moves under each policy, and which readers must load a checkpoint.

    SCENARIO is a file in TOML: what is written, when nodes take checkpoints, how far each reader is (docs/reference/simulations.md).
    The policies are immediate (to each newer checkpoint at once), retention (what Kafka does), kafka-14932 (the heuristic of that issue).
    """
    from snaprebuild.cli.runs.simulate_metadata_log import run_simulate_metadata_log

    return run_simulate_metadata_log(
        scenario=scenario,
        policy=policy,
        followers=followers,
        out=out,
    )
