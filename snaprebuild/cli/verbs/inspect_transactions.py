"""The verb ``inspect transactions``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.facts import run_facts
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import (
    Duration,
    Jobs,
    Partition,
    Paths,
    S3Options,
    ServerProperties,
    Topic,
    check_paths,
    clock_of,
    open_selected,
    selection_of,
)
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.verb import MeasuredOutput, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.documents import inspect as doc
    from snaprebuild.inspect.transactions import OpenTransaction, PartitionTransactions, TransactionsResult

__all__ = ["inspect_transactions"]

COMMANDS_SHOWN_MAX = 20
"""Commands that the tables show; the JSON document has those of all that it lists."""


class TransactionAssumptions(msgspec.Struct, frozen=True):
    """What the log does not show."""

    late_after_ms: Annotated[
        int | None,
        Assumption(
            Duration(0, INT64_MAX),
            "Time without a batch after which a transaction is late (ms, or 30m). Risk: with less, live transactions are "
            "reported as late. Default: max_timeout_ms and five minutes, as brokers count.",
        ),
    ] = None
    max_timeout_ms: Annotated[
        int | None,
        Assumption(
            Duration(1, INT64_MAX),
            "transaction.max.timeout.ms of the brokers (ms, or 15m). Risk: with less, live transactions are reported as late. "
            "Default: that of --server-properties, else 900000 (15 minutes).",
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
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="Time at which transactions are late: ISO 8601 (UTC without a zone), milliseconds since 1970, or now. "
            "Default: now.",
        ),
    ] = None,
    transaction_state: Annotated[
        list[str] | None,
        typer.Option(
            "--transaction-state",
            metavar="DIR",
            help="Partitions of __transaction_state; repeatable. They show which transactions are under two-phase commit and "
            "must not be aborted. Default: those below PATH.",
        ),
    ] = None,
    crc: CrcOption = Crc.CHECK,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    out: MeasuredOutput,
    s3: S3Options,
) -> Result:
    """Reads only: lists transactions that are open, late or empty, what they hold back, and the command that would abort them.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Every segment is read. Exit code 1 if a transaction is late. The commands are those of Kafka's own tool; they are
    printed and never run. Look first whether the coordinator still knows the transaction: kafka-transactions.sh find-hanging
    asks it.
    """
    from snaprebuild.cli.streams import bytes_progress
    from snaprebuild.inspect import transactions
    from snaprebuild.inspect.transactions import DEFAULT_MAX_TIMEOUT_MS, LATE_BUFFER_MS, TransactionStates, find_transaction_states
    from snaprebuild.snapshots.run import Run
    from snaprebuild.snapshots.source.broker_properties import milliseconds_of

    out.begin()
    check_paths(transaction_state)
    late_ms, max_timeout_ms = assumed.late_after_ms, assumed.max_timeout_ms
    if late_ms is not None and max_timeout_ms is not None:
        raise UsageError("--assume: late_after_ms and max_timeout_ms both set when a transaction is late; give one of them")
    source = open_selected(paths, server_properties, selection_of(topic, partition, None), s3)
    if late_ms is None:
        if max_timeout_ms is None:
            max_timeout_ms = milliseconds_of(source.properties, "transaction.max.timeout.ms", DEFAULT_MAX_TIMEOUT_MS)
        late_ms = max_timeout_ms + LATE_BUFFER_MS
    run = Run(facts=run_facts(), clock=clock_of(source, as_of), jobs=jobs)
    states = TransactionStates(find_transaction_states(transaction_state, s3.settings())) if transaction_state else None
    started = time.perf_counter()
    with bytes_progress("reading transactions", source.size_bytes) as progress:
        check_crc = crc is Crc.CHECK
        result = transactions.transactions(source, run, late_ms, states=states, check_crc=check_crc, progress=progress)
    seconds = time.perf_counter() - started
    in_table = frozenset({"late-transaction"})
    return Result(
        lambda: _document(result, seconds),
        result.findings,
        lambda: _print(result),
        in_table=in_table,
        summary=lambda: _answer(result),
    )


def _answer(result: TransactionsResult) -> str:
    """The first line: late transactions, and what they hold back; then all counts. The commands that end them are Kafka's own."""
    from snaprebuild.cli.result import size_text, unless_unread
    from snaprebuild.findings import pluralize

    totals = _totals(result)
    names = [name for name, count in totals.items() if count and name != "partitions_with_late"]
    counts = ", ".join(f"{totals[name]} {name}" for name in names) or unless_unread("none", result.findings)
    if not totals["late"]:
        return f"{pluralize(len(result.partitions), 'partition')}, transactions: {counts}."
    late = [each for each in result.partitions if each.late_count]
    answer = f"{pluralize(totals['late'], 'transaction is', 'transactions are')} late in {pluralize(len(late), 'partition')}"
    held = sum(each.segment_bytes_held for each in late)
    if held:
        answer += f"; {size_text(held)} in rolled segments cannot be uploaded meanwhile"
    return f"{answer}. All transactions: {counts}."


def _document(result: TransactionsResult, seconds: float) -> doc.Transactions:
    from snaprebuild.documents import inspect as doc
    from snaprebuild.documents.run_facts import run_of

    return doc.Transactions(
        run=run_of(each.source.log_dir for each in result.partitions),
        as_of_ms=result.as_of_ms,
        late_after_ms=result.late_ms,
        elapsed_seconds=round(seconds, 4),
        totals=doc.TransactionSums(**_totals(result)),
        partitions=[_partition(each) for each in result.partitions],
    )


def _totals(result: TransactionsResult) -> dict[str, int]:
    counts = [_counts(each) for each in result.partitions]
    totals = {name: sum(each[name] for each in counts) for name in ("committed", "aborted", "empty", "unknown", "open", "late")}
    return {**totals, "partitions_with_late": sum(partition.counts_as_late for partition in result.partitions)}


