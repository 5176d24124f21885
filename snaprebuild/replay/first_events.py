"""The first batches of each producer in a run of batches: what they show about the state before the run.

They are needed only if a snapshot at the first offset of a log must be judged (``replay.base_judge``). So they are no part of a segment
effect, and are read on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from formats.log.batch_headers import HeaderBlock
from formats.log.control_record import ControlRecordType
from formats.log.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from snaprebuild.replay.segment_effect import NONE

__all__ = ["EVENT_COLUMNS", "NO_EVENTS", "FirstEvents", "first_events_of_block", "joined_events"]

EVENT_COLUMNS: dict[str, tuple[str, int]] = {
    "producer_id": ("i8", NONE),
    "offset": ("i8", NONE),
    "epoch": ("i2", NONE),
    "largest_timestamp": ("i8", NONE),
    "changes_epoch": ("?", 0),
    "data_offset": ("i8", NONE),
    "data_epoch": ("i2", NONE),
    "data_sequence": ("i4", NONE),
    "data_is_transactional": ("?", 0),
    "data_largest_timestamp": ("i8", NONE),
    "marker_offset": ("i8", NONE),
    "marker_coordinator_epoch": ("i4", NONE),
    "marker_is_abort": ("?", 0),
}
"""Type of each column, and its value where there is nothing."""

_DATA = ("data_offset", "data_epoch", "data_sequence", "data_is_transactional", "data_largest_timestamp")
_MARKER = ("marker_offset", "marker_coordinator_epoch", "marker_is_abort")


class FirstEvents(msgspec.Struct, frozen=True):
    """The first events of each producer in a run. An event is a data batch, or a marker with its record.

    All columns have shape (n,), one row for each producer, sorted by id.

    Attributes:
        producer_id: int64, ascending, no duplicates.
        offset: int64, base offset of the first event.
        epoch: int16, of the first event.
        largest_timestamp: int64 ms, of all batches of the run up to and with that event, of any producer.
        changes_epoch: bool, an event up to and with the first data batch has another epoch than the first event.
        data_offset: int64, base offset of the first data batch, -1 for none.
        data_epoch: int16, valid with a data batch, as the columns after it.
        data_sequence: int32, its base sequence, -1 for none.
        data_is_transactional: bool.
        data_largest_timestamp: int64 ms, as ``largest_timestamp``, up to and with the first data batch.
        marker_offset: int64, of the first marker, -1 for none.
        marker_coordinator_epoch: int32, valid with a marker, as the column after it.
        marker_is_abort: bool.
        newest_timestamp: ms, the largest timestamp of the whole run, -1 for none.
    """

    producer_id: np.ndarray
    offset: np.ndarray
    epoch: np.ndarray
    largest_timestamp: np.ndarray
    changes_epoch: np.ndarray
    data_offset: np.ndarray
    data_epoch: np.ndarray
    data_sequence: np.ndarray
    data_is_transactional: np.ndarray
    data_largest_timestamp: np.ndarray
    marker_offset: np.ndarray
    marker_coordinator_epoch: np.ndarray
    marker_is_abort: np.ndarray
    newest_timestamp: int = NONE

    def __len__(self) -> int:
        return len(self.producer_id)

    @property
    def is_marker(self) -> np.ndarray:
        """Bool (n,), the first event is a marker."""
        mask: np.ndarray = self.marker_offset == self.offset
        return mask

    def chosen(self, rows: np.ndarray) -> FirstEvents:
        """The rows that ``rows`` (mask or ascending indices) selects."""
        return replace(self, **{name: getattr(self, name)[rows] for name in EVENT_COLUMNS})


def _empty_columns(count: int) -> dict[str, Any]:
    return {name: np.full(count, value, dtype=dtype) for name, (dtype, value) in EVENT_COLUMNS.items()}


NO_EVENTS = FirstEvents(**_empty_columns(0))


def first_events_of_block(block: HeaderBlock) -> FirstEvents:
    """The first events of each producer in a block.

    Args:
        block: headers with the columns of ``EFFECT_COLUMNS`` and their markers; not empty.
    """
    timestamp = block.column("max_timestamp")
    newest = int(timestamp.max())
    producer_id = block.column("producer_id")
    attributes = block.column("attributes")
    marker = np.full(len(block), NONE, dtype=np.int64)
    marker[block.control] = np.arange(len(block.control))
    is_data = attributes & ATTRIBUTE_CONTROL == 0
    rows = ((producer_id >= 0) & (is_data | (marker != NONE))).nonzero()[0]
    if not len(rows):
        return replace(NO_EVENTS, newest_timestamp=newest)
    largest = np.maximum.accumulate(timestamp)
    ids, first, group = np.unique(producer_id[rows], return_index=True, return_inverse=True)
    columns = _empty_columns(len(ids))
    columns["producer_id"] = ids
    at = rows[first]
    columns["offset"] = block.column("base_offset")[at]
    columns["epoch"] = block.column("producer_epoch")[at]
    columns["largest_timestamp"] = largest[at]

    data = rows[is_data[rows]]
    data_ids, first_data = np.unique(producer_id[data], return_index=True)
    place = np.searchsorted(ids, data_ids)
    at = data[first_data]
    columns["data_offset"][place] = block.column("base_offset")[at]
    columns["data_epoch"][place] = block.column("producer_epoch")[at]
    columns["data_sequence"][place] = block.column("base_sequence")[at]
    columns["data_is_transactional"][place] = attributes[at] & ATTRIBUTE_TRANSACTIONAL != 0
    columns["data_largest_timestamp"][place] = largest[at]
    until = np.full(len(ids), len(block))
    until[place] = at

    markers = rows[~is_data[rows]]
    marker_ids, first_marker = np.unique(producer_id[markers], return_index=True)
    place = np.searchsorted(ids, marker_ids)
    at = markers[first_marker]
    columns["marker_offset"][place] = block.column("base_offset")[at]
    columns["marker_coordinator_epoch"][place] = block.marker_coordinator_epoch[marker[at]]
    columns["marker_is_abort"][place] = block.marker_type[marker[at]] == ControlRecordType.ABORT

    differs = (block.column("producer_epoch")[rows] != columns["epoch"][group]) & (rows <= until[group])
    columns["changes_epoch"][group[differs]] = True
    return replace(NO_EVENTS, **columns, newest_timestamp=newest)


def joined_events(runs: Sequence[FirstEvents]) -> FirstEvents:
    """The first events of consecutive runs together. Associative."""
    runs = [run for run in runs if len(run) or run.newest_timestamp != NONE]
    if not runs:
        return NO_EVENTS
    if len(runs) == 1:
        return runs[0]
    before = np.maximum.accumulate([NONE, *(run.newest_timestamp for run in runs)])
    earlier = np.repeat(before[:-1], [len(run) for run in runs])
    rows = {name: np.concatenate([getattr(run, name) for run in runs]) for name in EVENT_COLUMNS}
    rows["largest_timestamp"] = np.maximum(rows["largest_timestamp"], earlier)
    has_data = rows["data_offset"] != NONE
    rows["data_largest_timestamp"] = np.where(has_data, np.maximum(rows["data_largest_timestamp"], earlier), NONE)

    ids, first, group = np.unique(rows["producer_id"], return_index=True, return_inverse=True)
    columns = {name: rows[name][first] for name in EVENT_COLUMNS}
    columns["producer_id"] = ids
    until = np.full(len(ids), len(group))
    for names, present in ((_DATA, has_data), (_MARKER, rows["marker_offset"] != NONE)):
        chosen = present.nonzero()[0]
        place, at = np.unique(group[chosen], return_index=True)
        for name in names:
            columns[name][place] = rows[name][chosen[at]]
        if names is _DATA:
            until[place] = chosen[at]
    index = np.arange(len(group))
    differs = (rows["changes_epoch"] | (rows["epoch"] != columns["epoch"][group])) & (index <= until[group])
    columns["changes_epoch"] = np.zeros(len(ids), dtype=bool)
    columns["changes_epoch"][group[differs]] = True
    return replace(NO_EVENTS, **columns, newest_timestamp=int(before[-1]))
