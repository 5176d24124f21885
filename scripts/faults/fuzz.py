#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: test
"""Fuzzes readers and verbs by coverage (atheris), each target in a process of its own, and prints what came out as a table.

What was found on the way is kept below --corpus, so that the next run continues from there. An input that a target does not survive is
written below --findings, printed in base64, and ends the turns of this target; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import importlib.util
import math
import os
import pkgutil
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from fuzz_readers import Target

ROOT = Path(__file__).resolve().parents[2]
REGRESSION = ROOT / "tests" / "fuzz" / "corpus"
IN_MEMORY = Path("/dev/shm")
INPUT_BYTES_MAX = 16_384
VERB_BYTES_MAX = 2048
"""Twelve edits fill some hundred bytes; the rest is for texts."""
HANG_SECONDS = 60
"""Seconds by the clock, on a machine that others use, too; an input takes some ms."""
RSS_MIB_MAX = 2048
SECONDS_LEAST = 2
DID_NOT_RUN = 99
NOT_FUZZED = ("snaprebuild.spark", "snaprebuild.__main__")
KEPT_FILES_MAX = 16
KEPT_BYTES_MAX = 1024


@dataclass
class Figures:
    """Results of the search for one target."""

    inputs: int = 0
    features: int = 0
    corpus: int = 0
    rss_mib: int = 0
    seconds: float = 0.0
    findings: int = 0

    def add(self, other: Figures) -> None:
        """Adds a later turn of the same target: its corpus continued, and so do its features."""
        self.inputs = self.inputs + other.inputs
        self.seconds = self.seconds + other.seconds
        self.findings = self.findings + other.findings
        self.features, self.rss_mib = max(self.features, other.features), max(self.rss_mib, other.rss_mib)
        self.corpus = other.corpus


@dataclass(frozen=True)
class Turn:
    """A target that runs in a process of its own, for some seconds."""

    name: str
    place: Path
    log: Path
    before: frozenset[Path]
    started: float


def main() -> int:
    """Runs the targets in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, help="for each turn of a target; default: 60, or what --total leaves for each")
    parser.add_argument(
        "--total",
        type=int,
        help="turn after turn, for this many seconds, and each target at least once; default: one turn for each",
    )
    parser.add_argument("--jobs", type=int, default=1, help="targets at once; default: 1")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the search; default: the time")
    parser.add_argument("--corpus", type=Path, default=ROOT / ".fuzz" / "corpus", help="default: .fuzz/corpus")
    parser.add_argument("--findings", type=Path, default=ROOT / ".fuzz" / "findings", help="default: .fuzz/findings")
    parser.add_argument(
        "--keep", action="store_true", help="put some small inputs that reached something new into tests/fuzz/corpus, too"
    )
    parser.add_argument("--list", action="store_true", help="print the targets")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all; readers, verbs: all of these")
    arguments = parser.parse_args()
    targets = loaded(is_instrumented=not arguments.list)
    if arguments.list:
        print("\n".join(targets.TARGETS))
        return 0
    groups = {"readers": targets.READERS, "verbs": targets.VERB_TARGETS}
    names = [name for each in arguments.targets for name in groups.get(each, (each,))] or list(targets.TARGETS)
    if unknown := set(names) - set(targets.TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    figures = fuzzed(names, targets, arguments)
    print(
        "| target | inputs | features | corpus | memory of the process, MiB | findings | seconds |\n|---|---|---|---|---|---|---|"
    )
    total = Figures()
    for name, one in figures.items():
        show(name, one)
        corpus = total.corpus + one.corpus
        features = total.features + one.features
        total.add(one)
        total.corpus = corpus
        total.features = features
        if arguments.keep:
            keep(name, arguments.corpus / name)
    show("all", total)
    return 1 if total.findings else 0


def show(name: str, one: Figures) -> None:
    """A row of the table."""
    row = (name, one.inputs, one.features, one.corpus, one.rss_mib, one.findings, f"{one.seconds:.0f}")
    print(f"| {' | '.join(map(str, row))} |", flush=True)


def loaded(*, is_instrumented: bool) -> ModuleType:
    """The targets, and all that they call: once, before each turn forks."""
    if not is_instrumented:
        return importlib.import_module("fuzz_targets")
    if importlib.util.find_spec("atheris") is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "atheris>=3"], check=True)
        importlib.invalidate_caches()
    import atheris

    with atheris.instrument_imports(include=["formats", "snaprebuild"]):
        targets = importlib.import_module("fuzz_targets")
        for package in ("formats", "snaprebuild"):  # verbs import what they need when they run, which would not be seen
            for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
                if not module.name.startswith(NOT_FUZZED):
                    importlib.import_module(module.name)
    return targets


