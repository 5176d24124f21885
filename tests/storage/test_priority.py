"""The lowest priority, as the kernel reports it of another process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from snaprebuild.storage.io_limits.policy import SchedulingClass, scheduling_class

PRINTS = """
import json
from snaprebuild.storage.io_limits.policy import IoLimits, limited_io
from snaprebuild.storage.io_limits.policy import scheduling_class
open_ = IoLimits(adapts_to_broker=True, priority_is_automatic=True)
seen = [tuple(scheduling_class())]
with limited_io(open_) as limits:
    seen.append(tuple(scheduling_class()))
    limits.adapt_to_live_broker(1)
    seen.append(tuple(scheduling_class()))
with limited_io(IoLimits(at_idle_priority=True)):
    print(json.dumps([*seen, scheduling_class()]), flush=True)
    input()
"""


def test_standing_last() -> None:
    before = scheduling_class()
    with subprocess.Popen([sys.executable, "-c", PRINTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, opened, beside, last = (SchedulingClass(*each) for each in json.loads(process.stdout.readline()))
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        oom_score = int(Path(f"/proc/{process.pid}/oom_score_adj").read_text())
        process.communicate("\n")
    assert (first, opened) == (before, before)
    assert beside == last
    assert int(stat[16]) == 19 == last.nice  # field 19 of proc_pid_stat(5)
    assert int(stat[38]) == 5 == last.policy  # field 41: SCHED_IDLE
    assert oom_score == 1000 == last.oom_score
    if first.io is None:
        pytest.skip("the system has no I/O priorities")
    assert last.io == 3 << 13  # IOPRIO_CLASS_IDLE of linux/ioprio.h
