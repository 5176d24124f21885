"""Facts of runs of batches, joined in any order of brackets, against a naive count over all of them."""

from itertools import pairwise

import numpy as np
from header_engines import read_reference
from hypothesis import given
from hypothesis import strategies as st
from simulated_broker import idempotent_log
from strategies import GeneratedLog, block_sizes, grouped, groupings, logs
from test_segment_summary import FACTS, naive

from formats.log.batch_headers import BytesSegment, HeaderReader
from snaprebuild.replay.segment_summary import NO_FACTS, BatchTotals


@given(logs(max_batches=12), st.data(), groupings, block_sizes)
def test_blocks_joined_in_any_brackets(log: GeneratedLog, data: st.DataObject, grouping: tuple[int, ...], block_bytes: int) -> None:
    """Also where offsets do not ascend: the first batch in disorder is named, whichever join it is found by."""
    if data.draw(st.integers(0, 2)) == 0:
        log = GeneratedLog(tuple(data.draw(st.permutations(log.batches))))
    base = data.draw(st.integers(0, 60))
    blocks = list(HeaderReader(BytesSegment(log.data), block_bytes=block_bytes))
    facts = grouped([NO_FACTS, *map(BatchTotals.of_block, blocks)][:12], grouping, BatchTotals.then)
    if len(blocks) == 12:
        facts = facts.then(BatchTotals.of_block(blocks[-1]))
    behind = facts.after(base)
    expected = naive(read_reference(BytesSegment(log.data)), base)
    assert {name: getattr(behind, name) for name in FACTS} == expected


@given(logs(min_batches=1, max_batches=12), st.data())
def test_a_block_and_its_parts(log: GeneratedLog, data: st.DataObject) -> None:
    """All fields, with markers and wrong checksums."""
    changed = bytearray(log.data)
    for position in data.draw(st.sets(st.sampled_from(log.positions))):
        changed[position + (17 if changed[position + 16] == 2 else 12)] ^= 1
    (block,) = HeaderReader(BytesSegment(bytes(changed)), check_crc=True)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(block)))) | {0, len(block)})
    parts = [BatchTotals.of_block(block.part(start, stop)) for start, stop in pairwise(cuts)]
    assert BatchTotals.of_parts(block, np.array(cuts[:-1])) == parts
    joined = NO_FACTS
    for part in parts:
        joined = joined.then(part).then(NO_FACTS)
    assert joined == BatchTotals.of_block(block)


@given(groupings, st.sampled_from((1, 300, 1 << 20)))
def test_of_several_batches_in_disorder_the_first_is_named(grouping: tuple[int, ...], block_bytes: int) -> None:
    """At 1 and at 0; the gap is the one before 9. A segment that begins at 3 is in disorder from its first batch on."""
    log = idempotent_log((2, 9, 1, 2, 0, 1))
    blocks = HeaderReader(BytesSegment(log.data), block_bytes=block_bytes)
    facts = grouped([BatchTotals.of_block(block) for block in blocks], grouping, BatchTotals.then)
    assert (facts.disorder_offset, facts.missing_offsets, facts.after(0).missing_offsets) == (1, 6, 8)
    assert facts.after(3).disorder_offset == 2
