"""Every boundary of every bundled partition, computed in every way, against the entries that Kafka's own classes gave there."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import astuple
from itertools import accumulate

import pytest
from header_engines import Reading, segment
from manifests import PartitionFixture, SegmentFixture

from formats.log.batch_headers import HeaderBlock, HeaderReader, TailKind
from formats.partition.producer_snapshot import build_snapshot, parse_snapshot, read_entries, write_entries
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.reference.producer_state import (
    CompletedTransaction,
    DataBatch,
    EmptyControlBatch,
    Marker,
    ProducerBatch,
    ProducerState,
    producer_batches,
)
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect, compose, entries_of

BLOCK_SIZES = (1000, 20_000, 8 << 20)


def blocks_of(part: SegmentFixture, block_bytes: int) -> list[HeaderBlock]:
    reader = HeaderReader(segment(part.path.read_bytes()), block_bytes=block_bytes)
    blocks = list(reader)
    assert reader.tail is not None
    assert reader.tail.kind in (TailKind.CLEAN, TailKind.TORN)
    return blocks


def test_facts_of_the_segments(partition_fixture: PartitionFixture, read_headers: Callable[..., Reading]) -> None:
    """Sizes, counts, magics and timestamps as Kafka's reader saw them. A torn tail is not read."""
    assert partition_fixture.segments
    assert partition_fixture.manifest["stopped"] is None
    for part in partition_fixture.segments:
        reading = read_headers(segment(part.path.read_bytes()))
        headers = reading.headers
        assert part.path.stat().st_size == part.bytes
        assert len(headers) == part.batches
        assert max((header.magic for header in headers), default=part.max_magic) == part.max_magic
        assert max((header.max_timestamp for header in headers), default=-1) == part.max_timestamp
        assert (headers[-1].last_offset + 1 if headers else part.base_offset) == part.next_offset
        is_torn = partition_fixture.partition == "torn-tail-0" and part is partition_fixture.segments[-1]
        assert reading.tail.kind is (TailKind.TORN if is_torn else TailKind.CLEAN)


@pytest.mark.parametrize("block_bytes", BLOCK_SIZES)
def test_fold_at_every_boundary(partition_fixture: PartitionFixture, block_bytes: int) -> None:
    state = ProducerState()
    for part in partition_fixture.segments:
        for block in blocks_of(part, block_bytes):
            list(state.append(producer_batches(block)))
        assert frozenset(state.entries.values()) == part.entries
        assert frozenset(parse_snapshot(build_snapshot(state.entries.values()))) == part.entries


def batches_by_grammar(reading: Reading) -> list[ProducerBatch]:
    """The input of the fold without any numpy."""
    markers = {marker.row: marker for marker in reading.markers}
    found: list[ProducerBatch] = []
    for row, it in enumerate(reading.headers):
        if it.producer_id < 0:
            continue
        if not it.is_control:
            found.append(
                DataBatch(
                    it.producer_id,
                    it.producer_epoch,
                    it.base_sequence,
                    it.base_offset,
                    it.last_offset_delta,
                    it.max_timestamp,
                    it.is_transactional,
                )
            )
        elif row in markers:
            marker = markers[row]
            found.append(
                Marker(
                    it.producer_id, it.producer_epoch, it.base_offset, marker.timestamp, marker.coordinator_epoch, marker.is_commit
                )
            )
        else:
            found.append(EmptyControlBatch(it.producer_id))
    return found


def test_fold_through_both_readers(partition_fixture: PartitionFixture, read_headers: Callable[..., Reading]) -> None:
    by_batch, by_chunk = ProducerState(), ProducerState()
    for part in partition_fixture.segments:
        batches = batches_by_grammar(read_headers(segment(part.path.read_bytes())))
        list(by_batch.append(batches))
        by_chunk.append_chunk(batches)
        assert frozenset(by_batch.entries.values()) == part.entries
        assert by_chunk.entries == by_batch.entries, "brokers write logs whose epochs do not go back"


@pytest.mark.parametrize("block_bytes", BLOCK_SIZES)
def test_effects_at_every_boundary(partition_fixture: PartitionFixture, block_bytes: int) -> None:
    """Segments are mapped one by one, as if in parallel; one prefix scan gives every boundary."""

    def effect_of(part: SegmentFixture) -> SegmentEffect:
        return functools.reduce(compose, map(effect_of_block, blocks_of(part, block_bytes)), IDENTITY)

    effects = [effect_of(part) for part in partition_fixture.segments]
    for part, prefix in zip(partition_fixture.segments, accumulate(effects, compose), strict=True):
        assert prefix.failure_offset is None
        expected = sorted(astuple(entry) for entry in part.entries)
        assert entries_of(prefix).tolist() == expected
        assert read_entries(write_entries(entries_of(prefix))).tolist() == expected
        assert not prefix.epoch_decreased.any()


def test_effects_from_the_right(partition_fixture: PartitionFixture) -> None:
    effects = [effect_of_block(block) for part in partition_fixture.segments for block in blocks_of(part, 8 << 20)]
    whole = functools.reduce(lambda right, left: compose(left, right), reversed(effects), IDENTITY)
    last = partition_fixture.segments[-1]
    assert entries_of(whole).tolist() == sorted(astuple(entry) for entry in last.entries)


def completed_in(partition_fixture: PartitionFixture) -> list[list[tuple[CompletedTransaction, int]]]:
    """For each segment the transactions that its markers close, with the last stable offset at that time."""
    state = ProducerState()
    found = []
    for part in partition_fixture.segments:
        closed = []
        for block in blocks_of(part, 8 << 20):
            for completed in state.append(producer_batches(block)):
                closed.append((completed, state.last_stable_offset(completed)))
        found.append(closed)
    return found


ABORTED = struct.Struct(">hqqqq")


def aborted_on_disk(part: SegmentFixture) -> list[tuple[int, ...]]:
    path = part.path.with_suffix(".txnindex")
    return list(ABORTED.iter_unpack(path.read_bytes())) if path.exists() else []


def test_transaction_index_on_disk_is_what_the_replay_gives(partition_fixture: PartitionFixture) -> None:
    """Producer, first offset, marker offset and last stable offset of every aborted transaction, in the order of the file."""
    compared = 0
    for part, closed in zip(partition_fixture.segments, completed_in(partition_fixture), strict=True):
        ours = [
            (0, completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
            for completed, last_stable_offset in closed
            if completed.is_aborted
        ]
        on_disk = aborted_on_disk(part)
        if partition_fixture.is_compacted:
            # The cleaner takes batches away, so a transaction may seem to begin later, or not at all; it takes no marker that still counts.
            first_on_disk = {(producer_id, last): first for _, producer_id, first, last, _ in on_disk}
            assert all(first_on_disk[producer_id, last] <= first for _, producer_id, first, last, _ in ours)
        else:
            assert on_disk == ours
        compared += len(ours)
    if partition_fixture.partition.endswith("mixed-0"):
        assert compared > 0
