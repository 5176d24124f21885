"""Simulated clusters: the views of ``simulate isr`` and ``simulate metadata-log``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from snaprebuild.cli.printing import print_line, print_table, print_text
from snaprebuild.cli.render.log_start_chart import chart_line, duration_text, with_duration_texts
from snaprebuild.cli.value_text import size_text
from snaprebuild.cli.view import View
from snaprebuild.cluster.quorum.log_start import FollowerMode
from snaprebuild.documents import simulations as doc
from snaprebuild.findings import pluralize
from snaprebuild.simulations.isr.scenarios import PlayedScenario, SimulatedStep, scenario_findings, search_findings
from snaprebuild.simulations.isr.search import SearchResult
from snaprebuild.simulations.isr.steps import SimulatedLoss
from snaprebuild.simulations.metadata_log.scenario import MetadataLogScenario
from snaprebuild.simulations.metadata_log.simulation import NodeMove, PolicyRun

__all__ = ["CHART_COLUMNS", "IsrSimulationView", "StartSimulationView"]

# ---------------------------------------------------------------------------------------------------------------- simulate isr


class IsrSimulationView(View):
    """Scenarios that were played, or histories that were searched."""

    def __init__(
        self,
        min_insync_replicas: int,
        scenarios: Sequence[PlayedScenario] = (),
        searches: Sequence[SearchResult] = (),
        *,
        seed: int | None = None,
        is_overview: bool = False,
    ) -> None:
        super().__init__([*scenario_findings(scenarios), *search_findings(searches)])
        self._min_insync_replicas = min_insync_replicas
        self._scenarios = scenarios
        self._searches = searches
        self._seed = seed
        self._is_overview = is_overview

    def document(self) -> doc.SimulateIsr:
        return doc.SimulateIsr(
            min_insync_replicas=self._min_insync_replicas,
            scenarios=self._scenarios,
            seed=self._seed,
            searches=self._searches,
        )

    def print_table(self) -> None:
        if self._is_overview:
            _print_overview(self._scenarios)
            return
        for each in self._scenarios:
            _print_scenario(each)
        for result in self._searches:
            for text in _search_texts(result):
                print_text(text, "      ")
            print_line("")


def _print_overview(scenarios: Sequence[PlayedScenario]) -> None:
    outcomes: dict[str, list[str]] = {}
    titles = {each.scenario: each.title for each in scenarios}
    for each in scenarios:
        outcomes.setdefault(each.scenario, []).append(_outcome_text(each.losses))
    modes = list(dict.fromkeys(each.mode.value for each in scenarios))
    rows = [(name, *texts) for name, texts in outcomes.items()]
    print_table("Scenarios of KIP-903: what is lost", ("scenario", *modes), rows, all_rows=True)
    for name, title in titles.items():
        print_text(f" {name}: {title}", "     ")


def _outcome_text(losses: Sequence[SimulatedLoss]) -> str:
    if not losses:
        return "nothing"
    return "lost, accepted" if all(loss.is_accepted for loss in losses) else "LOST"


def _print_scenario(scenario: PlayedScenario) -> None:
    rows = [
        (
            each.number,
            each.step,
            ", ".join(map(str, each.isr)),
            "-" if each.leader < 0 else each.leader,
            "; ".join(each.effects) or "-",
        )
        for each in scenario.steps
    ]
    title = f"{scenario.scenario}, {scenario.mode}"
    print_table(title, ("", "step", "in sync", "leader", "what follows"), rows, right=("",), all_rows=True)
    print_text(_conclusion(scenario.losses))
    print_line("")
    _print_messages(scenario.steps)


def _print_messages(steps: Sequence[SimulatedStep]) -> None:
    """Prints the requests and responses of each step, below the step."""
    for step in steps:
        if not step.messages:
            continue
        print_text(f"Step {step.number}, {step.step}:")
        for each in step.messages:
            print_text(f"  {each.sender} to {each.receiver}: {each.name} version {each.version}")
            print_text(f"    {json.dumps(each.body)}", "    ")
        print_line("")


def _conclusion(losses: Sequence[SimulatedLoss]) -> str:
    if not losses:
        return "Nothing that was committed is lost."
    return " ".join(
        f"Lost: {len(loss.records)} committed, from offset {loss.first_offset} on, when broker {loss.leader} begins to lead "
        f"({loss.cause}{', which the KIP accepts' if loss.is_accepted else ''})."
        for loss in losses
    )


def _search_texts(result: SearchResult) -> Iterator[str]:
    lost = ", ".join(f"{count} by {cause}" for cause, count in result.losses.items() if count) or "none"
    joined = pluralize(result.stale_joins, "replica") + " joined for what an earlier process had fetched"
    histories = f"{pluralize(result.histories, 'history', 'histories')} of {pluralize(result.steps, 'step')}"
    yield f"{result.mode}: {histories}; losses: {lost}; {joined}"
    for each in result.shortest:
        accepted = " (accepted)" if each.loss.is_accepted else ""
        yield f"  shortest by {each.loss.cause}{accepted}, {pluralize(len(each.steps), 'step')}:"
        for step in each.steps:
            yield f"    {step}"


# ------------------------------------------------------------------------------------------------------- simulate metadata-log

CHART_COLUMNS = 60
"""Samples of the leader, one column each."""

MOVES_SHOWN = 12
"""Moves of the start that the table shows without ``-v``."""


class StartSimulationView(View):
    """A scenario of a metadata log under each policy."""

    def __init__(
        self,
        path: str,
        scenario: MetadataLogScenario,
        followers: FollowerMode,
        runs: Sequence[PolicyRun],
        *,
        everything: bool,
    ) -> None:
        super().__init__(())
        self._path = path
        self._scenario = scenario
        self._followers = followers
        self._runs = runs
        self._everything = everything

    def document(self) -> doc.SimulateMetadataLog:
        return doc.SimulateMetadataLog(
            scenario=self._path,
            title=self._scenario.title,
            duration_ms=self._scenario.duration_ms,
            followers=self._followers,
            policies=iter(self._runs),
        )

    def print_table(self) -> None:
        runs = self._runs
        rows = [
            (
                run.policy.value,
                run.move_count,
                run.starts["leader"],
                size_text(run.peak_bytes),
                size_text(run.end_bytes),
                sum(run.replicas_invalidated.values()) or "-",
                sum(run.listeners_reloaded.values()) or "-",
                run.follower_ahead or "-",
            )
            for run in runs
        ]
        columns = ("policy", "moves", "leader's start", "kept at most", "at the end", "invalidated", "reloaded", "follower ahead")
        records = pluralize(runs[0].end_offset, "record")
        title = f"{self._scenario.title or 'Scenario'}: {duration_text(self._scenario.duration_ms)}, {records}"
        print_table(title, columns, rows, right=columns[1:2] + columns[3:], drop=("moves", "at the end"))
        _print_charts(runs)
        moves = list(self._move_rows())
        if moves:
            names = ("after", "policy", "node", "start", "invalidated", "reloaded", "because")
            title = "First moves of the start, and some that cost somebody a reload"
            if self._everything:
                title = "Moves of the start"
            print_table(title, names, moves, drop=("invalidated",), all_rows=True)

    def _move_rows(self) -> Iterator[tuple[object, ...]]:
        for run in self._runs:
            moves = run.moves
            if not self._everything:
                costly = [each for each in run.moves[3:] if each.invalidated or each.reloaded]
                moves = (*run.moves[:3], *costly)[:MOVES_SHOWN]
            for move in moves:
                yield _move_row(run, move)


def _move_row(run: PolicyRun, move: NodeMove) -> tuple[object, ...]:
    invalidated = ", ".join(move.invalidated) or "-"
    reloaded = ", ".join(move.reloaded) or "-"
    reason = with_duration_texts(move.reason)
    return (duration_text(move.time_ms), run.policy.value, move.node, move.after, invalidated, reloaded, reason)


def _print_charts(runs: Sequence[PolicyRun]) -> None:
    """Prints offsets and bytes over time, a line for each policy."""
    end_offset = max(run.end_offset for run in runs)
    most = max(run.peak_bytes for run in runs)
    print_line(f"Offsets, up to {end_offset}\n")
    print_line(f" {'log end':<12}{chart_line([each.end_offset for each in runs[0].samples], end_offset)}")
    for run in runs:
        print_line(f" {run.policy.value:<12}{chart_line([each.start_offset for each in run.samples], end_offset)}")
    print_line(f"\nKept bytes, up to {size_text(most)}\n")
    for run in runs:
        print_line(f" {run.policy.value:<12}{chart_line([each.size_bytes for each in run.samples], most)}")
    print_line("")
