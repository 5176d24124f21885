"""A document on a page: which command wrote it, with its first lines and what it lacks."""

from __future__ import annotations

import os

import msgspec

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.saved_documents import DocumentHead
from snaprebuild.published import RunRecord
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS

__all__ = ["NO_ANSWER", "PageDocument"]

NO_ANSWER = "An earlier version wrote this document: it has no first line."


class PageDocument(msgspec.Struct):
    """A document that the page was made from.

    Attributes:
        name: of the file.
        schema: schema id.
        snaprebuild: version that wrote it.
        facts: (name, value) lines on it.
        lacks: what it does not have that the timeline would show, sentences.
        run: when, where and how it was made; None if the document does not have it.
        unread_paths: paths that the run had selected and did not read.
        answer: what the command printed first, in one or two lines.
        next_command: that it printed as the next one; None for none.
        exit_code: of the command.
        counts: of its first line; None for a document without them.
        origin: host of its run, where a page has documents of several hosts and equal paths are of different brokers; else empty.
        as_of_ms: the time at which its transactions are late, or producers expire, ms since 1970; None for a document without it.
        expiration_ms: how long an idle producer is remembered, where it is not Kafka's default; None for the default.
    """

    name: str
    schema: str
    snaprebuild: str
    facts: list[tuple[str, str]] = msgspec.field(default_factory=list)
    lacks: list[str] = msgspec.field(default_factory=list)
    run: RunRecord | None = None
    unread_paths: list[str] = msgspec.field(default_factory=list)
    answer: str = NO_ANSWER
    next_command: str | None = None
    exit_code: int = 0
    counts: StatusCounts | None = None
    origin: str = ""
    as_of_ms: int | None = None
    expiration_ms: int | None = None

    @classmethod
    def of(cls, head: DocumentHead, *lacks: str) -> PageDocument:
        """The document that a file begins.

        Args:
            head: of the file.
            lacks: sentences.
        """
        return cls(os.path.basename(head.path), head.schema, head.snaprebuild, lacks=list(lacks))

    @property
    def verb(self) -> str:
        """Name of the command, words joined by dashes."""
        return self.schema.partition(".")[2].partition("/")[0]

    @property
    def expiry_words(self) -> list[str]:
        """Options of the time at which producers expired in its run, for a command that judges as this one did."""
        words = []
        options = [] if self.run is None else [word.partition("=")[0] for word in self.run.command.split()]
        if "--as-of" in options and self.as_of_ms is not None:
            words += ["--as-of", str(self.as_of_ms)]
        if self.expiration_ms is not None:
            words += ["--expiration-ms", str(self.expiration_ms)]
        return words

    def take_expiration(self, expiration_ms: int) -> None:
        """Takes how long the run remembered an idle producer."""
        if expiration_ms != DEFAULT_EXPIRATION_MS:
            self.expiration_ms = expiration_ms
