"""Runs the command as a user does, in a process of its own."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from documents import check
from manifests import REPOSITORY

COMMAND = (sys.executable, "-m", "snaprebuild")
OTHER_FORMS = {"stage": ("rebuild",), "undo": ("undo", "tier-repair", "receipts")}
GROUPS = ("inspect", "tier", "follower", "cluster", "simulate")
SECONDS_MAX = 180
"""A run of a test takes half a second: one that hangs is a defect, however busy the machine is."""


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
        """What a rebuild did, by boundary."""
        return {each["offset"]: each["action"] for each in self.partition(topic_partition)["boundaries"]}

    def verdicts(self, topic_partition: str) -> dict[int, str]:
        """What a verification said, by offset."""
        return {each["offset"]: each["comparison"]["status"] for each in self.partition(topic_partition)["snapshots"]}

    @property
    def totals(self) -> dict[str, int]:
        """Counts by action or status, those that are not 0."""
        needs = ("missing", "not_needed", "made_by_broker")
        return {name: count for name, count in nonzero(self.document["totals"]).items() if name not in needs}


def nonzero(totals: dict[str, int]) -> dict[str, int]:
    """The counts by action or status that are not 0."""
    return {name: count for name, count in totals.items() if count}


def snaprebuild(*arguments: object, cwd: Path = REPOSITORY) -> Run:
    """Runs the command; the first argument may be a verb of two words. No traceback: an error is one line."""
    words = [*COMMAND, *(str(arguments[0]).split() if arguments else ()), *map(str, arguments[1:])]
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, timeout=SECONDS_MAX, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return Run(done.returncode, done.stdout, done.stderr)


def in_json(verb: str, *arguments: object) -> Run:
    """Runs a verb with ``--output json``: stdout is one document, follows the schema, and says the exit code of the process."""
    return checked_json(snaprebuild, verb, *arguments)


def checked_json(runs: Callable[..., Run], verb: str, *arguments: object) -> Run:
    """As `in_json`, by what runs the command."""
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


HOLDS = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def live_broker(log_dir: Path) -> Iterator[int]:
    """Holds the lock of a log directory as a broker does (``F_SETLK``, from another process). Yields its process id."""
    command = [sys.executable, "-c", HOLDS, str(log_dir / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.communicate("\n")
