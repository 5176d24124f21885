"""Kafka's messages by their schemas, as construct grammars.

A message is a dict: names of fields as Kafka prints them (``topicId``), in the order of the schema. It has each field of the newest
version; a field that the version read does not have gets its default.
Integers are int, ``bool`` bool, ``float64`` float, strings str, uuids their 16 bytes, ``bytes`` and ``records`` bytes, arrays
lists, structures dicts, null None.
Tagged fields that the schema does not know are kept under ``UNKNOWN_TAGGED_FIELDS`` as pairs of tag and bytes, and written again.

One thing is stricter than in Kafka: a tagged field must have exactly its declared length.
Well-formed messages are read by ``formats.message_reader``, which is derived from the same schemas.

Source: Kafka's message generator (``org.apache.kafka.message.MessageDataGenerator``), KIP-482,
``org.apache.kafka.common.protocol.ByteBufferAccessor``.
"""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import IO, Any

from construct import Construct, ConstructError, Flag, Float64b, Int32ub, StreamError

from formats import limits
from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, LimitExceededError, TruncatedError
from formats.message_reader import GIVES_UP, message_reader
from formats.message_schema import UNKNOWN_TAGGED_FIELDS, FieldSchema, MessageSchema, StructSchema
from formats.primitives import INT8, INT16, INT32, INT64, UINT16, UNSIGNED_VARINT

__all__ = ["COMPACT_STRING", "UNKNOWN_TAGGED_FIELDS", "Message", "message_grammar", "read_message", "write_message"]

Message = dict[str, Any]


def _left(stream: IO[bytes]) -> int:
    assert isinstance(stream, BytesIO)
    return stream.getbuffer().nbytes - stream.tell()


def _read(stream: IO[bytes], size: int, path: str) -> bytes:
    if size > _left(stream):
        raise StreamError("ends early", path=path)
    return stream.read(size)


class _Uuid(Construct):  # type: ignore[misc]
    """16 bytes."""

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> bytes:
        return _read(stream, 16, path)

    def _build(self, obj: bytes, stream: IO[bytes], context: Any, path: str) -> bytes:
        if not isinstance(obj, bytes) or len(obj) != 16:
            raise BadValueError("uuid", expected="16 bytes", found=repr(obj))
        stream.write(obj)
        return obj


class _CompactLength(Construct):  # type: ignore[misc]
    """An unsigned varint of length + 1: 0 means null, as -1 does elsewhere."""

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> int:
        return int(UNSIGNED_VARINT._parse(stream, context, path)) - 1

    def _build(self, obj: int, stream: IO[bytes], context: Any, path: str) -> int:
        UNSIGNED_VARINT._build(obj + 1, stream, context, path)
        return obj


class _Lengthed(Construct):  # type: ignore[misc]
    """A length, or -1 for null, followed by that many bytes or elements."""

    _what = "length"

    def __init__(self, length: Construct, *, is_nullable: bool) -> None:
        super().__init__()
        self._length = length
        self._is_nullable = is_nullable

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Any:
        length = self._length._parsereport(stream, context, path)
        if length == -1 and self._is_nullable:
            return None
        if length < 0:
            raise BadLengthError(self._what, expected="-1 or more" if self._is_nullable else "0 or more", found=length)
        return self._parse_content(stream, length, context, path)

    def _build(self, obj: Any, stream: IO[bytes], context: Any, path: str) -> Any:
        if obj is None and not self._is_nullable:
            raise BadValueError(path, expected="a value", found="null")
        self._length._build(-1 if obj is None else self._length_of(obj, path), stream, context, path)
        if obj is not None:
            self._build_content(obj, stream, context, path)
        return obj

    def _parse_content(self, stream: IO[bytes], length: int, context: Any, path: str) -> Any:
        return _read(stream, length, path)

    def _length_of(self, obj: Any, path: str) -> int:
        if not isinstance(obj, bytes):
            raise BadValueError(path, expected="bytes", found=repr(obj))
        return len(obj)

    def _build_content(self, obj: Any, stream: IO[bytes], context: Any, path: str) -> None:
        stream.write(obj)


class _String(_Lengthed):
    """A length in bytes and UTF-8."""

    _what = "length of a string"

    def _parse_content(self, stream: IO[bytes], length: int, context: Any, path: str) -> str:
        return _read(stream, length, path).decode()

    def _length_of(self, obj: Any, path: str) -> int:
        if not isinstance(obj, str):
            raise BadValueError(path, expected="a text", found=repr(obj))
        return len(obj.encode())

    def _build_content(self, obj: str, stream: IO[bytes], context: Any, path: str) -> None:
        stream.write(obj.encode())


