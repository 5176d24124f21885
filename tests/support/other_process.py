"""Another process that holds something while a test looks."""

import contextlib
import subprocess
from collections.abc import Iterator


@contextlib.contextmanager
def other_process(*command: object) -> Iterator[subprocess.Popen[str]]:
    """Runs a program while the block runs. It prints ``ready`` when it holds what it should, and ends when it gets a line."""
    with subprocess.Popen([str(each) for each in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.communicate("\n")
