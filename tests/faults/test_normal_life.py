"""Daily events of every broker are no findings of any command: deleted topics, a move, a cleaner at work, caches, a log that grows.

Each command runs over a tree without these forms, then with all of them: the exit code is the same, and no sentence alarms.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import Run, snaprebuild
from every_verb import VERBS, filled, written
from log_dirs import batch
from other_process import live_broker

ALARMS = ("INCOMPLETE", "interrupted", "start and stop a broker first", "stop it first", "failed: ", "UNREAD")

QUICK = ("scan", "plan", "rebuild", "before-start", "cluster source")
"""Each other command runs in the full tier."""

LIVE = ("scan", "plan", "rebuild", "verify", "stage", "inspect stats", "inspect transactions", "inspect explain", "cluster source")
"""Commands that run next to a live broker."""


def log_dirs(root: Path) -> list[Path]:
    """The log directories of the tree with a partition of an ordinary topic."""
    return sorted({path.parent for path in root.glob("*/payments-0") if any(path.glob("*.log"))})


def ordinary_day(log_dir: Path) -> None:
    """A deleted topic, a move to another disk, and a cache of remote indexes."""
    payments = log_dir / "payments-0"
    shutil.copytree(payments, log_dir / f"gone-0.{'a' * 32}-delete")
    shutil.copytree(payments, log_dir / f"payments-7.{'b' * 32}-future")
    (log_dir / "remote-log-index-cache").mkdir()


def busy_day(log_dir: Path) -> None:
    """Adds the files that are there only while a broker runs."""
    ordinary_day(log_dir)
    compacted = log_dir / ("payments-0" if log_dir.name == "node" else "compacted-0")  # which the metadata log knows
    if not compacted.exists():
        shutil.copytree(log_dir / "payments-0", compacted)
    (compacted / f"{0:020d}.log.cleaned").write_bytes(b"")
    last = max((log_dir / "payments-0").glob("*.log"))
    with last.open("ab") as file:  # a batch that is being written
        file.write(batch(10**6)[:40])


@contextlib.contextmanager
def running(directories: list[Path]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for each in directories:
            (each / ".lock").touch()
            stack.enter_context(live_broker(each))
        yield


def ran(verb: str, root: Path) -> Run:
    for out in root.glob("out*"):
        shutil.rmtree(out) if out.is_dir() else out.unlink()
    return snaprebuild(*filled(VERBS[verb].arguments, root))


def check(verb: str, before: Run, after: Run) -> None:
    assert after.exit_code == before.exit_code, f"{verb}: {after.stdout[:500]} {after.stderr[:1500]}"
    for alarm in ALARMS:
        assert alarm not in after.stdout + after.stderr or alarm in before.stdout + before.stderr, f"{verb}: {alarm}: {after}"


def marked(verbs: list[str]) -> list[object]:
    return [verb if verb in QUICK else pytest.param(verb, marks=pytest.mark.full) for verb in verbs]


WITH_LOGS = [verb for verb, each in VERBS.items() if {"log", "bare", "node", "other", "zookeeper", "lost"} & {*each.reads}]


def compare_with_a_day(
    verb: str, place: Path, day: Callable[[Path], None], held: Callable[[list[Path]], contextlib.AbstractContextManager[None]]
) -> None:
    """Runs a command on a tree and on the same tree after a day, both with their log directories held."""
    runs = []
    for name in ("before", "after"):
        root = place / name
        written(VERBS[verb], root)
        with held(log_dirs(root)):
            for log_dir in log_dirs(root) if name == "after" else ():
                day(log_dir)
            runs.append(ran(verb, root))
    check(verb, *runs)


@pytest.mark.parametrize("verb", marked(WITH_LOGS))
def test_after_a_stop(verb: str, tmp_path: Path) -> None:
    compare_with_a_day(verb, tmp_path, ordinary_day, lambda _: contextlib.nullcontext())


@pytest.mark.parametrize("verb", marked(list(LIVE)))
def test_next_to_a_live_broker(verb: str, tmp_path: Path) -> None:
    compare_with_a_day(verb, tmp_path, busy_day, running)
