"""Announces complete copies to brokers: produces their records to ``__remote_log_metadata`` of a running cluster.

A broker announces a copy before it writes it, so that one that dies leaves an announcement without objects. Here the objects come first. A
run that is stopped leaves a copy without records, or one without the record that finishes it, and the next run continues there. The topic
is read before anything is uploaded, again right before each announcement, and after it. Therefore no copy is announced twice. A broker of
3.6 stops reading the topic at a record that cannot follow the one before (KAFKA-15632).

Source: ``RLMCopyTask.copyLogSegment``, ``ConsumerTask``, ``RemoteLogMetadataCache``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from msgspec.structs import asdict

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import (
    METADATA_TOPIC,
    PartitionDeletion,
    RemoteSegment,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
    metadata_partition,
    read_remote_log_record,
    write_remote_log_record,
)
from snaprebuild.errors import OutcomeUnknownError, RefusedError, StorageError, UploadRefusalReason, UploadRefusedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.storage.remote.metadata_topic import ClusterTopic
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs, epoch_end_offsets

__all__ = ["Announcement", "Announcer", "RecordTopic", "WrittenCopy", "record_lines"]

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED

FINDINGS_MAX = 100
"""About the topic; brokers stop at the first bad record."""

AGAIN = "run again: records that are in the topic are not produced twice"


class Announcement(StrEnum):
    """Whether the records of a copy were produced."""

    NOW = "now"
    """The records were produced, and read back."""
    BEFORE = "before"
    """The topic had them."""
    NEEDLESS = "needless"
    """Brokers read another copy of these offsets by now: nothing was produced, and no broker will read this one."""


class RecordTopic(Protocol):
    """``__remote_log_metadata`` of a cluster, and the other topics of the cluster (``storage.remote.metadata_topic.MetadataTopic``)."""

    def topics(self, names: Sequence[str]) -> dict[str, ClusterTopic]:
        """The topics of these names that exist."""
        ...

    def settings_of(self, topic: str) -> Mapping[str, str | None]:
        """The settings of a topic by name, with the defaults of its brokers."""
        ...

    def place(self, partition: int) -> str:
        """Name of a partition in messages."""
        ...

    def first_offset(self, partition: int) -> int:
        """Where the log of a partition begins."""
        ...

    def read_new(self, partition: int) -> Iterator[tuple[int, bytes | None]]:
        """Offset and value of each record after those that this gave before."""
        ...

    def append(self, partition: int, value: bytes) -> None:
        """Appends a record, and waits until it is safe."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenCopy:
    """A copy that is complete.

    Attributes:
        segment: as it began.
        finished_ms: when it was found complete, ms since 1970.
        check: raises if it is no longer ours to announce (``UploadFence.check``); None without a fence.
    """

    segment: RemoteSegment
    finished_ms: int
    check: Callable[[], None] | None = field(default=None, compare=False)

    @property
    def finished(self) -> RemoteSegmentUpdate:
        """The record that follows the one that it began with."""
        segment = self.segment
        assert segment.id is not None
        state = SegmentState.COPY_SEGMENT_FINISHED
        return RemoteSegmentUpdate(segment.id, segment.broker_id, self.finished_ms, segment.custom_metadata, state)