COMPACT_STRING = _String(_CompactLength(), is_nullable=False)


class _Array(_Lengthed):
    """A count and the elements."""

    _what = "count of an array"

    def __init__(self, length: Construct, element: Construct, *, is_nullable: bool) -> None:
        super().__init__(length, is_nullable=is_nullable)
        self._element = element

    def _parse_content(self, stream: IO[bytes], length: int, context: Any, path: str) -> list[Any]:
        if length > _left(stream):  # an element takes a byte at least
            raise StreamError("ends early", path=path)
        return [self._element._parsereport(stream, context, path) for _ in range(length)]

    def _length_of(self, obj: Any, path: str) -> int:
        if not isinstance(obj, list | tuple):
            raise BadValueError(path, expected="a list", found=repr(obj))
        return len(obj)

    def _build_content(self, obj: list[Any], stream: IO[bytes], context: Any, path: str) -> None:
        for element in obj:
            self._element._build(element, stream, context, path)


class _NullableStruct(Construct):  # type: ignore[misc]
    """A byte that is negative for null, and the structure."""

    def __init__(self, inner: Construct) -> None:
        super().__init__()
        self._inner = inner

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Message | None:
        is_null = INT8._parse(stream, context, path) < 0
        return None if is_null else self._inner._parsereport(stream, context, path)

    def _build(self, obj: Message | None, stream: IO[bytes], context: Any, path: str) -> Message | None:
        INT8._build(-1 if obj is None else 1, stream, context, path)
        return obj if obj is None else self._inner._build(obj, stream, context, path)


class _Struct(Construct):  # type: ignore[misc]
    """The fields of a structure in a version, then the tagged fields if the version is flexible."""

    def __init__(self, schema: StructSchema, version: int) -> None:
        super().__init__()
        self._schema = schema
        self._names = {field.name for field in schema.fields} | {UNKNOWN_TAGGED_FIELDS}
        here = [field for field in schema.fields if version in field.versions]
        self._absent = [field for field in schema.fields if version not in field.versions]
        self._plain = [(field.name, _grammar(field, version)) for field in here if version not in field.tagged]
        tagged = [field for field in here if version in field.tagged]
        self._tagged = {field.tag: (field, _grammar(field, version)) for field in tagged}
        self._is_flexible = version in schema.flexible

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Message:
        message = self._schema.defaults()
        for name, grammar in self._plain:
            message[name] = grammar._parsereport(stream, context, f"{path} -> {name}")
        if self._is_flexible:
            self._parse_tagged(message, stream, context, path)
        return message

    def _parse_tagged(self, message: Message, stream: IO[bytes], context: Any, path: str) -> None:
        count = UNSIGNED_VARINT._parse(stream, context, path)
        if count > limits.TAGGED_FIELDS_MAX:
            raise LimitExceededError("count of tagged fields", expected=f"at most {limits.TAGGED_FIELDS_MAX}", found=count)
        for _ in range(count):
            tag = UNSIGNED_VARINT._parse(stream, context, path)
            data = _read(stream, UNSIGNED_VARINT._parse(stream, context, path), path)
            if tag not in self._tagged:
                message.setdefault(UNKNOWN_TAGGED_FIELDS, []).append((tag, data))
                continue
            field, grammar = self._tagged[tag]
            inside = BytesIO(data)
            try:
                message[field.name] = grammar._parsereport(inside, context, f"{path} -> {field.name}")
            except StreamError:
                raise BadLengthError(f"length of the tagged field {field.name}", expected="more", found=len(data)) from None
            if _left(inside):
                expected = len(data) - _left(inside)
                raise BadLengthError(f"length of the tagged field {field.name}", expected=expected, found=len(data))

    def _build(self, obj: Message, stream: IO[bytes], context: Any, path: str) -> Message:
        if not isinstance(obj, dict) or not obj.keys() <= self._names:
            raise BadValueError(path, expected=f"fields of {self._schema.name}", found=repr(obj)[:80])
        values = {**self._schema.defaults(), **obj}
        for field in self._absent:
            if values[field.name] != field.default_value() and not field.is_ignorable:
                raise BadValueError(
                    f"{path} -> {field.name}", expected="its default in this version", found=repr(values[field.name])
                )
        for name, grammar in self._plain:
            grammar._build(values[name], stream, context, f"{path} -> {name}")
        unknown = dict(values.get(UNKNOWN_TAGGED_FIELDS, ()))
        if not self._is_flexible:
            if unknown:
                raise BadValueError(path, expected="no tagged fields in this version", found=f"{len(unknown)}")
            return obj
        sections = dict(unknown)
        for tag, (field, grammar) in self._tagged.items():
            if tag in unknown:
                raise BadValueError(path, expected="a tag that the schema does not know", found=tag)
            if values[field.name] != field.default_value():
                inside = BytesIO()
                grammar._build(values[field.name], inside, context, f"{path} -> {field.name}")
                sections[tag] = inside.getvalue()
        UNSIGNED_VARINT._build(len(sections), stream, context, path)
        for tag, data in sorted(sections.items()):
            UNSIGNED_VARINT._build(tag, stream, context, path)
            UNSIGNED_VARINT._build(len(data), stream, context, path)
            stream.write(data)
        return obj


