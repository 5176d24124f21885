"""What a run took of memory at its highest, above what the process held before.

The kernel says it (resident pages), so that buffers of numpy, codecs and threads count as all others. What the allocator keeps of earlier
runs is given back first: it would hide as much.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

RESET_PEAK = "5"
"""See proc(5), ``clear_refs``."""
_libc = ctypes.CDLL(None)


@dataclass
class Peak:
    """Bytes above what was held when it began; set when it ends."""

    bytes: int = 0


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


@contextlib.contextmanager
def measured() -> Iterator[Peak]:
    """Of what runs inside, in all threads of this process."""
    peak = Peak()
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write(RESET_PEAK)
    before = _status("VmRSS:")
    try:
        yield peak
    finally:
        peak.bytes = max(_status("VmHWM:") - before, 0)
