"""How results leave the command: JSON on stdout, tables on stdout, progress and findings on stderr, reports to a file."""

from __future__ import annotations

import datetime
import io
import json
import logging
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec
import typer
from msgspec.structs import replace

from formats.partition.file_names import FileKind, parse_file_name, parse_partition_dir_name, segment_file_name
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cli.command_words import COPIES, SELECTION, given_words, repeated_words
from snaprebuild.cli.loading import end_loading
from snaprebuild.cli.streams import discard, print_on_stderr, reader_may_go_away
from snaprebuild.cli.table import ROWS_MAX, WIDTH_MAX, middle_cut, paragraph, printable, table_text
from snaprebuild.cli.verb_command import setting_words
from snaprebuild.cli.view import AGAIN, Advice, Answer, View
from snaprebuild.documents.envelope import members_of_document
from snaprebuild.errors import RefusedError, SnaprebuildError, UsageError, WriteFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, deleted_text, exit_code_of, first_of, pluralize, unread_paths
from snaprebuild.shell_words import program_command
from snaprebuild.storage.local.document_file import check_place, write_text_file

if TYPE_CHECKING:
    from snaprebuild.cli.verb import OutputOptions
    from snaprebuild.snapshots.source.source import PartitionSource

__all__ = [
    "COPIES",
    "NAMES_MAX",
    "SELECTION",
    "answer_and_next",
    "begin",
    "concern_text",
    "draws_blocks",
    "emit_and_exit",
    "emit_streamed_and_exit",
    "failed_and_damaged",
    "given_words",
    "grouped_findings",
    "id_labels",
    "is_verbose",
    "json_text",
    "labels_of",
    "line_width",
    "members_of_view",
    "newest_run_text",
    "print_command",
    "print_findings",
    "print_line",
    "print_table",
    "print_text",
    "print_undo",
    "print_view",
    "printed_findings",
    "repeated_words",
    "selects_nothing",
    "shown",
    "size_text",
    "skipped_text",
    "time_text",
    "unless_unread",
    "unread_text",
    "write_report",
]

UNKNOWN_REST = "nothing found in what was read; the rest is unknown"
LINES_MAX = 60
"""Findings printed without ``-v``; all of them are in the JSON."""


def unless_unread(text: str, findings: Iterable[Finding]) -> str:
    """A sentence that all is well; where something was not read, one that claims nothing."""
    return UNKNOWN_REST if unread_paths(findings) else text


def none_read(findings: Sequence[Finding], *, are_named: bool = False) -> Answer:
    """The answer without a partition, and what comes next. Another line names the paths that were not read.

    Args:
        findings: of the command.
        are_named: another sentence says what they are about.
    """
    if not findings:
        return "No partition is here: this broker has not started yet.", Advice("run this command again after its first start")
    pointer = "" if are_named or unread_paths(findings) else " stderr shows why."
    if given_words("topic", "partition", "topic_partition"):
        return f"No partition was read.{pointer}", ["scan", *given_words("paths", "path", "directory", "server_properties")]
    return f"No partition was read.{pointer}", Advice("name a log directory, or a directory above it")


def selects_nothing(findings: Iterable[Finding]) -> bool:
    """Whether no partition is at the paths, or none is selected: a result without a partition says nothing about one."""
    return any(finding.cause is FindingCause.NOTHING_FOUND and finding.severity is not Severity.NOTE for finding in findings)


