"""Peak memory of a piece of code, above what was in use before it.

``measured`` counts the allocations that Python makes (tracemalloc; numpy reports its buffers there too). The same code gives the same
figure on any machine, whatever the allocator of the C library does with pages. ``resident`` reads the kernel's figure instead. It also
counts native buffers, but it depends on the allocator: use it only where a run may be repeated.
"""

import contextlib
import ctypes
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

RESET_PEAK = "5"
"""The value that resets the peak: see proc(5), ``clear_refs``."""
_libc = ctypes.CDLL(None)


@dataclass
class Peak:
    """Bytes above what was in use at the start; set at the end."""

    bytes: int = 0


@contextlib.contextmanager
def measured() -> Iterator[Peak]:
    """Bytes that Python allocated, in all threads of this process."""
    peak = Peak()
    assert not tracemalloc.is_tracing(), "a measurement inside another one would end it"
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield peak
    finally:
        peak.bytes = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


@contextlib.contextmanager
def resident() -> Iterator[Peak]:
    """Bytes of resident pages, in all threads of this process. Pages that the allocator keeps from earlier runs are given back first."""
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
