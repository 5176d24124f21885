"""Runs the command in a terminal of its own: a pseudo-terminal with a width, in which somebody may type Ctrl-C."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass

from command import SECONDS_MAX
from manifests import REPOSITORY

CTRL_C = b"\x03"


@dataclass(frozen=True)
class Screen:
    """The result of a run in a terminal."""

    exit_code: int
    text: str


def in_terminal(
    *arguments: object,
    columns: int = 100,
    stderr_too: bool = False,
    interrupt_at: str | None = None,
    typed: bytes = CTRL_C,
    python: tuple[str, ...] = ("-X", "snaprebuild_program=snaprebuild", "-m", "snaprebuild"),
    **environment: str,
) -> Screen:
    """Runs the command with stdin and stdout in a terminal; stderr as well, or in none.

    Args:
        arguments: of the command.
        columns: width of the terminal.
        stderr_too: a person sees stderr, with its progress bar.
        interrupt_at: a regular expression; once the screen has it, ``typed`` is typed.
        typed: Ctrl-C, or other keys that somebody presses then.
        python: what the interpreter runs.
        environment: variables in addition to those of the tests; an empty one is taken away.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(
        [sys.executable, *python, *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs if stderr_too else subprocess.DEVNULL,
        cwd=REPOSITORY,
        env={name: value for name, value in variables.items() if value and name not in ("COLUMNS", "LINES")},
        start_new_session=True,
        # Only the terminal that controls a session turns Ctrl-C into a signal.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(theirs)
    seen, has_typed, end = b"", interrupt_at is None, time.monotonic() + SECONDS_MAX
    try:
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.05)[0]:
                try:
                    data = os.read(ours, 1 << 16)
                except OSError:
                    break  # the last process that held the terminal has ended
                seen += data
            if not has_typed and interrupt_at is not None and re.search(interrupt_at.encode(), seen):
                os.write(ours, typed)
                has_typed = True
        exit_code = process.wait(max(0.1, end - time.monotonic()))
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert has_typed, f"{interrupt_at!r} was never seen in {seen!r}"
    return Screen(exit_code, seen.decode(errors="replace").replace("\r\n", "\n"))
