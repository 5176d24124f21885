"""A receipt of ``rebuild`` on a page."""

from __future__ import annotations

from snaprebuild.documents.saved_documents import DocumentHead
from snaprebuild.findings import Severity, pluralize
from snaprebuild.published import RunRecord
from snaprebuild.report.page_data import PagePartition, PageSegment, SegmentFate
from snaprebuild.report.page_document import PageDocument
from snaprebuild.report.page_writer import PageSink
from snaprebuild.shell_words import program_command
from snaprebuild.snapshots.receipts.receipt_reader import WrittenFile, read_receipt

__all__ = ["take_receipt"]

LACKS = (
    "the files as they are now: `verify --written-by` shows them",
    "producers and transactions: a receipt only names files; `verify --output json` has them",
)


def take_receipt(head: DocumentHead, sink: PageSink) -> None:
    """Takes a receipt.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    receipt = read_receipt(head.path)
    where = "next to the segments" if receipt.in_place else "to a directory of their own"
    if receipt.ended:
        ended = "the run was completed"
    else:
        ended = "the run was killed, or still runs: the outcome of its last step is unknown"
    document = PageDocument.of(head, *LACKS)
    document.facts += [("written", f"{where}; {ended}"), ("files", pluralize(len(receipt.files), "snapshot"))]
    document.run = RunRecord(at_ms=receipt.began_ms, host=receipt.host, command=receipt.command, cluster_ids=receipt.cluster_ids)
    document.answer = f"{pluralize(len(receipt.files), 'snapshot')} written {where}; {ended}."
    document.next_command = program_command(["verify", "--written-by", head.path])
    document.exit_code = Severity.NOTE if receipt.ended else Severity.FINDING
    number = sink.add_document(document)
    partitions: dict[str, PagePartition] = {}
    for each in receipt.partitions.values():
        partition = partitions[each.source] = sink.partition(each.topic_partition, each.source, number)
        partition.is_directory = True
        if not partition.segments:
            segments = [PageSegment(base, size, None, SegmentFate.UNSAID) for base, size in each.segments]
            if segments:
                segments[-1].fate = SegmentFate.ACTIVE
            partition.take_segments(segments)
        if each.log is not None and partition.log_end_offset is None:
            partition.log_end_offset = each.log.log_end_offset
        if each.target != each.source:
            partition.facts.append(("written to", each.target))
    for file in receipt.files:
        boundary = partitions[file.partition.source].boundary(file.offset)
        boundary.action = _action_of(file)
        boundary.snapshot_class = boundary.snapshot_class or (file.snapshot_class and file.snapshot_class.value)


def _action_of(file: WrittenFile) -> str:
    settled = "written" if file.is_settled else "announced; the outcome is not recorded"
    action = "only set aside" if file.fingerprint is None else settled
    if file.set_aside is not None:
        return f"{action}, the old one is now {file.set_aside[0]}"
    return action
