"""The log directories that the options of a verb name."""

from __future__ import annotations

import re

from formats.errors import FormatError
from formats.limits import INT32_MAX
from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import LogOptions, S3Options, SelectionOptions, offsets_range, quoted
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.errors import UsageError
from snaprebuild.replay.window import Clock
from snaprebuild.shell_words import option_words, shell_command
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import Source, open_source, yield_to_brokers

__all__ = ["clock_of", "open_logs", "open_selected", "partition_named", "selection_of", "topic_ids_of"]


def selection_of(options: SelectionOptions, offsets: str | None = None) -> Selection:
    """The selection that the options ask for.

    Raises:
        UsageError: a pattern is empty, a name is none of a partition, or ``--offsets`` is no range.
    """
    if not all(options.topic or ()):
        raise UsageError("--topic: the pattern is empty")
    for name in options.topic_partition or ():
        partition_named(name)
    offset_from, offset_to = offsets_range(offsets)
    return Selection(
        tuple(options.topic or ()),
        frozenset(options.partition or ()),
        offset_from,
        offset_to,
        frozenset(options.topic_partition or ()),
    )


_PARTITION = re.compile(r"([A-Za-z0-9._-]+)-(0|[1-9][0-9]{0,9})")


def partition_named(text: str) -> tuple[str, int]:
    """Topic and number of a partition that ``--topic-partition`` names.

    Raises:
        UsageError: it is no name of a partition.
    """
    match = _PARTITION.fullmatch(text)
    if match is None or int(match[2]) > INT32_MAX:
        raise UsageError(f"--topic-partition: expected TOPIC-N, found {quoted(text)}{_meant_partition(text)}")
    return match[1], int(match[2])


def _meant_partition(text: str) -> str:
    """The partition that was probably meant by a text, as the end of a sentence; empty if that is unknown."""
    match = re.fullmatch(r"([A-Za-z0-9._-]+?)[:/@#, ]([0-9]{1,10})", text)
    if match is not None:
        return f"; did you mean {match[1]}-{int(match[2])}?"
    names = text.replace(",", " ").split()
    if len(names) > 1 and all(map(_PARTITION.fullmatch, names)):
        return f"; did you mean `{shell_command([word for each in names for word in option_words('--topic-partition', each)])}`?"
    if any(character in text for character in "*?["):
        return "; patterns go with `--topic`"
    if not re.fullmatch(r"[A-Za-z0-9._-]+", text):
        return ""
    return f"; `{shell_command(option_words('--topic', text))}` takes all partitions of a topic"


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
    return open_selected(logs.paths, logs.server_properties, selection_of(logs), s3)


def clock_of(source: Source, as_of: str | None, expiration_ms: int | None = None) -> Clock:
    """The moment of ``--as-of``, and the expiration that is asked for, else that of the source, else Kafka's default.

    Raises:
        UsageError: ``--as-of`` is no moment.
    """
    return clock_at(as_of, expiration_ms or source.expiration_ms)


def topic_ids_of(pairs: list[str] | None) -> dict[str, str]:
    """The ids of ``--topic-id`` by topic.

    Raises:
        UsageError: one is no id, or a topic is there twice.
    """
    found = {}
    for pair in pairs or ():
        topic, equals, text = pair.rpartition("=")
        try:
            if not equals or not topic or topic in found:
                raise UsageError(f"--topic-id: expected TOPIC=ID, each topic once; found {quoted(pair)}")
            uuid_from_text(text)
        except FormatError as error:
            raise UsageError(f"--topic-id: {error.message}") from error
        found[topic] = text
    return found
