#!/usr/bin/env python3
"""Counts what a reader of the code meets, and what commands enter: `count_code.py [CHECKOUT] [--names] [--no-trace | --functions]`.

Figures are reported and no test compares them, but for the class names. Files are the .py files of `formats` and `snaprebuild` that git
lists. `--names` lists the class names that several modules define. With CHECKOUT a git worktree, its .venv or this interpreter runs the
traces of six commands and calls for one partition (``WALKS``); `--functions` lists what they enter.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)
LAYOUT = {
    *(tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
"""Tokens that are no code."""

MEMBERS_LEAST = 3
"""Smaller classes are alike by chance."""

SHARED_MEMBERS = 0.75
"""A document class that has this part of its members in common with a class of the domain repeats it."""

HEAD_CHARACTERS = 400
"""A generated page says at its beginning, in these characters, that it is one."""

TRACED = """
import json, os, sys, threading
root = sys.argv[1] + os.sep
ours = (root + "formats" + os.sep, root + "snaprebuild" + os.sep)  # and not the libraries in .venv
calls = {}

def is_import(frame):  # below the frame of a module, except of the entry module
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "importlib" in (frame.f_back.f_code.co_filename if frame.f_back else ""):
            return True
        frame = frame.f_back
    return False

def count(frame, event, arg):
    code = frame.f_code
    if event != "call" or code.co_name.startswith("<") or not code.co_filename.startswith(ours) or is_import(frame):
        return  # modules, comprehensions and lambdas are no functions with a name to know
    function = (code.co_filename.removeprefix(root), code.co_qualname, code.co_firstlineno)
    calls[function] = calls.get(function, 0) + 1

out = os.environ["COUNT_OUT"]
words = sys.argv[3:]
threading.setprofile(count)
sys.setprofile(count)
try:
    if words[0] == "ensure_snapshot":
        from snaprebuild.hooks import ensure_snapshot
        ensure_snapshot(words[1], int(words[2]))
    else:
        from snaprebuild.__main__ import main
        sys.argv = ["snaprebuild", *words]
        main()
except SystemExit:
    pass
finally:
    sys.setprofile(None)
    threading.setprofile(None)
    with open(out, "w") as file:
        json.dump([(*function, count) for function, count in sorted(calls.items())], file)
"""

PARTITION = "fixtures/kafka27-mixed/logs/mixed-0"
NODE = "fixtures/kraft-cluster3/node1"
WALKS = {
    "rebuild": ["rebuild", PARTITION, "--out", "OUT"],
    "verify": ["verify", PARTITION],
    "ensure_snapshot": ["ensure_snapshot", PARTITION, "2596"],
    "cluster source": ["cluster", "source", NODE, "--topic", "orders", "--partition", "1", "--purpose", "upload"],
    "tier audit": ["tier", "audit", "fixtures/follower-lost-state/remote"],
    "tier upload": ["tier", "upload", "OUT", NODE, "--topic-partition", "orders-1"],
}
"""The ways of one partition, as words of the command line; ``ensure_snapshot`` is a call of the library for a boundary without a file."""


def listed(root: Path, *folders: str) -> list[Path]:
    """The files of these folders that git lists."""
    names = subprocess.run(["git", "ls-files", "-z", *folders], cwd=root, check=True, capture_output=True, text=True).stdout
    return [root / name for name in names.split("\0") if name and (root / name).is_file()]


def token_count(path: Path) -> int:
    """Tokens of a file without comments and layout."""
    with path.open("rb") as file:
        return sum(token.type not in LAYOUT for token in tokenize.tokenize(file.readline))


def statement_count(tree: ast.AST) -> int:
    """Statements of a module, declarations and docstrings too."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree))


def tuple_assignment_count(tree: ast.AST) -> int:
    """Assignments such as ``a, b = 1, 2``: several statements in one."""
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            count += 1
    return count


def inner_import_lines(tree: ast.AST) -> int:
    """Lines of imports in functions and below ``if TYPE_CHECKING``."""
    lines = 0
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) or is_type_checking(node):
            for each in node.body:  # type: ignore[attr-defined]
                if isinstance(each, IMPORTS):
                    lines += (each.end_lineno or each.lineno) - each.lineno + 1
    return lines


