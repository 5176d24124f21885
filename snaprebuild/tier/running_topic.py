"""``__remote_log_metadata`` of a running cluster, folded as that of log directories is: read by a client that joins no group.

Every partition is read up to where its log ended when the run began. Records that come later belong to the next run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from formats.errors import BadVersionError, FormatError
from formats.remote.remote_log_metadata import METADATA_TOPIC, read_remote_log_record
from snaprebuild.errors import RefusedError
from snaprebuild.findings import Finding, FindingCause, Severity
from snaprebuild.storage.remote.metadata_topic import ClusterTopic, MetadataTopic
from snaprebuild.tier.remote_log import RemoteLogs

__all__ = ["ReadTopic", "RunningTopic", "TopicRecords", "cut_topic", "read_topic", "unreadable_record"]


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """The records of the topic.

    Attributes:
        logs: their fold.
        findings: records that could not be read, or are gone.
        ends: up to where each partition was read, by its number.
    """

    logs: RemoteLogs
    findings: list[Finding]
    ends: dict[int, int]

    def note(self, servers: str) -> Finding:
        """The note with the offsets up to which the topic was read."""
        ends = ", ".join(f"{number}: {end}" for number, end in self.ends.items())
        message = f"the records below these offsets were read, by partition, as the topic ended when the run began: {ends}"
        return Finding("metadata-topic-read", Severity.NOTE, f"{servers}: {METADATA_TOPIC}", message)


class ReadTopic(Protocol):
    """A topic of a running cluster (``storage.remote.metadata_topic.MetadataTopic``)."""

    def may_create_topic(self) -> bool:
        """Whether the first read would make brokers create a topic."""
        ...

    def cluster_id(self) -> str | None:
        """Id of the cluster; None if its brokers do not report it."""
        ...

    def topics(self, names: Sequence[str]) -> dict[str, ClusterTopic]:
        """The topics of these names that exist."""
        ...

    def place(self, partition: int) -> str:
        """Name of a partition in messages."""
        ...

    def bounds(self, partition: int) -> tuple[int, int]:
        """First offset of a partition, and the offset after its last one."""
        ...

    def read_up_to(self, partition: int, end: int) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of each record below an offset."""
        ...


@dataclass(frozen=True, slots=True)
class RunningTopic:
    """How the topic of a running cluster is reached.

    Attributes:
        servers: ``HOST:PORT``, several with commas between.
        settings: of the client, by their names in librdkafka; passwords may be among them.
    """

    servers: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def read(self) -> TopicRecords:
        """Reads all records.

        Raises:
            UsageError: the package is not installed, or the client does not accept the settings.
            RefusedError: the cluster has no such topic, or would create another one.
            ReadFailedError: the cluster does not answer, or refuses to.
        """
        with closing(MetadataTopic(self.servers, self.settings, options=("--bootstrap-server", "--command-config"))) as topic:
            return read_topic(topic, self.servers)


def cut_topic(first: int, place: str) -> Finding:
    """The note about a partition of the topic whose first records are gone, so that no broker reads them any more.

    Args:
        first: its log start offset, above 0.
        place: of the partition.
    """
    message = f"the topic begins at offset {first}: which copies had records below it is unknown"
    return Finding("metadata-topic-cut", Severity.NOTE, place, message, cause=FindingCause.METADATA_TOPIC)


def unreadable_record(error: FormatError, place: str) -> Finding:
    """The finding of a record that brokers, or this version, cannot read, after which a metadata log is not read.

    Args:
        error: of the record.
        place: of the partition of the topic.
    """
    is_newer = isinstance(error, BadVersionError)
    why = "the cluster may use a newer remote.log.metadata.version; " if is_newer else ""
    code = "unknown-metadata-version" if is_newer else "damaged-metadata-log"
    severity = Severity.REFUSED if is_newer else Severity.DAMAGED
    message = f"{error}: {why}later records are unknown"
    return Finding(code, severity, place, message, is_unread=True, cause=FindingCause.METADATA_TOPIC)


def read_topic(topic: ReadTopic, servers: str) -> TopicRecords:
    """Folds all partitions of the topic; see ``RunningTopic.read``."""
    own = topic.topics([METADATA_TOPIC]).get(METADATA_TOPIC)
    if own is None or not own.partitions:
        message = "the cluster has no such topic: brokers make it when they start with remote.log.storage.system.enable=true"
        raise RefusedError(message, path=f"{servers}: {METADATA_TOPIC}")
    if topic.may_create_topic():
        message = "no consumer group was ever used: a client that reads would make brokers create __consumer_offsets"
        raise RefusedError(f"{message}; use --metadata-log", path=servers)
    logs = RemoteLogs(cluster_id=topic.cluster_id())
    findings = []
    bounds = {number: topic.bounds(number) for number in sorted(own.partitions)}
    for number, (first, end) in bounds.items():
        if first > 0:
            findings.append(cut_topic(first, topic.place(number)))
        try:
            for offset, key, value in topic.read_up_to(number, end):
                if value is None:
                    record = None
                else:
                    record = read_remote_log_record(value, file=f"{topic.place(number)}, offset {offset}")
                logs.take_keyed(key, record)
        except FormatError as error:
            findings.append(unreadable_record(error, topic.place(number)))
        logs.has_read(number, first)
    logs.is_complete = not findings
    logs.set_metadata_partitions(len(own.partitions))
    return TopicRecords(logs, findings, {number: end for number, (_, end) in bounds.items()})
