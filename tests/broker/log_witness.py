"""Keeps every version of every segment of a live broker's log directory, and shows which of them were there together, and when.

A process of its own, ended by a line on stdin. The names come from the kernel's own account (inotify), in their order, however late
they are read. A file is opened under the name that it has by then, also under the one that the broker gives to what it will delete after
``file.delete.delay.ms``. So a witness that waits for a processor misses nothing but a file that the cleaner replaced twice meanwhile; the
journal says which. Nothing in the broker's directory is touched, while a hard link would change the inode.
"""

import ctypes
import json
import os
import re
import select
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

PAUSE_SECONDS = 0.003
"""A name is at most so much older than it is said to be, if the witness gets a processor."""
SEGMENT = re.compile(r"(\d{20})\.log")
NAME = re.compile(r"\d{20}\.log(|\.deleted|\.swap|\.cleaned)")
PARTITION = re.compile(r"[^.]+-\d+")
JOURNAL = "journal.jsonl"

IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_Q_OVERFLOW = 0x40, 0x80, 0x100, 0x200, 0x4000
NAMES = IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
EVENT = struct.Struct("iIII")
BUFFER_BYTES = 1 << 16


class _Event(NamedTuple):
    """An event of a name, in the kernel's words."""

    watch: int
    mask: int
    cookie: int
    name: str