def is_type_checking(node: ast.AST) -> bool:
    """Whether a node is ``if TYPE_CHECKING``."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def classes_of(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """The classes at the top of a module."""
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def member_names(definition: ast.ClassDef) -> frozenset[str]:
    """The annotated members of a class."""
    names = set()
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return frozenset(names)


def modules_by_class(trees: dict[Path, ast.Module]) -> dict[str, set[Path]]:
    """The modules that define a class, by its name."""
    modules: dict[str, set[Path]] = defaultdict(set)
    for path, tree in trees.items():
        for definition in classes_of(tree):
            modules[definition.name].add(path)
    return modules


def repeated_documents(root: Path, trees: dict[Path, ast.Module]) -> tuple[int, int]:
    """Document classes that repeat a class of the domain, and all document classes; of both only those with enough members."""
    documents: list[frozenset[str]] = []
    domain: set[frozenset[str]] = set()
    for path, tree in trees.items():
        is_document = "documents" in path.relative_to(root).parts[:-1]
        for definition in classes_of(tree):
            names = member_names(definition)
            if len(names) < MEMBERS_LEAST:
                continue
            if is_document:
                documents.append(names)
            else:
                domain.add(names)
    repeated = 0
    for names in documents:
        if any(len(names & others) >= SHARED_MEMBERS * len(names) for others in domain):
            repeated += 1
    return repeated, len(documents)


def words_by_hand(root: Path) -> tuple[int, int]:
    """Words in README.md and docs, and the number of these pages, without generated ones."""
    words = 0
    pages = 0
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = path.read_text()
        if "generated" not in text[:HEAD_CHARACTERS].lower():
            words += len(text.split())
            pages += 1
    return words, pages


def flat_count(root: Path, folder: str) -> int:
    """Python files directly in a folder."""
    return len(list((root / folder).glob("*.py")))


def figures(root: Path) -> Iterator[str]:
    """The lines that are printed for a checkout."""
    paths = [path for path in listed(root, "formats", "snaprebuild") if path.suffix == ".py"]
    trees = {path: ast.parse(path.read_text()) for path in paths}
    modules = modules_by_class(trees)
    shared = [places for places in modules.values() if len(places) > 1]
    lines = sum(len(path.read_text().splitlines()) for path in paths)
    tokens = sum(token_count(path) for path in paths)
    classes = sum(len(places) for places in modules.values())
    yield f"formats + snaprebuild: {len(paths)} files, {lines} lines, {tokens} tokens, {classes} classes"
    yield f"class names in more than one module: {len(shared)}, for {sum(map(len, shared))} classes"
    repeated, documents = repeated_documents(root, trees)
    yield (
        f"document classes of {MEMBERS_LEAST} members or more that share {SHARED_MEMBERS:.0%} of their members with a class of the domain: "
        f"{repeated} of {documents}"
    )
    statements = sum(map(statement_count, trees.values()))
    tuple_assignments = sum(map(tuple_assignment_count, trees.values()))
    yield f"tuple assignments: {tuple_assignments}, {100 * tuple_assignments / statements:.2f} per 100 statements"
    cli = [tree for path, tree in trees.items() if "cli" in path.relative_to(root).parts[:-1]]
    yield f"import lines in functions or below TYPE_CHECKING in cli: {sum(map(inner_import_lines, cli))}"
    yield f"Python files directly in scripts: {flat_count(root, 'scripts')}, in tests: {flat_count(root, 'tests')}"
    words, pages = words_by_hand(root)
    yield f"words of documentation by hand: {words} in {pages} pages"


def shared_names(root: Path) -> Iterator[str]:
    """Each class name that several modules define, with these modules."""
    paths = [path for path in listed(root, "formats", "snaprebuild") if path.suffix == ".py"]
    modules = modules_by_class({path: ast.parse(path.read_text()) for path in paths})
    for name, places in sorted(modules.items()):
        if len(places) > 1:
            yield f"  {name}: {', '.join(sorted(path.relative_to(root).as_posix() for path in places))}"


def traced(root: Path, arguments: list[str]) -> list[tuple[str, str, int, int]]:
    """Each function that one run enters: its file, name, first line and number of calls.

    What an import calls is left out, and so are comprehensions and lambdas.
    """
    python = root / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "calls"
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root), "COUNT_OUT": str(out), "HOME": scratch}
        words = [word.replace("OUT", f"{scratch}/out") for word in arguments]
        command = [python if python.exists() else sys.executable, "-c", TRACED, str(root), "--", *words]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        if not out.exists():
            raise SystemExit(done.stderr)
        return [tuple(row) for row in json.loads(out.read_text())]


def print_walk(root: Path, name: str, with_functions: bool) -> None:
    """Prints files, functions and calls of one walk, and with ``with_functions`` each function by file."""
    rows = traced(root, WALKS[name])
    files = {file for file, _, _, _ in rows}
    calls = sum(count for _, _, _, count in rows)
    print(f"{name:16} {len(files):4} files {len(rows):5} functions {calls:6} calls")
    if with_functions:
        for file, function, line, count in rows:
            print(f"  {file}:{line} {function} {count}")


def main() -> None:
    """Prints the figures."""
    root = Path(next((word for word in sys.argv[1:] if not word.startswith("-")), ".")).resolve()
    for line in figures(root):
        print(line)
    if "--names" in sys.argv:
        for line in shared_names(root):
            print(line)
    if "--no-trace" not in sys.argv:
        print(f"what one run enters for {PARTITION} (imports, comprehensions and lambdas excluded):")
        for name in WALKS:
            print_walk(root, name, "--functions" in sys.argv)


if __name__ == "__main__":
    main()