def _counts(partition: PartitionTransactions) -> dict[str, int]:
    return {**asdict(partition.counts), "open": partition.open_count, "late": partition.late_count}


def _partition(partition: PartitionTransactions) -> doc.PartitionTransactions:
    from snaprebuild.documents import inspect as doc
    from snaprebuild.documents.common import names_of

    return doc.PartitionTransactions(
        **names_of(partition.source.directory),
        path=partition.source.path,
        can_be_tiered=partition.source.can_be_tiered,
        log_end_offset=partition.log_end_offset,
        last_stable_offset=partition.last_stable_offset,
        totals=doc.TransactionTotals(**_counts(partition)),
        counts_as_late=partition.counts_as_late,
        held_offsets=partition.offsets_held,
        held_bytes=partition.bytes_held,
        held_segments=partition.segments_held,
        held_segment_bytes=partition.segment_bytes_held,
        open=[_open(partition, each) for each in partition.open],
        read_bytes=partition.bytes_read,
    )


def _open(partition: PartitionTransactions, transaction: OpenTransaction) -> doc.OpenTransaction:
    from snaprebuild.documents import inspect as doc
    from snaprebuild.inspect.transactions import abort_commands

    commands = None
    if transaction.is_late:
        since_3_0, before_3_0 = abort_commands(partition.source, transaction)
        commands = doc.AbortCommands(since_3_0=since_3_0, before_3_0=before_3_0)
    return doc.OpenTransaction(
        first_offset=transaction.first_offset,
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
        coordinator_epoch=transaction.coordinator_epoch,
        since_ms=transaction.since_ms,
        last_ms=transaction.last_ms,
        is_late=transaction.is_late,
        may_have_begun_before=transaction.may_have_begun_before,
        position_bytes=transaction.position_bytes,
        abort_commands=commands,
        two_phase=transaction.two_phase.value,
        transactional_id=transaction.transactional_id,
        timeout_ms=transaction.timeout_ms,
    )


def _print(result: TransactionsResult) -> None:
    from snaprebuild.cli.result import labels_of, print_line, print_table, print_text, size_text, time_text
    from snaprebuild.inspect.transactions import TwoPhase

    print_text(_answer(result))
    print_line("")
    labels = labels_of(each.source for each in result.partitions)
    rows: list[tuple[object, ...]] = []
    open_rows: list[tuple[object, ...]] = []
    for each in result.partitions:
        counts = (*asdict(each.counts).values(), each.open_count, each.late_count)
        label = labels[each.source.path]
        if any(counts):
            stable = "-" if each.last_stable_offset is None else each.last_stable_offset
            size = "unknown" if each.bytes_held is None else size_text(each.bytes_held)
            held = (each.offsets_held, size, each.segments_held) if each.open_count else ("-", "-", "-")
            rows.append((label, *(count or "-" for count in counts), stable, *held))
        for transaction in each.open:
            since, last = ("-" if at is None else time_text(at) for at in (transaction.since_ms, transaction.last_ms))
            what = "late" if transaction.is_late else "open"
            if transaction.two_phase is TwoPhase.YES:
                what = "two-phase commit, may be prepared: never expires"
            elif transaction.timeout_ms is not None:
                what += f"; timeout {transaction.timeout_ms} ms"
            if transaction.transactional_id is not None:
                what += f"; transactional id {transaction.transactional_id}"
            if transaction.may_have_begun_before:
                what += "; may have begun below the first segment"
            open_rows.append((label, transaction.first_offset, transaction.producer_id, transaction.epoch, since, last, what))
        if each.open_count > len(each.open):
            open_rows.append((label, "...", "", "", "", "", f"and {each.open_count - len(each.open)} more"))
    if rows:
        names = ("committed", "aborted", "empty", "unknown", "open", "late", "last stable", "held offsets", "held", "held segments")
        drop = ("unknown", "empty", "held offsets", "held segments", "aborted", "committed", "last stable")
        print_table("Transactions", ("partition", *names), rows, right=names, drop=drop)
    if open_rows:
        columns = ("partition", "from offset", "producer id", "epoch", "since", "last batch", "state")
        print_table("Open transactions", columns, open_rows, right=("from offset", "producer id", "epoch"), drop=("epoch", "since"))
    _print_commands(result)


def _print_commands(result: TransactionsResult) -> None:
    from snaprebuild.cli.result import is_verbose, print_line, print_text
    from snaprebuild.inspect.transactions import TwoPhase, abort_commands

    late = [(each, transaction) for each in result.partitions for transaction in each.open if transaction.is_late]
    if not late:
        return
    print_text(
        "Commands that would abort the late ones; they were not run. For brokers since 3.0, and after # for older ones "
        "(before 2.8 with the tool of Kafka 3: that of Kafka 4 does not reach them):"
    )
    print_line("")
    if any(transaction.two_phase is TwoPhase.UNKNOWN for _, transaction in late):
        print_text(
            "Check first that none is under two-phase commit (KIP-939): a prepared transaction never expires, and its abort loses data. "
            "`kafka-transactions.sh list` names its transactional id, and `describe --transactional-id ID` shows TransactionTimeoutMs "
            "2147483647 for it; "
            "--transaction-state DIR reads it here. No command is printed for those."
        )
        print_line("")
    listed = late if is_verbose() else late[:COMMANDS_SHOWN_MAX]
    for each, transaction in listed:
        new, old = abort_commands(each.source, transaction)
        print_line(f"  {new}\n  # {old}")
    more = len(late) - len(listed)
    print_line(f"  and {more:,} more: -v or --output json\n" if more > 0 else "")
