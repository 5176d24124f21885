"""Each sentence of `sentences.py` is looked for by several tests and is written nowhere else in them."""

import ast

import sentences
from manifests import REPOSITORY
from source_files import python_files

SENTENCES = {name: text for name, text in vars(sentences).items() if name.isupper()}


def test_a_sentence_is_written_once() -> None:
    used = dict.fromkeys(SENTENCES, 0)
    again = []
    for path in python_files(REPOSITORY / "tests"):
        source = path.read_text()
        if path.name == "sentences.py":
            continue
        for name in SENTENCES:
            used[name] += source.count(name) > 0
        written = {name: text for name, text in SENTENCES.items() if text in source}
        if written:
            texts = asserted(ast.parse(source))
            again += [
                f"{path.relative_to(REPOSITORY)}: {name}" for name, text in written.items() if any(text in each for each in texts)
            ]
    assert not again
    assert [name for name, count in used.items() if not count] == []


def asserted(tree: ast.Module) -> list[str]:
    """The strings of a module but for docstrings, and for the messages of assertions that fail."""
    apart: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            apart.add(id(node.value))
        elif isinstance(node, ast.Assert) and node.msg is not None:
            apart |= {id(each) for each in ast.walk(node.msg)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart
    ]
