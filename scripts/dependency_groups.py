"""Prints the requirements of a dependency group of pyproject.toml (PEP 735), one a line.

A pip older than 25.1 has no ``--group``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["requirements"]

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(groups: Mapping[str, list[Any]], name: str, within: tuple[str, ...] = ()) -> Iterator[str]:
    """Requirements of a group and of the groups that it includes.

    Args:
        groups: the table ``dependency-groups``.
        name: of the group.
        within: groups that include this one.

    Raises:
        ValueError: there is no such group, it includes itself, or an entry is neither a requirement nor ``include-group``.
    """
    normalized = _normalized(name)
    entries_by_name = {_normalized(each): entries for each, entries in groups.items()}
    if normalized not in entries_by_name:
        raise ValueError(f"no dependency group {name!r}")
    if normalized in within:
        raise ValueError(f"dependency group {name!r} includes itself")
    for entry in entries_by_name[normalized]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict) and list(entry) == ["include-group"]:
            yield from requirements(groups, entry["include-group"], (*within, normalized))
        else:
            raise ValueError(f"dependency group {name!r}: {entry!r} is no requirement")


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(*requirements(tomllib.loads(PROJECT.read_text())["dependency-groups"], sys.argv[1]), sep="\n")
