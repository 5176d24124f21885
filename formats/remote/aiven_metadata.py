"""What the tiered storage plugin of Aiven adds to the remote log metadata of a segment (``custom.metadata.fields.include``).

Nothing, or one section of tagged fields: 0 the bytes of all three objects (zigzag varlong), 1 the prefix, 2 the key without prefix and
suffix. Where they are there, they tell where ``.log`` and ``.indexes`` are; the manifest is looked for under the prefix of today.

Source: ``SegmentCustomMetadataSerde``, ``SegmentCustomMetadataField`` of the plugin.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

from construct import Construct, StreamError

from formats import limits
from formats.errors import BadLengthError, BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.message import COMPACT_STRING
from formats.primitives import UNSIGNED_VARINT, VARLONG

__all__ = ["AivenMetadata", "read_aiven_metadata"]

WHAT = "custom metadata of a segment"
FIELDS: dict[int, tuple[str, Construct]] = {
    0: ("remote_size", VARLONG),
    1: ("object_prefix", COMPACT_STRING),
    2: ("object_key", COMPACT_STRING),
}


@dataclass(frozen=True, slots=True)
class AivenMetadata:
    """Custom metadata; each None where it is not told.

    Attributes:
        remote_size: bytes of the three objects.
        object_prefix: what stands before ``object_key``.
        object_key: of the objects, without their suffix.
    """

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None


def read_aiven_metadata(data: bytes) -> AivenMetadata:
    """Reads the custom metadata of a segment; fields of other tags are read over.

    Raises:
        TruncatedError: it ends inside a field.
        BadLengthError: a field of another length than it says, or bytes behind the last.
        BadValueError: a text that is no UTF-8.
        LimitExceededError: more fields than ``formats.limits`` allows.
    """
    if not data:
        return AivenMetadata()
    stream = BytesIO(data)
    try:
        found = _fields(stream)
    except StreamError:
        raise TruncatedError(WHAT, position=stream.tell(), expected="more bytes", found=f"{len(data)} bytes") from None
    except FormatError as error:
        error.position = stream.tell()
        raise
    except UnicodeDecodeError:
        raise BadValueError(WHAT, position=stream.tell(), expected="UTF-8", found="other bytes") from None
    if stream.tell() != len(data):
        raise BadLengthError(WHAT, position=stream.tell(), expected="its end", found=f"{len(data) - stream.tell()} bytes more")
    return AivenMetadata(**found)


def _fields(stream: BytesIO) -> dict[str, Any]:
    found: dict[str, Any] = {}
    count = UNSIGNED_VARINT.parse_stream(stream)
    if count > limits.TAGGED_FIELDS_MAX:
        raise LimitExceededError("count of tagged fields", expected=f"at most {limits.TAGGED_FIELDS_MAX}", found=count)
    for _ in range(count):
        tag, size = UNSIGNED_VARINT.parse_stream(stream), UNSIGNED_VARINT.parse_stream(stream)
        begin = stream.tell()
        if tag not in FIELDS:
            stream.seek(begin + size)
            if stream.tell() > stream.getbuffer().nbytes:
                raise StreamError("ends early")
            continue
        name, grammar = FIELDS[tag]
        found[name] = grammar.parse_stream(stream)
        if stream.tell() - begin != size:
            raise BadLengthError(f"length of {name}", expected=stream.tell() - begin, found=size)
    return found
