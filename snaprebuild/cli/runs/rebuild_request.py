"""The request that the options of ``plan``, ``rebuild`` and ``stage`` make, and its plan."""

from __future__ import annotations

import os

from snaprebuild.cli.answer import given_words
from snaprebuild.cli.file_kinds import SAVED_PLAN, check_directories, check_file
from snaprebuild.cli.options.common import S3Options, as_of_ms, check_paths
from snaprebuild.cli.options.kafka_release import release_of
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.rebuild import Crc
from snaprebuild.cli.options.rebuild_request import RequestOptions
from snaprebuild.cli.runs.engine_choice import EngineChoice
from snaprebuild.cli.runs.run_settings import run_of, stores_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.verb_command import given_options
from snaprebuild.cluster.judged_plan import judged_plan, load_judged_plan
from snaprebuild.errors import UsageError
from snaprebuild.shell_words import program_command, shell_command
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.results_file import result_file

__all__ = ["begin_run", "check_only_plan", "new_plan", "request_of", "request_words", "saved_plan"]


def request_of(
    options: RequestOptions,
    s3: S3Options,
    *,
    to_dir: str | None = None,
    stage: list[str] | None = None,
    broker_running: bool = False,
) -> RebuildRequest:
    """The request that the options make.

    Args:
        options: of all three verbs.
        s3: how object stores are reached.
        to_dir: ``--out``.
        stage: ``--to``.
        broker_running: ``--broker-running``.

    Raises:
        UsageError: an option makes no sense.
    """
    selection = selection_of(options, options.offsets)
    check_directories(options.paths, server_properties=options.server_properties, out=to_dir)
    for directory in stage or ():
        if os.path.lexists(directory) and not os.path.isdir(directory):
            raise UsageError(f"--to: expected a directory, found the file {directory}")
    check_metadata(options.metadata)
    release_of(options.kafka_release)
    return RebuildRequest(
        paths=tuple(options.paths or ()),
        server_properties=options.server_properties,
        topics=selection.topics,
        partitions=tuple(selection.partitions),
        topic_partitions=tuple(selection.topic_partitions),
        offset_from=selection.offset_from,
        offset_to=selection.offset_to,
        out=to_dir,
        boundaries=options.boundaries.value,
        replay_from=options.replay_from.value,
        set_aside=options.set_aside,
        check_crc=options.crc is Crc.CHECK,
        drop_expired=options.drop_expired,
        allow_unproven=options.allow_unproven,
        as_of_ms=as_of_ms(options.as_of),
        expiration_ms=options.expiration_ms,
        metadata=options.metadata,
        s3=stores_of(s3),
        stage=tuple(stage or ()),
        broker_running=broker_running,
        accept_topic_id_zero=options.accept_topic_id_zero,
        kafka_release=options.kafka_release,
    ).checked()


def new_plan(request: RebuildRequest, engine: EngineChoice) -> Plan:
    """The plan of a request, made by the engine."""
    return judged_plan(request, run_of(), parallel_map=engine.planning())


def saved_plan(path: str, *, is_staged: bool) -> Plan:
    """The saved plan, made again from the disk as it is now.

    Raises:
        UsageError: it is one of the other verb, or no plan.
        RefusedError: the disk has changed.
    """
    planned = load_judged_plan(path, run_of())
    if planned.request.destination.installed_later != is_staged:
        other = "rebuild" if is_staged else "stage"
        raise UsageError(f"the plan is one of `{other}`: run {program_command([other, '--plan', path])}", path=path)
    return planned


def check_only_plan(options: RequestOptions, *, has_destination: bool) -> None:
    """Makes sure that no option of the request goes with a saved plan.

    Raises:
        UsageError: one does.
    """
    if options != RequestOptions() or has_destination or given_options(S3Options.__struct_fields__):
        words = request_words("plan", "engine", "master")
        refused = f"`{shell_command(words)}` does not go with it. Only" if words else "only"
        raise UsageError(
            f"--plan carries the selection and the target from when it was made: {refused} --dry-run, --receipt, --jobs, --engine, "
            "--master, --cache, settings of load and Spark, and output options go with it"
        )


def begin_run(out: OutputOptions, plan: str | None, results: str | None, receipt: str | None = None) -> str | None:
    """Checks the files that a run writes; returns that of ``--results``.

    Raises:
        UsageError: a path is empty, or no such file can be made.
    """
    check_paths(None, plan=plan)
    if plan is not None:
        check_file(plan, SAVED_PLAN)
    if results == "":
        raise UsageError("--results: the path is empty")
    table = None if results is None else result_file(results)
    out.begin(new_files={"--receipt": receipt, "--results": table}, read={"plan": plan})
    return table


def request_words(*without: str) -> list[str]:
    """The words of the command line that give the request, or the saved plan; but not those of the parameters ``without``."""
    names = (*RequestOptions.__struct_fields__, "directory", "broker_running", "to", "plan", "engine", "master")
    return given_words(*(each for each in names if each not in without))
