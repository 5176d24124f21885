"""Runs the command: in this process, or as a process of its own where the process is what a test looks at.

`snaprebuild` and `in_json` call the entry point, which takes a tenth of the time of a process. What a process is for itself stays as it
was: priority, umask, signals, logging. A test of one of these, of a program that `before-start` starts, or of a real broker, takes
`snaprebuild_process` or `in_json_process`. `run_process` runs any other program. All of them return a `Run`.
"""

import contextlib
import functools
import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import click
import typer
from documents import check
from manifests import REPOSITORY

from snaprebuild.cli.main import main
from snaprebuild.errors import SnaprebuildError
from snaprebuild.storage.io_limits import policy
from snaprebuild.storage.local import log_dir_guard, process_settings

COMMAND = (sys.executable, "-X", "snaprebuild_program=snaprebuild", "-m", "snaprebuild")
OTHER_FORMS = {
    "stage": ("rebuild",),
    "inspect explain": ("inspect-explain", "inspect-explain-snapshot"),
    "undo": ("undo", "tier-repair", "metadata-undone", "receipts"),
}
GROUPS = ("inspect", "tier", "follower", "cluster", "simulate")
SECONDS_MAX = 180
"""A run of a test takes half a second: one that hangs is a defect, however busy the machine is."""
FORESEEN = (SnaprebuildError, click.ClickException)
_build_command = typer.main.get_command


@dataclass(frozen=True)
class Run:
    """The result of a run."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """The words of stdout with one blank between them, wherever its lines are wrapped."""
        return " ".join(self.stdout.split())

    @property
    def error(self) -> str:
        """The one line of a run that ended without a result."""
        return self.stderr if self.stderr.startswith("snaprebuild: ") and not self.stdout else ""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The one JSON document that stdout is."""
        value = json.loads(self.stdout)
        assert isinstance(value, dict)
        return value

    @property
    def codes(self) -> dict[str, int]:
        """How many findings of each code, notes too."""
        codes: dict[str, int] = {}
        for finding in self.document["findings"]:
            codes[finding["code"]] = codes.get(finding["code"], 0) + 1
        return codes

    def messages(self, code: str) -> str:
        """Paths and messages of all findings of a code."""
        return "\n".join(f"{each['path']}: {each['message']}" for each in self.document["findings"] if each["code"] == code)

    def partition(self, topic_partition: str) -> dict[str, Any]:
        """The one partition of this name."""
        (found,) = [each for each in self.document["partitions"] if each["topic_partition"] == topic_partition]
        assert isinstance(found, dict)
        return found

    def actions(self, topic_partition: str) -> dict[int, str]:
        """Actions of a rebuild, by boundary."""
        return {each["offset"]: each["action"] for each in self.partition(topic_partition)["boundaries"]}

    def verdicts(self, topic_partition: str) -> dict[int, str]:
        """Verdicts of a verification, by offset."""
        return {each["offset"]: each["comparison"]["status"] for each in self.partition(topic_partition)["snapshots"]}

    @property
    def totals(self) -> dict[str, int]:
        """Counts by action or status, those that are not 0."""
        needs = ("missing", "not_needed", "made_by_broker")
        return {name: count for name, count in nonzero(self.document["totals"]).items() if name not in needs}


def nonzero(totals: dict[str, int]) -> dict[str, int]:
    """The counts by action or status that are not 0."""
    return {name: count for name, count in totals.items() if count}


@functools.cache
def _command_of(application: typer.Typer) -> click.Command:
    """Its verbs and options, which every run would build first."""
    return _build_command(application)


@contextlib.contextmanager
def _own_settings() -> Iterator[None]:
    """Takes back the settings that the entry point makes for its process."""
    umask = os.umask(0o022)
    os.umask(umask)
    document_umask, on_sigterm = process_settings._caller.umask, signal.getsignal(signal.SIGTERM)
    configured = set(log_dir_guard._configured)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        signal.signal(signal.SIGTERM, on_sigterm)
        process_settings.respect_umask(document_umask)
        log_dir_guard._configured.intersection_update(configured)
        os.umask(umask)


def _leave_priority(_: object) -> None:
    """In place of what sets the priority of the process: that of the tests stays."""


def _words(arguments: Sequence[object]) -> list[str]:
    """The arguments of a command line; the first one may be a verb of two words."""
    return [*(str(arguments[0]).split() if arguments else ()), *map(str, arguments[1:])]


def snaprebuild(*arguments: object, cwd: Path = REPOSITORY) -> Run:
    """Runs the command in this process. The first argument may be a verb of two words.

    An error that no layer of the program foresaw is raised, where the entry point makes an exit code of it.
    """
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors, newline="\n") for errors in ("strict", "backslashreplace"))
    with (
        _own_settings(),
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["snaprebuild", *_words(arguments)]),
        mock.patch.object(typer.main, "get_command", _command_of),
        mock.patch.object(policy, "set_priority", _leave_priority),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as end:
            if isinstance(end.__context__, Exception) and not isinstance(end.__context__, FORESEEN):
                raise end.__context__ from None
            exit_code = end.code or 0
    assert isinstance(exit_code, int)
    texts = []
    for stream in (stdout, stderr):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(errors="replace"))  # type: ignore[attr-defined]
    assert "Traceback" not in texts[1], texts[1]
    return Run(exit_code, *texts)


def snaprebuild_process(*arguments: object, **options: Any) -> Run:
    """Runs the command as a user does, in a process of its own. The first argument may be a verb of two words."""
    return run_process(*COMMAND, *_words(arguments), **options)


def run_process(*words: object, **options: Any) -> Run:
    """Runs a program. No traceback: an error of ours is one line.

    Args:
        words: the program and its arguments.
        options: of `subprocess.run`; the current directory is the repository and the time is limited unless they say otherwise.
    """
    options = {"cwd": REPOSITORY, "timeout": SECONDS_MAX, **options}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    assert "Traceback" not in done.stderr, done.stderr
    return Run(done.returncode, done.stdout, done.stderr)


def in_json(verb: str, *arguments: object) -> Run:
    """Runs a verb with ``--output json``: stdout is one document, follows the schema, and has the exit code of the run."""
    return _checked_json(snaprebuild, verb, *arguments)


def in_json_process(verb: str, *arguments: object) -> Run:
    """Runs a verb with ``--output json`` in a process of its own, and checks the document as `in_json` does."""
    return _checked_json(snaprebuild_process, verb, *arguments)


def _checked_json(runs: Callable[..., Run], verb: str, *arguments: object) -> Run:
    if verb in GROUPS:
        verb, arguments = f"{verb} {arguments[0]}", arguments[1:]
    run = runs(verb, *arguments, "--output", "json")
    if run.stdout:
        assert run.document["schema"].rsplit("/")[0] in {
            f"snaprebuild.{form}" for form in OTHER_FORMS.get(verb, (verb.replace(" ", "-"),))
        }
        check(run.document)
        assert run.document["exit_code"] == run.exit_code
    return run
