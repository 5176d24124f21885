"""The example that the proposal to rebuild snapshots gives: five segments, a window of fifteen minutes, and a producer that retries.

Segments of 1 GB are filled at 5 MB/s, producers expire after 15 minutes. Producer 1 wrote into the first segments only. When the partition
moves to a broker that starts from the snapshot of the last closed segment, producer 1 repeats its last batch, because the answer was lost.
With the rebuilt snapshot the broker knows the batch; with an empty file in its place (which satisfies the upload just as well) the batch
stands in the log twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import floor
from pathlib import Path

import pytest
from command import in_json
from log_dirs import EMPTY_SNAPSHOT, batch, entries_in, make_log_dir, snapshot_name, snapshots_in, write_partition

from formats.partition.producer_snapshot import ProducerEntry

SEGMENT_BYTES = 1 << 30
RATE_BYTES_PER_SECOND = 5 << 20
EXPIRATION_MS = 15 * 60 * 1000
SEGMENT_MS = SEGMENT_BYTES * 1000 // RATE_BYTES_PER_SECOND

START_MS = 1_700_000_000_000
SEGMENTS = 5
BATCHES = 10
"""In each segment; one record each, so that segment n begins at offset 10 n."""

END_MS = START_MS + SEGMENTS * SEGMENT_MS


# ---------------------------------------------------------------------------------------------------------------- the broker's answer


class Answer(Enum):
    """What a partition leader says to a batch of an idempotent producer."""

    APPENDED = "appended"
    DUPLICATE = "duplicate: acknowledged, not appended"
    OUT_OF_ORDER = "OutOfOrderSequenceException"
    FENCED = "InvalidProducerEpochException"


@dataclass
class Leader:
    """A leader that loaded a snapshot: the checks of ``ProducerAppendInfo`` for the origin CLIENT, written down from Kafka 4.3.1.

    After a load one batch of each producer is known (``ProducerStateEntry`` keeps five, the file has the newest).
    """

    entries: dict[int, ProducerEntry]

    @classmethod
    def loaded(cls, data: bytes, now_ms: int, expiration_ms: int) -> Leader:
        """``ProducerStateManager.loadFromSnapshot``: expired producers are dropped, unless their transaction is open."""
        return cls(
            {
                entry.producer_id: entry
                for entry in entries_in(data)
                if entry.current_txn_first_offset >= 0 or now_ms - entry.timestamp < expiration_ms
            }
        )

    def append(self, producer_id: int, epoch: int, sequence: int, count: int = 1) -> Answer:
        """A produce request with one batch, not transactional."""
        entry = self.entries.get(producer_id)
        last = sequence + count - 1
        # Asked before anything else (`UnifiedLog.analyzeAndValidateProducerState`, `ProducerStateEntry.findDuplicateBatch`).
        if entry is not None and entry.last_offset >= 0 and epoch == entry.epoch and self._is_newest(entry, sequence, last):
            return Answer.DUPLICATE
        if entry is not None and epoch < entry.epoch:
            return Answer.FENCED  # `checkProducerEpoch`
        if entry is not None and not self._is_in_order(entry, epoch, sequence):
            return Answer.OUT_OF_ORDER  # `checkSequence`
        self.entries[producer_id] = ProducerEntry(producer_id, epoch, last, 0, count - 1, 0)
        return Answer.APPENDED

    @staticmethod
    def _is_newest(entry: ProducerEntry, first: int, last: int) -> bool:
        return (first, last) == (entry.last_sequence - entry.offset_delta, entry.last_sequence)

    @staticmethod
    def _is_in_order(entry: ProducerEntry, epoch: int, sequence: int) -> bool:
        if epoch != entry.epoch:
            return sequence == 0 or entry.epoch == -1
        if entry.last_offset < 0:
            return sequence == 0 or entry.epoch == -1
        return sequence == (entry.last_sequence + 1) % (1 << 31)


# ---------------------------------------------------------------------------------------------------------------- the partition


def producer_of(number: int) -> int:
    """Producer 1 writes the second segment; 2 writes all of them, and one more in each."""
    segment, place = divmod(number, BATCHES)
    if segment == 1 and place < 4:
        return 1
    return 2 if place % 2 else 10 + segment


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Five segments in the time that 5 GB take, at a hundred-millionth of the size; the last one is still open."""
    sequences: dict[int, int] = {}
    segments = dict.fromkeys((10 * n for n in range(SEGMENTS)), b"")
    for number in range(SEGMENTS * BATCHES):
        producer = producer_of(number)
        sequence = sequences.get(producer, 0)
        sequences[producer] = sequence + 1
        timestamp = START_MS + (number + 1) * SEGMENT_MS // BATCHES
        segments[number // BATCHES * BATCHES] += batch(number, producer_id=producer, sequence=sequence, timestamp=timestamp)
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "orders-0", segments)
    return logs


