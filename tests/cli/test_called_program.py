"""A command that is printed can be pasted: it calls the program as it was called, and stands on a line of its own."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command import SECONDS_MAX, run_process
from manifests import FIXTURES, REPOSITORY

from snaprebuild.cli import printing
from snaprebuild.cli.view import Advice

LOGS = shlex.quote(str(FIXTURES / "kafka27-mixed"))
"""A word of a command line, wherever this checkout is."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with `scripts/snaprebuild` as in a checkout that is set up."""
    root = tmp_path / "checkout"
    for name in ("scripts", ".venv/bin"):
        (root / name).mkdir(parents=True)
    (root / "pyproject.toml").touch()
    os.utime(root / "pyproject.toml", (1, 1))
    (root / ".venv/.snaprebuild").touch()
    interpreter = root / ".venv/bin/python"
    interpreter.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    interpreter.chmod(0o755)
    script = root / "scripts/snaprebuild"
    script.write_bytes((REPOSITORY / "scripts/snaprebuild").read_bytes())
    script.chmod(0o755)
    return root


def shell(line: str, cwd: Path, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)}
    command = ["/bin/bash", "-c", line]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)


def next_line(text: str) -> str:
    return next(line.removeprefix("Next: ") for line in text.splitlines() if line.startswith("Next: "))


def test_the_next_command_of_a_checkout_can_be_pasted(checkout: Path) -> None:
    scanned = shell(f"scripts/snaprebuild scan {LOGS}", checkout)
    assert scanned.returncode == 1, scanned
    command = next_line(scanned.stdout)
    assert command == f"scripts/snaprebuild plan {LOGS}"
    assert shell(command, checkout).stdout.startswith("14 snapshots to write in 2 of ")
    program = shlex.quote(f"{checkout}/scripts/snaprebuild")
    absolute = shell(f"{program} scan {LOGS}", checkout.parent)
    assert next_line(absolute.stdout) == f"{program} plan {LOGS}"


def test_a_program_of_the_path_is_called_by_its_name(checkout: Path) -> None:
    scripts = checkout / "scripts"
    run = shell(f"snaprebuild scan {LOGS}", checkout, f"{scripts}:/usr/bin:/bin")
    assert next_line(run.stdout) == f"snaprebuild plan {LOGS}"


@pytest.mark.parametrize("options", [(), ("-X", "utf8"), ("-B",)])
def test_the_next_command_of_a_module_can_be_pasted(checkout: Path, options: tuple[str, ...]) -> None:
    """The interpreter was named from the working directory, and no program of the PATH is called snaprebuild."""
    program = " ".join([".venv/bin/python", *options, "-m", "snaprebuild"])
    interpreter = checkout / ".venv/bin/python"
    interpreter.unlink()
    interpreter.symlink_to(sys.executable)  # what a script calls is not what was typed
    (interpreter.parent.parent / "pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text())
    (interpreter.parent.parent / "lib").symlink_to(Path(sys.prefix) / "lib")
    scanned = shell(f"{program} scan {LOGS}", checkout)
    assert next_line(scanned.stdout) == f"{program} plan {LOGS}"
    planned = shell(next_line(scanned.stdout), checkout)
    assert planned.stdout.startswith("14 snapshots to write in 2 of ")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("/opt/venv/bin/snaprebuild", "/opt/venv/bin/snaprebuild"),
        ("./snaprebuild", "./snaprebuild"),
        ("snaprebuild", "snaprebuild"),
        ("/usr/lib/python3/site-packages/ipykernel_launcher.py", "snaprebuild"),
        ("-c", "snaprebuild"),
    ],
)
def test_how_a_program_was_called(argument: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [argument])
    monkeypatch.setenv("PATH", "/nonexistent")
    assert printing.called_program() == [expected]


@pytest.mark.parametrize("name", ["./snaprebuild-1.0-x86_64", "snaprebuild-1.0-x86_64", "../scripts/snaprebuild"])
def test_a_starter_hands_its_own_name_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", f"snaprebuild_program={name}", "-m", "snaprebuild", "scan", "logs"])
    monkeypatch.setattr(sys, "argv", ["/lib/snaprebuild/__main__.py", "scan", "logs"])
    monkeypatch.setenv("PATH", "/nonexistent")
    assert printing.called_program() == [name]


def test_documents_call_the_program_by_its_name() -> None:
    program = (sys.executable, "-X", "snaprebuild_program=scripts/snaprebuild", "-m", "snaprebuild")
    logs = FIXTURES / "kafka27-mixed"
    assert f"Next: scripts/snaprebuild plan {LOGS}\n" in run_process(*program, "scan", logs).stdout
    assert run_process(*program, "scan", logs, "--output", "json").document["next_command"] == f"snaprebuild plan {LOGS}"


def test_an_argument_of_the_program_is_no_option_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "snaprebuild", "scan", "snaprebuild_program=other/snaprebuild"])
    monkeypatch.setattr(sys, "argv", ["/lib/snaprebuild/__main__.py", "scan", "snaprebuild_program=other/snaprebuild"])
    assert printing.called_program() == ["snaprebuild"]


def test_a_command_after_an_advice_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_answer("16 snapshots staged.", Advice("stop the broker", ("install", "--plan", "a b/plan.jsonl")), 0)
    assert capsys.readouterr().out == (
        "16 snapshots staged.\nNext: stop the broker.\nThen: snaprebuild install --plan 'a b/plan.jsonl'\n\n"
    )
