"""Every boundary of every bundled partition, computed in every way, against the entries that Kafka's own classes gave there."""

import functools
from itertools import accumulate

from header_engines import segment
from manifests import PartitionFixture, SegmentFixture
from msgspec.structs import astuple
from reference_producer_state import ProducerState, producer_batches
from snapshot_by_grammar import build_snapshot

from formats.log.batch_headers import HeaderBlock, HeaderReader, TailKind
from formats.partition.producer_snapshot import parse_snapshot, read_entries, write_entries
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect, compose, entries_of


def blocks_of(part: SegmentFixture, block_bytes: int = 8 << 20) -> list[HeaderBlock]:
    reader = HeaderReader(segment(part.path.read_bytes()), block_bytes=block_bytes)
    blocks = list(reader)
    assert reader.tail is not None
    assert reader.tail.kind in (TailKind.CLEAN, TailKind.TORN)
    return blocks


def test_fold_at_every_boundary(partition_fixture: PartitionFixture) -> None:
    state = ProducerState()
    for part in partition_fixture.segments:
        for block in blocks_of(part):
            list(state.append(producer_batches(block)))
        assert frozenset(state.entries.values()) == part.entries
        assert frozenset(parse_snapshot(build_snapshot(state.entries.values()))) == part.entries


def test_effects_at_every_boundary(partition_fixture: PartitionFixture) -> None:
    """Segments are mapped one by one, in many blocks, as if in parallel; one prefix scan gives every boundary."""

    def effect_of(part: SegmentFixture) -> SegmentEffect:
        return functools.reduce(compose, map(effect_of_block, blocks_of(part, block_bytes=4000)), IDENTITY)

    effects = [effect_of(part) for part in partition_fixture.segments]
    for part, prefix in zip(partition_fixture.segments, accumulate(effects, compose), strict=True):
        assert prefix.failure_offset is None
        expected = sorted(astuple(entry) for entry in part.entries)
        assert entries_of(prefix).tolist() == expected
        assert read_entries(write_entries(entries_of(prefix))).tolist() == expected
        assert not prefix.epoch_decreased.any()
