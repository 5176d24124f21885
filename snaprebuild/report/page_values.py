"""Values of documents as the script of a page reads them: members by their published names, and no number that JavaScript rounds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

__all__ = ["exact_number", "page_object"]

EXACT_NUMBER_MAX = 2**53 - 1
"""Larger numbers become text: JavaScript has doubles."""


def page_object(value: msgspec.Struct, names: Collection[str] | None = None) -> dict[str, Any]:
    """A struct as an object of the page's data, without members that are null.

    Args:
        value: of a document, or of the page.
        names: published names of the members; None for all.
    """
    members: dict[str, Any] = msgspec.to_builtins(value)
    return {name: _exact(member) for name, member in members.items() if member is not None and (names is None or name in names)}


def exact_number(value: int | None) -> int | str | None:
    """A number, as text if a double cannot hold it."""
    if value is not None and abs(value) > EXACT_NUMBER_MAX:
        return str(value)
    return value


def _exact(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return exact_number(value)
    if isinstance(value, dict):
        return {name: _exact(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(each) for each in value]
    return value