def answer_and_next(
    answer: str, following: Sequence[str] | Advice, findings: Iterable[Finding], *, includes_unread: bool = False
) -> tuple[str, Sequence[str] | Advice]:
    """The first lines of a result, and the words of its next command; no words where no command follows.

    The next command is never this one with the same arguments: it would find the same.

    Args:
        answer: lines of sentences.
        following: words of the command, without the name of the program, or an advice; empty if there is nothing to do. The settings
            of this command line are added.
        findings: of the result. If something was not read, the answer begins with that, and the advice is to run the command again
            after a correction. If all of that is damage, another run would find it again: the next command shows the damaged file.
            Where something was written, the broker may start, or ``verify`` comes first.
        includes_unread: the answer has what was not read, and what was deleted, itself.
    """
    findings = list(findings)
    verb = click.get_current_context().command_path.split()[1:]
    failed, damaged = failed_and_damaged(findings)
    if not includes_unread:
        answer = deleted_text(findings) + f"{unread_text(findings)} {answer}".lstrip()
        first, _, rest = answer.partition("\n")
        answer = "\n".join(filter(None, (f"{first} {skipped_text(findings)}".rstrip(), rest)))
    file = next((file for file in map(_damaged_file, findings) if file is not None), None)
    # After `install` a broker waits; else these two follow only where another verb has written something.
    words = list(following.words if isinstance(following, Advice) else following)
    comes_first = verb == ["install"] or (words[:1] != verb and words[:1] in (["install"], ["verify"]))
    if failed or (damaged and file is None):
        return answer, AGAIN
    if file is not None and not comes_first:
        return answer, ["inspect", "dump", shown(file), *setting_words()]
    if words == [*verb, *repeated_words()]:
        return answer, following.before_this_again() if isinstance(following, Advice) else AGAIN
    settings = setting_words() if words else []
    if isinstance(following, Advice):
        return answer, following._replace(words=(*words, *settings))
    return answer, [*words, *settings]


def next_command_of(following: Sequence[str] | Advice) -> str | None:
    """The next command for a shell; None without one."""
    words = following.words if isinstance(following, Advice) else following
    return program_command(words) if words else None


def print_answer(answer: str, following: Sequence[str] | Advice, exit_code: int) -> None:
    """Prints the first lines of a result: the answer, and the next command.

    Args:
        answer: lines of sentences.
        following: words of the command, without the name of the program, or an advice; empty without one.
        exit_code: of the command, unless stdout fails: that of the findings, or of another file that could not be written.
    """
    for line in answer.splitlines():
        print_text(line)
    if isinstance(following, Advice):
        command = next_command_of(following)
        print_line(f"Next: {printable(following.text)}{'.' if command is None else f', then: {command}'}")
    elif following:
        print_command("Next", following)
    else:
        # Only here: with exit code 0 everything was read, and nothing is suspect.
        print_text("Next: nothing to do." if exit_code == 0 else "Next: no command corrects this; see what stderr lists.")
    print_line("")


def print_unread(findings: Iterable[Finding]) -> None:
    """The first line of a result without an answer, if something in the selection was not read or is gone."""
    findings = list(findings)
    count = len(unread_paths(findings))
    unread = f"{unread_text(findings)} The result does not cover {'it' if count == 1 else 'them'}." if count else ""
    if text := unread + deleted_text(findings):
        print_text(text.rstrip())


def _damaged_file(finding: Finding) -> str | None:
    """The file of a partition that is damaged, for ``inspect dump``."""
    # A file of another user has to be given to the broker: its content is no fault.
    if finding.severity != Severity.DAMAGED or finding.cause is FindingCause.NOT_READABLE_BY_BROKER:
        return None
    path = finding.path
    offset = finding.offset
    if finding.cause is FindingCause.BROKEN_BATCHES and offset is not None and os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if name.endswith(".log") and name <= segment_file_name(offset))
        return os.path.join(path, names[-1]) if names else None
    name = parse_file_name(os.path.basename(path))
    can_be_shown = name is not None and name.kind in (FileKind.LOG, FileKind.PRODUCER_SNAPSHOT)
    return path if can_be_shown and os.path.isfile(path) else None


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


def shown(path: str) -> str:
    """A path for a person: relative if it is below the working directory."""
    try:
        below = os.path.join(os.getcwd(), "")
    except OSError:
        return path  # the working directory was removed
    if below == os.sep or not path.startswith(below):
        return path
    relative = path[len(below) :]
    return f"./{relative}" if relative.startswith("-") else relative  # it may be a word of the next command


