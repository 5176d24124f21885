"""Generated stores that are odd and healthy: no broker wrote them, and a broker may serve them. The records and their values are known.

A line of leaders writes one log. Each leader rolls at offsets of its own and uploads from the segment that holds the end of remote storage,
so that copies overlap. A leader that lost its last records may have uploaded them before. The layout is that of LocalTieredStorage.
"""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from log_dirs import EMPTY_SNAPSHOT
from log_writer import record, record_batch
from tiers import epochs_text, id_text

ODDITIES = ("overlapping leaders", "a lost line", "a superseded contained copy", "an unfinished copy", "retention half done")
ODDITIES += ("two log starts", "empty epochs", "another topic id", "a second upload")


@dataclass
class OddStore:
    """One partition in remote storage.

    Attributes:
        topic: name.
        topic_id: 16 bytes.
        epochs: of the line of leaders, with the first offset of each.
        log_start: of the partition.
        log_end: of its copies; the log on disk begins there and is empty.
        values: of the records, by offset.
        copies: segment ids and offsets of the whole copies, first and last.
        oddities: what is odd.
    """

    topic: str
    topic_id: bytes
    epochs: list[tuple[int, int]]
    log_start: int = 0
    log_end: int = 0
    values: dict[int, bytes] = field(default_factory=dict)
    copies: list[tuple[bytes, int, int]] = field(default_factory=list)
    oddities: set[str] = field(default_factory=set)

    def write_log(self, to: Path) -> Path:
        """The empty log on the disk of the leader."""
        to.mkdir(parents=True)
        (to / f"{self.log_end:020d}.log").touch()
        (to / f"{self.log_end:020d}.snapshot").write_bytes(EMPTY_SNAPSHOT)
        (to / "leader-epoch-checkpoint").write_text(epochs_text(self.epochs))
        return to


