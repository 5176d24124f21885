"""The verb ``simulate isr``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import WholeNumber, check_paths, quoted
from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError
from snaprebuild.simulations.isr import Mode

__all__ = ["simulate_isr"]

FIRST_MODES = (Mode.NO_EPOCHS, Mode.KIP_903)
"""Played unless other modes are named."""

SEED = 1
RUNS = 3000
STEPS = 60
RUNS_MAX = 10_000_000
STEPS_MAX = 10_000


@verb()
def simulate_isr(
    *,
    scenario: Annotated[str | None, typer.Argument(metavar="[SCENARIO]")] = None,
    scenario_file: Annotated[
        str | None,
        option(
            "--scenario",
            metavar="FILE",
            short="Steps of your own, one per line",
            default="none",
        ),
    ] = None,
    mode: Annotated[
        list[Mode] | None,
        option(
            "--epoch-mode",
            short="Who sends which broker epoch: no-epochs (before KIP-903), kip-903, or the rejected alternatives "
            "epochs-from-metadata and bump-leader-epochs; repeatable",
            default="the first two; all four for the overview",
        ),
    ] = None,
    search: Annotated[
        bool,
        option(
            "--search",
            short="Search random histories for losses, and show the shortest",
            default="no",
        ),
    ] = False,
    min_insync: Annotated[
        int,
        option(
            "--min-insync",
            metavar="N",
            click_type=WholeNumber(1, 3),
            short="min.insync.replicas",
            default="1",
        ),
    ] = 1,
    seed: Annotated[
        int,
        option(
            "--random-seed",
            metavar="N",
            click_type=WholeNumber(0, 2**63 - 1),
            short="Random seed of --search",
            default="1",
        ),
    ] = SEED,
    runs: Annotated[
        int,
        option(
            "--runs",
            metavar="N",
            click_type=WholeNumber(1, RUNS_MAX),
            short="Histories of --search",
            default="3000",
        ),
    ] = RUNS,
    steps: Annotated[
        int,
        option(
            "--steps",
            metavar="N",
            click_type=WholeNumber(1, STEPS_MAX),
            short="Steps of each history of --search",
            default="60",
        ),
    ] = STEPS,
    show_messages: Annotated[
        bool,
        option(
            "--show-messages",
            short="Print the AlterPartition and Fetch requests and responses of each step in Kafka's JSON",
            default="no",
        ),
    ] = False,
    out: OutputOptions,
) -> View:
    """Reads only: simulates which replicas are in sync and what is lost, with and without broker epochs (KIP-903).

    SCENARIO is the name of a bundled scenario: its steps are shown one by one. Without SCENARIO, --scenario and --search, all scenarios
    are listed with their results. Three brokers have one partition, and broker 1 leads. Only the FILE of --scenario is read. Exit code
    1 if a committed record is lost, except for losses that KIP-903 accepts.
    """
    from snaprebuild.cli.file_kinds import ISR_SCENARIO as SCENARIO_FILE
    from snaprebuild.cli.file_kinds import check_file
    from snaprebuild.cli.render.simulations import IsrSimulationView
    from snaprebuild.simulations.isr.scenarios import SCENARIOS, play_scenarios, read_scenario
    from snaprebuild.simulations.isr.search import search_histories

    check_paths(None, scenario=scenario_file)
    out.begin(scenario=scenario_file)
    if sum((scenario is not None, scenario_file is not None, search)) > 1:
        raise UsageError("SCENARIO, --scenario and --search exclude each other")
    if scenario is not None and scenario not in SCENARIOS:
        raise UsageError(f"SCENARIO: expected one of {', '.join(SCENARIOS)}, found {quoted(scenario)}")
    if show_messages and scenario is None and scenario_file is None:
        raise UsageError("--show-messages needs SCENARIO or --scenario: without them no steps are shown")
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
        check_file(scenario_file, SCENARIO_FILE)
    selected = SCENARIOS[scenario] if scenario else read_scenario(scenario_file or "")
    modes = tuple(dict.fromkeys(mode or FIRST_MODES))
    return IsrSimulationView(min_insync, play_scenarios([selected], modes, min_insync, with_messages=show_messages))
