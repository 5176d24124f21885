"""Which release of Kafka a process runs, as far as the kernel tells: by the archives that it was started with or has open."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["broker_version"]

_ARCHIVE = re.compile(r"(?:^|[/:])kafka_2\.\d+-(\d{1,3})\.(\d{1,3})\.\d[^/:]{0,40}\.jar")
"""Of the broker itself; those of clients may come with a plugin, and be of another release."""

CMDLINE_BYTES_MAX = 4 << 20
"""A class path may name hundreds of archives; the kernel allows some megabytes of arguments."""


def broker_version(process_id: int, proc: Path = Path("/proc")) -> tuple[int, int] | None:
    """The major and minor version of the Kafka that runs in a process.

    Args:
        process_id: of a broker.
        proc: where the kernel tells of processes.

    Returns:
        None where nothing tells it: another user's process, another container, archives under other names. The least, where several
        are there.
    """
    found = {(int(match[1]), int(match[2])) for text in _texts(proc / str(process_id)) for match in _ARCHIVE.finditer(text)}
    return min(found, default=None)


def _texts(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError), open(process / "cmdline", "rb") as file:
        yield from file.read(CMDLINE_BYTES_MAX).decode(errors="replace").split("\0")
    with contextlib.suppress(OSError):
        for name in os.listdir(process / "fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(process / "fd" / name)
