"""A document of ``transactions`` on a page: the open ones, as bars."""

from __future__ import annotations

from typing import Any

from snaprebuild.documents.saved_documents import DocumentHead, checked, is_of, members_of, optional, text_of, whole
from snaprebuild.report.page_data import PageDocument, PagePartition, PageTransaction
from snaprebuild.report.page_writer import PageSink

__all__ = ["take_transactions"]

LACKS = ("segments and snapshots: `scan --output json` tells them; both documents make one page",)


def take_transactions(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``transactions``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument(sink.name_of(head), head.schema, head.program, lacks=list(LACKS))
    number = sink.add_document(document)
    count = 0
    for name, value in members_of(head.path, ("partitions", "findings"), ("partitions", "findings", "totals")):
        with checked(head.path, f"{name}[{count}]" if name == "partitions" else name):
            if name == "totals":
                document.facts.append(("transactions", f"{whole(value['open'])} open, {whole(value['late'])} of them late"))
            elif name == "partitions":
                _take_partition(value, sink.partition(text_of(value["topic_partition"]), text_of(value["path"]), number))
                count += 1
            elif name == "run":
                document.take_run(value)
            elif name == "unread_paths":
                document.unread = [text_of(each) for each in is_of(list, value)]
            elif name == "findings":
                sink.take_finding(value)


def _take_partition(value: Any, partition: PagePartition) -> None:
    if partition.log_end is None:
        partition.log_end = optional(whole, value["log_end_offset"])
    partition.is_replayed = True
    # By replay, where a scan takes it from a snapshot that may be wrong.
    partition.last_stable_offset = optional(whole, value["last_stable_offset"])
    for each in is_of(list, value["open"]):
        producer_id, is_late = whole(each["producer_id"], least=-(2**63)), is_of(bool, each["is_late"])
        partition.take_transaction(PageTransaction(whole(each["first_offset"]), producer_id, is_late, is_replayed=True))
    left = whole(value["counts"]["open"]) - len(value["open"])
    if left > 0:
        partition.open_not_listed = left
        partition.lacks.append(f"{left} more open transactions, which the document counts and does not list")
