"""Wrong arguments: one line says what was expected and found, nothing is printed or written, and no word of the program's language."""

import os
import re
import shlex
from pathlib import Path

import pytest
from command import snaprebuild
from every_verb import INTERNALS

TABLE = Path(__file__).with_name("usage_errors.txt")
"""A line with ``$``: the words after ``snaprebuild``, in which ``{tmp}`` is an empty directory. The next line: a part of the message."""
CASES = [
    *re.findall(r"^\$ (.*)\n(.*)$", TABLE.read_text(), re.MULTILINE),
    (
        f"tier upload {{tmp}}/store fixtures/kafka4-mixed/logs --uploader {'x' * 1001}",
        "--uploader: expected at most 1000 characters, found 1001",
    ),
]
assert len(CASES) == 1 + TABLE.read_text().count("\n$ ")


@pytest.mark.parametrize(("command", "said"), CASES, ids=[command[-60:] for command, _ in CASES])
def test_one_line_says_what_was_expected_and_found(command: str, said: str, tmp_path: Path) -> None:
    run = snaprebuild(*(word.replace("{tmp}", str(tmp_path)) for word in shlex.split(command)))
    assert (run.exit_code, run.stdout) == (2, "")
    assert said.replace("{tmp}", str(tmp_path)) in run.stderr
    assert run.stderr.startswith("snaprebuild: ")
    assert run.stderr.count("\n") == 1, run.stderr
    assert not INTERNALS.search(run.stderr.replace(str(tmp_path), ""))
    assert os.listdir(tmp_path) == []
