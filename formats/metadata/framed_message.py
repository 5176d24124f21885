"""Messages as values of records in Kafka's own topics: a frame, which identifies the message, and the message itself.

A frame is three unsigned varints: version of the frame (1), api key, version of the message. ``__cluster_metadata`` and
``__remote_log_metadata`` use it.

Source: ``org.apache.kafka.raft.RecordSerde`` implemented by ``AbstractApiMessageSerde``.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

from construct import StreamError, Struct

from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, TruncatedError
from formats.message import Message, read_message, write_message
from formats.message_schema import MessageSchema
from formats.primitives import UNSIGNED_VARINT

__all__ = ["by_api_key", "frame_of", "read_framed_message", "write_framed_message"]

FRAME_VERSION = 1
"""Version 0 was written by the preview of KRaft in 2.8."""

SHORT_FRAME_BYTES = 3
FRAME = Struct("frame_version" / UNSIGNED_VARINT, "api_key" / UNSIGNED_VARINT, "version" / UNSIGNED_VARINT)


def by_api_key(schemas: Mapping[str, MessageSchema]) -> dict[int, MessageSchema]:
    """The messages that a frame can name."""
    return {schema.api_key: schema for schema in schemas.values() if schema.api_key is not None}


def read_framed_message(schemas: Mapping[int, MessageSchema], value: bytes) -> tuple[MessageSchema, int, Message]:
    """Reads the whole value of a record.

    Args:
        schemas: by api key.
        value: of the record.

    Returns:
        Which message it is, its version, and its fields.

    Raises:
        BadVersionError: a frame or message of another version.
        BadValueError: an api key that the schemas do not have.
        BadLengthError: bytes after the message.
        FormatError: the message is damaged (``read_message``).
    """
    is_short = len(value) > SHORT_FRAME_BYTES and max(value[:SHORT_FRAME_BYTES]) < 0x80  # a varint below 128 is a byte
    frame_version, api_key, version, start = (*value[:SHORT_FRAME_BYTES], SHORT_FRAME_BYTES) if is_short else frame_of(value)
    if frame_version != FRAME_VERSION:
        raise BadVersionError("version of the frame of a message", position=0, expected=FRAME_VERSION, found=frame_version)
    if api_key not in schemas:
        expected = ", ".join(map(str, sorted(schemas)))
        raise BadValueError("api key of a message", position=1, expected=f"one of {expected}", found=api_key)
    schema = schemas[api_key]
    message, end = read_message(schema, value, version, position=start)
    if end != len(value):
        raise BadLengthError(schema.name, position=end, expected="its end", found=f"{len(value) - end} bytes more")
    return schema, version, message


def frame_of(value: bytes) -> tuple[int, int, int, int]:
    """Version of the frame, api key, version of the message, and where that begins.

    Raises:
        FormatError: the value does not begin with three varints.
    """
    stream = BytesIO(value)
    try:
        frame = FRAME.parse_stream(stream)
    except StreamError:
        raise TruncatedError("frame of a message", position=0, expected="three varints", found=f"{len(value)} bytes") from None
    except FormatError as error:
        raise error.shifted_by(stream.tell()) from None
    return frame.frame_version, frame.api_key, frame.version, stream.tell()


def write_framed_message(schema: MessageSchema, message: Message, version: int) -> bytes:
    """Writes the value of a record; errors are those of ``formats.message.write_message``."""
    frame = {"frame_version": FRAME_VERSION, "api_key": schema.api_key, "version": version}
    return bytes(FRAME.build(frame)) + write_message(schema, message, version)
