"""No step decides by the words or the code of a finding, a refusal or an error: reasons have types (`FindingCause`, `LeftOut`)."""

import ast
from collections.abc import Iterator

import pytest
from manifests import REPOSITORY
from source_files import python_files

WORDS = frozenset(("code", "message", "text"))
"""Attributes that users read."""
LOOK_UPS = frozenset(("endswith", "fullmatch", "get", "match", "search", "startswith"))

ALLOWED = {
    "snaprebuild/cli/output.py": "each.code not in is_in_table",
}
"""A verb lists the codes that its tables show already, so that stderr does not repeat them: that is what is printed, and no decision."""


def decisions(tree: ast.AST) -> Iterator[ast.expr]:
    """Comparisons and look-ups by such an attribute. A tuple with one in it is an identity, as for a finding that is reported twice."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOOK_UPS:
            parts = node.args if node.func.attr == "get" else [node.func.value, *node.args]
        elif isinstance(node, ast.Match):
            parts = [node.subject]
        else:
            continue
        if any(isinstance(part, ast.Attribute) and part.attr in WORDS for part in parts):
            yield node.subject if isinstance(node, ast.Match) else node


def test_no_decision_rests_on_words() -> None:
    found = []
    for path in python_files(REPOSITORY / "snaprebuild"):
        name = str(path.relative_to(REPOSITORY))
        text = path.read_text()
        if any(f".{each}" in text for each in WORDS):
            lines = ((node.lineno, ast.unparse(node)) for node in decisions(ast.parse(text)))
            found += [f"{name}:{line}: {shown}" for line, shown in lines if ALLOWED.get(name) != shown]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("finding.code == 'refused'", True),
        ("error.message != other", True),
        ("'gone' in finding.text", True),
        ("ACTIONS.get(finding.code, FAILED)", True),
        ("ACTIONS[finding.code]", True),
        ("finding.message.startswith('the replica')", True),
        ("re.match(PATTERN, error.message)", True),
        ("(each.code, each.path) in known", False),
        ("sorted(found, key=lambda each: each.code)", False),
        ("Finding(error.code, severity, path, error.message)", False),
        ("finding.cause is FindingCause.LIVE_BROKER", False),
        ("reason.kind in NEEDED", False),
        ("record.message.get('controllerId')", False),
    ],
)
def test_the_search_finds_decisions_and_nothing_else(text: str, is_found: bool) -> None:
    assert bool(list(decisions(ast.parse(text)))) is is_found
