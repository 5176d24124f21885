"""Copies that leaders of one partition left in remote storage, by a model of leaders that change: each rolls and uploads on its own.

A leader truncates what it does not have, appends in its own epoch, and uploads from where it takes remote storage to end. After an unclean
election that is below the end of an older copy, whose last records the log has lost.
"""

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from command import in_json
from log_dirs import batch, snapshot_bytes, write_partition
from tier_example import MS, written
from tiers import TOPIC_ID, Copy, id_text, write_tier


@dataclass(frozen=True)
class LeftCopy:
    """A copy of a segment.

    Attributes:
        first: offset.
        last: offset, included.
        epochs: of the log when it was uploaded, each with its first offset.
        offsets: leader epoch of each of its offsets.
    """

    first: int
    last: int
    epochs: tuple[tuple[int, int], ...]
    offsets: dict[int, int]


@dataclass
class History:
    """The history of the leaders and their copies.

    Attributes:
        log: leader epoch of each offset of the last leader's log, from 0 on.
        epochs: of that log, each with its first offset.
        copies: in the order in which they were finished.
        is_clean: no leader lost records of an earlier one that were uploaded.
    """

    log: list[int] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    copies: list[LeftCopy] = field(default_factory=list)
    is_clean: bool = True

    @property
    def uploaded_end(self) -> int:
        """Offset after the last one that the last leader takes to be uploaded."""
        ends = [
            copy.last + 1 for copy in self.copies if all(self._has(copy, offset) for offset in range(copy.first, copy.last + 1))
        ]
        return max(ends, default=0)

    @property
    def served_end(self) -> int:
        """Offset after the last one that a copy has, also one whose end the log has lost."""
        end = self.uploaded_end
        while any(end in copy.offsets and self._has(copy, end) for copy in self.copies):
            end += 1
        return end

    def _has(self, copy: LeftCopy, offset: int) -> bool:
        return offset < len(self.log) and self.log[offset] == copy.offsets[offset]


def history(chosen: random.Random, *, unclean: bool) -> History:
    """Three to six leaders, each with a few segments of its own lengths."""
    made = History()
    for epoch in range(chosen.randint(3, 6)):
        if unclean and made.log and chosen.random() < 0.5:
            _truncate(made, chosen.randint(max(0, len(made.log) - 12), len(made.log)))
        made.epochs.append((epoch, len(made.log)))
        made.log += [epoch] * chosen.randint(4, 30)
        # A new leader takes remote storage to end at the highest offset of its newest epoch there (``findHighestRemoteOffset``).
        start = made.uploaded_end
        if start and chosen.random() < 0.5:
            start = max(0, start - chosen.randint(1, 6))
        while len(made.log) - start > 3 and chosen.random() < 0.9:
            last = min(start + chosen.randint(2, 9), len(made.log) - 2)
            epochs = tuple(each for each in made.epochs if each[1] <= last)
            made.copies.append(LeftCopy(start, last, epochs, {offset: made.log[offset] for offset in range(start, last + 1)}))
            start = last + 1
    return made


def _truncate(made: History, end: int) -> None:
    if any(copy.last >= end for copy in made.copies):
        made.is_clean = False
    del made.log[end:]
    made.epochs = [each for each in made.epochs if each[1] < end]


def written_copy(left: LeftCopy) -> Copy:
    """The files of a copy."""
    batches = (written(left.offsets[each], batch(each, producer_id=1, sequence=each, timestamp=MS + each)) for each in left.offsets)
    return Copy(left.first, b"".join(batches), left.epochs, snapshot_bytes([]), MS + left.last, left.last - left.first)


def write_leader(root: Path, made: History, log_start: int) -> Path:
    """The log directory of the last leader: its log on disk begins where the copies end."""
    first = made.served_end
    directory = root / "t-0"
    data = b"".join(written(made.log[each], batch(each, timestamp=MS + each)) for each in range(first, len(made.log)))
    write_partition(directory, {first: data})
    lines = "".join(f"{epoch} {start}\n" for epoch, start in made.epochs)
    (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(made.epochs)}\n{lines}")
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {id_text(TOPIC_ID)}")
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {log_start}\n")
    return root


def rebuilt_values(root: Path, made: History, log_start: int) -> list[bytes]:
    """The values of the records, in order; fails if they are refused."""
    root.mkdir()
    store = write_tier(root / "remote", "t", 0, [written_copy(each) for each in made.copies])
    file = root / "records.jsonl"
    run = in_json("tier metadata", store, "--log-dir", write_leader(root / "leader", made, log_start), "--records-file", file)
    assert run.exit_code == 0, (run.stderr, made)
    assert run.document["partitions"][0]["next_offset"] == made.served_end, made
    return [base64.b64decode(json.loads(line)["value"]) for line in file.read_text().splitlines()]


def stores(count: int, seed: int) -> Iterator[tuple[History, int]]:
    """Histories with copies, and a log start for each."""
    chosen = random.Random(seed)
    made = 0
    while made < count:
        one = history(chosen, unclean=made % 2 == 1)
        if one.uploaded_end:
            made += 1
            yield one, chosen.choice((0, 0, chosen.randrange(one.uploaded_end)))


def copies_with(made: History, offset: int) -> set[bytes]:
    """Ids of the copies whose record at an offset is that of the log."""
    return {
        bytes((number,)) * 16 for number, each in enumerate(made.copies, start=1) if each.offsets.get(offset) == made.log[offset]
    }


def check_reads(made: History, log_start: int, read: dict[int, bytes | None]) -> None:
    """Each uploaded offset from the log start on is read from a copy that has the record of the log; None for no copy."""
    for offset in range(log_start, made.served_end):
        assert read[offset] in copies_with(made, offset), (offset, made)
