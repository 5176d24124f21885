"""Runs the command in a process of its own that begins warm: forked from one that has loaded the code.

A cold start takes half a second of a processor, and the tests run the command some thousands of times. A warm run has all that a cold
one has: a process, arguments, environment, working directory, streams and umask of its own; ``__main__`` runs from its first line, and
at the end threads, exit functions and streams are seen to. It lacks the imports, and the interpreter's own end: what those cost, and
whether they work, is for the tests that start cold (tests/cli/test_start_up.py runs every verb so, and whatever starts ``COMMAND``).

A warm run keeps its priority when a broker runs: on a busy machine a process of the idle class may not run for minutes.
tests/storage/test_priority.py and tests/cli/test_io_limits.py test priorities.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NoReturn

import typer

REPOSITORY = Path(__file__).resolve().parents[1]
PRELOADED = (
    "formats",
    "snaprebuild.replay",
    "snaprebuild.cluster",
    "snaprebuild.storage",
    "snaprebuild.documents",
    "snaprebuild.snapshots",
    "snaprebuild.inspect",
    "snaprebuild.tier",
    "snaprebuild.followers",
    "snaprebuild.simulations",
    "snaprebuild.report",
    "snaprebuild.cli",
)
MAY_DIFFER = ("AWS_", "SNAPREBUILD_", "S3_SERVER_", "XDG_", "PYTEST_")
"""Variables that no loaded module has looked at. Where another one is not what it was, a run starts cold."""


def run(
    arguments: Sequence[str],
    seconds_max: float,
    *,
    stdout: int | None = None,
    stderr: int | None = None,
    user: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run`` in the repository, with output in text, but for a stream that has a place of its own.

    Args:
        arguments: those of the command.
        seconds_max: that it may take.
        stdout: open file that it goes to, and is not captured.
        stderr: likewise.
        user: who runs it, with a group of the same number, in the root directory; root begins it. None for anyone who runs the tests.

    Raises:
        subprocess.TimeoutExpired: it took longer; it was killed.
    """
    if user is None and _looked_at(os.environ) != _looked_at_first():
        command = [sys.executable, "-m", "snaprebuild", *arguments]
        places = (subprocess.PIPE if each is None else each for each in (stdout, stderr))
        streams = dict(zip(("stdout", "stderr"), places, strict=True))
        return subprocess.run(command, text=True, cwd=REPOSITORY, timeout=seconds_max, check=False, **streams)  # type: ignore[call-overload, no-any-return]
    with (
        tempfile.TemporaryFile() as request,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as told,
    ):
        umask = os.umask(0o022)
        os.umask(umask)
        wanted = {"arguments": arguments, "environment": dict(os.environ), "umask": umask, "user": user}
        request.write(json.dumps(wanted).encode("ascii"))
        request.flush()
        places = [captured.fileno() if each is None else each for each, captured in ((stdout, output), (stderr, told))]
        code = _wait(_sent(request.fileno(), *places), arguments, seconds_max)
        for file in (output, told):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, code, output.read(), told.read())


def _looked_at(environment: os._Environ[str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(MAY_DIFFER)}


@functools.cache
def _looked_at_first() -> dict[str, str]:
    _connection()
    return _looked_at(os.environ)


@functools.cache
def _connection() -> socket.socket:
    """To the process that forks, which ends when this one does."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        forks = subprocess.Popen(
            command, cwd=REPOSITORY, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def end() -> None:
        ours.close()
        forks.wait()

    atexit.register(end)
    return ours


def _sent(request: int, stdout: int, stderr: int) -> int:
    """Asks for a run; returns the end of a pipe that shows its process id and its exit code."""
    status, theirs = os.pipe()
    try:
        socket.send_fds(_connection(), [b"."], [request, 0, stdout, stderr, theirs])
    finally:
        os.close(theirs)
    return status


def _wait(status: int, arguments: Sequence[str], seconds_max: float) -> int:
    with open(status, "rb", buffering=0) as lines:
        pid = int(_line(lines))
        if not select.select([lines], [], [], seconds_max)[0]:
            os.kill(pid, signal.SIGKILL)
            _line(lines)
            raise subprocess.TimeoutExpired(list(arguments), seconds_max)
        return int(_line(lines))


def _line(lines: IO[bytes]) -> bytes:
    line = lines.readline()
    assert line, "the process that forks has died"
    return line


# -------------------------------------------------------------------------------------------------------- in the process that forks


def _serve(connection: socket.socket) -> bool:
    """Forks until no one asks any more. Returns in each run too, with True there."""
    _preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one waits for those that watch
    while True:
        _, files, _, _ = socket.recv_fds(connection, 1, 5)
        if not files:
            return False
        if os.fork() == 0:
            connection.close()
            _watch(files)
            return True
        for each in files:
            os.close(each)


def _preload() -> None:
    for package in PRELOADED:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    from snaprebuild.cli.main import app
    from snaprebuild.storage.io_limits import policy

    policy.set_priority = lambda _wanted: None
    group = typer.main.get_command(app)
    _build(group)  # all verbs and options, of which every run would build its own first
    typer.main.get_command = lambda of, build=typer.main.get_command: group if of is app else build(of)
    gc.collect()
    gc.freeze()


def _build(command: object) -> None:
    for each in getattr(command, "commands", {}).values():
        _build(each)


def _watch(files: list[int]) -> None:
    """Forks the run, and reports it. Returns in the run only."""
    request, *streams, status = files
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.write(status, b"%d\n" % pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, b"%d\n" % code)
        os._exit(0)
    with open(request, "rb", closefd=False) as file:
        file.seek(0)
        wanted = json.load(file)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for each in files:
        os.close(each)
    _open_streams()
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.umask(wanted["umask"])
    if wanted["user"] is not None:
        _become(wanted["user"])
    sys.argv = ["", *wanted["arguments"]]


def _become(user: int) -> None:
    """That user may not be able to read the checkout: what the command imports late is imported now."""
    for module in ("asyncio", "encodings.idna", "multiprocessing.resource_tracker"):
        importlib.import_module(module)
    runpy.run_module = lambda *_, **__: importlib.import_module("snaprebuild.cli.main").main()
    os.chdir("/")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _open_streams() -> None:
    """As the interpreter does at its start: what these streams can is asked once, and the former ones were others."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        former = getattr(sys, name)
        binary = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115 - for as long as the process lives
        lines = os.isatty(number) or name == "stderr"
        text = io.TextIOWrapper(binary, former.encoding, former.errors, newline="\n" if number else None, line_buffering=lines)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def _end(code: int) -> NoReturn:
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    sys.path[0] = str(REPOSITORY)
    if _serve(socket.socket(fileno=int(sys.argv.pop()))):
        try:
            runpy.run_module("snaprebuild", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            # Else every page of what was loaded would be copied, only to be given back.
            if end.code is None or isinstance(end.code, int):
                _end(end.code or 0)
            raise
