"""The notebook over records: its cells run, in their order, and print what it shows."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from log_dirs import make_log_dir, write_partition
from manifests import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "docs" / "examples").glob("*.ipynb"))


def shown(cell: dict[str, Any]) -> str:
    return "".join(line for output in cell["outputs"] for line in output["text"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_cells_print_what_the_notebook_shows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    names: dict[str, Any] = {}
    printed = []
    cells = [each for each in notebook["cells"] if each["cell_type"] == "code"]
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile("".join(cell["source"]), str(path), "exec"), names)
        printed.append(output.getvalue())
    assert printed == [shown(cell) for cell in cells]
    assert sum(map(bool, printed)) >= 4


def test_a_partition_that_was_emptied_has_no_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "mixed-0", {99: b""})
    first, *_ = [each for each in json.loads(NOTEBOOKS[0].read_text())["cells"] if each["cell_type"] == "code"]
    names: dict[str, Any] = {}
    exec(compile("".join(first["source"]), "first cell", "exec"), names)
    assert names["read"](logs).num_rows == 0
    assert capsys.readouterr().out.startswith("mixed-0: 0 records, no offsets\n")


def test_there_is_a_notebook() -> None:
    assert [each.name for each in NOTEBOOKS] == ["records.ipynb"]
