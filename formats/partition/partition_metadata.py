r"""``partition.metadata``: the topic id of a partition directory, and Kafka's text form of a UUID.

::

    version: 0
    topic_id: hVLXsV0ZSTSJwjeZBRZyLg

The file ends without a line terminator.

Source: ``PartitionMetadataFile``, ``PartitionMetadataReadBuffer``, ``org.apache.kafka.common.Uuid``.
"""

from __future__ import annotations

import base64
import re
from enum import Enum
from itertools import islice

import msgspec

from formats.errors import BadValueError, BadVersionError, TruncatedError
from formats.limits import INT32_MAX
from formats.text_lines import INT32, java_integer, java_lines, shown, shown_number

__all__ = [
    "UUID_BYTES",
    "ZERO_UUID",
    "PartitionMetadata",
    "PartitionMetadataFault",
    "partition_metadata_fault",
    "read_partition_metadata",
    "uuid_from_text",
    "uuid_text_or_none",
    "uuid_to_text",
    "write_partition_metadata",
]

UUID_BYTES = 16
ZERO_UUID = bytes(UUID_BYTES)
LINES = 2
"""Bytes after these are never read."""

# Java's decoder takes the padding or leaves it, and nothing after it.
_UUID_TEXT = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")
_SEPARATOR = re.compile(r":\s+", re.ASCII)


class PartitionMetadata(msgspec.Struct, frozen=True):
    """The content of ``partition.metadata``.

    Attributes:
        version: int32, 0; higher ones are read too, as Kafka does so that a downgrade works.
        topic_id: 16 bytes, not zero.
    """

    version: int
    topic_id: bytes


def uuid_from_text(text: str) -> bytes:
    """URL-safe base64 with or without padding to the 16 bytes of a UUID (``Uuid.fromString``).

    Raises:
        BadValueError: the text is not the base64 of 16 bytes.
    """
    match = _UUID_TEXT.fullmatch(text)
    if match is None:
        raise BadValueError("uuid", expected="22 characters of URL-safe base64", found=shown(text))
    return base64.urlsafe_b64decode(match[1] + "==")


def uuid_to_text(uuid: bytes) -> str:
    """16 bytes to the 22 characters that Kafka prints (``Uuid.toString``).

    Raises:
        BadValueError: not 16 bytes.
    """
    if len(uuid) != UUID_BYTES:
        raise BadValueError("uuid", expected=f"{UUID_BYTES} bytes", found=f"{len(uuid)} bytes")
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_text_or_none(uuid: bytes | None) -> str | None:
    """The text of ``uuid_to_text``; None for no id."""
    return None if uuid is None else uuid_to_text(uuid)


def read_partition_metadata(data: bytes | memoryview, *, file: str | None = None) -> PartitionMetadata:
    """Reads ``partition.metadata``; what follows the second line is ignored, as Kafka does.

    Raises:
        TruncatedError: a line is missing.
        BadVersionError: the version is no number or negative.
        BadValueError: a line is malformed, or the topic id zero; positions are lines, from 1.
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    lines = list(islice(java_lines(data, "partition metadata", file=file), LINES))
    text = _value(lines, 1, "version", file)
    version = java_integer(text, INT32)
    if version is None or version < 0:
        raise BadVersionError(
            "partition metadata version", file=file, position=1, expected="0 or higher", found=shown_number(text), unit="line"
        )
    text = _value(lines, 2, "topic_id", file)
    try:
        topic_id = uuid_from_text(text)
    except BadValueError as error:
        raise BadValueError(
            "topic_id", file=file, position=2, expected=error.expected, found=shown_number(text), unit="line"
        ) from None
    if topic_id == ZERO_UUID:
        raise BadValueError("topic_id", file=file, position=2, expected="a topic id other than zero", found=text, unit="line")
    return PartitionMetadata(version, topic_id)


class PartitionMetadataFault(Enum):
    """The exception of a broker for a file that ``read_partition_metadata`` refuses (``PartitionMetadataReadBuffer.read``)."""

    LINE_MISSING = "line-missing"
    """NullPointerException."""
    NO_UUID = "no-uuid"
    """IllegalArgumentException."""
    ZERO = "zero"
    """IOException."""
    MALFORMED = "malformed"
    """IOException."""


def partition_metadata_fault(data: bytes | memoryview) -> PartitionMetadataFault | None:
    """The first fault of ``partition.metadata``, in the order in which a broker reads it. None for a file that a broker reads.

    A broker does not look at the names before the colons.

    Raises:
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    try:
        lines = list(islice(java_lines(data, "partition metadata", file=None), LINES))
    except BadValueError:  # no UTF-8: a MalformedInputException
        return PartitionMetadataFault.MALFORMED
    if not lines:
        return PartitionMetadataFault.LINE_MISSING
    version = _SEPARATOR.split(lines[0])
    number = java_integer(version[1], INT32) if len(version) == 2 else None
    if number is None or number < 0:
        return PartitionMetadataFault.MALFORMED
    if len(lines) < LINES:
        return PartitionMetadataFault.LINE_MISSING
    parts = _SEPARATOR.split(lines[1])
    if len(parts) != 2 or not parts[1]:
        return PartitionMetadataFault.MALFORMED
    try:
        topic_id = uuid_from_text(parts[1])
    except BadValueError:
        return PartitionMetadataFault.NO_UUID
    return PartitionMetadataFault.ZERO if topic_id == ZERO_UUID else None


def _value(lines: list[str], number: int, key: str, file: str | None) -> str:
    if len(lines) < number:
        raise TruncatedError(
            "partition metadata", file=file, position=number, expected=f"'{key}: ...'", found="end of file", unit="line"
        )
    parts = _SEPARATOR.split(lines[number - 1], maxsplit=1)
    if len(parts) != 2 or parts[0] != key:
        raise BadValueError(
            key, file=file, position=number, expected=f"'{key}: ...'", found=shown_number(lines[number - 1]), unit="line"
        )
    return parts[1]


def write_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Writes ``partition.metadata`` (``PartitionMetadata.encode``).

    Raises:
        BadValueError: a value that could not be read back.
    """
    if not 0 <= metadata.version <= INT32_MAX:
        raise BadValueError("partition metadata version", expected="an int32, not negative", found=metadata.version)
    if metadata.topic_id == ZERO_UUID:
        raise BadValueError("topic_id", expected="a topic id other than zero", found="zero")
    return f"version: {metadata.version}\ntopic_id: {uuid_to_text(metadata.topic_id)}".encode("ascii")
