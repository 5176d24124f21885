"""Kafka's messages as JSON, as its tools print them and ``quorum-state`` holds them.

Integers are numbers, uuids their text, ``bytes`` and ``records`` base64, arrays lists, structures objects, null null. Kafka's tools
print the size of records and not the records: ``with_record_sizes``.
A tagged field at its default is left out. Fields of an object that its version does not have are ignored, as Kafka does, so that
newer releases can be read.

Source: Kafka's message generator (``org.apache.kafka.message.JsonConverterGenerator``).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from formats.errors import BadValueError, BadVersionError
from formats.message import Message
from formats.message_schema import FieldSchema, MessageSchema, StructSchema
from formats.partition.partition_metadata import uuid_from_text, uuid_to_text
from formats.text_lines import shown, shown_json

__all__ = ["message_from_json", "message_to_json"]

_INTEGERS = {
    "int8": range(-(1 << 7), 1 << 7),
    "int16": range(-(1 << 15), 1 << 15),
    "uint16": range(1 << 16),
    "int32": range(-(1 << 31), 1 << 31),
    "uint32": range(1 << 32),
    "int64": range(-(1 << 63), 1 << 63),
}


def message_to_json(schema: MessageSchema, message: Message, version: int, *, with_record_sizes: bool = False) -> dict[str, Any]:
    """The fields that a version has, as values that ``json`` writes.

    Args:
        schema: of the message.
        message: the fields by name, from ``read_message``; fields that it does not name have their defaults.
        version: of the message.
        with_record_sizes: for ``records`` write their size in bytes, as ``recordsSizeInBytes``.

    Raises:
        BadVersionError: the schema does not have this version.
    """
    _check_version(schema, version)
    return _struct_to_json(schema.body, message, version, with_record_sizes)


def _struct_to_json(schema: StructSchema, message: Message, version: int, with_record_sizes: bool) -> dict[str, Any]:
    values = {**schema.defaults(), **message}
    content: dict[str, Any] = {}
    for field in schema.fields:
        value = values[field.name]
        if version not in field.versions:
            continue
        if version in field.tagged and _is_default(field, value):
            continue
        if with_record_sizes and field.type == "records" and value is not None:
            content[f"{field.name}SizeInBytes"] = len(value)
        else:
            content[field.name] = _to_json(field, value, version, with_record_sizes)
    return content


def _is_default(field: FieldSchema, value: Any) -> bool:
    if field.fields is None or field.is_array or value is None:
        return bool(value == field.default_value())
    return bool({**field.fields.defaults(), **value} == field.default_value())


def _to_json(field: FieldSchema, value: Any, version: int, with_record_sizes: bool) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_element_to_json(field, each, version, with_record_sizes) for each in value]
    return _element_to_json(field, value, version, with_record_sizes)


def _element_to_json(field: FieldSchema, value: Any, version: int, with_record_sizes: bool) -> Any:
    if field.fields is not None:
        return _struct_to_json(field.fields, value, version, with_record_sizes)
    if field.type == "uuid":
        return uuid_to_text(value)
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def message_from_json(schema: MessageSchema, content: object, version: int, *, what: str | None = None) -> Message:
    """The message that a JSON object represents.

    Args:
        schema: of the message.
        content: what ``json`` read.
        version: of the message.
        what: name of the message in errors; None for the name of the schema.

    Raises:
        BadVersionError: the schema does not have this version.
        BadValueError: a field is missing, or of another kind than in the schema.
    """
    _check_version(schema, version)
    return _struct_from_json(schema.body, content, version, what or schema.name)


def _struct_from_json(schema: StructSchema, content: object, version: int, what: str) -> Message:
    if not isinstance(content, dict):
        raise BadValueError(what, expected="a JSON object", found=type(content).__name__)
    message = schema.defaults()
    for field in schema.fields:
        if version not in field.versions:
            continue
        if field.name in content:
            message[field.name] = _from_json(field, content[field.name], version, f"{what} {field.name}")
        elif version not in field.tagged:
            raise BadValueError(f"{what} {field.name}", expected=_kind_of(field), found="nothing")
    return message


def _from_json(field: FieldSchema, value: object, version: int, what: str) -> Any:
    if value is None and version in field.nullable:
        return None
    if not field.is_array:
        return _element_from_json(field, value, version, what)
    if not isinstance(value, list):
        raise BadValueError(what, expected="a list", found=shown(shown_json(value)))
    return [_element_from_json(field, each, version, what) for each in value]


def _element_from_json(field: FieldSchema, value: object, version: int, what: str) -> Any:
    if field.fields is not None:
        return _struct_from_json(field.fields, value, version, what)
    refused = BadValueError(what, expected=_kind_of(field), found=shown(shown_json(value)))
    if field.type in _INTEGERS:
        if isinstance(value, int) and not isinstance(value, bool) and value in _INTEGERS[field.type]:
            return value
    elif field.type == "bool":
        if isinstance(value, bool):
            return value
    elif field.type == "float64":
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                raise refused from None
    elif isinstance(value, str):
        try:
            return _of_text(field.type, value)
        except (BadValueError, binascii.Error):
            raise refused from None
    raise refused


def _of_text(kind: str, text: str) -> str | bytes:
    if kind == "string":
        return text
    return uuid_from_text(text) if kind == "uuid" else base64.b64decode(text, validate=True)


def _kind_of(field: FieldSchema) -> str:
    if field.is_array:
        return "a list"
    kinds = {
        "string": "text",
        "bool": "true or false",
        "float64": "a number",
        "uuid": "the text of a uuid",
        "struct": "a JSON object",
    }
    return f"an {field.type}" if field.type in _INTEGERS else kinds.get(field.type, "base64")


def _check_version(schema: MessageSchema, version: int) -> None:
    if version not in schema.versions:
        raise BadVersionError(f"version of {schema.name}", expected=schema.versions, found=version)
