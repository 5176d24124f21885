"""``rebuild`` and ``undo``, killed before each of their calls that changes something: what was written is taken back all the same."""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from dying import ALIVE, DyingRuns, dying_runs
from log_dirs import tree
from receipts import one_partition, what_appeared

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def dying() -> Iterator[DyingRuns]:
    with dying_runs() as runs:
        yield runs


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
