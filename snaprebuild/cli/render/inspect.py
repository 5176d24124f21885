"""The results of the ``inspect`` verbs that replay logs or compare snapshots: their documents, first lines and tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence

from msgspec.structs import asdict

from formats.partition.file_names import snapshot_file_name
from snaprebuild.cli.answer import EXPIRY, SELECTION, given_words, none_read, unless_unread
from snaprebuild.cli.printing import is_verbose, print_line, print_table, print_text
from snaprebuild.cli.value_text import labels_of, size_text, time_text
from snaprebuild.cli.view import Advice, Answer, View
from snaprebuild.documents.inspect import Diff, Explain, Transactions
from snaprebuild.findings import Finding, pluralize
from snaprebuild.inspect.coordinator_records import TwoPhase
from snaprebuild.inspect.diff import DiffKind, SnapshotDiff
from snaprebuild.inspect.explain import ExplainedPartition, ExplainResult
from snaprebuild.inspect.hang_reasons import HangReason, TransactionEvidence
from snaprebuild.inspect.kafka_transactions_tool import find_hanging_command
from snaprebuild.inspect.transaction_model import OngoingTransaction, PartitionTransactions
from snaprebuild.inspect.transactions import TransactionsResult
from snaprebuild.snapshots.run import run_record

__all__ = ["DiffView", "ExplainView", "TransactionsView"]


# ------------------------------------------------------------------------------------------------------------------ inspect diff

ENTRIES_SHOWN_MAX = 10
"""Producers that the table of a comparison lists without ``-v``."""

ONLY_IN = {DiffKind.ONLY_IN_A: "only in A", DiffKind.ONLY_IN_B: "only in B"}


class DiffView(View):
    """Two snapshots compared."""

    codes_in_table = frozenset({"snapshots-differ"})

    def __init__(self, result: SnapshotDiff) -> None:
        super().__init__(result.findings)
        self._result = result

    def document(self) -> Diff:
        """The document of ``inspect diff``."""
        result = self._result
        clock = result.clock
        return Diff(
            as_of_ms=None if clock is None else clock.as_of_ms,
            expiration_ms=None if clock is None else clock.expiration_ms,
            status=result.status,
            a=result.a,
            b=result.b,
            totals=result.totals,
            entries=result.entries,
            entries_not_listed=result.entries_not_listed,
        )

    def print_table(self) -> None:
        """Prints both sides, and the producers that differ."""
        result = self._result
        counts = [(DiffKind(name), count) for name, count in asdict(result.totals).items() if count]
        texts = ", ".join(f"{count} {ONLY_IN.get(kind, 'changed')}" for kind, count in counts)
        print_text(f"{result.status.value.replace('_', ' ')}{': ' if texts else ''}{texts}")
        print_line("")
        rows = []
        for name, side in (("A", result.a), ("B", result.b)):
            rows.append((name, side.entries, side.expired_entries, side.size_bytes, side.path))
        print_table(None, ("", "entries", "expired", "bytes", "file"), rows, right=("entries", "expired", "bytes"))
        self._print_entries()
        if None not in (result.a.offset, result.b.offset) and result.a.offset != result.b.offset:
            print_text(
                f"A is the state at offset {result.a.offset}, B at {result.b.offset}: producers that wrote between the two offsets "
                "differ, as expected."
            )

    def _print_entries(self) -> None:
        result = self._result
        entries = result.entries if is_verbose() else result.entries[:ENTRIES_SHOWN_MAX]
        if entries:
            print_text("Producers that differ, and what B costs if A is right")
        for entry in entries:
            print_text(f" {entry.producer_id}: {ONLY_IN.get(entry.kind, 'changed')}; {entry.consequence}", "     ")
            if entry.kind is DiffKind.CHANGED:
                for name, value in entry.a.items():
                    print_text(f"     {name.replace('_', ' '):<26}{value:>20} -> {entry.b[name]}")
        more = result.totals.all - len(entries)
        if more:
            print_text(f"and {more:,} more: -v or --output json")


# --------------------------------------------------------------------------------------------------------------- inspect explain

DETAILED_MAX = 3
"""Partitions that the tables explain at length; the JSON document does so with all."""


class ExplainView(View):
    """One producer explained, in each partition that has it."""

    def __init__(self, result: ExplainResult, seconds: float, findings: Sequence[Finding]) -> None:
        """Takes the result.

        Args:
            result: the explanations.
            seconds: that they took.
            findings: of the explanations, and of what the next start does to the partitions.
        """
        super().__init__(findings)
        self._result = result
        self._seconds = seconds

    def document(self) -> Explain:
        """The document of ``inspect explain``."""
        result = self._result
        question = result.question
        return Explain(
            producer_id=question.producer_id,
            requested_offset=question.requested_offset,
            broker_version=_version_text(result),
            as_of_ms=result.clock.as_of_ms,
            expiration_ms=result.clock.expiration_ms,
            elapsed_seconds=round(self._seconds, 4),
            partitions_read=result.partitions_read,
            partitions=[each.explained for each in result.partitions],
        )

    def answer(self) -> Answer:
        """In how many partitions the producer is, and whether a snapshot has another entry than the log."""
        result = self._result
        if not result.partitions_read:
            return none_read(self.findings)
        known = sum(each.is_known for each in result.partitions)
        differing = sum(len(each.explained.snapshots.differing) for each in result.partitions)
        where = f"{known} of {pluralize(result.partitions_read, 'partition')}"
        others = f"{pluralize(differing, 'snapshot')} with another entry than the log"
        answer = f"Producer {result.question.producer_id} is in {where}; {others}."
        if not differing:
            return answer, Advice("nothing to correct for this producer")
        return answer, ["verify", *given_words(*SELECTION, *EXPIRY)]

    def print_table(self) -> None:
        """Prints the entry in each partition, and for a few partitions the batches and the answers."""
        result = self._result
        if not result.partitions:
            return
        labels = labels_of(each.source for each in result.partitions)
        rows = [(labels[each.source.directory.path], *_entry_cells(each.explained)) for each in result.partitions]
        columns = ("partition", "at", "epoch", "last sequence", "last offset", "open from", "expires", "class", "snapshots")
        right = ("at", "epoch", "last sequence", "last offset", "open from")
        drop = ("epoch", "last sequence", "last offset")
        print_table(f"Producer {result.question.producer_id}", columns, rows, right=right, drop=drop)
        if len(result.partitions) > DETAILED_MAX:
            print_text(
                f"Name --topic and --partition ({DETAILED_MAX} partitions at most) to see batches and answers; --output json has all."
            )
            return
        for each in result.partitions:
            _print_set_by(each.explained, labels[each.source.directory.path])
            _print_answers(each.explained, labels[each.source.directory.path], _version_text(result))


def _version_text(result: ExplainResult) -> str:
    return ".".join(map(str, result.question.broker_version))


def _entry_cells(explained: ExplainedPartition) -> tuple[object, ...]:
    entry = explained.entry
    snapshot_class = "-" if explained.snapshot_class is None else explained.snapshot_class.value
    if entry is None:
        return (explained.offset, *[None] * 5, snapshot_class, _snapshots_text(explained))
    if explained.expires_at_ms is None:
        expires = "never: its transaction is open"
    else:
        expires = time_text(explained.expires_at_ms)
    expires += " (expired)" if explained.expired else ""
    numbers = (entry.epoch, *map(_dash, (entry.last_sequence, entry.last_offset, entry.current_txn_first_offset)))
    return (explained.offset, *numbers, expires, snapshot_class, _snapshots_text(explained))


def _dash(value: int) -> object:
    """A field of an entry; ``-`` for -1, which means none."""
    return "-" if value < 0 else value


def _snapshots_text(explained: ExplainedPartition) -> str:
    counts = [f"{count} {status.replace('_', ' ')}" for status, count in asdict(explained.snapshots.totals).items() if count]
    listed = [f"{each.status.replace('_', ' ')} at {each.offset}" for each in explained.snapshots.differing[:3]]
    return "; ".join([", ".join(counts) or "none", *(listed if len(counts) > 1 else ())])


def _print_set_by(explained: ExplainedPartition, label: str) -> None:
    """Prints the batch that set each field of the entry."""
    if explained.entry is None:
        return
    rows: list[tuple[object, ...]] = []
    for name, value in asdict(explained.entry).items():
        if name == "producer_id":
            continue
        batch = explained.set_by.get(name)
        place: tuple[object, ...] = ("-", "", "", "")
        if batch is not None:
            place = (batch.segment, batch.position_bytes, batch.base_offset, batch.kind.replace("_", " "))
        elif explained.base_snapshot_offset is not None:
            place = (snapshot_file_name(explained.base_snapshot_offset), "", "", "")
        rows.append((name.replace("_", " "), value, *place))
    columns = ("field", "value", "set by", "byte", "base offset", "batch")
    print_table(f"What set it in {label}", columns, rows, right=("value", "byte", "base offset"), drop=("byte",))


def _print_answers(explained: ExplainedPartition, label: str, version: str) -> None:
    """Prints what a broker answers to the next batches of the producer."""
    rows: list[tuple[object, ...]] = []
    for each in explained.answers:
        moments = [("while it runs", each.running), ("after a start", each.restarted)]
        if each.running == each.restarted:
            moments = [("always", each.running)]
        for when, answer in moments:
            sequence = _dash(each.base_sequence)
            rows.append((each.batch, each.epoch, sequence, when, answer.answer.value, answer.reason))
    if rows:
        title = f"What a {version} broker answers in {label}"
        columns = ("batch", "epoch", "sequence", "when", "answer", "because")
        print_table(title, columns, rows, right=("epoch", "sequence"), drop=("epoch", "sequence"), all_rows=True)


# ---------------------------------------------------------------------------------------------------------- inspect transactions

COMMANDS_SHOWN_MAX = 20
"""Commands that the tables show; the JSON document has those of all that it lists."""

LateTransactions = list[tuple[PartitionTransactions, OngoingTransaction, HangReason]]


class TransactionsView(View):
    """The transactions of partitions."""

    codes_in_table = frozenset({"late-transaction"})

    def __init__(self, result: TransactionsResult, seconds: float, findings: Sequence[Finding], lost_count: int) -> None:
        """Takes the result.

        Args:
            result: the transactions.
            seconds: that they took.
            findings: of the transactions, and of what the next start does to the partitions.
            lost_count: count of findings about partitions that have lost records, and with them perhaps markers or batches.
        """
        super().__init__(findings)
        self._result = result
        self._seconds = seconds
        self._lost_count = lost_count

    def document(self) -> Transactions:
        """The document of ``inspect transactions``."""
        result = self._result
        return Transactions(
            run=run_record(each.source.log_dir for each in result.partitions),
            as_of_ms=result.as_of_ms,
            late_after_ms=result.late_after_ms,
            elapsed_seconds=round(self._seconds, 4),
            totals=result.totals(),
            partitions=[each.reported for each in result.partitions],
        )

    def answer(self) -> Answer:
        """Late transactions, and what they hold back; then all counts. The commands that end them are Kafka's own."""
        if not self._result.partitions:
            return none_read(self.findings)
        if any(each.reported.totals.late for each in self._result.partitions):
            return self._text(), Advice("use Kafka's commands, which are listed below")
        # Not "nothing to do": a start of the broker is not judged here.
        return self._text(), Advice("no transaction needs an action")

    def _text(self) -> str:
        result = self._result
        totals = asdict(result.totals())
        del totals["partitions_with_late"]
        counts = ", ".join(f"{count} {name}" for name, count in totals.items() if count) or unless_unread("none", result.findings)
        if not totals["late"]:
            ending = " A log lost its end, and perhaps transactions with it: see stderr." if self._lost_count else ""
            return f"{pluralize(len(result.partitions), 'partition')}, transactions: {counts}.{ending}"
        with_late = [each for each in result.partitions if each.reported.totals.late]
        reasons = Counter(reason.value.replace("_", " ") for _, _, reason in _late_transactions(result.partitions))
        reasons_text = ", ".join(f"{count} {name}" for name, count in reasons.most_common())
        not_listed = totals["late"] - reasons.total()
        if not_listed:
            reasons_text += f", {not_listed} not listed"
        late = pluralize(totals["late"], "transaction is", "transactions are")
        answer = f"{late} late in {pluralize(len(with_late), 'partition')}"
        held_bytes = sum(each.reported.held_segment_bytes for each in with_late)
        if held_bytes:
            answer += f"; {size_text(held_bytes)} in rolled segments cannot be uploaded meanwhile"
        return f"{answer}. All transactions: {counts}. Why: {reasons_text}."

    def print_table(self) -> None:
        """Prints the transactions of each partition, the open ones, why they are open, and the commands that end them."""
        partitions = self._result.partitions
        labels = labels_of(each.source for each in partitions)
        _print_counts(partitions, labels)
        _print_open(partitions, labels)
        late = _late_transactions(partitions)
        if late:
            _print_reasons(late, labels)
        _print_aborts(late)
        _print_questions(late)


