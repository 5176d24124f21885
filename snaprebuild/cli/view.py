"""A result as the command line shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from snaprebuild.findings import Finding
from snaprebuild.published import Document

__all__ = ["AGAIN", "RUN_AGAIN", "Advice", "Answer", "View"]


class Advice(NamedTuple):
    """A step before the next command, which no command of this program does.

    Attributes:
        text: what somebody does, as an instruction without its stop.
        words: of the command after that, without the name of the program; empty without one.
    """

    text: str
    words: tuple[str, ...] = ()

    def before_this_again(self) -> Advice:
        """The advice where the command after it is the one that was just run."""
        return Advice(f"{self.text}, then run this command again")


AGAIN = Advice("correct what stderr lists").before_this_again()
"""Where the same command finds the same until somebody has corrected its cause."""

RUN_AGAIN = Advice("run this command again")
"""Where files were deleted or changed while the command read: there is nothing to correct."""

Answer = tuple[str, Sequence[str] | Advice]
"""The first lines of a result, and the words of the next command or an advice; no words if there is nothing to do."""


class View:
    """The result of a verb, which knows its table, its first lines and its document. The exit code follows from the findings.

    A subclass holds the result of one verb. It is defined in the module of ``cli.render`` that is named after the noun.

    Attributes:
        findings: of the result.
        prints_notes: notes go to stderr even without ``-v``.
        prints_all_findings: all findings go to stderr even without ``-v``, however many.
        codes_in_table: codes of findings that the table shows, so that stderr does not repeat them without ``-v``.
        names_unread: the answer names what was not read itself, or there is nothing to say about it.
    """

    prints_notes = False
    prints_all_findings = False
    codes_in_table: frozenset[str] = frozenset()
    names_unread = False

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = findings

    def document(self) -> Document:
        """The JSON document; made once for each place that gets it."""
        raise NotImplementedError

    def print_table(self) -> None:
        """Prints the tables to stdout."""
        raise NotImplementedError

    def answer(self) -> Answer | None:
        """The first lines of the result, and what comes next; None for a verb that only shows what there is."""
        return None

    def summary(self) -> str | None:
        """For a verb without an answer: the sentence that its table begins with, for its document."""
        return None

    def write_files(self) -> None:
        """Writes other files of the result.

        Raises:
            WriteFailedError: one cannot be written.
            RefusedError: one may not be written there.
        """

    def close(self) -> None:
        """Called when everything is written, whatever happened."""
