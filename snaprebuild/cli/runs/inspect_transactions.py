"""The work of the verb ``inspect transactions``."""

from __future__ import annotations

import time

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import LogOptions, S3Options
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.rebuild import Crc
from snaprebuild.cli.render.inspect import TransactionsView
from snaprebuild.cli.runs.run_settings import run_of, stores_of
from snaprebuild.cli.runs.sources import clock_of, open_logs
from snaprebuild.cli.streams import bytes_progress
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import lost_and_unread
from snaprebuild.errors import UsageError
from snaprebuild.inspect.coordinator_records import TransactionStates, find_transaction_states
from snaprebuild.inspect.leader_reader import LeaderReader
from snaprebuild.inspect.transactions import DEFAULT_MAX_TIMEOUT_MS, LATE_BUFFER_MS, read_transactions
from snaprebuild.snapshots.source.broker_properties import milliseconds_of

__all__ = ["run_inspect_transactions"]


def run_inspect_transactions(
    *,
    logs: LogOptions,
    late_after_ms: int | None,
    max_timeout_ms: int | None,
    as_of: str | None,
    transaction_state: list[str] | None,
    metadata: str | None,
    crc: Crc,
    jobs: int | None,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads open, late and empty transactions, and why they are open."""
    out.begin()
    check_metadata(metadata)
    check_directories([*(transaction_state or ()), *([] if metadata is None else [metadata])])
    if late_after_ms is not None and max_timeout_ms is not None:
        raise UsageError("--assume: late_after_ms and max_timeout_ms both set when a transaction is late; give one of them")
    source = open_logs(logs, s3)
    if late_after_ms is None:
        if max_timeout_ms is None:
            max_timeout_ms = milliseconds_of(source.properties, "transaction.max.timeout.ms", DEFAULT_MAX_TIMEOUT_MS)
        late_after_ms = max_timeout_ms + LATE_BUFFER_MS
    run = run_of(s3, clock=clock_of(source, as_of), jobs=jobs)
    if transaction_state:
        states = TransactionStates(find_transaction_states(transaction_state, stores_of(s3)))
    else:
        states = None
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
