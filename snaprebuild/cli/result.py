"""How results leave the command: JSON on stdout, tables on stdout, the story on stderr, reports to a file."""

from __future__ import annotations

import datetime
import io
import json
import logging
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import typer

from snaprebuild.cli.streams import discard, reader_may_go_away, tell
from snaprebuild.cli.table import printable, table_text
from snaprebuild.errors import RefusedError, SnaprebuildError, UsageError, WriteFailedError
from snaprebuild.findings import exit_code_of, first_of, pluralize, unread_paths

if TYPE_CHECKING:
    from snaprebuild.cli.verb import OutputOptions, Result
    from snaprebuild.findings import Finding
    from snaprebuild.snapshots.source.source import PartitionSource

__all__ = [
    "begin",
    "draws_blocks",
    "id_labels",
    "json_text",
    "labels_of",
    "leave",
    "leave_streamed",
    "print_findings",
    "print_line",
    "print_table",
    "print_text",
    "print_unread",
    "print_unread_paths",
    "shown",
    "size_text",
    "terminal_width",
    "time_text",
    "unless_unread",
    "write_report",
]

UNKNOWN_REST = "nothing found in what was read; the rest is unknown"

LINES_MAX = 60
"""Findings told without ``-v``; all of them are in the JSON."""


def unless_unread(text: str, findings: Iterable[Finding]) -> str:
    """A sentence that all is well; where something was not read, one that claims nothing."""
    return UNKNOWN_REST if unread_paths(findings) else text


def print_unread(findings: Sequence[Finding]) -> None:
    """The first line of a result, where something in the selection was not read."""
    print_unread_paths(unread_paths(findings))


def print_unread_paths(paths: Sequence[str]) -> None:
    """The same for paths; nothing without any."""
    if paths:
        names, them = first_of([shown(path) for path in paths]), "it" if len(paths) == 1 else "them"
        print_text(f"INCOMPLETE: {pluralize(len(paths), 'path')} could not be read: {names}. The result does not cover {them}.")


def json_text(document: Mapping[str, object]) -> Iterator[str]:
    """A JSON document piece by piece. A value that is an iterator becomes a list, of which one element at a time is made."""
    before = "{"
    for name, value in document.items():
        if isinstance(value, Iterator):
            yield f"{before}\n  {json.dumps(name)}: ["
            is_empty = True
            for each in value:
                yield f"{'' if is_empty else ','}\n    {_indented(each, 4)}"
                is_empty = False
            yield "]" if is_empty else "\n  ]"
        else:
            yield f"{before}\n  {json.dumps(name)}: {_indented(value, 2)}"
        before = ","
    yield "\n}\n"


def _plain(value: object) -> int | str:
    """A number of a class of its own, such as a duration, as a number; anything else by its text."""
    return int(value) if isinstance(value, int) else str(value)


def _indented(value: object, columns: int) -> str:
    import msgspec

    # In one piece: json.dump writes token by token, each a system call where stdout is unbuffered. Not msgspec.json: names of files
    # need be no UTF-8.
    return json.dumps(msgspec.to_builtins(value, enc_hook=_plain), indent=2).replace("\n", "\n" + " " * columns)


def shown(path: str) -> str:
    """A path for a person: relative where it lies below the working directory."""
    try:
        below = os.path.join(os.getcwd(), "")
    except OSError:
        return path  # the working directory was removed
    return path[len(below) :] if below != os.sep and path.startswith(below) else path


def labels_of(partitions: Iterable[PartitionSource], topic_ids: Mapping[str, bytes | None] | None = None) -> dict[str, str]:
    """What a table calls each partition, by its path: its name, or its path below the sources if several have that name.

    Args:
        partitions: all of the table.
        topic_ids: by path, None where it is unknown: a name with several ids is followed by the id.
    """
    partitions = list(partitions)
    names = Counter(partition.topic_partition for partition in partitions)
    keys = {each.directory.path: (each.directory.name.topic, (topic_ids or {}).get(each.directory.path)) for each in partitions}
    ids = id_labels(keys.values())
    return {
        partition.directory.path: (partition.topic_partition if names[partition.topic_partition] == 1 else partition.relative)
        + ids.get(keys[partition.directory.path], "")
        for partition in partitions
    }


def id_labels(topics: Iterable[tuple[str, bytes | None]]) -> dict[tuple[str, bytes | None], str]:
    """What a table puts after a partition's name, where its topic's name has several ids; nothing for others.

    Args:
        topics: name and topic id (16 bytes, None where it is unknown) of all of the table.
    """
    from formats.partition.partition_metadata import uuid_to_text

    known = {(name, topic_id) for name, topic_id in topics if topic_id is not None}
    count = Counter(name for name, _ in known)
    return {(name, topic_id): f" ({uuid_to_text(topic_id)})" for name, topic_id in known if topic_id and count[name] > 1}


def size_text(size_bytes: int) -> str:
    """A count of bytes for a person."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def time_text(ms: int) -> str:
    """A moment for a person, UTC; milliseconds where it has no date."""
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def draws_blocks() -> bool:
    """Whether stdout takes more than ASCII."""
    return sys.stdout.encoding.lower().startswith("utf")


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Prints a table to stdout; columns named in ``right`` are set flush right."""
    rule = "─" if draws_blocks() else "-"
    sys.stdout.write(table_text(title, columns, rows, right=right, width=terminal_width(), rule=rule))


def print_text(text: str) -> None:
    """Prints a paragraph to stdout: one line, which a terminal breaks between words."""
    width = terminal_width()
    text = printable(text)
    sys.stdout.write((text if width is None else textwrap.fill(text, width, break_on_hyphens=False)) + "\n")


