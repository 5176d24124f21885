"""Copies under topic id zero: those that Kafka 3.6 to 3.9 uploaded while the protocol of the cluster was below 2.8."""

from __future__ import annotations

from collections.abc import Iterable

from formats.partition.partition_metadata import ZERO_UUID
from snaprebuild.findings import Finding, Severity, first_of, pluralize
from snaprebuild.storage.remote.listing import ListedPartition

__all__ = ["zero_id_findings"]


def zero_id_findings(root: str, partitions: Iterable[ListedPartition]) -> list[Finding]:
    """One finding for all partitions under topic id zero; none without any.

    Args:
        root: location of the store.
        partitions: of the store.
    """
    under_zero = [each for each in partitions if each.topic_id == ZERO_UUID]
    if not under_zero:
        return []
    topics = sorted({each.topic for each in under_zero})
    copies = [copy for each in under_zero for copy in each.copies]
    size_bytes = sum(copy.size_bytes for copy in copies)
    message = (
        f"{pluralize(len(copies), 'copy', 'copies')} of {pluralize(len(topics), 'topic')} ({first_of(topics)}) under topic id zero, "
        f"{size_bytes} bytes. Brokers read them only while the protocol is below 2.8. Once it is raised, the log start offset "
        "moves above them, consumers lose what is on no local disk, and no broker deletes the objects. Before you raise the "
        "protocol, copy what is needed to another topic"
    )
    return [Finding("tier-topic-id-zero", Severity.FINDING, root, message)]
