"""Runs of the one file, with an environment that has nothing in it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from command import Run, run_process
from log_dirs import batch, snapshots_in, truth, write_partition
from manifests import FIXTURES

from snaprebuild.snapshots.engine.schedule import IN_PROCESS_BYTES_MAX

FIXTURE = "kafka27-mixed"
PARTITIONS = 4
BATCH_BYTES = 1 << 20
CHROOT = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def run(file: Path, cache: Path, *arguments: object, before: tuple[object, ...] = (), **environment: str) -> Run:
    """With an environment that has nothing in it, no PATH either, but where to unpack."""
    variables = {"SNAPREBUILD_CACHE_DIR": str(cache), "HOME": str(cache), "PATH": ""} | environment
    return run_process(*before, file, *arguments, env=variables, cwd=cache)


def unpacked(cache: Path) -> Path:
    (found,) = (path for path in cache.iterdir() if re.fullmatch("[0-9a-f]{32}", path.name))
    return found


def many_bytes(root: Path) -> Path:
    """Partitions that together are more than one process reads alone. Few large batches: only their bytes count."""
    count = IN_PROCESS_BYTES_MAX // PARTITIONS // BATCH_BYTES + 1
    batches = [batch(offset, producer_id=1, sequence=offset, payload_bytes=BATCH_BYTES) for offset in range(count)]
    rolled = count // 2
    segments = {0: b"".join(batches[:rolled]), rolled: b"".join(batches[rolled:])}
    for number in range(PARTITIONS):
        write_partition(root / f"large-{number}", segments)
    return root


def assert_as_kafka_says(out: Path) -> None:
    partitions = sorted(each.name for each in (FIXTURES / FIXTURE / "logs").iterdir() if each.is_dir())
    assert {each: snapshots_in(out / each) for each in partitions} == {each: truth(FIXTURE, each) for each in partitions}
