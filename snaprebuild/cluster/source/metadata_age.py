"""Whether a metadata log is older than the replicas that are judged by it: what it says of them is then not what they are now.

Source: ``QuorumController``: a broker epoch is an offset of this log, a leader epoch is counted by its records, and there is a record at
least each ``metadata.max.idle.interval.ms``, 500 ms; 4.3.1.
"""

from __future__ import annotations

from snaprebuild.cluster.source.evidence import ClusterEvidence, LogDirEvidence, LogEvidence

__all__ = ["older_than_broker", "older_than_replica"]

CLOCKS_APART_MS = 5_000
"""Brokers, controllers and producers have clocks of their own, and a controller may be idle for half a second."""


def older_than_broker(cluster: ClusterEvidence, own: LogDirEvidence) -> str | None:
    """Why a metadata log ends before the broker registered last; None where nothing shows that."""
    epoch = own.stopped_epoch
    if epoch is None:
        return None
    if epoch > cluster.offset:
        return f"the metadata log ends at {cluster.offset}, before the broker registered with epoch {epoch}: a later one is needed"
    if own.has_marker and cluster.broker is not None and epoch > cluster.broker.epoch:
        return (
            f"the metadata log has broker epoch {cluster.broker.epoch}, and ends before the broker registered with epoch {epoch}: "
            "a later one is needed"
        )
    return None


def older_than_replica(cluster: ClusterEvidence, timestamp_ms: int, log: LogEvidence) -> str | None:
    """Why a metadata log ends before the last batches of a replica were written; None where nothing shows that.

    Args:
        cluster: what it says of the partition.
        timestamp_ms: greatest in it, ms since 1970; negative for none.
        log: the replica.
    """
    partition = cluster.partition
    is_same_topic = log.topic_id is None or log.topic_id == cluster.topic_id
    if partition is not None and is_same_topic and log.epochs and log.epochs[-1].epoch > partition.leader_epoch:
        return (
            f"the metadata log ends at {cluster.offset}, in leader epoch {partition.leader_epoch} of {log.topic}-{log.partition}, and "
            f"{log.path} has leader epoch {log.epochs[-1].epoch}: a later one is needed"
        )
    appended_ms = log.tail_timestamp_ms
    if appended_ms is not None and timestamp_ms >= 0 and appended_ms > timestamp_ms + CLOCKS_APART_MS:
        seconds = (appended_ms - timestamp_ms) / 1000
        return f"the metadata log ends {seconds:.1f} s before the last batch of {log.path} was written: a later one is needed"
    return None
