"""``records``: the records of partitions as batches of Arrow, as a consumer would get them, without a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.argument_checks import (
    check_flag,
    check_moment,
    check_one_of,
    check_path,
    check_paths,
    check_patterns,
    check_text,
    optional,
)
from snaprebuild.argument_names import names_arguments, naming_arguments, with_arguments
from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.reading import Impact, Load
from snaprebuild.consume.partition_plan import plan_partition
from snaprebuild.consume.query_arguments import (
    assigned_partitions,
    check_one_selection,
    chosen_columns,
    offsets_of,
    pattern_of,
    topic_ids_from,
)
from snaprebuild.consume.record_query import EARLIEST, LATEST, DamageMode, NoMatch, RecordIsolation, RecordQuery
from snaprebuild.consume.record_source import RecordSource, open_record_source
from snaprebuild.documents.envelope import reported
from snaprebuild.documents.records import RecordRange, record_range
from snaprebuild.errors import SnaprebuildError, UsageError
from snaprebuild.findings import Finding, ReportedFinding, exit_code_of, finding_of_error
from snaprebuild.hooks import FilePath
from snaprebuild.library.arguments import CHECKS
from snaprebuild.library.verbs import Paths
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import yield_to_brokers
from snaprebuild.storage.io_limits.policy import RunLimits, current_limits
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.storage.store import USUAL_S3, S3Settings
from snaprebuild.tier.remote_store import StoreAccess, store_access

if TYPE_CHECKING:
    import pyarrow

    from snaprebuild.consume.partition_read import PartitionReader

__all__ = ["RecordStream", "records"]

PartitionOffsets = Mapping[str, Mapping[int, int]]
"""An offset for each partition, by topic and number; -2 is the earliest and -1 the latest."""


@names_arguments
def records(
    source: Paths = (),
    *,
    server_properties: FilePath | None = None,
    topics: str | Sequence[str] = (),
    subscribe_pattern: str | None = None,
    assign: Mapping[str, Sequence[int]] | None = None,
    starting_offsets: str | PartitionOffsets = "earliest",
    ending_offsets: str | PartitionOffsets = "latest",
    starting_timestamp: int | None = None,
    ending_timestamp: int | None = None,
    starting_offsets_by_timestamp_strategy: str = "error",
    isolation: str = "read_committed",
    mode: str = "FAILFAST",
    columns: Sequence[str] = (),
    include_headers: bool = True,
    fail_on_data_loss: bool = True,
    remote: FilePath | None = None,
    metadata_log: Paths = (),
    private_key: str | Sequence[str] = (),
    key_prefix: str = "",
    topic_ids: Mapping[str, str] | None = None,
    s3: S3Settings = USUAL_S3,
    impact: str | None = None,
    max_read_rate: int | None = None,
) -> RecordStream:
    """The records of partitions as batches of Arrow (``pyarrow.RecordBatch``), as a consumer would get them. Reads only.

    A partition is read from its log start offset to its last stable offset, by the checkpoints of its broker, without aborted
    transactions and control records. How transactions ended is found by a replay of the log. If several directories have one partition,
    that with the newest leader epoch and the highest end is read. Kafka's own topics are read only if ``topics`` or ``assign`` names them.

    Args:
        source: paths, one or several.
        server_properties: configuration of a broker, whose ``log.dirs`` are read too.
        topics: names or shell patterns; none for all.
        subscribe_pattern: a regular expression that the whole name of a topic matches; None for none.
        assign: numbers of partitions by topic; None for none.
        starting_offsets: ``earliest``, or an offset for each selected partition by topic and number, or the JSON of Spark for that.
        ending_offsets: ``latest``, or the offset after the last one for each selected partition, as ``starting_offsets``.
        starting_timestamp: ms since 1970: each partition begins with its first record at or after it, instead of ``starting_offsets``.
        ending_timestamp: ms since 1970: each partition ends before its first record at or after it, instead of ``ending_offsets``.
        starting_offsets_by_timestamp_strategy: of a partition without a record at or after ``starting_timestamp``: ``error``, or
            ``latest`` to read nothing of it.
        isolation: ``read_committed``; ``read_uncommitted`` for all records below the high watermark; ``all`` for control records, too.
        mode: of a batch that cannot be read: ``FAILFAST`` ends the read with an error, ``PERMISSIVE`` gives a row with ``error``, and
            ``DROPMALFORMED`` leaves it out.
        columns: of the batches, in their order; none for those of Spark's Kafka source.
        include_headers: False leaves the column ``headers`` out, if ``columns`` does not name it.
        fail_on_data_loss: offsets of the range that are not there are an error; False for a finding.
        remote: remote storage, a directory or ``s3://BUCKET/PREFIX``. Its copies are read below the log on disk, or alone if there is
            none.
        metadata_log: log directories with partitions of ``__remote_log_metadata``; without one every complete copy counts as finished.
        private_key: files of the keys of encrypted copies, ``FILE`` or ``NAME=FILE``.
        key_prefix: of Aiven's plugin, below ``remote``.
        topic_ids: ids by topic, for topics of which ``remote`` has several of that name.
        s3: how object stores are reached, and the limits of the call.
        impact: ``low``, ``normal`` or ``full``, as ``--impact``; None for low while a broker runs.
        max_read_rate: bytes a second; None for any number.

    Raises:
        UsageError: nothing to read from, an argument makes no sense, or pyarrow is not installed.
        RefusedError: directories of one partition contradict each other.
        ReadFailedError: a directory or an object store cannot be read.
    """
    try:
        from snaprebuild.consume.arrow_batches import COLUMN_TYPES, DEFAULT_COLUMNS
    except ImportError as error:
        raise UsageError("records need pyarrow: pip install pyarrow") from error
    chosen_mode = DamageMode(check_one_of([each.value for each in DamageMode])("mode", mode))
    names = chosen_columns("columns", columns, tuple(COLUMN_TYPES)) or tuple(
        name for name in DEFAULT_COLUMNS if name != "headers" or check_flag("include_headers", include_headers)
    )
    if chosen_mode is DamageMode.PERMISSIVE and "error" not in names:
        names = (*names, "error")
    paths = check_paths("source", source)
    properties = optional(check_path)("server_properties", server_properties)
    check_directories(list(paths), server_properties=properties)
    query = RecordQuery(
        topics=check_patterns("topics", topics),
        subscribe_pattern=pattern_of("subscribe_pattern", subscribe_pattern),
        assign=assigned_partitions("assign", assign),
        starting_offsets=offsets_of("starting_offsets", starting_offsets, {"earliest": EARLIEST}),
        ending_offsets=offsets_of("ending_offsets", ending_offsets, {"latest": LATEST}),
        starting_timestamp=optional(check_moment)("starting_timestamp", starting_timestamp),
        ending_timestamp=optional(check_moment)("ending_timestamp", ending_timestamp),
        no_match=NoMatch(
            check_one_of([each.value for each in NoMatch])(
                "starting_offsets_by_timestamp_strategy", starting_offsets_by_timestamp_strategy
            )
        ),
        isolation=RecordIsolation(check_one_of([each.value for each in RecordIsolation])("isolation", isolation)),
        mode=chosen_mode,
        columns=names,
        topic_ids=topic_ids_from("topic_ids", topic_ids),
        fails_on_data_loss=check_flag("fail_on_data_loss", fail_on_data_loss),
    )
    check_one_selection(query)
    CHECKS["s3"]("s3", s3)
    CHECKS["max_read_rate"]("max_read_rate", max_read_rate)
    chosen_impact = CHECKS["impact"]("impact", impact)
    load = Load(impact=None if chosen_impact is None else Impact(chosen_impact), max_read_rate=max_read_rate)
    run = Run(stores=s3.for_run())
    with load.limits():
        access = _store_access(remote, metadata_log, private_key, key_prefix, query, run)
        opened = open_record_source(paths, query, run, properties, access)
        yield_to_brokers(opened.source)
        limits = current_limits()
    return RecordStream(opened, query, limits)


def _store_access(
    remote: FilePath | None,
    metadata_log: Paths,
    private_key: str | Sequence[str],
    key_prefix: str,
    query: RecordQuery,
    run: Run,
) -> StoreAccess | None:
    location = optional(check_path)("remote", remote)
    logs = check_paths("metadata_log", metadata_log)
    keys = check_patterns("private_key", private_key)
    prefix = check_text("key_prefix", key_prefix) if key_prefix else ""
    if location is None:
        if logs or keys or prefix or query.topic_ids:
            raise UsageError("metadata_log, private_key, key_prefix and topic_ids are of remote storage: name it with remote")
        return None
    return store_access(location, run.stores, metadata_logs=logs, private_keys=PrivateKeys.of(keys), key_prefix=prefix)


class RecordStream:
    """The records of a call of ``records``: iterate over it for batches of Arrow. Each iteration reads again.

    DuckDB, Polars and everything else that takes a stream of Arrow take it as it is; ``reader()`` is for the rest.
    """

    def __init__(self, source: RecordSource, query: RecordQuery, limits: RunLimits) -> None:
        self._source = source
        self._query = query
        self._limits = limits
        self._readers: list[PartitionReader] = []
        self._faults: list[Finding] = []

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns of each batch."""
        from snaprebuild.consume.arrow_batches import record_schema

        return record_schema(self._query.columns)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        self._readers = []
        self._faults = []
        batches = self._batches()
        while True:
            # The limits hold while a batch is read, not while the caller works with it.
            with self._limits.active(), naming_arguments():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        from snaprebuild.consume.partition_read import PartitionReader

        for log in self._source.logs:
            try:
                plan = plan_partition(log, self._query)
                reader = PartitionReader(plan, self._query)
                self._readers.append(reader)
                yield from reader.batches()
            except (FormatError, SnaprebuildError) as error:
                if not self._query.skips_faults or isinstance(error, UsageError):
                    raise
                self._faults.append(finding_of_error(error, log.place))

    def reader(self) -> pyarrow.RecordBatchReader:
        """The batches as a reader of Arrow, which reads them once."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches as a stream of the C interface of Arrow."""
        return self.reader().__arrow_c_stream__(requested_schema)

    @property
    def partitions(self) -> tuple[RecordRange, ...]:
        """The ranges that the last iteration has read so far, one for each partition."""
        return tuple(record_range(reader.range()) for reader in self._readers)

    @property
    def findings(self) -> tuple[ReportedFinding, ...]:
        """Findings so far: about the directories at once, about the records of a partition after they were read."""
        findings = map(reported, self._findings)
        return tuple(replace(finding, message=with_arguments(finding.message)) for finding in findings)

    @property
    def exit_code(self) -> int:
        """0 for nothing found so far, else that of the worst finding (docs/reference/exit-codes.md)."""
        return exit_code_of(self._findings)

    @property
    def _findings(self) -> list[Finding]:
        found = [*self._source.findings]
        planned = {reader.plan.log.topic_partition for reader in self._readers}
        for log in self._source.logs:
            if log.topic_partition not in planned:
                found += log.findings
        for reader in self._readers:
            found += [*reader.plan.findings, *reader.findings]
        return [*found, *self._faults]

    def __repr__(self) -> str:
        return f"<records of {len(self._source.logs)} partitions, {len(self._query.columns)} columns>"
