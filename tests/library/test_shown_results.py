"""Results as text and as HTML, as a notebook shows them."""

import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_dirs import copy_of
from manifests import FIXTURES

import snaprebuild as library
from snaprebuild.library.result_html import CELL_CHARACTERS_MAX, ROWS_MAX, html_of
from snaprebuild.library.verb_result import REPR_CHARACTERS_MAX

AS_OF_MS = 1_795_270_000_000
CALLS: dict[str, Callable[[Path], library.Result[Any, Any]]] = {
    "scan": library.scan,
    "plan": lambda logs: library.plan(logs, boundaries="all", as_of_ms=AS_OF_MS),
    "rebuild": lambda logs: library.rebuild(logs, dry_run=True, as_of_ms=AS_OF_MS),
    "verify": library.verify,
}


def cells(element: ElementTree.Element, name: str) -> list[str]:
    return [each.text or "" for each in element.iter(name)]


@pytest.mark.parametrize("verb", CALLS)
def test_the_html_of_a_result(verb: str, tmp_path: Path) -> None:
    """Read back by a parser of XML: the text of each cell is the value of its row, whatever characters a path has."""
    logs = copy_of("kafka27-mixed", tmp_path / "<b>&\"'</td>")
    result = CALLS[verb](logs)
    tree = ElementTree.fromstring(result._repr_html_())
    assert cells(tree, "b") == [f"{verb}, exit code {result.exit_code}"]
    assert cells(tree, "pre") == [result.answer]
    assert cells(tree, "code") == ([] if result.next_command is None else [result.next_command])
    assert cells(tree, "th") == list(result.columns)
    rows = result.rows()
    shown = [cells(row, "td") for row in tree.iter("tr")][1:]
    assert len(shown) == min(len(rows), ROWS_MAX)
    of_path = list(result.columns).index("path")
    for row, texts in zip(rows, shown, strict=False):
        for name, text in zip(result.columns, texts, strict=True):
            value = row[name]
            whole = "" if value is None else ", ".join(value) if isinstance(value, list) else str(value)
            assert text == whole or (len(text) == CELL_CHARACTERS_MAX and text.endswith("...") and whole.startswith(text[:-3]))
        assert texts[of_path]
    assert ("only the first 20 rows" in cells(tree, "p")) == (len(rows) > ROWS_MAX)
    if verb == "plan":
        assert len(rows) > ROWS_MAX
    assert len(repr(result)) <= REPR_CHARACTERS_MAX + 2
    assert repr(result).startswith(f"<{verb}, exit code {result.exit_code}: ")
    assert "\n" not in repr(result)


def test_the_html_of_an_audit() -> None:
    result = library.audit(FIXTURES / "tiered-local" / "remote")
    tree = ElementTree.fromstring(result._repr_html_())
    assert cells(tree, "b") == ["tier audit, exit code 0"]
    assert cells(tree, "th") == list(result.columns)
    verdicts = [cells(row, "td")[list(result.columns).index("verdict")] for row in tree.iter("tr") if cells(row, "td")]
    assert verdicts == ["right"] * 12


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """A notebook sends HTML as UTF-8."""
    html = html_of("title", "answer", None, ["path"], [{"path": os.fsdecode(b"/logs/\xff")}])
    assert ElementTree.fromstring(html.encode()).findtext(".//td") == "/logs/\\udcff"


def test_rows_that_are_not_shown_are_not_read() -> None:
    read = []

    def rows() -> Any:
        for number in range(1_000_000):
            read.append(number)
            yield {"a": "x" * 10_000}

    html = html_of("title", "y" * 10_000_000, None, ["a"], rows())
    assert len(read) == ROWS_MAX + 1
    assert len(html) < 10_000


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    monkeypatch.delitem(sys.modules, "snaprebuild.spark.arrow_tables", raising=False)
    session: Any = None
    with pytest.raises(library.UsageError, match=r"pip install pyspark pyarrow"):
        library.scan(copy_of("magic0", tmp_path)).toDF(session)
