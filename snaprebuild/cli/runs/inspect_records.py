"""The work of the verb ``inspect records``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.reading import EngineName, EngineOptions
from snaprebuild.cli.options.records import LIMIT_MAX, IsolationOption, PayloadFormat, RecordPlaces
from snaprebuild.cli.render.records import RecordsView
from snaprebuild.cli.runs.cluster_history import log_point_of
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.remote_storage import key_files, store_access
from snaprebuild.cli.runs.run_settings import run_of, stores_of
from snaprebuild.cli.runs.sources import selection_of, topic_ids_of
from snaprebuild.cli.streams import bytes_progress, print_on_stderr
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.verb_command import given_options
from snaprebuild.cli.view import View
from snaprebuild.consume.record_query import EARLIEST, LATEST, DamageMode, NoMatch, RecordIsolation, RecordQuery
from snaprebuild.consume.record_source import RecordSource, open_record_source
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, first_of
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import yield_to_brokers
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.storage.partition_names import TopicKind, topic_kind_of
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.storage.remote.listing import holds_copies
from snaprebuild.storage.store import absolute, is_object
from snaprebuild.storage.store_path import path_of

if TYPE_CHECKING:  # pyarrow may not be installed
    from snaprebuild.consume.partition_result import ReadPartition

__all__ = ["run_inspect_records"]

LIMIT_DEFAULT = 100
"""Records that are shown."""


def run_inspect_records(
    *,
    places: RecordPlaces,
    begin: str | None,
    until: str | None,
    limit: int | None,
    isolation: IsolationOption,
    key_format: PayloadFormat | None,
    value_format: PayloadFormat | None,
    internal_topics: bool,
    directory: str | None,
    engine: EngineOptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads records, and shows or writes them."""
    out.begin(read={"private key": key_files(places)})
    try:
        from snaprebuild.consume.record_export import exported_columns
        from snaprebuild.consume.record_rows import read_rows, row_columns
    except ImportError as error:
        raise UsageError("inspect records needs pyarrow: pip install pyarrow") from error
    if directory is not None:
        _check_export(directory, key_format, value_format)
        _check_engine(engine, limit)
    elif _needs_spark(engine):
        raise UsageError("--engine spark: its tasks write files, and need --out; what is shown is read by this process")
    elif limit is not None and limit > LIMIT_MAX:
        raise UsageError(f"--limit: at most {LIMIT_MAX} records are shown; --out writes any number")
    selection = selection_of(places)
    chosen = RecordIsolation(isolation.value)
    query = _query(selection, chosen, begin, until, internal_topics=internal_topics)
    columns = row_columns(chosen) if directory is None else exported_columns(chosen)
    topic_ids = {topic: uuid_from_text(text) for topic, text in topic_ids_of(places.topic_id).items()}
    query = replace(query, columns=columns, topic_ids=topic_ids)
    source = _opened(places, query, s3)
    findings = [*source.findings, *_nothing_found(source, selection, places, internal_topics=internal_topics)]
    selected = [f"{topic}-{number}" for topic, number in source.selected]
    topics = sorted({log.topic for log in source.logs})
    if topics and (directory is not None or key_format is not None or value_format is not None):
        print_on_stderr(f"Keys and values are data of the owners of {first_of(topics, 5)}: personal data may be in them.")
    if directory is None:
        shown = LIMIT_DEFAULT if limit is None else limit
        partitions, rows = read_rows(
            source, query, findings, limit=shown, with_keys=key_format is not None, with_values=value_format is not None
        )
        return RecordsView(
            findings,
            chosen,
            selected,
            partitions,
            rows,
            limit=shown,
            key_format=key_format,
            value_format=value_format,
            store=source.store,
        )
    unfinished = RecordsView([*findings, _unfinished(directory)], chosen, selected, [], [], limit=limit, directory=directory)
    partitions = _exported(source, query, findings, directory, limit=limit, engine=engine, unfinished=unfinished)
    return RecordsView(findings, chosen, selected, partitions, [], limit=limit, directory=directory, store=source.store)