def _late_transactions(partitions: Collection[PartitionTransactions]) -> LateTransactions:
    """The late transactions that are listed, each with its reason."""
    listed = ((each, transaction) for each in partitions for transaction in each.reported.open)
    return [(each, transaction, transaction.hang_reason) for each, transaction in listed if transaction.hang_reason is not None]


def _print_counts(partitions: Collection[PartitionTransactions], labels: dict[str, str]) -> None:
    rows: list[tuple[object, ...]] = []
    for each in partitions:
        counts = asdict(each.reported.totals).values()
        if not any(counts):
            continue
        stable = each.reported.last_stable_offset
        held_cells: tuple[object, ...] = ("-", "-", "-")
        if each.reported.totals.open:
            size = "unknown" if each.reported.held_bytes is None else size_text(each.reported.held_bytes)
            waiting = size_text(each.reported.held_segment_bytes) if each.reported.held_segment_bytes else "-"
            held_cells = (each.reported.held_offsets, size, waiting)
        rows.append((labels[each.source.directory.path], *(count or "-" for count in counts), stable, *held_cells))
    if rows:
        names = ("committed", "aborted", "empty", "unknown", "open", "late", "last stable", "held offsets", "held", "cannot upload")
        drop = ("unknown", "empty", "held offsets", "held", "aborted", "committed", "last stable")
        print_table("Transactions", ("partition", *names), rows, right=names, drop=drop)


