"""A command that is started when something else is done, in place of this program: same process id, streams, environment and signals."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import NamedTuple, NoReturn

import click
import typer

from snaprebuild.cli.loading import restore_environment
from snaprebuild.cli.streams import give_stdout_away, print_on_stderr
from snaprebuild.cli.table import printable
from snaprebuild.cli.verb_command import VerbCommand
from snaprebuild.errors import UsageError
from snaprebuild.storage.local.process_settings import end_with_parent

__all__ = ["CallerProcess", "StartDecision", "WithCommand", "start_after", "start_after_usage_error", "wrapped_command"]

STOP_SECONDS = 6.0
KILL_SECONDS = 8.0
GIVE_UP_SECONDS = 9.0
"""After its deadline the work may finish the file that it is writing. Then it is asked to end, then killed, then no longer waited for. The
command starts at most ten seconds after the deadline: `ORPHANS_SECONDS` may follow."""

GRACE_SECONDS = 10.0
"""After an interrupt the work may finish the file that it is writing; then it is killed. No command starts."""

LOOK_SECONDS = 0.02
ORPHANS_SECONDS = 1.0

NOT_FOUND = 127
NOT_EXECUTABLE = 126
DIED = 5
"""Exit codes: the first two as of a shell; the work ended by a signal."""

HELD = 3
"""Exit code where the command is not started on purpose: ``--fail-closed``, and the start itself would lose records, or fail."""

_STARTS = b"+"
_HOLDS = b"-"

_children: list[int] = []
"""The process id of the work, in the process of the work."""

_KEY = "snaprebuild.wrapped_command"


class StartDecision:
    """The way from the work to the process that starts the command: whether the command may be started."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def close_reader(self) -> None:
        """Closes the end of the pipe that the work does not read."""
        os.close(self._reader)

    def send(self, reason: str | None) -> None:
        """Reports whether the command may be started.

        Args:
            reason: why it may not, one sentence; None if it may.
        """
        if self._writer < 0:
            return
        decision = _STARTS
        if reason is not None:
            decision = _HOLDS + reason.encode("utf-8", "backslashreplace")[:1000]
        os.write(self._writer, decision)
        os.close(self._writer)
        self._writer = -1

    def wait(self, child: int) -> None:
        """Waits until the work has sent its decision, or has ended. No deadline counts before that: what is not judged is not started."""
        while not select.select([self._reader], [], [], LOOK_SECONDS)[0]:
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return

    def reason_held(self) -> str | None:
        """After the work has ended: why the command is held, empty if the work gave no decision; None if it may be started."""
        os.close(self._writer)
        os.set_blocking(self._reader, False)  # a helper of the work may still have the other end
        try:
            data = os.read(self._reader, 1 << 16)
        except BlockingIOError:
            data = b""
        os.close(self._reader)
        return None if data == _STARTS else data[len(_HOLDS) :].decode("utf-8", "replace")


class CallerProcess(NamedTuple):
    """The original values of what this program changes of itself when it begins."""

    umask: int


