"""The fast reader of Kafka's messages: plain functions on bytes, made from the construct grammar, for logs of millions of records.

It reads what is well formed and common, to the value that the grammar gives (``formats.message_grammar``). Each function is made from
one grammar, so that a field, its version and its length are described once.
At anything else it raises one of ``GIVES_UP``, and the caller uses the grammar, which reports what is wrong and where. The tests
prove the two equal.

Commands that take it: ``cluster image``, and each other command that reads ``__cluster_metadata`` or ``__remote_log_metadata``.

Source: as ``formats.message_grammar``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from construct import Construct, Flag, FormatField

from formats import limits
from formats.message_grammar import (
    ArrayOf,
    CompactLength,
    Lengthed,
    MessageStruct,
    NullableStruct,
    TextField,
    Uuid,
    message_grammar,
)
from formats.message_schema import UNKNOWN_TAGGED_FIELDS, MessageSchema

__all__ = ["GIVES_UP", "Reader", "message_reader"]

GIVES_UP = (IndexError, ValueError, struct.error)
"""The exceptions after which the caller uses the grammar."""

Reader = Callable[[bytes, int], tuple[Any, int]]
"""From data and a position, in bytes, to the value there and the position after it."""

VARINT_SHIFT_MAX = 28
"""A varint of five bytes, of which 32 bits are used."""


@cache
def message_reader(schema: MessageSchema, version: int) -> Reader:
    """The reader of a message in a version.

    Raises:
        BadVersionError: the schema does not have this version.
    """
    return _reader(message_grammar(schema, version))


def _reader(grammar: Construct) -> Reader:
    """The reader that is equal to a grammar."""
    match grammar:
        case MessageStruct():
            return _struct(grammar)
        case NullableStruct():
            return _nullable_struct(_reader(grammar.inner), is_tagged=grammar.is_tagged)
        case ArrayOf():
            return _array(_reader(grammar.length), _reader(grammar.element), is_nullable=grammar.is_nullable)
        case Lengthed():
            return _bytes(_reader(grammar.length), is_nullable=grammar.is_nullable, is_text=isinstance(grammar, TextField))
        case CompactLength():
            return _compact
        case Uuid():
            return _uuid
        case FormatField():
            return _scalar(grammar.fmtstr)
    assert grammar is Flag, grammar
    return _bool


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, at + 1
        shift += 7
        if shift > VARINT_SHIFT_MAX:
            raise IndexError


@cache
def _scalar(layout: str) -> Reader:
    packed = struct.Struct(layout)
    unpack_from = packed.unpack_from
    size = packed.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack_from(data, at)[0], at + size

    return read


def _bool(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _uuid(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 16
    if end > len(data):
        raise IndexError
    return data[at:end], end


def _compact(data: bytes, at: int) -> tuple[int, int]:
    length, at = _varint(data, at)
    return length - 1, at


def _bytes(length_of: Reader, *, is_nullable: bool, is_text: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        length, at = length_of(data, at)
        if length < 0:
            _check_null(length, is_nullable)
            return None, at
        end = at + length
        if end > len(data):
            raise IndexError
        return data[at:end].decode() if is_text else data[at:end], end

    return read


def _check_null(length: int, is_nullable: bool) -> None:
    if length != -1 or not is_nullable:
        raise IndexError


def _array(length_of: Reader, element: Reader, *, is_nullable: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        length, at = length_of(data, at)
        if length < 0:
            _check_null(length, is_nullable)
            return None, at
        if length > len(data) - at:  # an element takes a byte at least
            raise IndexError
        values = []
        for _ in range(length):
            value, at = element(data, at)
            values.append(value)
        return values, at

    return read


def _nullable_struct(inner: Reader, *, is_tagged: bool) -> Reader:
    mark_of = _varint if is_tagged else _scalar(">b")
    first = 1 if is_tagged else 0  # the lowest mark of a structure that is there

    def read(data: bytes, at: int) -> tuple[Any, int]:
        mark, at = mark_of(data, at)
        return (None, at) if mark < first else inner(data, at)

    return read


def _struct(grammar: MessageStruct) -> Reader:
    plain = tuple((name, _reader(field)) for name, field in grammar.plain)
    tagged = {tag: (field.name, _reader(inner)) for tag, (field, inner) in grammar.tagged.items()}
    is_flexible = grammar.is_flexible
    template = grammar.schema.defaults()
    is_read = {name for name, _ in plain}
    fresh = tuple(
        (field.name, field.default_value)
        for field in grammar.schema.fields
        if field.name not in is_read and isinstance(template[field.name], list | dict)
    )

    def read(data: bytes, at: int) -> tuple[Any, int]:
        message = template.copy()
        for name, default in fresh:
            message[name] = default()
        for name, reader in plain:
            message[name], at = reader(data, at)
        if not is_flexible:
            return message, at
        count, at = _varint(data, at)
        if count > limits.TAGGED_FIELDS_MAX:
            raise IndexError
        for _ in range(count):
            tag, at = _varint(data, at)
            size, at = _varint(data, at)
            end = at + size
            if end > len(data):
                raise IndexError
            entry = tagged.get(tag)
            if entry is None:
                message.setdefault(UNKNOWN_TAGGED_FIELDS, []).append((tag, data[at:end]))
            else:
                name, reader = entry
                message[name], stop = reader(data[at:end], 0)
                if stop != size:
                    raise IndexError
            at = end
        return message, at

    return read