def _print_open(partitions: Collection[PartitionTransactions], labels: dict[str, str]) -> None:
    rows: list[tuple[object, ...]] = []
    for each in partitions:
        label = labels[each.source.directory.path]
        for transaction in each.reported.open:
            since, last = ("-" if ms is None else time_text(ms) for ms in (transaction.since_ms, transaction.last_ms))
            names = (label, transaction.first_offset, transaction.producer_id, transaction.epoch)
            rows.append((*names, since, last, _state_text(transaction)))
        if each.reported.totals.open > len(each.reported.open):
            rows.append((label, "...", "", "", "", "", f"and {each.reported.totals.open - len(each.reported.open)} more"))
    if rows:
        columns = ("partition", "from offset", "producer id", "epoch", "since", "last batch", "state")
        print_table("Open transactions", columns, rows, right=("from offset", "producer id", "epoch"), drop=("epoch", "since"))
    earlier = sum(_ends_before_it_begins(one) for each in partitions for one in each.reported.open)
    if earlier:
        count = pluralize(earlier, "transaction has", "transactions have")
        print_text(f"Clients set these times: {count} a last batch with an earlier time than the first.")


def _ends_before_it_begins(transaction: OngoingTransaction) -> bool:
    """Whether the last batch has an earlier timestamp than the first."""
    return transaction.since_ms is not None and transaction.last_ms is not None and transaction.last_ms < transaction.since_ms


