"""The names of the fields that Aiven's plugin may include in the custom metadata of a copy. Help texts load it: it needs no grammar.

Source: ``SegmentCustomMetadataField`` of the plugin.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CustomField"]


class CustomField(StrEnum):
    """A field, by its name in ``custom.metadata.fields.include``. The order is that of the tags, from 0 on."""

    REMOTE_SIZE = "REMOTE_SIZE"
    OBJECT_PREFIX = "OBJECT_PREFIX"
    OBJECT_KEY = "OBJECT_KEY"

    @property
    def tag(self) -> int:
        """Number of the field in the bytes."""
        return tuple(CustomField).index(self)
