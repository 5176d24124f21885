"""The verb ``inspect transactions``."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec

from formats.limits import INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import (
    Duration,
    Jobs,
    Partition,
    Paths,
    S3Options,
    ServerProperties,
    Topic,
    check_directories,
    clock_of,
    open_selected,
    selection_of,
)
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.streams import bytes_progress
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

__all__ = ["inspect_transactions"]


class TransactionAssumptions(msgspec.Struct, frozen=True):
    """What the log does not show."""

    late_after_ms: Annotated[
        int | None,
        Assumption(
            Duration(0, INT64_MAX),
            OptionText(
                short="Time without a batch after which a transaction is late (ms, or 30m)",
                risk="with less, live transactions are reported as late",
                default="max_timeout_ms and five minutes, as brokers count",
            ),
        ),
    ] = None
    max_timeout_ms: Annotated[
        int | None,
        Assumption(
            Duration(1, INT64_MAX),
            OptionText(
                short="transaction.max.timeout.ms of the brokers (ms, or 15m)",
                risk="with less, live transactions are reported as late",
                default="that of --server-properties, else 900000 (15 minutes)",
            ),
        ),
    ] = None


@verb(Load)
def inspect_transactions(
    *,
    paths: Paths = None,
    server_properties: ServerProperties = None,
    assumed: TransactionAssumptions,
    as_of: Annotated[
        str | None,
        option(
            "--as-of",
            metavar="TIME",
            short="Time at which transactions are late: ISO 8601 (UTC without a zone), milliseconds since 1970, or now",
            default="now",
        ),
    ] = None,
    transaction_state: Annotated[
        list[str] | None,
        option(
            "--transaction-state",
            metavar="DIR",
            short="Partitions of __transaction_state; repeatable",
            details="They show why a transaction is open, and which ones must not be aborted.",
            default="those in the log directories",
        ),
    ] = None,
    metadata: Annotated[
        str | None,
        option(
            "--metadata",
            metavar="DIR",
            short="KRaft metadata log: __cluster_metadata-0 of any node, or a directory that holds it",
            details="It shows who leads, and whether an election lost a marker.",
            default="the one in the log directories",
        ),
    ] = None,
    crc: CrcOption = Crc.CHECK,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: lists transactions that are open, late or empty, what they hold back, and why the late ones are open.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Every segment is read. Exit code 1 if a transaction is late, or a log lost its end. The command that aborts a
    transaction is printed only if the files show that its coordinator ended it, and that this replica leads. Commands are those
    of Kafka's own tool; they are never run.
    """
    from snaprebuild.cli.render.inspect import TransactionsView
    from snaprebuild.cluster.scan_storage import lost_and_unread
    from snaprebuild.inspect.coordinator_records import TransactionStates, find_transaction_states
    from snaprebuild.inspect.leader_reader import LeaderReader
    from snaprebuild.inspect.transactions import DEFAULT_MAX_TIMEOUT_MS, LATE_BUFFER_MS, read_transactions
    from snaprebuild.snapshots.source.broker_properties import milliseconds_of

    out.begin()
    check_metadata(metadata)
    check_directories([*(transaction_state or ()), *([] if metadata is None else [metadata])])
    late_after_ms = assumed.late_after_ms
    max_timeout_ms = assumed.max_timeout_ms
    if late_after_ms is not None and max_timeout_ms is not None:
        raise UsageError("--assume: late_after_ms and max_timeout_ms both set when a transaction is late; give one of them")
    source = open_selected(paths, server_properties, selection_of(topic, partition, None), s3)
    if late_after_ms is None:
        if max_timeout_ms is None:
            max_timeout_ms = milliseconds_of(source.properties, "transaction.max.timeout.ms", DEFAULT_MAX_TIMEOUT_MS)
        late_after_ms = max_timeout_ms + LATE_BUFFER_MS
    run = s3.run(clock=clock_of(source, as_of), jobs=jobs)
    states = TransactionStates(find_transaction_states(transaction_state, s3.settings())) if transaction_state else None
    leaders = LeaderReader(metadata, source, run)
    started = time.perf_counter()
    with bytes_progress("reading transactions", source.size_bytes) as progress:
        result = read_transactions(
            source, run, late_after_ms, states=states, read_leaders=leaders.read, check_crc=crc is Crc.CHECK, progress=progress
        )
    seconds = time.perf_counter() - started
    lost, unread = lost_and_unread(source, result.findings)
    findings = (*result.findings, *leaders.findings, *lost, *unread)
    return TransactionsView(result, seconds, findings, len(lost))
