"""``rebuild`` and ``undo``, killed before each of their calls that changes something: what was written is taken back all the same."""

import itertools
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from dying import ALIVE, DyingRuns, dying_runs
from log_dirs import changes, tree
from receipts import one_partition, steps, what_appeared

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def dying() -> Iterator[DyingRuns]:
    with dying_runs() as runs:
        yield runs


def test_a_run_that_is_killed_anywhere_is_taken_back(dying: DyingRuns, tmp_path: Path) -> None:
    """Before each call that changes something: whatever has a name by then is in the receipt."""
    stages = set()
    for number in itertools.count():
        place = tmp_path / str(number)
        place.mkdir()
        logs, receipt = one_partition(place), place / "receipt.jsonl"
        before = tree(logs)
        code = dying.run(number, "rebuild", logs, "--receipt", receipt, "--set-aside")
        written = new_snapshots(before, logs)
        stages.add((receipt.exists(), len(written)))
        if receipt.exists() and receipt.read_bytes().endswith(b"\n"):
            steps(receipt)
            assert dying.run(ALIVE, "undo", receipt) == 0
        else:
            assert not written, "nothing has its name before the receipt is on the device"
        # A temporary file that was not whole yet is in no receipt; brokers ignore it and the next run removes it.
        assert {name for name in what_appeared(before, logs) if not name.endswith(".tmp")} <= {".lock"}
        shutil.rmtree(place)
        if code != -signal.SIGKILL:
            assert code == 0
            break
    assert number > 40
    assert {(False, 0), (True, 0), (True, 1), (True, 4)} <= stages


def new_snapshots(before: dict[str, tuple[object, ...]], logs: Path) -> set[str]:
    """Snapshots that appeared or are other ones."""
    appeared, _, changed = changes(before, tree(logs))
    return {name for name in appeared | changed if name.endswith(".snapshot")}


def test_an_undo_that_is_killed_anywhere_is_run_again(dying: DyingRuns, tmp_path: Path) -> None:
    for number in itertools.count():
        place = tmp_path / str(number)
        place.mkdir()
        logs, receipt = one_partition(place), place / "receipt.jsonl"
        before = tree(logs)
        assert dying.run(ALIVE, "rebuild", logs, "--receipt", receipt, "--set-aside") == 0
        code = dying.run(number, "undo", receipt)
        assert dying.run(ALIVE, "undo", receipt) == 0
        assert what_appeared(before, logs) == {".lock"}
        shutil.rmtree(place)
        if code != -signal.SIGKILL:
            assert code == 0
            break
    assert number > 10
