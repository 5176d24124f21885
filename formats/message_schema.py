"""The schemas of Kafka's messages: which fields there are in which version, and how each is written.

They are derived from those that Kafka publishes (``formats/schemas``, made by ``scripts/kafka/release_catalogue.py``). ``formats.message``
reads and writes by them.

Source: Kafka's message generator (``org.apache.kafka.message``: ``Versions``, ``FieldSpec``), KIP-482.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec

__all__ = ["UNKNOWN_TAGGED_FIELDS", "FieldSchema", "MessageSchema", "StructSchema", "Versions", "load_schemas"]

UNKNOWN_TAGGED_FIELDS = "_unknownTaggedFields"
"""Name in a message of the tagged fields that its schema does not know: Kafka's own; no field begins with an underscore."""

VERSIONS_MAX = 0x7FFF


class Versions(msgspec.Struct, frozen=True):
    """Versions of a message, both ends included; none where ``highest`` is below ``lowest``."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        return f"{self.lowest}..{self.highest}"

    @classmethod
    def of(cls, text: str) -> Versions:
        """From Kafka's notation: ``none``, ``3``, ``0-3``, ``2+``."""
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSIONS_MAX)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))


class FieldSchema(msgspec.Struct, frozen=True, eq=False):
    """A field.

    Attributes:
        name: as Kafka prints it, with a small first letter.
        type: of the field, or of the elements where it is an array; ``struct`` for a structure.
        is_array: it is an array.
        versions: of the message, in which it exists.
        nullable: versions in which it may be null.
        tagged: versions in which it is in the tagged section.
        flexible: versions in which its lengths are compact.
        tag: its number in the tagged section.
        default: its value where it is absent.
        is_ignorable: a writer may leave out a value that the version has no room for.
        fields: of a structure.
    """

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    flexible: Versions
    tag: int | None
    default: Any
    is_ignorable: bool
    fields: StructSchema | None

    def default_value(self) -> Any:
        """A new copy of the default."""
        if self.default is None or not (self.is_array or self.type == "struct"):
            return self.default
        if self.is_array:
            return []
        assert self.fields is not None
        return self.fields.defaults()


class StructSchema(msgspec.Struct, frozen=True, eq=False):
    """A structure, or a message.

    Attributes:
        name: for messages.
        flexible: versions in which it ends with a tagged section.
        fields: in the order of the schema.
    """

    name: str
    flexible: Versions
    fields: tuple[FieldSchema, ...]

    def defaults(self) -> dict[str, Any]:
        """The fields, each with its default."""
        return {field.name: field.default_value() for field in self.fields}


class MessageSchema(msgspec.Struct, frozen=True, eq=False):
    """A message.

    Attributes:
        name: Kafka's.
        api_key: of a record or request; None where there is none.
        versions: that can be read and written.
        body: its fields.
    """

    name: str
    api_key: int | None
    versions: Versions
    body: StructSchema


@cache
def load_schemas(name: str) -> dict[str, MessageSchema]:
    """The messages of a file in ``formats/schemas``, by name.

    Args:
        name: of the file, without its suffix.
    """
    from importlib import resources  # a start of the command that reads no message goes without

    text = resources.files("formats").joinpath("schemas", f"{name}.json").read_text()
    return {message["name"]: _message_schema(message) for message in json.loads(text)["messages"]}


def _message_schema(message: dict[str, Any]) -> MessageSchema:
    flexible = Versions.of(message["flexibleVersions"])
    body = StructSchema(message["name"], flexible, tuple(_field_schema(field, flexible) for field in message["fields"]))
    return MessageSchema(message["name"], message.get("apiKey"), Versions.of(message["validVersions"]), body)


def _field_schema(field: dict[str, Any], flexible: Versions) -> FieldSchema:
    element = field["type"].removeprefix("[]")
    is_array = element != field["type"]
    name = field["name"][0].lower() + field["name"][1:]
    inner = field.get("fields")
    if inner is None:
        fields = None
    else:
        fields = StructSchema(element, flexible, tuple(_field_schema(each, flexible) for each in inner))
    kind = "struct" if fields is not None else element
    return FieldSchema(
        name=name,
        type=kind,
        is_array=is_array,
        versions=Versions.of(field.get("versions") or field["taggedVersions"]),
        nullable=Versions.of(field.get("nullableVersions", "none")),
        tagged=Versions.of(field.get("taggedVersions", "none")),
        flexible=Versions.of(field["flexibleVersions"]) if "flexibleVersions" in field else flexible,
        tag=field.get("tag"),
        default=_default(_default_text(field), kind, is_array=is_array),
        is_ignorable=field.get("ignorable", False),
        fields=fields,
    )


def _default_text(field: dict[str, Any]) -> str:
    """The default as Kafka's generator takes it: null without quotation marks is as good as none."""
    value = field.get("default")
    return "" if value is None else str(value)


def _default(text: str, kind: str, *, is_array: bool) -> Any:
    if text == "null":
        return None
    if is_array or kind == "struct":
        return ()
    if kind == "bool":
        return text == "true"
    if kind == "string":
        return text
    if kind in ("bytes", "records"):
        return b""
    if kind == "uuid":
        return bytes(16)
    if kind == "float64":
        return float(text or 0)
    return int(text or "0", 0)
