"""Why a path that a user named is not there: the shell, or the broker, would have replaced a part of it."""

from __future__ import annotations

import os
import re

__all__ = ["ABSENT", "absent_text", "unexpanded_part", "unexpanded_value_text"]

ABSENT = "does not exist"
"""The text of a path of which nothing else is known."""

_PROVIDED = re.compile(r"\$\{[^{}]*\}")
_STORE = re.compile(r"s3(?::/(?!/)|//|:(?!/))(?=[a-z0-9])")
"""A location in an object store with a typing error."""
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")


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
    """That an argument of the command line does not exist, and what to write instead if the shell left a part of it as it was."""
    part = unexpanded_part(path)
    if part is None:
        store = _STORE.match(path)
        return ABSENT if store is None else f"{ABSENT}: write s3://{path[store.end() :]}"
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
    """What Kafka makes of a directory in its configuration that only somebody else would expand; None if nothing is to be expanded."""
    part = unexpanded_part(path)
    if part is None:
        return None
    if part.startswith("${"):
        provider = part[2:-1].partition(":")[0]
        return f"the broker replaces {part} by a value of its config provider {provider!r}, which only the broker can ask"
    if part.startswith(("~", "$")):
        return f"Kafka does not expand {part}, and takes it as the name of a directory below its working directory"
    return "Kafka takes the quotes as a part of the name"
