"""The examples of README.md and of all pages of docs, with the real output of the commands they show.

A block begins with `$ scripts/snaprebuild ...` or `>>> ...` and ends at the next one or at the fence. One interpreter runs all statements
that follow a `>>> `, in order. Each page has directories of its own, so that none sees what another one's commands wrote. Times, rates
and names of receipts are left out of the comparison.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("SNAPREBUILD_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
"""One that has the package."""

COMMAND = re.compile(r"^\$ (scripts/snaprebuild .*)$")
EXAMPLE = re.compile(r"^(\$ scripts/snaprebuild|>>>) ", re.MULTILINE)
VARIES = re.compile(
    r"about [\d.]+ s at the measured .*|\d+\.\d+ s\b|snaprebuild-receipt-\S+|staged at \S+ \S+|at least \d+ MiB are free"
)


def output_of(command: str, place: Path) -> str:
    """Runs a command in a directory that looks like the checkout, so that nothing is written into it, and returns its output."""
    program = [PYTHON, "-X", "snaprebuild_program=scripts/snaprebuild", "-m", "snaprebuild"]
    home = place.parent / "home"
    environment = {**os.environ, "XDG_STATE_HOME": str(home / ".local" / "state")}
    done = subprocess.run([*program, *command.split()[1:]], cwd=place, capture_output=True, text=True, check=False, env=environment)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{command} ended with {done.returncode}: {done.stderr}")
    if "Traceback" in done.stderr or not done.stdout:
        sys.exit(f"{command} ended with {done.returncode}, and shows nothing: {done.stderr}")
    text = done.stdout.replace(str(home), "~").replace(str(place), "/home/me/snaprebuild")
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


CONSOLE = """
import code, sys, traceback
class Console(code.InteractiveConsole):
    def showtraceback(self):
        print(*traceback.format_exception_only(*sys.exc_info()[:2]), sep="", end="")
console = Console()
for line in sys.stdin:
    console.push(line.rstrip())
    print("\\0", end="")
"""


def answers_of(statements: list[str], place: Path) -> list[str]:
    """The answers of an interpreter to statements, one for each; the last line of an error."""
    program = [PYTHON, "-c", CONSOLE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        program, input="\n".join(statements), cwd=place, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode or done.stderr:
        sys.exit(done.stderr)
    return [answer.rstrip("\n").replace(f"{place}/", "") for answer in done.stdout.split("\0")[:-1]]


def filled(text: str, place: Path) -> str:
    """The text of a page with the output of each command and statement, run in a directory."""
    lines, result, skipping = text.splitlines(), [], False
    answers = iter(answers_of([line.removeprefix(">>> ") for line in lines if line.startswith(">>> ")], place))
    for line in lines:
        match = COMMAND.match(line)
        if match or line.startswith(("$ ", ">>> ", "```")):
            skipping = match is not None or line.startswith(">>> ")
            result.append(line)
            if match:
                result.extend(output_of(match[1], place).splitlines())
            elif skipping:
                result.extend(next(answers).splitlines())
        elif not skipping:
            result.append(line)
    return "\n".join(result) + "\n"


def prepare(place: Path, text: str) -> None:
    """Makes the directories that the examples of one page read."""
    logs = ROOT / "fixtures" / "kafka27-mixed" / "logs"
    for fixture in sorted(set(re.findall(r"fixtures/([\w-]+)/?", text))):
        if (ROOT / "fixtures" / fixture).is_dir():
            shutil.copytree(ROOT / "fixtures" / fixture, place / "fixtures" / fixture)
    for name in ("false-empty", "in-place", "before-start", "to-stage"):
        shutil.copytree(logs, place / name)
    empty = bytes.fromhex("000148674bc700000000")
    (place / "false-empty" / "mixed-0" / "00000000000000008231.snapshot").write_bytes(empty)
    shutil.copytree(ROOT / "fixtures" / "follower-lost-state" / "node2", place / "node2")

    shutil.copytree(ROOT / "docs" / "examples", place / "docs" / "examples")

    segment = logs / "mixed-0" / "00000000000000000000.log"
    (place / "wrong-index").mkdir()
    shutil.copy(segment, place / "wrong-index")
    index = bytearray(segment.with_suffix(".index").read_bytes())
    index[15] ^= 1  # the position of the second entry
    (place / "wrong-index" / "00000000000000000000.index").write_bytes(index)

    (place / "new-node").mkdir()
    properties = (ROOT / "fixtures" / "tiered-local" / "logs" / "meta.properties").read_text()
    (place / "new-node" / "meta.properties").write_text(properties.replace("broker.id=1", "broker.id=2"))
    if "broker-1.json" in text:
        prepare_fleet(place)


def prepare_fleet(place: Path) -> None:
    """Scans of a cluster that was upgraded from before 2.8: replicas whose old snapshots are not there."""
    for node, old in {1: ("orders-0", "orders-1", "reborn-0"), 2: ("orders-0", "reborn-0"), 3: ("orders-0", "shrink-0")}.items():
        log_dir = Path(shutil.copytree(ROOT / "fixtures" / "kraft-cluster3" / f"node{node}", place / f"broker-{node}"))
        for partition in old:
            for snapshot in sorted((log_dir / partition).glob("*.snapshot"))[:-1]:
                snapshot.unlink()
        (place / f"broker-{node}.json").write_text(output_of(f"scripts/snaprebuild scan broker-{node} --output json", place))


def current_text(page: Path, scratch: Path) -> str:
    """The text of the page with the output of now."""
    place = scratch / "-".join(page.relative_to(ROOT).parts) / "checkout"
    place.mkdir(parents=True)
    text = page.read_text()
    prepare(place, text)
    return filled(text, place)


def texts() -> dict[Path, str]:
    """The text of each page with examples, with the output of now."""
    pages = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if EXAMPLE.search(page.read_text())]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as threads:
        return dict(zip(pages, threads.map(partial(current_text, scratch=Path(scratch)), pages), strict=True))


def comparable(text: str) -> str:
    """A page without what differs from run to run: times, rates, names of receipts."""
    return VARIES.sub("", text)
