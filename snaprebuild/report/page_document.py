"""A document that a page was made from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from msgspec import structs

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.utc_time import utc_text
from snaprebuild.published import RunRecord

__all__ = ["NO_ANSWER", "PageDocument"]

NO_ANSWER = "An earlier version wrote this document: it has no first line."


@dataclass(slots=True)
class PageDocument:
    """A document that the page was made from.

    Attributes:
        name: of the file.
        schema: of its form.
        program: version that wrote it.
        facts: (name, value) lines on it.
        lacks: what it does not have that the timeline would show, sentences.
        made: when it was made, UTC; empty if the document does not have it, as in older versions. The same holds for ``host``,
            ``command`` and ``clusters`` (their ids).
        unread: paths that the run had selected and did not read.
        answer: what the command printed first, in one or two lines.
        next_command: that it printed as the next one; None for none.
        exit_code: of the command.
        counts: of its first line; None for a document without them.
    """

    name: str
    schema: str
    program: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    made: str = ""
    host: str = ""
    command: str = ""
    clusters: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    answer: str = NO_ANSWER
    next_command: str | None = None
    exit_code: int = 0
    counts: StatusCounts | None = None

    @property
    def verb(self) -> str:
        """Name of the command, words joined by dashes."""
        return self.schema.partition(".")[2].partition("/")[0]

    def take_run(self, run: RunRecord) -> None:
        """The member ``run`` of a document."""
        self.host = run.host
        self.command = run.command
        self.clusters = list(run.cluster_ids)
        self.made = utc_text(run.at_ms)

    def as_json(self) -> dict[str, object]:
        """As the page's script takes it."""
        counts = None if self.counts is None else structs.asdict(self.counts)
        return {**asdict(self), "counts": counts}
