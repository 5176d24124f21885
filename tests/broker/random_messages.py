"""Random messages of any schema, and what Kafka's own converters print of a message."""

import base64
import random
from typing import Any

from formats.message_schema import FieldSchema, StructSchema

INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16}


def value_of(field: FieldSchema, version: int, random_: random.Random) -> Any:
    """Any value that a field may have."""
    if version in field.nullable and random_.random() < 0.2:
        return None
    if field.is_array:
        return [scalar_of(field, version, random_) for _ in range(random_.randrange(4))]
    return scalar_of(field, version, random_)


def scalar_of(field: FieldSchema, version: int, random_: random.Random) -> Any:
    if field.fields is not None:
        return message_of(field.fields, version, random_)
    if field.type in INTEGERS:
        bits = random_.randrange(1, INTEGERS[field.type] + 1)
        return random_.randrange(0 if field.type == "uint16" else -1 << bits, 1 << bits)
    if field.type == "bool":
        return random_.random() < 0.5
    if field.type == "float64":
        return random_.choice((0.0, -1.5, 1e300, random_.random()))
    if field.type == "uuid":
        return random_.randbytes(16)
    if field.type == "string":
        return "".join(random_.choices("aZ9.-_é€𝄞", k=random_.randrange(6)))
    assert field.type in ("records", "bytes")
    return random_.randbytes(random_.randrange(200))


def message_of(schema: StructSchema, version: int, random_: random.Random) -> dict[str, Any]:
    """A message with values where its version has fields, of which each may keep its default."""
    message = schema.defaults()
    for field in schema.fields:
        if version in field.versions and random_.random() < 0.8:
            message[field.name] = value_of(field, version, random_)
    return message


def as_kafka_prints(value: Any, fields: StructSchema, version: int) -> dict[str, Any]:
    """A message as Kafka's converters print it: only what the version has, no tagged field at its default, uuids as text."""
    found = {}
    for field in fields.fields:
        if version not in field.versions:
            continue
        each = value[field.name]
        if version in field.tagged and each == field.default_value():
            continue
        if field.type == "records":
            found |= {field.name: None} if each is None else {f"{field.name}SizeInBytes": len(each)}
        elif field.fields is not None and each is not None:
            inner = field.fields
            found[field.name] = (
                [as_kafka_prints(one, inner, version) for one in each] if field.is_array else as_kafka_prints(each, inner, version)
            )
        elif field.type == "uuid" and each is not None:
            found[field.name] = [_uuid(one) for one in each] if field.is_array else _uuid(each)
        elif field.type == "bytes" and each is not None:
            found[field.name] = base64.b64encode(each).decode()
        else:
            found[field.name] = each
    return found


def _uuid(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
