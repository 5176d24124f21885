"""Scripts find the modules that they share with the tests: also in the quick tier, which starts few of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import REPOSITORY
from source_files import python_files

STARTED = re.compile(r'PYTHONPATH="?(?P<path>[^ $]*\$[^ ]*?)"? exec .*"?\$(?:root|here)/(?P<program>(?:scripts|tests)/[\w/]+\.py)"')
"""A shell script's line that starts Python with directories of ours: ``PYTHONPATH=$here:$here/tests exec "$python" "$here/x.py"``."""

PROGRAMS = [
    pytest.param(found["path"], found["program"], id=f"{script.name}-{found['program']}")
    for script in sorted((REPOSITORY / "scripts").iterdir())
    if script.is_file()
    for found in STARTED.finditer(script.read_text(errors="replace"))
]
SHARED = {module.stem for directory in ("scripts", "tests") for module in python_files(REPOSITORY / directory)}
WITH_A_PATH_OF_THEIR_OWN = [
    program
    for program in sorted((REPOSITORY / "scripts").glob("*.py"))
    if program.stem.isidentifier() and "\nsys.path" in program.read_text()
]


def test_the_lines_are_found() -> None:
    assert len(PROGRAMS) >= 8


@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_a_program_imports_with_the_path_that_its_script_gives(path: str, program: str) -> None:
    """Everything at the top of the modules: what a part of a program needs later it imports from there too."""
    directories = [each.split("${PYTHONPATH")[0] for each in re.sub(r"\$(root|here)", str(REPOSITORY), path).split(":")]
    imported(REPOSITORY / program, *filter(None, directories))


@pytest.mark.parametrize("program", WITH_A_PATH_OF_THEIR_OWN, ids=lambda program: program.name)
def test_a_program_imports_with_its_own_path(program: Path) -> None:
    imported(program)


def imported(program: Path, *directories: str) -> None:
    code = f"import sys; sys.path[:0] = {[str(program.parent), *directories]!r}; import {program.stem}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    lacks = re.search(r"\nModuleNotFoundError: No module named '([\w]+)", done.stderr)
    if lacks and lacks[1] not in SHARED:
        return  # a package that only the full tier installs, and checks the rest with
    assert done.returncode == 0, done.stderr
