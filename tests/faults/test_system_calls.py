"""The seam of the writing side records each system call of the write path, as strace sees them: the models of crashes rest on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from write_three_files import BEGIN, END, NAMES

WRITER = Path(__file__).with_name("write_three_files.py")
ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")

pytestmark = [pytest.mark.strace, pytest.mark.skipif(STRACE is None, reason="strace is not installed")]

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


def test_the_seam_records_every_system_call(tmp_path: Path) -> None:
    directory, output = tmp_path / "written", tmp_path / "strace"
    directory.mkdir()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [STRACE, "-f", "-e", "trace=all", "-o", output, sys.executable, WRITER, directory]
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    recorded = json.loads(done.stdout)
    assert sorted(os.listdir(directory)) == NAMES

    lines = output.read_text().splitlines()
    begin, end = (next(at for at, line in enumerate(lines) if mark in line) for mark in (BEGIN, END))
    calls = [(match[1], match[0]) for line in lines[begin + 1 : end] if (match := re.match(r"(?:\d+ +)?(\w+)\(.*", line))]
    calls = [(syscall, line) for syscall, line in calls if syscall not in NOT_OF_FILES]
    # Around each creation the seam sets the umask and puts it back; that is part of its `open`.
    umasks = [at for at, (syscall, _) in enumerate(calls) if syscall == "umask"]
    creations = [at for at, (_, line) in enumerate(calls) if "O_CREAT" in line]
    assert umasks == sorted([at - 1 for at in creations] + [at + 1 for at in creations])
    assert len(creations) == len(NAMES)

    made = [(syscall, line) for syscall, line in calls if syscall != "umask"]
    assert len(made) == len(recorded), list(zip([line for _, line in made], recorded, strict=False))
    assert len(made) >= 50
    for (syscall, line), (method, _) in zip(made, recorded, strict=True):
        assert syscall in SYSCALLS[method], (line, method)
        if method == "lock":
            assert "F_OFD_SETLK" in line
