"""Completion in bash, zsh and fish: the script for the shell, and the answers it asks for. Nothing is installed or written."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from snaprebuild.errors import UsageError

__all__ = ["VARIABLE", "answer", "script"]

VARIABLE = "_SNAPREBUILD_COMPLETE"
"""Set by the script while it asks: SHELL_source for the script itself, SHELL_complete for an answer."""

PROGRAM = "snaprebuild"


class _Paths(ShellComplete):
    """Where neither a verb nor an option nor one of its values is expected, a path is."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Completions of these words."""
        items = super().get_completions(args, incomplete)
        if items or incomplete.startswith("-"):
            return items
        return [CompletionItem(incomplete, type="file")]


class _Bash(_Paths, BashComplete):
    def source(self) -> str:
        return ShellComplete.source(self)  # without starting a bash to ask for its version


class _Zsh(_Paths, ZshComplete):
    pass


class _Fish(_Paths, FishComplete):
    pass


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def _of(shell: str, group: click.Command) -> ShellComplete:
    return SHELLS[shell](group, {}, PROGRAM, VARIABLE)


def script(shell: str, group: click.Command) -> str:
    """The completion script for ``bash``, ``zsh`` or ``fish``."""
    return _of(shell, group).source()


def answer(instruction: str, group: click.Command) -> str:
    """The script or the completions that the variable asks for.

    Raises:
        UsageError: it asks for something else.
    """
    shell, _, what = instruction.partition("_")
    if shell not in SHELLS or what not in ("source", "complete"):
        kinds = ", ".join(f"{each}_source" for each in SHELLS)
        raise UsageError(f"{VARIABLE}: expected one of {kinds}; found {instruction!r}")
    return script(shell, group) if what == "source" else _of(shell, group).complete()
