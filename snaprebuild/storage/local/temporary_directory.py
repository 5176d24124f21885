"""Where temporary files go: never into a log directory, whatever the environment says."""

from __future__ import annotations

import os
import tempfile

from snaprebuild.errors import RefusedError
from snaprebuild.storage.local.log_dir_guard import log_dir_above
from snaprebuild.storage.local.process_settings import current_directory

__all__ = ["choose_temporary_directory"]

_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_USUAL_PLACES = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108  as ``tempfile`` has them


def choose_temporary_directory() -> None:
    """Makes this process, its libraries and the processes that it starts use a temporary directory outside of all log directories.

    ``tempfile`` takes TMPDIR, TEMP or TMP, then the usual places, then the current directory. Nothing changes unless one of the variables
    or the current directory leads into a log directory.

    Raises:
        RefusedError: none of these places is outside of log directories and can be written to.
    """
    named = [os.environ[name] for name in _VARIABLES if os.environ.get(name)]
    directory = current_directory()
    current = [] if directory is None else [directory]
    log_dirs = [log_dir for log_dir in map(log_dir_above, (*named, *current)) if log_dir is not None]
    if not log_dirs:
        return
    for place in (*named, *_USUAL_PLACES, *current):
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK) and log_dir_above(place) is None:
            tempfile.tempdir = place
            os.environ["TMPDIR"] = place
            return
    raise RefusedError(f"no temporary directory is outside of the log directory {log_dirs[0]}: name one with TMPDIR")
