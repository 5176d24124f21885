"""When producers expire."""

from __future__ import annotations

import msgspec

__all__ = ["Clock"]


class Clock(msgspec.Struct, frozen=True):
    """The moment for which expiry is judged, ms since 1970, and the expiration, ms."""

    as_of_ms: int
    expiration_ms: int
