"""The members that all documents share: the head, the findings and the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from snaprebuild import __version__
from snaprebuild.broker.status import StatusCounts, StatusWord, word_with_findings
from snaprebuild.documents.common import ExitCode
from snaprebuild.findings import Finding, ReportedFinding, exit_code_of, unread_paths
from snaprebuild.published import Document, Natural, Part, Streamed, encoded_members

__all__ = ["FirstMembers", "LastMembers", "members_of_document", "reported", "with_status"]

DocumentT = TypeVar("DocumentT", bound=Document)


class FirstMembers(Part, frozen=True):
    """The first members of a document."""

    schema_id: str = msgspec.field(name="schema")
    snaprebuild: str
    """Version of the program."""
    unread: Natural
    """Selected paths that were not read, or not to their end. Nothing else in the document covers them."""
    unread_paths: Sequence[str]
    """Paths that were not read."""


class LastMembers(Part, frozen=True):
    """The last members of a document."""

    findings: Streamed[ReportedFinding]
    exit_code: ExitCode
    """Exit code of the process: the worst of 5, 3, 4, 1, 0 among the findings."""
    answer: str | None = None
    """The first one or two lines of the table; null for a command that only lists. Not stable."""
    next_command: str | None = None
    """Command of the line `Next` of the table, quoted for a shell; null for none. Not stable."""


def members_of_document(
    document: Document, findings: Sequence[Finding], answer: str | None = None, next_command: str | None = None
) -> dict[str, Any]:
    """All members of a document, in order.

    Args:
        document: the members between the head and the findings.
        findings: of the command.
        answer: what the command prints first; None for a command that only lists.
        next_command: that it prints as the next one; None without one.
    """
    exit_code = exit_code_of(findings)
    paths = unread_paths(findings)
    head = FirstMembers(schema_id=document.schema_id(), snaprebuild=__version__, unread=len(paths), unread_paths=paths)
    tail = LastMembers(findings=map(reported, findings), exit_code=exit_code, answer=answer, next_command=next_command)
    return {**encoded_members(head), **encoded_members(with_status(document, exit_code)), **encoded_members(tail)}


def with_status(document: DocumentT, exit_code: int) -> DocumentT:
    """A document whose status has the findings, too; one without a status as it is.

    Args:
        document: of a command.
        exit_code: that follows from its findings.
    """
    # `inspect explain` has a status of another kind: that of one snapshot, without counts.
    if not isinstance(getattr(document, "counts", None), StatusCounts):
        return document
    status: str = getattr(document, "status")  # noqa: B009  documents with counts have one
    word = word_with_findings(StatusWord(status), exit_code)
    return document if word == status else msgspec.structs.replace(document, status=word.value)


def reported(finding: Finding) -> ReportedFinding:
    """The finding as in documents; an offset below 0, which a damaged batch may claim, is left out."""
    return ReportedFinding(
        code=finding.code,
        severity=finding.severity.name.lower(),
        path=finding.path,
        message=finding.message,
        offset=None if finding.offset is not None and finding.offset < 0 else finding.offset,
        reason=finding.reason,
    )
