"""From batch headers to the batches that concern producers, as values: the input of the specification fold."""

from __future__ import annotations

from collections.abc import Iterator

from formats.log.batch_headers import HeaderBlock
from formats.log.control_record import ControlRecordType
from snaprebuild.replay.reference.producer_state import DataBatch, EmptyControlBatch, Marker, ProducerBatch

__all__ = ["producer_batches"]


def producer_batches(block: HeaderBlock) -> Iterator[ProducerBatch]:
    """The batches of a block that have a producer id, in log order. Those of magic 0 and 1, and KRaft's, have none."""
    markers = {
        row: (type_id, epoch, timestamp)
        for row, type_id, epoch, timestamp in zip(
            block.control.tolist(),
            block.marker_type.tolist(),
            block.marker_coordinator_epoch.tolist(),
            block.marker_timestamp.tolist(),
            strict=True,
        )
    }
    for row, header in enumerate(block.headers()):
        if header.producer_id < 0:
            continue
        if not header.is_control:
            yield DataBatch(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp,
                header.is_transactional,
            )
        elif row in markers:
            type_id, coordinator_epoch, timestamp = markers[row]
            commit = type_id == ControlRecordType.COMMIT
            # The marker's own offset is that of its record; a control batch holds one, so that is also the base offset.
            yield Marker(header.producer_id, header.producer_epoch, header.base_offset, timestamp, coordinator_epoch, commit)
        else:
            yield EmptyControlBatch(header.producer_id)
