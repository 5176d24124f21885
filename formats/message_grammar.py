"""The construct grammars of Kafka's messages, made from their schemas: the definition of each message in each version.

``formats.message_reader`` derives the fast reader from these grammars. ``formats.message`` reads and writes by both, and describes
the values.

A ``StreamError`` of construct has the path of its field. Other errors do not: ``FieldError`` carries the path of the innermost field.

Source: Kafka's message generator (``org.apache.kafka.message.MessageDataGenerator``), KIP-482,
``org.apache.kafka.common.protocol.ByteBufferAccessor``.
"""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import IO, Any

from construct import Construct, Flag, Float64b, Int32ub, StreamError

from formats import limits
from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, LimitExceededError
from formats.message_schema import UNKNOWN_TAGGED_FIELDS, FieldSchema, MessageSchema, StructSchema
from formats.primitives import INT8, INT16, INT32, INT64, UINT16, UNSIGNED_VARINT

__all__ = [
    "ArrayOf",
    "CompactLength",
    "FieldError",
    "Lengthed",
    "Message",
    "MessageStruct",
    "NullableStruct",
    "TextField",
    "Uuid",
    "left",
    "message_grammar",
]

Message = dict[str, Any]


class FieldError(Exception):
    """A field cannot be read.

    Attributes:
        path: of the innermost field, as construct writes it: ``(parsing) -> name``.
        error: what is wrong with it.
    """

    def __init__(self, path: str, error: FormatError | ValueError) -> None:
        super().__init__(path)
        self.path = path
        self.error = error


def left(stream: IO[bytes]) -> int:
    """Bytes of a stream in memory that have not been read."""
    assert isinstance(stream, BytesIO)
    return stream.getbuffer().nbytes - stream.tell()


def _read(stream: IO[bytes], size: int, path: str) -> bytes:
    if size > left(stream):
        raise StreamError("ends early", path=path)
    return stream.read(size)


class Uuid(Construct):  # type: ignore[misc]
    """16 bytes."""

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> bytes:
        return _read(stream, 16, path)

    def _build(self, obj: bytes, stream: IO[bytes], context: Any, path: str) -> bytes:
        if not isinstance(obj, bytes) or len(obj) != 16:
            raise BadValueError("uuid", expected="16 bytes", found=repr(obj))
        stream.write(obj)
        return obj


class CompactLength(Construct):  # type: ignore[misc]
    """An unsigned varint of length + 1: 0 means null, as -1 does elsewhere."""

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> int:
        return int(UNSIGNED_VARINT._parse(stream, context, path)) - 1

    def _build(self, obj: int, stream: IO[bytes], context: Any, path: str) -> int:
        UNSIGNED_VARINT._build(obj + 1, stream, context, path)
        return obj


class Lengthed(Construct):  # type: ignore[misc]
    """A length, or -1 for null, followed by that many bytes or elements."""

    _what = "length"

    def __init__(self, length: Construct, *, is_nullable: bool) -> None:
        super().__init__()
        self.length = length
        self.is_nullable = is_nullable

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Any:
        length = self.length._parsereport(stream, context, path)
        if length == -1 and self.is_nullable:
            return None
        if length < 0:
            raise BadLengthError(self._what, expected="-1 or more" if self.is_nullable else "0 or more", found=length)
        return self._parse_content(stream, length, context, path)

    def _build(self, obj: Any, stream: IO[bytes], context: Any, path: str) -> Any:
        if obj is None and not self.is_nullable:
            raise BadValueError(path, expected="a value", found="null")
        self.length._build(-1 if obj is None else self._length_of(obj, path), stream, context, path)
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


class TextField(Lengthed):
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


class ArrayOf(Lengthed):
    """A count and the elements."""

    _what = "count of an array"

    def __init__(self, length: Construct, element: Construct, *, is_nullable: bool) -> None:
        super().__init__(length, is_nullable=is_nullable)
        self.element = element

    def _parse_content(self, stream: IO[bytes], length: int, context: Any, path: str) -> list[Any]:
        if length > left(stream):  # an element takes a byte at least
            raise StreamError("ends early", path=path)
        return [self.element._parsereport(stream, context, path) for _ in range(length)]

    def _length_of(self, obj: Any, path: str) -> int:
        if not isinstance(obj, list | tuple):
            raise BadValueError(path, expected="a list", found=repr(obj))
        return len(obj)

    def _build_content(self, obj: list[Any], stream: IO[bytes], context: Any, path: str) -> None:
        for element in obj:
            self.element._build(element, stream, context, path)


class NullableStruct(Construct):  # type: ignore[misc]
    """A byte that is negative for null, and the structure. In a tagged field the byte is a varint, and null is 0."""

    def __init__(self, inner: Construct, *, is_tagged: bool) -> None:
        super().__init__()
        self.inner = inner
        self.is_tagged = is_tagged
        self._first_mark = 1 if is_tagged else 0

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Message | None:
        mark = (UNSIGNED_VARINT if self.is_tagged else INT8)._parse(stream, context, path)
        return None if mark < self._first_mark else self.inner._parsereport(stream, context, path)

    def _build(self, obj: Message | None, stream: IO[bytes], context: Any, path: str) -> Message | None:
        INT8._build(self._first_mark - 1 if obj is None else 1, stream, context, path)
        return obj if obj is None else self.inner._build(obj, stream, context, path)


