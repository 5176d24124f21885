"""The custom metadata that Aiven's plugin returns to the broker for each copy: tagged fields.

``custom.metadata.fields.include`` of the plugin names the fields. Without a name the plugin returns nothing.

Source: ``SegmentCustomMetadataField``, ``SegmentCustomMetadataBuilder``, ``SegmentCustomMetadataSerde`` of the plugin.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from construct import Bytes, ConstructError, PrefixedArray, Struct, this

from formats.primitives import UNSIGNED_VARINT, VARLONG
from formats.remote.aiven_custom_fields import CustomField

__all__ = ["CustomMetadata", "custom_values", "write_custom_metadata"]

TAGGED_FIELDS = PrefixedArray(
    UNSIGNED_VARINT,
    Struct("tag" / UNSIGNED_VARINT, "size" / UNSIGNED_VARINT, "value" / Bytes(this.size)),
)


@dataclass(frozen=True, slots=True)
class CustomMetadata:
    """Facts of a copy that the plugin puts into its custom metadata.

    Attributes:
        remote_size: bytes of the three objects.
        object_prefix: ``key.prefix`` of the plugin.
        object_key: key of the objects without the prefix and the kind.
    """

    remote_size: int
    object_prefix: str
    object_key: str

    def value_of(self, custom_field: CustomField) -> bytes:
        """The bytes of one field."""
        if custom_field is CustomField.REMOTE_SIZE:
            return bytes(VARLONG.build(self.remote_size))
        if custom_field is CustomField.OBJECT_PREFIX:
            return _compact_string(self.object_prefix)
        return _compact_string(self.object_key)


def _compact_string(text: str) -> bytes:
    data = text.encode()
    return bytes(UNSIGNED_VARINT.build(len(data) + 1)) + data


def write_custom_metadata(metadata: CustomMetadata, fields: Collection[CustomField]) -> bytes | None:
    """The bytes for a record of ``__remote_log_metadata``; None without a field, as the plugin then returns none.

    Args:
        metadata: of the copy.
        fields: that the plugin is set to include, in any order.
    """
    if not fields:
        return None
    rows = []
    for each in CustomField:
        if each in fields:
            value = metadata.value_of(each)
            rows.append({"tag": each.tag, "size": len(value), "value": value})
    return bytes(TAGGED_FIELDS.build(rows))


def custom_values(data: bytes) -> dict[int, bytes] | None:
    """The bytes of each field by its tag; None if the plugin would not have written these bytes.

    Args:
        data: custom metadata of a record.
    """
    try:
        rows = TAGGED_FIELDS.parse(data)
    except (ConstructError, ValueError):
        return None
    values = {int(row.tag): bytes(row.value) for row in rows}
    is_whole = bytes(TAGGED_FIELDS.build(rows)) == data
    if is_whole and len(values) == len(rows):
        return values
    return None