class _Names:
    """The kernel's account of what happens to names in some directories."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._fd >= 0, os.strerror(ctypes.get_errno())

    def watch(self, directory: Path) -> int:
        """From now on; the number that its events have."""
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(directory), NAMES)
        assert number >= 0, os.strerror(ctypes.get_errno())
        return int(number)

    def read(self) -> list[_Event]:
        """All that happened before this call and was not read yet, in its order; maybe some of what happens during it."""
        found = []
        while True:
            try:
                events = os.read(self._fd, BUFFER_BYTES)
            except BlockingIOError:
                return found
            at = 0
            while at < len(events):
                watch, mask, cookie, length = EVENT.unpack_from(events, at)
                assert not mask & IN_Q_OVERFLOW, "the kernel lost events"
                at += EVENT.size
                found.append(_Event(watch, mask, cookie, os.fsdecode(events[at : at + length].rstrip(b"\0"))))
                at += length


@dataclass(eq=False)
class _File:
    """A file of a segment, whatever its name is.

    Attributes:
        name: the newest, None once it is deleted.
        segment: base offset and version, once it was named as a segment; versions count these files of a partition.
        descriptor: while it is open. It is closed when the archive has its bytes.
    """

    name: str | None = None
    segment: tuple[int, int] | None = None
    descriptor: int | None = None


@dataclass
class _Partition:
    """State of a directory by the events that were read so far.

    Attributes:
        named: files by name.
        moving: those that have lost a name and get another one in the next event, by the kernel's number of the move.
        listed: versions by base offset, as they were reported last.
    """

    directory: Path
    named: dict[str, _File] = field(default_factory=dict)
    moving: dict[int, _File] = field(default_factory=dict)
    listed: dict[int, int] | None = None
    versions: int = 0

    def names_there(self) -> set[str]:
        """Names of the segments that are in the directory now."""
        return {name for name in os.listdir(self.directory) if NAME.fullmatch(name)}

    def segments(self) -> dict[int, int]:
        """Versions by base offset of the files that are named as segments."""
        files = (file for name, file in self.named.items() if SEGMENT.fullmatch(name))
        return dict(sorted(file.segment for file in files if file.segment is not None))


class LogWitness:
    """Looks at one log directory, again and again."""

    def __init__(self, log_dir: Path, archive: Path, journal: IO[str]) -> None:
        self._log_dir = log_dir
        self._archive = archive
        self._journal = journal
        self._names = _Names()
        self._root = self._names.watch(log_dir)
        self._partitions: dict[int, _Partition] = {}
        self._pending: deque[_Event] = deque()
        self._unread: list[tuple[_Partition, _File]] = []
        self._began_ns = time.monotonic_ns()
        for name in sorted(os.listdir(log_dir)):
            self._add(name)

    def look(self) -> None:
        """At all that has happened. Everything of it that is still there has been opened when this returns."""
        self._follow()
        while self._unread:
            waiting, self._unread = self._unread, []
            opened = [(partition, file, file.name, self._open(partition, file)) for partition, file in waiting]
            # What a name led to when it was opened is known only now: all that happened to it before has been read.
            self._follow()
            for partition, file, name, descriptor in opened:
                if descriptor is not None and file.name == name:
                    file.descriptor = descriptor
                    self._keep_if_final(partition, file)
                    continue
                if descriptor is not None:
                    os.close(descriptor)
                if file.name is None:
                    self._lost(partition, file)
                else:
                    self._unread.append((partition, file))

    def _lost(self, partition: _Partition, file: _File) -> None:
        """The cleaner has written a segment twice, and deleted the first of its files for the second, while the witness waited."""
        self._journal.write(json.dumps({"partition": partition.directory.name, "lost": file.segment}) + "\n")

    def _open(self, partition: _Partition, file: _File) -> int | None:
        try:
            return None if file.name is None else os.open(partition.directory / file.name, os.O_RDONLY)
        except FileNotFoundError:  # its next name comes with the next events
            return None

    def _follow(self) -> None:
        earliest_ns, self._began_ns = self._began_ns, time.monotonic_ns()
        self._pending.extend(self._names.read())
        while self._pending:
            event = self._pending.popleft()
            if event.watch == self._root:
                if event.mask & (IN_CREATE | IN_MOVED_TO):
                    self._add(event.name)
            elif NAME.fullmatch(event.name):
                partition = self._partitions[event.watch]
                self._apply(partition, event)
                self._report(partition, earliest_ns)

    def _add(self, name: str) -> None:
        directory = self._log_dir / name
        if (
            not PARTITION.fullmatch(name)
            or not directory.is_dir()
            or any(each.directory == directory for each in self._partitions.values())
        ):
            return
        (self._archive / name).mkdir()
        began_ns = time.monotonic_ns()
        number = self._names.watch(directory)
        while True:  # until nothing happened there between the list of its names and the events
            partition = _Partition(directory)
            there = partition.names_there()
            events = self._names.read()
            self._pending.extend(event for event in events if event.watch != number)
            if all(event.watch != number for event in events):
                break
        for each in sorted(there):
            self._give(partition, each, _File())
        self._partitions[number] = partition
        self._report(partition, began_ns)

    def _apply(self, partition: _Partition, event: _Event) -> None:
        if event.mask & IN_CREATE:
            self._give(partition, event.name, _File())
        elif event.mask & IN_MOVED_TO:
            self._give(partition, event.name, partition.moving.pop(event.cookie, None) or _File())
        elif event.mask & IN_MOVED_FROM:
            partition.moving[event.cookie] = partition.named.pop(event.name)
        else:
            self._without_name(partition, partition.named.pop(event.name))

    def _give(self, partition: _Partition, name: str, file: _File) -> None:
        if name in partition.named:
            self._without_name(partition, partition.named.pop(name))
        partition.named[name] = file
        file.name = name
        match = SEGMENT.fullmatch(name)
        if match and file.segment is None:
            file.segment = (int(match[1]), partition.versions)
            partition.versions += 1
            self._unread.append((partition, file))
        self._keep_if_final(partition, file)

    def _without_name(self, partition: _Partition, file: _File) -> None:
        file.name = None
        self._keep_if_final(partition, file)

    def _keep_if_final(self, partition: _Partition, file: _File) -> None:
        """Copies a segment to the archive when its name says that nothing will be added to it."""
        if file.descriptor is not None and (file.name is None or not SEGMENT.fullmatch(file.name)):
            self._keep(partition, file)

    def _keep(self, partition: _Partition, file: _File) -> None:
        assert file.segment is not None
        assert file.descriptor is not None
        target_path = self._archive / partition.directory.name / archived_name(*file.segment)
        with open(file.descriptor, "rb") as source, target_path.open("xb") as target:
            while data := source.read(1 << 20):
                target.write(data)
        file.descriptor = None

    def _report(self, partition: _Partition, earliest_ns: int) -> None:
        listed = partition.segments()
        if listed != partition.listed:
            state = {
                "partition": partition.directory.name,
                "earliest_ns": earliest_ns,
                "seen_ns": time.monotonic_ns(),
                "files": listed,
            }
            self._journal.write(json.dumps(state) + "\n")
            partition.listed = listed

    def end(self) -> None:
        """Keeps what is still there, and makes sure that this is what the directories have. The broker has stopped."""
        self.look()
        for partition in self._partitions.values():
            assert partition.named.keys() == partition.names_there(), f"{partition.directory}: events are missing"
            for file in partition.named.values():
                if file.descriptor is not None:
                    self._keep(partition, file)


def archived_name(base: int, version: int) -> str:
    """Name of a segment in the archive. Versions count the files of a partition, in the order in which they were named as
    segments."""
    return f"{base:020d}-{version}.log"


def main(log_dir: Path, archive: Path) -> None:
    """Watches until it is asked to end."""
    with (archive / JOURNAL).open("x") as journal:
        witness = LogWitness(log_dir, archive, journal)
        witness.look()
        print("watches", flush=True)  # noqa: T201
        while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
            witness.look()
        witness.end()
    print("ended", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