def fuzzed(names: list[str], targets: ModuleType, arguments: argparse.Namespace) -> dict[str, Figures]:
    """Each target once, or all again and again until the time is over; one with a finding has no further turn."""
    figures = {name: Figures() for name in names}
    until = None if arguments.total is None else time.monotonic() + arguments.total
    seconds = arguments.seconds or (
        60 if arguments.total is None else max(arguments.total * arguments.jobs * 3 // (4 * len(names)), SECONDS_LEAST)
    )
    running: dict[int, Turn] = {}
    for number in (signal.SIGINT, signal.SIGTERM):  # a run that is stopped shows what it has, also in the background
        signal.signal(number, signal.default_int_handler)
    waiting = list(names)
    seed = arguments.seed
    if until is not None:
        random.Random(seed).shuffle(waiting)  # who has the last turns is another one each time
    print(f"seed {seed}", file=sys.stderr)
    try:
        while waiting or running:
            # On a busy machine the time is over before the last target; one that had no turn would count as searched.
            is_first = seed - arguments.seed < len(names)
            left = seconds if until is None or is_first else min(seconds, math.ceil(until - time.monotonic()))
            if waiting and len(running) < arguments.jobs and left > 0:
                seed += 1
                turn, pid = begun(waiting.pop(0), targets, arguments, left, seed)
                running[pid] = turn
                continue
            if not running:
                break
            pid, status = os.wait()
            turn = running.pop(pid)
            one = ended(turn, os.waitstatus_to_exitcode(status), arguments)
            figures[turn.name].add(one)
            if until is not None and not one.findings:
                waiting.append(turn.name)
    except KeyboardInterrupt:
        for pid, turn in running.items():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            shutil.rmtree(turn.place, ignore_errors=True)
    return figures


def begun(name: str, targets: ModuleType, arguments: argparse.Namespace, seconds: int, seed: int) -> tuple[Turn, int]:
    """A turn of a target, and the id of its process."""
    corpus = arguments.corpus / name
    findings = arguments.findings / name
    for each in (corpus, findings):
        each.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="fuzz-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    turn = Turn(name, place, findings.parent / f"{name}.log", frozenset(findings.iterdir()), time.monotonic())
    pid = os.fork()
    if pid:
        return turn, pid
    bytes_max = VERB_BYTES_MAX if name in targets.VERB_TARGETS else INPUT_BYTES_MAX
    directories = [str(each) for each in (corpus, REGRESSION / name) if each.is_dir()]
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={HANG_SECONDS}",
        f"-report_slow_units={HANG_SECONDS}",
        f"-rss_limit_mb={RSS_MIB_MAX}",
        f"-seed={seed % 2**32}",
    ]
    options += [f"-max_len={bytes_max}", f"-artifact_prefix={findings}/", "-print_final_stats=1", "-len_control=0"]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # libFuzzer ends a process without notice, so its caller cleans up.
    os.environ |= {"TMPDIR": str(place), "XDG_STATE_HOME": str(place)}
    tempfile.tempdir = None
    output = os.open(turn.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    try:
        fuzz(targets.TARGETS[name], corpus, [*directories, *options], bytes_max)
    except SystemExit:  # with a finding it ends so, and libFuzzer writes the input when the interpreter ends
        raise
    except BaseException:  # a fork must not go on as if it were the one that counts
        traceback.print_exc()
    os._exit(DID_NOT_RUN)


def fuzz(target: Target, corpus: Path, options: list[str], bytes_max: int) -> NoReturn:
    """In the process of a turn: never returns."""
    import atheris

    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:03d}").write_bytes(seed[:bytes_max])
    atheris.Setup([sys.argv[0], *options], target.run)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


def ended(turn: Turn, code: int, arguments: argparse.Namespace) -> Figures:
    """Reads the results of a turn. Each finding is reported with its bytes, which may be all that is left of a machine."""
    shutil.rmtree(turn.place, ignore_errors=True)
    output = turn.log.read_text(errors="replace")
    findings = arguments.findings / turn.name
    new_findings = sorted(set(findings.iterdir()) - turn.before)
    stats = {match[1]: int(match[2]) for match in re.finditer(r"stat::(\w+): +(\d+)", output)}
    inputs = stats.get("number_of_executed_units", 0)
    if not new_findings and (code or not inputs):
        sys.exit(f"{turn.name} did not run ({code}):\n{output[-3000:]}")
    for each in new_findings:
        print(f"  {turn.name}: {each}: {_reason(output)}", file=sys.stderr)
        print(f"    {base64.b64encode(each.read_bytes()).decode()}", file=sys.stderr, flush=True)
        shutil.copy(turn.log, each.with_name(f"{each.name}.txt"))
    features = [int(match[1]) for match in re.finditer(r"\bft: (\d+)", output)]
    return Figures(
        inputs,
        max(features, default=0),
        len(list((arguments.corpus / turn.name).iterdir())),
        stats.get("peak_rss_mb", 0),
        time.monotonic() - turn.started,
        len(new_findings),
    )


def _reason(output: str) -> str:
    lines = [line for line in output.splitlines() if re.match(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b", line) or "ALARM" in line]
    return lines[-1][:300] if lines else "see the log next to it"


def keep(name: str, corpus: Path) -> None:
    """Some of what reached something new, small ones only, from the smallest to the largest."""
    small = sorted(
        (path for path in corpus.iterdir() if path.stat().st_size <= KEPT_BYTES_MAX), key=lambda path: path.stat().st_size
    )
    stride = max(len(small) / KEPT_FILES_MAX, 1)
    (REGRESSION / name).mkdir(parents=True, exist_ok=True)
    for path in (small[int(index * stride)] for index in range(min(len(small), KEPT_FILES_MAX))):
        if not path.name.startswith("seed-"):
            shutil.copy(path, REGRESSION / name / path.name[:16])


if __name__ == "__main__":
    sys.exit(main())
