"""The golden vectors: 76 small logs and snapshot files with what the classes of Kafka 2.7.2, 3.9.0 and 4.3.1 made of them.

Each runs from its raw bytes through the sequential fold and through composed effects. ``fixtures/producer-state-vectors.json`` says how it
was made; its entries come from Kafka, not from here.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pytest
from budgets import notices_broken_rules
from effects import effect_of_data, state_of
from hypothesis import given
from hypothesis import strategies as st
from kafka_vectors import SCENARIOS, VECTORS
from kafka_vectors import entries_of as entries_of_rows
from msgspec.structs import astuple
from reference_producer_state import InvalidTransactionStateError, ProducerState, producer_batches
from snapshot_by_grammar import build_snapshot
from strategies import GeneratedLog, cuts_of, incoming_entries, logs

from formats.errors import BadValueError, FormatError
from formats.log.batch_headers import BytesSegment, HeaderBlock, HeaderReader, TailKind
from formats.partition.producer_snapshot import ProducerEntry, parse_snapshot, read_entries, write_entries
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect, compose, entries_of
from snaprebuild.replay.window import is_expired

vectors = pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])


def some_vectors(condition: Any) -> pytest.MarkDecorator:
    chosen = [vector for vector in VECTORS if condition(vector)]
    assert chosen
    return pytest.mark.parametrize("vector", chosen, ids=[vector["name"] for vector in chosen])


Entries = dict[int, tuple[int, ...]]


def entries_expected(rows: Iterable[dict[str, int]]) -> Entries:
    return {entry.producer_id: astuple(entry) for entry in entries_of_rows(rows)}


def entries_of_state(state: ProducerState) -> Entries:
    return {producer_id: astuple(entry) for producer_id, entry in state.entries.items()}


def entries_of_effect(effect: SegmentEffect) -> Entries:
    return {entry[0]: entry for entry in entries_of(effect).tolist()}


@dataclass(frozen=True)
class Chunk:
    """A segment of a vector, read by the fast reader."""

    blocks: list[HeaderBlock]
    tail: TailKind
    error: FormatError | None

    @property
    def effect(self) -> SegmentEffect:
        return functools.reduce(compose, map(effect_of_block, self.blocks), IDENTITY)


def chunk_of(batches: Iterable[dict[str, Any]]) -> Chunk:
    data = b"".join(bytes.fromhex(batch["hex"]) for batch in batches)
    reader = HeaderReader(BytesSegment(data), check_crc=True)
    blocks = list(reader)
    assert reader.tail is not None
    assert all(len(block.bad_crc) == 0 for block in blocks)
    return Chunk(blocks, reader.tail.kind, reader.tail.error)


def chunks_of(vector: dict[str, Any]) -> list[Chunk]:
    return [chunk_of(batches) for _, batches in groupby(vector["batches"], key=lambda batch: batch["segment"])]


# ---------------------------------------------------------------------------------------------------------------- loading


def entries_loaded(vector: dict[str, Any]) -> tuple[ProducerEntry, ...]:
    """``truncateAndReload`` and ``loadFromSnapshot``: the newest file that a broker can read, of those in the range of the log."""
    load = vector["load"]
    for file in sorted(vector.get("snapshotFiles", []), key=lambda file: -file["offset"]):
        if not load["logStartOffset"] < file["offset"] <= load["logEndOffset"]:
            continue
        data = bytes.fromhex(file["hex"])
        try:
            entries = parse_snapshot(data)
        except FormatError as error:
            with pytest.raises(type(error)):
                read_entries(data)
            continue
        assert read_entries(data).tolist() == [astuple(entry) for entry in entries]
        return entries
    return ()


def state_loaded(vector: dict[str, Any]) -> ProducerState:
    state = ProducerState()
    state.load(entries_loaded(vector), vector["load"]["nowMs"], vector["producerIdExpirationMs"])
    return state


def effect_loaded(vector: dict[str, Any]) -> SegmentEffect:
    now, expiration = vector["load"]["nowMs"], vector["producerIdExpirationMs"]
    kept = [entry for entry in entries_loaded(vector) if not is_expired(entry, now, expiration)]
    return state_of(kept)


# ---------------------------------------------------------------------------------------------------------------- vectors


def test_all_vectors_are_here() -> None:
    assert len(VECTORS) == len({vector["name"] for vector in VECTORS}) == 76
    assert all(vector["verified"] for vector in VECTORS)


ERRORS = {
    "nontxn_batch_in_open_txn": "InvalidTxnStateException",
    "control_type_unknown_with_pid": "IllegalArgumentException",
    "load_two_entries_same_txn_offset": "IllegalArgumentException",
}


@vectors
def test_fold(vector: dict[str, Any]) -> None:
    """Batch by batch, as ``LogSegment.recover``."""
    assert vector.get("expectedError") == ERRORS.get(vector["name"])
    if vector["name"] == "control_type_unknown_with_pid":
        (chunk,) = chunks_of(vector)
        assert (chunk.blocks, chunk.tail) == ([], TailKind.CORRUPT)
        assert isinstance(chunk.error, BadValueError)
        return
    state = state_loaded(vector)
    error = None
    try:
        for chunk in chunks_of(vector):
            assert chunk.tail is TailKind.CLEAN
            for block in chunk.blocks:
                list(state.append(producer_batches(block)))
    except InvalidTransactionStateError as raised:
        error = raised
    if vector["name"] in ERRORS:
        assert error is not None
        assert error.reason.startswith(ERRORS[vector["name"]])
        assert error.offset == vector["batches"][-1]["baseOffset"]
        return
    assert error is None
    do_after(state, vector)
    assert entries_of_state(state) == entries_expected(vector["expectedEntries"])
    assert or_minus_one(state.first_unstable_offset) == vector["expectedFirstUnstableOffset"]
    assert or_minus_one(state.first_undecided_offset) == vector["expectedFirstUndecidedOffset"]


def do_after(state: ProducerState, vector: dict[str, Any]) -> None:
    for action in vector.get("after", []):
        match action.split():
            case ["HW", offset]:
                state.on_high_watermark_updated(int(offset))
            case ["EXPIRE", now]:
                state.remove_expired(int(now), vector["producerIdExpirationMs"])
            case _:
                raise AssertionError(action)


def or_minus_one(offset: int | None) -> int:
    return -1 if offset is None else offset


def folded(vector: dict[str, Any]) -> ProducerState:
    """The state that the log of a vector leaves, batch by batch."""
    state = state_loaded(vector)
    for chunk in chunks_of(vector):
        for block in chunk.blocks:
            list(state.append(producer_batches(block)))
    return state


def test_the_high_watermark_must_pass_the_marker() -> None:
    """``removeUnreplicatedTransactions``: a marker at the high watermark itself is not replicated yet."""
    (vector,) = (vector for vector in VECTORS if vector["name"] == "txn_commit_then_hw")
    for high_watermark, unstable in ((11, 10), (12, 10), (13, None)):
        state = folded(vector)
        state.on_high_watermark_updated(high_watermark)
        assert (state.first_unstable_offset, state.first_undecided_offset) == (unstable, None)


@vectors
def test_effects(vector: dict[str, Any]) -> None:
    """The loaded state as an effect, then one effect for each segment, joined from the left and from the right."""
    if vector["name"] in ("control_type_unknown_with_pid", "load_two_entries_same_txn_offset"):
        # The first ends in the reader. The second is about a map that only the fold has: no file that we write has two such entries.
        assert "expectedError" in vector
        return
    effects = [effect_loaded(vector), *(chunk.effect for chunk in chunks_of(vector))]
    from_left = functools.reduce(compose, effects)
    from_right = functools.reduce(lambda right, left: compose(left, right), reversed(effects))
    for effect in (from_left, from_right):
        if vector["name"] in ERRORS:
            assert effect.failure_offset == vector["batches"][-1]["baseOffset"]
            continue
        assert effect.failure_offset is None
        entries = entries_of_effect(effect)
        if vector["name"] == "periodic_expiry":
            del entries[1]  # what the broker's clock does to the state is no effect of the log
        assert entries == entries_expected(vector["expectedEntries"])


@some_vectors(lambda vector: "expectedError" not in vector)
def test_one_append_info_for_each_segment(vector: dict[str, Any]) -> None:
    """``UnifiedLog.rebuildProducerState`` works so; it differs in the two vectors where an epoch leaves and returns inside a
    segment."""
    state = state_loaded(vector)
    for chunk in chunks_of(vector):
        state.append_chunk([batch for block in chunk.blocks for batch in producer_batches(block)])
    do_after(state, vector)
    differs = vector["name"] in ("epoch_roundtrip_one_chunk", "epoch_roundtrip_with_data")
    assert ("expectedEntriesSegmentChunk" in vector) is differs
    assert entries_of_state(state) == entries_expected(vector.get("expectedEntriesSegmentChunk", vector["expectedEntries"]))
    if differs:
        assert vector["expectedEntriesSegmentChunk"] != vector["expectedEntries"]
        assert chunks_of(vector)[1].effect.epoch_decreased.tolist() == [True]


@notices_broken_rules
@given(log=logs(start=1000), entries=incoming_entries(below=1000), data=st.data())
def test_the_two_ways_differ_only_where_an_epoch_went_down(
    log: GeneratedLog, entries: tuple[ProducerEntry, ...], data: st.DataObject
) -> None:
    by_chunk, by_batch = ProducerState(), ProducerState()
    for state in (by_chunk, by_batch):
        state.load(entries, 0, 1 << 62)
    effect = state_of(entries)
    for segment in log.segments(data.draw(cuts_of(log))):
        try:
            by_chunk.append_chunk(segment.meanings)
        except InvalidTransactionStateError:
            return
        list(by_batch.append(segment.meanings))
        effect = compose(effect, effect_of_data(segment.data))
        if not effect.epoch_decreased.any():
            assert by_chunk.entries == by_batch.entries


@some_vectors(lambda vector: "kafkaWrittenSnapshotHex" in vector)
def test_the_file_that_we_write_is_the_map_that_kafka_wrote(vector: dict[str, Any]) -> None:
    state = folded(vector)
    do_after(state, vector)
    by_kafka = {entry.producer_id: entry for entry in parse_snapshot(bytes.fromhex(vector["kafkaWrittenSnapshotHex"]))}
    by_fold = build_snapshot(state.entries.values())
    assert {entry.producer_id: entry for entry in parse_snapshot(by_fold)} == by_kafka
    if "after" not in vector or "HW" in vector["after"][0]:
        effect = functools.reduce(compose, (chunk.effect for chunk in chunks_of(vector)), effect_loaded(vector))
        by_effect = write_entries(entries_of(effect))
        assert {entry.producer_id: entry for entry in parse_snapshot(by_effect)} == by_kafka
        assert len(by_effect) == len(bytes.fromhex(vector["kafkaWrittenSnapshotHex"]))


# ---------------------------------------------------------------------------------------------------------------- rebuild scenarios


def states_at_boundaries(
    scenario: dict[str, Any], first: int, entries: Iterable[ProducerEntry], *, chunked: bool
) -> dict[int, Entries]:
    """The state at each boundary above ``first`` by the fold, which the composed effects equal if it goes batch by batch."""
    state = ProducerState()
    state.load(entries, scenario["nowMs"], scenario["producerIdExpirationMs"])
    effect = state_of(state.entries.values())
    segments = [segment for segment in scenario["segments"] if segment["baseOffset"] >= first]
    boundaries = [*(segment["baseOffset"] for segment in segments[1:]), scenario["logEndOffset"]]
    found = {}
    for boundary, segment in zip(boundaries, segments, strict=True):
        chunk = chunk_of(segment["batches"])
        batches = [batch for block in chunk.blocks for batch in producer_batches(block)]
        list(state.append_chunk(batches) if chunked else state.append(batches))
        effect = compose(effect, chunk.effect)
        assert chunked or entries_of_effect(effect) == entries_of_state(state)
        found[boundary] = entries_of_state(state)
    return found


def snapshots_expected(scenario: dict[str, Any]) -> dict[int, Entries]:
    return {snapshot["offset"]: entries_expected(snapshot["entries"]) for snapshot in scenario["expectedSnapshots"]}


def existing(scenario: dict[str, Any], offset: int) -> bytes:
    (snapshot,) = (snapshot for snapshot in scenario["preexistingSnapshots"] if snapshot["offset"] == offset)
    return bytes.fromhex(snapshot["hex"])


@pytest.mark.parametrize(
    ("name", "loaded", "chunked"),
    [
        ("rebuild_A", None, False),
        ("rebuild_C", 20, False),  # it trusts a snapshot that lacks producers
        ("rebuild_D", 10, False),  # it falls back to an older one
        ("rebuild_E", None, True),  # it folds a segment at once
        ("rebuild_F", None, False),  # it folds batch by batch
    ],
)
def test_what_each_rebuild_writes(name: str, loaded: int | None, chunked: bool) -> None:
    scenario = SCENARIOS[name]
    expected = snapshots_expected(scenario)
    entries = () if loaded is None else parse_snapshot(existing(scenario, loaded))
    if loaded is not None:
        assert {entry.producer_id: astuple(entry) for entry in entries} == expected.pop(loaded), "it stays as it is"
    if name == "rebuild_F":
        assert expected.pop(12) == expected[20], "named by its last offset + 1, which is no boundary"
    found = states_at_boundaries(scenario, loaded or 0, entries, chunked=chunked)
    assert {offset: found[offset] for offset in expected} == expected
    # A alone has a boundary for which no broker makes a snapshot.
    assert found.keys() - expected.keys() == ({10} if name == "rebuild_A" else set())
    if name in ("rebuild_E", "rebuild_F"):
        assert states_at_boundaries(scenario, 0, (), chunked=not chunked) != found


def test_rebuild_B_writes_false_empties() -> None:  # noqa: N802
    scenario = SCENARIOS["rebuild_B"]
    found = states_at_boundaries(scenario, 0, (), chunked=False)
    assert snapshots_expected(scenario) == {20: {}, 30: {}, 40: {}}
    assert found == states_at_boundaries(SCENARIOS["rebuild_A"], 0, (), chunked=False), "the same log, with the same truth"
    assert all(found[offset] for offset in (20, 30, 40))


def test_rebuild_C_loses_an_open_transaction() -> None:  # noqa: N802
    scenario = SCENARIOS["rebuild_C"]
    assert states_at_boundaries(scenario, 0, (), chunked=False)[30][2][-1] == 15
    assert 2 not in snapshots_expected(scenario)[30]


@pytest.mark.parametrize("read", [parse_snapshot, read_entries])
def test_rebuild_D_has_a_snapshot_that_cannot_be_read(read: Any) -> None:  # noqa: N802
    with pytest.raises(FormatError):
        read(existing(SCENARIOS["rebuild_D"], 20))
