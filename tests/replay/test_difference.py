"""A snapshot and the log: what is right is never called wrong, and what is wrong is called so wherever the retained log proves it.

Files and states come from ``simulated_broker`` and from the specification fold; only the effects are those of the code under test.
"""

import dataclasses
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from budgets import EXAMPLES, FEWER_EXAMPLES, each_seed
from effects import any_effect, array_of, effect_of
from entry_comparison import answer_of, known_of, specified
from hypothesis import given
from hypothesis import strategies as st
from kafka_vectors import VECTORS, entries_of
from msgspec.structs import replace
from reference_producer_state import InvalidTransactionStateError, ProducerState
from simulated_broker import EXPIRATION_MS, Client, Entries, Segment, SimulatedBroker
from strategies import LogBatch, incoming_entries, logs

from formats.partition.producer_snapshot import ENTRY_BYTES, ProducerEntry
from snaprebuild.replay import difference as difference_module
from snaprebuild.replay.difference import DIFFERENCES_LISTED_MAX, Comparison, ComparisonStatus, DifferenceKind, Knowledge, compare
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect, compose, effect_of_entries
from snaprebuild.replay.window import is_expired

GOOD = (ComparisonStatus.EQUAL, ComparisonStatus.EQUAL_AFTER_EXPIRY, ComparisonStatus.UNVERIFIABLE)
BATCH_FIELDS = ("last_sequence", "last_offset", "offset_delta")


def effect_of_segments(segments: Sequence[Segment]) -> SegmentEffect:
    effect = IDENTITY
    for segment in segments:
        effect = compose(effect, effect_of(segment.batches))
    return effect


def knowledge(*, first_offset: int = 0, is_complete: bool = True, log_start: int | None = None, as_of_ms: int = 0) -> Knowledge:
    start = first_offset if log_start is None else log_start
    return Knowledge(is_complete, None, first_offset, start, as_of_ms, EXPIRATION_MS)


# ---------------------------------------------------------------------------------------------------------------- no false alarm


