"""A document of ``transactions`` on a page: the open ones, as bars."""

from __future__ import annotations

from snaprebuild.documents.inspect import Transactions, TransactionsPartition
from snaprebuild.documents.saved_documents import DocumentHead, typed_members
from snaprebuild.report.page_data import PagePartition, PageTransaction
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
    document = PageDocument(sink.name_of(head), head.schema, head.program, lacks=list(LACKS))
    number = sink.add_document(document)
    for name, value in typed_members(
        head.path, Transactions, ("totals", "partitions", *SHARED), optional=("answer", "next_command")
    ):
        if name == "totals":
            document.facts.append(("transactions", f"{value.open} open, {value.late} of them late"))
        elif name == "partitions":
            _take_partition(value, sink.partition(value.topic_partition, value.path, number))
        else:
            sink.take_shared(document, name, value)


def _take_partition(found: TransactionsPartition, partition: PagePartition) -> None:
    if partition.log_end is None:
        partition.log_end = found.log_end_offset
    partition.is_replayed = True
    # By replay, where a scan takes it from a snapshot that may be wrong.
    partition.last_stable_offset = found.last_stable_offset
    for each in found.open:
        partition.take_transaction(
            PageTransaction(
                first_offset=each.first_offset,
                producer_id=each.producer_id,
                is_late=each.is_late,
                is_replayed=True,
                reason=each.reason,
            )
        )
    left = found.totals.open - len(found.open)
    if left > 0:
        partition.open_not_listed = left
        partition.lacks.append(f"{left} more open transactions, which the document counts and does not list")
