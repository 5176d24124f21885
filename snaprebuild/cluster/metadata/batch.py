"""Batches of a metadata log as values: what its walker hands out and the fold of the image takes."""

from __future__ import annotations

from dataclasses import dataclass

from formats.errors import FormatError
from formats.log.control_record import ControlRecord
from formats.metadata.cluster_metadata import ClusterMetadataRecord

__all__ = ["MetadataBatch", "MetadataRecord", "UnreadRecord"]


@dataclass(frozen=True, slots=True)
class UnreadRecord:
    """A record, whole by its checksum, that cannot be read: of a newer release, or of no release.

    Attributes:
        value: its bytes, None for null.
        error: why.
    """

    value: bytes | None
    error: FormatError


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """One record of a batch.

    Attributes:
        offset: int64.
        content: what it says; a control record in control batches only.
    """

    offset: int
    content: ClusterMetadataRecord | ControlRecord | UnreadRecord


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """A batch of a metadata log or checkpoint, its checksum proven.

    Attributes:
        base_offset: int64, of its first record; in a checkpoint these count from 0 and are none of the log.
        last_offset: int64.
        leader_epoch: int32, of the controller that wrote it.
        append_timestamp_ms: greatest timestamp, ms since 1970.
        is_control: it is one of Raft itself.
        position_bytes: where it begins in its file.
        size_bytes: of the whole batch.
        records: in order.
        crc: uint32, of everything behind it in the batch, as the header says.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    append_timestamp_ms: int
    is_control: bool
    position_bytes: int
    size_bytes: int
    records: tuple[MetadataRecord, ...]
    crc: int = 0
