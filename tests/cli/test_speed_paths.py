"""Each fast path of ``docs/internals/speed.md`` is taken by the default command that its row names."""

import re
import shlex
import sys
from pathlib import Path
from types import CodeType, FrameType

import pytest
from command import snaprebuild
from make_partition import Shape, make_partition
from manifests import CLUSTER, REPOSITORY

PAGE = REPOSITORY / "docs" / "internals" / "speed.md"
ROW = re.compile(r"^\| [^|]+ \| `(?P<function>[\w/.]+)` \| `(?P<command>[^`]+)` \| [^|]+ \|$", re.MULTILINE)


def speed_paths() -> dict[str, str]:
    """The commands of the table, by the function that each must take."""
    section = PAGE.read_text().partition("## What makes it fast")[2].partition("\n## ")[0]
    rows = ROW.findall(section)
    assert len(rows) == section.count("\n| ") - 1, "a row without a function and a default command"
    return dict(rows)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Names in the commands: a log directory with a partition of small segments and one of large ones, the same without indexes."""
    root = tmp_path_factory.mktemp("speed-paths")
    for name in ("LOGS", "COPIES"):
        make_partition(root / name / "small-0", Shape(350, 128 << 10, 16 << 10, producers=50))
        make_partition(root / name / "large-0", Shape(350, 2 << 20, 1 << 20, producers=50))
    for index in (root / "COPIES").rglob("*.index"):
        index.unlink()
    return {"LOGS": root / "LOGS", "COPIES": root / "COPIES", "NODE": CLUSTER / "node1"}


@pytest.fixture(scope="module")
def taken(places: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The functions that returned a result, as ``module.name``, by the command that ran."""
    found: dict[str, set[str]] = {}
    for command in dict.fromkeys(speed_paths().values()):
        out = tmp_path_factory.mktemp("out")
        words = [str(places.get(word, out if word == "OUT" else word)) for word in shlex.split(command)]
        found[command] = functions_with_results(words)
    return found


def functions_with_results(words: list[str]) -> set[str]:
    """Names of the functions that returned something but None and False while a command ran: a fast path that gives up returns one
    of these."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, result: object) -> None:
        if event == "return" and result is not None and result is not False:
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        snaprebuild(*words)
    finally:
        sys.setprofile(None)
    inside = [code for code in codes if code.co_filename.startswith(str(REPOSITORY))]
    return {f"{Path(code.co_filename).relative_to(REPOSITORY).with_suffix('')}.{code.co_name}" for code in inside}


@pytest.mark.parametrize(("function", "command"), speed_paths().items(), ids=list(speed_paths()))
def test_the_default_command_takes_the_fast_path(function: str, command: str, taken: dict[str, set[str]]) -> None:
    assert function in taken[command]
