"""Ways to read a segment by which a worker process ends. They import no test tools: each new worker imports them, and is ready soon."""

import os
import signal
import time
from pathlib import Path
from unittest import mock

from snaprebuild.errors import StorageError
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_segment
from snaprebuild.storage.io_limits.page_cache import Residency
from snaprebuild.storage.io_limits.policy import current_io_limits
from snaprebuild.storage.local import mapped_windows
from snaprebuild.storage.local.mapped_windows import MappedWindows


def die() -> None:
    """What the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def dies_where_marked(task: ReadTask) -> tuple[SegmentSummary, ...]:
    """Of a segment with marks next to it (``mark``). Each death uses one up."""
    for each in Path(task.path).parent.glob(f"{task.base_offset}.dies.*"):
        each.unlink()
        die()
    return read_segment(task)


def mark(directory: Path, base_offset: int, times: int) -> None:
    """The reader of this segment dies this many times."""
    for number in range(times):
        (directory / f"{base_offset}.dies.{number}").write_bytes(b"")


def dies_whatever_it_reads(task: ReadTask) -> tuple[SegmentSummary, ...]:
    """Of every segment. Each try leaves a file."""
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


def says_its_limits(_task: ReadTask) -> tuple[SegmentSummary, ...]:
    """Fails with the limits of its process."""
    limits = current_io_limits()
    raise StorageError(f"{limits.bytes_per_second} at idle priority: {limits.at_idle_priority}")


EXT4 = 0xEF53


def read_mapped(task: ReadTask) -> tuple[SegmentSummary, ...]:
    """Reads a segment as on a disk of this machine, with all its pages in memory. A rolled one with batches must be mapped."""
    asked: list[int] = []
    window = MappedWindows.window

    def noting(windows: MappedWindows, position_bytes: int, count: int) -> memoryview | None:
        found = window(windows, position_bytes, count)
        asked.extend([] if found is None else [len(found)])
        if found is not None:
            shrink_if_marked(task)
        return found

    with (
        mock.patch.object(mapped_windows, "_file_system", return_value=EXT4),
        mock.patch.object(Residency, "absent", return_value=[]),
        mock.patch.object(MappedWindows, "window", noting),
    ):
        pieces = read_segment(task)
    assert asked or task.is_last, "nothing was mapped"
    return pieces


def shrinks_where_marked(task: ReadTask) -> tuple[SegmentSummary, ...]:
    """As ``read_mapped`` while this worker may map. A segment with a mark next to it (``mark_shrinking``) loses its bytes meanwhile."""
    if mapped_windows.may_map():
        return read_mapped(task)
    shrink_if_marked(task)
    return read_segment(task)


def shrink_if_marked(task: ReadTask) -> None:
    """A broker's log that is truncated while somebody reads it."""
    mark = Path(task.path).with_suffix(".shrinks")
    if mark.exists():
        mark.unlink()
        os.truncate(task.path, 100)


def mark_shrinking(directory: Path, base_offset: int) -> None:
    """This segment loses its bytes when it is read."""
    (directory / f"{base_offset:020d}.shrinks").write_bytes(b"")