def labels_of(partitions: Iterable[PartitionSource], topic_ids: Mapping[str, bytes | None] | None = None) -> dict[str, str]:
    """What a table calls each partition, by its path: its name, or its path below the sources if several have that name.

    Args:
        partitions: all of the table.
        topic_ids: by path, None where it is unknown: a name with several ids is followed by the id.
    """
    partitions = list(partitions)
    names = Counter(partition.directory.topic_partition for partition in partitions)
    keys = {each.directory.path: (each.directory.name.topic, (topic_ids or {}).get(each.directory.path)) for each in partitions}
    ids = id_labels(keys.values())
    return {
        partition.directory.path: (
            partition.directory.topic_partition if names[partition.directory.topic_partition] == 1 else partition.relative
        )
        + ids.get(keys[partition.directory.path], "")
        for partition in partitions
    }


def id_labels(topics: Iterable[tuple[str, bytes | None]]) -> dict[tuple[str, bytes | None], str]:
    """What a table puts after a partition's name, where its topic's name has several ids; nothing for others.

    Args:
        topics: name and topic id (16 bytes, None where it is unknown) of all of the table.
    """
    known = {(name, topic_id) for name, topic_id in topics if topic_id is not None}
    count = Counter(name for name, _ in known)
    return {(name, topic_id): f" ({uuid_to_text(topic_id)})" for name, topic_id in known if topic_id and count[name] > 1}


def size_text(size_bytes: int) -> str:
    """A count of bytes for a person."""
    value = float(size_bytes)
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value = value / 1024
        unit = larger
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def time_text(ms: int) -> str:
    """A moment for a person, UTC; milliseconds where it has no date."""
    try:
        return f"{datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%SZ}"
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def draws_blocks() -> bool:
    """Whether stdout takes more than ASCII."""
    # A stream in memory has no encoding, and takes everything.
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def print_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
    all_rows: bool = False,
) -> None:
    """Prints a table to stdout within the width; ``-v`` prints all rows. ``table_text`` describes the arguments.

    Args:
        title: above the table, or None.
        columns: their names.
        rows: one cell for each column; the worst row first.
        right: names of columns that are flush right.
        drop: columns that a narrow terminal does without, the least important first.
        all_rows: without ``-v`` too.
    """
    rows_max = sys.maxsize if all_rows or is_verbose() else ROWS_MAX
    rule = "─" if draws_blocks() else "-"
    _print(table_text(title, columns, rows, right=right, drop=drop, width=line_width(), rows_max=rows_max, rule=rule))


def print_text(text: str, indent: str = "") -> None:
    """Prints a paragraph to stdout; ``indent`` is that of all lines but the first."""
    _print(paragraph(text, line_width(), indent) + "\n")


def _print(text: str) -> None:
    sys.stdout.write(text if draws_blocks() else text.replace("…", "~"))


def print_line(text: str) -> None:
    """Prints lines to stdout as they are, for somebody who copies them; what is in them must be printable."""
    sys.stdout.write(text + "\n")


def print_command(label: str, words: Sequence[str]) -> None:
    """Prints a command of this program, however long, on one line: a line break would change it."""
    print_line(f"{label}: {program_command(words)}")


def print_undo(receipt: str | None) -> None:
    """The command that takes a run back; nothing if it left no receipt."""
    if receipt is not None:
        print_command("Undo", ["undo", shown(receipt)])


def newest_run_text(run: str, receipt: str) -> str:
    """Which run ``undo --last`` takes back: the newest that it sees, which need not be the last one.

    Args:
        run: its command, with its time where that is known.
        receipt: path of its receipt.
    """
    return (
        f"The newest run with a receipt in the default place was {run}. Its receipt is {shown(receipt)}.\n"
        "A run whose receipt `--receipt` put elsewhere is not seen."
    )


def is_verbose() -> bool:
    """Whether ``-v`` asks for everything (``begin``)."""
    return logging.getLogger().isEnabledFor(logging.INFO)


def line_width() -> int:
    """Cells of a line of stdout: those of its terminal, at most ``WIDTH_MAX``."""
    return max(20, min(WIDTH_MAX, shutil.get_terminal_size().columns)) if sys.stdout.isatty() else WIDTH_MAX


