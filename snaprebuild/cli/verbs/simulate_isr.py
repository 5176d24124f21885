"""The verb ``simulate isr``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import WholeNumber
from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.simulations.isr import Mode

__all__ = ["simulate_isr"]

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
    from snaprebuild.cli.runs.simulate_isr import run_simulate_isr

    return run_simulate_isr(
        scenario=scenario,
        scenario_file=scenario_file,
        mode=mode,
        search=search,
        min_insync=min_insync,
        seed=seed,
        runs=runs,
        steps=steps,
        show_messages=show_messages,
        out=out,
    )
