"""Arguments and environment that the one file hands on to the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from budgets import first_of
from command import COMMAND, SECONDS_MAX, run_process
from sentences import CANNOT_BE_LOADED, STARTED_ALL_THE_SAME
from wrapper_command_lines import CMD, STARTS, STARTS_NOT

from snaprebuild.__main__ import _start_wrapped_command
from snaprebuild.cli import loading


@pytest.fixture(autouse=True)
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_launch", loading._Launch())


@pytest.fixture
def lock() -> Generator[int, None, None]:
    descriptor = os.open("/", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    yield descriptor
    os.close(descriptor)


def test_the_deadline_counts_from_the_beginning_of_the_process(lock: int, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic_ns() - 100 * 10**9
    monkeypatch.setenv("SNAPREBUILD_LAUNCHED", f"{os.getpid()} {began} {lock}")
    loading.read_launch()
    assert loading.deadline_after(300) == pytest.approx(began / 1e9 + 300)
    assert not os.get_inheritable(lock), "CMD does not get it"
    assert "SNAPREBUILD_LAUNCHED" not in os.environ


OTHERS = {
    "absent": None,
    "empty": "",
    "words": "a b c",
    "two": "{pid} {began}",
    "four": "{pid} {began} {lock} 1",
    "negative": "{pid} -1 {lock}",
    "other-process": "1 {began} {lock}",
    "later": "{pid} {later} {lock}",
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_variable_changes_nothing(case: str, lock: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.monotonic()
    text = OTHERS[case]
    if text is None:
        monkeypatch.delenv("SNAPREBUILD_LAUNCHED", raising=False)
    else:
        numbers = {"pid": os.getpid(), "began": 1, "later": time.monotonic_ns() + 10**12, "lock": lock}
        monkeypatch.setenv("SNAPREBUILD_LAUNCHED", text.format(**numbers))
    loading.read_launch()
    assert loading.deadline_after(300) >= before + 300
    assert os.get_inheritable(lock)
    assert "SNAPREBUILD_LAUNCHED" not in os.environ


def test_a_descriptor_that_is_closed_is_no_matter(lock: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPREBUILD_LAUNCHED", f"{os.getpid()} 1000000000 {10**30}")
    loading.read_launch()
    assert loading.deadline_after(300) == 301


DAMAGED = {
    ("before-start", "LOGS", "--", "env"): 0,
    ("-v", "before-start", "LOGS", "--deadline", "5", "--", "env"): 0,
    ("install", "--plan", "PLAN", "--", "env"): 0,
    ("before-start", "LOGS", "--", "not-a-program"): 5,
    ("before-start", "LOGS", "--fail-closed", "--", "env"): 5,
    ("before-start", "--help", "--", "env"): 5,
    ("before-start", "LOGS"): 5,
    ("before-start", "LOGS", "--"): 5,
    ("scan", "LOGS", "--", "env"): 5,
}
"""Command lines, and the exit code where a module of the program is damaged: 0 is that of CMD."""


ERRORS = ["ValueError('bad marshal data')", "SyntaxError('damaged')", "EOFError()", "MemoryError()"]


def _damaged() -> Iterator[object]:
    """Each command line with each error; in the quick tier each line with one error, and each error with two lines or three."""
    for place, words in enumerate(DAMAGED):
        for number, error in enumerate(ERRORS):
            marks = [] if (place + number) % 4 == 0 else [pytest.mark.full]
            yield pytest.param(error, words, id=f"{error}-{' '.join(words)}", marks=marks)


@pytest.mark.parametrize(("error", "words"), list(_damaged()))
def test_a_damaged_module_keeps_no_broker_from_starting(error: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(f"raise {error}\n")  # found first, as it is in the current directory
    environment = os.environ | {"KEPT": "yes"}
    done = run_process(*COMMAND, *words, cwd=tmp_path, env=environment)
    assert done.exit_code == DAMAGED[words], done
    assert CANNOT_BE_LOADED in done.stderr
    if done.exit_code == 0:
        assert "KEPT=yes" in done.stdout.splitlines()
    assert "OPENBLAS_NUM_THREADS" not in done.stdout


@pytest.mark.parametrize("words", [*STARTS, *STARTS_NOT], ids=" ".join)
def test_it_reads_the_command_line_as_the_one_file_does(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with global options before the verb."""
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execvpe", lambda _program, command, _environment: started.append(command))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    _start_wrapped_command(words, {})
    expected = words[words.index(CMD[0], 1) + 1 :] if words in STARTS else None
    assert started == ([] if expected is None else [expected])


FINDER = """import sys
damaged = sys.argv.pop(1)
class Finder:
    def find_spec(self, name, *rest):
        if name == damaged:
            raise ValueError("bad marshal data")
sys.meta_path.insert(0, Finder())
from snaprebuild.__main__ import main
main()
"""


MODULES = ("snapshots.before_start", "snapshots.source.broker_properties", "storage.local.regular_file")


@pytest.mark.parametrize("module", first_of(MODULES))
def test_what_a_verb_imports_later_keeps_no_broker_from_starting(module: str, tmp_path: Path) -> None:
    """Such a module, a file that cannot be read and a lack of memory end the work, which has a process of its own."""
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={tmp_path}\n")
    words = [f"snaprebuild.{module}", "before-start", "--server-properties", properties, "--", "echo", "CMD"]
    done = subprocess.run([sys.executable, "-c", FINDER, *words], capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert (done.returncode, done.stdout) == (0, "CMD\n"), done
    assert "unforeseen ValueError: bad marshal data" in done.stderr
    assert f"echo {STARTED_ALL_THE_SAME}" in done.stderr
