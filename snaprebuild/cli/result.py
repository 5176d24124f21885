"""How results leave the command: JSON on stdout, tables on stdout, the story on stderr, reports to a file."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from snaprebuild import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from snaprebuild.operations.findings import Finding

__all__ = ["console", "document", "print_findings", "print_json", "print_table", "set_verbosity", "write_report"]


def document(verb: str, version: int, body: Mapping[str, object]) -> dict[str, object]:
    """A JSON document of a verb: ``schema`` names the form (docs/json.md), which changes only with its version."""
    return {"schema": f"snaprebuild.{verb}/{version}", "snaprebuild": __version__, **body}


def print_json(result: Mapping[str, object]) -> None:
    """Prints one JSON document to stdout."""
    json.dump(result, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")


def console(*, stderr: bool = False) -> Console:
    """A rich console; without a terminal it has no colours and does not cut lines."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 200
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


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


def set_verbosity(verbose: int) -> None:
    """Sends decisions (-v) and details (-vv) to stderr."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname).1s %(message)s")


def write_report(path: str, result: Mapping[str, object]) -> None:
    """Writes a report file whole, replacing an older one.

    Raises:
        WriteFailedError: it cannot be written.
    """
    from snaprebuild.storage.small_file import write_text_file

    write_text_file(path, json.dumps(result, indent=2, default=str) + "\n")
