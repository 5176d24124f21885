"""Kafka's messages by their schemas.

A message is a dict: names of fields as Kafka prints them (``topicId``), in the order of the schema. It has each field of the newest
version; a field that the version read does not have gets its default.
Integers are int, ``bool`` bool, ``float64`` float, strings str, uuids their 16 bytes, ``bytes`` and ``records`` bytes, arrays
lists, structures dicts, null None.
Tagged fields that the schema does not know are kept under ``UNKNOWN_TAGGED_FIELDS`` as pairs of tag and bytes, and written again.

One thing is stricter than in Kafka: a tagged field must have exactly its declared length.

A schema becomes a construct grammar (``formats.message_grammar``), and the grammar a fast reader (``formats.message_reader``). The
fast reader returns well-formed messages. The grammar reads all others, so that each error names its field.

Source: Kafka's message generator (``org.apache.kafka.message.MessageDataGenerator``), KIP-482,
``org.apache.kafka.common.protocol.ByteBufferAccessor``.
"""

from __future__ import annotations

from io import BytesIO

from construct import ConstructError, StreamError

from formats.errors import BadValueError, FormatError, TruncatedError
from formats.message_grammar import FieldError, Message, left, message_grammar
from formats.message_reader import GIVES_UP, message_reader
from formats.message_schema import UNKNOWN_TAGGED_FIELDS, MessageSchema

__all__ = ["UNKNOWN_TAGGED_FIELDS", "Message", "message_grammar", "read_message", "write_message"]

PARSING = "(parsing)"
"""How construct begins the path of a field."""


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
    try:
        return message_reader(schema, version)(data, position)
    except GIVES_UP:
        pass  # the grammar reports what is wrong, and where
    grammar = message_grammar(schema, version)
    stream = BytesIO(data)
    stream.seek(position)
    try:
        message = grammar.parse_stream(stream)
    except FieldError as fault:
        raise _field_error(schema, fault, stream.tell()) from None
    except FormatError as error:  # of the tagged fields of the message itself
        error.what = f"{schema.name}: {error.what}"
        error.position = stream.tell()
        raise
    except StreamError as error:
        what = f"{schema.name}{(error.path or '').removeprefix(PARSING)}"
        raise TruncatedError(what, position=stream.tell(), expected="more bytes", found=left(stream)) from None
    except (ConstructError, ValueError) as error:
        raise BadValueError(schema.name, position=stream.tell(), found=str(error).splitlines()[-1]) from None
    return message, stream.tell()


def _field_error(schema: MessageSchema, fault: FieldError, position: int) -> FormatError:
    """The error of a field, with the path of the field."""
    what = f"{schema.name}{fault.path.removeprefix(PARSING)}"
    if not isinstance(fault.error, FormatError):
        return BadValueError(what, position=position, found=str(fault.error).splitlines()[-1])
    error = fault.error
    error.what = f"{what}: {error.what}"
    error.position = position
    return error


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
