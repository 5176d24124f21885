"""The work of the verb ``cluster history``."""

from __future__ import annotations

from formats.limits import INT64_MAX
from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options, SelectionOptions, moment_ms, quoted
from snaprebuild.cli.options.metadata import voter_logs_of
from snaprebuild.cli.render.metadata import HistoryView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.metadata.history import HistoryQuestion, LogPoint, metadata_history
from snaprebuild.errors import UsageError

__all__ = ["run_cluster_history"]


def run_cluster_history(
    *,
    path: str,
    partitions: SelectionOptions,
    broker: int | None,
    since: str | None,
    until: str | None,
    voter: list[str] | None,
    voter_ids: tuple[int, ...] | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads the history of a topic or a broker."""
    out.begin()
    others = voter_logs_of(voter)
    check_directories([path])
    selection = selection_of(partitions)
    if not selection.is_narrowed and broker is None:
        raise UsageError("name a --topic or --topic-partition, a --broker, or both")
    begin_at = log_point_of("--since", since)
    end_at = log_point_of("--until", until)
    _check_range(begin_at, end_at)
    question = HistoryQuestion(path, selection if selection.is_narrowed else None, broker, begin_at, end_at, others, voter_ids)
    return HistoryView(metadata_history(question, run_of(s3)))


def _check_range(begin: LogPoint | None, end: LogPoint | None) -> None:
    """Raises UsageError where ``--until`` is before ``--since``, both as offsets or both as times."""
    if begin is None or end is None:
        return
    for first, last in ((begin.offset, end.offset), (begin.timestamp_ms, end.timestamp_ms)):
        if first is not None and last is not None and last < first:
            raise UsageError("--until is before --since")


def log_point_of(option: str, text: str | None) -> LogPoint | None:
    """An offset or a time.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        if len(text) > 19 or int(text) > INT64_MAX:
            raise UsageError(f"{option}: expected an offset up to {INT64_MAX}, found {quoted(text)}")
        return LogPoint(int(text))
    return LogPoint(None, moment_ms(option, text))
