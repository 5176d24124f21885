"""Another process that holds something while a test looks."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LOCK_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("ready", flush=True)
sys.stdin.read()
"""
"""A program that holds the lock of a file."""


@contextlib.contextmanager
def other_process(*command: object) -> Iterator[subprocess.Popen[str]]:
    """Runs a program while the block runs. It prints ``ready`` when it holds what it should, and ends when it gets a line."""
    with subprocess.Popen([str(each) for each in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.communicate("\n")


@contextlib.contextmanager
def live_broker(log_dir: Path) -> Iterator[int]:
    """Holds the lock of a log directory as a broker does (``F_SETLK``, from another process). Yields its process id."""
    with other_process(sys.executable, "-c", LOCK_HOLDER, log_dir / ".lock") as process:
        yield process.pid
