"""A path travels with the store that holds it, and no function takes both."""

import ast
from pathlib import Path

from source_files import python_files

from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store_path import ReadPath, StorePath

ROOT = Path(__file__).parent.parent.parent

STORES = {"Store", "ReadStore", "LocalStore", "S3Store", "TierStore"}

PLACES = {"path", "location", "root", "directory", "target", "out", "place", "key", "folder", "file", "base"}
"""Names of parameters that are a path."""

BOTH = {("snaprebuild/storage/store.py", "holds_bytes"): "the stores themselves call it"}


def _takes_both(function: ast.FunctionDef) -> bool:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    kinds = {
        each.arg: "" if each.annotation is None else ast.unparse(each.annotation).removesuffix(" | None") for each in arguments
    }
    has_store = any(kind in STORES for kind in kinds.values())
    return has_store and any(kind == "str" and name in PLACES for name, kind in kinds.items())


def _both_in(text: str) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and _takes_both(node)]


def test_no_function_takes_a_store_and_a_path() -> None:
    found = {
        (str(path.relative_to(ROOT)), name) for path in python_files(ROOT / "snaprebuild") for name in _both_in(path.read_text())
    }
    assert found == BOTH.keys(), "take a StorePath, or a ReadPath where nothing is written"


def test_the_next_one_is_seen() -> None:
    assert _both_in("def read(store: ReadStore | None, path: str): ...\ndef give(log: ReadPath): ...") == ["read"]


def test_what_a_path_reads(tmp_path: Path) -> None:
    root = StorePath(LOCAL, str(tmp_path))
    file = root.below("a")
    assert (file.identity(), file.read_small(9), file.read_end(1), root.names()) == (None, None, None, frozenset())
    (tmp_path / "a").write_bytes(b"bytes")
    identity = file.identity()
    assert identity is not None
    assert (identity.size_bytes, identity.inode) == (5, (tmp_path / "a").stat().st_ino)
    with file.open(identity) as source:
        assert (source.size_bytes, source.name) == (5, str(file))
    assert (file.read_small(9), file.read_end(2), root.names()) == (b"bytes", (5, b"es"), frozenset({"a"}))
    assert ReadPath(LOCAL, "/").at(file.path).read_small(9) == b"bytes"
