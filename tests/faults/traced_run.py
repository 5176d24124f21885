"""A real run of the command under strace, as the calls that change a directory tree. A call that the model does not know is an error.

All system calls that take a path or a descriptor are traced. Those that change nothing on disk are named here; any other that touches
the tree raises ``UnknownCallError`` where it is not known. So the model misses nothing that a later writer does.
"""

import codecs
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")
SECONDS_MAX = 300

NO_CHANGE = """
    access faccessat faccessat2 stat lstat fstat newfstatat statx statfs fstatfs readlink readlinkat getcwd chdir fchdir
    getdents64 read pread64 readv preadv preadv2 lseek mmap fadvise64 fcntl flock ioctl poll ppoll select pselect6
    epoll_wait epoll_ctl epoll_create1 execve dup dup2 dup3 pipe2 eventfd2 getxattr lgetxattr fgetxattr listxattr
    llistxattr flistxattr readahead socket connect sendto recvfrom recvmsg sendmsg getsockopt setsockopt getsockname
    shutdown socketpair bind getpeername memfd_create inotify_init1 utimensat
"""
HARMLESS = frozenset(NO_CHANGE.split())
"""Calls that change nothing on disk; ``utimensat`` changes times, on which no promise rests."""

LINE = re.compile(r"^(?:\[pid +)?(\d+)\]? +(\w+)\((.*)\) += (-?\d+|\?)(.*)$", re.DOTALL)
UNFINISHED = re.compile(r"^(?:\[pid +)?(\d+)\]? +(\w+\(.*) <unfinished \.\.\.>$", re.DOTALL)
RESUMED = re.compile(r"^(?:\[pid +)?(\d+)\]? +<\.\.\. \w+ resumed>(.*)$", re.DOTALL)


class UnknownCallError(AssertionError):
    """A call that touches the tree, and of which the model knows nothing."""


@dataclass(frozen=True)
class Change:
    """One call that changes the tree, or that makes changes last. Paths are relative to the root of the tree, "" is the root itself.

    Attributes:
        kind: create, open, close, write, chmod, chown, sync, link, rename, unlink, mkdir, rmdir.
        path: what it is done to; of a descriptor, its number.
        other: the second path, for link and rename.
        fd: the descriptor that it gives or takes.
        data: what is written.
        numbers: mode, or owner and group.
    """

    kind: str
    path: str = ""
    other: str = ""
    fd: int = -1
    data: bytes = b""
    numbers: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.path or self.fd}{' to ' + self.other if self.other else ''}"


