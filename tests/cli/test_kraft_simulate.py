"""``simulate metadata-log`` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import in_json, snaprebuild
from manifests import REPOSITORY

EXAMPLE = REPOSITORY / "docs" / "examples" / "metadata-log.toml"
POLICIES = ["immediate", "retention", "kafka-14932"]


def test_the_example() -> None:
    """Two no-op records a second for ten days, and 50 a minute for one. The policies: tests/simulations/test_log_start_simulation.py."""
    run = in_json("simulate metadata-log", EXAMPLE)
    assert run.exit_code == 0
    assert [each["policy"] for each in run.document["policies"]] == POLICIES
    assert {each["end_offset"] for each in run.document["policies"]} == {10 * 86_400 * 2 + 1440 * 50}


def test_one_policy() -> None:
    run = in_json("simulate metadata-log", EXAMPLE, "--policy", "retention", "--followers", "literal")
    assert [each["policy"] for each in run.document["policies"]] == ["retention"]
    assert run.document["followers"] == "literal"


def test_the_table_has_a_chart() -> None:
    run = snaprebuild("simulate", "metadata-log", EXAMPLE)
    assert (run.exit_code, run.stderr) == (0, "")
    lines = [line.split(maxsplit=1) for line in run.stdout.splitlines() if set("▁▂▃▄▅▆▇█") & set(line)]
    assert [line[0] for line in lines] == ["log", *POLICIES, *POLICIES]
    assert all(len(line[1].removeprefix("end").strip()) == 60 for line in lines)


def test_a_scenario_in_which_nothing_happens(tmp_path: Path) -> None:
    path = tmp_path / "idle.toml"
    path.write_text('duration = "1h"\n')
    run = in_json("simulate metadata-log", path)
    assert [(each["end_offset"], each["moves"]) for each in run.document["policies"]] == [(0, 0)] * 3
    assert snaprebuild("simulate", "metadata-log", path).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('duration = "1h"\n[[append]]\nevery = "x"\n', "append[0].every: expected a time"),
        ("\x00", "is not TOML"),
        ("x" * (1 << 20) + "y", "has 1048577 bytes, more than the limit"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    run = snaprebuild("simulate", "metadata-log", path)
    assert run.exit_code in (2, 5)
    assert said in run.stderr
    assert run.stderr.count("\n") == 1