class WithCommand(VerbCommand):
    """Takes ``-- CMD ARGS...`` off its arguments before they are looked at."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes the arguments before the first ``--`` as those of the verb."""
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[_KEY] = args[:at], args[at + 1 :]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line with the wrapped command at its end."""
        return [*super().collect_usage_pieces(ctx), "[-- CMD [ARG]...]"]


def wrapped_command(*, as_json: bool) -> list[str] | None:
    """The command, or None if there is no ``--``.

    Args:
        as_json: the result was requested as JSON on stdout, which belongs to the command.

    Raises:
        UsageError: no command follows it, or both need stdout.
    """
    command: list[str] | None = click.get_current_context().meta.get(_KEY)
    if command is not None and not (command and command[0]):
        raise UsageError("-- must be followed by the command to start")
    if command is not None and as_json:
        raise UsageError("--output json: stdout belongs to CMD; --save-json FILE takes the document")
    return command


def start_after(command: list[str], *, deadline: float | None, decision: StartDecision | None = None) -> None:
    """Forks. Returns in the child, whose exit code is the result of the work; this process then becomes ``command``.

    The work has a process of its own: neither a crash nor a lack of memory keeps the command from its start.
    Nothing that it opened, locked or started is left in the process that the command gets.

    Args:
        command: the program, looked for in PATH, and its arguments.
        deadline: moment of ``time.monotonic``; work that has not ended by then is stopped a little later. None for any time.
        decision: the command is not started where the work gives a reason, or ends without a decision; None to start it in any case.

    Raises:
        Exit: the command is not started, or cannot be.
        KeyboardInterrupt: the work was interrupted; the command is not started.
    """
    umask = click.get_current_context().obj.umask
    parent = os.getpid()
    try:
        child = _forked()
    except OSError as error:
        print_on_stderr(f"snaprebuild: the preparation has no process: {error.strerror}")
        code = DIED
    else:
        if child == 0:
            _children.append(os.getpid())
            if decision is not None:
                decision.close_reader()
            end_with_parent(parent)  # else a start after this one finds its directories locked
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # which belongs to the command
            return
        code = _waited(child, deadline, decision)
    if parent == 1:
        _reap_orphans()
    reason = None if decision is None else decision.reason_held()
    if reason is not None:
        because = f": {printable(reason)}" if reason else ""
        print_on_stderr(f"snaprebuild: {printable(command[0])} is not started (--fail-closed){because}")
        raise typer.Exit(HELD if reason else code or DIED)
    if code:
        print_on_stderr(f"snaprebuild: {printable(command[0])} is started all the same")
    _become(command, umask)


def start_after_usage_error(words: list[str], umask: int) -> None:
    """Becomes the CMD of ``before-start`` after an error of usage: a mistyped option must not keep a broker down.

    It returns for another verb, without CMD, in the process of the work, and if an argument begins with ``--fail``.

    Args:
        words: arguments of the program.
        umask: of the caller.
    """
    if os.getpid() in _children or "before-start" not in words or "--" not in words:
        return
    at = words.index("--")
    command = words[at + 1 :]
    if not command or not command[0] or "before-start" not in words[:at] or any(word.startswith("--fail") for word in words[:at]):
        return
    print_on_stderr(f"snaprebuild: nothing was prepared; {printable(command[0])} is started all the same")
    with contextlib.suppress(typer.Exit):  # it cannot be started: the exit code of the error of usage stays
        _become(command, umask)


def _forked() -> int:
    """Result of ``os.fork``.

    A signal that stops us waits so long: in what Python calls around a fork, the error that it raises would be lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
    try:
        return os.fork()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _waited(child: int, deadline: float | None, decision: StartDecision | None) -> int:
    """Exit code of the work, which is stopped after its deadline, and not before its decision."""
    try:
        if decision is not None:
            decision.wait(child)
            deadline = None if deadline is None else max(deadline, time.monotonic())
        code = _exit_code(child, None if deadline is None else deadline + STOP_SECONDS)
    except KeyboardInterrupt:
        now = time.monotonic()
        _stop(child, now + GRACE_SECONDS, now + 2 * GRACE_SECONDS)
        raise
    if code is not None:
        return code
    print_on_stderr("snaprebuild: the preparation does not end at its deadline and is stopped")
    assert deadline is not None
    return _stop(child, deadline + KILL_SECONDS, deadline + GIVE_UP_SECONDS)


def _exit_code(child: int, until: float | None) -> int | None:
    """Exit code of the work, or None where it has not ended by then."""
    while True:
        pid, status = os.waitpid(child, 0 if until is None else os.WNOHANG)
        if pid:
            break
        if until is not None and time.monotonic() >= until:
            return None
        time.sleep(LOOK_SECONDS)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    print_on_stderr(f"snaprebuild: the preparation was ended by signal {-code} ({signal.strsignal(-code)})")
    return DIED


def _stop(child: int, killed_at: float, given_up_at: float) -> int:
    """Asks the work to end, then kills it: files that it wrote are whole, and Kafka ignores the name of an unfinished one."""
    for order, until in ((signal.SIGTERM, killed_at), (signal.SIGKILL, given_up_at)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, order)
        code = _exit_code(child, until)
        if code is not None:
            return code or DIED
    print_on_stderr("snaprebuild: the preparation does not even end when it is killed: its storage hangs")
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
    give_stdout_away()
    restore_environment()
    os.umask(umask)
    try:
        os.execvp(command[0], command)  # noqa: S606  no shell is wanted
    except OSError as error:
        print_on_stderr(f"snaprebuild: {printable(command[0])}: {error.strerror}")
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        raise typer.Exit(code) from None
