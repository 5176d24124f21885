"""Settings of this process: its directory, the permissions of documents that it writes, and its end together with its parent."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["current_directory", "document_mode", "end_with_parent", "ignore_deprecations", "respect_umask"]

_PR_SET_PDEATHSIG = 1


class _Caller:
    """The caller of the command.

    Attributes:
        umask: that documents respect; there is one for all threads.
    """

    umask = 0


_caller = _Caller()


def respect_umask(umask: int) -> None:
    """From now on documents have no permission that this umask removes.

    Args:
        umask: of the caller of the command. The process itself has another one, because brokers must be able to read the files that
            it writes for them.
    """
    _caller.umask = umask


def ignore_deprecations() -> None:
    """From now on deprecations in libraries are no errors, whatever ``-W`` and ``PYTHONWARNINGS`` ask for: users cannot correct them."""
    if sys.warnoptions:
        import warnings

        for kind in (DeprecationWarning, PendingDeprecationWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)


def current_directory() -> str | None:
    """The current directory; None if it was removed, for example by an update of the files in it."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def document_mode() -> int:
    """Permission bits of a new document (receipt, plan, report): 0644 less the umask. Snapshots have the mode of their segment."""
    return 0o644 & ~_caller.umask


def end_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when its parent ends (``prctl(PR_SET_PDEATHSIG)``); ends it if the parent has ended.

    The kernel watches the thread that started this process, so that thread must live as long as its process.

    Args:
        parent: process id of the process that started this one.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
