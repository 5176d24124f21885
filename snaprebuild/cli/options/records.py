"""Values of the options of ``inspect records``."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["LIMIT_MAX", "IsolationOption", "PayloadFormat"]

LIMIT_MAX = 1_000_000
"""Records that are shown, at most: they are in memory."""


class PayloadFormat(StrEnum):
    """How keys or values are shown."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    JSON = "json"


class IsolationOption(StrEnum):
    """The values of ``consume.record_query.RecordIsolation``, which would import too much for a help text."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"
    ALL = "all"
