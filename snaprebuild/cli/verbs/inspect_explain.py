"""The verb ``inspect explain``."""

from __future__ import annotations

import os
import re
import time
from typing import Annotated

import msgspec

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    Paths,
    S3Options,
    ServerProperties,
    Topic,
    WholeNumber,
    check_directories,
    clock_of,
    open_selected,
    quoted,
    selection_of,
)
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.options.settings import TextValue
from snaprebuild.cli.streams import bytes_progress
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.verb_command import given_options
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

__all__ = ["inspect_explain"]

EPOCH_MAX = 2**15 - 1

_OF_PRODUCER = ("producer_id", "offset", "sequence", "epoch", "assume", "topic", "partition", "server_properties")
"""Parameters that choose a producer, or the directories in which it is looked for."""

_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})(\.[0-9]{1,2})?")


class ExplainAssumptions(msgspec.Struct, frozen=True):
    """What the log does not show of the broker."""

    kafka_release: Annotated[
        str | None, Assumption(TextValue("X.Y"), OptionText(short="Release of the broker that answers, 2.4 to 4.4", default="4.4"))
    ] = None


@verb(Load)
def inspect_explain(
    *,
    paths: Paths = None,
    producer_id: Annotated[
        int | None,
        option(
            "--producer-id",
            metavar="N",
            click_type=WholeNumber(0, INT64_MAX),
            short="Producer to explain",
            default="none, it is required unless PATH is a snapshot",
        ),
    ] = None,
    offset: Annotated[
        int | None,
        option(
            "--offset",
            metavar="OFFSET",
            click_type=WholeNumber(0, INT64_MAX),
            short="Show the state before this offset, as in the name of a snapshot",
            default="the log end",
        ),
    ] = None,
    sequence: Annotated[
        int | None,
        option(
            "--sequence",
            metavar="S",
            click_type=WholeNumber(0, INT32_MAX),
            short="First sequence of the batch in question",
            default="the next, the last again, one after a gap, a new epoch",
        ),
    ] = None,
    epoch: Annotated[
        int | None,
        option(
            "--epoch",
            metavar="E",
            click_type=WholeNumber(0, EPOCH_MAX),
            short="Epoch of the batch in question",
            default="that of the producer",
        ),
    ] = None,
    server_properties: ServerProperties = None,
    crc: CrcOption = Crc.CHECK,
    as_of: AsOf = None,
    expiration_ms: ExpirationMs = None,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    assumed: ExplainAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: explains what is wrong with one snapshot, or the state of one producer.

    PATH is a snapshot in the directory of its partition, also as s3://BUCKET/KEY: it is compared with a replay of the log. For
    entries that the log contradicts: since which snapshot they are wrong, the batches that set the right values, and what to run.

    With --producer-id, PATH is a partition directory or any directory above; several may be named. Shown are the batch that set each
    field, and what a broker answers to the next one, now and after a start. Exit code 1 if the snapshot is wrong, no partition has
    the producer, OFFSET is not in a log, or a log lost its end.
    """
    from snaprebuild.cli.render.inspect import ExplainView
    from snaprebuild.cluster.scan_storage import lost_and_unread
    from snaprebuild.inspect.explain import Question, explain_producer
    from snaprebuild.inspect.snapshot_explanation import snapshot_offset
    from snaprebuild.snapshots.source.broker_properties import expiration_at

    out.begin()
    snapshot = next((path for path in paths or () if snapshot_offset(path) is not None), None)
    if snapshot is not None:
        if len(paths or ()) > 1:
            raise UsageError(f"{snapshot} is a snapshot: name one alone, or directories")
        if given_options(_OF_PRODUCER):
            raise UsageError(f"{snapshot} is a snapshot, all of whose entries are explained: no option of a producer goes with it")
        return _snapshot_view(snapshot, as_of, expiration_ms, jobs, s3, check_crc=crc is Crc.CHECK)
    check_directories(paths, server_properties=server_properties)
    if producer_id is None:
        raise UsageError("Missing option '--producer-id': name the producer, or a snapshot as PATH")
    question = Question(producer_id, offset, _version(assumed.kafka_release), sequence, epoch)
    source = open_selected(paths, server_properties, selection_of(topic, partition, None), s3)
    if expiration_ms is None and assumed.kafka_release is not None:
        expiration_ms = expiration_at(source.properties, question.broker_version)
    run = s3.run(clock=clock_of(source, as_of, expiration_ms), jobs=jobs)
    started = time.perf_counter()
    with bytes_progress("explaining", source.size_bytes) as progress:
        result = explain_producer(source, question, run, check_crc=crc is Crc.CHECK, progress=progress)
    seconds = time.perf_counter() - started
    lost, unread = lost_and_unread(source, result.findings)
    return ExplainView(result, seconds, (*result.findings, *lost, *unread))


def _snapshot_view(
    path: str, as_of: str | None, expiration_ms: int | None, jobs: int | None, s3: S3Options, *, check_crc: bool
) -> View:
    from snaprebuild.cli.file_kinds import SNAPSHOT, check_file
    from snaprebuild.cli.render.snapshot_explanation import SnapshotExplanationView
    from snaprebuild.cluster.judged_snapshot import judged_snapshot
    from snaprebuild.inspect.snapshot_explanation import explain_snapshot, snapshot_offset
    from snaprebuild.storage.store import absolute, is_object

    if not is_object(path):
        check_file(path, SNAPSHOT)
    directory, name = os.path.split(absolute(path))
    source = open_selected([directory], None, selection_of(None, None, None), s3)
    run = s3.run(clock=clock_of(source, as_of, expiration_ms), jobs=jobs)
    started = time.perf_counter()
    with bytes_progress("explaining", source.size_bytes) as progress:
        explained = explain_snapshot(source, name, snapshot_offset(name) or 0, run, check_crc=check_crc, progress=progress)
    seconds = time.perf_counter() - started
    explanation = explained.explanation
    judged = judged_snapshot(source, explanation.path, explanation.comparison, explained.findings)
    return SnapshotExplanationView(explained, judged, seconds)


def _version(text: str | None) -> tuple[int, int]:
    from snaprebuild.inspect.broker_answer import VERSIONS

    if text is None:
        return VERSIONS[-1]
    match = _VERSION.fullmatch(text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version not in VERSIONS:
        raise UsageError(f"--assume kafka_release: expected a release of Kafka from 2.4 to 4.4; found {quoted(text)}")
    return version
