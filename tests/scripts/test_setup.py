"""``scripts/setup`` shows that it goes on: seconds on a terminal, two lines for each step elsewhere, pip's own words when pip fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from manifests import REPOSITORY
from terminal import in_terminal

START = ("-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])")
UNTIL_ENTER = "read -r line </dev/tty"
PIP = """#!/bin/sh
[ "$2" = pip ] || exit 0
echo 'Collecting numpy'
{work}
echo 'ERROR: No matching distribution found for numpy'
exit {status}
"""


def checkout(tmp_path: Path, *, work: str = ":", status: int = 0) -> Path:
    """A checkout whose ``.venv`` has a stand-in for pip, which does some work in sh and ends with an exit code."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(REPOSITORY / "scripts" / "setup", tmp_path / "scripts")
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP.format(work=work, status=status))
    python.chmod(0o755)
    return tmp_path / "scripts" / "setup"


def run(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script], capture_output=True, text=True, check=False, timeout=60)


def test_a_terminal_shows_the_seconds_and_what_pip_does(tmp_path: Path) -> None:
    screen = in_terminal(
        checkout(tmp_path, work=UNTIL_ENTER), stderr_too=True, interrupt_at=r"\.\.\. [2-9] s", typed=b"\n", python=START
    )
    assert screen.exit_code == 0
    shown = re.findall(r"installing snaprebuild \.\.\. (\d+) s  (.*?)(?=\r|$)", screen.text)
    seconds = [int(second) for second, _ in shown]
    # A loaded machine may skip a second: that they rise does not depend on it.
    assert seconds == sorted(set(seconds))
    assert len(seconds) >= 2
    assert "Collecting numpy" in [text for _, text in shown]
    done = re.search(r"installing snaprebuild: done after (\d+) s\n", screen.text)
    assert done is not None
    assert int(done[1]) >= seconds[-1]


def test_a_narrow_terminal_gets_no_second_line(tmp_path: Path) -> None:
    script = checkout(tmp_path, work=UNTIL_ENTER)
    screen = in_terminal(script, stderr_too=True, columns=40, interrupt_at=r"\r.*\r.*\r", typed=b"\n", python=START)
    lines = [line for line in re.split(r"[\r\n]+", screen.text.replace("\033[K", "")) if line and "done" not in line]
    assert len(lines) >= 2
    assert {len(line) for line in lines} == {39}


def test_without_a_terminal_each_step_has_two_lines(tmp_path: Path) -> None:
    done = run(checkout(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(
        r"scripts/setup: installing snaprebuild \.\.\.\nscripts/setup: installing snaprebuild: done after \d+ s\n", done.stderr
    )


def test_the_second_run_is_silent(tmp_path: Path) -> None:
    script = checkout(tmp_path)
    run(script)
    stamp = tmp_path / ".venv" / ".snaprebuild"
    newer = (tmp_path / "pyproject.toml").stat().st_mtime + 1
    os.utime(stamp, (newer, newer))
    done = run(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("status", [1, 2])
def test_a_failure_of_pip_is_shown_and_leaves_no_stamp(tmp_path: Path, status: int) -> None:
    done = run(checkout(tmp_path, status=status))
    assert done.returncode == status
    assert "ERROR: No matching distribution found for numpy\n" in done.stderr
    assert "scripts/setup: installing snaprebuild: failed after" in done.stderr
    assert not (tmp_path / ".venv" / ".snaprebuild").exists()


def test_ctrl_c_ends_pip_and_the_set_up(tmp_path: Path) -> None:
    screen = in_terminal(checkout(tmp_path, work=UNTIL_ENTER), stderr_too=True, interrupt_at=r"\.\.\. \d+ s", python=START)
    assert screen.exit_code in (130, -2)
    assert not (tmp_path / ".venv" / ".snaprebuild").exists()