class _Writer:
    """Writes copies of one partition."""

    def __init__(self, rng: random.Random, root: Path, store: OddStore, now_ms: int) -> None:
        self._rng = rng
        self._store = store
        self._root = root
        self._now_ms = now_ms
        self._batches: list[tuple[int, int, bytes]] = []

    def write_batches(self, end: int) -> None:
        """The log: batches of up to five records, none of which spans two epochs."""
        store = self._store
        offset = 0
        while offset < end:
            epoch, above = _epoch_at(store.epochs, offset)
            count = min(self._rng.randrange(1, 6), end - offset, above - offset)
            values = [f"{store.topic} {offset + number} of {epoch}".encode() for number in range(count)]
            store.values |= {offset + number: value for number, value in enumerate(values)}
            self._batches.append((offset, offset + count - 1, self._batch(offset, epoch, values)))
            offset += count
        store.log_end = end

    def _batch(self, offset: int, epoch: int, values: Sequence[bytes]) -> bytes:
        records = [record(number, 0, None, value) for number, value in enumerate(values)]
        time_ms = self._now_ms + offset
        return record_batch(
            offset,
            records,
            last_offset_delta=len(values) - 1,
            base_timestamp=time_ms,
            max_timestamp=time_ms,
            leader_epoch=epoch,
        )

    def rolled(self, first: int, end: int) -> list[int]:
        """Base offsets at which a leader rolls between two batches, the first one at or below ``first``."""
        starts = [batch[0] for batch in self._batches if batch[0] < end]
        base = max(start for start in starts if start <= first)
        above = [start for start in starts if start > base]
        return [base, *sorted(self._rng.sample(above, k=min(3, len(above) // 2)))]

    def copy(self, first: int, last: int, *, kinds: Sequence[str] = (), topic_id: bytes | None = None, lost: int = 0) -> int:
        """Writes the copy of a segment. Gives the offset after its end.

        Args:
            first: base offset, at which a batch begins.
            last: an offset in its last batch.
            kinds: suffixes of its files; all if empty.
            topic_id: of another topic; None for that of the store.
            lost: records of the last leader epoch of the segment that were truncated since, after ``last``.
        """
        store = self._store
        batches = [batch for batch in self._batches if first <= batch[0] <= last]
        end = batches[-1][1] + 1
        data = b"".join(batch[2] for batch in batches)
        if lost:
            epoch, _ = _epoch_at(store.epochs, first)
            data += self._batch(end, epoch, [f"{store.topic} lost {number}".encode() for number in range(lost)])
            end += lost
        segment_id = self._rng.randbytes(16)
        epochs = [entry for entry in store.epochs if entry[1] < end - lost]
        time_ms = self._now_ms + batches[-1][0]
        files = {
            ".log": data,
            ".index": b"",
            ".timeindex": struct.pack(">qi", time_ms, batches[-1][1] - first),
            ".leader_epoch_checkpoint": epochs_text(epochs).encode(),
            ".snapshot": EMPTY_SNAPSHOT,
        }
        directory = self._root / "kafka-tiered-storage" / f"{store.topic}-0-{id_text(topic_id or store.topic_id)}"
        directory.mkdir(parents=True, exist_ok=True)
        for suffix, content in files.items():
            if not kinds or suffix in kinds:
                (directory / f"{first:020d}-{id_text(segment_id)}{suffix}").write_bytes(content)
        if not kinds and topic_id is None:
            store.copies.append((segment_id, first, end - 1))
        return end

    def segments(self, bases: Sequence[int], end: int) -> None:
        """Copies of consecutive segments."""
        for first, following in zip(bases, [*bases[1:], end], strict=True):
            self.copy(first, following - 1)


def _epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> tuple[int, int]:
    """The epoch of an offset, and where the next one begins."""
    number = max(number for number, (_, start) in enumerate(epochs) if start <= offset)
    above = epochs[number + 1][1] if number + 1 < len(epochs) else 1 << 62
    return epochs[number][0], above


def odd_store(seed: int, root: Path, topic: str, topic_id: bytes, newest_epoch: int, now_ms: int) -> OddStore:
    """Writes one partition with some oddities.

    Args:
        seed: decides what is odd.
        root: of the store.
        topic: name.
        topic_id: 16 bytes.
        newest_epoch: no leader epoch is above it.
        now_ms: of the first record.
    """
    rng = random.Random(seed)
    oddities = {ODDITIES[seed % len(ODDITIES)], *rng.sample(ODDITIES, k=rng.randrange(3))}
    forks = sorted(rng.sample(range(30, 100, 5), k=2))
    starts = [forks[0], *forks] if "empty epochs" in oddities else forks
    epochs = [(0, 0), *zip(sorted(rng.sample(range(1, newest_epoch + 1), k=len(starts))), starts, strict=True)]
    store = OddStore(topic, topic_id, epochs, oddities=oddities)
    writer = _Writer(rng, root, store, now_ms)
    writer.write_batches(rng.randrange(120, 160))
    reached = 0
    for number, (_, start) in enumerate(epochs):
        end = epochs[number + 1][1] if number + 1 < len(epochs) else store.log_end
        if start == end:
            continue
        writer.segments(writer.rolled(reached if "overlapping leaders" in oddities else start, end), end)
        reached = end - rng.randrange(1, 8)
    if "a lost line" in oddities:
        writer.copy(max(base for _, base, _ in store.copies if base < forks[0]), forks[0] - 1, lost=4)
    if "a superseded contained copy" in oddities:
        _, first, _ = rng.choice([copy for copy in store.copies if copy[2] - copy[1] > 12])
        writer.copy(first, first + 5)
    if "a second upload" in oddities:
        _, first, last = rng.choice(store.copies[:3])
        writer.copy(first, last)
    if "an unfinished copy" in oddities:
        writer.copy(max(base for _, base, _ in store.copies), store.log_end - 1, kinds=(".log", ".index"))
    if "another topic id" in oddities:
        writer.copy(0, 20, topic_id=rng.randbytes(16))
    if "retention half done" in oddities or "two log starts" in oddities:
        store.log_start = forks[0] + 3
    if "retention half done" in oddities:
        below = sorted({copy for copy in store.copies if copy[2] < store.log_start}, key=lambda copy: copy[1])
        for segment_id, first, last in below[:1]:
            for path in root.rglob(f"*-{id_text(segment_id)}.*"):
                if not path.name.endswith(".log"):
                    path.unlink()
            store.copies.remove((segment_id, first, last))
    return store
