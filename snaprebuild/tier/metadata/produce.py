"""Produces the rebuilt records of one topic to a running cluster, only while no leader uploads its segments.

A leader that finds no copies uploads everything again, within ``remote.log.manager.task.interval.ms``. So copying must be off
(``remote.log.copy.disable``), or no broker with a replica may run.

A leader that has read the records deletes what retention and leader epochs say. These deletions are computed before. The run is refused
unless there are none, or their number was typed.

Source: ``RemoteLogManager.RLMCopyTask``, ``RLMExpirationTask``; KIP-950.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.findings import pluralize
from snaprebuild.tier.expiration import ExpectedDeletion, ExpectedLeader, RetentionSettings, expired_copies
from snaprebuild.tier.metadata.leader_logs import LeaderLogs
from snaprebuild.tier.metadata.partition_records import PartitionRecords
from snaprebuild.tier.remote_log import RemoteLog
from snaprebuild.tier.upload.announce import Announcement, Announcer

__all__ = ["check_cluster", "check_deletions", "expected_deletions", "produce_records"]

COPY_DISABLE = "remote.log.copy.disable"
RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"


def check_cluster(records: Sequence[PartitionRecords], announcer: Announcer) -> Mapping[str, str | None]:
    """Makes sure that the records may be produced, apart from what the first pass deletes.

    Args:
        records: of the partitions.
        announcer: that has read the topic.

    Returns:
        The settings of the one topic by name, with the defaults of its brokers.

    Raises:
        UsageError: copies of several topics, or of none, are included.
        RefusedError: the cluster has no such topic, or another one of its name; its leaders upload; the metadata topic has other copies
            of it, or cannot be read whole.
    """
    included = [each for each in records if each.records]
    names = sorted({each.remote.id.topic for each in included})
    if len(names) != 1:
        raise UsageError(f"--produce-to takes one topic at a time: name it with --topic; {len(names)} have copies")
    topic = names[0]
    cluster = announcer.cluster.get(topic)
    for each in included:
        announcer.check(each.remote.id)
    if not announcer.verified:
        raise RefusedError(announcer.findings[0].message, path=announcer.findings[0].path)
    settings = announcer.topic.settings_of(topic)
    copying = settings.get(COPY_DISABLE) != "true"
    if copying and (cluster is None or cluster.has_leaders):
        message = f"its leaders upload every segment again until they have read the records: set {COPY_DISABLE}=true first"
        raise RefusedError(message, path=topic)
    for each in included:
        _check_other_copies(each, announcer)
    return settings


def _check_other_copies(records: PartitionRecords, announcer: Announcer) -> None:
    log = announcer.logs.partitions.get(records.remote.id)
    own = {each.segment.segment_id for each in records.records}
    others = [] if log is None else [each for each in log.segments.values() if each.segment_id not in own]
    if others:
        message = (
            f"brokers have other copies of it, the first {uuid_to_text(others[0].segment_id)}: records are for a topic without any"
        )
        raise RefusedError(message, path=records.remote.place)


def expected_deletions(
    records: Sequence[PartitionRecords], leaders: LeaderLogs, settings: Mapping[str, str | None], now_ms: int
) -> list[ExpectedDeletion]:
    """The copies that the first pass of each leader deletes.

    Args:
        records: of the partitions of one topic.
        leaders: their logs.
        settings: of the topic.
        now_ms: when the pass runs, ms since 1970.

    Raises:
        RefusedError: the log of a leader was not named, or shows no leader epochs.
    """
    retention = RetentionSettings(_limit(settings, RETENTION_MS), _limit(settings, RETENTION_BYTES))
    deletions = []
    for each in records:
        if not each.records:
            continue
        log = leaders.newest(each.remote.id)
        start = leaders.log_start_of(each.remote.id)
        if log is None or not log.leader_epochs or start is None:
            message = "what the first pass of its leader deletes is unknown: name the leader's log directory with --log-dir"
            raise RefusedError(message, path=each.remote.place)
        remote = RemoteLog()
        for record in each.records:
            remote.take(record.segment)
            remote.take(record.written.finished)
        state = ExpectedLeader(
            log_start_offset=start,
            log_end_offset=log.log_end_offset(),
            leader_epochs=log.leader_epochs,
            # Up to 4.3 a leader whose copying is off knows no uploaded offset, and counts each segment on disk.
            local_only_bytes=sum(size for _, size in log.segment_sizes),
        )
        deletions += [copy.document() for copy in expired_copies(remote, state, retention, now_ms)]
    return deletions


def _limit(settings: Mapping[str, str | None], name: str) -> int:
    """A limit of retention.

    Raises:
        RefusedError: the cluster does not show it.
    """
    value = settings.get(name)
    try:
        return int(value or "")
    except ValueError:
        raise RefusedError(f"the cluster does not show {name}", path=name) from None


def check_deletions(deletions: Sequence[ExpectedDeletion], accepted: int) -> None:
    """Makes sure that the user has typed how many copies the first pass deletes.

    Args:
        deletions: of the first pass.
        accepted: the typed number; 0 without one.

    Raises:
        RefusedError: it is another number.
    """
    if len(deletions) != accepted:
        reasons = Counter(each.deletion_reason.value for each in deletions)
        described = ", ".join(f"{count} by {reason}" for reason, count in reasons.items()) or "none"
        message = (
            f"the first pass of the leaders deletes {pluralize(len(deletions), 'copy', 'copies')} ({described}), and {accepted} were "
            f"accepted: look at --dry-run, then give --deletes {len(deletions)}"
        )
        raise RefusedError(message)


def produce_records(records: Sequence[PartitionRecords], announcer: Announcer) -> Counter[Announcement]:
    """Produces the records of each copy, and reads them back; what an earlier run produced is not produced again.

    Raises:
        UploadRefusedError: brokers deleted a copy meanwhile.
        WriteFailedError: a record was refused.
        OutcomeUnknownError: a record may be in the topic, or not.
        ReadFailedError: the topic cannot be read.
    """
    copies = [record.written for each in records for record in each.records]
    return Counter(announcer.announce(copy) for copy in copies)
