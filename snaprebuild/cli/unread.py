"""The sentence of a result about what could not be read."""

from __future__ import annotations

from collections.abc import Iterable

from snaprebuild.findings import Finding, Severity, pluralize, unread_paths

__all__ = ["failed_and_damaged", "unread_text"]


def failed_and_damaged(findings: Iterable[Finding]) -> tuple[set[str], set[str]]:
    """Paths that could not be read, and those that were read and have wrong bytes."""
    findings = list(findings)
    failed = set(unread_paths(each for each in findings if each.severity != Severity.DAMAGED))
    return failed, set(unread_paths(findings)) - failed


def unread_text(findings: Iterable[Finding]) -> str:
    """How many paths could not be read, or are damaged; empty if all were read."""
    failed, damaged = map(len, failed_and_damaged(findings))
    if not failed:
        return f"INCOMPLETE: {pluralize(damaged, 'path')} damaged; stderr shows where." if damaged else ""
    besides = f", {damaged} more damaged" if damaged else ""
    return f"INCOMPLETE: {pluralize(failed, 'path')} could not be read{besides}: correct what stderr lists."
