"""Scripts find the modules that they share with the tests. The quick tier reads the imports; the full tier runs them, too."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import REPOSITORY
from source_files import python_files

STARTED = re.compile(r'PYTHONPATH="?(?P<path>[^ $]*\$[^ ]*?)"? exec .*"?\$(?:root|here)/(?P<program>(?:scripts|tests)/[\w/]+\.py)"')
"""A shell script's line that starts Python with directories of ours: ``PYTHONPATH=$here:$here/tests/fuzz exec "$python" "$here/x.py"``."""

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


def directories_of(path: str) -> list[str]:
    """Those that a script's line names."""
    found = [each.split("${PYTHONPATH")[0] for each in re.sub(r"\$(root|here)", str(REPOSITORY), path).split(":")]
    return [each for each in found if each]


@functools.cache
def nodes_of(module: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(module.read_text())))


@functools.cache
def names_in(module: Path) -> set[str]:
    """Names that a module gives a meaning to, wherever it does."""
    names = set()
    for node in nodes_of(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return names


def not_found(program: Path, directories: list[str]) -> list[str]:
    """Shared modules, and names in them, that the imports of a program and of its modules ask for and that are not there."""
    places = [program.parent, *map(Path, directories)]
    missing = []
    read: set[Path] = set()
    unread = [program]
    while unread:
        module = unread.pop()
        read.add(module)
        for node in nodes_of(module):
            is_import = isinstance(node, ast.Import)
            if not is_import and not isinstance(node, ast.ImportFrom):
                continue
            for name in [each.name for each in node.names] if is_import else [node.module or ""]:
                if name not in SHARED:
                    continue
                found = [place / f"{name}.py" for place in places if (place / f"{name}.py").is_file()]
                if not found:
                    missing.append(f"{module.name}: {name}")
                    continue
                if not is_import:
                    missing += [f"{name}.{each.name}" for each in node.names if each.name not in names_in(found[0])]
                if found[0] not in read:
                    unread.append(found[0])
    return missing


@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_every_module_is_in_the_path_that_its_script_gives(path: str, program: str) -> None:
    assert not_found(REPOSITORY / program, directories_of(path)) == []


def test_a_module_that_is_not_in_the_path_is_noticed() -> None:
    (program,) = {each.values[1] for each in PROGRAMS if str(each.values[1]).endswith("/compare_with_kafka.py")}
    assert not_found(REPOSITORY / str(program), [])


@pytest.mark.full
@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_a_program_imports_with_the_path_that_its_script_gives(path: str, program: str) -> None:
    """Everything at the top of the modules: what a part of a program needs later it imports from there too."""
    imported(REPOSITORY / program, *directories_of(path))


@pytest.mark.full
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
