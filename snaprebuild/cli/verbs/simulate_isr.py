"""The verb ``simulate isr``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import WholeNumber, quoted
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.simulations.isr import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from snaprebuild.documents import simulations as doc
    from snaprebuild.simulations.isr.scenarios import Played, Scene
    from snaprebuild.simulations.isr.search import SearchResult
    from snaprebuild.simulations.isr.simulator import Cluster
    from snaprebuild.simulations.isr.steps import Loss

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
        typer.Option("--scenario", metavar="FILE", help="Steps of your own, one per line. Default: none."),
    ] = None,
    mode: Annotated[
        list[Mode] | None,
        typer.Option(
            "--epoch-mode",
            show_default=False,
            help="Who sends which broker epoch: no-epochs (before KIP-903), kip-903, or the rejected alternatives "
            "epochs-from-metadata and bump-leader-epochs; repeatable. Default: the first two; all four for the overview.",
        ),
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Search random histories for losses, and show the shortest. Default: no.")
    ] = False,
    min_insync: Annotated[
        int,
        typer.Option(
            "--min-insync",
            metavar="N",
            click_type=WholeNumber(1, 3),
            show_default=False,
            help="min.insync.replicas. Default: 1.",
        ),
    ] = 1,
    seed: Annotated[
        int,
        typer.Option(
            "--random-seed",
            metavar="N",
            click_type=WholeNumber(0, 2**63 - 1),
            show_default=False,
            help="Random seed of --search. Default: 1.",
        ),
    ] = SEED,
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            metavar="N",
            click_type=WholeNumber(1, RUNS_MAX),
            show_default=False,
            help="Histories of --search. Default: 3000.",
        ),
    ] = RUNS,
    steps: Annotated[
        int,
        typer.Option(
            "--steps",
            metavar="N",
            click_type=WholeNumber(1, STEPS_MAX),
            show_default=False,
            help="Steps of each history of --search. Default: 60.",
        ),
    ] = STEPS,
    show_messages: Annotated[
        bool,
        typer.Option(
            "--show-messages",
            help="Print the AlterPartition and Fetch requests and responses of each step in Kafka's JSON. Default: no.",
        ),
    ] = False,
    out: OutputOptions,
) -> Result:
    """Reads only: simulates which replicas are in sync and what is lost, with and without broker epochs (KIP-903).

    SCENARIO is the name of a bundled scenario: its steps are shown one by one. Without SCENARIO, --scenario and --search, all scenarios
    are listed with their results. Three brokers have one partition, and broker 1 leads. Only the FILE of --scenario is read. Exit code
    1 if a committed record is lost, except for losses that KIP-903 accepts.
    """
    from snaprebuild.errors import UsageError
    from snaprebuild.simulations.isr.scenarios import SCENARIOS, play_scenarios, played_findings, read_scenario, search_findings
    from snaprebuild.simulations.isr.search import search as search_for

    out.begin(scenario=scenario_file)
    if sum((scenario is not None, scenario_file is not None, search)) > 1:
        raise UsageError("SCENARIO, --scenario and --search exclude each other")
    if scenario is not None and scenario not in SCENARIOS:
        raise UsageError(f"SCENARIO: expected one of {', '.join(SCENARIOS)}, found {quoted(scenario)}")
    if show_messages and scenario is None and scenario_file is None:
        raise UsageError("--show-messages needs SCENARIO or --scenario: without them no steps are shown")
    first_two = (Mode.NO_EPOCHS, Mode.KIP_903)
    is_overview = scenario is None and scenario_file is None and not search
    modes = tuple(dict.fromkeys(mode or (Mode if is_overview else first_two)))
    if search:
        scenarios = []
    elif is_overview:
        scenarios = list(SCENARIOS.values())
    else:
        scenarios = [SCENARIOS[scenario] if scenario else read_scenario(scenario_file or "")]
    played = play_scenarios(scenarios, modes, min_insync, with_messages=show_messages)
    found = (
        [search_for(each, runs=runs, steps=steps, seed=seed, min_insync_replicas=min_insync) for each in modes] if search else []
    )
    findings = [*played_findings(played, of_steps=not is_overview), *search_findings(found)]
    return Result(
        lambda: _document(played, found, min_insync=min_insync, seed=seed if search else None, scenes=not is_overview),
        findings,
        lambda: _print_overview(played) if is_overview else _print(played, found),
    )


# ---------------------------------------------------------------------------------------------------------------- JSON


def _document(
    played: Sequence[Played], found: Sequence[SearchResult], *, min_insync: int, seed: int | None, scenes: bool
) -> doc.SimulateIsr:
    from snaprebuild.documents import simulations as doc

    return doc.SimulateIsr(
        min_insync_replicas=min_insync,
        scenarios=[_scenario(each, scenes=scenes) for each in played],
        seed=seed,
        searches=[_search(each) for each in found],
    )


def _scenario(played: Played, *, scenes: bool) -> doc.Scenario:
    from snaprebuild.documents import simulations as doc

    return doc.Scenario(
        scenario=played.scenario.name,
        title=played.scenario.title,
        mode=played.cluster.mode.value,
        losses=[_loss(each) for each in played.cluster.losses],
        stale_joins=played.cluster.stale_joins,
        steps=[_step(each) for each in played.scenes] if scenes else [],
    )


def _loss(loss: Loss) -> doc.SimulatedLoss:
    from snaprebuild.documents import simulations as doc

    return doc.SimulatedLoss(
        leader=loss.leader,
        leader_epoch=loss.leader_epoch,
        first_offset=loss.first_offset,
        records=loss.records,
        cause=loss.cause.value,
        is_accepted=loss.is_accepted,
    )


def _step(scene: Scene) -> doc.SimulatedStep:
    from snaprebuild.documents import simulations as doc

    partition = scene.view.partition
    return doc.SimulatedStep(
        number=scene.number,
        step=str(scene.step),
        happened=scene.happened,
        text=scene.reported,
        isr=partition.isr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        committed=scene.view.committed,
        held=scene.view.held,
        brokers=[
            doc.SimulatedBroker(
                broker=each.broker,
                is_running=each.is_running,
                epoch=each.epoch,
                fenced=each.fenced,
                in_controlled_shutdown=each.in_controlled_shutdown,
                log_end_offset=each.log_end,
                high_watermark=each.high_watermark,
                leads=each.leads,
            )
            for each in scene.view.replicas
        ],
        messages=[
            doc.SimulatedMessage(
                name=each.kind.value,
                version=each.version,
                sender=each.sender,
                receiver=each.receiver,
                body=each.to_json(),
            )
            for each in scene.messages
        ],
    )


def _search(found: SearchResult) -> doc.SearchResult:
    from snaprebuild.documents import simulations as doc

    return doc.SearchResult(
        mode=found.mode.value,
        histories=found.histories,
        steps=found.steps,
        stale_joins=found.stale_joins,
        losses={cause.value: count for cause, count in found.losses.items()},
        found=[
            doc.ShortestHistory(run=each.run, length=each.length, steps=[str(step) for step in each.steps], loss=_loss(each.loss))
            for each in found.found.values()
        ],
    )


# ---------------------------------------------------------------------------------------------------------------- text


def _print_overview(played: Sequence[Played]) -> None:
    from snaprebuild.cli.result import print_table, print_text

    results: dict[str, list[str]] = {}
    titles = {each.scenario.name: each.scenario.title for each in played}
    for each in played:
        results.setdefault(each.scenario.name, []).append(_outcome(each.cluster))
    modes = list(dict.fromkeys(each.cluster.mode.value for each in played))
    rows = [(name, *outcomes) for name, outcomes in results.items()]
    print_table("Scenarios of KIP-903: what is lost", ("scenario", *modes), rows, all_rows=True)
    for name, title in titles.items():
        print_text(f" {name}: {title}", "     ")


def _outcome(cluster: Cluster) -> str:
    if not cluster.losses:
        return "nothing"
    return "LOST" if any(not loss.is_accepted for loss in cluster.losses) else "lost, accepted"


def _print(played: Sequence[Played], found: Sequence[SearchResult]) -> None:
    from snaprebuild.cli.result import print_line, print_table, print_text

    for each in played:
        rows = [
            (scene.number, scene.step, ", ".join(map(str, scene.view.partition.isr)), _leader(scene.view.partition.leader), text)
            for scene in each.scenes
            for text in ("; ".join(scene.reported) or "-",)
        ]
        title = f"{each.scenario.name}, {each.cluster.mode}"
        print_table(title, ("", "step", "in sync", "leader", "what follows"), rows, right=("",), all_rows=True)
        print_text(_conclusion(each.cluster.losses))
        print_line("")
        _print_messages(each.scenes)
    for result in found:
        for text in _search_texts(result):
            print_text(text, "      ")
        print_line("")


def _print_messages(scenes: Sequence[Scene]) -> None:
    """The requests and responses of each step, below the step."""
    import json

    from snaprebuild.cli.result import print_line, print_text

    for scene in scenes:
        if not scene.messages:
            continue
        print_text(f"Step {scene.number}, {scene.step}:")
        for each in scene.messages:
            print_text(f"  {each.sender} to {each.receiver}: {each.kind} version {each.version}")
            print_text(f"    {json.dumps(each.to_json())}", "    ")
        print_line("")


def _leader(leader: int) -> str:
    return "-" if leader < 0 else str(leader)


def _conclusion(losses: Sequence[Loss]) -> str:
    if not losses:
        return "Nothing that was committed is lost."
    return " ".join(
        f"Lost: {len(loss.records)} committed, from offset {loss.first_offset} on, when broker {loss.leader} begins to lead "
        f"({loss.cause}{', which the KIP accepts' if loss.is_accepted else ''})."
        for loss in losses
    )


def _search_texts(result: SearchResult) -> Iterator[str]:
    from snaprebuild.findings import pluralize

    lost = ", ".join(f"{count} by {cause}" for cause, count in result.losses.items() if count) or "none"
    joined = pluralize(result.stale_joins, "replica") + " joined for what an earlier process had fetched"
    yield f"{result.mode}: {result.histories} histories of {result.steps} steps; losses: {lost}; {joined}"
    for cause, each in result.found.items():
        yield f"  shortest by {cause}{' (accepted)' if each.loss.is_accepted else ''}, {pluralize(len(each.steps), 'step')}:"
        for step in each.steps:
            yield f"    {step}"
