"""Verbs beside a broker that goes on working: each result is the truth of some moment, or says that it is not known."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from budgets import ROUNDS_MAX
from live_log import MOMENT, SEGMENTS
from log_dirs import entries_in
from simulated_broker import SimulatedBroker
from typer.testing import CliRunner

from snaprebuild.cli.main import app
from snaprebuild.errors import SnaprebuildError

PLAYER = Path(__file__).with_name("live_log.py")
IN_MEMORY = Path("/dev/shm")
CLOCK = ("--as-of", "0", "--expiration-ms", "9000000000000")
VERBS = ("scan", "plan", "verify", "rebuild")
NEVER = {
    "bad-checksum",
    "disordered-offsets",
    "impossible-state",
    "unforeseen-error",
    "out-of-memory",
    "suspect-snapshot",
    "misnamed-file",
}
"""What no moment's truth is."""
NEWEST_ONLY = {"wrong-snapshot", "corrupt-snapshot"}
"""True of the snapshot that the broker is writing, which it does in place."""


@dataclass(frozen=True)
class Moment:
    """How far the broker is: index of the first segment, log end at least and at most, index of the active segment."""

    first: int
    end_least: int
    end_most: int
    active: int


@dataclass
class Seen:
    """What runs came to.

    Attributes:
        exit_codes: by verb.
        snapshots: compared with the truth.
        codes: findings.
        wrong: what is no moment's truth.
    """

    exit_codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    snapshots: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    moved: int = 0
    wrong: list[str] = field(default_factory=list)


class Player:
    """The other process."""

    def __init__(self, directory: Path) -> None:
        """Starts it."""
        self.moment = directory / "moment"
        self.moment.write_bytes(bytes(MOMENT.size))
        command = [sys.executable, str(PLAYER), str(self.moment)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @contextlib.contextmanager
    def playing(self, seed: int, root: Path) -> Iterator[None]:
        """While a log is played."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(seed, root, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "plays\n"
        try:
            yield
        finally:
            print(file=self.process.stdin, flush=True)
            assert self.process.stdout.readline() == "ended\n"

    def now(self) -> Moment:
        """How far it is."""
        return Moment(*MOMENT.unpack(self.moment.read_bytes()))

    def end(self) -> None:
        """Ends it."""
        self.process.communicate()


def run(runs: int, seed: int = 0, met: Callable[[Seen], bool] = lambda _: True) -> Seen:
    """So many runs of the verbs in turn, each beside a log of its own, and up to `ROUNDS_MAX` times as many until ``met``.

    They keep their priority: on a busy machine a process of the idle class may not run for minutes.
    """
    seen = Seen()
    base = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with (
        mock.patch("snaprebuild.storage.io_limits.policy.set_priority"),
        tempfile.TemporaryDirectory(prefix="live-", dir=base) as directory,
    ):
        player = Player(Path(directory))
        try:
            for number in range(seed, seed + runs * ROUNDS_MAX):
                if number - seed >= runs and met(seen):
                    break
                _one(player, Path(directory), number, seen)
        finally:
            player.end()
    return seen


def _one(player: Player, directory: Path, number: int, seen: Seen) -> None:
    root, out, verb = directory / f"logs-{number}", directory / "out", VERBS[number % len(VERBS)]
    arguments = [verb, str(root), "--output", "json", *(() if verb == "scan" else CLOCK)]
    if verb in ("plan", "rebuild"):
        arguments += ["--out", str(out), "--boundaries", "all"]
    if verb in ("verify", "rebuild"):
        arguments += ["--jobs", "1"]
    with player.playing(number, root):
        before = player.now()
        try:
            done = CliRunner().invoke(app, arguments, catch_exceptions=False)
            code, text = done.exit_code, done.stdout
        except SnaprebuildError as error:
            code, text = error.exit_code, ""
        after = player.now()
    seen.exit_codes[verb, code] += 1
    seen.moved += before != after
    truth = SimulatedBroker(number, SEGMENTS)
    try:
        seen.wrong += [f"run {number}, {verb}: {each}" for each in _faults(truth, before, after, code, text, out, seen)]
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _faults(truth: SimulatedBroker, before: Moment, after: Moment, code: int, text: str, out: Path, seen: Seen) -> Iterator[str]:
    if code not in (0, 1, 3, 4, 5):
        yield f"exit code {code}"
        return
    document: dict[str, Any] = json.loads(text) if text else {"findings": []}
    newest = truth.segments[before.active].base_offset
    for finding in document["findings"]:
        if finding["path"].rstrip("/").split("/t-0")[0] == finding["path"].rstrip("/"):
            continue  # of the compacted partition, or of the directory
        seen.codes[finding["code"]] += 1
        if finding["code"] in ("storage-failed", "refused"):
            seen.codes[finding["message"][:60]] += 1
        offset = finding.get("offset")
        if finding["code"] in NEVER or (finding["code"] in NEWEST_ONLY and (offset is None or offset < newest)):
            yield f"{finding}"
    for path in sorted(out.glob("**/t-0/*.snapshot")):
        offset = int(path.stem)
        found = entries_in(path.read_bytes())
        seen.snapshots += 1
        possible = [truth.folded(offset, deleted) for deleted in range(before.first, after.first + 1)]
        possible.append(truth.folded(offset))
        if not any(found == frozenset(each.values()) for each in possible):
            yield f"the snapshot at {offset} is of no moment: {len(found)} entries, first segments {before.first} to {after.first}"
        if offset > after.end_most:
            yield f"a snapshot at {offset}, above the log end {after.end_most}"
