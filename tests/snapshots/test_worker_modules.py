"""Workers are forked with everything that they need: whatever is missing then, each of them loads for itself, and again after a death."""

import subprocess
import sys
from pathlib import Path

from log_dirs import batch, write_partition

LARGE = b"".join(batch(at, producer_id=7, sequence=at, payload_bytes=20_000) for at in range(40))
SMALL = b"".join(batch(at, producer_id=7, sequence=at) for at in range(40, 44))

PROGRAM = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from formats.partition.file_names import PartitionDirectoryName
from snaprebuild.snapshots.engine.segment_reader import read_group
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.worker_start import start_server
from snaprebuild.storage.partition_dir import list_partition_dir

listing = list_partition_dir(sys.argv[1], PartitionDirectoryName("t", 0))
tasks = read_tasks(listing, range(len(listing.segments)), check_crc=True)
start_server()
with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
    loaded = [pool.submit(eval, "set(__import__('sys').modules)").result()]
    outcomes = pool.submit(read_group, tasks).result()
    assert [type(each) for each in outcomes] == [tuple] * 4, outcomes
    loaded.append(pool.submit(eval, "set(__import__('sys').modules)").result())
print(*sorted(loaded[1] - loaded[0]))
"""


def test_a_worker_loads_nothing(tmp_path: Path) -> None:
    """Neither for segments that are read together, nor for a large one."""
    directory = write_partition(tmp_path / "t-0", {0: LARGE, 40: SMALL, 44: SMALL, 48: b""})
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(directory)], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.split() == []
