"""The verb ``simulate metadata-log``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import check_paths
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
    from snaprebuild.cli.file_kinds import METADATA_SCENARIO, check_file
    from snaprebuild.cli.render.simulations import CHART_COLUMNS, StartSimulationView
    from snaprebuild.simulations.metadata_log.scenario import load_scenario
    from snaprebuild.simulations.metadata_log.simulation import simulate_policies

    check_paths([scenario])
    check_file(scenario, METADATA_SCENARIO)
    out.begin(scenario=scenario)
    loaded = load_scenario(scenario)
    runs = simulate_policies(loaded, list(dict.fromkeys(policy or Policy)), followers, CHART_COLUMNS)
    return StartSimulationView(scenario, loaded, followers, runs, everything=out.everything)
