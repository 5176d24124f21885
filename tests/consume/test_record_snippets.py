"""The snippets of the guide that reads records: each is run, one after the other, as a reader types them."""

import contextlib
import io
import re

import pytest
from manifests import REPOSITORY

pytestmark = pytest.mark.full

GUIDE = REPOSITORY / "docs" / "guides" / "read-records.md"


def test_the_snippets_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    snippets = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    printed = []
    for snippet in snippets:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(snippet, GUIDE.name, "exec"), names)
        printed.append(output.getvalue())
    batches, in_duckdb, in_polars, in_pandas = printed
    assert re.findall(r"^\d+ 5$", batches, re.MULTILINE), "the first batch begins with offset 5"
    assert "finding producer " in batches
    assert re.search(r"│\s+0 │\s+5259 │", in_duckdb)
    assert re.search(r"count\s+┆ 5259", in_polars)
    assert re.search(r"^aborted\s+1562$", in_pandas, re.MULTILINE)
