"""What one record of the metadata log changes, as values: the steps of a timeline."""

from __future__ import annotations

from dataclasses import dataclass

from formats.errors import FormatError
from formats.metadata.cluster_metadata import ClusterMetadataRecord
from snaprebuild.cluster.metadata.image_model import BrokerRegistration, PartitionRegistration

__all__ = ["BrokerChanged", "ImageFault", "MetadataChange", "OtherChanged", "PartitionChanged", "TopicChanged"]


@dataclass(frozen=True, slots=True)
class BrokerChanged:
    """A registration came, changed or went.

    Attributes:
        offset: of the record.
        record: that says so.
        broker_id: whose it is.
        before: None where there was none.
        after: None where there is none any more.
    """

    offset: int
    record: ClusterMetadataRecord
    broker_id: int
    before: BrokerRegistration | None
    after: BrokerRegistration | None


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """A topic came or went; its partitions are told apart, before a topic goes and after it came.

    Attributes:
        offset: of the record.
        record: that says so.
        topic_id: 16 bytes.
        name: of the topic.
        is_created: it came.
    """

    offset: int
    record: ClusterMetadataRecord
    topic_id: bytes
    name: str
    is_created: bool


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A partition came, changed or went.

    Attributes:
        offset: of the record.
        record: that says so.
        topic_id: 16 bytes.
        topic: its name.
        partition: number.
        before: None where there was none.
        after: None where there is none any more.
    """

    offset: int
    record: ClusterMetadataRecord
    topic_id: bytes
    topic: str
    partition: int
    before: PartitionRegistration | None
    after: PartitionRegistration | None


@dataclass(frozen=True, slots=True)
class OtherChanged:
    """Something else is as a record says.

    Attributes:
        offset: of the record.
        record: that says so.
    """

    offset: int
    record: ClusterMetadataRecord


MetadataChange = BrokerChanged | TopicChanged | PartitionChanged | OtherChanged


@dataclass(frozen=True, slots=True)
class ImageFault:
    """A record that contradicts what came before it, or cannot be read; it is left out, as a broker does that logs it as a fault.

    Attributes:
        offset: of the record, in a checkpoint the last one that the checkpoint holds.
        name: of its message, None where it cannot be read.
        error: what is wrong.
    """

    offset: int
    name: str | None
    error: FormatError
