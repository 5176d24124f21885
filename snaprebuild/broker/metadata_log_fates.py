"""What happens to the metadata log of a KRaft node at its next start. Pure: facts in, fates out.

``LogManager`` does not load it, and no checkpoint has its end. A node that stops writes a snapshot at the end of the log, as for each other
log, and removes the snapshots above whatever it truncates to. So one above the end shows that records are gone.

Source: ``KafkaMetadataLog.close``, ``UnifiedLog.close``, ``ProducerStateManager.truncateAndReload`` of 3.9.2 and 4.3.1; rule K17 of
``cluster.quorum.rules``, which has more evidence than this.
"""

from __future__ import annotations

from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.start_facts import PartitionFacts, Shutdown
from snaprebuild.findings import FindingCause

__all__ = ["metadata_log_fates"]


def metadata_log_fates(log: PartitionFacts) -> list[Fate]:
    """The fates of ``__cluster_metadata-0``.

    Args:
        log: the facts. Only after a clean stop a snapshot is on disk not before the records below it.
    """
    if log.shutdown is not Shutdown.CLEAN or log.end is None or not log.snapshots:
        return []
    end = log.end.offset
    reached = log.snapshots[-1]
    if reached <= end:
        return []
    return [
        Fate(
            kind=FateKind.END_LOST,
            subject=log.topic_partition,
            path=log.path,
            code="lost-log-end",
            cause="the metadata log ends below its newest snapshot, after a clean stop",
            detail=f"{end}, a snapshot is at {reached}",
            log_end_offset=end,
            reached_offset=reached,
            evidence="the last segment, the names of the snapshots",
            log_line="no line: Kafka loads the shorter log",
            remedy="Compare it with the logs of the other voters (`cluster check`), and use the longest one",
            finding_cause=FindingCause.SNAPSHOT_ABOVE_LOG_END,
        )
    ]
