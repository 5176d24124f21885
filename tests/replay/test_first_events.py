"""The first events of each producer: those of any split of a log, joined, are what a walk over its batches finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from reference_producer_state import DataBatch, Marker
from strategies import GeneratedLog, grouped, groupings, logs

from formats.log.batch_headers import BytesSegment, HeaderReader
from snaprebuild.replay.first_events import EVENT_COLUMNS, NO_EVENTS, FirstEvents, first_events_of_block, joined_events


def walked(log: GeneratedLog) -> tuple[dict[int, dict[str, object]], int]:
    """Batch by batch: the columns of each producer, and the largest timestamp."""
    found: dict[int, dict[str, object]] = {}
    newest = -1
    for batch in log.batches:
        newest = max(newest, batch.header.max_timestamp)
        event, offset = batch.meaning, batch.header.base_offset
        if not isinstance(event, DataBatch | Marker):
            continue
        row = found.setdefault(
            event.producer_id,
            {name: value for name, (_, value) in EVENT_COLUMNS.items()}
            | {"producer_id": event.producer_id, "offset": offset, "epoch": event.epoch, "largest_timestamp": newest},
        )
        if row["data_offset"] == -1 and event.epoch != row["epoch"]:
            row["changes_epoch"] = True
        if isinstance(event, DataBatch) and row["data_offset"] == -1:
            row |= {"data_offset": offset, "data_epoch": event.epoch, "data_sequence": event.base_sequence}
            row |= {"data_is_transactional": event.is_transactional, "data_largest_timestamp": newest}
        if isinstance(event, Marker) and row["marker_offset"] == -1:
            row |= {"marker_offset": offset, "marker_coordinator_epoch": event.coordinator_epoch}
            row |= {"marker_is_abort": not event.is_commit}
    return found, newest


def rows_of(events: FirstEvents) -> dict[int, dict[str, object]]:
    columns = {name: getattr(events, name).tolist() for name in EVENT_COLUMNS}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {row["producer_id"]: row for row in rows}


def events_of(log: GeneratedLog) -> FirstEvents:
    (block,) = HeaderReader(BytesSegment(log.data)) if log.batches else (None,)
    return NO_EVENTS if block is None else first_events_of_block(block)


@given(st.data(), logs(max_batches=16))
def test_first_events_of_any_split(data: st.DataObject, log: GeneratedLog) -> None:
    expected, newest = walked(log)
    whole = events_of(log)
    assert (rows_of(whole), whole.newest_timestamp) == (expected, newest)
    sizes = data.draw(st.lists(st.integers(1, 6), max_size=6))
    parts, at = [], 0
    for size in (*sizes, len(log.batches)):
        parts.append(events_of(GeneratedLog(log.batches[at : at + size])))
        at += size
    joined = grouped(parts, data.draw(groupings), lambda one, other: joined_events([one, other]))
    for found in (joined, joined_events(parts)):
        assert (rows_of(found), found.newest_timestamp) == (expected, newest)
        assert {name: getattr(found, name).dtype.str[1:] for name in EVENT_COLUMNS} == {
            name: getattr(NO_EVENTS, name).dtype.str[1:] for name in EVENT_COLUMNS
        }
