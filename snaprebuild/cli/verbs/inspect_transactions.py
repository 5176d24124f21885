"""The verb ``inspect transactions``."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

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
    check_paths,
    clock_of,
    open_selected,
    selection_of,
)
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.verb import MeasuredOutput, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from snaprebuild.cluster.metadata.leadership import Leaderships
    from snaprebuild.documents import inspect as doc
    from snaprebuild.findings import Finding
    from snaprebuild.inspect.hang_reasons import Evidence, Explanation
    from snaprebuild.inspect.transaction_model import OpenTransaction, PartitionTransactions
    from snaprebuild.inspect.transactions import TransactionsResult
    from snaprebuild.snapshots.run import Run
    from snaprebuild.snapshots.source.source import Source

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
            help="Partitions of __transaction_state; repeatable. They show why a transaction is open, and which ones must not be "
            "aborted. Default: those in the log directories.",
        ),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            metavar="DIR",
            help="KRaft metadata log: __cluster_metadata-0 of any node, or a directory that holds it. It shows who leads, and "
            "whether an election lost a marker. Default: the one in the log directories.",
        ),
    ] = None,
    crc: CrcOption = Crc.CHECK,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    out: MeasuredOutput,
    s3: S3Options,
) -> Result:
    """Reads only: lists transactions that are open, late or empty, what they hold back, and why the late ones are open.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Every segment is read. Exit code 1 if a transaction is late, or a log lost its end. The command that aborts a
    transaction is printed only if the files show that its coordinator ended it, and that this replica leads. Commands are those
    of Kafka's own tool; they are never run.
    """
    from snaprebuild.cli.streams import bytes_progress
    from snaprebuild.cluster.scan_storage import lost_and_unread
    from snaprebuild.inspect import transactions
    from snaprebuild.inspect.coordinator_records import TransactionStates, find_transaction_states
    from snaprebuild.inspect.transactions import DEFAULT_MAX_TIMEOUT_MS, LATE_BUFFER_MS
    from snaprebuild.snapshots.source.broker_properties import milliseconds_of

    out.begin()
    check_metadata(metadata)
    check_paths([*(transaction_state or ()), *([] if metadata is None else [metadata])])
    late_ms = assumed.late_after_ms
    max_timeout_ms = assumed.max_timeout_ms
    if late_ms is not None and max_timeout_ms is not None:
        raise UsageError("--assume: late_after_ms and max_timeout_ms both set when a transaction is late; give one of them")
    source = open_selected(paths, server_properties, selection_of(topic, partition, None), s3)
    if late_ms is None:
        if max_timeout_ms is None:
            max_timeout_ms = milliseconds_of(source.properties, "transaction.max.timeout.ms", DEFAULT_MAX_TIMEOUT_MS)
        late_ms = max_timeout_ms + LATE_BUFFER_MS
    run = s3.run(clock=clock_of(source, as_of), jobs=jobs)
    states = TransactionStates(find_transaction_states(transaction_state, s3.settings())) if transaction_state else None
    leaders = _Leaders(metadata, source, run)
    started = time.perf_counter()
    with bytes_progress("reading transactions", source.size_bytes) as progress:
        result = transactions.transactions(
            source, run, late_ms, states=states, read_leaders=leaders.read, check_crc=crc is Crc.CHECK, progress=progress
        )
    seconds = time.perf_counter() - started
    in_table = frozenset({"late-transaction"})
    lost, unread = lost_and_unread(source, result.findings)
    findings = (*result.findings, *leaders.findings, *lost, *unread)
    return Result(
        lambda: _document(result, seconds),
        findings,
        lambda: _print(result, len(lost)),
        in_table=in_table,
        summary=lambda: _answer(result, len(lost)),
    )


class _Leaders:
    """The metadata log that was named, or else the one in the log directories.

    Attributes:
        findings: of the log, after it was read.
    """

    def __init__(self, named: str | None, source: Source, run: Run) -> None:
        self._named = named
        self._source = source
        self._run = run
        self.findings: tuple[Finding, ...] = ()

    def read(self, wanted: Collection[tuple[str, int]]) -> Leaderships | None:
        """The leaders of partitions; None without a log that can be read.

        Raises:
            UsageError, ReadFailedError: the log that was named cannot be read.
        """
        from snaprebuild.cluster.metadata.leadership import read_leaderships
        from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY
        from snaprebuild.errors import SnaprebuildError
        from snaprebuild.findings import finding_of_error

        if self._named is not None:
            found = read_leaderships(self._named, wanted, self._run)
            self.findings = found.findings
            return found
        for log_dir in self._source.log_dirs:
            path = os.path.join(log_dir.path, METADATA_DIRECTORY)
            try:
                if log_dir.store.names_in(path):
                    found = read_leaderships(path, wanted, self._run)
                    self.findings = found.findings
                    return found
            except SnaprebuildError as error:
                self.findings = (finding_of_error(error, path),)
        return None


def _answer(result: TransactionsResult, lost: int) -> str:
    """The first line: late transactions, and what they hold back; then all counts. The commands that end them are Kafka's own.

    ``lost``: count of findings about partitions that have lost records, and with them perhaps markers or batches of transactions.
    """
    from snaprebuild.cli.result import size_text, unless_unread
    from snaprebuild.findings import pluralize

    totals = _totals(result)
    names = [name for name, count in totals.items() if count and name != "partitions_with_late"]
    counts = ", ".join(f"{totals[name]} {name}" for name in names) or unless_unread("none", result.findings)
    if not totals["late"]:
        ending = " A log lost its end, and perhaps transactions with it: see stderr." if lost else ""
        return f"{pluralize(len(result.partitions), 'partition')}, transactions: {counts}.{ending}"
    late = [each for each in result.partitions if each.late_count]
    reasons = Counter(each.reason.value.replace("_", " ") for _, _, each in _late(result))
    why = ", ".join(f"{count} {name}" for name, count in reasons.most_common())
    not_listed = totals["late"] - reasons.total()
    if not_listed:
        why += f", {not_listed} not listed"
    answer = f"{pluralize(totals['late'], 'transaction is', 'transactions are')} late in {pluralize(len(late), 'partition')}"
    held = sum(each.segment_bytes_held for each in late)
    if held:
        answer += f"; {size_text(held)} in rolled segments cannot be uploaded meanwhile"
    return f"{answer}. All transactions: {counts}. Why: {why}."


def _document(result: TransactionsResult, seconds: float) -> doc.Transactions:
    from snaprebuild.documents import inspect as doc
    from snaprebuild.snapshots.run_record import run_record

    return doc.Transactions(
        run=run_record(each.source.log_dir for each in result.partitions),
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
    from snaprebuild.storage.partition_names import names_of

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
    explanation = transaction.explanation
    if explanation is not None and explanation.may_abort:
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
        reason=None if explanation is None else explanation.reason.value,
        reason_text=None if explanation is None else explanation.text,
        evidence=[] if explanation is None else [doc.TransactionEvidence(**asdict(each)) for each in explanation.evidence],
        missing_evidence=None if explanation is None else explanation.missing,
    )


def _print(result: TransactionsResult, lost: int) -> None:
    from snaprebuild.cli.result import labels_of, print_line, print_table, print_text, size_text, time_text
    from snaprebuild.inspect.coordinator_records import TwoPhase

    print_text(_answer(result, lost))
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
    _print_reasons(result)
    _print_commands(result)


def _late(result: TransactionsResult) -> list[tuple[PartitionTransactions, OpenTransaction, Explanation]]:
    """The late transactions that are listed."""
    listed = ((each, transaction) for each in result.partitions for transaction in each.open)
    return [(each, transaction, transaction.explanation) for each, transaction in listed if transaction.explanation is not None]


def _print_reasons(result: TransactionsResult) -> None:
    """Why each late transaction is open. Those without any evidence are counted together."""
    from snaprebuild.cli.result import is_verbose, labels_of, print_line, print_text
    from snaprebuild.findings import pluralize

    late = _late(result)
    if not late:
        return
    labels = labels_of(each.source for each in result.partitions)
    without = Counter((each.text, each.missing) for _, _, each in late if not each.evidence)
    known = [each for each in late if each[2].evidence]
    print_text("Why the late ones are open:")
    print_line("")
    for partition, transaction, explanation in known if is_verbose() else known[:COMMANDS_SHOWN_MAX]:
        reason = explanation.reason.value.replace("_", " ")
        print_text(
            f"  {labels[partition.source.path]} from {transaction.first_offset}: {reason}. {explanation.text}", indent="    "
        )
        for fact in explanation.evidence:
            print_text(f"    - {_fact_text(fact)}", indent="      ")
        if explanation.missing is not None:
            print_text(f"    - to know more: {explanation.missing}", indent="      ")
    more = 0 if is_verbose() else len(known) - COMMANDS_SHOWN_MAX
    if more > 0:
        print_line(f"  and {more:,} more: -v or --output json")
    for (text, missing), count in without.items():
        print_text(f"  {pluralize(count, 'transaction')}: unknown. {text} To know more: {missing}.", indent="    ")
    print_line("")


def _fact_text(fact: Evidence) -> str:
    """A fact with its place and time."""
    from snaprebuild.cli.result import time_text

    place = os.path.basename(fact.path)
    if fact.offset is not None:
        place += f" offset {fact.offset}"
    if fact.timestamp_ms is not None and fact.timestamp_ms >= 0:
        place += f", {time_text(fact.timestamp_ms)}"
    return f"{fact.what} ({place})"


def _print_commands(result: TransactionsResult) -> None:
    """Aborts of transactions that are over, and for the other late ones the question to the coordinators."""
    from snaprebuild.cli.result import is_verbose, print_line, print_text
    from snaprebuild.inspect.coordinator_records import TwoPhase
    from snaprebuild.inspect.transactions import abort_commands, find_hanging_command

    late = _late(result)
    over = [(each, transaction) for each, transaction, explanation in late if explanation.may_abort]
    if over:
        print_text(
            "Commands that abort the transactions that are over; they were not run. For brokers since 3.0, and after # for older ones "
            "(before 2.8 with the tool of Kafka 3: that of Kafka 4 does not reach them):"
        )
        print_line("")
        for each, transaction in over if is_verbose() else over[:COMMANDS_SHOWN_MAX]:
            new, old = abort_commands(each.source, transaction)
            print_line(f"  {new}\n  # {old}")
        _print_more(len(over))
    others = [(each, transaction) for each, transaction, explanation in late if not explanation.may_abort]
    asked = list(dict.fromkeys(find_hanging_command(each.source) for each, _ in others))
    if asked:
        text = (
            "No abort is printed for a transaction that may still be alive, or of a replica that may not lead. Ask the coordinators"
        )
        if any(transaction.two_phase is TwoPhase.UNKNOWN for _, transaction in others):
            text += " (brokers since 3.0), and abort none that is under two-phase commit (KIP-939): its TransactionTimeoutMs is 2147483647:"
        else:
            text += " (brokers since 3.0):"
        print_text(text)
        print_line("")
        for command in asked if is_verbose() else asked[:COMMANDS_SHOWN_MAX]:
            print_line(f"  {command}")
        _print_more(len(asked))


def _print_more(count: int) -> None:
    """Ends a list of commands."""
    from snaprebuild.cli.result import is_verbose, print_line

    more = 0 if is_verbose() else count - COMMANDS_SHOWN_MAX
    print_line(f"  and {more:,} more: -v or --output json\n" if more > 0 else "")
