"""Documents and files of ours as typed structs: one struct describes an object, checks it, and gives its schema."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from formats.limits import INT64_MAX
from snaprebuild.errors import UsageError

__all__ = ["Natural", "Part", "part_of"]


Natural = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
"""An offset, a size or a count."""

Struct = TypeVar("Struct")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object of a document or file of ours; members that it does not name are ignored."""


def part_of(kind: type[Struct], value: Any, *, path: str, what: str) -> Struct:
    """A JSON value as the struct (or list, dict, Annotated type) that describes it. Types are strict: no text becomes a number.

    Args:
        kind: type to which it is converted.
        value: as ``json`` decodes it.
        path: of the file.
        what: which part of the file, for the error.

    Raises:
        UsageError: it has another form; the text says where, what was expected and found.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error).replace(", got ", ", found ", 1).replace(" - at `$", " at `", 1)
        raise UsageError(f"is damaged: {what}: {text[:1].lower()}{text[1:]}", path=path) from error
