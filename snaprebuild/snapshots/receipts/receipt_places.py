"""Where receipts are, unless ``--receipt`` names a file."""

from __future__ import annotations

import os

from snaprebuild.storage.local.log_dir_guard import log_dir_above
from snaprebuild.storage.local.process_settings import current_directory
from snaprebuild.storage.store import is_object

__all__ = ["can_be_written", "default_receipt_places", "state_directory"]


def state_directory() -> str | None:
    """Where receipts go by default: ``snaprebuild`` in the state directory of the user; None for users without a home."""
    home = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(home, "snaprebuild") if os.path.isabs(home) else None


def default_receipt_places(out: str | None = None) -> list[str]:
    """Directories for receipts; the first one outside of log directories that can be written to gets them.

    It is the state directory of the user. Some users have no home that can be written to, as service accounts often do. Then it is
    ``--out``, or the current directory in place. Otherwise it is never ``--out``, which holds snapshots and nothing else.

    Args:
        out: the directory that the run writes to; None in place.
    """
    state = state_directory()
    last = current_directory() if out is None or is_object(out) else out
    return [place for place in (state, last) if place is not None]


def can_be_written(directory: str) -> bool:
    """Whether files can be made there, or the directory itself in the nearest one above it that exists. Never in a log directory."""
    if log_dir_above(directory) is not None:
        return False
    while not os.path.lexists(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)