def print_findings(findings: Iterable[Finding], *, notes: bool, everything: bool) -> None:
    """Prints findings to stderr, one line for each cause, the worst first; ``everything``: a line for each path, and any number."""
    lines: Counter[str] = Counter()
    chosen = [each for each in sorted(findings, key=lambda each: -each.severity) if notes or each.severity]
    for finding, names in ((each, "") for each in chosen) if everything else grouped_findings(chosen):
        place = f" [offset {finding.offset}]" if finding.offset is not None else ""
        whose = f": {names}" if names else ""
        text = f"{finding.severity.name.lower()}: {shown(finding.path)}{place}{whose}: {finding.message} ({finding.code})"
        lines[printable(text)] += 1
    for number, (line, count) in enumerate(lines.items()):
        if number == LINES_MAX and not everything:
            print_on_stderr(f"... and {pluralize(len(lines) - LINES_MAX, 'more finding')} (-v shows all)")
            break
        print_on_stderr(line if count == 1 else f"{line} [{count} times]")


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
    return none_read(view.findings) if answer is None and selects_nothing(view.findings) else answer


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
    print_findings(findings if printed is None else printed, notes=everything if notes is None else notes, everything=everything)
    if failed:
        raise failed[0]
    raise typer.Exit(exit_code_of(findings))


def begin(verbose: int, documents: Mapping[str, str | None], **read: str | list[str] | None) -> None:
    """What every verb does first: decisions (-v) and details (-vv) go to stderr, and its documents may be written where they are wanted.

    Checked before the work: a later refusal would lose the result.

    Args:
        verbose: count of -v.
        documents: paths of the report and the saved plan by their options, None for those that are not wanted.
        read: files of ours that are read, None for those that are not given: they must not be written over.

    Raises:
        UsageError: there is no such directory, or two options name one file.
        RefusedError: a document may not be written there (``check_place``).
    """
    end_loading()
    inputs = ((name, [value] if isinstance(value, str) else value or []) for name, value in read.items())
    users = {os.path.realpath(path): f"the {name}" for name, paths in inputs for path in paths}
    for option, path in documents.items():
        if path is None:
            continue
        if not path or os.path.isdir(path):
            raise UsageError(f"{option}: expected a file, found {path or 'an empty path'}")
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise UsageError(f"{option}: the directory of {path} does not exist")
        other = users.setdefault(os.path.realpath(path), option)
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
    write_text_file(path, json_text(result))


# --------------------------------------------------------------------------------------------------------- findings as text

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


def unread_text(findings: Iterable[Finding], *, is_named: bool = False) -> str:
    """How many paths could not be read, or are damaged; empty if all were read.

    Args:
        findings: of the command.
        is_named: the answer says INCOMPLETE already.
    """
    begin = "" if is_named else "INCOMPLETE: "
    failed_paths, damaged_paths = failed_and_damaged(findings)
    failed = len(failed_paths)
    damaged = len(damaged_paths)
    if not failed:
        return f"{begin}{pluralize(damaged, 'path')} damaged; stderr shows where." if damaged else ""
    besides = f", {damaged} more damaged" if damaged else ""
    return f"{begin}{pluralize(failed, 'path')} could not be read{besides}: correct what stderr lists."


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

    Args:
        findings: of a result.
        columns: of the name of a directory or a file.
    """
    concerns = sorted((each for each in findings if each.severity > Severity.NOTE), key=lambda each: -each.severity)
    if not concerns:
        return ""
    name = middle_cut(_short_name(concerns[0].path), columns)
    return f"{pluralize(len(concerns), 'finding')}, see stderr: {name}."


def _short_name(path: str) -> str:
    """A topic-partition, a file with its directory, or the path of another directory."""
    parent, name = os.path.split(path)
    if parse_partition_dir_name(name) is not None:
        return name
    directory = os.path.basename(parent)
    return path if parse_partition_dir_name(directory) is None else os.path.join(directory, name)
