"""States that a power failure may leave of a whole tree of directories: ``crash_model`` for more than one directory, sampled if
there are too many.

Entries of each directory may be missing or there, each by itself, until THAT directory is synced. A new directory of which the entry is not
synced may be gone with all that was synced in it. Bytes, owner and mode of a file are as in ``crash_model``.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from crash_model import Content, Inode, Write
from crash_model import _apply as applied
from traced_run import Change, UnknownCallError


class Folder(NamedTuple):
    """A directory after the crash."""

    mode: int


class File(NamedTuple):
    """A file after the crash; two names with one number are one file. What was not touched keeps its modification time."""

    content: Content
    number: int
    mtime_ns: int | None


Tree = dict[str, File | Folder]
"""By relative path."""


@dataclass
class Directory:
    """Entries as programs see them, and as the device has them."""

    mode: int
    names: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[str, str, int]] = field(default_factory=list)

    def enter(self, change: tuple[str, str, int]) -> None:
        self.pending.append(change)
        applied(self.names, change)

    def sync(self) -> None:
        self.durable, self.pending = dict(self.names), []


class TreeDisk:
    """Follows changes, and knows what would be left if the power failed now. Node 0 is the root."""

    def __init__(self, root: Path) -> None:
        """Takes the tree as it is, all of it durable."""
        self.nodes: list[Inode | Directory] = []
        self.open: dict[int, int] = {}
        self.times: dict[int, int] = {}
        self._take(root)

    def _take(self, path: Path) -> int:
        status = path.stat()
        mode = status.st_mode & 0o777
        number = len(self.nodes)
        if not path.is_dir():
            self.nodes.append(Inode(Content(path.read_bytes(), status.st_uid, status.st_gid, mode)))
            self.times[number] = status.st_mtime_ns
            return number
        directory = Directory(mode)
        self.nodes.append(directory)
        for each in sorted(path.iterdir()):
            directory.names[each.name] = self._take(each)
        directory.durable = dict(directory.names)
        return number

    def _find(self, path: str) -> int:
        number = 0
        for part in PurePosixPath(path).parts:
            directory = self.nodes[number]
            assert isinstance(directory, Directory)
            number = directory.names[part]
        return number

    def _place(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        directory = self.nodes[self._find(above)]
        assert isinstance(directory, Directory)
        return directory, name

    def follow(self, change: Change) -> None:
        """Takes one call."""
        match change.kind:
            case "create" | "open":
                directory, name = self._place(change.path) if change.path else (Directory(0), "")
                if change.path and name not in directory.names:
                    assert change.kind == "create", change
                    self.nodes.append(Inode(Content(b"", os.getuid(), os.getgid(), 0o644)))
                    directory.enter(("add", name, len(self.nodes) - 1))
                self.open[change.fd] = self._find(change.path)
            case "close":
                self.open.pop(change.fd, None)
            case "write":
                file = self.nodes[self.open[change.fd]]
                assert isinstance(file, Inode)
                file.writes.append(Write(file.written(), change.data))
            case "chmod" | "chown":
                node = self.nodes[self.open[change.fd] if change.fd >= 0 else self._find(change.path)]
                new = dict(zip(("mode",) if change.kind == "chmod" else ("uid", "gid"), change.numbers, strict=True))
                if isinstance(node, Inode):
                    node.attributes.append(new)
                elif "mode" in new:
                    node.mode = new["mode"]
            case "sync":
                self.nodes[self.open[change.fd]].sync()
            case "mkdir":
                directory, name = self._place(change.path)
                self.nodes.append(Directory(change.numbers[0]))
                directory.enter(("add", name, len(self.nodes) - 1))
            case "link":
                directory, name = self._place(change.other)
                directory.enter(("add", name, self._find(change.path)))
            case "rename":
                directory, name = self._place(change.path)
                target, new_name = self._place(change.other)
                if target is not directory:
                    raise UnknownCallError(f"a rename from one directory to another: {change}")
                directory.enter((f"rename {name}", new_name, directory.names[name]))
            case "unlink" | "rmdir":
                directory, name = self._place(change.path)
                directory.enter(("remove", name, -1))
            case _:
                raise UnknownCallError(str(change))

    # ------------------------------------------------------------------------------------------------------------ what may be left

    def running(self) -> Tree:
        """The tree that every program sees now."""
        return self._tree({}, {}, is_everything=True)

    def states(self, rng: random.Random, random_max: int, cuts_max: int = 3) -> Iterator[Tree]:
        """Some of what a crash may leave now.

        Nothing and all that is pending; each change lost or kept by itself; each file torn at up to ``cuts_max`` places, alone and with all
        else; and random subsets.
        """
        directories = [(number, node) for number, node in enumerate(self.nodes) if isinstance(node, Directory)]
        pending = [(number, index) for number, node in directories for index in range(len(node.pending))]
        dirty = [number for number, node in enumerate(self.nodes) if isinstance(node, Inode) and (node.writes or node.attributes)]
        everything = set(pending)
        subsets = [set(), everything, *({each} for each in pending), *(everything - {each} for each in pending)]
        contents = {number: self._contents(number, rng, cuts_max) for number in dirty}
        for subset in subsets:
            for which in (0, -1):
                yield self._tree(_by_node(subset), {number: found[which] for number, found in contents.items()})
        for number, found in contents.items():
            for content in found:
                yield self._tree({}, {number: content})
                yield self._tree(_by_node(everything), {other: each[-1] for other, each in contents.items()} | {number: content})
        for _ in range(random_max if pending or dirty else 0):
            subset = {each for each in pending if rng.random() < 0.5}
            yield self._tree(_by_node(subset), {number: rng.choice(found) for number, found in contents.items()})

    def _contents(self, number: int, rng: random.Random, cuts_max: int) -> list[Content]:
        """Contents of a file that is not synced: nothing of it first, all of it last."""
        file = self.nodes[number]
        assert isinstance(file, Inode)
        old, whole = file._with([], []), file._with(file.writes, file.attributes)
        found = [old]
        first, last = len(old.data), len(whole.data)
        for cut in sorted(rng.sample(range(first, last), min(cuts_max, last - first))):
            found += [whole._replace(data=whole.data[:cut]), old._replace(data=whole.data[:cut].ljust(last, b"\0"))]
        if len(file.writes) > 1:
            lost = rng.randrange(len(file.writes))
            found.append(file._with([each for index, each in enumerate(file.writes) if index != lost], file.attributes))
        return [*found, whole]

    def _tree(self, chosen: dict[int, set[int]], contents: dict[int, Content], *, is_everything: bool = False) -> Tree:
        tree: Tree = {}

        def walk(number: int, path: str) -> None:
            node = self.nodes[number]
            if isinstance(node, Inode):
                whole = node._with(node.writes, node.attributes) if is_everything else node.durable
                tree[path] = File(contents.get(number, whole), number, None if number in contents else self.times.get(number))
                return
            tree[path] = Folder(node.mode)
            names = dict(node.durable)
            for index, change in enumerate(node.pending):
                if is_everything or index in chosen.get(number, ()):
                    applied(names, change)
            for name, below in sorted(names.items()):
                walk(below, f"{path}/{name}" if path else name)

        walk(0, "")
        return tree


def _by_node(subset: set[tuple[int, int]]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for number, index in subset:
        found.setdefault(number, set()).add(index)
    return found


def key_of(tree: Tree) -> int:
    """Equal for equal trees."""
    return hash(tuple(sorted((path, tuple(what)[:2]) for path, what in tree.items())))


def read_tree(root: Path) -> Tree:
    """A real one."""
    return TreeDisk(root).running()


def build_tree(root: Path, tree: Tree) -> None:
    """Makes a real one of it, below a directory that is there. Owners are kept where root makes it."""
    made: dict[int, Path] = {}
    for path, what in sorted(tree.items()):
        place = root / path
        if isinstance(what, Folder):
            place.mkdir(exist_ok=True)
            place.chmod(what.mode)
            continue
        if what.number in made:
            os.link(made[what.number], place)
            continue
        made[what.number] = place
        place.write_bytes(what.content.data)
        place.chmod(what.content.mode)
        if os.getuid() == 0:
            os.chown(place, what.content.uid, what.content.gid)
        if what.mtime_ns is not None:
            os.utime(place, ns=(what.mtime_ns, what.mtime_ns))
