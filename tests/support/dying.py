"""Runs of the command that are killed before a call that changes something, at any such call."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator

from command import COMMAND
from manifests import REPOSITORY

SCRIPT = REPOSITORY / "tests" / "cli" / "dying_runs.py"
ALIVE = 1 << 30
"""No run makes this many calls: it is not killed."""


class DyingRuns:
    """Runs of the command that are killed before their n-th call that changes something (``dying_runs.py``)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, number: int, *arguments: object) -> int:
        """Exit code; that of a signal where the run was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([number, *map(str, arguments)]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextlib.contextmanager
def dying_runs() -> Iterator[DyingRuns]:
    """One process that forks all runs."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [COMMAND[0], SCRIPT], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield DyingRuns(process)
