"""JSON documents piece by piece: the same text, and no piece of the size of a large document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from log_dirs import batch, make_log_dir, write_partition

from snaprebuild.cli.render.stats import stats_document
from snaprebuild.cli.result import json_text
from snaprebuild.documents.typed import encoded_members
from snaprebuild.inspect.stats import stats
from snaprebuild.snapshots.engine.window_proof import Clock
from snaprebuild.snapshots.source.source import open_source


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.text() | st.integers() | st.none(), lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=12
        ),
        max_size=5,
    )
)
def test_a_document_in_pieces_is_the_document(document: dict[str, Any]) -> None:
    """Lists may come as iterators, so that a document of very many partitions is never held as a whole."""
    document = {"schema": "a/1", **document}
    streamed = {name: iter(value) if isinstance(value, list) else value for name, value in document.items()}
    assert "".join(json_text(streamed)) == json.dumps(document, indent=2) + "\n"


def test_the_document_of_many_partitions_comes_in_pieces(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    for number in range(30):
        write_partition(logs / f"topic-{number}", {0: batch(0, producer_id=number)})
    pieces = list(json_text(encoded_members(stats_document(stats(open_source([str(logs)]), Clock(2_000, 1_000), top=1), 0.0))))
    document = json.loads("".join(pieces))
    assert len(document["partitions"]) == 30
    assert max(map(len, pieces)) < 2 * len(json.dumps(document["partitions"][0], indent=2)) < len("".join(pieces)) / 10
