"""Twelve partitions with one fault are one finding and one line of each command, with a count and three names."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from stopped_broker import made
from test_states import RELEASE, STATES

OF_THE_LOG_DIR = ("empty meta.properties", "no node id", "foreign directory")
"""States of the whole log directory, which are one by themselves."""

QUICK = ("empty topic id", "no segment", "lost end")
"""Each other state runs in the full tier."""

ALL = [state if state in QUICK else pytest.param(state, marks=pytest.mark.full) for state in STATES if state not in OF_THE_LOG_DIR]


def twelve(tmp_path: Path, state: str) -> Path:
    """The log directory of twelve partitions in one state."""
    directory = made(tmp_path)
    STATES[state][0](directory)
    root = directory.parent
    for number in range(1, 12):
        shutil.copytree(directory, root / f"orders-{number}")
    for name in ("recovery-point-offset", "replication-offset", "log-start-offset"):
        path = root / f"{name}-checkpoint"
        if path.exists():
            version, _, *lines = path.read_text().splitlines()
            value = lines[0].split()[2]
            path.write_text("\n".join([version, "12", *(f"orders {number} {value}" for number in range(12))]) + "\n")
    return root


def lines_by_code(stderr: str) -> Counter[str]:
    """How many lines above a note each code has; what is at another offset of the log is another finding."""
    lines = [line for line in stderr.splitlines() if line.startswith(("finding: ", "damaged: ", "refused: "))]
    return Counter(f"{line.partition(' [offset ')[2].partition(']')[0]} {line.rpartition('(')[2]}" for line in lines)


@pytest.mark.parametrize("state", ALL)
def test_each_state_is_one_line(state: str, tmp_path: Path) -> None:
    root = twelve(tmp_path, state)
    for verb in ("scan", "verify", "plan", "before-start --dry-run"):
        run = snaprebuild(verb, root, *RELEASE)
        repeated = {code: count for code, count in lines_by_code(run.stderr).items() if count > 1}
        assert not repeated, f"{verb}: {run.stderr[:2000]}"
    documents = in_json("scan", root, *RELEASE).document["findings"]
    fates = {each["code"] for each in documents if "Kafka's log:" in each["message"]}
    for code in fates:
        (finding,) = [each for each in documents if each["code"] == code and each["severity"] != "note"]
        assert "of 12 partitions: orders-0, orders-1, orders-2 and 9 more" in finding["message"]
