"""Prints a result to stdout: lines, paragraphs, tables and commands, in the width of the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar

from snaprebuild.cli.answer import unread_text
from snaprebuild.cli.table import ROWS_MAX, WIDTH_MAX, cell_text, paragraph, printable, table_text
from snaprebuild.cli.value_text import shown
from snaprebuild.cli.verb_command import PROGRAM
from snaprebuild.cli.view import Advice
from snaprebuild.findings import Finding, choose_form, deleted_text, unread_paths
from snaprebuild.shell_words import shell_command

__all__ = [
    "called_program",
    "draws_blocks",
    "is_verbose",
    "line_width",
    "newest_run_text",
    "print_answer",
    "print_command",
    "print_line",
    "print_table",
    "print_text",
    "print_undo",
    "print_unread",
    "worded",
]


PROGRAM_OPTION = "snaprebuild_program="
"""Begins the value of the option -X of the interpreter with which a starter, as `scripts/snaprebuild`, hands on how it was called."""

MAIN_MODULE = "snaprebuild.__main__"


_wording: ContextVar[Callable[[str], str]] = ContextVar("wording", default=str)


@contextlib.contextmanager
def worded(wording: Callable[[str], str]) -> Iterator[None]:
    """Inside the block this thread prints sentences and cells in other words. Commands stay as they are.

    Args:
        wording: returns a text in these words.
    """
    token = _wording.set(wording)
    try:
        yield
    finally:
        _wording.reset(token)


def print_answer(answer: str, following: Sequence[str] | Advice, exit_code: int) -> None:
    """Prints the first lines of a result: the answer, and the next command.

    Args:
        answer: lines of sentences.
        following: words of the command, without the name of the program, or an advice; empty without one.
        exit_code: of the command, unless stdout fails: that of the findings, or of another file that could not be written.
    """
    for line in answer.splitlines():
        print_text(line)
    if isinstance(following, Advice):
        print_line(f"Next: {_wording.get()(printable(following.text))}.")
        if following.words:
            print_command("Then", following.words)
    elif following:
        print_command("Next", following)
    elif exit_code == 0:
        # Only here: everything was read, and nothing is suspect.
        print_text("Next: nothing to do.")
    else:
        print_text("Next: no command corrects this; see what stderr lists.")
    print_line("")


def print_unread(findings: Iterable[Finding]) -> None:
    """The first line of a result without an answer, if something in the selection was not read or is gone."""
    findings = list(findings)
    text = deleted_text(findings)
    count = len(unread_paths(findings))
    if count:
        pronoun = choose_form(count, "it", "them")
        text = f"{unread_text(findings)} The result does not cover {pronoun}; stderr shows why.{text}"
    if text:
        print_text(text.rstrip())


def draws_blocks() -> bool:
    """Whether stdout takes more than ASCII."""
    # A stream in memory has no encoding, and takes everything.
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def print_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
    all_rows: bool = False,
) -> None:
    """Prints a table to stdout within the width; ``-v`` prints all rows. ``table_text`` describes the arguments.

    Args:
        title: above the table, or None.
        columns: their names.
        rows: one cell for each column, ``-`` for None; the worst row first.
        right: names of columns that are flush right.
        drop: columns that a narrow terminal does without, the least important first.
        all_rows: without ``-v`` too.
    """
    wording = _wording.get()
    if title is not None:
        title = wording(title)
    rows = ([wording(cell_text(cell)) for cell in row] for row in rows)
    rows_max = sys.maxsize if all_rows or is_verbose() else ROWS_MAX
    rule = "─" if draws_blocks() else "-"
    _print(table_text(title, columns, rows, right=right, drop=drop, width=line_width(), rows_max=rows_max, rule=rule))


def print_text(text: str, indent: str = "") -> None:
    """Prints a paragraph to stdout; ``indent`` is that of all lines but the first."""
    _print(paragraph(_wording.get()(text), line_width(), indent) + "\n")


def _print(text: str) -> None:
    sys.stdout.write(text if draws_blocks() else text.replace("…", "~"))


def print_line(text: str) -> None:
    """Prints lines to stdout as they are, for somebody who copies them; what is in them must be printable."""
    sys.stdout.write(text + "\n")


def print_command(label: str, words: Sequence[str]) -> None:
    """Prints a command of this program, as it was called now, on one line however long: a line break would change it."""
    print_line(f"{label}: {shell_command([*called_program(), *words])}")


def called_program() -> list[str]:
    """The words that call this program in this shell.

    They are its name where the PATH leads to it, the path that it was called by, or an interpreter with ``-m snaprebuild``.
    """
    words = _interpreter_words()
    given = (word.removeprefix(PROGRAM_OPTION) for word in words if word.startswith(PROGRAM_OPTION))
    program = next(given, None)
    if program is None and _is_module():
        return words
    if program is None:
        program = sys.argv[0]
        if os.path.basename(program) != PROGRAM:  # another program has us as a library
            return [PROGRAM]
    if not os.path.dirname(program):
        return [program]
    on_path = shutil.which(os.path.basename(program))
    if on_path is not None and os.path.exists(program) and os.path.samefile(on_path, program):
        return [os.path.basename(program)]
    return [program]


def _interpreter_words() -> list[str]:
    """The interpreter with its options, as ``.venv/bin/python -m snaprebuild``: everything before the arguments of the program."""
    return sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]


def _is_module() -> bool:
    """Whether ``python -m snaprebuild`` runs."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == MAIN_MODULE


def print_undo(receipt: str | None) -> None:
    """The command that takes a run back; nothing if it left no receipt."""
    if receipt is not None:
        print_command("Undo", ["undo", shown(receipt)])


def newest_run_text(run: str, receipt: str) -> str:
    """Which run ``undo --last`` takes back.

    Args:
        run: its command, with its time where that is known.
        receipt: path of its receipt.
    """
    return f"The newest run of this user on this host was {run}. Its receipt is {shown(receipt)}."


def is_verbose() -> bool:
    """Whether ``-v`` asks for everything (``begin_verb``)."""
    return logging.getLogger().isEnabledFor(logging.INFO)


def line_width() -> int:
    """Cells of a line of stdout: those of its terminal, at most ``WIDTH_MAX``."""
    if sys.stdout.isatty():
        return max(20, min(WIDTH_MAX, shutil.get_terminal_size().columns))
    return WIDTH_MAX
