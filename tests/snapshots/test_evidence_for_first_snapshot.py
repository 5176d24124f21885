"""Evidence against the snapshot at the first offset, and things that only look like it: faults next to healthy forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from index_reference import write_transaction_index
from log_dirs import flip
from msgspec.structs import replace
from replays import EXACT, EXACT_FROM_LOG_START, NOW, UNPROVEN, Hand, Run, entries_in, put_snapshot, run
from simulated_broker import EXPIRATION_MS, Client, listed
from strategies import batch_of, header_of

from formats.partition.producer_snapshot import ProducerEntry
from formats.partition.transaction_index import AbortedTransaction
from snaprebuild.errors import LimitReachedError
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.storage.local.store import LocalStore

FIVE = ProducerEntry(5, 0, 4, 8, 0, NOW - 1, coordinator_epoch=1)
LATER = NOW + 2 * EXPIRATION_MS


def idempotent(producer: int, sequence: int = 0) -> Client:
    return Client(producer, is_transactional=False, sequence=sequence)


def plain(log: Hand, timestamp: int) -> None:
    """A batch of a client without a producer id."""
    header = header_of(log.end, base_timestamp=timestamp, max_timestamp=timestamp, record_count=1)
    log.add(batch_of(header, b""))


@dataclass
class Form:
    """A log from offset 10 on, with snapshots.

    Attributes:
        refuting: fields that contradict the first snapshot.
        classes: by boundary; those that are not named may be any.
    """

    log: Hand
    snapshots: dict[int, Sequence[ProducerEntry]]
    refuting: set[str] = field(default_factory=set)
    classes: dict[int, SnapshotClass] = field(default_factory=dict)

    def run(self, place: Path, cuts: Sequence[int] = ()) -> Run:
        directory = self.log.write(place / "t-0", dict(self.snapshots))
        return run(directory, as_of_ms=LATER + 9, cuts=cuts)


def begins_a_transaction(later: ProducerEntry | None, base: Sequence[ProducerEntry] = ()) -> Form:
    """Producer 5 begins a transaction with the first data that it ever wrote. An empty one before leaves a coordinator epoch."""
    log = Hand(10)
    log.data(idempotent(9), NOW)
    client = Client(5, is_transactional=True)
    log.data(client, NOW)
    at = log.roll()
    log.marker(client, NOW)
    log.roll()
    log.data(idempotent(9, 1), NOW)
    nine = ProducerEntry(9, 0, 0, 10, 0, NOW)
    snapshots: dict[int, Sequence[ProducerEntry]] = {10: base}
    if later:
        snapshots[at] = [later, nine]
        return Form(log, snapshots)
    end = log.roll()
    plain(log, NOW)  # the snapshot below it was not written much later
    snapshots[end] = [ProducerEntry(5, 0, 0, 11, 0, NOW, 1), ProducerEntry(9, 0, 1, end - 1, 0, NOW)]
    return Form(log, snapshots)


def only_markers(lacking: bool) -> Form:
    """Producer 5 is known by a marker below the first offset alone, and writes nothing after it."""
    log = Hand(10)
    log.data(idempotent(9), NOW)
    at = log.roll()
    log.data(idempotent(9, 1), NOW)
    marked = ProducerEntry(5, 3, timestamp=NOW - 1, coordinator_epoch=2)
    form = Form(log, {10: [] if lacking else [marked], at: [marked, ProducerEntry(9, 0, 0, 10, 0, NOW)]})
    form.classes = dict.fromkeys((at, log.end), EXACT_FROM_LOG_START if lacking else EXACT)
    form.refuting = {"coordinator_epoch"} if lacking else set()
    return form


def two_markers(apart_ms: int) -> Form:
    """Two markers that close nothing; the broker of the later snapshot forgot the batch, perhaps between them."""
    log, client = Hand(10), Client(5, is_transactional=True)
    log.marker(client, NOW)
    log.marker(client, NOW + apart_ms)
    at = log.roll()
    plain(log, NOW + apart_ms)
    forgotten = ProducerEntry(5, 0, timestamp=NOW + apart_ms, coordinator_epoch=1)
    form = Form(log, {10: [FIVE], at: [forgotten]})
    form.refuting = set() if apart_ms >= EXPIRATION_MS else {"last_sequence", "last_offset"}
    return form


def rolled_without_a_batch(timestamp: int | None) -> Form:
    """A snapshot that lacks producer 5, at the begin of a segment which is empty, or begins with this time."""
    log = Hand(10)
    plain(log, NOW)
    at = log.roll()
    if timestamp is not None:
        plain(log, timestamp)
        log.roll()
    form = Form(log, {10: [FIVE], at: []})
    form.refuting = {"last_offset"} if timestamp == NOW else set()
    return form


def has_a_producer_that_the_base_lacks() -> Form:
    """It expired before the segment after that snapshot began, and was live at the boundary."""
    log = Hand(10)
    plain(log, NOW)
    at = log.roll()
    plain(log, LATER)
    form = Form(log, {10: [ProducerEntry(7, 0, 0, 1, 0, NOW)], at: [ProducerEntry(7, 0, 0, 1, 0, NOW), FIVE]})
    form.classes = {at: EXACT_FROM_LOG_START, log.end: EXACT_FROM_LOG_START}
    return form


def fresh(coordinator_epoch: int) -> ProducerEntry:
    return ProducerEntry(5, 0, 0, 11, 0, NOW, coordinator_epoch, current_txn_first_offset=11)


def differs(**fields: int) -> Form:
    """A later snapshot has another value, and nothing in between wrote it."""
    log = Hand(10)
    plain(log, NOW)
    at = log.roll()
    plain(log, NOW)
    return Form(log, {10: [FIVE], at: [replace(FIVE, **fields)]}, set(fields))


def throws() -> Form:
    """The entry has no epoch, so that no rule for the first batch applies. A batch outside of its open transaction follows."""
    log = Hand(10)
    plain(log, NOW)
    at = log.roll()
    log.data(idempotent(5), NOW)
    opened = ProducerEntry(5, timestamp=NOW - 1, current_txn_first_offset=8)
    return Form(log, {10: [opened], at: [opened]}, {"current_txn_first_offset"})


FAULTS = {
    "a batch at which Kafka throws": throws,
    "another timestamp": lambda: differs(timestamp=NOW - 2),
    "another epoch": lambda: differs(epoch=1),
    "a coordinator epoch that the base lacks": lambda: with_result(
        begins_a_transaction(fresh(3)), {"coordinator_epoch"}, {12: EXACT_FROM_LOG_START, 13: EXACT_FROM_LOG_START}
    ),
    "a producer with markers alone that the base lacks": lambda: only_markers(lacking=True),
    "a batch that is lost between markers of one hour": lambda: two_markers(EXPIRATION_MS // 24),
    "a live producer that is lost": lambda: rolled_without_a_batch(NOW),
}


def lacks_a_silent_producer(end_ms: int, *, has_snapshot_below: bool = False) -> Form:
    """No snapshot at 12, where producer 5 is perhaps still live and missing; the one at 13 is written at this time, and lacks it, too."""
    log = Hand(10)
    log.data(idempotent(9), NOW)
    below = log.roll()
    log.data(idempotent(9, 1), NOW)
    at = log.roll()
    plain(log, end_ms)
    above = log.roll()
    plain(log, end_ms)
    nine = ProducerEntry(9, 0, 0, 10, 0, NOW)
    snapshots: dict[int, Sequence[ProducerEntry]] = {10: [], above: [replace(nine, last_sequence=1, last_offset=11)]}
    if has_snapshot_below:
        snapshots = {10: [], below: [nine]}
    is_known = has_snapshot_below or end_ms - NOW <= EXPIRATION_MS // 24
    return with_result(Form(log, snapshots), set(), {at: EXACT if is_known else EXACT_FROM_LOG_START, above: EXACT})


def all_expired() -> Form:
    """At 12 producers may be live that the base lacks. At 13 none of them can be, and the snapshot at 14 is written much later."""
    log = Hand(10)
    log.data(idempotent(9), NOW)
    log.roll()
    plain(log, NOW + 1)
    at = log.roll()
    plain(log, NOW + EXPIRATION_MS + EXPIRATION_MS // 24)
    late = log.roll()
    plain(log, LATER)
    end = log.roll()
    plain(log, 2 * LATER)
    form = Form(log, {10: [], end: []})
    form.classes = {at: EXACT_FROM_LOG_START, late: EXACT, end: EXACT}
    return form


HEALTHY = {
    "a first transaction": lambda: with_result(begins_a_transaction(fresh(-1)), set(), {12: EXACT, 13: EXACT}),
    "perhaps not the first transaction": lambda: with_result(
        begins_a_transaction(None), set(), {12: EXACT_FROM_LOG_START, 13: EXACT}
    ),
    "a producer with markers alone": lambda: only_markers(lacking=False),
    "a producer that has expired since": has_a_producer_that_the_base_lacks,
    "lacks no producer, as far as a snapshot of the same time shows": lambda: lacks_a_silent_producer(NOW),
    "lacks no producer who did not expire in an hour": lambda: lacks_a_silent_producer(NOW + EXPIRATION_MS // 24),
    "lacks a producer who expired in more than an hour, perhaps": lambda: lacks_a_silent_producer(NOW + EXPIRATION_MS // 24 + 1),
    "lacks no producer, by the snapshot below": lambda: lacks_a_silent_producer(LATER, has_snapshot_below=True),
    "lacks no producer who did not expire since": all_expired,
    "forgotten between two markers": lambda: two_markers(EXPIRATION_MS),
    "forgotten before the log was rolled without a batch": lambda: rolled_without_a_batch(None),
    "forgotten before the log was rolled": lambda: rolled_without_a_batch(LATER),
}


def with_result(form: Form, refuting: set[str], classes: dict[int, SnapshotClass]) -> Form:
    form.refuting, form.classes = refuting, classes
    return form


@pytest.mark.parametrize("name", [*FAULTS, *HEALTHY])
def test_evidence(name: str, tmp_path: Path) -> None:
    form = (FAULTS | HEALTHY)[name]()
    assert bool(form.refuting) is (name in FAULTS)
    result = form.run(tmp_path)
    first = result.replay.first_snapshot
    assert first is not None
    assert first.verdict is not None
    assert first.verdict.evidence_count == 1
    assert {each.field for each in first.verdict.refutations} == form.refuting
    assert {at: result.classes[at] for at in form.classes} == form.classes


@pytest.mark.parametrize("first_offset", [8, None])
def test_transaction_index_confirms_an_open_transaction(first_offset: int | None, tmp_path: Path) -> None:
    """Without it nothing shows that the marker ends what the first snapshot has: an empty transaction leaves such a marker, too."""
    log, client = Hand(10), Client(5, is_transactional=True)
    plain(log, NOW)
    at = log.roll()
    marker = log.marker(client, NOW, commit=False)
    path = tmp_path / "t-0"
    log.write(path, {10: [replace(FIVE, current_txn_first_offset=8)]})
    if first_offset is not None:
        entry = AbortedTransaction(0, 5, first_offset, marker, log.end)
        (path / f"{at:020d}.txnindex").write_bytes(write_transaction_index([entry]))
    result = run(listed(path), as_of_ms=NOW)
    assert result.classes[at] is (UNPROVEN if first_offset is None else EXACT_FROM_LOG_START)
    opened = [entry.current_txn_first_offset for entry in entries_in(result.at(at).entries).values()]
    assert opened == [8], "dropping it would let the last stable offset pass it"


class LimitedStore(LocalStore):
    """A limit of the run is used up when a transaction index is asked for."""

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        if location.endswith(".txnindex"):
            raise LimitReachedError("max_requests is used up")
        return LocalStore.read_small(self, location, bytes_max)


def test_transaction_index_that_a_limit_kept_from_being_read_is_no_absent_one(tmp_path: Path) -> None:
    log, client = Hand(10), Client(5, is_transactional=True)
    plain(log, NOW)
    at = log.roll()
    marker = log.marker(client, NOW, commit=False)
    path = tmp_path / "t-0"
    log.write(path, {10: [replace(FIVE, current_txn_first_offset=8)]})
    entry = AbortedTransaction(0, 5, 9, marker, log.end)
    (path / f"{at:020d}.txnindex").write_bytes(write_transaction_index([entry]))
    with pytest.raises(LimitReachedError):
        run(dataclasses.replace(listed(path), store=LimitedStore()), as_of_ms=NOW)


# ------------------------------------------------------------------------------------------------------------------------ pieces


def test_time_of_a_snapshot_does_not_depend_on_pieces(tmp_path: Path) -> None:
    """The segment after it begins with batches without producer ids, and producers that wrote before it have expired by the first other."""
    log = Hand(10)
    log.data(idempotent(9), NOW)
    at = log.roll()
    plain(log, NOW + 1)
    cut = log.end
    log.data(idempotent(11), LATER)
    form = Form(log, {10: [FIVE], at: [ProducerEntry(9, 0, 0, 10, 0, NOW)]})
    whole = form.run(tmp_path / "whole")
    pieces = form.run(tmp_path / "pieces", cuts=(cut,))
    for result in (whole, pieces):
        assert result.replay.first_snapshot is not None
        assert result.replay.first_snapshot.reason is None
    assert pieces.classes.items() >= whole.classes.items()


def test_damaged_segment_speaks_against_nothing_above_or_below_a_cut(tmp_path: Path) -> None:
    log = Hand(10)
    log.data(idempotent(9, 3), NOW)
    at = log.roll()
    log.data(idempotent(5, 9), NOW)  # contradicts the first snapshot
    cut = log.end
    log.data(idempotent(9, 4), NOW)
    five = ProducerEntry(5, 0, 4, 8, 0, NOW - 1)
    snapshots = {10: [five, ProducerEntry(9, 0, 2, 7, 0, NOW - 1)], at: [five, ProducerEntry(9, 0, 3, 10, 0, NOW)]}
    classes = []
    for name, cuts in (("whole", ()), ("pieces", (cut,))):
        path = tmp_path / name / "t-0"
        log.write(path, {})
        for offset, entries in snapshots.items():
            put_snapshot(path, offset, entries)
        segment = path / f"{at:020d}.log"
        flip(segment, segment.stat().st_size - 1)
        result = run(listed(path), as_of_ms=NOW, cuts=cuts)
        assert result.replay.first_snapshot is not None
        assert result.replay.first_snapshot.reason is None
        classes.append(result.classes[at])
    assert classes == [EXACT, EXACT]