@dataclass(slots=True)
class Announcer:
    """Reads what the topic has of some partitions, and adds records of copies.

    Attributes:
        topic: of the records.
        partitions: of the topic.
        wanted: partitions that copies are of; records of others are passed over.
        cluster: their topics, by name, as far as the cluster has them.
        logs: the fold of the records.
        deleted: copies that brokers deleted, which must not come back.
        findings: records that cannot be read.
        verified: nothing was deleted from the topic, and all could be read: brokers have no other copies.
    """

    topic: RecordTopic
    partitions: int
    wanted: frozenset[TopicIdPartition]
    cluster: dict[str, ClusterTopic]
    logs: RemoteLogs = field(default_factory=RemoteLogs)
    deleted: set[bytes] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    verified: bool = True

    @classmethod
    def of(cls, topic: RecordTopic, wanted: Iterable[TopicIdPartition]) -> Announcer:
        """Reads the topics of the cluster, and every record of the partitions.

        Args:
            topic: of the records.
            wanted: partitions that copies are of.

        Raises:
            RefusedError: the cluster has no such topic.
            ReadFailedError: the cluster does not answer.
        """
        asked = frozenset(wanted)
        cluster = topic.topics([METADATA_TOPIC, *sorted({each.topic for each in asked})])
        own = cluster.pop(METADATA_TOPIC, None)
        if own is None or not own.partitions:
            message = "the cluster has no such topic: brokers make it when they start with remote.log.storage.system.enable=true"
            raise RefusedError(message, path=METADATA_TOPIC)
        announcer = cls(topic, len(own.partitions), asked, cluster)
        for number in sorted({announcer.number_of(each) for each in asked}):
            announcer._begin(number)
        return announcer

    def number_of(self, partition: TopicIdPartition) -> int:
        """Partition of the topic that holds the records of a partition."""
        return metadata_partition(partition, self.partitions)

    def _begin(self, number: int) -> None:
        first = self.topic.first_offset(number)
        if first > 0:
            self.verified = False
            message = f"the topic begins at offset {first}: which copies had records below it is unknown"
            self.findings.append(Finding("metadata-topic-cut", Severity.NOTE, self.topic.place(number), message))
        self._read(number)

    def _read(self, number: int) -> None:
        for offset, value in self.topic.read_new(number):
            try:
                if value is not None:
                    self._take(value)
            except FormatError as error:
                self.verified = False
                message = f"offset {offset}: {error}: brokers stop reading the topic there"
                if len(self.findings) < FINDINGS_MAX:
                    self.findings.append(
                        Finding("damaged-metadata-topic", Severity.DAMAGED, self.topic.place(number), message, is_unread=True)
                    )

    def _take(self, value: bytes) -> None:
        record = read_remote_log_record(value)
        partition = (
            record.topic_id_partition if isinstance(record, PartitionDeletion) else record.id and record.id.topic_id_partition
        )
        if partition not in self.wanted:
            return
        self.logs.take(record)
        if (
            isinstance(record, RemoteSegment | RemoteSegmentUpdate)
            and record.id is not None
            and record.state in (DELETING, DELETED)
        ):
            self.deleted.add(record.id.id)

    # ---- before the upload ----

    def check(self, partition: TopicIdPartition) -> None:
        """Makes sure that the cluster has a partition, of this very topic, and is not deleting it.

        Raises:
            UploadRefusedError: no broker would take notice of its records.
        """
        topic = self.cluster.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            message = f"the cluster has no partition {partition.topic}-{partition.partition}: no broker would read its records"
            raise UploadRefusedError(message, reason=UploadRefusalReason.NOT_IN_CLUSTER)
        if topic.topic_id not in (None, partition.topic_id):
            assert topic.topic_id is not None
            message = f"the topic {partition.topic} of the cluster has the id {uuid_to_text(topic.topic_id)}, and this one"
            raise UploadRefusedError(f"{message} {uuid_to_text(partition.topic_id)}", reason=UploadRefusalReason.OTHER_TOPIC_ID)
        if partition in self.logs.deletions:
            raise UploadRefusedError("brokers are deleting this partition from remote storage", reason=UploadRefusalReason.DELETED)

    def check_not_deleted(self, segment_id: bytes) -> None:
        """Makes sure that brokers have not deleted a copy.

        Raises:
            UploadRefusedError: they have.
        """
        if segment_id in self.deleted:
            copy = uuid_to_text(segment_id)
            message = f"brokers deleted the copy {copy} of it, as retention or DeleteRecords asked: it must not come back"
            raise UploadRefusedError(message, reason=UploadRefusalReason.DELETED)

    # ---- after it ----

    def announce(self, copy: WrittenCopy) -> Announcement:
        """Produces what the topic lacks of a copy that is complete, and reads it back.

        Raises:
            UploadRefusedError: brokers deleted it.
            WriteFailedError: a record was refused.
            OutcomeUnknownError: a record may be in the topic, or not.
            ReadFailedError: the topic cannot be read.
        """
        segment = copy.segment
        assert segment.id is not None
        partition = segment.id.topic_id_partition
        number = self.number_of(partition)
        self._read(number)
        self.check_not_deleted(segment.segment_id)
        known = self._known(partition, segment.segment_id)
        if known is FINISHED:
            return Announcement.BEFORE
        if self._is_read_elsewhere(partition, segment):
            return Announcement.NEEDLESS
        records = (segment, copy.finished) if known is None else (copy.finished,)
        for record in records:
            try:
                self.topic.append(number, write_remote_log_record(record))
            except StorageError as error:
                message = f"{error.message}, {record.state.name} of the copy {segment.id}, whose objects are complete; {AGAIN}"
                raise type(error)(message, path=error.path) from error
        self._read(number)
        if self._known(partition, segment.segment_id) is not FINISHED and segment.segment_id not in self.deleted:
            message = f"the records of the copy {segment.id} were produced, and are not in the topic as they should be; {AGAIN}"
            raise OutcomeUnknownError(message, path=self.topic.place(number))
        return Announcement.NOW

    def _log(self, partition: TopicIdPartition) -> RemoteLog:
        return self.logs.partitions.get(partition) or RemoteLog()

    def _known(self, partition: TopicIdPartition, segment_id: bytes) -> SegmentState | None:
        segment = self._log(partition).segments.get(segment_id)
        return None if segment is None else segment.state

    def _is_read_elsewhere(self, partition: TopicIdPartition, segment: RemoteSegment) -> bool:
        """Whether brokers read all of a segment, in its own leader epochs, from other copies."""
        log = self._log(partition)
        ends = epoch_end_offsets(segment)
        for entry in segment.leader_epochs:
            first = log.lookup(entry.epoch, entry.start_offset)
            if first is None or first is not log.lookup(entry.epoch, ends[entry.epoch]):
                return False
        return True


# ---------------------------------------------------------------------------------------------------------------- the file of records


def record_lines(copies: Iterable[WrittenCopy], partitions: int) -> Iterator[str]:
    """The lines of the file of records.

    Args:
        copies: in the order in which they were written.
        partitions: of ``__remote_log_metadata``.
    """
    for copy in copies:
        assert copy.segment.id is not None
        number = metadata_partition(copy.segment.id.topic_id_partition, partitions)
        for record in (copy.segment, copy.finished):
            line = {
                "partition": number,
                "key": None,
                "value": base64.b64encode(write_remote_log_record(record)).decode(),
                "record": _readable(record),
            }
            yield json.dumps(line) + "\n"


def _readable(record: RemoteSegment | RemoteSegmentUpdate) -> dict[str, object]:
    assert record.id is not None
    partition = record.id.topic_id_partition
    fields: dict[str, object] = {
        "topic": partition.topic,
        "topic_id": uuid_to_text(partition.topic_id),
        "partition": partition.partition,
        "segment_id": uuid_to_text(record.id.id),
        "state": record.state.name,
        "broker_id": record.broker_id,
        "event_timestamp_ms": record.event_timestamp_ms,
    }
    if isinstance(record, RemoteSegment):
        names = ("start_offset", "end_offset", "max_timestamp_ms", "size_bytes", "txn_index_empty")
        fields |= {name: getattr(record, name) for name in names}
        fields["leader_epochs"] = [asdict(entry) for entry in record.leader_epochs]
    return fields