def state_at(boundary: int) -> set[ProducerEntry]:
    """By hand: the last batch of each producer below the boundary."""
    last: dict[int, tuple[int, int]] = {}
    for number in range(boundary):
        producer = producer_of(number)
        last[producer] = (last.get(producer, (-1, 0))[0] + 1, number)
    return {
        ProducerEntry(producer, 0, sequence, offset, 0, START_MS + (offset + 1) * SEGMENT_MS // BATCHES)
        for producer, (sequence, offset) in last.items()
    }


def test_the_arithmetic_of_the_example() -> None:
    """1 GB at 5 MB/s is 204 s a segment, so that fifteen minutes are 4.4 segments: a window of five."""
    assert SEGMENT_MS // 1000 == 204
    covered = EXPIRATION_MS / SEGMENT_MS
    assert round(covered, 1) == 4.4
    assert floor(covered) + 1 == SEGMENTS


def test_the_window_covers_what_can_still_matter(log_dir: Path) -> None:
    """At the end of the fifth segment the first is older than fifteen minutes in part only; a segment later it is out of the window."""
    first_ends_ms = START_MS + SEGMENT_MS
    assert END_MS - first_ends_ms < EXPIRATION_MS < END_MS + SEGMENT_MS - first_ends_ms
    for as_of, begins in ((END_MS, 0), (END_MS + SEGMENT_MS, 10)):
        run = in_json(
            "plan", log_dir, "--expiration-ms", EXPIRATION_MS, "--as-of", as_of, "--replay-from", "window", "--boundaries", "all"
        )
        (partition,) = run.document["partitions"]
        # Without time indexes nothing is known to be old: every segment counts as young.
        assert partition["replay_from_offset"] == 0
        write_time_indexes(log_dir)
        run = in_json(
            "plan", log_dir, "--expiration-ms", EXPIRATION_MS, "--as-of", as_of, "--replay-from", "window", "--boundaries", "all"
        )
        (partition,) = run.document["partitions"]
        assert partition["replay_from_offset"] == begins
        for path in (log_dir / "orders-0").glob("*.timeindex"):
            path.unlink()


def write_time_indexes(log_dir: Path) -> None:
    """One entry each: greatest timestamp, and its offset below the base."""
    for segment in range(SEGMENTS):
        largest = START_MS + (segment + 1) * SEGMENT_MS
        entry = largest.to_bytes(8, "big") + (BATCHES - 1).to_bytes(4, "big")
        (log_dir / "orders-0" / f"{segment * BATCHES:020d}.timeindex").write_bytes(entry)


def test_the_retried_batch_of_producer_1(log_dir: Path) -> None:
    run = in_json("rebuild", log_dir, "--expiration-ms", EXPIRATION_MS, "--as-of", END_MS)
    assert run.exit_code == 0
    found = snapshots_in(log_dir / "orders-0")
    assert found == {boundary: state_at(boundary) for boundary in (10, 20, 30, 40, 50)}

    # The last batch of producer 1 stands in the second segment, four segments' time ago or less.
    (last,) = [entry for entry in found[40] if entry.producer_id == 1]
    assert (last.last_sequence, last.last_offset) == (3, 13)
    rebuilt = (log_dir / "orders-0" / snapshot_name(40)).read_bytes()
    leader = Leader.loaded(rebuilt, END_MS, EXPIRATION_MS)
    assert leader.append(1, epoch=0, sequence=3) is Answer.DUPLICATE
    assert leader.append(1, epoch=0, sequence=4) is Answer.APPENDED
    assert leader.append(1, epoch=0, sequence=4) is Answer.DUPLICATE
    assert leader.append(1, epoch=0, sequence=9) is Answer.OUT_OF_ORDER

    empty = Leader.loaded(EMPTY_SNAPSHOT, END_MS, EXPIRATION_MS)
    assert empty.append(1, epoch=0, sequence=3) is Answer.APPENDED, "the same batch a second time"
    assert empty.append(1, epoch=0, sequence=3) is Answer.DUPLICATE


def test_nobody_whom_the_broker_would_drop_is_missed(log_dir: Path) -> None:
    """The window rule: with expired producers left out, every answer is that of the full file."""
    as_of = END_MS + SEGMENT_MS // 2
    in_json("rebuild", log_dir, "--out", log_dir.parent / "full", "--expiration-ms", EXPIRATION_MS, "--as-of", as_of)
    in_json(
        "rebuild", log_dir, "--out", log_dir.parent / "small", "--expiration-ms", EXPIRATION_MS, "--as-of", as_of, "--drop-expired"
    )
    full, small = snapshots_in(log_dir.parent / "full" / "orders-0"), snapshots_in(log_dir.parent / "small" / "orders-0")
    assert {entry.producer_id for entry in full[50] - small[50]} == {10}, "it wrote into the first segment only"
    for boundary in full:
        files = [(log_dir.parent / name / "orders-0" / snapshot_name(boundary)).read_bytes() for name in ("full", "small")]
        one, other = (Leader.loaded(data, as_of, EXPIRATION_MS) for data in files)
        assert one.entries == other.entries


@pytest.mark.parametrize(
    ("entry", "batch_of_producer", "answer"),
    [
        (None, (0, 10), Answer.APPENDED),
        (None, (7, 3), Answer.APPENDED),
        (ProducerEntry(1, 0, 9, 90, 0, 5), (0, 10), Answer.APPENDED),
        (ProducerEntry(1, 0, 9, 90, 0, 5), (0, 5), Answer.OUT_OF_ORDER),
        (ProducerEntry(1, 0, 5, 90, 0, 5), (0, 10), Answer.OUT_OF_ORDER),
        (ProducerEntry(1, 0, -1, -1, 0, 5), (0, 10), Answer.OUT_OF_ORDER),
        (ProducerEntry(1, 0, -1, -1, 0, 5), (0, 0), Answer.APPENDED),
        (ProducerEntry(1, -1, -1, -1, 0, 5), (0, 10), Answer.APPENDED),
        (ProducerEntry(1, 5, 9, 90, 0, 5), (3, 10), Answer.FENCED),
    ],
    ids=[
        "missing",
        "missing, any epoch",
        "next",
        "older retry",
        "stale",
        "no batch",
        "no batch, from 0",
        "epoch -1",
        "older epoch",
    ],
)
def test_the_simulated_leader_answers_as_kafka(
    entry: ProducerEntry | None, batch_of_producer: tuple[int, int], answer: Answer
) -> None:
    """What the classes of 4.3.1 answered to the same states and batches."""
    leader = Leader({} if entry is None else {1: entry})
    assert leader.append(1, *batch_of_producer) is answer