def _state_text(transaction: OngoingTransaction) -> str:
    text = "late" if transaction.is_late else "open"
    if transaction.two_phase is TwoPhase.YES:
        text = "two-phase commit, may be prepared: never expires"
    elif transaction.timeout_ms is not None:
        text += f"; timeout {transaction.timeout_ms} ms"
    if transaction.transactional_id is not None:
        text += f"; transactional id {transaction.transactional_id}"
    if transaction.may_have_begun_before:
        text += "; may have begun below the first segment"
    return text


def _print_reasons(late: LateTransactions, labels: dict[str, str]) -> None:
    """Prints why each late transaction is open. Those without any evidence are counted together."""
    without = Counter((each.reason, each.missing_evidence) for _, each, _ in late if not each.facts)
    proven = [each for each in late if each[1].facts]
    print_text("Why the late ones are open:")
    print_line("")
    shown_max = len(proven) if is_verbose() else COMMANDS_SHOWN_MAX
    for partition, transaction, reason in proven[:shown_max]:
        label = labels[partition.source.directory.path]
        text = f"{reason.value.replace('_', ' ')}. {transaction.reason}"
        print_text(f"  {label} from {transaction.first_offset}: {text}", indent="    ")
        for fact in transaction.facts:
            print_text(f"    - {_fact_text(fact)}", indent="      ")
        if transaction.missing_evidence is not None:
            print_text(f"    - to know more: {transaction.missing_evidence}", indent="      ")
    if len(proven) > shown_max:
        print_line(f"  and {len(proven) - shown_max:,} more: -v or --output json")
    for (reason_text, missing), count in without.items():
        print_text(f"  {pluralize(count, 'transaction')}: unknown. {reason_text} To know more: {missing}.", indent="    ")
    print_line("")


