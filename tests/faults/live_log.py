"""A broker that goes on working in a log directory: a process that appends, rolls, retains, truncates and swaps, call by call as Kafka.

Of ``t-0`` the truth at every offset is known: the batches are those of a ``SimulatedBroker``, wherever the log begins by then. ``c-0`` is
compacted. The process holds the broker's lock, plays one log after the other as it is told on stdin, and writes down how far it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import random
import select
import shutil
import struct
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from log_dirs import make_log_dir, snapshot_bytes, snapshot_name
from simulated_broker import SimulatedBroker

SEGMENTS = 60
KEPT_MAX = 6
MOMENT = struct.Struct(">qqqq")
"""Index of the first segment whose log is there, offset of the log end at least and at most, index of the active segment."""
PAUSES = (0, 0, 0, 0.0002, 0.001)
PACES = (1, 10, 50, 300)
"""Times a pause: a log is busy, or nearly idle."""


def write_new(path: Path, data: bytes) -> None:
    """As ``Files.newByteChannel``: in place, some bytes at a time."""
    with path.open("xb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        file.write(data[len(data) // 2 :])


class LiveLog:
    """One log directory, and the steps of its broker."""

    def __init__(self, seed: int, root: Path, moment: mmap.mmap) -> None:
        """Makes what stands there at first: three segments, an active one, and a compacted partition."""
        self.rng = random.Random(seed)
        self.pace = self.rng.choice(PACES)
        self.truth = self.log_of(seed)
        self.root, self.directory, self.compacted = root, root / "t-0", root / "c-0"
        self.moment = moment
        self.first = self.active = self.batch = 0
        self.deleted: list[Path] = []
        make_log_dir(root, clean=False, cleaner_offset_checkpoint="0\n1\nc 0 5\n")
        self.directory.mkdir()
        self.compacted.mkdir()
        for directory in (self.directory, self.compacted):
            (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        for segment in self.truth.segments[:3]:
            for suffix, data in ((".log", segment.data), (".index", b""), (".timeindex", b"")):
                (self.compacted / f"{segment.base_offset:020d}{suffix}").write_bytes(data)
        self._begin(0)
        while self.active < 3:
            self._append()
        self._checkpoint()

    def log_of(self, seed: int) -> SimulatedBroker:
        """What is written into the log."""
        return SimulatedBroker(seed, SEGMENTS)

    def step(self) -> None:
        """Something that a broker does."""
        draw = self.rng.random()
        if draw < 0.6:
            self._append()
        elif draw < 0.75 and self.active - self.first > KEPT_MAX // 2:
            self._retain()
        elif draw < 0.8:
            self._remove_deleted()
        elif draw < 0.85:
            self._truncate()
        elif draw < 0.95:
            self._compact()
        else:
            self._checkpoint()

    def _path(self, index: int, suffix: str) -> Path:
        return self.directory / f"{self.truth.segments[index].base_offset:020d}{suffix}"

    def _tell(self, end_least: int, end_most: int) -> None:
        self.moment[: MOMENT.size] = MOMENT.pack(self.first, end_least, end_most, self.active)

    def _end(self) -> int:
        batches = self.truth.segments[self.active].batches[: self.batch]
        return batches[-1].header.last_offset + 1 if batches else self.truth.segments[self.active].base_offset

    def _begin(self, index: int) -> None:
        """``UnifiedLog.roll``: the new segment, then the snapshot of what lies below it."""
        self.active, self.batch = index, 0
        for suffix in (".log", ".index", ".timeindex"):
            self._path(index, suffix).touch()
        if index:
            entries = self.truth.segments[index - 1].whole.values()
            write_new(self.directory / snapshot_name(self.truth.segments[index].base_offset), snapshot_bytes(entries))
        self._tell(self._end(), self._end())

    def _append(self) -> None:
        segment = self.truth.segments[self.active]
        if self.batch == len(segment.batches):
            if self.active + 1 < SEGMENTS:
                self._begin(self.active + 1)
            return
        batch = segment.batches[self.batch]
        self._tell(self._end(), batch.header.last_offset + 1)
        with self._path(self.active, ".log").open("ab", buffering=0) as file:
            if self.rng.random() < 0.2:
                half = len(batch.data) // 2
                file.write(batch.data[:half])
                time.sleep(0.0002)
                file.write(batch.data[half:])
            else:
                file.write(batch.data)
        self.batch += 1
        self._tell(self._end(), self._end())

    def _retain(self) -> None:
        """``LocalLog.deleteSegmentFiles``: names first, bytes a minute later."""
        index, self.first = self.first, self.first + 1
        self._tell(self._end(), self._end())
        for suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path = self._path(index, suffix)
            with contextlib.suppress(FileNotFoundError):
                path.rename(path.with_name(path.name + ".deleted"))
                self.deleted.append(path.with_name(path.name + ".deleted"))
        self._checkpoint()

    def _remove_deleted(self) -> None:
        for path in self.deleted:
            path.unlink()
        self.deleted = []

    def _truncate(self) -> None:
        """A follower that goes back by a batch, and gets the same one again."""
        batches = self.truth.segments[self.active].batches
        if not self.batch:
            return
        end = self._end()
        self.batch -= 1
        self._tell(self._end(), end)
        os.truncate(self._path(self.active, ".log"), sum(len(each.data) for each in batches[: self.batch]))
        self._append()

    def _compact(self) -> None:
        """``Cleaner.replaceSegments``: .cleaned, .swap, the old ones away, and the name."""
        segment = self.truth.segments[self.rng.randrange(2)]
        path = self.compacted / f"{segment.base_offset:020d}.log"
        kept = [each for each in segment.batches if self.rng.random() < 0.7] or segment.batches[-1:]
        cleaned, swap = path.with_name(path.name + ".cleaned"), path.with_name(path.name + ".swap")
        cleaned.write_bytes(b"".join(each.data for each in kept))
        cleaned.rename(swap)
        path.rename(path.with_name(path.name + ".deleted"))
        swap.rename(path)
        path.with_name(path.name + ".deleted").unlink()

    def _checkpoint(self) -> None:
        for name, offset in (
            ("log-start-offset-checkpoint", self.truth.segments[self.first].base_offset),
            ("recovery-point-offset-checkpoint", self.truth.segments[self.active].base_offset),
            ("replication-offset-checkpoint", self._end()),
        ):
            (self.root / f"{name}.tmp").write_text(f"0\n1\nt 0 {offset}\n")
            (self.root / f"{name}.tmp").rename(self.root / name)


def main(moment_path: str) -> None:
    """Plays: a line on stdin is a seed and a directory, an empty one stops the play."""
    with open(moment_path, "r+b") as file, mmap.mmap(file.fileno(), MOMENT.size) as moment:
        for line in sys.stdin:
            seed, _, place = line.rstrip("\n").partition(" ")
            root = Path(place)
            log = LiveLog(int(seed), root, moment)
            with (root / ".lock").open("wb") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX)
                print("plays", flush=True)  # noqa: T201
                while not select.select([sys.stdin], [], [], 0)[0]:
                    log.step()
                    time.sleep(log.rng.choice(PAUSES) * log.pace)
                assert sys.stdin.readline() == "\n"
            shutil.rmtree(root)
            print("ended", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
