"""A real process is killed at each system call of the write path, as strace sees them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from write_three_files import BEGIN, DATA, END, NAMES, OWNER

from snaprebuild.errors import AlreadyExistsError
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.local.whole_file import remove_second_name
from snaprebuild.storage.store import Ownership

WRITER = Path(__file__).with_name("write_three_files.py")
ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")

pytestmark = [
    pytest.mark.strace,
    pytest.mark.skipif(STRACE is None, reason="strace is not installed"),
]

# Memory and threads of the interpreter: no effect on files, and not the same in each run.
NOT_OF_FILES = {"brk", "mmap", "munmap", "mremap", "madvise", "mprotect", "futex", "rt_sigaction", "rt_sigprocmask", "getrandom"}

# Each method of the seam and the system calls that it may be.
SYSCALLS = {
    "open": {"openat", "open"},
    "lock": {"fcntl", "fcntl64"},
    "fstat": {"fstat", "newfstatat", "statx", "fstat64"},
    "stat": {"newfstatat", "statx", "fstatat64"},
    "fchown": {"fchown", "fchown32"},
    "fchmod": {"fchmod"},
    "write": {"write"},
    "fsync": {"fsync"},
    "forget_cached": {"fadvise64", "fadvise64_64"},
    "read": {"read"},
    "link": {"linkat"},
    "rename_noreplace": {"renameat2"},
    "unlink": {"unlinkat"},
    "close": {"close"},
}


class Point(NamedTuple):
    """One system call of the write path: which one of its kind it is, counted since the tracer attached."""

    syscall: str
    number: int
    line: str


def traced(directory: Path, output: Path, *options: str) -> tuple[int, str]:
    """Runs the writer under strace. Returns its exit status (-9 when killed) and what it told."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as writer:
        assert writer.stdout.readline() == "ready\n"
        tracer = subprocess.Popen(
            [STRACE, "-f", "-o", str(output), *options, "-p", str(writer.pid)], stderr=subprocess.PIPE, text=True
        )
        with tracer:
            said = tracer.stderr.readline()
            if "attached" not in said:
                writer.kill()
                tracer.wait()
                pytest.skip(f"may not trace a process here: {said.strip()}")
            told, _ = writer.communicate("x")
            tracer.communicate()
    return writer.returncode, told


def parsed(output: Path) -> list[Point]:
    counted: dict[str, int] = {}
    points = []
    for line in output.read_text().splitlines():
        match = re.match(r"(?:\d+ +)?(\w+)\(", line)
        if match:
            syscall = match[1]
            counted[syscall] = counted.get(syscall, 0) + 1
            points.append(Point(syscall, counted[syscall], line))
    return points


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> tuple[list[Point], list[list[str]]]:
    """The system calls of an undisturbed run between the two marks, and what the seam recorded of the same run."""
    directory = tmp_path_factory.mktemp("plain")
    status, told = traced(directory, directory.with_suffix(".strace"), "-e", "trace=all")
    assert status == 0
    points = parsed(directory.with_suffix(".strace"))
    begin = next(i for i, point in enumerate(points) if BEGIN in point.line)
    end = next(i for i, point in enumerate(points) if END in point.line)
    assert sorted(os.listdir(directory)) == NAMES
    return [point for point in points[begin + 1 : end] if point.syscall not in NOT_OF_FILES], json.loads(told)


def test_the_seam_records_every_system_call(plain):
    points, recorded = plain
    # Around each creation the seam sets the umask and puts it back; that is part of its `open`.
    umasks = [i for i, point in enumerate(points) if point.syscall == "umask"]
    creations = [i for i, point in enumerate(points) if "O_CREAT" in point.line]
    assert umasks == sorted([i - 1 for i in creations] + [i + 1 for i in creations])
    assert len(creations) == len(NAMES)

    made = [point for point in points if point.syscall != "umask"]
    assert len(made) == len(recorded), list(zip([p.line for p in made], recorded, strict=False))
    for point, (method, _) in zip(made, recorded, strict=True):
        assert point.syscall in SYSCALLS[method], (point.line, method)
        if method == "lock":
            assert "F_OFD_SETLK" in point.line


def test_killed_at_each_system_call(plain, tmp_path):
    points, _ = plain
    assert len(points) >= 60
    lefts = set()
    for index, point in enumerate(points):
        directory = tmp_path / f"{index:03d}"
        directory.mkdir()
        output = directory.with_suffix(".strace")
        inject = f"inject={point.syscall}:signal=SIGKILL:when={point.number}"
        status, _ = traced(directory, output, "-e", "trace=all", "-e", inject)
        assert status == -9, f"the writer outlived {point.line}"
        killed_at = [seen for seen in parsed(output) if seen.syscall not in NOT_OF_FILES][-1]
        assert killed_at[:2] == point[:2], "the run was killed elsewhere than planned"

        left = check_left(directory)
        lefts.add(left)
        for name in NAMES:
            assert remove_second_name(directory, name, f"{name}.tmp") == (name in left and f"{name}.tmp" in left)
        finish(directory)
    # The kills met every stage: nothing yet, each file alone under its temporary name, under both names, done.
    assert {(), (NAMES[0] + ".tmp",), (NAMES[0], NAMES[0] + ".tmp"), (NAMES[0],), tuple(NAMES)} <= lefts


def check_left(directory: Path) -> tuple[str, ...]:
    left = tuple(sorted(os.listdir(directory)))
    for name in left:
        path = directory / name
        owner = Ownership.of(path.stat())
        assert owner == OWNER or owner.mode == 0o644, f"{name} may be hidden from the broker: {owner}"
        if name.endswith(".tmp"):
            assert DATA[name.removesuffix(".tmp")].startswith(path.read_bytes())
        else:
            assert path.read_bytes() == DATA[name], f"half a file under the real name {name}"
            assert owner == OWNER
    return left


def finish(directory: Path) -> None:
    for name in NAMES:
        is_there = (directory / name).exists()
        try:
            create_file(directory, name, DATA[name], owner=OWNER, temporary_name=f"{name}.tmp")
        except AlreadyExistsError:
            assert is_there
        else:
            assert not is_there
    assert sorted(os.listdir(directory)) == NAMES
    assert all((directory / name).read_bytes() == DATA[name] for name in NAMES)
