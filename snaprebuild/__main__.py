"""``python -m snaprebuild``, and the command."""

import sys

from snaprebuild.cli.interrupts import begin_running, take_signals

__all__ = ["main"]

LOAD_FAILED = 5
"""As of any failure without a class of its own; Python would end with 1, as after findings."""


def main() -> None:
    """Entry point. Until the command is loaded, a signal ends the process silently."""
    take_signals()
    from snaprebuild.storage.local.process_settings import ignore_deprecations

    ignore_deprecations()
    from snaprebuild.cli.early_server import start_early
    from snaprebuild.cli.loading import begin_loading
    from snaprebuild.cli.streams import open_standard_streams

    begin_loading()
    open_standard_streams()
    try:
        start_early(sys.argv[1:])
        from snaprebuild.cli.main import main as run
    except (ImportError, MemoryError) as error:  # without memory a library raises either of them
        sys.stderr.write(f"snaprebuild: cannot be loaded: {type(error).__name__}: {error}\n")
        sys.exit(LOAD_FAILED)
    begin_running()
    run()


if __name__ == "__main__":
    main()
