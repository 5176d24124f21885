"""Descriptors that a piece of code leaves open in this process."""

import contextlib
import gc
import os
from collections.abc import Iterator

DESCRIPTORS = "/proc/self/fd"


@contextlib.contextmanager
def nothing_left_open() -> Iterator[None]:
    """Fails if the block leaves a descriptor open.

    Descriptors from before may close in the block: the garbage collector closes files that earlier tests forgot.
    """
    gc.collect()
    before = set(os.listdir(DESCRIPTORS))
    yield
    assert set(os.listdir(DESCRIPTORS)) <= before
