"""The programs of scripts start as their first lines say. The quick tier reads their imports; the full tier runs them, too."""

import ast
import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from manifests import REPOSITORY
from source_files import python_files

SCRIPTS = REPOSITORY / "scripts"
AT_THE_TOP = {"count_code.py", "dependency_groups.py", "index_page.py", "run", "setup", "snaprebuild", "test"}
"""Programs that a newcomer runs, and modules that pyproject.toml and scripts/setup name."""

STARTED_BY_RUN = """#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'\n"""
NEEDS = re.compile(r"\A#!.*\n# needs: (.+)\n\"\"\"")
PROGRAMS = [
    path
    for path in sorted(SCRIPTS.glob("*/*"))
    if path.is_file() and path.suffix in {"", ".py"} and path.read_text().startswith(STARTED_BY_RUN)
]
SHARED = {module.stem for directory in ("scripts", "tests") for module in python_files(REPOSITORY / directory)}

every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.relative_to(SCRIPTS).as_posix())


def needs_of(program: Path) -> list[str]:
    """The words of its second line."""
    (line,) = NEEDS.findall(program.read_text())
    return line.split()


@functools.cache
def folders() -> list[Path]:
    """Where modules are looked for, as ``scripts/run`` has it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["SNAPREBUILD_PYTHON"] = sys.executable
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write("#!\n# needs: package\nimport os\nprint(os.environ['PYTHONPATH'])\n")
        program.flush()
        done = subprocess.run([SCRIPTS / "run", program.name], env=environment, capture_output=True, text=True, check=True)
    return [Path(each) for each in done.stdout.strip().split(":")]


NEXT_TO_IT = re.compile(r"\$\(dirname (?:-- )?\"(?:\$0|\$\{BASH_SOURCE\[0\]\})\"\)/([\w./-]+)")
"""A path that a shell script takes from its own place."""


def test_paths_in_shell_scripts_exist() -> None:
    """Some scripts run in the background, where nobody sees that a program is not found."""
    places = [
        (path, found)
        for path in [*SCRIPTS.rglob("*"), *(REPOSITORY / ".ci").iterdir()]
        if path.is_file() and path.read_bytes()[:2] == b"#!"
        for found in NEXT_TO_IT.findall(path.read_text())
    ]
    assert len(places) > 40
    assert [(path.name, found) for path, found in places if not (path.parent / found).exists()] == []


def test_only_what_a_newcomer_runs_is_at_the_top() -> None:
    assert {path.name for path in SCRIPTS.iterdir() if path.is_file()} == AT_THE_TOP


def test_every_program_is_started_by_run() -> None:
    assert len(PROGRAMS) > 30
    others = [
        path.name
        for path in python_files(SCRIPTS)
        if path not in PROGRAMS and path.parent.parent == SCRIPTS and "\nif __name__ ==" in path.read_text()
    ]
    assert others == []


@every_program
def test_a_program_can_be_started_and_says_what_it_needs(program: Path) -> None:
    assert os.access(program, os.X_OK)
    usage = re.findall(r"usage: scripts/setup \[(.*?)\]", (SCRIPTS / "setup").read_text())
    groups = set(usage[0].split(" | ")) | {"package"}
    needs = needs_of(program)
    assert needs in (["python"], ["release"]) or set(needs) <= groups
    assert '\nif __name__ == "__main__":\n' in program.read_text(), "an import would run it"


def test_every_program_is_named_where_people_look() -> None:
    """In a page, a workflow, another script or a test: what no one runs goes away."""
    places = ["docs", ".ci", ".github", "scripts", "tests", "*.md"]
    unnamed = []
    for program in PROGRAMS:
        name = program.relative_to(REPOSITORY).as_posix()
        grep = ["git", "grep", "--files-with-matches", "--fixed-strings", name, "--", *places, f":!{name}", ":!CHANGELOG.md"]
        if subprocess.run(grep, cwd=REPOSITORY, capture_output=True, check=False).returncode:
            unnamed.append(name)
    assert unnamed == []


def test_a_program_that_does_not_say_what_it_needs_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text('"""Says nothing."""\nprint("runs")\n')
    done = subprocess.run([SCRIPTS / "run", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not say what it needs" in done.stderr


def test_the_list_has_each_program_and_what_it_does() -> None:
    done = subprocess.run([SCRIPTS / "run"], capture_output=True, text=True, check=True)
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert {f"scripts/{path.relative_to(SCRIPTS)}" for path in PROGRAMS} <= set(lines)
    docstring = ast.get_docstring(ast.parse((SCRIPTS / "docs" / "build").read_text())) or ""
    assert lines["scripts/docs/build"] == docstring.splitlines()[0]


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


def missing_imports(program: Path, places: list[Path]) -> list[str]:
    """Shared modules, and names in them, that a program and its modules import and that are not there."""
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
                files = [place / f"{name}.py" for place in places if (place / f"{name}.py").is_file()]
                if not files:
                    missing.append(f"{module.name}: {name}")
                    continue
                if not is_import:
                    missing += [f"{name}.{each.name}" for each in node.names if each.name not in names_in(files[0])]
                if files[0] not in read:
                    unread.append(files[0])
    return missing


@every_program
def test_every_module_is_in_the_path(program: Path) -> None:
    assert missing_imports(program, folders()) == []


def test_a_module_that_is_not_in_the_path_is_noticed() -> None:
    assert missing_imports(SCRIPTS / "kafka" / "compare_with_kafka.py", [SCRIPTS / "kafka"])


@pytest.mark.full
@every_program
def test_a_program_imports_with_the_path_of_run(program: Path) -> None:
    """Everything at the top of the modules: what a part of a program needs later it imports from there too."""
    places = [str(program.parent), *map(str, folders())]
    load = f"importlib.machinery.SourceFileLoader('program', {str(program)!r}).load_module()"
    code = f"import importlib.machinery, sys, warnings; warnings.simplefilter('ignore'); sys.path[:0] = {places!r}; {load}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    lacks = re.search(r"\nModuleNotFoundError: No module named '([\w]+)", done.stderr)
    if lacks and lacks[1] not in SHARED:
        return  # a package that only the full tier installs, and checks the rest with
    assert done.returncode == 0, done.stderr