def _fact_text(fact: TransactionEvidence) -> str:
    """A fact with its place and time."""
    place = os.path.basename(fact.path)
    if fact.offset is not None:
        place += f" offset {fact.offset}"
    if fact.timestamp_ms is not None and fact.timestamp_ms >= 0:
        place += f", {time_text(fact.timestamp_ms)}"
    return f"{fact.what} ({place})"


def _print_aborts(late: LateTransactions) -> None:
    """Prints the commands that abort the transactions that are over."""
    commands = [each.abort_commands for _, each, _ in late if each.abort_commands is not None]
    if not commands:
        return
    print_text(
        "Commands that abort the transactions that are over; they were not run. Broker 3.0 or newer: the first line. Older: the line "
        "after #. For 2.7 and older use the tool of Kafka 3, because that of Kafka 4 does not reach them:"
    )
    print_line("")
    _print_commands([f"{each.since_3_0}\n  # {each.before_3_0}" for each in commands])


def _print_questions(late: LateTransactions) -> None:
    """Prints the commands that ask the coordinators for the late transactions that may still be alive."""
    alive = [(partition, each) for partition, each, _ in late if each.abort_commands is None]
    commands = list(dict.fromkeys(_question_of(partition) for partition, _ in alive))
    if not commands:
        return
    text = "No abort is printed for a transaction that may still be alive, or of a replica that may not lead. Ask the coordinators"
    if any(transaction.two_phase is TwoPhase.UNKNOWN for _, transaction in alive):
        text += (
            " (brokers since 3.0), and abort none that is under two-phase commit (KIP-939): its TransactionTimeoutMs is 2147483647:"
        )
    else:
        text += " (brokers since 3.0):"
    print_text(text)
    print_line("")
    _print_commands(commands)


def _question_of(partition: PartitionTransactions) -> str:
    name = partition.source.directory.name
    return find_hanging_command(name.topic, name.partition)


def _print_commands(commands: Sequence[str]) -> None:
    """Prints commands, with -v all of them."""
    shown_max = len(commands) if is_verbose() else COMMANDS_SHOWN_MAX
    for command in commands[:shown_max]:
        print_line(f"  {command}")
    more = len(commands) - shown_max
    print_line(f"  and {more:,} more: -v or --output json\n" if more > 0 else "")
