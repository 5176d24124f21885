"""Code that only tests use is in tests."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import snaprebuild
from snaprebuild.spark import notebook

ROOT = Path(__file__).parent.parent

POSSESSIVE_GROUP = re.compile(r"\bre\.\w+\([^\n]*(?:\)(?:[+*?]|\{[\d,]+\})\+|\(\?>)")
SAFE_GROUPS = {r"[^\\ \t\f=:]*+(?:\\.[^\\ \t\f=:]*+)*+": "nothing in the group of a key may go back"}
"""Possessive groups that Python 3.11.2 matches rightly, with the reason."""

USED_BY_TESTS = {
    "crc32_reference": "crcmod is the reference of each checksum, next to its definition",
    "crc32c_reference": "the same",
    "file_versions": "tests compare the catalogue of releases with the constants of the product",
    "level_name": "the same",
    "parse_snapshot": "the reader by the grammar, which is the reference of the fast one",
}
"""Functions without a user in the product that stay there, with the reason."""


NAME = re.compile(r"(?<![\w\"'`])(?<!def )[A-Za-z_]\w*(?![\w\"'`])")
"""A name in code: not one that is defined here, not one in ``__all__``, not one in a docstring's quotes."""

FUNCTION = re.compile(r"^([^\n]*)\ndef (\w+)", re.MULTILINE)
"""A function of a module, with the line before it: a decorator, or nothing."""


def test_each_function_has_a_user_in_the_product() -> None:
    texts = [path.read_text() for package in ("formats", "snaprebuild") for path in (ROOT / package).rglob("*.py")]
    used = {name for text in texts for name in NAME.findall(text)}
    functions = {name for text in texts for line, name in FUNCTION.findall(text) if not line}
    public = {*snaprebuild.__all__, *notebook.__all__}
    unused = {name for name in functions - used - public if not name.startswith("__")}
    assert not unused - USED_BY_TESTS.keys(), "move them to tests, or give them a user"
    assert not USED_BY_TESTS.keys() - unused, "they have a user"


def module_variables(tree: ast.Module) -> Iterator[str]:
    """The names that a module assigns at its top."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        yield from (each.id for each in targets if isinstance(each, ast.Name) and not each.id.startswith("__"))


def test_each_constant_has_a_user_in_the_product() -> None:
    """Its module reads it, or another module imports it; members of an enum with the same name do not count."""
    paths = [path for package in ("formats", "snaprebuild") for path in (ROOT / package).rglob("*.py")]
    trees = {".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text()) for path in paths}
    nodes = {name: list(ast.walk(tree)) for name, tree in trees.items()}
    imported = set[tuple[str | None, str]]()
    members = set[tuple[str, str]]()
    for each in (node for tree in nodes.values() for node in tree):
        if isinstance(each, ast.ImportFrom):
            imported |= {(each.module, alias.name) for alias in each.names}
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            members.add((each.value.id, each.attr))
    unused = []
    for name, tree in trees.items():
        read = {node.id for node in nodes[name] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        for variable in set(module_variables(tree)) - read:
            if (name, variable) not in imported and (name.rpartition(".")[2], variable) not in members:
                unused.append(f"{name}: {variable}")
    assert set(unused) == {"formats.__init__: DISTRIBUTION", "formats.__init__: PUBLIC"}, "delete them, or give them a user"


def test_no_pattern_has_a_possessive_group() -> None:
    """Python before 3.11.5 matches them wrongly if something in them may go back (CPython issue 106052)."""
    for package in ("formats", "snaprebuild"):
        for path in (ROOT / package).rglob("*.py"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if POSSESSIVE_GROUP.search(line) is not None:
                    assert any(each in line for each in SAFE_GROUPS), f"{path}:{number}: {line}"
