"""Tasks, executors and drivers that are killed after they wrote: ``undo`` takes everything back by the parts, and another run is whole.

Where executors are killed, or outlive a driver: on ``local-cluster``, whose executors are processes of their own.
"""

import os
import subprocess
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from driver_process import LOCAL, LOCAL_CLUSTER, reported, started_driver, workers_of
from log_dirs import all_bytes, files_below, make_log_dir
from make_partition import Shape, make_partition
from receipts import steps
from waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.full]

PARTITIONS = 4
SNAPSHOTS = 4 * PARTITIONS


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_log_dir(tmp_path_factory.mktemp("made") / "logs")
    for number in range(PARTITIONS):
        make_partition(root / f"t-{number}", Shape(2048, 1 << 20, segment_bytes=256 << 10, producers=20), seed=number)
        (root / f"t-{number}" / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")  # of the batches that are made
    return root


def started(
    happens: str, logs: Path, place: Path, kind: str = "rows", master: str = LOCAL_CLUSTER, **conf: str
) -> subprocess.Popen[str]:
    """A driver. ``whole``: one task does each partition; ``rows``: several do."""
    signs = place / "signs"
    signs.mkdir(parents=True, exist_ok=True)
    words = (happens, logs, place / "out", place / "receipt", signs)
    return started_driver("killed_driver.py", words, place, master=master, environment={"TEST_KIND": kind}, conf=conf)


def written_in(receipt: Path) -> list[str]:
    return [each["name"] for each in steps(receipt) if each.get("step") == "write"]


def parts_in(directory: Path) -> list[Path]:
    return sorted(directory.glob("snaprebuild-part-*"))


@pytest.fixture(scope="module")
def expected(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that one process writes."""
    out = tmp_path_factory.mktemp("own") / "out"
    options = ("--boundaries", "all", "--replay-from", "log-start", "--as-of", "1795270000000", "--receipt", out.parent / "receipt")
    assert in_json("rebuild", logs, "--out", out, *options).exit_code == 0
    found = all_bytes(out)
    assert len(found) == SNAPSHOTS
    return found


@pytest.mark.parametrize(
    ("happens", "kind"),
    [
        *(("fails", "whole"), ("dies", "rows"), ("executor", "whole")),
        *(pytest.param(*each, marks=pytest.mark.night) for each in (("fails", "rows"), ("dies", "whole"), ("executor", "rows"))),
    ],
)
def test_a_task_that_is_repeated_after_it_wrote(
    happens: str, logs: Path, expected: dict[str, bytes], tmp_path: Path, kind: str
) -> None:
    """The next attempt reports the files of the first one as written; the receipt has them, and no part is left."""
    document = reported(started(happens, logs, tmp_path, kind, LOCAL_CLUSTER if happens == "executor" else LOCAL))
    assert (tmp_path / "signs" / happens).exists(), "it happened"
    assert (document["exit_code"], document["findings"]) == (0, [])
    assert document["actions"] == {"written": SNAPSHOTS}
    assert all_bytes(tmp_path / "out") == expected
    written = written_in(tmp_path / "receipt")
    assert len(written) > SNAPSHOTS, "some were announced twice"
    assert steps(tmp_path / "receipt")[-1]["written"] == SNAPSHOTS
    undone = in_json("undo", tmp_path / "receipt")
    assert (undone.exit_code, undone.totals) == (0, {"removed": SNAPSHOTS})
    assert files_below(tmp_path / "out") == set()


@pytest.mark.parametrize(
    ("is_lost", "kind"),
    [
        *((False, "rows"), (True, "whole")),
        *(pytest.param(*each, marks=pytest.mark.night) for each in ((False, "whole"), (True, "rows"))),
    ],
    ids=lambda each: {False: "by the receipt", True: "by the directory of the parts"}.get(each, each),
)
def test_a_driver_that_is_killed_while_tasks_have_written(
    logs: Path, expected: dict[str, bytes], tmp_path: Path, is_lost: bool, kind: str
) -> None:
    process = started("waits", logs, tmp_path, kind, LOCAL if is_lost else LOCAL_CLUSTER)
    out, receipt = tmp_path / "out", tmp_path / "receipt"
    wait_until(lambda: process.poll() is not None or any((tmp_path / "signs").glob("waits-*")), "no task has written")
    assert process.poll() is None, process.communicate()[1][-3000:]
    process.kill()
    process.communicate()
    wait_until(lambda: not workers_of(process.pid), "the tasks go on")
    there = all_bytes(out)
    there = {name: data for name, data in there.items() if name.endswith(".snapshot")}
    assert 0 < len(there) <= SNAPSHOTS
    assert {name: expected[name] for name in there} == there
    assert [each.get("step") for each in steps(receipt)] == [None, "parts"]
    named = receipt
    if is_lost:
        receipt.unlink()
        named = out
    listed = snaprebuild("verify", "--written-by", named, "--output", "json").document
    assert (listed["totals"]["kept"], listed["ended"]) == (len(there), False)
    undone = in_json("undo", named)
    assert (undone.exit_code, undone.totals["removed"]) == (0, len(there))
    # A task that was killed as it wrote leaves its temporary file, which the next run removes.
    assert [name for name in files_below(out) if not name.endswith((".jsonl", ".snapshot.tmp"))] == []
    assert len(parts_in(out)) == int(is_lost)
    receipt.unlink(missing_ok=True)
    document = reported(started("nothing", logs, tmp_path, kind, master=LOCAL))
    assert (document["exit_code"], document["actions"]) == (0, {"written": SNAPSHOTS})
    assert {name: data for name, data in all_bytes(out).items() if name.endswith((".snapshot", ".tmp"))} == expected


def test_a_rate_holds_while_executors_come(logs: Path, tmp_path: Path) -> None:
    """With dynamic allocation the run begins without any, and all come while it reads."""
    rate = 512 << 10
    dynamic = {
        "spark_dynamicAllocation_enabled": "true",
        "spark_dynamicAllocation_minExecutors": "0",
        "spark_dynamicAllocation_initialExecutors": "0",
        "spark_dynamicAllocation_shuffleTracking_enabled": "true",
    }
    os.environ["TEST_RATE"] = str(rate)
    try:
        document = reported(started("nothing", logs, tmp_path, master="local-cluster[2,2,1024]", **dynamic))
    finally:
        del os.environ["TEST_RATE"]
    assert document["actions"] == {"written": SNAPSHOTS}
    times = [tuple(map(float, path.read_text().split())) for path in (tmp_path / "signs").glob("read-*")]
    assert len(times) > 1
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    size_bytes = sum(path.stat().st_size for path in logs.rglob("*.log"))
    # Each task may make up for a tenth of a second at its beginning.
    assert size_bytes <= rate * (seconds + 0.2), f"{size_bytes / seconds / 2**20:.2f} MiB/s"
    assert seconds <= 8 * size_bytes / rate, "and it is not slower than one eighth of the rate"
