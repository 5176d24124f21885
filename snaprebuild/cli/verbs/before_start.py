"""The verb ``before-start``."""

from __future__ import annotations

from snaprebuild.cli.loading import deadline_after
from snaprebuild.cli.options.before_start import BeforeStartOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.cli.wrapped_command import StartDecision, start_after, wrapped_command
from snaprebuild.errors import UsageError

__all__ = ["before_start"]


@verb()
def before_start(*, options: BeforeStartOptions, out: OutputOptions) -> View:
    """WRITES missing snapshots into the log directories of a stopped broker, then starts the broker with CMD.

    PATH is a partition directory, a log directory, or any directory above them; several may be named. It does what
    `rebuild` does, just before a broker starts: in ExecStart of systemd, or in the entry point of a container. The partition with
    the most bytes that cannot be uploaded comes first. What is written at the deadline is complete. CMD starts after every
    result, also after an error of usage. With --fail-closed it does not start if the start itself would lose records or fail: then
    the exit code is 3. It takes the place of this process and gets its stdout. Without CMD the exit code is the result.
    It takes no --as-of, because the broker starts now, and no --allow-unproven, because nobody looks at its answer before the start.
    SNAPREBUILD_START_ANYWAY=1, or the file /run/snaprebuild/start-anyway, starts CMD at once and checks nothing.
    """
    command = wrapped_command(as_json=out.as_json)
    if command is None and options.fail_closed:
        raise UsageError("--fail-closed decides when CMD is started, and there is no CMD: use the exit code")
    until = None if options.deadline is None else deadline_after(options.deadline)
    decision = StartDecision() if options.fail_closed else None
    if command is not None:
        start_after(command, deadline=until, decision=decision)
    # After the fork: a module that is damaged ends the work, and CMD starts.
    from snaprebuild.cli.runs.before_start import run_before_start

    return run_before_start(options, until=until, decision=decision, out=out)
