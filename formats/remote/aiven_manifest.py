"""The ``.rsm-manifest`` of the tiered storage plugin of Aiven: how a segment was cut in chunks, and where its indexes are.

JSON without blanks. The plugin's reader refuses unknown keys, except inside ``remoteLogSegmentMetadata``, which it does not read;
so does this one.

The five indexes follow each other in the ``.indexes`` object. Chunks are either of one size (``fixed``) or, if they are compressed,
of any (``variable``).
For variable chunks, the sizes are a list in a zstd frame in base64. It has the count and the size of the last chunk. With more than
one chunk it also has, between the two, the least size, how many bytes a difference from it takes, and the differences.

Source: ``SegmentManifestV1``, ``SegmentIndexesV1``, ``FixedSizeChunkIndex``, ``VariableSizeChunkIndex``, ``ChunkSizesBinaryCodec``,
``SegmentEncryptionMetadataV1`` of the plugin.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats import limits
from formats.compression import CODECS, decompress
from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, LimitExceededError, TruncatedError
from formats.text_lines import shown, shown_json

__all__ = [
    "AivenManifest",
    "Chunks",
    "EncryptedKey",
    "IndexPlace",
    "SegmentIndex",
    "read_aiven_manifest",
    "write_aiven_manifest",
]

VERSION = "1"


class SegmentIndex(StrEnum):
    """The indexes, in their order in the object, by their keys in the manifest."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producerSnapshot"
    LEADER_EPOCH = "leaderEpoch"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """Where an index is in the ``.indexes`` object: position and size in bytes, as it is stored there."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Chunks:
    """How a segment was cut.

    Attributes:
        original_size: bytes of each chunk of the segment, except the last one.
        file_size: bytes of the segment.
        sizes: bytes of each chunk as it is stored: in this order they are the ``.log`` object.
    """

    original_size: int
    file_size: int
    sizes: tuple[int, ...]

    @property
    def positions(self) -> NDArray[np.int64]:
        """Where each chunk begins in the object, and where the last one ends; bytes."""
        return np.cumsum((0, *self.sizes), dtype=np.int64)

    @property
    def stored_bytes(self) -> int:
        """Size of the object."""
        return sum(self.sizes)

    def original(self, number: int) -> tuple[int, int]:
        """Begin and end of a chunk in the segment, bytes."""
        begin = number * self.original_size
        return begin, min(begin + self.original_size, self.file_size)


@dataclass(frozen=True, slots=True)
class EncryptedKey:
    """The key with which the segment is encrypted.

    Attributes:
        key_id: of the RSA key pair with which the data key is encrypted.
        data_key: encrypted.
        additional: authenticated data that is not encrypted (AAD).
    """

    key_id: str
    data_key: bytes
    additional: bytes


@dataclass(frozen=True, slots=True)
class AivenManifest:
    """A manifest.

    Attributes:
        chunks: of the ``.log`` object.
        indexes: where each index is; None for a transaction index that does not exist.
        is_compressed: each chunk is a zstd frame.
        encryption: None where nothing is encrypted.
        document: the parsed JSON, which ``write_aiven_manifest`` takes.
    """

    chunks: Chunks
    indexes: dict[SegmentIndex, IndexPlace | None]
    is_compressed: bool
    encryption: EncryptedKey | None
    document: dict[str, Any]

    @property
    def segment(self) -> dict[str, Any]:
        """The facts that the broker passed to the plugin about the segment (``remoteLogSegmentMetadata``); may be empty, not used here."""
        metadata = self.document.get("remoteLogSegmentMetadata")
        return metadata if isinstance(metadata, dict) else {}


def read_aiven_manifest(data: bytes, *, file: str | None = None) -> AivenManifest:
    """Reads a manifest.

    Raises:
        BadVersionError: another version, or none: written by a plugin of before October 2023.
        BadValueError: no JSON, or a key that is missing, unknown or of another type: the plugin does not read it either.
        BadLengthError: the sizes of chunks do not add up to the segment.
        LimitExceededError: larger than ``formats.limits`` allows.
    """
    try:
        return _read(data)
    except FormatError as error:
        raise error.in_file(file) from None


def write_aiven_manifest(document: dict[str, Any]) -> bytes:
    """Writes a manifest as the plugin does.

    Args:
        document: ``AivenManifest.document``, or one made like it.

    Raises:
        FormatError: it could not be read again.
    """
    try:
        data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadValueError("manifest", expected="text", found=f"half a character, {error.object[error.start]!a}") from None
    except RecursionError:  # what was read with some frames of Python to spare may be too deep here
        raise BadValueError("manifest", expected="values that are nested less", found="too deep a nesting") from None
    read_aiven_manifest(data)
    return data


# ---------------------------------------------------------------------------------------------------------------- reading


def _read(data: bytes) -> AivenManifest:
    if len(data) > limits.MANIFEST_BYTES_MAX:
        raise LimitExceededError("manifest", expected=f"at most {limits.MANIFEST_BYTES_MAX} bytes", found=len(data))
    values = sum(map(data.count, (b",", b"[", b"{")))
    if values > limits.MANIFEST_VALUES_MAX:
        raise LimitExceededError("manifest", expected=f"at most {limits.MANIFEST_VALUES_MAX} values", found=values)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        position = getattr(error, "pos", None)
        raise BadValueError("manifest", position=position, expected="JSON", found=str(error)) from None
    if not isinstance(document, dict):
        raise BadValueError("manifest", expected="an object", found=type(document).__name__)
    if document.get("version") != VERSION:
        raise BadVersionError("version of the manifest", expected=repr(VERSION), found=shown_json(document.get("version")))
    required = {"version", "chunkIndex", "segmentIndexes", "compression"}
    _check_keys(document, "manifest", required, {"encryption", "remoteLogSegmentMetadata"})
    is_compressed = _typed(document, "compression", bool)
    manifest = AivenManifest(
        chunks=_chunks(_typed(document, "chunkIndex", dict)),
        indexes=_indexes(_typed(document, "segmentIndexes", dict)),
        is_compressed=is_compressed,
        encryption=None if document.get("encryption") is None else _encryption(_typed(document, "encryption", dict)),
        document=document,
    )
    stored = manifest.chunks.stored_bytes
    size = manifest.chunks.file_size
    if not is_compressed and manifest.encryption is None and stored != size:
        raise BadLengthError("chunks", expected=f"{size} bytes, as the segment has", found=stored)
    return manifest


def _check_keys(fields: dict[str, Any], what: str, required: set[str], optional: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    if missing := sorted(required - fields.keys()):
        raise BadValueError(what, expected=f"the key {str(missing[0])!r}", found="none")
    if unknown := sorted(fields.keys() - required - optional):
        raise BadValueError(what, expected="no other keys, for the plugin reads none", found=shown(unknown[0]))


def _typed(fields: dict[str, Any], key: str, kind: type[Any]) -> Any:
    value = fields[key]
    if type(value) is not kind:
        raise BadValueError(f"{key} of the manifest", expected=kind.__name__, found=shown_json(value))
    return value


def _number(fields: dict[str, Any], key: str, least: int) -> int:
    value = _typed(fields, key, int)
    if not least <= value <= limits.INT32_MAX:
        raise BadValueError(f"{key} of the manifest", expected=f"{least}..{limits.INT32_MAX}", found=value)
    return int(value)


def _chunks(fields: dict[str, Any]) -> Chunks:
    kind = fields.get("type")
    keys = {"fixed": {"transformedChunkSize", "finalTransformedChunkSize"}, "variable": {"transformedChunks"}}
    sizes = keys.get(kind) if isinstance(kind, str) else None
    if sizes is None:
        raise BadValueError("type of the chunk index", expected="'fixed' or 'variable'", found=shown_json(kind))
    _check_keys(fields, "chunk index", {"type", "originalChunkSize", "originalFileSize"} | sizes)
    original_size = _number(fields, "originalChunkSize", 1)
    file_size = _number(fields, "originalFileSize", 0)
    count = -(-file_size // original_size)
    if kind == "fixed":
        if count > limits.CHUNKS_MAX:
            raise LimitExceededError("count of chunks", expected=f"at most {limits.CHUNKS_MAX}", found=count)
        size = _number(fields, "transformedChunkSize", 0)
        last = _number(fields, "finalTransformedChunkSize", 0)
        sizes_of_chunks = (*(size,) * (count - 1), last)[:count]
    else:
        sizes_of_chunks = _chunk_sizes(_typed(fields, "transformedChunks", str))
        if len(sizes_of_chunks) != count:
            raise BadLengthError(
                "count of chunks", expected=f"{count}, for {file_size} bytes of {original_size} each", found=len(sizes_of_chunks)
            )
    return Chunks(original_size, file_size, sizes_of_chunks)


def _chunk_sizes(text: str) -> tuple[int, ...]:
    what = "sizes of the chunks"
    try:
        packed = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadValueError(what, expected="base64", found=str(error)) from None
    data = decompress(CODECS.index("zstd"), packed, bytes_max=9 + 4 * limits.CHUNKS_MAX)
    if len(data) < 4:
        raise TruncatedError(what, position=0, expected="a count of 4 bytes", found=f"{len(data)} bytes")
    count = int.from_bytes(data[:4], "big", signed=True)
    if not 0 <= count <= limits.CHUNKS_MAX:
        raise BadLengthError("count of chunks", position=0, expected=f"0..{limits.CHUNKS_MAX}", found=count)
    if count < 2:
        _check_length(what, data, 4 + 4 * count)
        return tuple(_size(data[at : at + 4], 0) for at in range(4, len(data), 4))
    _check_length(what, data, 9, or_more=True)
    base = data[4:8]
    width = data[8]
    if not 1 <= width <= 4:
        raise BadLengthError("width of the sizes of the chunks", position=8, expected="1..4", found=width)
    _check_length(what, data, 9 + width * (count - 1) + 4)
    least = int.from_bytes(base, "big", signed=True)
    ends = range(9, len(data) - 4, width)
    return (*(_size(data[at : at + width], least) for at in ends), _size(data[-4:], 0))


def _size(data: bytes, least: int) -> int:
    size = least + int.from_bytes(data, "big")
    if not 0 <= size <= limits.INT32_MAX:
        raise BadLengthError("size of a chunk", expected=f"0..{limits.INT32_MAX}", found=size)
    return size


def _check_length(what: str, data: bytes, length: int, *, or_more: bool = False) -> None:
    if len(data) < length or (len(data) > length and not or_more):
        raise BadLengthError(what, expected=f"{length} bytes", found=f"{len(data)}")


def _indexes(fields: dict[str, Any]) -> dict[SegmentIndex, IndexPlace | None]:
    _check_keys(fields, "segmentIndexes of the manifest", set(SegmentIndex))
    indexes: dict[SegmentIndex, IndexPlace | None] = {}
    for index in SegmentIndex:
        if fields[index] is None and index is SegmentIndex.TRANSACTION:
            indexes[index] = None
            continue
        place = _typed(fields, index, dict)
        _check_keys(place, f"{index} of the manifest", {"position", "size"})
        indexes[index] = IndexPlace(_number(place, "position", 0), _number(place, "size", 0))
    return indexes


def _encryption(fields: dict[str, Any]) -> EncryptedKey:
    _check_keys(fields, "encryption of the manifest", {"dataKey", "aad"})
    key_id, colon, data_key = _typed(fields, "dataKey", str).partition(":")
    if not colon or not key_id:
        raise BadValueError("dataKey of the manifest", expected="<key id>:<base64>", found="none")
    try:
        return EncryptedKey(
            key_id, base64.b64decode(data_key, validate=True), base64.b64decode(_typed(fields, "aad", str), validate=True)
        )
    except binascii.Error as error:
        raise BadValueError("encryption of the manifest", expected="base64", found=str(error)) from None
