"""Paths and names as a user types them: with a typing error, or with parts that the shell, or the broker, would have replaced."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from snaprebuild.errors import UsageError

__all__ = [
    "ABSENT",
    "absent_text",
    "check_new_path",
    "check_scheme",
    "did_you_mean",
    "lacks_slash",
    "unexpanded_part",
    "unexpanded_value_text",
    "with_meant",
]

ABSENT = "does not exist"
"""The text of a path of which nothing else is known."""

_PROVIDED = re.compile(r"\$\{[^{}]*\}")
_STORE = re.compile(r"s3(?::/(?!/)|//|:(?!/))(?=[a-z0-9])")
"""A location in an object store with a typing error."""
_ARN = re.compile(r"arn:aws[a-z-]*:s3:::(?=[a-z0-9])")
"""The name of a bucket, or of an object, in policies of Amazon."""
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(?!/)")
"""A URL that lacks a slash."""


def lacks_slash(path: str) -> bool:
    """Whether a path begins as a URL with one slash, such as ``s3:/bucket``."""
    return _SCHEME.match(path) is not None


def check_scheme(path: str) -> None:
    """Makes sure that a path is no misspelled URL: its scheme would be a directory here, and a run would write there.

    Args:
        path: as it was typed, to be read or written.

    Raises:
        UsageError: it is one.
    """
    first = path.partition("/")[0]
    store = _STORE.match(path) or _ARN.match(path)
    if store is not None and (lacks_slash(path) or not os.path.lexists(first)):
        raise UsageError(
            f"is no location in an object store: write s3://{path[store.end() :]}; a local path is ./{path}", path=path
        )
    if lacks_slash(path):
        # The rest may hold a password.
        raise UsageError(f"expected a path, or s3://BUCKET/PREFIX; a local path is ./{first}/...", path=f"{first}/...")


def check_new_path(path: str) -> None:
    """Makes sure that a path does not begin with something that the shell was to expand: a directory of that name would be created.

    Args:
        path: as it was typed, to be written. It may be absent. In a directory of that name it is left as it is.

    Raises:
        UsageError: the shell was to expand its beginning.
    """
    if path[:1] in ("~", "$", "'", '"') and not os.path.lexists(path.partition("/")[0]) and unexpanded_part(path) is not None:
        raise UsageError(absent_text(path), path=path)


def unexpanded_part(path: str) -> str | None:
    """The part of a path that somebody else replaces: ``~``, quotes, ``${...}`` or ``$NAME``; None without one."""
    match = _PROVIDED.search(path) or _VARIABLE.search(path)
    if match is not None:
        return match[0]
    if path.startswith("~"):
        return path.partition("/")[0]
    if path[:1] in ("'", '"') or path[-1:] in ("'", '"'):
        return path[:1] if path[:1] in ("'", '"') else path[-1:]
    return None


def absent_text(path: str) -> str:
    """The error for an argument that does not exist, and what to write instead if the shell left a part of it as it was."""
    part = unexpanded_part(path)
    if part is None:
        store = _STORE.match(path) or _ARN.match(path)
        if store is None and any(character in path for character in "*?["):
            return f"{ABSENT}: the shell replaces a pattern without quotes by the names that are there, and none is"
        if store is None:
            return f"{ABSENT}: a file of this machine is expected" if path.startswith("s3://") else ABSENT
        return f"{ABSENT}: write s3://{path[store.end() :]}"
    if part.startswith("~"):
        expanded = os.path.expanduser(path)
        instead = f": write {expanded}" if expanded != path else ""
        return f"does not exist: the shell expands {part} only at the beginning of a word without quotes{instead}"
    if part.startswith("${") and ":" in part:
        return f"does not exist: {part} names a config provider, which only the broker can ask: write the path"
    if part.startswith("$"):
        return f"does not exist: the shell replaces {part}, but not in single quotes: write the path"
    return f"does not exist: the quotes are a part of this name: write {path.strip(part)}"


def unexpanded_value_text(path: str) -> str | None:
    """Kafka's reading of a directory in its configuration that only somebody else would expand; None if nothing is to be expanded."""
    part = unexpanded_part(path)
    if part is None:
        return None
    if part.startswith("${"):
        provider = part[2:-1].partition(":")[0]
        return f"the broker replaces {part} by a value of its config provider {provider!r}, which only the broker can ask"
    if part.startswith(("~", "$")):
        return f"Kafka does not expand {part}, and takes it as the name of a directory below its working directory"
    return "Kafka takes the quotes as a part of the name"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean 'topic'?`` for the known name that is most like another one; empty if none is like it.

    Case, ``_`` and ``-`` do not count.
    """
    import difflib

    plain = {_without_marks(each): each for each in sorted(known)}
    close = difflib.get_close_matches(_without_marks(name), plain, 1)
    return f"did you mean {plain[close[0]]!r}?" if close else ""


def with_meant(text: str, name: str, known: Iterable[str]) -> str:
    """A sentence about an unknown name, with the known one that was probably meant at its end."""
    meant = did_you_mean(name, known)
    return f"{text}; {meant}" if meant else text


def _without_marks(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
