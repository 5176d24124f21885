"""A document of ``transactions`` on a page: the open ones, as bars."""

from __future__ import annotations

from snaprebuild.documents.inspect import Transactions
from snaprebuild.documents.saved_documents import DocumentHead, typed_members
from snaprebuild.inspect.kafka_transactions_tool import find_hanging_command
from snaprebuild.inspect.transaction_model import TransactionsPartition
from snaprebuild.report.page_data import PagePartition
from snaprebuild.report.page_document import PageDocument
from snaprebuild.report.page_writer import SHARED, PageSink

__all__ = ["take_transactions"]

LACKS = ("segments and snapshots: `scan --output json` shows them; both documents make one page",)


def take_transactions(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``inspect transactions``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument.of(head, *LACKS)
    number = sink.add_document(document)
    for name, value in typed_members(
        head.path, Transactions, ("as_of_ms", "totals", "partitions", *SHARED), optional=("answer", "next_command")
    ):
        if name == "totals":
            document.facts.append(("transactions", f"{value.open} open, {value.late} of them late"))
        elif name == "as_of_ms":
            document.as_of_ms = value
        elif name == "partitions":
            partition = sink.partition(value.topic_partition, value.path, number)
            partition.open_document = number
            _take_partition(value, partition)
        else:
            sink.take_shared(document, name, value)


def _take_partition(replayed: TransactionsPartition, partition: PagePartition) -> None:
    partition.is_directory = True
    if partition.log_end_offset is None:
        partition.log_end_offset = replayed.log_end_offset
    # By replay, where a scan takes it from a snapshot that may be wrong.
    partition.last_stable_offset = replayed.last_stable_offset
    partition.open = replayed.open
    partition.open_by_replay = replayed.totals.open
    partition.late = replayed.totals.late
    partition.held_segments = replayed.held_segments
    partition.held_segment_bytes = replayed.held_segment_bytes
    if any(each.is_late and each.abort_commands is None for each in replayed.open):
        partition.question = find_hanging_command(replayed.topic, replayed.partition)
    left = replayed.totals.open - len(replayed.open)
    if left > 0:
        partition.lacks.append(f"{left} more open transactions, which the document counts and does not list")
