"""The work of the verb ``simulate metadata-log``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import METADATA_SCENARIO, check_file
from snaprebuild.cli.options.common import check_paths
from snaprebuild.cli.render.simulations import CHART_COLUMNS, StartSimulationView
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.quorum.log_start import FollowerMode, Policy
from snaprebuild.simulations.metadata_log.scenario import load_scenario
from snaprebuild.simulations.metadata_log.simulation import simulate_policies

__all__ = ["run_simulate_metadata_log"]


def run_simulate_metadata_log(
    *,
    scenario: str,
    policy: list[Policy] | None,
    followers: FollowerMode,
    out: OutputOptions,
) -> View:
    """Simulates each policy on a scenario."""
    check_paths([scenario])
    out.begin(read={"scenario": scenario})
    check_file(scenario, METADATA_SCENARIO)
    loaded = load_scenario(scenario)
    runs = simulate_policies(loaded, list(dict.fromkeys(policy or Policy)), followers, CHART_COLUMNS)
    return StartSimulationView(scenario, loaded, followers, runs, everything=out.everything)
