"""How results leave the command: JSON on stdout, tables on stdout, the story on stderr, reports to a file."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from snaprebuild import __version__
from snaprebuild.errors import WriteFailedError

if TYPE_CHECKING:
    from rich.console import Console

    from snaprebuild.operations.findings import Finding
    from snaprebuild.operations.source import PartitionSource

__all__ = [
    "begin",
    "console",
    "document",
    "labels_of",
    "leave",
    "print_findings",
    "print_json",
    "print_table",
    "shown",
    "size_text",
    "write_report",
]


def document(verb: str, version: int, body: Mapping[str, object]) -> dict[str, object]:
    """A JSON document of a verb: ``schema`` names the form (docs/json.md), which changes only with its version."""
    return {"schema": f"snaprebuild.{verb}/{version}", "snaprebuild": __version__, **body}


def print_json(result: Mapping[str, object]) -> None:
    """Prints one JSON document to stdout."""
    # In one piece: json.dump writes token by token, each a system call where stdout is unbuffered.
    sys.stdout.write(json.dumps(result, indent=2, default=str) + "\n")
    sys.stdout.flush()  # a reader that went away is met here, where it is expected, and not when the interpreter ends


def shown(path: str) -> str:
    """A path for a person: relative where it lies below the working directory."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def labels_of(partitions: Iterable[PartitionSource]) -> dict[str, str]:
    """What a table calls each partition, by its path: its name, or where it lies below the sources if several have that name."""
    partitions = list(partitions)
    names = Counter(partition.topic_partition for partition in partitions)
    return {
        partition.directory.path: partition.topic_partition if names[partition.topic_partition] == 1 else partition.relative
        for partition in partitions
    }


def size_text(size_bytes: int) -> str:
    """A count of bytes for a person."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def console(*, stderr: bool = False) -> Console:
    """A rich console; without a terminal it has no colours and does not cut lines."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        # Names of files need be no text, and a terminal need not know every character of a table.
        stream.reconfigure(errors="backslashreplace")
    width = None if stream.isatty() else 200
    # Names of files are shown as they are: a bracket is no markup and a word between colons no emoji.
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """Prints a table to stdout; columns named in ``right`` are set flush right."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console().print(table)


def print_findings(findings: Iterable[Finding], *, notes: bool = True) -> None:
    """Prints findings to stderr, one a line, the worst first."""
    for finding in sorted(findings, key=lambda each: -each.severity):
        if notes or finding.severity:
            place = f" [offset {finding.offset}]" if finding.offset is not None else ""
            typer.echo(f"{finding.severity.name.lower()}: {finding.path}{place}: {finding.message} ({finding.code})", err=True)


def leave(
    result: Mapping[str, object],
    findings: Sequence[Finding],
    *,
    as_json: bool,
    show: Callable[[], None],
    report: str | None,
    notes: bool,
) -> NoReturn:
    """Hands a result out, to the report file, stdout and stderr, and ends the command with its exit code.

    The report comes first, because the reader of stdout may go away; that it cannot be written is told last, because the result must not
    be lost with it.

    Raises:
        WriteFailedError: the report cannot be written.
        Exit: always, else.
    """
    from snaprebuild.operations.findings import exit_code_of

    failure: WriteFailedError | None = None
    if report is not None:
        try:
            write_report(report, result)
        except WriteFailedError as error:
            failure = error
    if as_json:
        print_json(result)
    else:
        show()
    print_findings(findings, notes=notes)
    if failure is not None:
        raise failure
    raise typer.Exit(exit_code_of(findings))


def begin(verbose: int, *documents: str | None) -> None:
    """What every verb does first: decisions (-v) and details (-vv) go to stderr, and its documents may stand where they are wanted.

    Asked before the work, because a refusal behind it would lose the result.

    Args:
        verbose: count of -v.
        documents: paths of the report and the saved plan, None for those that are not wanted.

    Raises:
        RefusedError: a document may not be written there (``check_place``).
    """
    from snaprebuild.storage.small_file import check_place

    for path in documents:
        if path is not None:
            check_place(path)
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname).1s %(message)s")


def write_report(path: str, result: Mapping[str, object]) -> None:
    """Writes a report file whole, replacing an older one.

    Raises:
        WriteFailedError: it cannot be written.
    """
    from snaprebuild.storage.small_file import write_text_file

    write_text_file(path, (json.dumps(result, indent=2, default=str), "\n"))
