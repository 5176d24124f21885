"""Tables of plain text, whatever the terminal."""

from __future__ import annotations

import pytest

from snaprebuild.cli.table import printable, table_text

COLUMNS = ("partition", "offset", "because")
ROWS = [
    ("orders-0", 7, "every batch from offset 0 was replayed, and a later snapshot says the same"),
    ("a-much-longer-topic-12", 1234567, "-"),
]


def table(width: int | None) -> list[str]:
    return table_text("Title", COLUMNS, ROWS, right=("offset",), width=width).split("\n")


def test_whole_lines_where_there_is_no_terminal() -> None:
    assert table(None) == [
        "Title",
        "",
        " partition                 offset   because",
        " " + "─" * 109,
        " orders-0                       7   every batch from offset 0 was replayed, and a later snapshot says the same",
        " a-much-longer-topic-12   1234567   -",
        "",
        "",
    ]
    assert table(110) == table(None), "it fits"


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


def test_a_column_without_a_name_in_a_paragraph() -> None:
    text = table_text("Sizes", ("", "bytes", "file"), [("A", 1620, "a/very/long/path/of/a/snapshot")], width=30, right=("bytes",))
    assert text == "Sizes\n\n A; bytes: 1620; file:\n    a/very/long/path/of/a/snapshot\n\n"


def test_a_narrow_terminal_has_paragraphs() -> None:
    assert table(50) == [
        "Title",
        "",
        " partition: orders-0; offset: 7; because: every",
        "    batch from offset 0 was replayed, and a later",
        "    snapshot says the same",
        " partition: a-much-longer-topic-12;",
        "    offset: 1234567",
        "",
        "",
    ]


@pytest.mark.parametrize("width", [None, *range(20, 160)])
def test_every_cell_is_there_at_every_width(width: int | None) -> None:
    lines = table(width)
    words = [word.strip(";") for word in " ".join(lines).split()]
    for row in ROWS:
        for word in " ".join(map(str, row)).split():
            assert word == "-" or word in words
    assert not [line for line in lines if line != line.rstrip()]
    longest_word = len("a-much-longer-topic-12;")
    if width is not None:
        assert max(map(len, lines)) <= max(width, len(" partition: ") + longest_word)


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
