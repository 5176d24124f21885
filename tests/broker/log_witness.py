"""Keeps every version of every segment of a live broker's log directory, and shows which of them were there together, and when.

A process of its own, ended by a line on stdin. A file is held open for as long as its name leads to it, so that what the broker deletes,
or compacts away, can still be read. Nothing in the broker's directory is touched, while a hard link would change the inode. When a name
leads to another file, the bytes of the former are copied to the archive.
"""

import json
import os
import re
import select
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

PAUSE_SECONDS = 0.003
SETTLED_NS = 50_000_000
"""A directory that changed less than this ago is listed again, whatever its time says: kernels tell the time in ticks."""
SEGMENT = re.compile(r"(\d{20})\.log")
JOURNAL = "journal.jsonl"


@dataclass
class _Held:
    """A file that a name leads to."""

    version: int
    descriptor: int
    inode: int


@dataclass
class _Partition:
    """What was seen of a directory.

    Attributes:
        listed: versions by base offset, as they were reported last.
        began_ns: when the newest look at it began that found just these.
    """

    directory: Path
    changed_ns: int = -1
    held: dict[int, _Held] = field(default_factory=dict)
    listed: dict[int, int] | None = None
    began_ns: int = 0
    versions: int = 0


class LogWitness:
    """Looks at one log directory, again and again."""

    def __init__(self, log_dir: Path, archive: Path, journal: IO[str]) -> None:
        self._log_dir = log_dir
        self._archive = archive
        self._journal = journal
        self._partitions: dict[str, _Partition] = {}

    def look(self) -> None:
        """Once at every partition that may have changed."""
        for name in _directories(self._log_dir):
            if name not in self._partitions:
                (self._archive / name).mkdir()
                self._partitions[name] = _Partition(self._log_dir / name)
            partition = self._partitions[name]
            began_ns = time.monotonic_ns()
            changed_ns = partition.directory.stat().st_mtime_ns
            if changed_ns == partition.changed_ns and time.time_ns() - changed_ns > SETTLED_NS:
                partition.began_ns = began_ns
                continue
            partition.changed_ns = changed_ns
            self._list(name, partition, began_ns)

    def _list(self, name: str, partition: _Partition, began_ns: int) -> None:
        with os.scandir(partition.directory) as entries:
            found = {int(match[1]): entry.inode() for entry in entries if (match := SEGMENT.fullmatch(entry.name))}
        for base, inode in found.items():
            if base not in partition.held or partition.held[base].inode != inode:
                self._hold(name, partition, base)
        for base in partition.held.keys() - found.keys():
            self._keep(name, base, partition.held.pop(base))
        listed = {base: held.version for base, held in sorted(partition.held.items())}
        if listed != partition.listed:
            state = {"partition": name, "earliest_ns": partition.began_ns, "seen_ns": time.monotonic_ns(), "files": listed}
            self._journal.write(json.dumps(state) + "\n")
            partition.listed = listed
        partition.began_ns = began_ns

    def _hold(self, name: str, partition: _Partition, base: int) -> None:
        if base in partition.held:
            self._keep(name, base, partition.held.pop(base))
        try:
            descriptor = os.open(partition.directory / f"{base:020d}.log", os.O_RDONLY)
        except FileNotFoundError:  # gone again: the next look sees what came
            partition.changed_ns = -1
            return
        partition.held[base] = _Held(partition.versions, descriptor, os.fstat(descriptor).st_ino)
        partition.versions += 1

    def _keep(self, name: str, base: int, held: _Held) -> None:
        with open(held.descriptor, "rb") as source, (self._archive / name / archived_name(base, held.version)).open("xb") as target:
            while data := source.read(1 << 20):
                target.write(data)

    def end(self) -> None:
        """Keeps what is still there."""
        for name, partition in self._partitions.items():
            for base, held in partition.held.items():
                self._keep(name, base, held)


def archived_name(base: int, version: int) -> str:
    """Of a segment in the archive: versions count the files of a partition, in the order in which they were seen."""
    return f"{base:020d}-{version}.log"


def _directories(log_dir: Path) -> Iterator[str]:
    """Names of the partitions that are served."""
    with os.scandir(log_dir) as entries:
        for entry in entries:
            if re.fullmatch(r"[^.]+-\d+", entry.name) and entry.is_dir(follow_symlinks=False):
                yield entry.name


def main(log_dir: Path, archive: Path) -> None:
    """Watches until it is asked to end."""
    with (archive / JOURNAL).open("x") as journal:
        witness = LogWitness(log_dir, archive, journal)
        witness.look()
        print("watches", flush=True)  # noqa: T201
        while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
            witness.look()
        witness.look()
        witness.end()
    print("ended", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