def what_a_live_broker_wrote_is_never_proven_wrong(seed: int, reached: Counter[str]) -> None:
    """Whatever had expired, been swept and come back, and whatever of the log has been deleted since."""
    rng = random.Random(~seed)
    broker = SimulatedBroker(seed, rng.randrange(2, 9))
    for end in range(1, len(broker.segments) + 1):
        last, offset = broker.segments[end - 1], broker.boundaries[end - 1]
        deleted = rng.randrange(end) if rng.random() < 0.5 else 0
        truth = effect_of_segments(broker.segments[deleted:end])
        as_of_ms = last.clock + rng.choice((0, 0, EXPIRATION_MS // 3, 10 * EXPIRATION_MS))
        first = broker.segments[deleted].base_offset
        knows = knowledge(first_offset=first, is_complete=deleted == 0, as_of_ms=as_of_ms)
        entries = list(last.live.values())
        rng.shuffle(entries)
        comparison = compare(truth, array_of(entries), offset, knows)
        assert not comparison.proven_wrong, comparison
        assert comparison.status in GOOD
        reached[comparison.status.value] += 1
        reached["after a deletion"] += deleted > 0
        if last.live == last.whole and deleted == 0:
            assert comparison.status is ComparisonStatus.EQUAL


def what_a_broker_wrote_that_recovered_from_its_log_start_offset_is_never_proven_wrong(seed: int, reached: Counter[str]) -> None:
    """Without a snapshot it folds from the batch that holds the log start offset; batches before it are on disk all the same."""
    rng = random.Random(~seed)
    broker = SimulatedBroker(seed, rng.randrange(2, 7))
    deleted = rng.randrange(len(broker.segments)) if rng.random() < 0.5 else 0
    segments = broker.segments[deleted:]
    first = segments[0].base_offset
    log_start = rng.randrange(first, broker.end_offset)
    state = ProducerState()
    for segment in segments:
        for batch in segment.batches:
            if batch.header.last_offset >= log_start and batch.meaning is not None:
                list(state.append([batch.meaning]))
            if rng.random() < 0.2:
                state.remove_expired(segment.clock, EXPIRATION_MS)
    knows = knowledge(first_offset=first, is_complete=deleted == 0, log_start=log_start, as_of_ms=broker.clock)
    comparison = compare(effect_of_segments(segments), array_of(state.entries.values()), broker.end_offset, knows)
    assert not comparison.proven_wrong, comparison
    reached[comparison.status.value] += 1
    ignorant = replace(knows, log_start_offset=first)
    reached["needs it"] += compare(
        effect_of_segments(segments), array_of(state.entries.values()), broker.end_offset, ignorant
    ).proven_wrong


@given(st.data())
def test_whatever_came_in_before_the_first_segment(data: st.DataObject) -> None:
    """Any state at the first offset, any log: the state that follows is never proven wrong by what is retained alone."""
    below = 1000
    incoming = data.draw(incoming_entries(below=below))
    log = data.draw(logs(start=below))
    state = ProducerState()
    state.load(incoming, 0, 1 << 60)
    try:
        list(state.append(log.meanings))
    except InvalidTransactionStateError:
        return
    end = log.batches[-1].header.last_offset + 1 if log.batches else below
    as_of_ms = data.draw(st.sampled_from((0, 1500, 2500, 1 << 42)))
    knows = knowledge(first_offset=below, is_complete=False, as_of_ms=as_of_ms)
    comparison = compare(effect_of(log.batches), array_of(state.entries.values()), end, knows)
    assert not comparison.proven_wrong, comparison


def reborn_vectors() -> dict[str, list[ProducerEntry]]:
    """Entries that Kafka 2.7.2, 3.9.0 and 4.3.1 had after a producer expired and came back."""
    return {each["name"]: entries_of(each["expectedEntries"]) for each in VECTORS if each["name"].startswith("expired_reborn")}


def test_reborn_producers_of_the_vectors() -> None:
    """The whole log has a marker, a batch, a day of silence, and the producer again; the live broker had forgotten all before."""
    day, again = 86_400_000, 90_000_000
    vectors = reborn_vectors()
    assert set(vectors) == {"expired_reborn_loses_coordinator_epoch", "expired_reborn_same_epoch_marker_loses_batch"}
    client = Client(1000, is_transactional=True, epoch=2)
    before = [client.data(90, 1, 3), client.marker(91, 4, 3, commit=True)]
    client.sequence = 9
    client.is_transactional = False
    before.append(client.data(99, 1, 5))
    client.sequence = 10
    for name, batch in (
        ("expired_reborn_loses_coordinator_epoch", client.data(100, 1, again)),
        ("expired_reborn_same_epoch_marker_loses_batch", client.marker(100, again, 4, commit=True)),
    ):
        knows = Knowledge(True, None, 0, 0, again, day)
        comparison = compare(effect_of([*before, batch]), array_of(vectors[name]), 101, knows)
        assert (comparison.status, comparison.proven_wrong) == (ComparisonStatus.UNVERIFIABLE, False)
        (difference,) = comparison.differences
        assert difference.field == ("last_sequence" if "batch" in name else "coordinator_epoch")
        # Without the silence between them the same difference is no excuse where a marker closed a transaction.
    closing = [*before[:1], client.marker(91, again, 4, commit=True)]
    lost = ProducerEntry(1000, 2, timestamp=again, coordinator_epoch=4)
    assert compare(effect_of(closing), array_of([lost]), 101, Knowledge(True, None, 0, 0, again, day)).proven_wrong


# ---------------------------------------------------------------------------------------------------------------- every lie


def every_lie_that_the_log_contradicts_is_proven(seed: int, reached: Counter[str]) -> None:
    rng = random.Random(~seed)
    broker = SimulatedBroker(seed, rng.randrange(2, 7))
    end = rng.randrange(1, len(broker.segments) + 1)
    deleted = rng.randrange(end) if rng.random() < 0.5 else 0
    segments = broker.segments[deleted:end]
    right, offset = segments[-1].whole, broker.boundaries[end - 1]
    as_of_ms, first = segments[-1].clock, segments[0].base_offset
    knows = knowledge(first_offset=first, is_complete=deleted == 0, as_of_ms=as_of_ms)
    truth = effect_of_segments(segments)
    live = sorted(key for key, entry in right.items() if not is_expired(entry, as_of_ms, EXPIRATION_MS))
    batches = [batch for segment in segments for batch in segment.batches]
    there = [key for key in live if any(batch.header.producer_id == key for batch in batches)]
    if not there:
        return

    def judged(entries: Entries) -> Comparison:
        return compare(truth, array_of(entries.values()), offset, knows)

    producer = rng.choice(there)
    entry = right[producer]
    own = [batch for batch in batches if batch.header.producer_id == producer]

    lacking = judged({key: other for key, other in right.items() if key != producer})
    status = ComparisonStatus.FALSE_EMPTY if len(right) == 1 else ComparisonStatus.MISSING_ENTRIES
    assert (lacking.status, lacking.proven_wrong) == (status, True)
    assert (lacking.differences[0].producer_id, lacking.differences[0].kind) == (producer, DifferenceKind.MISSING)
    reached["missing"] += 1
    reached["missing without a batch"] += entry.last_offset < 0
    empty = judged({})
    assert (empty.status, empty.proven_wrong) == (ComparisonStatus.FALSE_EMPTY, True)

    for name, wrong in lies(entry, own, offset, rng):
        if name == "coordinator_epoch" and deleted and not any(batch.header.is_control for batch in own):
            continue  # the marker that set it may have been deleted
        changed = replace(entry, **{name: wrong})
        begins = wrong < first or wrong == own[0].header.base_offset
        if name == "current_txn_first_offset" and deleted and begins and not any(b.header.is_control for b in own):
            continue  # it may have come in open, or not
        if name in BATCH_FIELDS:
            if entry.last_offset < 0:
                changed = replace(entry, last_sequence=3, last_offset=wrong, offset_delta=0)
            only_markers = all(b.header.is_control and b.header.producer_epoch == entry.epoch for b in own)
            if deleted and only_markers and changed.last_offset < first:
                continue  # the batch before the first marker may have been deleted
        if is_expired(changed, as_of_ms, EXPIRATION_MS) and is_expired(entry, as_of_ms, EXPIRATION_MS):
            continue
        comparison = judged({**right, producer: changed})
        assert comparison.proven_wrong, (name, wrong, comparison)
        assert comparison.status in (ComparisonStatus.STALE, ComparisonStatus.CORRUPT)
        reached[name] += 1
        reached["after a deletion"] += deleted > 0

    if not deleted:
        phantom = max(right) + 1
        comparison = judged({**right, phantom: ProducerEntry(phantom, 0, 0, 0, 0, as_of_ms)})
        assert (comparison.status, comparison.proven_wrong) == (ComparisonStatus.EXTRA, True)
        reached["extra"] += 1


def lies(entry: ProducerEntry, own: list[LogBatch], offset: int, rng: random.Random) -> list[tuple[str, int]]:
    """Values of single fields that no broker can have written of this producer."""
    found = [("epoch", entry.epoch + 1), ("epoch", entry.epoch - 1), ("timestamp", entry.timestamp + 1)]
    found += [("coordinator_epoch", entry.coordinator_epoch + 1)]
    if any(batch.header.is_control for batch in own) and own[-1].header.is_control:
        found.append(("coordinator_epoch", -1))
    if entry.last_offset >= 0:
        found += [
            ("last_sequence", entry.last_sequence + 1),
            ("last_offset", entry.last_offset + 1),
            ("offset_delta", entry.offset_delta + 1),
        ]
        if entry.last_offset > 0:
            found.append(("last_offset", entry.last_offset - 1))
    elif own[-1].header.is_control:
        found.append(("last_offset", rng.randrange(offset)))
    if entry.current_txn_first_offset >= 0:
        found += [("current_txn_first_offset", -1), ("current_txn_first_offset", entry.current_txn_first_offset + 1)]
    else:
        found.append(("current_txn_first_offset", rng.randrange(offset)))
    return found


# ---------------------------------------------------------------------------------------------------------------- single cases


def test_phantom_transaction_of_a_producer_that_writes_outside_of_transactions() -> None:
    """Even one from below the first offset: had it been open, Kafka would have thrown at the batch."""
    client = Client(7, is_transactional=False, sequence=5)
    truth = effect_of([client.data(100, 1, 1000)])
    phantom = ProducerEntry(7, 0, 5, 100, 0, 1000, current_txn_first_offset=50)
    comparison = compare(truth, array_of([phantom]), 101, knowledge(first_offset=100, is_complete=False, as_of_ms=1000))
    assert comparison.proven_wrong
    assert comparison.differences[0].field == "current_txn_first_offset"
    assert "stays open from 50" in comparison.differences[0].consequence


def test_transaction_from_offset_0() -> None:
    truth = effect_of([Client(7, is_transactional=True).data(0, 1, 1000)])
    (forgotten,) = compare(truth, array_of([]), 1, knowledge(as_of_ms=1000)).differences
    assert "open from 0, is forgotten" in forgotten.consequence
    (invented,) = compare(IDENTITY, array_of([ProducerEntry(7, 0, 0, 0, 0, 1000, -1, 0)]), 1, knowledge(as_of_ms=1000)).differences
    assert "stays open from 0" in invented.consequence
    client = Client(7, is_transactional=True)
    truth = effect_of([client.data(0, 1, 1000), client.data(1, 1, 1000)])
    late = array_of([ProducerEntry(7, 0, 1, 1, 0, 1000, -1, 1)])
    for log_start, is_wrong in ((0, True), (1, False)):
        assert compare(truth, late, 2, knowledge(log_start=log_start, as_of_ms=1000)).proven_wrong is is_wrong


# ---------------------------------------------------------------------------------------------------------------- the specification

PRODUCERS = (-(2**63), -1, 0, *range(7, 30), 2**33, 2**63 - 1)
OFFSET_MAX = 40


def any_offset(rng: random.Random) -> int:
    """Often one of a few that lie side by side."""
    return rng.choice((-1, 0, 9, 10, 11, rng.randrange(OFFSET_MAX)))


def any_change(rng: random.Random) -> dict[str, int]:
    """A change of one field, or of several."""
    values = {
        "epoch": rng.randrange(-1, 2),
        "last_sequence": rng.randrange(-1, 2),
        "last_offset": any_offset(rng),
        "offset_delta": rng.randrange(4),
        "timestamp": rng.randrange(-1, 10),
        "coordinator_epoch": rng.choice((-1, -1, 0, 1)),
        "current_txn_first_offset": any_offset(rng),
    }
    return {name: values[name] for name in rng.sample(sorted(values), rng.choice((1, 1, 1, 2, 7)))}


def any_found(rng: random.Random, truth: SegmentEffect) -> list[ProducerEntry]:
    """The right state with entries gone, changed and invented, in any order."""
    absent, changed = rng.choice((0, 0, 0.2, 1)), rng.choice((0, 0.5, 1))
    entries = [row.entry for row in known_of(truth).values() if rng.random() >= absent]
    entries = [replace(entry, **any_change(rng)) if rng.random() < changed else entry for entry in entries]
    strangers = PRODUCERS if rng.random() < 0.1 else sorted(set(PRODUCERS) - set(truth.producer_id.tolist()))
    entries += [ProducerEntry(each, **any_change(rng)) for each in rng.sample(strangers, rng.choice((0, 0, 1, 3)))]
    rng.shuffle(entries)
    return entries


def any_knowledge(rng: random.Random) -> Knowledge:
    unproven_reason = "compacted" if rng.random() < 0.1 else None
    return Knowledge(
        rng.random() < 0.5, unproven_reason, any_offset(rng), any_offset(rng), rng.choice((0, 5, 9, 100)), rng.choice((1, 5, 9))
    )


def equals_the_specification(seed: int, reached: Counter[object]) -> None:
    rng = random.Random(~seed)
    truth, knows = any_effect(rng, sorted(rng.sample(PRODUCERS, rng.choice((0, 1, 2, 8, 20))))), any_knowledge(rng)
    found = any_found(rng, truth)
    offset = OFFSET_MAX // rng.choice((1, 1, 1, 1, 1, 1, 1, 2))
    listed_max = rng.choice((1, 3, DIFFERENCES_LISTED_MAX, DIFFERENCES_LISTED_MAX))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difference_module, "DIFFERENCES_LISTED_MAX", listed_max)
        comparison = compare(truth, array_of(found), offset, knows)
    specification = specified(truth, found, offset, knows)
    assert answer_of(comparison) == dataclasses.replace(specification, differences=specification.differences[:listed_max])
    reached[specification.status] += 1
    reached["not all listed"] += listed_max < specification.difference_count
    reached.update((each.kind, each.is_certain) for each in specification.differences)
    reached.update((each.field, each.is_certain) for each in specification.differences)


FIELDS = tuple(name for name in ProducerEntry.__struct_fields__ if name != "producer_id")
SPECIFIED = {
    *ComparisonStatus,
    "not all listed",
    *((what, is_certain) for what in (*DifferenceKind, *FIELDS) for is_certain in (True, False)),
} - {(DifferenceKind.STALE, False)}  # a stale field is one that differs for certain


@pytest.mark.parametrize(
    ("check", "count", "least"),
    [
        (
            what_a_live_broker_wrote_is_never_proven_wrong,
            FEWER_EXAMPLES,
            {**dict.fromkeys((status.value for status in GOOD), FEWER_EXAMPLES * 0.05), "after a deletion": FEWER_EXAMPLES},
        ),
        (
            what_a_broker_wrote_that_recovered_from_its_log_start_offset_is_never_proven_wrong,
            FEWER_EXAMPLES,
            dict.fromkeys(("needs it", "unverifiable"), FEWER_EXAMPLES * 0.1),
        ),
        (
            every_lie_that_the_log_contradicts_is_proven,
            FEWER_EXAMPLES,
            dict.fromkeys(("missing", "missing without a batch", "after a deletion", "extra", *FIELDS), FEWER_EXAMPLES * 0.02),
        ),
        (equals_the_specification, 20 * EXAMPLES, dict.fromkeys(SPECIFIED, 5)),
    ],
)
def test_generated(check: Callable[[int, Counter[object]], None], count: int, least: dict[object, float]) -> None:
    """The check holds for every seed, and enough of them reach each of the cases."""
    reached: Counter[object] = Counter()
    each_seed(count)(lambda seed: check(seed, reached))()
    for case, times in least.items():
        assert reached[case] >= times, (case, reached)


def test_memory_where_all_producers_differ() -> None:
    """Apart from the entries themselves a comparison needs some columns, and no Python object for each producer."""
    count = 100_000
    entries = array_of(ProducerEntry(producer, 0, 0, producer, 0, 1000) for producer in range(count))
    truth = effect_of_entries(entries)
    found = entries[::-1].copy()
    found["last_sequence"] = 1
    tracemalloc.start()
    try:
        comparison = compare(truth, found, count, knowledge(as_of_ms=1000))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert comparison.difference_count == count
    listed_bytes = 1000 * DIFFERENCES_LISTED_MAX
    assert peak_bytes < count * (2 * ENTRY_BYTES + 110) + listed_bytes
