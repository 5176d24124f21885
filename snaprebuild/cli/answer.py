"""The sentences of a result: its first lines with the next command in the words of this command line, and its findings on stderr."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import click
from click.core import ParameterSource
from msgspec.structs import replace

from formats.partition.file_names import FileKind, parse_file_name, parse_partition_dir_name, segment_file_name
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.table import middle_cut, printable
from snaprebuild.cli.value_text import shown
from snaprebuild.cli.verb_command import setting_words
from snaprebuild.cli.view import AGAIN, RUN_AGAIN, Advice, Answer
from snaprebuild.findings import Finding, FindingCause, Severity, deleted_text, first_of, pluralize, unread_paths
from snaprebuild.shell_words import option_words, program_command

__all__ = [
    "COPIES",
    "EXPIRY",
    "NAMES_MAX",
    "SELECTION",
    "answer_and_next",
    "changed_meanwhile",
    "concern_text",
    "expiry_words",
    "failed_and_damaged",
    "given_words",
    "grouped_findings",
    "next_command_of",
    "none_read",
    "print_findings",
    "repeated_words",
    "selects_nothing",
    "skipped_text",
    "unless_unread",
    "unread_text",
]

UNKNOWN_REST = "nothing found in what was read; the rest is unknown"

SEGMENT_REMEDY = "No command repairs a segment. If another replica is in sync, fetch this partition again from it."


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
            after a correction. If all of that is damage, another run would find it again: the next command shows the damaged place.
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
    place = next((place for place in map(_damaged_place, findings) if place is not None), None)
    # After `install` a broker waits; else these two follow only where another verb has written something.
    words = list(following.words if isinstance(following, Advice) else following)
    comes_first = verb == ["install"] or (words[:1] != verb and words[:1] in (["install"], ["verify"]))
    if failed or (damaged and place is None):
        return answer, _after_correction(words, findings, is_this=words == [*verb, *repeated_words()])
    if place is not None and not comes_first:
        answer = f"{answer.rstrip()}\n{SEGMENT_REMEDY}" if place.offset is not None else answer
        return answer, [*place.words(), *setting_words()]
    if words == [*verb, *repeated_words()]:
        return answer, following.before_this_again() if isinstance(following, Advice) else AGAIN
    concerns = {each.severity for each in findings} - {Severity.NOTE}
    if not following and concerns and concerns <= {Severity.REFUSED, Severity.STORAGE}:
        return answer, AGAIN  # each refusal says what allows it
    settings = setting_words() if words else []
    if isinstance(following, Advice):
        return answer, following._replace(words=(*words, *settings))
    return answer, [*words, *settings]


def _after_correction(words: Sequence[str], findings: Iterable[Finding], *, is_this: bool) -> Advice:
    """The advice where something could not be read. A broker continues without a log directory that is offline, and so may a repair.

    Args:
        words: of the command that would follow otherwise; empty without one.
        findings: of the result, at least one about something that could not be read.
        is_this: that command is the one that was just run.
    """
    gaps = [each for each in findings if each.leaves_gap]
    if all(each.cause is FindingCause.CHANGED_MEANWHILE for each in gaps):
        return RUN_AGAIN
    unread = [each for each in gaps if each.is_unread]
    if not words or is_this or not all(each.cause is FindingCause.OFFLINE_LOG_DIR for each in unread):
        return AGAIN
    return Advice("correct what stderr lists and run this command again, or go on without it", (*words, *setting_words()))


def next_command_of(following: Sequence[str] | Advice) -> str | None:
    """The next command for a shell; None without one."""
    words = following.words if isinstance(following, Advice) else following
    return program_command(words) if words else None


class _DamagedPlace(NamedTuple):
    """A damaged file of a partition, and where ``inspect dump`` shows the damage.

    Attributes:
        file: a segment or a snapshot.
        offset: of the first damaged batch of a segment; None shows the whole file.
    """

    file: str
    offset: int | None

    def words(self) -> list[str]:
        """The command that shows the place: at most the batch before the damaged one, and the damaged one."""
        words = ["inspect", "dump", shown(self.file)]
        if self.offset is None:
            return words
        return [*words, "--offsets", f"{max(self.offset - 1, 0)}:{self.offset}"]


def _damaged_place(finding: Finding) -> _DamagedPlace | None:
    """Where a partition is damaged; None if no file of it can be shown."""
    # A file of another user has to be given to the broker: its content is no fault.
    if finding.severity != Severity.DAMAGED or finding.cause is FindingCause.NOT_READABLE_BY_BROKER:
        return None
    path = finding.path
    offset = finding.offset
    if finding.cause is FindingCause.BROKEN_BATCHES and offset is not None and os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if name.endswith(".log") and name <= segment_file_name(offset))
        return _DamagedPlace(os.path.join(path, names[-1]), offset) if names else None
    name = parse_file_name(os.path.basename(path))
    if name is None or not os.path.isfile(path):
        return None
    if name.kind is FileKind.LOG:
        return _DamagedPlace(path, offset)
    return _DamagedPlace(path, None) if name.kind is FileKind.PRODUCER_SNAPSHOT else None


SELECTION = ("paths", "server_properties", "topic", "partition", "topic_partition", "kafka_release")
"""Parameters that select partitions of log directories, and the release that starts them next, of the next command too."""

COPIES = (
    "store",
    "server_properties",
    "topic",
    "partition",
    "topic_partition",
    "metadata_log",
    "bootstrap_server",
    "command_config",
    "broker_credentials",
    "expiration_ms",
    "as_of",
    "ledger",
)
"""Parameters that name a store and select copies in it, the time at which their producers expire, and the ledger of earlier proofs."""

EXPIRY = ("as_of", "expiration_ms")
"""Parameters of the time at which producers expire: with another one the next command may judge the same snapshots otherwise."""

NOT_REPEATED = ("output", "report", "metrics", "verbose", "results", "set", "config", "impact")
"""Parameters of output, and settings, which ``print_answer`` adds."""


def given_words(*names: str) -> list[str]:
    """The words of the command line that give these parameters, and how stores are reached; for the next command.

    Args:
        names: of parameters of this verb; one that it does not have gives no word.
    """
    return _given((*names, "s3_endpoint_url"))


def expiry_words() -> list[str]:
    """The words of the command line about the time at which producers expire, for a next command that judges what this one judged."""
    return _given(EXPIRY)


def _given(names: Collection[str]) -> list[str]:
    context = click.get_current_context()
    arguments = list[str]()
    words = list[str]()
    for each in context.command.params:
        name = each.name or ""
        if name not in names or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        several = value if isinstance(value, list | tuple) else [value]
        values = [str(one) for one in several]
        if isinstance(each, click.Argument):
            arguments += [f"./{one}" if one.startswith("-") else one for one in values]  # else it would be an option
        elif isinstance(value, bool):
            words.append(each.opts[0] if value else each.secondary_opts[0])
        else:
            words += [word for one in values for word in option_words(max(each.opts, key=len), one)]
    return [*arguments, *words]


def repeated_words(*without: str) -> list[str]:
    """The words of this command line, but not those of its output options and of the parameters ``without``."""
    context = click.get_current_context()
    command = context.command
    # The file of --receipt is there after a run. RECEIPT of `undo` is an argument.
    has_receipt = command.name != "undo" and not context.params.get("dry_run")
    left_out = {*without, *NOT_REPEATED, *(["receipt"] if has_receipt else [])}
    return given_words(*(each.name or "" for each in command.params if each.name not in left_out))


# ---------------------------------------------------------------------------------------------------- findings

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
    if names:
        return f"{pluralize(len(names), 'directory', 'directories')} skipped: {first_of(names, 1)}."
    return ""


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
