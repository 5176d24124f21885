"""A command that is started when something else is done, in place of this program: same process id, streams, environment and signals."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import NoReturn

import click
import typer
from typer.core import TyperCommand

from snaprebuild.cli.streams import tell
from snaprebuild.cli.table import printable
from snaprebuild.errors import UsageError

__all__ = ["Inherited", "WithCommand", "start_after", "wrapped_command"]

GRACE_SECONDS = 10.0
"""Behind its deadline, or an interrupt, the work may end what it has begun; then it is killed."""

LOOK_SECONDS = 0.02
ORPHANS_SECONDS = 1.0

NOT_FOUND, NOT_EXECUTABLE, DIED = 127, 126, 5
"""Exit codes: the first two as of a shell; the work ended by a signal."""

PR_SET_PDEATHSIG = 1

_KEY = "snaprebuild.wrapped_command"


@dataclass(frozen=True)
class Inherited:
    """What this program changes of itself when it begins, as it was."""

    umask: int


class WithCommand(TyperCommand):
    """Takes ``-- CMD ARGS...`` off its arguments before they are looked at."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What stands before the first ``--`` is ours."""
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[_KEY] = args[:at], args[at + 1 :]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """With the command, behind everything else."""
        return [*super().collect_usage_pieces(ctx), "[-- CMD [ARG]...]"]


def wrapped_command() -> list[str] | None:
    """The command, or None where there is no ``--``.

    Raises:
        UsageError: nothing stands behind it.
    """
    command: list[str] | None = click.get_current_context().meta.get(_KEY)
    if command is not None and not (command and command[0]):
        raise UsageError("-- expects the command that is to be started behind it")
    return command


def start_after(command: list[str], *, seconds: float | None, only_if_done: bool) -> None:
    """Forks. Returns in the child, whose exit code says what became of the work; this process then becomes ``command``.

    The work has a process of its own, so that neither a crash of it nor want of memory keeps the command from its start, and nothing that
    it opened, locked or started is left in the process that the command gets.

    Args:
        command: the program, looked for in PATH, and its arguments.
        seconds: that the work takes at most, or it is stopped a little later; None for any time.
        only_if_done: the command is not started where the exit code of the work is not 0.

    Raises:
        Exit: the command is not started, or cannot be.
        KeyboardInterrupt: the work was interrupted; the command is not started.
    """
    umask = click.get_current_context().obj.umask
    parent = os.getpid()
    try:
        child = _forked()
    except OSError as error:
        tell(f"snaprebuild: the preparation has no process: {error.strerror}")
        code = DIED
    else:
        if child == 0:
            _end_with(parent)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # which belongs to the command
            return
        code = _waited(child, None if seconds is None else time.monotonic() + seconds + GRACE_SECONDS)
    if parent == 1:
        _reap_orphans()
    if code and only_if_done:
        tell(f"snaprebuild: {printable(command[0])} is not started (--fail-closed)")
        raise typer.Exit(code)
    if code:
        tell(f"snaprebuild: {printable(command[0])} is started all the same")
    _become(command, umask)


def _forked() -> int:
    """As ``os.fork``. A signal that stops us waits so long: in what Python calls around a fork, the error that it raises would be lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
    try:
        return os.fork()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(parent: int) -> None:
    """Where this process is killed, nobody else would wait for the work, which holds the lock that the next start wants."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise KeyboardInterrupt  # it was killed already


def _waited(child: int, until: float | None) -> int:
    """Exit code of the work, which is stopped at a moment."""
    try:
        while until is None or time.monotonic() < until:
            if code := _ended(child, 0 if until is None else os.WNOHANG):
                return code[0]
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        _stop(child)
        raise
    tell("snaprebuild: the preparation does not end at its deadline and is stopped")
    return _stop(child)


def _ended(child: int, options: int) -> tuple[int] | None:
    pid, status = os.waitpid(child, options)
    if pid == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return (code,)
    tell(f"snaprebuild: the preparation was ended by signal {-code} ({signal.strsignal(-code)})")
    return (DIED,)


def _stop(child: int) -> int:
    """Asks it to end, and kills it where it does not: what it wrote is whole, and what it was writing has a name that Kafka ignores."""
    for order in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, order)
        until = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < until:
            if code := _ended(child, os.WNOHANG):
                return code[0] or DIED
            time.sleep(LOOK_SECONDS)
    tell("snaprebuild: the preparation does not even end when it is killed: its storage hangs")
    return DIED


def _reap_orphans() -> None:
    """In a container the first process inherits the helpers of the work, which end at once; the command would never ask for them."""
    until = time.monotonic() + ORPHANS_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(LOOK_SECONDS)


def _become(command: list[str], umask: int) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and an ignored signal stays ignored
        signal.signal(number, signal.SIG_DFL)
    os.umask(umask)
    try:
        os.execvp(command[0], command)  # noqa: S606  no shell is wanted
    except OSError as error:
        tell(f"snaprebuild: {printable(command[0])}: {error.strerror}")
        raise typer.Exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE) from None
