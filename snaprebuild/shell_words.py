"""Words and commands as a shell reads them, in every message, document and page that names a command.

The text is one line that does nothing to a terminal. A word that cannot be printed, or is no text, is ``$'...'`` with escapes. POSIX
2024, bash and zsh read that.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

__all__ = ["absent_package_text", "option_words", "program_command", "shell_command", "shell_word"]


def program_command(words: Iterable[str]) -> str:
    """A command of this program, quoted for a shell.

    Args:
        words: the verb, and what follows it.
    """
    return shell_command(["snaprebuild", *words])


def option_words(option: str, value: object) -> list[str]:
    """An option with its value, as words of a command of this program.

    Args:
        option: with its dashes.
        value: any value. One that begins with ``-`` is in the same word as its option: else it would be taken for an option.
    """
    text = str(value)
    return [f"{option}={text}"] if text.startswith("-") else [option, text]


def shell_command(words: Iterable[str]) -> str:
    """Words as one line that a shell reads as these words."""
    return " ".join(map(shell_word, words))


def shell_word(word: str) -> str:
    """One word, quoted where a shell needs it."""
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, _bytes_of(word)))}'"


def _escaped(byte: int) -> str:
    if 0x20 <= byte < 0x7F and byte not in b"\\'":
        return chr(byte)
    return f"\\x{byte:02x}"


def _bytes_of(word: str) -> bytes:
    """The bytes of a name. A document can hold half of a character, which no name on a disk is decoded to."""
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return word.encode("utf-8", "surrogatepass")


def absent_package_text(error: ImportError) -> str:
    """The advice about a package that the program needs, and that its environment lacks."""
    package = (error.name or "").partition(".")[0]
    if not package:
        return f"this installation is incomplete: {error}. Install snaprebuild again"
    return f"this installation has no package {package}: install snaprebuild again, with its dependencies"
