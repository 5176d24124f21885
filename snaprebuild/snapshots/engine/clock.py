"""When producers expire, as a value.

Where the expiration comes from: an option, else ``server.properties`` (``snapshots.source.broker_properties.expiration_of``), else Kafka's
default of one day (``replay.window.DEFAULT_EXPIRATION_MS``).
"""

from __future__ import annotations

import msgspec

__all__ = ["Clock"]


class Clock(msgspec.Struct, frozen=True):
    """The moment for which expiry is judged, ms since 1970, and the expiration, ms."""

    as_of_ms: int
    expiration_ms: int