_SCALARS = {
    "bool": Flag,
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "uint32": Int32ub,
    "int64": INT64,
    "float64": Float64b,
    "uuid": _Uuid(),
}


def _grammar(field: FieldSchema, version: int) -> Construct:
    is_compact, is_nullable = version in field.flexible, version in field.nullable
    if not field.is_array:
        return _element(field, version, is_compact=is_compact, is_nullable=is_nullable)
    element = _element(field, version, is_compact=is_compact, is_nullable=False)
    return _Array(_CompactLength() if is_compact else INT32, element, is_nullable=is_nullable)


def _element(field: FieldSchema, version: int, *, is_compact: bool, is_nullable: bool) -> Construct:
    if field.type in _SCALARS:
        return _SCALARS[field.type]
    if field.type == "struct":
        assert field.fields is not None
        inner = _Struct(field.fields, version)
        return _NullableStruct(inner) if is_nullable else inner
    if field.type == "string":
        return _String(_CompactLength() if is_compact else INT16, is_nullable=is_nullable)
    return _Lengthed(_CompactLength() if is_compact else INT32, is_nullable=is_nullable)


@cache
def _struct(schema: StructSchema, version: int) -> Construct:
    return _Struct(schema, version)


def message_grammar(schema: MessageSchema, version: int) -> Construct:
    """The grammar of a message in a version.

    Raises:
        BadVersionError: the schema does not have this version.
    """
    if version not in schema.versions:
        raise BadVersionError(f"version of {schema.name}", expected=schema.versions, found=version)
    return _struct(schema.body, version)


def read_message(schema: MessageSchema, data: bytes, version: int, *, position: int = 0) -> tuple[Message, int]:
    """Reads the message that begins at a position.

    Args:
        schema: of the message.
        data: the bytes that contain it.
        version: of the message.
        position: in bytes.

    Returns:
        The message, and the position after it.

    Raises:
        BadVersionError: the schema does not have this version.
        TruncatedError: the data ends inside a field.
        BadLengthError: a negative length, null where null is not allowed, or a tagged field of another length than declared.
        BadValueError: a text that is no UTF-8.
        LimitExceededError: more than ``formats.limits`` allows.
    """
    reader = message_reader(schema, version)
    try:
        if reader is not None:
            return reader(data, position)
    except GIVES_UP:
        pass  # the grammar reports what is wrong, and where
    grammar = message_grammar(schema, version)
    stream = BytesIO(data)
    stream.seek(position)
    try:
        message = grammar.parse_stream(stream)
    except FormatError as error:
        error.position = stream.tell()
        raise
    except StreamError as error:
        what = f"{schema.name}{(error.path or '').removeprefix('(parsing)')}"
        raise TruncatedError(what, position=stream.tell(), expected="more bytes", found=_left(stream)) from None
    except (ConstructError, ValueError) as error:
        raise BadValueError(schema.name, position=stream.tell(), found=str(error).splitlines()[-1]) from None
    return message, stream.tell()


def write_message(schema: MessageSchema, message: Message, version: int) -> bytes:
    """Writes a message; fields that it does not name have their defaults.

    Raises:
        BadValueError: a value that the field has no room for, a name that the schema does not have, or a value that this version
            cannot hold.
    """
    grammar = message_grammar(schema, version)
    try:
        return bytes(grammar.build(message))
    except FormatError as error:
        error.what = error.what.replace("(building)", schema.name)
        raise
    except (ConstructError, ValueError, OverflowError, TypeError, AttributeError) as error:
        raise BadValueError(schema.name, expected="values that its fields can hold", found=str(error).splitlines()[-1]) from None
