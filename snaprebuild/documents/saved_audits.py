"""Saved documents of ``tier audit``, as ``tier repair --audit`` takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snaprebuild.documents.saved_documents import read_head, typed_members
from snaprebuild.documents.tier import TierAudit
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, ReportedFinding, Severity
from snaprebuild.replay.window import Clock
from snaprebuild.tier.repair.earlier_audit import EarlierAudit

__all__ = ["saved_audit"]

MEMBERS = ("unread_paths", "run", "elapsed_seconds", "location", "level", "as_of_ms", "expiration_ms", "partitions", "findings")


def saved_audit(path: str) -> EarlierAudit:
    """The document of an audit.

    Raises:
        UsageError: it is none, is damaged, of another version, or of a level that replays only a part.
        ReadFailedError: it cannot be read.
    """
    read_head(path, {TierAudit.NAME: TierAudit.VERSION}, older="audit again with this version")
    members: dict[str, Any] = {"partitions": [], "findings": []}
    for name, value in typed_members(path, TierAudit, MEMBERS):
        if name in ("partitions", "findings"):
            members[name].append(value)
        else:
            members[name] = value
    level = members["level"]
    if not level.replays_everything:
        raise UsageError(f"is of an audit that does not replay every segment: expected --level full, found {level}", path=path)
    began_ms = members["run"].at_ms - 1000 * members["elapsed_seconds"]
    if began_ms < 0:
        raise UsageError("is damaged: elapsed_seconds: expected a run that began after 1970", path=path)
    _refuse_doubles(path, "partitions", ((each.topic_id, each.topic, each.partition) for each in members["partitions"]))
    for each in members["partitions"]:
        _refuse_doubles(path, f"copies of {each.topic_partition}", (copy.segment_id for copy in each.copies))
    unread = set(members["unread_paths"])
    return EarlierAudit(
        path,
        members["location"],
        level,
        int(began_ms),
        Clock(members["as_of_ms"], members["expiration_ms"]),
        tuple(members["partitions"]),
        tuple(_finding(each, unread) for each in members["findings"]),
    )


def _refuse_doubles(path: str, what: str, names: Iterable[Any]) -> None:
    """Raises an error if a name occurs twice: the second verdict would take the place of the first.

    Raises:
        UsageError: it does.
    """
    seen = set()
    for name in names:
        if name in seen:
            raise UsageError(f"is damaged: {what}: expected each once, found {name} twice", path=path)
        seen.add(name)


def _finding(reported: ReportedFinding, unread: set[str]) -> Finding:
    return Finding(
        reported.code,
        Severity[reported.severity.upper()],
        reported.path,
        reported.message,
        reported.offset,
        reported.reason,
        is_unread=reported.path in unread,
    )
