"""The verb ``simulate metadata-log``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.cluster.quorum.log_start import FollowerMode, Policy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from snaprebuild.cluster.quorum.log_start import Advance, LogStart
    from snaprebuild.documents import simulations as doc
    from snaprebuild.simulations.metadata_log.scenario import Scenario
    from snaprebuild.simulations.metadata_log.simulation import PolicyRun, StartMove

__all__ = ["Followers", "PolicyOption", "offset_and_epoch", "simulate_metadata_log", "start_move"]

SAMPLES = 60
"""Columns of the chart."""

STEPS_SHOWN = 12
"""Moves of the start that the table shows without ``-v``."""

PolicyOption = Annotated[
    list[Policy] | None,
    typer.Option("--policy", show_default=False, help="immediate, retention or kafka-14932; repeatable. Default: all three."),
]
Followers = Annotated[
    FollowerMode,
    typer.Option(
        "--followers",
        show_default=False,
        help="Start offset of a follower under kafka-14932. strict: its newest checkpoint that is not beyond the leader's "
        "start. literal: the leader's start. Default: strict.",
    ),
]


@verb()
def simulate_metadata_log(
    *,
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO")],
    policy: PolicyOption = None,
    followers: Followers = FollowerMode.STRICT,
    out: OutputOptions,
) -> Result:
    """Reads only: simulates how the start of a metadata log moves under each policy, and which readers must load a checkpoint.

    SCENARIO is a file in TOML: what is written, when nodes take checkpoints, how far each reader is (docs/reference/simulations.md).
    The policies are immediate (to each newer checkpoint at once), retention (what Kafka does), kafka-14932 (the heuristic of that issue).
    """
    from snaprebuild.simulations.metadata_log.scenario import load_scenario
    from snaprebuild.simulations.metadata_log.simulation import kraft_simulate as play

    out.begin(scenario=scenario)
    loaded = load_scenario(scenario)
    runs = play(loaded, list(dict.fromkeys(policy or Policy)), followers, SAMPLES)
    return Result(
        lambda: _document(scenario, loaded, followers, runs),
        (),
        lambda: _print(loaded, runs, everything=out.everything),
    )


def offset_and_epoch(start: LogStart) -> doc.OffsetAndEpoch:
    """An offset and the epoch of the record before it."""
    from snaprebuild.documents import simulations as doc

    return doc.OffsetAndEpoch(offset=start.offset, epoch=start.epoch)


def start_move(advance: Advance) -> doc.StartMove:
    """A move of a start."""
    from snaprebuild.documents import simulations as doc

    return doc.StartMove(**_move(advance))


def _move(advance: Advance) -> dict[str, Any]:
    return {
        "before": offset_and_epoch(advance.before),
        "after": offset_and_epoch(advance.after),
        "cause": advance.cause.value,
        "reason": advance.reason,
        "deleted_segments": advance.deleted.segments,
        "deleted_checkpoints": [offset_and_epoch(each) for each in advance.deleted.checkpoints],
        "deleted_bytes": advance.deleted.size_bytes,
    }


def _document(path: str, scenario: Scenario, mode: FollowerMode, runs: Sequence[PolicyRun]) -> doc.SimulateMetadataLog:
    from snaprebuild.documents import simulations as doc

    return doc.SimulateMetadataLog(
        scenario=path,
        title=scenario.title,
        duration_ms=scenario.duration_ms,
        followers=mode.value,
        policies=(_policy_run(run) for run in runs),
    )


def _policy_run(run: PolicyRun) -> doc.PolicyRun:
    from snaprebuild.documents import simulations as doc

    return doc.PolicyRun(
        policy=run.policy.value,
        end_offset=run.end_offset,
        starts={name: offset_and_epoch(start) for name, start in run.starts.items()},
        moves=run.steps_count,
        checkpoints=run.checkpoints,
        peak_bytes=run.peak_bytes,
        end_bytes=run.end_bytes,
        replicas_invalidated=run.invalidated,
        replicas_loaded=run.loaded,
        listeners_reloaded=run.reloaded,
        follower_ahead=run.ahead,
        events=run.events,
        samples=[
            doc.Sample(time_ms=each.time_ms, start_offset=each.start_offset, end_offset=each.end_offset, size_bytes=each.size_bytes)
            for each in run.samples
        ],
        steps=[
            doc.NodeMove(
                **_move(step.advance), time_ms=step.time_ms, node=step.node, invalidated=step.invalidated, reloaded=step.reloaded
            )
            for step in run.steps
        ],
    )


def _print(scenario: Scenario, runs: Sequence[PolicyRun], *, everything: bool) -> None:
    from snaprebuild.cli.render.log_start_chart import chart_line, duration_text
    from snaprebuild.cli.result import print_line, print_table, size_text

    rows = [
        (
            run.policy.value,
            run.steps_count,
            run.starts["leader"],
            size_text(run.peak_bytes),
            size_text(run.end_bytes),
            sum(run.invalidated.values()) or "-",
            sum(run.reloaded.values()) or "-",
            run.ahead or "-",
        )
        for run in runs
    ]
    columns = ("policy", "moves", "leader's start", "kept at most", "at the end", "invalidated", "reloaded", "follower ahead")
    title = f"{scenario.title or 'Scenario'}: {duration_text(scenario.duration_ms)}, {runs[0].end_offset} records"
    print_table(title, columns, rows, right=columns[1:2] + columns[3:], drop=("moves", "at the end"))
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
    listed = list(_listed(runs, everything))
    names = ("after", "policy", "node", "start", "invalidated", "reloaded", "because")
    if listed:
        what = "Moves of the start" if everything else "First moves of the start, and some that cost somebody a reload"
        print_table(what, names, listed, drop=("invalidated",), all_rows=True)


def _listed(runs: Sequence[PolicyRun], everything: bool) -> Iterator[tuple[object, ...]]:
    from snaprebuild.cli.render.log_start_chart import duration_text

    for run in runs:
        costly = [step for step in run.steps if step.invalidated or step.reloaded]
        shown = run.steps if everything else [*run.steps[:3], *(each for each in costly if each not in run.steps[:3])][:STEPS_SHOWN]
        for step in shown:
            yield _row(run, step, duration_text(step.time_ms))


def _row(run: PolicyRun, step: StartMove, time: str) -> tuple[object, ...]:
    from snaprebuild.cli.render.log_start_chart import with_duration_texts

    names = (", ".join(each) or "-" for each in (step.invalidated, step.reloaded))
    return (time, run.policy.value, step.node, step.advance.after, *names, with_duration_texts(step.advance.reason))
