"""A selection that matches nothing shows what there is, and a value that names something absent is a usage error."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import snaprebuild
from manifests import FIXTURES

MIXED = FIXTURES / "kafka27-mixed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topic", "mixed-0"), "no topic matches 'mixed-0' (4 partitions found); did you mean `--topic mixed --partition 0`?"),
        (("--topic", "mix"), "no topic matches 'mix' (4 partitions found); did you mean `--topic mixed`?"),
        (("--topic", "zzz"), "no topic matches 'zzz' (4 partitions found); topics: deleted, logappend, mixed, plain"),
        (("--partition", "7"), "no partition 7 of the selected topics (4 partitions found; partitions of these topics: 0)"),
    ],
)
def test_nothing_is_selected(options: tuple[str, ...], message: str) -> None:
    for verb in ("scan", "plan", "verify", "cluster source"):
        run = snaprebuild(*verb.split(), MIXED, *options)
        assert run.exit_code == 1
        assert f": {message} (nothing-found)\n" in run.stderr, verb


@pytest.mark.parametrize(
    "words",
    [
        ("verify", MIXED, "--offsets", "5"),
        ("plan", MIXED, "--offsets", "99999:"),
        ("rebuild", MIXED, "--out", "{}", "--offsets", "1:2"),
        ("cluster", "source", FIXTURES / "kafka4-mixed", "--topic", "mixed", "--peer", FIXTURES / "txn-state"),
        (
            *("tier", "audit", FIXTURES / "damaged/healthy/tier/remote", "--level", "reachable"),
            *("--local-log-start", "nosuch-0=4"),
        ),
        ("tier", "audit", FIXTURES / "damaged/healthy/tier/remote", "--set", "private_key=/nowhere/key.pem"),
    ],
    ids=lambda words: f"{words[0]} {words[-2]}",
)
def test_what_is_named_and_is_not_there(words: tuple[object, ...], tmp_path: Path) -> None:
    run = snaprebuild(*(tmp_path / "out" if each == "{}" else each for each in words))
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
