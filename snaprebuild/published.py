"""Structs that are published as JSON, in documents and in our own files: each describes an object, checks it, and gives its schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import msgspec

from formats.limits import INT32_MAX, INT64_MAX, INT64_MIN
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable as Streamed
else:
    Streamed = list

__all__ = [
    "Document",
    "EpochOrNone",
    "Inode",
    "Int64",
    "Natural",
    "OffsetOrNone",
    "Part",
    "Positive",
    "RunRecord",
    "Seconds",
    "Sha256",
    "Streamed",
    "UnexpectedValueError",
    "Uuid",
    "encoded_members",
    "line_of",
    "members_of_base",
    "one_of",
    "part_of",
]

Natural = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
"""An offset, a size or a count."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX)]

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]

Inode = Annotated[int, msgspec.Meta(ge=0)]
"""Overlay file systems use all 64 bits."""

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

OffsetOrNone = Annotated[int, msgspec.Meta(ge=-1, le=INT64_MAX)]
"""An offset or a timestamp; -1 for none, as Kafka has it."""

EpochOrNone = Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
"""A leader epoch; -1 for none."""

Uuid = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{22}$")]
"""Id of a topic or a remote segment, in the form that Kafka prints."""

Seconds = Annotated[float, msgspec.Meta(ge=0)]

Struct = TypeVar("Struct")


def one_of(*values: str) -> msgspec.Meta:
    """Limits an ``Annotated[str, ...]`` to these values. Type checkers see a ``str``."""
    return msgspec.Meta(pattern=rf"\A(?:{'|'.join(values)})\Z", extra_json_schema={"enum": list(values)})


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object of one of our documents or files; unknown members are ignored."""


class Document(Part, frozen=True):
    """The members of a JSON document between its head and its findings, which are the same for all (``documents.envelope``).

    A member of the type ``Streamed[X]`` may be an iterator: it is written element by element, and is never in memory as a whole.
    """

    NAME: ClassVar[str]
    VERSION: ClassVar[int]

    @classmethod
    def schema_id(cls) -> str:
        """``snaprebuild.NAME/VERSION``."""
        return f"snaprebuild.{cls.NAME}/{cls.VERSION}"


class RunRecord(Part, frozen=True):
    """When, where and how the document was made."""

    at_ms: Natural
    """Milliseconds since 1970."""
    host: str
    command: str
    """The command line, quoted for a shell."""
    cluster_ids: tuple[str, ...]
    """From the meta.properties files that were read."""


def encoded_members(part: Part) -> dict[str, Any]:
    """The members of an object by their JSON names, in order; values are not converted."""
    members = zip(part.__struct_encode_fields__, part.__struct_fields__, strict=True)
    return {name: value for name, field in members if (value := getattr(part, field)) is not msgspec.UNSET}


_LINE = json.JSONEncoder(separators=(",", ":"))
"""Without blanks: receipts have many lines."""


def members_of_base(kind: type[Part], part: Part) -> dict[str, Any]:
    """The fields that a struct has of its base ``kind``, as arguments of another struct with that base; values are not converted."""
    return {name: getattr(part, name) for name in kind.__struct_fields__}


def line_of(part: Part) -> str:
    """A line of a receipt, without its end. Not made by ``msgspec.json``: names of files need not be UTF-8."""
    return _LINE.encode(msgspec.to_builtins(part))


class UnexpectedValueError(ValueError):
    """Values that have the right types but contradict each other; the text has the expected and the found value."""


def part_of(kind: type[Struct], value: Any, *, path: str, what: str) -> Struct:
    """A JSON value as the struct (or list, dict, Annotated type) that describes it. Types are strict: no text becomes a number.

    Args:
        kind: type to which it is converted.
        value: as ``json`` decodes it.
        path: of the file.
        what: which part of the file, for the error.

    Raises:
        UsageError: it has another form; the text has the place, the expected and the found value.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error).replace(", got ", ", found ", 1).replace(" - at `$", " at `", 1)
        raise UsageError(f"is damaged: {what}: {text[:1].lower()}{text[1:]}", path=path) from error
