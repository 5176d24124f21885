"""The log directories that the options of a verb name."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import LogOptions, S3Options, offsets_range
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.errors import UsageError
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import Source, open_source, yield_to_brokers

__all__ = ["clock_of", "open_logs", "open_selected", "selection_of"]


def selection_of(topics: list[str] | None, partitions: list[int] | None, offsets: str | None = None) -> Selection:
    """The selection that the options ask for.

    Raises:
        UsageError: a pattern is empty, or ``--offsets`` is no range.
    """
    if not all(topics or ()):
        raise UsageError("--topic: the pattern is empty")
    offset_from, offset_to = offsets_range(offsets)
    return Selection(tuple(topics or ()), frozenset(partitions or ()), offset_from, offset_to)


def open_selected(paths: list[str] | None, server_properties: str | None, selection: Selection, s3: S3Options) -> Source:
    """The source that the options ask for.

    Raises:
        UsageError: ``check_paths`` or ``open_source`` raises it.
    """
    check_directories(paths, server_properties=server_properties)
    source = open_source(paths or [], server_properties, selection, run_of(s3))
    yield_to_brokers(source)
    return source


def open_logs(logs: LogOptions, s3: S3Options) -> Source:
    """The source that the options name.

    Raises:
        UsageError: ``selection_of`` or ``open_selected`` raises it.
    """
    return open_selected(logs.paths, logs.server_properties, selection_of(logs.topic, logs.partition), s3)


def clock_of(source: Source, as_of: str | None, expiration_ms: int | None = None) -> Clock:
    """The moment of ``--as-of``, and the expiration that is asked for, else that of the source, else Kafka's default.

    Raises:
        UsageError: ``--as-of`` is no moment.
    """
    return clock_at(as_of, expiration_ms or source.expiration_ms)
