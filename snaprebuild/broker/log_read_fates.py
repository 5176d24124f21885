"""What the batches show that a start reads. They are read by `verify` alone, so that `scan` stays quick. Pure: facts in, fates out.

Source: ``LogLoader.recoverLog``, ``LogLoader.loadSegmentFiles``, ``ProducerAppendInfo.appendDataBatch`` of 2.8.2, 3.6, 3.7, 3.9 and 4.3.1.
"""

from __future__ import annotations

from snaprebuild.broker.fates import TAKE_ANOTHER_REPLICA, Fate, FateKind
from snaprebuild.broker.start_endings import Ending
from snaprebuild.broker.start_facts import LogRead, PartitionFacts
from snaprebuild.findings import pluralize

__all__ = ["plain_write_endings", "rebuilt_index_endings", "recovery_cuts"]


def recovery_cuts(partition: PartitionFacts, log_read: LogRead) -> list[Fate]:
    """The first damaged segment is cut, and all later ones are deleted. Nothing where all of it is above the high watermark."""
    reached = partition.checkpointed_end
    if log_read.end_offset >= reached:
        return []
    later = f", {pluralize(log_read.cut_segments, 'later segment')} deleted" if log_read.cut_segments else ""
    return [
        Fate(
            kind=FateKind.RECORDS_CUT,
            subject=partition.topic_partition,
            path=partition.path,
            code="lost-log-end",
            cause="the recovery cuts damaged segments below the high watermark",
            detail=f"{log_read.end_offset} to {reached}{later}",
            size_bytes=log_read.cut_bytes,
            log_end_offset=log_read.end_offset,
            reached_offset=reached,
            evidence="the segments from the recovery point on, recovery-point-offset-checkpoint, replication-offset-checkpoint",
            log_line="Corruption found in segment",
            remedy=TAKE_ANOTHER_REPLICA,
        )
    ]


def plain_write_endings(partition: PartitionFacts) -> list[Ending]:
    """InvalidTxnStateException, at each start: nothing catches it, also after a clean stop."""
    if partition.log_read is None or partition.log_read.plain_write is None:
        return []
    offset, producer_id = partition.log_read.plain_write
    fate = Fate(
        kind=FateKind.NO_START,
        subject=partition.topic_partition,
        path=partition.path,
        code="write-outside-transaction",
        cause="a write outside of the open transaction of its producer",
        detail=f"offset {offset}, producer {producer_id}",
        log_end_offset=offset,
        evidence="the segments and the newest snapshot below",
        log_line="org.apache.kafka.common.errors.InvalidTxnStateException: Expected transactional write from producer",
        remedy=TAKE_ANOTHER_REPLICA,
    )
    return [Ending(fate)]


def rebuilt_index_endings(partition: PartitionFacts) -> list[Ending]:
    """Offsets that descend in a segment whose index is made anew: InvalidOffsetException, which nothing catches there.

    With a missing ``.index`` the first attempt leaves a file, and the second start loads it. With a faulty ``.txnindex`` each start fails.
    """
    if partition.log_read is None or not partition.log_read.descending:
        return []
    missing = [base for base in partition.log_read.descending if base in partition.without_index]
    is_each_start = len(missing) < len(partition.log_read.descending)
    fate = Fate(
        kind=FateKind.NO_START if is_each_start else FateKind.FAILS_ONCE,
        subject=partition.topic_partition,
        path=partition.path,
        code="offsets-descend",
        cause="descending offsets in a segment whose index is rebuilt",
        detail=f"segment {partition.log_read.descending[0]}",
        evidence="the segment",
        log_line="org.apache.kafka.common.errors.InvalidOffsetException: Attempt to append an offset",
        remedy=TAKE_ANOTHER_REPLICA,
    )
    return [Ending(fate)]
