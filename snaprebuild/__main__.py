"""``python -m snaprebuild``, and the command."""

import os
import signal
import sys

from snaprebuild import foreign_formats
from snaprebuild.cli.interrupts import begin_running, take_signals

__all__ = ["main"]

LOAD_FAILED = 5
"""Exit code of any failure without a class of its own; Python would end with 1, as after findings."""

START_ANYWAY = "SNAPREBUILD_START_ANYWAY"
START_ANYWAY_FILE = "/run/snaprebuild/start-anyway"
"""The variable, and the file: either makes ``before-start`` check nothing, and start CMD."""

GLOBAL_WITH_VALUE = (
    "--impact",
    "--jobs",
    "--engine",
    "--master",
    "--cache",
    "--s3-endpoint-url",
    "--set",
    "--config",
    "--save-json",
    "--metrics",
)
GLOBAL_FLAGS = ("-v", "-vv", "--verbose")
"""Options that may be given before a verb, as ``scripts/release/one_file_command.h`` has them."""


def main() -> None:
    """Entry point. Until the command is loaded, a signal ends the process silently."""
    take_signals()
    environment = dict(os.environ)
    _start_anyway(sys.argv[1:], environment)
    if why := foreign_formats():
        sys.stderr.write(f"snaprebuild: cannot be loaded: {why}\n")
        _start_wrapped_command(sys.argv[1:], environment)
        sys.exit(LOAD_FAILED)
    try:
        from snaprebuild.cli.loading import begin_loading, read_launch, start_early
        from snaprebuild.cli.streams import open_standard_streams
        from snaprebuild.storage.local.process_settings import ignore_deprecations

        ignore_deprecations()
        read_launch()
        begin_loading()
        open_standard_streams()
        start_early(sys.argv[1:])
        from snaprebuild.cli.main import main as run
    except Exception as error:  # a damaged module raises almost anything, and so does a lack of memory
        sys.stderr.write(f"snaprebuild: cannot be loaded: {type(error).__name__}: {error}\n")
        _start_wrapped_command(sys.argv[1:], environment)
        sys.exit(LOAD_FAILED)
    begin_running()
    run()


def _start_anyway(words: list[str], environment: dict[str, str]) -> None:
    """Becomes the CMD of ``before-start`` at once where the operator has switched it off, whatever the other arguments are.

    Looked at before anything else, so that nothing in this program can hold a broker down. It returns without the switch.

    Args:
        words: arguments of the program.
        environment: of the caller.
    """
    if "before-start" not in words or "--" not in words or "before-start" not in words[: words.index("--")]:
        return
    if environment.get(START_ANYWAY) == "1":
        reason = f"{START_ANYWAY}=1"
    elif os.path.exists(START_ANYWAY_FILE):
        reason = f"{START_ANYWAY_FILE} exists"
    else:
        return
    command = words[words.index("--") + 1 :]
    if command and command[0]:
        sys.stderr.write(f"snaprebuild: Nothing was checked: {reason}.\n")
        _become(command, environment)


def _without_global_options(words: list[str]) -> list[str]:
    """From the verb on."""
    at = 0
    while at < len(words):
        name, equals, _ = words[at].partition("=")
        if name in GLOBAL_WITH_VALUE:
            at += 1 if equals else 2
        elif name in GLOBAL_FLAGS:
            at += 1
        else:
            break
    return words[at:]


def _start_wrapped_command(words: list[str], environment: dict[str, str]) -> None:
    """Becomes the CMD of ``before-start`` or ``install``: a broker starts whatever the result of its preparation is.

    It returns where there is no CMD, where CMD starts only after a success, and where it cannot be started. It needs no other module of
    this program, and reads the command line as ``scripts/release/one_file_command.h`` does.

    Args:
        words: arguments of the program.
        environment: of the caller.
    """
    words = _without_global_options(words)
    if not words or words[0] not in ("before-start", "install") or "--" not in words:
        return
    at = words.index("--")
    command = words[at + 1 :]
    if not command or not command[0]:
        return
    if any(word.startswith("--fail") or word.partition("=")[0] in ("-h", "--help", "--help-all") for word in words[:at]):
        return
    sys.stderr.write(f"snaprebuild: {command[0]!r} is started all the same\n")
    _become(command, environment)


def _become(command: list[str], environment: dict[str, str]) -> None:
    """Replaces this process. It returns if that is not possible."""
    environment = {name: value for name, value in environment.items() if name != "SNAPREBUILD_LAUNCHED"}
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and an ignored signal stays ignored
        signal.signal(number, signal.SIG_DFL)
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  no shell is wanted
    except OSError as error:
        sys.stderr.write(f"snaprebuild: {command[0]!r}: {error.strerror}\n")


if __name__ == "__main__":
    main()
