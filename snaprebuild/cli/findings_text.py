"""Findings as text: their lines on stderr, and the sentences about them in an answer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from formats.partition.file_names import parse_partition_dir_name
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.table import middle_cut, printable
from snaprebuild.cli.value_text import shown
from snaprebuild.findings import Finding, FindingCause, Severity, first_of, pluralize, unread_paths

__all__ = [
    "NAMES_MAX",
    "changed_meanwhile",
    "concern_text",
    "failed_and_damaged",
    "grouped_findings",
    "print_findings",
    "skipped_text",
    "unread_text",
]


LINES_MAX = 60
"""Findings printed without ``-v``; all of them are in the JSON."""


def print_findings(findings: Iterable[Finding], *, notes: bool, everything: bool) -> None:
    """Prints findings to stderr, one line for each cause, the worst first; ``everything``: a line for each path, and any number."""
    lines: Counter[str] = Counter()
    chosen = [each for each in sorted(findings, key=lambda each: -each.severity) if notes or each.severity]
    groups = [(each, "") for each in chosen] if everything else grouped_findings(chosen)
    for finding, names in groups:
        place = f" [offset {finding.offset}]" if finding.offset is not None else ""
        whose = f": {names}" if names else ""
        text = f"{finding.severity.name.lower()}: {shown(finding.path)}{place}{whose}: {finding.message} ({finding.code})"
        lines[printable(text)] += 1
    for number, (line, count) in enumerate(lines.items()):
        if number == LINES_MAX and not everything:
            print_on_stderr(f"... and {pluralize(len(lines) - LINES_MAX, 'more finding')} (-v shows all)")
            break
        print_on_stderr(line if count == 1 else f"{line} [{count} times]")


NAME_COLUMNS = 48
"""Columns of a name in a sentence about findings."""


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
    return replace(finding, path=path)


def failed_and_damaged(findings: Iterable[Finding]) -> tuple[set[str], set[str]]:
    """Paths that could not be read, and those that were read and have wrong bytes."""
    findings = list(findings)
    failed = set(unread_paths(each for each in findings if each.severity != Severity.DAMAGED))
    return failed, set(unread_paths(findings)) - failed


def changed_meanwhile(findings: Iterable[Finding]) -> bool:
    """Whether all that could not be read was deleted or changed after it was listed: nobody has anything to correct.

    Args:
        findings: of the command, at least one about something that could not be read.
    """
    failed = (each for each in findings if each.is_unread and each.severity != Severity.DAMAGED)
    return all(each.cause is FindingCause.CHANGED_MEANWHILE for each in failed)


def unread_text(findings: Iterable[Finding], *, is_named: bool = False) -> str:
    """How many paths could not be read, or are damaged; empty if all were read. The next command says what to do about them.

    Args:
        findings: of the command.
        is_named: the answer says INCOMPLETE already.
    """
    findings = list(findings)
    begin = "" if is_named else "INCOMPLETE: "
    failed_paths, damaged_paths = failed_and_damaged(findings)
    failed = len(failed_paths)
    damaged = len(damaged_paths)
    if not failed:
        return f"{begin}{pluralize(damaged, 'path')} damaged." if damaged else ""
    besides = f", {damaged} more damaged" if damaged else ""
    reason = ": deleted or changed meanwhile" if changed_meanwhile(findings) else ""
    return f"{begin}{pluralize(failed, 'path')} could not be read{reason}{besides}."


def skipped_text(findings: Iterable[Finding]) -> str:
    """The directories that a broker set aside, and that the command left out; empty without any."""
    names = [
        middle_cut(os.path.basename(each.path), NAME_COLUMNS)
        for each in findings
        if each.cause is FindingCause.WITHOUT_CONCERN and each.severity > Severity.NOTE and not each.is_unread
    ]
    return f"{pluralize(len(names), 'directory', 'directories')} skipped: {first_of(names, 1)}." if names else ""


def concern_text(findings: Iterable[Finding], columns: int = NAME_COLUMNS) -> str:
    """How many findings are more than a note, and what the worst one is about; empty without any.

    It names no place: the table shows some findings, stderr the others, and a program has them as values.

    Args:
        findings: of a result.
        columns: of the name of a directory or a file.
    """
    concerns = sorted((each for each in findings if each.severity > Severity.NOTE), key=lambda each: -each.severity)
    if not concerns:
        return ""
    name = middle_cut(_short_name(concerns[0].path), columns)
    return f"{pluralize(len(concerns), 'finding')}: {name}."


def _short_name(path: str) -> str:
    """A topic-partition, a file with its directory, or the path of another directory."""
    _, separator, partition = path.rpartition(": ")
    if separator and partition.endswith(")"):  # a partition in remote storage, with its topic id (``RemotePartition.place``)
        return partition.partition(" ")[0]
    parent, name = os.path.split(path)
    if parse_partition_dir_name(name) is not None:
        return name
    directory = os.path.basename(parent)
    return path if parse_partition_dir_name(directory) is None else os.path.join(directory, name)
