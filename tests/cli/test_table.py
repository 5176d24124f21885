"""Tables of plain text, whatever the terminal."""

from __future__ import annotations

import pytest

from snaprebuild.cli.table import middle_cut, printable, table_text

COLUMNS = ("partition", "offset", "because")
ROWS = [
    ("orders-0", 7, "every batch from offset 0 was replayed, and a later snapshot says the same"),
    ("a-much-longer-topic-12", 1234567, "-"),
]


def table(width: int) -> list[str]:
    return table_text("Title", COLUMNS, ROWS, right=("offset",), width=width).split("\n")


def test_a_table_that_fits() -> None:
    assert table(110) == [
        "Title",
        "",
        " partition                 offset   because",
        " " + "─" * 109,
        " orders-0                       7   every batch from offset 0 was replayed, and a later snapshot says the same",
        " a-much-longer-topic-12   1234567   -",
        "",
        "",
    ]


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
    assert lines[-3] == "and 10 more: -v or --output json"


def test_a_reason_that_repeats_is_a_footnote() -> None:
    reason = "every batch from offset 0 was replayed, and a later snapshot says the same"
    lines = table_text(None, COLUMNS, [("a-0", 1, reason), ("a-1", 2, reason), ("a-2", 3, "other")], width=60).split("\n")
    assert [line.split()[2:] for line in lines[2:5]] == [["[1]"], ["[1]"], ["other"]]
    assert lines[5:] == [
        "",
        "[1] every batch from offset 0 was replayed, and a later",
        "    snapshot says the same",
        "",
        "",
    ]


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
