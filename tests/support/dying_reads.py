"""Ways to read a segment by which a worker process ends. They import no test tools: each new worker imports them, and is ready soon."""

import os
import signal
import time
from pathlib import Path

from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_segment


def die() -> None:
    """Ends this process as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def dies_where_marked(task: ReadTask) -> tuple[SegmentSummary, ...]:
    """Ends the process at a segment with marks next to it (``mark``). Each death uses one up."""
    for each in Path(task.path).parent.glob(f"{task.base_offset}.dies.*"):
        each.unlink()
        die()
    return read_segment(task)


def mark(directory: Path, base_offset: int, times: int) -> None:
    """The reader of this segment dies this many times."""
    for number in range(times):
        (directory / f"{base_offset}.dies.{number}").write_bytes(b"")


def dies_whatever_it_reads(task: ReadTask) -> tuple[SegmentSummary, ...]:
    """Ends the process at every segment. Each try leaves a file."""
    (Path(task.path).parent / f"{time.monotonic_ns()}.tried").write_bytes(b"")
    die()
    return ()


def runs_out_of_memory(task: ReadTask) -> tuple[SegmentSummary, ...]:
    """A ``MemoryError`` of the segment at offset 3 of ``t-1``, whose worker stays alive."""
    if task.base_offset == 3 and Path(task.path).parent.name == "t-1":
        raise MemoryError
    return read_segment(task)


class _Unsendable:
    """There is no memory for its bytes."""

    def __reduce__(self) -> str:
        raise MemoryError


def cannot_be_sent(task: ReadTask) -> tuple[object, ...]:
    """The results of the segment at offset 4 of ``t-1``."""
    is_it = task.base_offset == 4 and Path(task.path).parent.name == "t-1"
    return (_Unsendable(),) if is_it else read_segment(task)
