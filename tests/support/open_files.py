"""Descriptors that a piece of code leaves open in this process."""

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path

DESCRIPTORS = "/proc/self/fd"


@contextlib.contextmanager
def nothing_left_open(directory: Path) -> Iterator[None]:
    """Fails if the block leaves a descriptor of something below `directory` open.

    Other descriptors say nothing: threads that earlier tests left, and the listing itself, open them at any moment.
    """
    gc.collect()
    before = open_below(directory)
    yield
    assert [each for each in open_below(directory) if each not in before] == []


def open_below(directory: Path) -> list[tuple[str, str]]:
    """Each open descriptor of a path at or below `directory`, with that path. Deleted files count, too."""
    found = []
    for descriptor in os.listdir(DESCRIPTORS):
        with contextlib.suppress(FileNotFoundError):
            found.append((descriptor, os.readlink(os.path.join(DESCRIPTORS, descriptor))))
    return [(descriptor, path) for descriptor, path in found if path.startswith(str(directory))]
