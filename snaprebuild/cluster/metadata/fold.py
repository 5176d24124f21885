"""Folds the records of a metadata log into an image of the cluster, one by one, and tells what each of them changes.

A record on which Kafka would throw is told and left out, as a broker does, which logs a fault and goes on. Records of a transaction take
effect together with the record that ends it; an abort drops them. What is still open is in no image.

Source: ``MetadataBatchLoader`` of 4.3.1; what a record changes is in ``metadata_state``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from formats import limits
from formats.errors import BadValueError, FormatError, LimitExceededError
from formats.log.control_record import ControlRecord, KRaftVersion, LeaderChange, SnapshotHeader, Voters
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata.batch import MetadataBatch, UnreadRecord
from snaprebuild.cluster.metadata.changes import ImageFault, MetadataChange
from snaprebuild.cluster.metadata.image_model import MetadataImage, QuorumView
from snaprebuild.cluster.metadata.state import MetadataState

__all__ = ["FAULTS_MAX", "ImageFold", "OpenTransaction"]

FAULTS_MAX = 1000
"""Faults that are kept; the others are counted."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of the metadata log that has not ended.

    Attributes:
        offset: of the record that began it.
        name: or None.
        record_count: held so far.
    """

    offset: int
    name: str | None
    record_count: int


class ImageFold(MetadataState):
    """The state while records are applied; ``image`` gives what it is now as a value.

    Attributes:
        offset: last one that was seen, -1 for none.
        epoch: leader epoch of its batch.
        timestamp_ms: of its batch; ``latest_timestamp_ms``: the greatest of all batches.
        brokers: as they are now, to look at; a transaction that is open is not in them. Likewise ``controllers``, ``topics`` and all that
            ``MetadataImage`` has.
        faults: the first ``FAULTS_MAX`` records that were left out.
        fault_count: all of them.
    """

    def __init__(self) -> None:
        """Of an empty log."""
        super().__init__()
        self.offset = self.epoch = self.timestamp_ms = self.latest_timestamp_ms = -1
        self.quorum = QuorumView()
        self.faults: list[ImageFault] = []
        self.fault_count = 0
        self._transaction: tuple[int, str | None] | None = None
        self._held: list[tuple[ClusterMetadataRecord, int]] = []

    # ------------------------------------------------------------------------------------------------------------ batches

    def apply_checkpoint(self, batches: Iterable[MetadataBatch], end_offset: int, epoch: int) -> None:
        """Takes a whole checkpoint, whose records are of no offset of the log.

        Args:
            batches: of the checkpoint.
            end_offset: of its name: the first offset that it does not hold.
            epoch: of its name.
        """
        for batch in batches:
            for record in batch.records:
                if isinstance(record.content, ControlRecord) and isinstance(record.content.value, SnapshotHeader):
                    self.timestamp_ms = self.latest_timestamp_ms = record.content.value.last_contained_log_timestamp
                self._take(record.content, end_offset - 1, epoch)
        self.offset, self.epoch = end_offset - 1, epoch

    def apply_batch(self, batch: MetadataBatch, last_offset: int | None = None) -> list[MetadataChange]:
        """Takes the next batch of the log.

        Args:
            batch: the one behind what was seen.
            last_offset: records behind it are left out; None for none.

        Returns:
            What it changed, in order; of a transaction when it ends, each with the offset of its own record.
        """
        changes: list[MetadataChange] = []
        for record in batch.records:
            if last_offset is not None and record.offset > last_offset:
                break
            changes += self._take(record.content, record.offset, batch.leader_epoch)
        self.offset = batch.last_offset if last_offset is None else min(batch.last_offset, last_offset)
        self.epoch, self.timestamp_ms = batch.leader_epoch, batch.append_timestamp_ms
        self.latest_timestamp_ms = max(self.latest_timestamp_ms, self.timestamp_ms)
        return changes

    def _take(self, content: ClusterMetadataRecord | ControlRecord | UnreadRecord, offset: int, epoch: int) -> list[MetadataChange]:
        match content:
            case ClusterMetadataRecord():
                return self.apply(content, offset)
            case ControlRecord():
                self._apply_control(content, epoch)
            case UnreadRecord():
                self._tell(offset, None, content.error)
        return []

    def _apply_control(self, control: ControlRecord, epoch: int) -> None:
        value, quorum = control.value, self.quorum
        if isinstance(value, LeaderChange):
            # Of a quorum with a voter set of its own the message tells the same voters, without their endpoints.
            voters = value.voters if quorum.kraft_version == 0 else quorum.voters
            self.quorum = replace(quorum, leader_id=value.leader_id, leader_epoch=epoch, voters=voters)
        elif isinstance(value, KRaftVersion):
            self.quorum = replace(quorum, kraft_version=value.kraft_version)
        elif isinstance(value, Voters):
            self.quorum = replace(quorum, voters=value.voters)

    # ------------------------------------------------------------------------------------------------------- transactions

    @property
    def open_transaction(self) -> OpenTransaction | None:
        """The transaction that has begun and not ended."""
        return None if self._transaction is None else OpenTransaction(*self._transaction, len(self._held))

    def apply(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        """Takes the next record.

        Args:
            record: the one behind what was seen.
            offset: of it.

        Returns:
            As ``apply_batch``. What is wrong with a record stands in ``faults``.

        Raises:
            LimitExceededError: a transaction of more records than ``limits.METADATA_TRANSACTION_RECORDS_MAX``.
        """
        match record.api_key:
            case MetadataRecordType.BEGIN_TRANSACTION:
                if self._transaction is not None:
                    return self._refused(record, offset, "none inside of another", f"one open since offset {self._transaction[0]}")
                self._transaction = (offset, record.message["name"])
            case MetadataRecordType.END_TRANSACTION | MetadataRecordType.ABORT_TRANSACTION:
                if self._transaction is None:
                    return self._refused(record, offset, "an open transaction", "none")
                held, self._held, self._transaction = self._held, [], None
                if record.api_key == MetadataRecordType.END_TRANSACTION:
                    return [change for each, at in held for change in self._changes(each, at)]
            case _ if self._transaction is not None:
                if len(self._held) == limits.METADATA_TRANSACTION_RECORDS_MAX:
                    expected = f"at most {limits.METADATA_TRANSACTION_RECORDS_MAX} records"
                    raise LimitExceededError(f"transaction of the metadata log at offset {self._transaction[0]}", expected=expected)
                self._held.append((record, offset))
            case _:
                return self._changes(record, offset)
        return []

    def _changes(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        try:
            return self.change(record, offset)
        except FormatError as error:
            self._tell(offset, record.name, error)
            return []

    def _refused(self, record: ClusterMetadataRecord, offset: int, expected: str, found: str) -> list[MetadataChange]:
        self._tell(offset, record.name, BadValueError(record.name, expected=expected, found=found))
        return []

    def _tell(self, offset: int, name: str | None, error: FormatError) -> None:
        self.fault_count += 1
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(ImageFault(offset, name, error))

    # --------------------------------------------------------------------------------------------------------------- image

    def image(self) -> MetadataImage:
        """What it is now, as a value of its own: later records do not change it."""
        return MetadataImage(
            offset=self.offset,
            epoch=self.epoch,
            timestamp_ms=self.timestamp_ms,
            brokers=dict(self.brokers),
            controllers=dict(self.controllers),
            topics={topic_id: replace(topic, partitions=dict(topic.partitions)) for topic_id, topic in self.topics.items()},
            topic_ids=dict(self.topic_ids),
            features=dict(self.features),
            configs={resource: dict(values) for resource, values in self.configs.items()},
            next_producer_id=self.next_producer_id,
            client_quotas={entity: dict(values) for entity, values in self.client_quotas.items()},
            acls=dict(self.acls),
            scram_iterations=dict(self.scram_iterations),
            delegation_tokens=dict(self.delegation_tokens),
            quorum=self.quorum,
        )
