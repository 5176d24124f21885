"""Which files each command opens in a log directory of a stopped broker in health, by kind and how often."""

from __future__ import annotations

import builtins
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import snaprebuild
from start_states.building import log_dir

CHECKPOINTS = ("recovery-point", "replication", "log-start", "cleaner")
OF_BROKER = ("meta.properties", ".kafka_cleanshutdown", *(f"{name}-offset-checkpoint" for name in CHECKPOINTS))
FACTS = {"partition.metadata": 1, "leader-epoch-checkpoint": 1, ".index": 1}
"""Files that decide the start, besides the end of the last segment: each is read once."""

EXPECTED: dict[str, dict[str, int]] = {
    "scan": {**FACTS, ".snapshot": 3, ".log": 1},
    # The log end is read by the plan, too, which a running broker may move.
    **{verb: {**FACTS, ".snapshot": 3, ".log": 2} for verb in ("plan", "rebuild", "stage")},
    "before-start": {**FACTS, ".snapshot": 6, ".log": 2},
    "verify": {**FACTS, ".snapshot": 7, ".log": 5},
}
"""Opens in one partition with three segments and three snapshots."""


@contextlib.contextmanager
def opened(root: Path) -> Iterator[list[Path]]:
    """The files below a directory that are opened, in the order of the opens."""
    real = (os.open, builtins.open)
    found: list[Path] = []

    def noted(call: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(path: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(root) and not Path(path).is_dir():
                found.append(Path(path))
            return call(path, *arguments, **options)

        return replacement

    os.open, builtins.open = (noted(each) for each in real)  # type: ignore[assignment]
    try:
        yield found
    finally:
        os.open, builtins.open = real


def kind_of(path: Path) -> str:
    """The ending of a file of a segment; else its name."""
    return path.suffix if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot") else path.name


@pytest.mark.parametrize("verb", EXPECTED)
def test_each_command_opens_what_the_table_has(verb: str, tmp_path: Path) -> None:
    root = log_dir(tmp_path)
    (tmp_path / "staged").mkdir()
    options = {"rebuild": ["--dry-run"], "before-start": ["--dry-run"], "stage": ["--dry-run", "--to", tmp_path / "staged"]}
    with opened(root) as paths:
        run = snaprebuild(verb, root, "--kafka-release", "4.3.1", *options.get(verb, []))
    assert run.exit_code == 0, run
    counts = Counter(map(kind_of, paths))
    of_broker = {name: counts.pop(name, 0) for name in OF_BROKER}
    assert set(of_broker.values()) == {1}, of_broker
    assert counts == EXPECTED[verb]
    if verb != "verify":
        assert {path.name for path in paths if path.suffix == ".log"} == {f"{116:020d}.log"}, "the last segment alone"
