"""Findings about directories that this user may not write to."""

from __future__ import annotations

import os

from snaprebuild.errors import WriteFailedError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.storage.local.write_advice import DENIED, advice_on_directory, nearest_existing
from snaprebuild.storage.store import Ownership

__all__ = ["denied_finding", "is_denied"]


def is_denied(error: BaseException, directory: str) -> bool:
    """Whether this user may not write to a directory. An error about a receipt elsewhere is none of these."""
    if not isinstance(error, WriteFailedError) or error.path is None:
        return False
    return error.errno in DENIED and directory in (error.path, os.path.dirname(error.path))


def denied_finding(directory: str, count: int, owner: Ownership | None) -> Finding:
    """One for all snapshots of a directory that this user may not write, with the user that may.

    Args:
        directory: that was to be written to, and may be missing.
        count: of the snapshots.
        owner: that they must have; None for that of the process.
    """
    directory = nearest_existing(directory)
    advice = advice_on_directory(directory, owner)
    message = f"permission denied: {pluralize(count, 'snapshot')} not written. {advice}"
    return Finding("storage-failed", Severity.STORAGE, directory, message)
