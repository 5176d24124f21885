"""A broker that does its next step when the reader makes a system call: each run meets the same moments.

It appends, rolls, deletes segments by retention and by DeleteRecords, deletes topics and creates them again, and writes snapshots in
place, in two halves, as brokers up to 2.7. What a log holds at each moment is known from a ``SimulatedBroker``.
"""

import contextlib
import functools
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from log_dirs import make_log_dir, snapshot_bytes, snapshot_name
from simulated_broker import SimulatedBroker

from snaprebuild.snapshots.source.second_look import LISTINGS_MAX

SEGMENTS = 60
DELETIONS_MAX = LISTINGS_MAX - 1
"""Steps of a run that delete something: a reader that lists a partition once more for each of them ends."""
LOGS = 8
"""Making one takes longer than a run over it."""


@dataclass(frozen=True)
class Moment:
    """The partition after one step.

    Attributes:
        topic: how often it was created; -1 while it is deleted.
        first: index of the first segment.
        active: index of the last one.
        log_end: offset.
        log_start: of the checkpoint.
        recovery_point: of the checkpoint.
        names: offsets of snapshots, whole or half.
    """

    topic: int
    first: int
    active: int
    log_end: int
    log_start: int
    recovery_point: int
    names: frozenset[int]


@functools.cache
def _log_of(number: int) -> SimulatedBroker:
    return SimulatedBroker(number, SEGMENTS)


