"""The command line that does the same as a call of the library: for the record of the run, and for the next command of the result."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from snaprebuild.argument_names import OPTIONS
from snaprebuild.shell_words import option_words, program_command
from snaprebuild.storage.store import USUAL_S3, S3Settings

if TYPE_CHECKING:
    import click

__all__ = ["SETTINGS", "CommandLine"]

SETTINGS = {"max_read_rate": "max_read_rate", "key_prefix": "key_prefix", "private_key": "private_key"}
"""The setting of the command for each keyword argument that is one."""

UNSAID = {"boundaries": "missing", "replay_from": "auto", "level": "full", "key_prefix": ""}
"""Values that need no word: the command has the same defaults."""

Value = str | int | bool | Sequence[str] | Sequence[int] | None


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A verb and its words.

    Attributes:
        verb: of the command, with its group.
        words: options first, then ``--`` and the paths.
    """

    verb: str
    words: tuple[str, ...]

    @classmethod
    def of(
        cls,
        verb: str,
        paths: Sequence[str],
        *,
        s3: S3Settings = USUAL_S3,
        check_crc: bool = True,
        offset_from: int | None = None,
        offset_to: int | None = None,
        engine_words: Sequence[str] = (),
        **arguments: Value,
    ) -> CommandLine:
        """The command line with these arguments; those that are None, false or empty have no words."""
        words = list(engine_words)
        for name, value in arguments.items():
            if value is None or value == UNSAID.get(name):
                continue
            if name in SETTINGS:
                words += _setting_words(SETTINGS[name], value)
            elif value is True:
                words.append(OPTIONS[name])
            elif isinstance(value, str | int) and value is not False:
                words += option_words(OPTIONS[name], value)
            elif isinstance(value, Sequence):
                words += [word for each in value for word in option_words(OPTIONS[name], each)]
        if not check_crc:
            words += ["--crc", "skip"]
        if offset_from is not None or offset_to is not None:
            begin = "" if offset_from is None else offset_from
            end = "" if offset_to is None else offset_to
            words += ["--offsets", f"{begin}:{end}"]
        words += _store_words(s3)
        return cls(verb, (*words, "--", *paths))

    def carried_out_by(self, command: CommandLine) -> CommandLine:
        """The words of a plan for the command that carries it out, with the words of that command.

        Args:
            command: without paths. Its engine counts if the plan names none.
        """
        added = list(command.words[: command.words.index("--")])
        if "--engine" in self.words and "--engine" in added:
            at = added.index("--engine")
            del added[at : at + 2]
        return CommandLine(command.verb, (*added, *self.words))

    @property
    def text(self) -> str:
        """The command for a shell."""
        words = [word for word in self.words if word != "--" or any(each.startswith("-") for each in self._paths)]
        return program_command([*self.verb.split(), *words])

    @property
    def _paths(self) -> tuple[str, ...]:
        return self.words[self.words.index("--") + 1 :]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Inside the block the views of the command take this command line for theirs."""
        import click

        from snaprebuild.cli.verb_command import PROGRAM

        *groups, name = self.verb.split()
        parent = click.Context(click.Group(PROGRAM), info_name=PROGRAM)
        for group in groups:
            parent = click.Context(click.Group(group), info_name=group, parent=parent)
        # No value is checked again: the call has done so.
        with _command(self.verb).make_context(name, list(self.words), parent=parent, resilient_parsing=True):
            yield


def _setting_words(name: str, value: Value) -> list[str]:
    """The words that give a setting, or each of its values."""
    values = [value] if isinstance(value, str | int) else list(value or ())
    return [word for each in values for word in ("--set", f"{name}={each}")]


def _store_words(s3: S3Settings) -> list[str]:
    """The words for how object stores are reached."""
    words = []
    for each in dataclasses.fields(s3):
        value = getattr(s3, each.name)
        if each.name == "run" or value == each.default:
            continue
        if each.name == "endpoint_url":
            words += ["--s3-endpoint-url", str(value)]
            continue
        name = each.name if each.name.startswith("max_") else f"s3_{each.name}"
        words += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    return words


@functools.cache
def _command(verb: str) -> click.Command:
    from snaprebuild.cli import main  # lists the verbs
    from snaprebuild.cli.verb_command import PROGRAM, VerbGroup

    assert main.app is not None
    *groups, name = verb.split()
    return VerbGroup.verbs[groups[0] if groups else PROGRAM][name].load()
