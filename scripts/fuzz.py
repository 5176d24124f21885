"""Fuzzes readers and verbs by coverage (atheris), each target in a process of its own, and prints what came out as a table.

What was found on the way is kept below --corpus, so that the next run goes on from there. An input that a target does not survive is
written below --findings and ends the run of this target; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
PATHS = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "fuzz")]
REGRESSION = ROOT / "tests" / "fuzz" / "corpus"
IN_MEMORY = Path("/dev/shm")
INPUT_BYTES_MAX = 16_384
HANG_SECONDS = 30
"""Of the clock, on a machine that others use, too; an input takes some ms."""
RSS_MIB_MAX = 2048
IN_PROCESS = "in-process"
"""The first argument of the process of a target."""
NOT_FUZZED = ("snaprebuild.spark", "snaprebuild.__main__")
KEPT_FILES_MAX = 16
KEPT_BYTES_MAX = 1024


@dataclass
class Figures:
    """What came out for a target."""

    inputs: int = 0
    features: int = 0
    corpus: int = 0
    rss_mib: int = 0
    seconds: float = 0.0
    findings: int = 0


def main() -> int:
    """Runs the targets one by one."""
    sys.path[:0] = PATHS
    if sys.argv[1:2] == [IN_PROCESS]:
        fuzz(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target; default: 60")
    parser.add_argument("--corpus", type=Path, default=ROOT / ".fuzz" / "corpus", help="default: .fuzz/corpus")
    parser.add_argument("--findings", type=Path, default=ROOT / ".fuzz" / "findings", help="default: .fuzz/findings")
    parser.add_argument(
        "--keep", action="store_true", help="put some small inputs that reached something new into tests/fuzz/corpus, too"
    )
    parser.add_argument("--list", action="store_true", help="print the targets")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    asked = parser.parse_args()
    from fuzz_targets import TARGETS

    if asked.list:
        print("\n".join(TARGETS))
        return 0
    wanted = asked.targets or list(TARGETS)
    if unknown := set(wanted) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    print(
        "| target | inputs | features | corpus | memory of the process, MiB | findings | seconds |\n|---|---|---|---|---|---|---|"
    )
    total = Figures()
    for name in wanted:
        figures = run(name, asked)
        show(name, figures)
        total.inputs, total.findings = total.inputs + figures.inputs, total.findings + figures.findings
        total.corpus, total.seconds = total.corpus + figures.corpus, total.seconds + figures.seconds
        total.features, total.rss_mib = total.features + figures.features, max(total.rss_mib, figures.rss_mib)
        if asked.keep:
            keep(name, asked.corpus / name)
    show("all", total)
    return 1 if total.findings else 0


def show(name: str, one: Figures) -> None:
    """A row of the table."""
    row = (name, one.inputs, one.features, one.corpus, one.rss_mib, one.findings, f"{one.seconds:.0f}")
    print(f"| {' | '.join(map(str, row))} |", flush=True)


def run(name: str, asked: argparse.Namespace) -> Figures:
    """A target, in a process of its own."""
    corpus, findings = asked.corpus / name, asked.findings / name
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    before, started = set(findings.iterdir()), time.monotonic()
    directories = [str(each) for each in (corpus, REGRESSION / name) if each.is_dir()]
    options = [f"-max_total_time={asked.seconds}", f"-timeout={HANG_SECONDS}", f"-rss_limit_mb={RSS_MIB_MAX}"]
    options += [f"-max_len={INPUT_BYTES_MAX}", f"-artifact_prefix={findings}/", "-print_final_stats=1", "-len_control=0"]
    command = [sys.executable, __file__, IN_PROCESS, name, *directories, *options]
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        # libFuzzer ends a process without a word, so whoever started it cleans up.
        environment = {**os.environ, "TMPDIR": place, "XDG_STATE_HOME": place}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        done = subprocess.run(command, env=environment, check=False, **streams)
    found = set(findings.iterdir()) - before
    (findings.parent / f"{name}.log").write_text(done.stdout[-200_000:])
    if done.returncode and not found:
        sys.exit(f"{name} did not run:\n{done.stdout[-3000:]}")
    for each in sorted(found):
        print(f"  {name}: {each}: {_reason(done.stdout)}", file=sys.stderr)
    stats = {match[1]: int(match[2]) for match in re.finditer(r"stat::(\w+): +(\d+)", done.stdout)}
    features = [int(match[1]) for match in re.finditer(r"\bft: (\d+)", done.stdout)]
    return Figures(
        stats.get("number_of_executed_units", 0),
        max(features, default=0),
        len(list(corpus.iterdir())),
        stats.get("peak_rss_mb", 0),
        time.monotonic() - started,
        len(found),
    )


def _reason(output: str) -> str:
    lines = [line for line in output.splitlines() if re.match(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b", line) or "ALARM" in line]
    return lines[-1][:300] if lines else "see the log beside it"


def fuzz(name: str, options: list[str]) -> NoReturn:
    """In the process of a target: never returns."""
    import atheris

    with atheris.instrument_imports(include=["formats", "snaprebuild"]):
        import fuzz_targets

        for package in ("formats", "snaprebuild"):  # verbs import what they need when they run, which would not be seen
            for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
                if not module.name.startswith(NOT_FUZZED):
                    importlib.import_module(module.name)
    target = fuzz_targets.TARGETS[name]
    corpus = Path(next(each for each in options if not each.startswith("-")))
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:03d}").write_bytes(seed[:INPUT_BYTES_MAX])
    atheris.Setup([sys.argv[0], *options], target.run)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


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
