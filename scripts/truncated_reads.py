"""The command, with workers that announce to another process what they look at, so that it can truncate just that (bench_truncations).

Each worker loads this file as its main module, and announces from then on. The process that starts workers does not.
"""

from __future__ import annotations

import functools
import json
import os
import socket
from pathlib import Path
from typing import Any

from snaprebuild.storage.local.segment_file import SegmentFile

__all__ = ["MOMENTS", "SETTINGS"]

SETTINGS = "TRUNCATED_READS"
"""Environment variable: file with a JSON object. ``socket``: where moments are announced; ``moments``: by path of a segment; ``limit``:
of workers that die of a mapping, null for that of the command."""

MOMENTS = ("opening", "looking", "race", "ending", "after")
"""Before it is opened, with the first bytes mapped or before they are read, the same without a wait, before it is checked, afterwards."""

_announced: set[str] = set()


@functools.cache
def _settings() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(os.environ[SETTINGS]).read_text())
    return found


def _announce(path: str, *moments: str) -> None:
    """Once for each segment. Waits until the other process has done what it does then, but not in a race."""
    moment = _settings()["moments"].get(path)
    if moment not in moments or path in _announced:
        return
    _announced.add(path)
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(_settings()["socket"])
        other.sendall(os.fsencode(path) + b"\n")
        if moment != "race":
            other.recv(1)


class _Announced(SegmentFile):
    """A segment that announces what is done with it."""

    def __init__(self, path: str, *arguments: Any) -> None:
        _announce(path, "opening")
        super().__init__(path, *arguments)

    def window(self, position_bytes: int, count: int) -> memoryview | None:
        found = super().window(position_bytes, count)
        if found is not None:
            _announce(self.name, "looking", "race")
        return found

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        _announce(self.name, "looking", "race")
        return super().read_into(position_bytes, buffer)

    def check_unchanged(self) -> None:
        _announce(self.name, "ending")
        super().check_unchanged()

    def close(self) -> None:
        super().close()
        _announce(self.name, "after")


if __name__ == "__mp_main__":
    import snaprebuild.storage.local.store as local_store

    local_store.SegmentFile = _Announced  # type: ignore[misc, assignment]

if __name__ == "__main__":
    from snaprebuild.cli.main import main
    from snaprebuild.snapshots.engine import worker_pool

    if _settings()["limit"] is not None:
        worker_pool.MAPPED_DEATHS_MAX = _settings()["limit"]
    main()