def print_line(text: str) -> None:
    """Prints lines to stdout as they are, for somebody who copies them; what is in them must be printable."""
    sys.stdout.write(text + "\n")


def terminal_width() -> int | None:
    """Cells of the terminal that stdout is; None where it is none, and lines have any length."""
    return max(20, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def print_findings(findings: Iterable[Finding], *, notes: bool, everything: bool) -> None:
    """Prints findings to stderr, one a line and each once, the worst first; without ``everything`` no more than ``LINES_MAX``."""
    lines: Counter[str] = Counter()
    for finding in sorted(findings, key=lambda each: -each.severity):
        if notes or finding.severity:
            place = f" [offset {finding.offset}]" if finding.offset is not None else ""
            text = f"{finding.severity.name.lower()}: {shown(finding.path)}{place}: {finding.message} ({finding.code})"
            lines[printable(text)] += 1
    for number, (line, count) in enumerate(lines.items()):
        if number == LINES_MAX and not everything:
            tell(f"... and {pluralize(len(lines) - LINES_MAX, 'more finding')} (-v shows all)")
            break
        tell(line if count == 1 else f"{line} [{count} times]")


def leave(result: Result, out: OutputOptions) -> NoReturn:
    """Writes a result to the report file, to stdout and its findings to stderr, and ends the command with its exit code.

    The report comes first, because the reader of stdout may go away, which changes neither stderr nor the exit code. That the result
    cannot be written somewhere is raised last, because it must not be lost everywhere.

    Raises:
        WriteFailedError: the report, another file or stdout cannot be written.
        RefusedError: a file may no longer be written there.
        Exit: always, else.
    """

    def document() -> Mapping[str, object]:
        from snaprebuild.documents.envelope import members_of_document

        return members_of_document(result.document(), result.findings)

    def print_result() -> None:
        if out.as_json:
            sys.stdout.writelines(json_text(document()))
        else:
            if not result.names_unread:
                print_unread(result.findings)
            result.show()

    failures: list[SnaprebuildError] = []
    report = out.report
    for write in (None if report is None else lambda: write_report(report, document()), result.write):
        try:
            if write is not None:
                write()
        except (WriteFailedError, RefusedError) as error:
            failures.append(error)
    everything = out.everything or result.everything
    try:
        is_in_table = set() if out.as_json or everything else result.in_table
        told = [each for each in result.findings if each.code not in is_in_table]
        leave_streamed(
            print_result, result.findings, told=told, everything=everything, notes=result.notes or everything, failures=failures
        )
    finally:
        if result.last is not None:
            result.last()


def leave_streamed(
    write: Callable[[], None],
    findings: Sequence[Finding],
    *,
    everything: bool,
    notes: bool | None = None,
    failures: Sequence[SnaprebuildError] = (),
    told: Sequence[Finding] | None = None,
) -> NoReturn:
    """Writes a result to stdout, then its findings to stderr, and ends the command with its exit code.

    Args:
        write: prints to stdout; may still add findings. It is stopped when the reader of stdout goes away.
        findings: of the result, looked at when all is written.
        everything: tell all of them, however many.
        notes: tell notes beside them; None where ``everything`` says so.
        failures: what already went wrong; the first one is raised at the end.
        told: findings that are printed; all of them unless given.

    Raises:
        WriteFailedError: stdout cannot be written.
        Exit: always, else.
    """
    failed = list(failures)
    try:
        with reader_may_go_away(sys.stdout):
            write()
    except OSError as error:
        discard(sys.stdout)
        failed.append(WriteFailedError(f"stdout: the result cannot be printed: {error.strerror}", errno=error.errno))
    print_findings(findings if told is None else told, notes=everything if notes is None else notes, everything=everything)
    if failed:
        raise failed[0]
    raise typer.Exit(exit_code_of(findings))


def begin(verbose: int, documents: Mapping[str, str | None], **read: str | list[str] | None) -> None:
    """What every verb does first: decisions (-v) and details (-vv) go to stderr, and its documents may stand where they are wanted.

    Asked before the work, because a refusal behind it would lose the result.

    Args:
        verbose: count of -v.
        documents: paths of the report and the saved plan by their options, None for those that are not wanted.
        read: files of ours that are read, None for those that are not given: they must not be written over.

    Raises:
        UsageError: there is no such directory, or two options name one file.
        RefusedError: a document may not be written there (``check_place``).
    """
    from snaprebuild.storage.local.document_file import check_place

    named = ((name, [given] if isinstance(given, str) else given or []) for name, given in read.items())
    taken = {os.path.realpath(path): f"the {name}" for name, paths in named for path in paths}
    for option, path in documents.items():
        if path is None:
            continue
        if not path or os.path.isdir(path):
            raise UsageError(f"{option}: expected a file, found {path or 'an empty path'}")
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise UsageError(f"{option}: the directory of {path} does not exist")
        other = taken.setdefault(os.path.realpath(path), option)
        if other != option:
            raise UsageError(f"{other} and {option} name one file, {path}")
        check_place(path)
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname).1s %(message)s")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files need be no text, and a terminal need not know every character.
            stream.reconfigure(errors="backslashreplace")


def write_report(path: str, result: Mapping[str, object]) -> None:
    """Writes a report file whole, replacing an older one.

    Raises:
        WriteFailedError: it cannot be written.
    """
    from snaprebuild.storage.local.document_file import write_text_file

    write_text_file(path, json_text(result))