class BusyBroker:
    """One log directory with the partition ``t-0``, and the steps of its broker."""

    def __init__(self, seed: int, root: Path, lacks_snapshots: int = 3) -> None:
        """Makes the partition.

        Args:
            seed: of everything.
            root: the log directory, which is made.
            lacks_snapshots: this many boundaries have no snapshot, as of segments that a broker before 2.8 rolled.
        """
        self.seed, self.root, self.directory = seed, root, root / "t-0"
        self.lacks_snapshots, self.deletions = lacks_snapshots, 0
        self.rng = random.Random(seed)
        self.half: tuple[Path, bytes] | None = None
        """A snapshot that is being written, and all of its bytes."""
        self.moments: list[Moment] = []
        self.truths: list[SimulatedBroker] = []
        make_log_dir(root, clean=False)
        self._create_topic()
        while self.active < 6:
            self._append()
        self._finish_snapshot()
        self._checkpoint()
        self._record()

    @property
    def truth(self) -> SimulatedBroker:
        """The topic that was created last."""
        return self.truths[-1]

    def step(self) -> None:
        """One thing that a broker does between two system calls of a reader."""
        draw = self.rng.random()
        if self.half is not None:
            self._finish_snapshot()
        elif self.is_deleted:
            self._create_topic()
        elif draw < 0.6 or self.deletions == DELETIONS_MAX:
            self._append()
        elif draw < 0.8 and self.active - self.first >= 2:
            self.deletions += 1
            self._retain()
        elif draw < 0.9:
            self.deletions += 1
            self._delete_records()
        elif draw < 0.95:
            self.deletions += 1
            self._delete_topic()
        else:
            self._remove_deleted()
        self._record()

    @property
    def is_deleted(self) -> bool:
        """Whether the topic is, at this moment."""
        return not self.directory.exists()

    def _path(self, index: int, suffix: str) -> Path:
        return self.directory / f"{self.truth.segments[index].base_offset:020d}{suffix}"

    def _end(self) -> int:
        batches = self.truth.segments[self.active].batches[: self.batch]
        return batches[-1].header.last_offset + 1 if batches else self.truth.segments[self.active].base_offset

    def _append(self) -> None:
        segment = self.truth.segments[self.active]
        if self.batch < len(segment.batches):
            with self._path(self.active, ".log").open("ab") as file:
                file.write(segment.batches[self.batch].data)
            self.batch += 1
        elif self.active + 1 < SEGMENTS:
            self._begin(self.active + 1)

    def _retain(self) -> None:
        """``LocalLog.deleteSegmentFiles``: names first, bytes a minute later."""
        index, self.first = self.first, self.first + 1
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

    def _checkpoint(self) -> None:
        for name, offset in (
            ("log-start-offset-checkpoint", self.truth.segments[self.first].base_offset),
            ("recovery-point-offset-checkpoint", self.truth.segments[self.active].base_offset),
            ("replication-offset-checkpoint", self._end()),
        ):
            (self.root / f"{name}.tmp").write_text(f"0\n1\nt 0 {offset}\n")
            (self.root / f"{name}.tmp").rename(self.root / name)

    def _begin(self, index: int) -> None:
        self.active, self.batch = index, 0
        for suffix in (".log", ".index", ".timeindex"):
            self._path(index, suffix).touch()
        if index > self.lacks_snapshots or len(self.truths) > 1:
            self._finish_snapshot()
            data = snapshot_bytes(self.truth.segments[index - 1].whole.values()) if index else b""
            if data:
                path = self.directory / snapshot_name(self.truth.segments[index].base_offset)
                path.write_bytes(data[: len(data) // 2])
                os.utime(path, ns=(time.time_ns(), time.time_ns()))  # the clock of the run, which may be a moved one
                self.half = path, data

    def _finish_snapshot(self) -> None:
        if self.half is not None and self.half[0].exists():
            path, data = self.half
            with path.open("ab") as file:
                file.write(data[len(data) // 2 :])
        self.half = None

    def _delete_records(self) -> None:
        """Up to the high watermark: a new segment, and none before it."""
        if self.active + 1 < SEGMENTS:
            self._begin(self.active + 1)
            while self.first < self.active:
                self._retain()

    def _delete_topic(self) -> None:
        self.half = None
        self.directory.rename(self.root / f"t-0.{'0' * 31}{len(self.truths)}-delete")

    def _create_topic(self) -> None:
        self.truths.append(_log_of((self.seed + len(self.truths)) % LOGS))
        self.first, self.deleted = 0, list[Path]()
        self.directory.mkdir()
        (self.directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        self._begin(0)
        self._checkpoint()

    def _record(self) -> None:
        is_deleted = self.is_deleted
        names = frozenset(int(path.stem) for path in self.directory.glob("*.snapshot"))
        points = [
            int((self.root / f"{each}-offset-checkpoint").read_text().split()[-1]) for each in ("log-start", "recovery-point")
        ]
        topic = -1 if is_deleted else len(self.truths) - 1
        self.moments.append(Moment(topic, self.first, self.active, self._end(), *points, names))

    @contextlib.contextmanager
    def at_work(self, every: int, only: Callable[[str], bool] = lambda _: True) -> Iterator[None]:
        """While it is, it does a step before every n-th call that opens, lists or looks at a path in its directory."""
        calls, is_stepping = 0, False
        real = {name: getattr(os, name) for name in ("open", "scandir", "stat", "lstat")}

        def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
            def replacement(path: Any = ".", *arguments: Any, **options: Any) -> Any:
                nonlocal calls, is_stepping
                if not is_stepping and isinstance(path, str | os.PathLike) and os.fspath(path).startswith(str(self.root)):
                    calls += 1
                    if calls % every == 0 and only(os.fspath(path)):
                        is_stepping = True
                        try:
                            self.step()
                        finally:
                            is_stepping = False
                return call(path, *arguments, **options)

            return replacement

        with contextlib.ExitStack() as patched:
            for name, call in real.items():
                patched.enter_context(mock.patch.object(os, name, stepping(call)))
            for module in ("source.source", "run"):
                patched.enter_context(mock.patch(f"snaprebuild.snapshots.{module}.lock_holder", return_value=1))
            patched.enter_context(mock.patch("snaprebuild.storage.io_limits.policy.set_priority"))
            yield
