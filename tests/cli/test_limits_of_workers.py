"""Workers next to a live broker, which a run finds while it plans: the server of the workers runs by then. Seen by the kernel's calls.

Another process holds the lock of the log directory as Kafka does. ``strace`` shows that a worker has the limits of such a run before it
opens a segment, and that the broker was found before that.
"""

import contextlib
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from command import COMMAND, SECONDS_MAX, run_process
from log_dirs import batch, make_log_dir
from other_process import live_broker

from snaprebuild.snapshots.engine.worker_start import IN_PROCESS_BYTES_MAX
from snaprebuild.storage.io_limits.policy import RATE_WITH_BROKER_BYTES

STRACE = shutil.which("strace")
pytestmark = [pytest.mark.strace, pytest.mark.skipif(STRACE is None, reason="strace is not installed")]

CALLS = "execve,openat,fcntl,mmap,read,readv,pread64,preadv,preadv2,prctl,sched_setscheduler,setpriority,ioprio_set"
SEGMENT = re.compile(r'\.log(?:>|",)')
LOCK_IS_HELD = re.compile(r"l_type=F_WRLCK.*l_pid=[1-9]")
READ_AT_ONCE = re.compile(r"iov_len=(\d+)")
IDLE = ("SCHED_IDLE", "PRIO_PROCESS, 0, 19", "IOPRIO_CLASS_IDLE")
"""Arguments of the calls that give a process the lowest priority for processor and disk."""

SEGMENTS, BATCH_BYTES = 8, 16 << 10


@dataclass(frozen=True)
class Call:
    """A system call: its thread, when it began, and itself with arguments and result."""

    thread: str
    seconds: float
    text: str


def calls(output: Path) -> list[Call]:
    """By their begin."""
    found: list[Call] = []
    begun: dict[str, int] = {}
    for line in output.read_text("latin-1").splitlines():
        thread, seconds, text = line.split(None, 2)
        if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", text):
            at = begun.pop(thread)
            found[at] = replace(found[at], text=found[at].text + resumed[1])
            continue
        if text.endswith(" <unfinished ...>"):
            begun[thread] = len(found)
        found.append(Call(thread, float(seconds), text.removesuffix(" <unfinished ...>")))
    return found


def workers(trace: list[Call]) -> list[list[Call]]:
    """The calls of each process that ends with its parent and looks at segments."""
    bound = {call.thread for call in trace if call.text.startswith("prctl(PR_SET_PDEATHSIG")}
    threads = [[call for call in trace if call.thread == thread] for thread in sorted(bound)]
    return [own for own in threads if any(SEGMENT.search(call.text) for call in own)]


def place(trace: list[Call], pattern: str | re.Pattern[str]) -> int:
    """Number of the first call whose text has a pattern."""
    return next(number for number, call in enumerate(trace) if re.search(pattern, call.text))


def traced_rebuild(root: Path, *, is_held: bool) -> list[Call]:
    """The calls of a command that names enough bytes for workers."""
    partition = root / "logs" / "t-0"
    partition.mkdir(parents=True)
    per_segment = IN_PROCESS_BYTES_MAX // BATCH_BYTES // SEGMENTS + 1
    for base in range(0, SEGMENTS * per_segment, per_segment):
        with (partition / f"{base:020d}.log").open("wb") as file:
            for offset in range(base, base + per_segment):
                file.write(batch(offset, producer_id=7, sequence=offset, payload_bytes=BATCH_BYTES))
    make_log_dir(root / "logs", clean=False, recovery_points={"t-0": SEGMENTS * per_segment})
    assert STRACE is not None
    strace = [STRACE, "-f", "--seccomp-bpf", "-qq", "-y", "-ttt", "-s", "80", "-e", f"trace={CALLS}", "-e", "signal=none"]
    words = ["rebuild", root / "logs", "--out", root / "out", "--receipt", root / "receipt.jsonl", "--crc", "skip", "--jobs", "2"]
    with live_broker(root / "logs") if is_held else contextlib.nullcontext():
        done = run_process(*strace, "-o", root / "trace", *COMMAND, *words, timeout=SECONDS_MAX)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert len(list((root / "out").rglob("*.snapshot"))) == SEGMENTS - 1
    return calls(root / "trace")


def test_a_worker_reads_nothing_before_it_has_the_limits_of_a_live_broker(tmp_path: Path) -> None:
    trace = traced_rebuild(tmp_path, is_held=True)
    broker_is_found = place(trace, LOCK_IS_HELD)
    assert place(trace, r"execve.*multiprocessing\.forkserver") < broker_is_found, "the server was started early"
    found = workers(trace)
    assert found
    reads = []
    for own in found:
        first = place(own, SEGMENT)
        assert trace.index(own[first]) > broker_is_found
        assert [each for each in IDLE if not any(each in call.text for call in own[:first])] == []
        assert not [call.text for call in own if call.text.startswith("mmap(") and SEGMENT.search(call.text)]
        sizes = [(call, READ_AT_ONCE.search(call.text)) for call in own if SEGMENT.search(call.text)]
        reads += [(call.seconds, int(size[1])) for call, size in sizes if size is not None]
    # The rate, by the clock: the first and the last reads are beyond what the time between them must bring.
    reads.sort()
    assert sum(size for _, size in reads) > IN_PROCESS_BYTES_MAX // 2
    between = sum(size for _, size in reads[4:-4])
    assert between / (reads[-1][0] - reads[0][0] + 0.2) < RATE_WITH_BROKER_BYTES


def test_without_a_broker_workers_read_as_any_program(tmp_path: Path) -> None:
    """Else the limits above would show nothing."""
    found = workers(traced_rebuild(tmp_path, is_held=False))
    assert found
    assert not [call.text for own in found for call in own if any(each in call.text for each in IDLE)]
