"""When a broker forgets a producer.

Source: ``ProducerStateManager.isProducerExpired``, KIP-854.
"""

from __future__ import annotations

from formats.partition.producer_snapshot import ProducerEntry

__all__ = ["DEFAULT_EXPIRATION_MS", "is_expired"]

DEFAULT_EXPIRATION_MS = 86_400_000
"""``producer.id.expiration.ms``, one day (KIP-854). Brokers before 3.4 use ``transactional.id.expiration.ms``, seven days."""


def is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    """Whether a broker drops the entry when it loads it at ``now_ms``. An open transaction never expires, equality does."""
    return entry.current_txn_first_offset < 0 and now_ms - entry.timestamp >= expiration_ms