def traced(arguments: Sequence[object], root: Path, state_home: Path, codes: Sequence[int] = (0,)) -> list[Change]:
    """Runs the command. Returns what it did below ``root``, in order.

    Args:
        arguments: of the command.
        root: only what is below it counts.
        state_home: where receipts go.
        codes: exit codes that are right.
    """
    assert STRACE is not None
    output = root.with_name(root.name + ".strace")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_STATE_HOME": str(state_home),
        "HOME": str(root),
    }
    command = [STRACE, "-f", "--seccomp-bpf", "-qq", "-y", "-s", "1000000", "-e", "trace=%file,%desc", "-e", "signal=none"]
    done = subprocess.run(
        [*command, "-o", str(output), sys.executable, "-m", "snaprebuild", *map(str, arguments)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode in codes, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    changes = list(changes_of(output.read_text("latin-1"), os.path.realpath(root)))
    output.unlink()
    return changes


def changes_of(text: str, root: str) -> Iterator[Change]:
    """Changes of a tree in the output of strace. Raises UnknownCallError."""
    waiting: dict[str, str] = {}
    mine: set[int] = set()  # descriptors of the tree
    for written in text.splitlines():
        line = written
        if match := UNFINISHED.match(line):
            if not match[2].startswith("close("):
                waiting[match[1]] = match[2]
                continue
            # Its number is free from here on, and another thread may be given it before the end of this call is logged.
            line = f"{match[1]} {match[2]}) = 0"
        if match := RESUMED.match(line):
            if match[1] not in waiting:
                continue
            line = f"{match[1]} {waiting.pop(match[1])}{match[2]}"
        match = LINE.match(line)
        if match is None:
            if root in line and "= ?" not in line:
                raise UnknownCallError(line[:300])
            continue
        _, call, inside, result, _ = match.groups()
        if call == "close":
            fd = int(inside.split("<", 1)[0])
            if fd in mine:
                mine.discard(fd)
                yield Change("close", fd=fd)
            continue
        if call == "mmap" and root in inside and "PROT_WRITE" in inside and "MAP_SHARED" in inside:
            raise UnknownCallError(line[:300])
        if result == "?" or int(result) < 0 or call in HARMLESS or root not in inside:
            continue
        arguments = _split(inside)
        if not _concerns(call, arguments, root):
            continue
        change = _change(call, arguments, int(result), root, line)
        if change is not None:
            if change.kind in ("create", "open"):
                mine.add(change.fd)
            yield change


def _concerns(call: str, arguments: list[str], root: str) -> bool:
    """Whether a path or a descriptor of it is of the tree. What is written may name it, too, and is not asked."""
    if not call.endswith(("at", "at2")) and not arguments[0].startswith('"'):
        return _is_below(_path_of(arguments[0]), root)
    above, found = "", False
    if call in ("symlink", "symlinkat"):
        arguments = arguments[1:]  # the first one is only the text of the link
    for each in arguments:
        if each.startswith('"'):
            found |= _is_below(os.path.normpath(os.path.join(above, _text(each))), root)
        elif "<" in each:
            above = _path_of(each)
    return found


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")


def _change(call: str, arguments: list[str], result: int, root: str, line: str) -> Change | None:
    def path(directory: str | None, name: str) -> str:
        given = _text(name)
        above = None if directory is None else _path_of(directory)
        absolute = os.path.normpath(given if above is None else os.path.join(above, given))
        return _below(absolute, root)

    match call:
        case "openat" | "open" | "creat":
            at, name, flags = ("", *arguments[:2]) if call == "open" else arguments[:3]
            where = path(at or None, name)
            if "O_TRUNC" in flags or call == "creat":
                raise UnknownCallError(line[:300])
            return Change("create" if "O_CREAT" in flags else "open", where, fd=result)
        case "write" | "pwrite64":
            if call == "pwrite64":
                raise UnknownCallError(line[:300])
            return Change("write", fd=_fd(arguments[0]), data=_bytes(arguments[1])[:result])
        case "fsync" | "fdatasync":
            return Change("sync", fd=_fd(arguments[0]))
        case "fchmod":
            return Change("chmod", fd=_fd(arguments[0]), numbers=(int(arguments[1], 8),))
        case "chmod" | "fchmodat":
            at, name, mode = (None, *arguments[:2]) if call == "chmod" else arguments[:3]
            return Change("chmod", path(at, name), numbers=(int(mode, 8),))
        case "fchown":
            return Change("chown", fd=_fd(arguments[0]), numbers=(int(arguments[1]), int(arguments[2])))
        case "chown" | "lchown" | "fchownat":
            at, name, uid, gid = (None, *arguments[:3]) if call != "fchownat" else arguments[:4]
            return Change("chown", path(at, name), numbers=(int(uid), int(gid)))
        case "link" | "rename":
            return Change(call, path(None, arguments[0]), path(None, arguments[1]))
        case "linkat" | "renameat" | "renameat2":
            kind = "link" if call == "linkat" else "rename"
            return Change(kind, path(arguments[0], arguments[1]), path(arguments[2], arguments[3]))
        case "unlink":
            return Change("unlink", path(None, arguments[0]))
        case "unlinkat":
            return Change("rmdir" if "AT_REMOVEDIR" in arguments[2] else "unlink", path(arguments[0], arguments[1]))
        case "rmdir":
            return Change("rmdir", path(None, arguments[0]))
        case "mkdir":
            return Change("mkdir", path(None, arguments[0]), numbers=(int(arguments[1], 8),))
        case "mkdirat":
            return Change("mkdir", path(arguments[0], arguments[1]), numbers=(int(arguments[2], 8),))
    raise UnknownCallError(line[:300])


def _below(absolute: str, root: str) -> str:
    if absolute == root:
        return ""
    assert absolute.startswith(root + "/"), (absolute, root)
    return absolute.removeprefix(root + "/")


def _split(inside: str) -> list[str]:
    """At the commas outside of strings and brackets."""
    found, depth, quoted, at = [""], 0, False, 0
    while at < len(inside):
        character = inside[at]
        if quoted and character == "\\":
            found[-1] += inside[at : at + 2]
            at += 2
            continue
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character in "<{[(") - (character in ">}])")
        if character == "," and not quoted and depth == 0:
            found.append("")
        else:
            found[-1] += character
        at += 1
    return [each.strip() for each in found]


def _bytes(text: str) -> bytes:
    if not text.startswith('"') or not text.endswith('"'):
        raise UnknownCallError(f"not all of a buffer was traced: {text[-100:]}")
    return codecs.escape_decode(text[1:-1].encode("latin-1"))[0]


def _text(text: str) -> str:
    return os.fsdecode(_bytes(text))


def _fd(text: str) -> int:
    return int(text.split("<", 1)[0])


def _path_of(text: str) -> str:
    return text.split("<", 1)[1].removesuffix(">")