def _exported(
    source: RecordSource,
    query: RecordQuery,
    findings: list[Finding],
    directory: str,
    *,
    limit: int | None,
    engine: EngineOptions,
    unfinished: RecordsView,
) -> list[ReadPartition]:
    """Writes the files of an export, by this process or by tasks of Spark.

    Args:
        source: what is read.
        query: with the columns of the files.
        findings: filled with those of the partitions.
        directory: new one, for the files.
        limit: records at most; None for all.
        engine: which of the two.
        unfinished: writes the manifest of an export that has no file yet.

    Raises:
        UsageError: Spark is not installed, or its session cannot keep the limits of the run.
        StorageError: a file cannot be written, or the job of Spark failed.
    """
    from snaprebuild.consume.record_export import export_records, make_export_directory

    size_bytes = sum(log.size_bytes for log in source.logs)
    with engine_of(engine) as chosen, bytes_progress("writing", size_bytes) as progress:
        on_spark = chosen.reading(size_bytes, progress) if limit is None else None
        if on_spark is None:
            make_export_directory(directory)
            unfinished.write_files()
            return export_records(source, query, findings, directory, limit=limit, progress=progress)
        from snaprebuild.spark.record_export import check_session, export_on_spark

        check_session(on_spark, source)
        make_export_directory(directory)
        unfinished.write_files()
        return export_on_spark(on_spark, source, query, findings, os.path.abspath(directory))


def _check_engine(engine: EngineOptions, limit: int | None) -> None:
    """Raises UsageError if tasks of Spark would have to count records together."""
    if limit is not None and _needs_spark(engine):
        raise UsageError(
            "--limit: counts the records of all partitions in turn, which tasks of Spark cannot; leave out one of the two"
        )


def _needs_spark(engine: EngineOptions) -> bool:
    """Whether the command line itself names Spark: with a setting, or with ``auto``, a run without it is what was asked for."""
    return engine.engine is EngineName.SPARK and bool(given_options(["engine"]))


def _opened(places: RecordPlaces, query: RecordQuery, s3: S3Options) -> RecordSource:
    """The logs and the remote storage that the arguments name.

    Raises:
        UsageError: a place leads nowhere, a private key is none, or an option needs a STORE.
    """
    paths = places.paths or []
    check_directories([*paths, *(places.metadata_log or [])], server_properties=places.server_properties)
    keys = PrivateKeys.of(places.private_key)
    store = None
    needs_store = bool(places.metadata_log or places.topic_id)
    if paths and (needs_store or _holds_copies(paths[0], s3)):
        store = store_access(paths[0], s3, places, keys)
        paths = paths[1:]
    elif needs_store:
        option = "--metadata-log" if places.metadata_log else "--topic-id"
        raise UsageError(f"{option} belongs to a STORE: name it before PATH")
    for path in paths:
        if _holds_copies(path, s3):
            raise UsageError("is remote storage: name one STORE, before PATH", path=path)
    source = open_record_source(paths, query, run_of(s3), places.server_properties, store)
    yield_to_brokers(source.source)
    return source


def _holds_copies(place: str, s3: S3Options) -> bool:
    """Whether a place is remote storage.

    Raises:
        ReadFailedError: it cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    return holds_copies(path_of(absolute(place), stores_of(s3)))


def _unfinished(directory: str) -> Finding:
    """The finding in the manifest of an export that is not complete: it is there from the start, in case the export is stopped."""
    message = (
        "the export was not finished: each file of Parquet that is there is whole, and what the others would have is not known"
    )
    return Finding("records-export-unfinished", Severity.FINDING, directory, message)


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


def _nothing_found(source: RecordSource, selection: Selection, places: RecordPlaces, *, internal_topics: bool) -> list[Finding]:
    """A finding where the selection has no partition, or names one that is not there."""
    present = sorted(source.present)
    place = (places.paths or [places.server_properties or "."])[0]
    names = [f"{topic}-{number}" for topic, number in present]
    if source.selected:
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
