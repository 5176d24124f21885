"""States that a power failure may leave of a recorded run, after the model of ALICE (Pillai et al., OSDI 2014).

A file system promises little before `fsync`:

* bytes written to a file may be missing, torn at any byte, or there as a length filled with zeros; of several writes any subset
  may have arrived;
* owner and mode may be old or new, in the order in which they were changed: they are in one inode, which is written as a
  whole;
* entries of a directory (create, link, unlink, rename) may be missing or there, each by itself and in any order. That ends
  when the DIRECTORY is synced; to sync the file does not make its name durable.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from recorded_calls import Call

Entries = dict[str, int]
T = TypeVar("T")


class Content(NamedTuple):
    """A file after the crash."""

    data: bytes
    uid: int
    gid: int
    mode: int


class State(NamedTuple):
    """A directory after the crash: which names lead to which file. Two names may lead to the same one."""

    names: tuple[tuple[str, int], ...]
    files: tuple[Content, ...]

    def content(self, name: str) -> Content | None:
        number = dict(self.names).get(name)
        return None if number is None else self.files[number]


class Write(NamedTuple):
    position: int
    data: bytes


@dataclass
class Inode:
    """A file: what is durable, and what is not yet."""

    durable: Content
    writes: list[Write] = field(default_factory=list)
    attributes: list[dict[str, int]] = field(default_factory=list)

    def written(self) -> int:
        return max([len(self.durable.data), *(write.position + len(write.data) for write in self.writes)])

    def sync(self) -> None:
        self.durable = self._with(self.writes, self.attributes)
        self.writes, self.attributes = [], []

    def contents(self) -> set[Content]:
        """Everything that a crash may leave of this file."""
        kept = {self._with([], self.attributes[:count]) for count in range(len(self.attributes) + 1)}
        if not self.writes:
            return kept
        found = {self._with(chosen, []).data for chosen in _subsets(self.writes)}
        whole = self._with(self.writes, []).data
        for size in range(len(self.durable.data), len(whole) + 1):
            found.add(whole[:size])
            found.add(whole[:size].ljust(len(whole), b"\0"))
        return {content._replace(data=data) for content in kept for data in found}

    def _with(self, writes: list[Write], attributes: list[dict[str, int]]) -> Content:
        content = self.durable
        for change in attributes:
            content = content._replace(**change)
        data = bytearray(content.data)
        for write in writes:
            end = write.position + len(write.data)
            data.extend(bytes(max(0, end - len(data))))
            data[write.position : end] = write.data
        return content._replace(data=bytes(data))


def _subsets(pending: list[T]) -> Iterator[list[T]]:
    for count in range(len(pending) + 1):
        yield from (list(chosen) for chosen in itertools.combinations(pending, count))


class Disk:
    """Follows a trace, call by call, and knows what would be left if the power failed now."""

    def __init__(self, before: State) -> None:
        self.inodes = [Inode(content) for content in before.files]
        self.names: Entries = dict(before.names)
        self.durable_names: Entries = dict(before.names)
        self.pending_names: list[tuple[str, str, int]] = []
        self.open: dict[int, int] = {}

    def follow(self, call: Call) -> None:
        if call.error is not None:
            return
        match call.method, call.arguments:
            case "open", (str(name), int(flags), *_) if not flags & os.O_DIRECTORY:
                if call.status is not None:
                    status = call.status
                    self.inodes.append(Inode(Content(b"", status.st_uid, status.st_gid, status.st_mode & 0o777)))
                    self._enter(("add", name, len(self.inodes) - 1))
                elif flags & os.O_TRUNC:
                    raise AssertionError("the model knows no truncation")
                self.open[call.result] = self.names[name]
            case "write", (int(fd), bytes(data)):
                inode = self.inodes[self.open[fd]]
                inode.writes.append(Write(inode.written(), data[: call.result]))
            case "fchown", (int(fd), int(uid), int(gid)):
                self.inodes[self.open[fd]].attributes.append({"uid": uid, "gid": gid})
            case "fchmod", (int(fd), int(mode)):
                self.inodes[self.open[fd]].attributes.append({"mode": mode})
            case "fsync", (int(fd),):
                if fd in self.open:
                    self.inodes[self.open[fd]].sync()
                else:
                    self.durable_names, self.pending_names = dict(self.names), []
            case "link", (str(name), str(new_name)):
                self._enter(("add", new_name, self.names[name]))
            case "rename_noreplace" | "rename", (str(name), str(new_name)):
                self._enter((f"rename {name}", new_name, self.names[name]))
            case "unlink", (str(name),):
                self._enter(("remove", name, -1))
            case "close", (int(fd),):
                self.open.pop(fd, None)

    def _enter(self, change: tuple[str, str, int]) -> None:
        self.pending_names.append(change)
        _apply(self.names, change)

    def states(self) -> Iterator[State]:
        """Everything that a crash at this moment may leave."""
        for changes in _subsets(self.pending_names):
            names = dict(self.durable_names)
            for change in changes:
                _apply(names, change)
            numbers = sorted(set(names.values()))
            numbered = tuple(sorted((name, numbers.index(inode)) for name, inode in names.items()))
            for files in itertools.product(*(self.inodes[number].contents() for number in numbers)):
                yield State(numbered, files)

    def running_state(self) -> State:
        """The state that every program sees now: that after a kill without a power failure."""
        disk = Disk(State((), ()))
        disk.inodes = [replace(inode) for inode in self.inodes]
        for inode in disk.inodes:
            inode.sync()
        disk.durable_names = dict(self.names)
        return next(disk.states())


def _apply(names: Entries, change: tuple[str, str, int]) -> None:
    doing, name, inode = change
    if doing == "remove":
        names.pop(name, None)
        return
    if doing.startswith("rename "):
        names.pop(doing.removeprefix("rename "), None)
    names[name] = inode


def read_state(directory: Path) -> State:
    """Reads a real directory."""
    names, files, numbers = [], [], {}
    for name in sorted(os.listdir(directory)):
        status = (directory / name).stat()
        if status.st_ino not in numbers:
            numbers[status.st_ino] = len(files)
            files.append(Content((directory / name).read_bytes(), status.st_uid, status.st_gid, status.st_mode & 0o777))
        names.append((name, numbers[status.st_ino]))
    return State(tuple(names), tuple(files))


def build_state(directory: Path, state: State) -> None:
    """Makes a real directory of it. Owners are kept where root makes it."""
    made: dict[int, str] = {}
    for name, number in state.names:
        if number in made:
            os.link(directory / made[number], directory / name)
            continue
        content = state.files[number]
        with open(directory / name, "xb") as file:
            file.write(content.data)
            os.fchmod(file.fileno(), content.mode)
            if os.getuid() == 0:
                os.fchown(file.fileno(), content.uid, content.gid)
        made[number] = name
