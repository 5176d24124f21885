#!/usr/bin/env python3
"""Counts the code: `count_code.py [CHECKOUT] [--no-trace | --functions]`. `--functions` lists what the traces enter.

With CHECKOUT a git worktree, its .venv or this interpreter runs the traces of five commands and calls for one partition (``WALKS``).
A statement counts if it is inside a function (methods and nested functions too), is no import and no docstring; each comprehension
and each lambda counts as one more. Files are .py files of `formats` and `snaprebuild` as git lists them, generated code included.
"""

from __future__ import annotations

import ast
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PACKED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NOT_COUNTED = (ast.Import, ast.ImportFrom, ast.Global)
"""`global` declares, as an import does; `...` as a whole body is no statement either."""
FILE_LINES_MAX = 500

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
    "tier upload": ["tier", "upload", NODE, "OUT", "--topic-partition", "orders-1"],
}
"""The ways of one partition, as words of the command line; ``ensure_snapshot`` is a call of the library for a boundary without a file."""


def statements(tree: ast.AST) -> int:
    """Statements inside functions, as the goals count them."""

    def below(node: ast.AST, inside: bool) -> int:
        total = 0
        docstring = None
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                docstring = first
        within = inside or isinstance(node, FUNCTIONS)
        for child in ast.iter_child_nodes(node):
            if child is docstring or (
                isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and child.value.value is ...
            ):
                continue
            if within and ((isinstance(child, ast.stmt) and not isinstance(child, NOT_COUNTED)) or isinstance(child, PACKED)):
                total += 1
            total += below(child, within)
        return total

    return below(tree, False)


def lengths(tree: ast.AST) -> list[int]:
    """Lines of each function."""
    return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]


def listed(root: Path, *folders: str) -> list[Path]:
    """The files of these folders that git lists."""
    names = subprocess.run(["git", "ls-files", "-z", *folders], cwd=root, check=True, capture_output=True, text=True).stdout
    return [root / name for name in names.split("\0") if name and (root / name).is_file()]


def is_python(path: Path) -> bool:
    """By its ending, or by its first line."""
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        return file.readline(100).startswith(b"#!") and b"python" in path.read_bytes()[:100]


def counted(paths: list[Path]) -> tuple[int, int, int]:
    """Files, lines, statements."""
    texts = [path.read_text() for path in paths]
    return len(paths), sum(text.count("\n") for text in texts), sum(statements(ast.parse(text)) for text in texts)


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
    product = [path for path in listed(root, "formats", "snaprebuild") if path.suffix == ".py"]
    trees = {path: ast.parse(path.read_text()) for path in product}
    files, lines, total = counted(product)
    print(f"formats + snaprebuild   {files:5} files  {lines:6} lines  {total:6} statements in functions")
    scripts = [path for path in listed(root, "scripts") if is_python(path)]
    print("scripts                 {:5} files  {:6} lines  {:6} statements in functions".format(*counted(scripts)))
    long = [path for path in product if path.read_text().count("\n") > FILE_LINES_MAX]
    print(f"files over {FILE_LINES_MAX} lines: {len(long)}  " + " ".join(path.relative_to(root).as_posix() for path in long))
    print(f"median function: {statistics.median(length for tree in trees.values() for length in lengths(tree))} lines")
    folders: dict[str, list[Path]] = {}
    for path in product:
        parts = path.relative_to(root).parts
        folders.setdefault("/".join(parts[:2]) if parts[0] == "snaprebuild" and len(parts) > 2 else parts[0], []).append(path)
    for folder, paths in sorted(folders.items()):
        print("  {:24}{:3} files  {:6} lines  {:6} statements".format(folder, *counted(paths)))
    if (root / "snaprebuild/snapshots").is_dir():
        print(
            "repair path             {:5} files  {:6} lines  {:6} statements".format(
                *counted(
                    [
                        path
                        for path in product
                        if path.relative_to(root)
                        .as_posix()
                        .startswith(("formats/", "snaprebuild/replay/", "snaprebuild/storage/local/", "snaprebuild/snapshots/"))
                    ]
                )
            )
        )
    if "--no-trace" not in sys.argv:
        print(f"what one run enters for {PARTITION} (imports, comprehensions and lambdas excluded):")
        for name in WALKS:
            print_walk(root, name, "--functions" in sys.argv)


if __name__ == "__main__":
    main()
