"""The work of the verb ``inspect records``."""

from __future__ import annotations

import os

from msgspec.structs import replace

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import LogOptions, S3Options
from snaprebuild.cli.options.records import LIMIT_MAX, IsolationOption, PayloadFormat
from snaprebuild.cli.render.records import RecordsView
from snaprebuild.cli.runs.cluster_history import log_point_of
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.streams import bytes_progress, print_on_stderr
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.consume.record_query import EARLIEST, LATEST, DamageMode, NoMatch, RecordIsolation, RecordQuery
from snaprebuild.consume.record_source import RecordSource, open_record_source
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, first_of
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import yield_to_brokers
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.storage.partition_names import TopicKind, topic_kind_of
from snaprebuild.storage.store import is_object

__all__ = ["run_inspect_records"]

LIMIT_DEFAULT = 100
"""Records that are shown."""


def run_inspect_records(
    *,
    logs: LogOptions,
    begin: str | None,
    until: str | None,
    limit: int | None,
    isolation: IsolationOption,
    key_format: PayloadFormat | None,
    value_format: PayloadFormat | None,
    internal_topics: bool,
    directory: str | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads records, and shows or writes them."""
    out.begin()
    try:
        from snaprebuild.consume.record_rows import export_records, exported_columns, read_rows, row_columns
    except ImportError as error:
        raise UsageError("inspect records needs pyarrow: pip install 'snaprebuild[records]'") from error
    if directory is not None:
        _check_export(directory, key_format, value_format)
    elif limit is not None and limit > LIMIT_MAX:
        raise UsageError(f"--limit: at most {LIMIT_MAX} records are shown; --out writes any number")
    selection = selection_of(logs)
    chosen = RecordIsolation(isolation.value)
    query = _query(selection, chosen, begin, until, internal_topics=internal_topics)
    columns = row_columns(chosen) if directory is None else exported_columns(chosen)
    query = replace(query, columns=columns)
    check_directories(logs.paths, server_properties=logs.server_properties)
    source = open_record_source(logs.paths or [], query, run_of(s3), logs.server_properties)
    yield_to_brokers(source.source)
    findings = [*source.findings, *_nothing_found(source, selection, logs, internal_topics=internal_topics)]
    selected = [log.topic_partition for log in source.logs]
    topics = sorted({log.topic for log in source.logs})
    if topics and (directory is not None or key_format is not None or value_format is not None):
        print_on_stderr(f"Keys and values are data of the owners of {first_of(topics, 5)}: personal data may be in them.")
    if directory is None:
        shown = LIMIT_DEFAULT if limit is None else limit
        partitions, rows = read_rows(
            source, query, findings, limit=shown, with_keys=key_format is not None, with_values=value_format is not None
        )
        return RecordsView(
            findings, chosen, selected, partitions, rows, limit=shown, key_format=key_format, value_format=value_format
        )
    with bytes_progress("writing", sum(log.size_bytes for log in source.logs)) as progress:
        partitions = export_records(source, query, findings, directory, limit=limit, progress=progress)
    return RecordsView(findings, chosen, selected, partitions, [], limit=limit, directory=directory)


def _check_export(directory: str, key_format: PayloadFormat | None, value_format: PayloadFormat | None) -> None:
    """Raises UsageError or RefusedError if records cannot be written to a directory."""
    for option, form in (("--key-format", key_format), ("--value-format", value_format)):
        if form is not None:
            raise UsageError(f"{option}: files of Parquet have the bytes as they are; it does not go with --out")
    if is_object(directory):
        raise UsageError("--out: is a directory of this machine", path=directory)
    check_new_place(os.path.abspath(directory))


def _query(
    selection: Selection, isolation: RecordIsolation, begin: str | None, until: str | None, *, internal_topics: bool
) -> RecordQuery:
    first = log_point_of("--from", begin)
    last = log_point_of("--until", until)
    if first is not None and last is not None:
        for low, high in ((first.offset, last.offset), (first.timestamp_ms, last.timestamp_ms)):
            if low is not None and high is not None and high < low:
                raise UsageError("--until is before --from")
    return RecordQuery(
        starting_offsets=EARLIEST if first is None or first.offset is None else first.offset,
        ending_offsets=LATEST if last is None or last.offset is None else last.offset,
        starting_timestamp=None if first is None else first.timestamp_ms,
        ending_timestamp=None if last is None else last.timestamp_ms,
        no_match=NoMatch.LATEST,
        isolation=isolation,
        mode=DamageMode.DROPMALFORMED,
        fails_on_data_loss=False,
        selection=selection,
        includes_internal=internal_topics,
    )


def _nothing_found(source: RecordSource, selection: Selection, logs: LogOptions, *, internal_topics: bool) -> list[Finding]:
    """A finding where the selection has no partition, or names one that is not there."""
    present = [(each.directory.name.topic, each.directory.name.partition) for each in source.source.partitions]
    place = (logs.paths or [logs.server_properties or "."])[0]
    names = [f"{topic}-{number}" for topic, number in present]
    if source.logs:
        return selection.absent_findings(names, place)
    if source.findings and not present:
        return []
    internal = [
        topic
        for topic, number in present
        if topic_kind_of(topic) is not TopicKind.ORDINARY and selection.takes_partition(topic, number)
    ]
    if internal and not internal_topics:
        message = f"only Kafka's own topics are selected, such as {internal[0]}: they are read with --internal-topics"
    else:
        message = selection.why_none(present)
    return [Finding("nothing-found", Severity.FINDING, place, message, cause=FindingCause.NOTHING_FOUND)]
