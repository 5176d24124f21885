"""The work of the verb ``inspect explain``."""

from __future__ import annotations

import os
import re
import time

from snaprebuild.cli.answer import SELECTION
from snaprebuild.cli.file_kinds import SNAPSHOT, FileContent, check_directories, check_file, recognize
from snaprebuild.cli.options.common import ExpiryOptions, LogOptions, S3Options, SelectionOptions, quoted
from snaprebuild.cli.options.rebuild import Crc
from snaprebuild.cli.render.inspect import ExplainView
from snaprebuild.cli.render.snapshot_explanation import SnapshotExplanationView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.runs.sources import clock_of, open_logs, open_selected, selection_of
from snaprebuild.cli.streams import bytes_progress
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.verb_command import given_options
from snaprebuild.cli.view import View
from snaprebuild.cluster.judged_snapshot import judged_snapshot
from snaprebuild.cluster.scan_storage import lost_and_unread
from snaprebuild.errors import UsageError
from snaprebuild.inspect.broker_answer import VERSIONS
from snaprebuild.inspect.explain import Question, explain_producer
from snaprebuild.inspect.snapshot_explanation import explain_snapshot, snapshot_offset
from snaprebuild.snapshots.source.broker_properties import expiration_at
from snaprebuild.storage.store import absolute, is_object
from snaprebuild.typed_paths import absent_text

__all__ = ["run_inspect_explain"]

_OF_PRODUCER = ("producer_id", "offset", "sequence", "epoch", *(name for name in SELECTION if name != "paths"))
"""Parameters that choose a producer, or the directories in which it is looked for."""

_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})(\.[0-9]{1,2})?")


def run_inspect_explain(
    *,
    producer_id: int | None,
    offset: int | None,
    sequence: int | None,
    epoch: int | None,
    logs: LogOptions,
    crc: Crc,
    expiry: ExpiryOptions,
    jobs: int | None,
    kafka_release: str | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Explains one snapshot, or the state of one producer."""
    out.begin()
    paths = logs.paths or []
    snapshot = next((path for path in paths if snapshot_offset(path) is not None), None)
    if snapshot is not None:
        if len(paths) > 1:
            raise UsageError(f"{snapshot} is a snapshot: name one alone, or directories")
        if given_options(_OF_PRODUCER):
            raise UsageError(f"{snapshot} is a snapshot, all of whose entries are explained: no option of a producer goes with it")
        return _snapshot_view(snapshot, expiry, jobs, s3, check_crc=crc is Crc.CHECK)
    for path in paths:
        _check_name(path)
    check_directories(paths, server_properties=logs.server_properties)
    if producer_id is None:
        raise UsageError("Missing option '--producer-id': name the producer, or a snapshot as PATH")
    question = Question(producer_id, offset, _version(kafka_release), sequence, epoch)
    source = open_logs(logs, s3)
    expiration_ms = expiry.expiration_ms
    if expiration_ms is None and kafka_release is not None:
        expiration_ms = expiration_at(source.properties, question.broker_version)
    run = run_of(s3, clock=clock_of(source, expiry.as_of, expiration_ms), jobs=jobs)
    started = time.perf_counter()
    with bytes_progress("explaining", source.size_bytes) as progress:
        result = explain_producer(source, question, run, check_crc=crc is Crc.CHECK, progress=progress)
    seconds = time.perf_counter() - started
    lost, unread = lost_and_unread(source, result.findings)
    return ExplainView(result, seconds, (*result.findings, *lost, *unread))


def _check_name(path: str) -> None:
    """Names a path that is absent, or a snapshot under a name that no broker gives one: neither lacks an option.

    Raises:
        UsageError: it is one of these.
        ReadFailedError: a file cannot be read.
    """
    if is_object(path) or os.path.isdir(path):
        return
    if not os.path.lexists(path):
        raise UsageError(absent_text(path), path=path)
    file = recognize(path)
    if file is not None and file.content is FileContent.SNAPSHOT:
        raise UsageError(
            "is a producer snapshot without the name of one, OFFSET.snapshot, which says where in the log it belongs: "
            "`inspect dump FILE` takes it",
            path=path,
        )


def _snapshot_view(path: str, expiry: ExpiryOptions, jobs: int | None, s3: S3Options, *, check_crc: bool) -> View:
    if not is_object(path):
        check_file(path, SNAPSHOT)
    directory, name = os.path.split(absolute(path))
    source = open_selected([directory], None, selection_of(SelectionOptions()), s3)
    run = run_of(s3, clock=clock_of(source, expiry.as_of, expiry.expiration_ms), jobs=jobs)
    started = time.perf_counter()
    with bytes_progress("explaining", source.size_bytes) as progress:
        explained = explain_snapshot(source, name, snapshot_offset(name) or 0, run, check_crc=check_crc, progress=progress)
    seconds = time.perf_counter() - started
    explanation = explained.explanation
    judged = judged_snapshot(source, explanation.path, explanation.comparison, explained.findings)
    return SnapshotExplanationView(explained, judged, seconds)


def _version(text: str | None) -> tuple[int, int]:
    if text is None:
        return VERSIONS[-1]
    match = _VERSION.fullmatch(text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version not in VERSIONS:
        raise UsageError(f"--kafka-release: expected a release from 2.4 to 4.4, such as 3.9.1; found {quoted(text)}")
    return version
