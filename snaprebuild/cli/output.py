"""Writes the result of a verb: the document or the tables to stdout, findings to stderr, reports and metrics to files."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import msgspec
import typer

from snaprebuild.cli.answer import answer_and_next, next_command_of, none_read, print_findings, selects_nothing, unread_text
from snaprebuild.cli.printing import print_answer, print_unread
from snaprebuild.cli.streams import discard, reader_may_go_away
from snaprebuild.cli.table import printable
from snaprebuild.cli.view import Answer, View
from snaprebuild.documents.envelope import members_of_document
from snaprebuild.errors import RefusedError, SnaprebuildError, WriteFailedError
from snaprebuild.findings import Finding, deleted_text, exit_code_of
from snaprebuild.storage.local.document_file import write_text_file

if TYPE_CHECKING:
    from snaprebuild.cli.verb import OutputOptions

__all__ = [
    "emit_and_exit",
    "emit_streamed_and_exit",
    "json_text",
    "members_of_view",
    "print_view",
    "printed_findings",
    "write_report",
]


def emit_and_exit(view: View, out: OutputOptions) -> NoReturn:
    """Writes a result to the report file, to stdout and its findings to stderr, and ends the command with its exit code.

    The report comes first, because the reader of stdout may go away, which changes neither stderr nor the exit code. That the result
    cannot be written somewhere is raised last, because it must not be lost everywhere.

    Raises:
        WriteFailedError: the report, another file or stdout cannot be written.
        RefusedError: a file may no longer be written there.
        Exit: always, else.
    """
    failures: list[SnaprebuildError] = []

    def exit_code() -> int:
        return failures[0].exit_code if failures else exit_code_of(view.findings)

    def print_result() -> None:
        if out.as_json:
            sys.stdout.writelines(json_text(members_of_view(view)))
        else:
            print_view(view, exit_code())

    def write_measured(path: str) -> None:
        from snaprebuild.cli.render.metrics import write_metrics

        write_metrics(path, view.document(), view.findings, time.time(), exit_code())

    report = out.report
    metrics = out.metrics_file
    writers = [view.write_files]
    if report is not None:
        writers.insert(0, lambda: write_report(report, members_of_view(view)))
    if metrics is not None:
        writers.append(lambda: write_measured(metrics))
    for write in writers:
        try:
            write()
        except (WriteFailedError, RefusedError) as error:
            failures.append(error)
    everything = out.everything or view.prints_all_findings
    try:
        emit_streamed_and_exit(
            print_result,
            view.findings,
            printed=printed_findings(view, hides_tabled=not (out.as_json or everything)),
            everything=everything,
            notes=view.prints_notes or everything,
            failures=failures,
        )
    finally:
        view.close()


def printed_findings(view: View, *, hides_tabled: bool) -> list[Finding]:
    """The findings of a result that go to stderr.

    Args:
        view: of the result.
        hides_tabled: without those that the table shows.
    """
    is_in_table = view.codes_in_table if hides_tabled else frozenset()
    return [each for each in view.findings if each.code not in is_in_table]


def members_of_view(view: View) -> Mapping[str, object]:
    """The members of the document of a result, in order."""
    answer = _answer_of(view)
    if answer is not None:
        text, following = answer_and_next(*answer, view.findings, includes_unread=view.names_unread)
        command = next_command_of(following)
        return members_of_document(view.document(), view.findings, "\n".join(map(printable, text.splitlines())), command)
    summary = view.summary()
    if summary is not None:
        summary = f"{deleted_text(view.findings)}{unread_text(view.findings)} {summary}".lstrip()
    return members_of_document(view.document(), view.findings, summary)


def _answer_of(view: View) -> Answer | None:
    """The answer of a view; without one, that nothing is selected, if that is so."""
    answer = view.answer()
    if answer is None and selects_nothing(view.findings):
        return none_read(view.findings)
    return answer


def print_view(view: View, exit_code: int) -> None:
    """Prints a result to stdout: its first lines and its tables."""
    answer = _answer_of(view)
    if answer is not None:
        print_answer(*answer_and_next(*answer, view.findings, includes_unread=view.names_unread), exit_code)
        if view.answer() is None:
            return  # the table would be one of nothing
    elif not view.names_unread:
        print_unread(view.findings)
    view.print_table()


def emit_streamed_and_exit(
    write: Callable[[], None],
    findings: Sequence[Finding],
    *,
    everything: bool,
    notes: bool | None = None,
    failures: Sequence[SnaprebuildError] = (),
    printed: Sequence[Finding] | None = None,
) -> NoReturn:
    """Writes a result to stdout, then its findings to stderr, and ends the command with its exit code.

    Args:
        write: prints to stdout; may still add findings. It is stopped when the reader of stdout goes away.
        findings: of the result, looked at when all is written.
        everything: print all of them, however many.
        notes: print notes, too; None for the value of ``everything``.
        failures: what already went wrong; the first one is raised at the end.
        printed: findings that are printed; all of them unless given.

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
    if printed is None:
        printed = findings
    if notes is None:
        notes = everything
    print_findings(printed, notes=notes, everything=everything)
    if failed:
        raise failed[0]
    raise typer.Exit(exit_code_of(findings))


def write_report(path: str, result: Mapping[str, object]) -> None:
    """Writes a report file whole, replacing an older one.

    Raises:
        WriteFailedError: it cannot be written.
    """
    write_text_file(path, json_text(result))


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
    # In one piece: json.dump writes token by token, each a system call where stdout is unbuffered. Not msgspec.json: names of files
    # need be no UTF-8.
    return json.dumps(msgspec.to_builtins(value, enc_hook=_plain), indent=2).replace("\n", "\n" + " " * columns)