def _parse_field(grammar: Construct, stream: IO[bytes], context: Any, path: str) -> Any:
    try:
        return grammar._parsereport(stream, context, path)
    except (FormatError, UnicodeDecodeError) as error:
        raise FieldError(path, error) from error


class MessageStruct(Construct):  # type: ignore[misc]
    """The fields of a structure in a version, then the tagged fields if the version is flexible."""

    def __init__(self, schema: StructSchema, version: int) -> None:
        super().__init__()
        self.schema = schema
        self._names = {field.name for field in schema.fields} | {UNKNOWN_TAGGED_FIELDS}
        here = [field for field in schema.fields if version in field.versions]
        self._absent = [field for field in schema.fields if version not in field.versions]
        self.plain = [(field.name, _grammar(field, version)) for field in here if version not in field.tagged]
        tagged = [field for field in here if version in field.tagged]
        self.tagged = {field.tag: (field, _grammar(field, version)) for field in tagged}
        self.is_flexible = version in schema.flexible

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Message:
        message = self.schema.defaults()
        for name, grammar in self.plain:
            message[name] = _parse_field(grammar, stream, context, f"{path} -> {name}")
        if self.is_flexible:
            self._parse_tagged(message, stream, context, path)
        return message

    def _parse_tagged(self, message: Message, stream: IO[bytes], context: Any, path: str) -> None:
        count = UNSIGNED_VARINT._parse(stream, context, path)
        if count > limits.TAGGED_FIELDS_MAX:
            raise LimitExceededError("count of tagged fields", expected=f"at most {limits.TAGGED_FIELDS_MAX}", found=count)
        for _ in range(count):
            tag = UNSIGNED_VARINT._parse(stream, context, path)
            data = _read(stream, UNSIGNED_VARINT._parse(stream, context, path), path)
            if tag not in self.tagged:
                message.setdefault(UNKNOWN_TAGGED_FIELDS, []).append((tag, data))
                continue
            field, grammar = self.tagged[tag]
            inside = BytesIO(data)
            try:
                message[field.name] = _parse_field(grammar, inside, context, f"{path} -> {field.name}")
            except StreamError:
                raise BadLengthError(f"length of the tagged field {field.name}", expected="more", found=len(data)) from None
            if left(inside):
                expected = len(data) - left(inside)
                raise BadLengthError(f"length of the tagged field {field.name}", expected=expected, found=len(data))

    def _build(self, obj: Message, stream: IO[bytes], context: Any, path: str) -> Message:
        if not isinstance(obj, dict) or not obj.keys() <= self._names:
            raise BadValueError(path, expected=f"fields of {self.schema.name}", found=repr(obj)[:80])
        values = {**self.schema.defaults(), **obj}
        for field in self._absent:
            if values[field.name] != field.default_value() and not field.is_ignorable:
                raise BadValueError(
                    f"{path} -> {field.name}", expected="its default in this version", found=repr(values[field.name])
                )
        for name, grammar in self.plain:
            grammar._build(values[name], stream, context, f"{path} -> {name}")
        unknown = dict(values.get(UNKNOWN_TAGGED_FIELDS, ()))
        if not self.is_flexible:
            if unknown:
                raise BadValueError(path, expected="no tagged fields in this version", found=f"{len(unknown)}")
            return obj
        sections = dict(unknown)
        for tag, (field, grammar) in self.tagged.items():
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
    "uuid": Uuid(),
}


def _grammar(field: FieldSchema, version: int) -> Construct:
    is_compact = version in field.flexible
    is_nullable = version in field.nullable
    if not field.is_array:
        return _element(field, version, is_compact=is_compact, is_nullable=is_nullable)
    element = _element(field, version, is_compact=is_compact, is_nullable=False)
    return ArrayOf(CompactLength() if is_compact else INT32, element, is_nullable=is_nullable)


def _element(field: FieldSchema, version: int, *, is_compact: bool, is_nullable: bool) -> Construct:
    if field.type in _SCALARS:
        return _SCALARS[field.type]
    if field.type == "struct":
        assert field.fields is not None
        inner = MessageStruct(field.fields, version)
        return NullableStruct(inner, is_tagged=version in field.tagged) if is_nullable else inner
    if field.type == "string":
        return TextField(CompactLength() if is_compact else INT16, is_nullable=is_nullable)
    return Lengthed(CompactLength() if is_compact else INT32, is_nullable=is_nullable)


@cache
def _struct(schema: StructSchema, version: int) -> Construct:
    return MessageStruct(schema, version)


def message_grammar(schema: MessageSchema, version: int) -> Construct:
    """The grammar of a message in a version.

    Raises:
        BadVersionError: the schema does not have this version.
    """
    if version not in schema.versions:
        raise BadVersionError(f"version of {schema.name}", expected=schema.versions, found=version)
    return _struct(schema.body, version)
