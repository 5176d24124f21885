"""Findings with one cause in one line: 52 partitions with the same fault are one thing to do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from snaprebuild.findings import Finding, first_of, pluralize

__all__ = ["NAMES_MAX", "grouped_findings"]

NAMES_MAX = 3
"""Paths with one cause that have a line each; more are one line with the first names."""


def grouped_findings(findings: Iterable[Finding]) -> Iterator[tuple[Finding, str]]:
    """The findings in their order, with the names of all that have the same cause; the names are empty for a single one.

    Args:
        findings: of a result.
    """
    by_cause: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        cause = (finding.severity, finding.code, finding.message, finding.offset, finding.reason)
        by_cause.setdefault(cause, []).append(finding)
    for group in by_cause.values():
        paths = list(dict.fromkeys(each.path for each in group))
        if len(paths) <= NAMES_MAX:
            yield from ((each, "") for each in group)
            continue
        common = os.path.commonpath(paths) if all(os.path.isabs(each) for each in paths) else ""
        names = first_of([os.path.relpath(each, common) if common else each for each in paths], NAMES_MAX)
        yield _at(group[0], common or group[0].path), f"{pluralize(len(paths), 'path')} ({names})"


def _at(finding: Finding, path: str) -> Finding:
    from msgspec.structs import replace

    return replace(finding, path=path)
