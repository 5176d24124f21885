"""A process that ends when its parent does, also where the parent is killed (``prctl(PR_SET_PDEATHSIG)``)."""

from __future__ import annotations

import os
import signal

__all__ = ["end_with_parent"]

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when its parent ends; ends it at once where that has happened.

    The kernel watches the thread that started this process, so that thread must live as long as its process.

    Args:
        parent: process id of the process that started this one.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
