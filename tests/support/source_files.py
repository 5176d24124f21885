"""Our own Python files, and the statements in them."""

import ast
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["python_files", "statements"]


def python_files(root: Path) -> list[Path]:
    """All below a directory, sorted, but not those below directories with a dot: other tests make and rename these meanwhile."""
    found = []
    for directory, below, names in os.walk(root):
        below[:] = [each for each in below if not each.startswith(".")]
        found += [Path(directory, name) for name in names if name.endswith(".py")]
    return sorted(found)


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """These and all inside of them. The expressions, which are many more nodes, hold no statement."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, name, ()))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from statements(part.body)
