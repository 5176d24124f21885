"""The first lines of a result: what was not read, the answer, and the next command with the words of this command line."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import click
from click.core import ParameterSource

from formats.partition.file_names import FileKind, parse_file_name, segment_file_name
from snaprebuild.cli.findings_text import failed_and_damaged, skipped_text, unread_text
from snaprebuild.cli.value_text import shown
from snaprebuild.cli.verb_command import setting_words
from snaprebuild.cli.view import AGAIN, RUN_AGAIN, Advice, Answer
from snaprebuild.findings import Finding, FindingCause, Severity, deleted_text, unread_paths
from snaprebuild.shell_words import option_words, program_command

__all__ = [
    "COPIES",
    "EXPIRY",
    "SELECTION",
    "answer_and_next",
    "expiry_words",
    "given_words",
    "next_command_of",
    "none_read",
    "repeated_words",
    "selects_nothing",
    "unless_unread",
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
