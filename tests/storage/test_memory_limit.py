"""A process that may hold only so much: asked of the kernel, in a process of its own."""

import subprocess
import sys

import pytest
from budgets import first_of

from snaprebuild.storage.io_limits.policy import ROOM_BYTES_MIN, WORKER_BYTES, IoLimits

MIB = 1 << 20

GROWS = """
import resource, sys
import numpy as np
from snaprebuild.storage.io_limits.policy import IoLimits, limited_io
from snaprebuild.storage.io_limits.policy import held_bytes
before = resource.getrlimit(resource.RLIMIT_DATA)
held, first = [], held_bytes()
most = first
with limited_io(IoLimits(max_memory_bytes=int(sys.argv[1]))):
    try:
        while len(held) < 4096:
            held.append(np.ones(1 << 20, dtype=np.uint8))
            most = max(most, held_bytes())
    except MemoryError:
        pass
assert resource.getrlimit(resource.RLIMIT_DATA) == before
print(first, most, len(held))
"""


@pytest.mark.parametrize("most_mib", first_of([100, 300]))
def test_no_more_is_held(most_mib: int) -> None:
    command = [sys.executable, "-c", GROWS, str(most_mib * MIB)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, held, pieces = map(int, done.stdout.split())
    limit = max(most_mib * MIB, first + ROOM_BYTES_MIN)
    assert held <= limit
    # And not much less. What the interpreter and numpy need differs from machine to machine.
    assert pieces * MIB >= (limit - first) / 2


def test_workers_have_a_half() -> None:
    asked = IoLimits(max_memory_bytes=8 * WORKER_BYTES)
    assert [asked.workers_at_most(wanted) for wanted in (1, 4, 8, 100)] == [1, 4, 4, 4]
    assert asked.of_worker(4).max_memory_bytes == WORKER_BYTES
    assert IoLimits().workers_at_most(9) == 9
    assert IoLimits().of_worker(9) == IoLimits()
    assert IoLimits(max_memory_bytes=WORKER_BYTES).workers_at_most(9) == 0  # then the run reads by itself
