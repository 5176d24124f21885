"""The work of the verb ``inspect explain``."""

from __future__ import annotations

import re
import time

from snaprebuild.cli.options.common import ExpiryOptions, LogOptions, S3Options, quoted
from snaprebuild.cli.options.rebuild import Crc
from snaprebuild.cli.render.inspect import ExplainView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.runs.sources import clock_of, open_logs
from snaprebuild.cli.streams import bytes_progress
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import lost_and_unread
from snaprebuild.errors import UsageError
from snaprebuild.inspect.broker_answer import VERSIONS
from snaprebuild.inspect.explain import Question, explain_producer
from snaprebuild.snapshots.source.broker_properties import expiration_at

__all__ = ["run_inspect_explain"]

_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})(\.[0-9]{1,2})?")


def run_inspect_explain(
    *,
    producer_id: int,
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
    """Explains the state of one producer."""
    out.begin()
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


def _version(text: str | None) -> tuple[int, int]:
    if text is None:
        return VERSIONS[-1]
    match = _VERSION.fullmatch(text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version not in VERSIONS:
        raise UsageError(f"--assume kafka_release: expected a release of Kafka from 2.4 to 4.4; found {quoted(text)}")
    return version
