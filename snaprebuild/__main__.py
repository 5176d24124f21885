"""``python -m snaprebuild``, and the command."""

import signal
import sys

from snaprebuild import foreign_formats

__all__ = ["main"]

LOAD_FAILED = 5
"""As of any failure without a class of its own; Python would end with 1, as after findings."""


def main() -> None:
    """Entry point. Until the command is loaded, an interrupt ends the process silently."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if why := foreign_formats():
        sys.stderr.write(f"snaprebuild: cannot be loaded: {why}\n")
        sys.exit(LOAD_FAILED)
    from snaprebuild.cli.early_server import start_early
    from snaprebuild.cli.launch import read_launch
    from snaprebuild.cli.loading import begin_loading
    from snaprebuild.cli.streams import open_standard_streams

    read_launch()
    begin_loading()
    open_standard_streams()
    try:
        start_early(sys.argv[1:])
        from snaprebuild.cli.main import main as run
    except (ImportError, MemoryError) as error:  # without memory a library raises either of them
        sys.stderr.write(f"snaprebuild: cannot be loaded: {type(error).__name__}: {error}\n")
        sys.exit(LOAD_FAILED)
    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
