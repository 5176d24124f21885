"""The healthy tree of a verb, edited for one run of it, and then as it was again, down to the inodes."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from every_verb import Verb, written

IN_MEMORY = Path("/dev/shm")
SECRET = "what nobody who asks for a log directory should be shown"


@dataclass(frozen=True)
class Odd:
    """Something with a name that is no regular file of this tree.

    Attributes:
        kind: ``directory``, ``pipe``, ``link``, ``hard link`` (to a secret), ``socket`` or ``device``.
        target: of a link; ``{outside}`` is a directory with a secret.
    """

    kind: str
    target: str = ""


Files = dict[str, bytes | Odd]
"""By path below the root of the tree."""


def identity_of(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_size, status.st_mtime_ns, status.st_ino


@dataclass
class Place:
    """The tree of a verb, on memory where there is such a file system.

    Attributes:
        verb: whose tree it is.
        root: of the tree.
        aside: has the files that are not as they were, while the verb runs.
        outside: has what no one should be shown.
        files: of the healthy tree, and what shows that a file was not touched.
    """

    verb: Verb
    root: Path
    aside: Path
    outside: Path
    files: dict[str, bytes] = field(default_factory=dict)
    reported: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    @classmethod
    def of_process(cls, verb: Verb) -> Place:
        """On memory, until the process ends."""
        base = IN_MEMORY if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK) else None
        above = Path(tempfile.mkdtemp(prefix="edited-tree-", dir=base))
        atexit.register(shutil.rmtree, above, True)
        return cls.made(verb, above)

    @classmethod
    def made(cls, verb: Verb, above: Path) -> Place:
        """Writes the healthy tree."""
        place = cls(verb, above / "root", above / "aside", above / "outside")
        place.aside.mkdir()
        place.originals.mkdir()
        place.outside.mkdir()
        (place.outside / "secret").write_text(SECRET)
        written(verb, place.root)
        for name in sorted(place.listing()):
            place.files[name] = (place.root / name).read_bytes()
            place.reported[name] = identity_of(place.root / name)
            if verb.is_replacing:
                place._original(name).hardlink_to(place.root / name)
        return place

    @property
    def originals(self) -> Path:
        """A second name of each file that the verb may replace: a document in the tree may have its inode."""
        return self.root.parent / "originals"

    def _original(self, name: str) -> Path:
        return self.originals / name.replace("/", "|")

    def listing(self) -> Iterator[str]:
        """Paths of all files, and of what is neither file nor directory."""
        for directory, _, names in os.walk(self.root):
            for name in names:
                yield os.path.relpath(os.path.join(directory, name), self.root)

    def names(self) -> list[str]:
        """Files that may be other."""
        return [name for name in self.files if not self.verb.edited or name.startswith(self.verb.edited)]

    @contextlib.contextmanager
    def edited(self, files: Files, loose: Collection[str] = ()) -> Iterator[None]:
        """The tree has these files, in place of those that may be other.

        Args:
            files: all of the tree.
            loose: of them, those that somebody else changes while the verb runs.
        """
        changed = [name for name in self.names() if files.get(name) != self.files[name] or name in loose]
        for number, name in enumerate(changed):
            os.rename(self.root / name, self.aside / str(number))
            with contextlib.suppress(OSError):  # it holds others
                os.removedirs((self.root / name).parent)
        self.root.mkdir(exist_ok=True)
        for name, what in files.items():
            if self.files.get(name) != what or name in changed:
                with contextlib.suppress(OSError, ValueError):  # a name that is too long, or a file where a directory should be
                    self._put(self.root / name, what)
        untouched = self.reported.keys() - changed
        for name in loose:
            os.utime(self.root / name, ns=(self.reported[name][1],) * 2)
        given = {name: identity_of(self.root / name) for name in self.listing() if name not in loose}
        try:
            yield
            for name, reported in given.items():
                if not self.verb.is_replacing and not _is_kept(self.root / name, reported):
                    raise AssertionError(f"{name!r} was there, and is gone or another")
        finally:
            self._restore(changed, untouched)

    def _put(self, path: Path, what: bytes | Odd) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, bytes):
            path.write_bytes(what)
        elif what.kind == "directory":
            path.mkdir()
        elif what.kind == "pipe":
            os.mkfifo(path)
        elif what.kind == "link":
            path.symlink_to(what.target.replace("{outside}", str(self.outside)))
        elif what.kind == "hard link":
            path.hardlink_to(self.outside / "secret")
        elif what.kind == "socket":
            _bind(path)
        elif os.getuid() == 0:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # endless zeros

    def _restore(self, changed: list[str], untouched: set[str]) -> None:
        wanted = {os.path.dirname(name) for name in self.files} | {""}
        wanted |= {os.path.dirname(each) for each in wanted}  # enough for these trees: a directory that is empty at most
        for directory, below, names in os.walk(self.root):
            inside = os.path.relpath(directory, self.root)
            for name in names:
                path = os.path.normpath(os.path.join(inside, name))
                if path not in untouched:
                    os.unlink(self.root / path)
            for name in list(below):
                path = os.path.normpath(os.path.join(inside, name))
                is_link = os.path.islink(self.root / path)
                if is_link or not any(each == path or each.startswith(f"{path}/") for each in wanted):
                    os.unlink(self.root / path) if is_link else shutil.rmtree(self.root / path)
                    below.remove(name)
        for number, name in enumerate(changed):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.aside / str(number), self.root / name)
        for name in untouched:
            self._mend(name)

    def _mend(self, name: str) -> None:
        """A file that the verb replaced, or set aside, has its bytes and its time again."""
        path, reported = self.root / name, self.reported[name]
        with contextlib.suppress(FileNotFoundError):
            if identity_of(path) == reported:
                return
            path.unlink()
        if self.verb.is_replacing and identity_of(self._original(name)) == reported:
            path.hardlink_to(self._original(name))
            return
        path.write_bytes(self.files[name])
        os.utime(path, ns=(reported[1],) * 2)
        self.reported[name] = identity_of(path)


def _is_kept(path: Path, reported: tuple[int, int, int]) -> bool:
    """Whether the file is unchanged, perhaps under the name of a file that was set aside."""
    with contextlib.suppress(OSError):
        if identity_of(path) == reported:
            return True
    return (
        any(identity_of(each) == reported for each in path.parent.glob(f"{path.name}.set-aside.*"))
        if path.parent.is_dir()
        else False
    )


def _bind(path: Path) -> None:
    """A socket with this name, however long the path is."""
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            listening.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)
