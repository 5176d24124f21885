"""Tables, lines of many rows, and JSON documents piece by piece."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_dirs import batch, make_log_dir, write_partition
from sentences import LATER_SNAPSHOT_AGREES, MORE_ROWS

from snaprebuild.cli.output import json_text
from snaprebuild.cli.render.row_text import ROWS_AT_ONCE, RowText
from snaprebuild.cli.render.stats import StatsView
from snaprebuild.cli.table import middle_cut, printable, table_text
from snaprebuild.inspect.dump_items import Words
from snaprebuild.inspect.stats import collect_statistics
from snaprebuild.published import encoded_members
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source

COLUMNS = ("partition", "offset", "because")
ROWS = [
    ("orders-0", 7, LATER_SNAPSHOT_AGREES),
    ("a-much-longer-topic-12", 1234567, "-"),
]


def table(width: int) -> list[str]:
    return table_text("Title", COLUMNS, ROWS, right=("offset",), width=width).split("\n")


def test_a_narrower_terminal_folds_sentences() -> None:
    assert table(80) == [
        "Title",
        "",
        " partition                 offset   because",
        " " + "─" * 79,
        " orders-0                       7   every batch from offset 0 was replayed, and",
        "                                    a later snapshot says the same",
        " a-much-longer-topic-12   1234567   -",
        "",
        "",
    ]


@pytest.mark.parametrize("width", [50, 60, 70, 80, 100])
@pytest.mark.parametrize(
    "parents",
    [
        ("/var/lib/kafka/data-volume-of-the-cluster/disk1/logs", "/var/lib/kafka/data-volume-of-the-cluster/disk2/logs"),
        ("s3://bucket-of-the-platform-team/clusters/production/b1/x", "s3://bucket-of-the-platform-team/clusters/production/b2/x"),
        ("srv/kafka-logs-with-a-long-name-1/and/below", "srv/kafka-logs-with-a-long-name-2/and/below"),
        ("/d1/" + "below/" * 12 + "logs", "/d2/" + "below/" * 12 + "logs"),
    ],
)
def test_two_disks_do_not_look_alike(parents: tuple[str, str], width: int) -> None:
    """Where two paths differ is never cut out, and neither is what they end with."""
    rows = [("orders-0", 3, f"{parent}/orders-0") for parent in parents] + [("x-1", 3, f"{parents[0]}/x-1")]
    lines = table_text(None, ("partition", "written", "directory"), rows, right=("written",), width=width).splitlines()[2:5]
    directories = [line.split()[-1] for line in lines]
    assert len(set(directories)) == 3, directories
    assert [each.rpartition("/")[2] for each in directories] == ["orders-0", "orders-0", "x-1"]
    assert all(len(line) <= width for line in lines)


def test_a_narrow_terminal_drops_columns() -> None:
    assert table(55) == [
        "Title",
        "",
        " partition                because",
        " " + "─" * 54,
        " orders-0                 every batch from offset 0 was",
        "                          replayed, and a later",
        "                          snapshot says the same",
        " a-much-longer-topic-12   -",
        "",
        "",
    ]


def test_columns_are_dropped_in_the_order_of_the_caller() -> None:
    columns, row = ("partition", "first", "second", "third", "last"), ("t-0", "1" * 20, "2" * 20, "3" * 20, "4" * 20)

    def names(width: int) -> list[str]:
        return table_text(None, columns, [row], right=columns[1:], drop=("second", "first"), width=width).split("\n")[0].split()

    assert names(110) == list(columns)
    assert names(80) == ["partition", "first", "third", "last"]
    assert names(60) == ["partition", "third", "last"]
    assert names(40) == ["partition", "last"], "then from the right"


@pytest.mark.parametrize("width", [40, 41, 60, 80, 100, 159])
def test_no_line_is_wider(width: int) -> None:
    name, number = "x" * 249, 2147483647
    rows = [(f"{name}-{number}", at, f"/{'y' * 118}/{at}", "a reason " * at) for at in range(30)]
    text = table_text("T" * 200, ("partition", "offset", "directory", "because"), rows, right=("offset",), width=width)
    lines = text.split("\n")
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]
    assert text.count(f"-{number}") == 20, "the number of a partition is never cut"
    assert lines[-3] == f"and 10 {MORE_ROWS}"


def test_a_reason_that_repeats_is_a_footnote() -> None:
    reason = LATER_SNAPSHOT_AGREES
    lines = table_text(None, COLUMNS, [("a-0", 1, reason), ("a-1", 2, reason), ("a-2", 3, "other")], width=60).split("\n")
    assert [line.split()[2:] for line in lines[2:5]] == [["[1]"], ["[1]"], ["other"]]
    assert lines[5:] == ["", "[1] every batch from offset 0 was replayed, and a later", "    snapshot says the same", "", ""]


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("orders-0", 24, "orders-0"),
        ("x" * 40 + "-123", 11, "xxxxx…x-123"),
        ("x" * 40 + "-2147483647", 14, "xx…-2147483647"),
        ("x" * 40 + "-7 (pnG54XS0SyKCbPV6BzO-OQ)", 30, "xx…-7 (pnG54XS0SyKCbPV6BzO-OQ)"),
        ("/a/very/long/path/to/the/logs/orders-12", 20, "/a/very/l…/orders-12"),
        ("/a/very/long/path/to/the/logs/customers-12", 16, "/a…/customers-12"),
    ],
)
def test_a_name_is_cut_in_its_middle(text: str, width: int, cut: str) -> None:
    assert middle_cut(text, width) == cut
    assert len(cut) <= width


def test_directories_with_combining_marks_are_cut() -> None:
    """Names in decomposed form have more characters than cells: the ends that may stay are longer than the width in characters."""
    name = "e\N{COMBINING ACUTE ACCENT}" * 40
    rows = [(f"/srv/kafka/{each}/{name}", 1) for each in ("data", "date")]
    lines = table_text(None, ("directory", "segments"), rows, width=59).split("\n")
    assert all("…" in line for line in lines[2:4])


def test_names_as_wide_as_a_terminal_shows_them() -> None:
    # Two cells for each of these characters, none for the combining accent.
    lines = table_text("", ("n", "x"), [("日本", 1), ("cafe\u0301", 2), ("abcd", 3)]).split("\n")
    assert lines[4:7] == [" 日本   1", " cafe\u0301   2", " abcd   3"]
    assert lines[3] == " " + "─" * 8


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain [bold] :smile:", "plain [bold] :smile:"),
        ("日本 é", "日本 é"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("caf\udce9", "caf\\udce9"),
        ("\u202eright to left", "\\u202eright to left"),
    ],
)
def test_a_name_does_nothing_to_a_terminal(name: str, shown: str) -> None:
    assert printable(name) == shown
    assert name == shown or name not in table_text("", ("n",), [(name,)])


def test_a_character_that_the_terminal_knows() -> None:
    assert table_text("", ("n",), [("x",)], rule="-").isascii()


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
    result = collect_statistics(open_source([str(logs)]), Run(clock=Clock(2_000, 1_000)), top=1)
    view = StatsView(result, 0.0, top=1, all_segments=False)
    pieces = list(json_text(encoded_members(view.document())))
    document = json.loads("".join(pieces))
    assert len(document["partitions"]) == 30
    assert max(map(len, pieces)) < 2 * len(json.dumps(document["partitions"][0], indent=2)) < len("".join(pieces)) / 10


INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = INT64 | st.integers(-1, 1) | st.builds(lambda power, more: 10**power + more, st.integers(0, 18), st.integers(-1, 1))
TYPES = [np.int64, np.int32, np.int16, np.int8, np.uint32]
WORDS = ("CreateTime", "none", "")


def plain(template: str, columns: dict[str, list[Any]]) -> str:
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "".join(template.format(**row) for row in rows)


@st.composite
def columns_of_numbers(draw: st.DrawFn, length: int) -> np.ndarray:
    kind = np.dtype(draw(st.sampled_from(TYPES)))
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    values = draw(st.lists(NUMBERS, min_size=length, max_size=length))
    return np.array([min(max(value, low), high) for value in values], dtype=kind)


@given(st.data(), st.integers(1, 40))
def test_the_lines_are_those_of_the_plain_way(data: st.DataObject, length: int) -> None:
    numbers, others = data.draw(columns_of_numbers(length)), data.draw(columns_of_numbers(length))
    codes = data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
    texts = data.draw(st.lists(st.none() | NUMBERS | st.sampled_from(["OptionalLong[7]", "x"]), min_size=length, max_size=length))
    template = "a: {a} {b}|{c}, {d}{e}\n"
    expected = plain(
        template,
        {"a": numbers.tolist(), "b": others.tolist(), "c": [WORDS[code] for code in codes], "d": texts, "e": numbers.tolist()},
    )
    words = Words(WORDS, np.array(codes, dtype=np.uint8))
    found = RowText.of(template).lines({"e": numbers, "d": texts, "c": words, "b": others, "a": numbers, "unused": [1]})
    assert found == expected


def test_more_rows_than_are_worked_on_at_once() -> None:
    numbers = np.arange(-7, 3 * ROWS_AT_ONCE)
    assert RowText.of("{n}\n").lines({"n": numbers}) == plain("{n}\n", {"n": numbers.tolist()})


def test_braces_around_anything_else_are_text() -> None:
    assert (
        RowText.of('{"item":"batch","n":{n}}\n').lines({"n": np.array([1, 20])})
        == '{"item":"batch","n":1}\n{"item":"batch","n":20}\n'
    )
