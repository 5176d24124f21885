"""The work of the verb ``simulate isr``."""

from __future__ import annotations

import os

from snaprebuild.cli.answer import given_words
from snaprebuild.cli.file_kinds import ISR_SCENARIO, check_file
from snaprebuild.cli.options.common import check_paths, quoted
from snaprebuild.cli.render.simulations import IsrSimulationView
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError
from snaprebuild.shell_words import shell_command
from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.scenarios import SCENARIOS, play_scenarios, read_scenario
from snaprebuild.simulations.isr.search import search_histories

__all__ = ["run_simulate_isr"]

FIRST_MODES = (Mode.NO_EPOCHS, Mode.KIP_903)
"""Played unless other modes are named."""


def run_simulate_isr(
    *,
    scenario: str | None,
    scenario_file: str | None,
    mode: list[Mode] | None,
    search: bool,
    min_insync: int,
    seed: int,
    runs: int,
    steps: int,
    show_messages: bool,
    out: OutputOptions,
) -> View:
    """Plays a scenario, all of them, or random histories."""
    if scenario_file in SCENARIOS and not os.path.lexists(scenario_file):
        raise UsageError(f"--scenario: expected a file; `simulate isr {scenario_file}` plays the scenario of this name")
    check_paths(None, scenario=scenario_file)
    out.begin(read={"scenario": scenario_file})
    if sum((scenario is not None, scenario_file is not None, search)) > 1:
        raise UsageError("SCENARIO, --scenario and --search exclude each other")
    if scenario is not None and scenario not in SCENARIOS:
        raise UsageError(f"SCENARIO: expected one of {', '.join(SCENARIOS)}, found {quoted(scenario)}")
    if show_messages and scenario is None and scenario_file is None:
        raise UsageError("--show-messages needs SCENARIO or --scenario: without them no steps are shown")
    if not search and (words := given_words("runs", "steps", "seed")):
        raise UsageError(f"`{shell_command(words)}` goes with --search, which is not given")
    if search:
        results = [
            search_histories(each, runs=runs, steps=steps, seed=seed, min_insync_replicas=min_insync)
            for each in dict.fromkeys(mode or FIRST_MODES)
        ]
        return IsrSimulationView(min_insync, searches=results, seed=seed)
    if scenario is None and scenario_file is None:
        overview = play_scenarios(SCENARIOS.values(), tuple(dict.fromkeys(mode or Mode)), min_insync, with_steps=False)
        return IsrSimulationView(min_insync, overview, is_overview=True)
    if scenario_file is not None:
        check_file(scenario_file, ISR_SCENARIO)
    selected = SCENARIOS[scenario] if scenario else read_scenario(scenario_file or "")
    modes = tuple(dict.fromkeys(mode or FIRST_MODES))
    return IsrSimulationView(min_insync, play_scenarios([selected], modes, min_insync, with_messages=show_messages))
