"""Reading several disks at once, none of which is in the page cache: what the verbs get of each, next to a loop that does nothing else."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from make_partition import Shape, make_partition
from msgspec.structs import replace
from throttled_disk import ThrottledDisk

from formats.errors import FormatError
from formats.partition.file_names import PartitionDirectoryName
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.partition_task import PartitionTask
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.partition_dir import PartitionDir, list_partition_dir

DISK_BYTES_PER_SECOND = 150_000_000
"""Rate of a spinning disk at its middle."""

DISKS = (1, 2, 4)
SHARE_MIN = 0.85
BLOCK_BYTES = 4 << 20


class DiskWork(PartitionTask):
    """All segments of a partition, read from one disk."""

    def __init__(self, listing: PartitionDir, disk: ThrottledDisk, number: int, *, check_crc: bool) -> None:
        """Takes what is read."""
        self.device = number
        self._left = [replace(task, store=disk) for task in read_tasks(listing, range(len(listing.segments)), check_crc=check_crc)]
        self.segments = 0

    def tasks(self) -> list[ReadTask]:
        """All, once."""
        left = self._left
        self._left = []
        return left

    def take(self, summary: SegmentSummary) -> bool:
        """Counts."""
        self.segments += 1
        return True

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """Nothing may fail here."""
        raise error

    def finish(self) -> None:
        """Nothing is left to do."""


def sequential(listing: PartitionDir, disks: list[ThrottledDisk]) -> float:
    """Seconds of one loop for each disk, which reads all of it in blocks."""

    def loop(disk: ThrottledDisk) -> None:
        buffer = memoryview(bytearray(BLOCK_BYTES))
        for segment in listing.segments:
            with disk.open_bytes(listing.file_path(segment.log.name)) as source:
                for position in range(0, source.size_bytes, BLOCK_BYTES):
                    source.read_into(position, buffer[: min(BLOCK_BYTES, source.size_bytes - position)])

    def loops() -> None:
        threads = [threading.Thread(target=loop, args=(disk,)) for disk in disks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return _timed(loops)


def rebuilding(listing: PartitionDir, disks: list[ThrottledDisk], *, check_crc: bool) -> float:
    """Seconds of the scheduler with as many workers as it takes by itself."""
    works = [DiskWork(listing, disk, number, check_crc=check_crc) for number, disk in enumerate(disks)]
    seconds = _timed(lambda: run_tasks(works, Run()))
    assert all(work.segments == len(listing.segments) for work in works)
    return seconds


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def disk_rows(scratch: Path, disk_bytes: int, repeat: int) -> bool:
    """Prints what throttled disks give; whether each gives its share."""
    directory = scratch / "disk-0"
    make_partition(directory, Shape(1000, disk_bytes, max(disk_bytes // 4, 1 << 20)))
    listing = list_partition_dir(str(directory), PartitionDirectoryName(topic="disk", partition=0))
    print(
        f"\ndisks of {DISK_BYTES_PER_SECOND / 1e6:.0f} MB/s (stand-ins), {disk_bytes / 2**20:.0f} MiB on each, batches of 1,000 B"
    )
    ok = True
    for count in DISKS:
        disks = [ThrottledDisk(DISK_BYTES_PER_SECOND, str(scratch / f"arm-{number}")) for number in range(count)]
        loops = min(sequential(listing, disks) for _ in range(repeat))
        for name, check_crc in (("headers", False), ("CRC checked", True)):
            seconds = min(rebuilding(listing, disks, check_crc=check_crc) for _ in range(repeat))
            share = loops / seconds
            rate = listing.size_bytes / seconds / 1e6
            ok &= share >= SHARE_MIN
            verdict = "ok" if share >= SHARE_MIN else "MISSED"
            what = f"{count} {'disk' if count == 1 else 'disks at once'}, {name}"
            print(f"  {what:32} {seconds:6.2f} s {rate:6.0f} MB/s of each  {share:5.2f} of its loop  (>= {SHARE_MIN})  {verdict}")
    sys.stdout.flush()
    return ok
