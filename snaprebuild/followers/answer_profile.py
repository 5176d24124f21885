"""Whose answer: a module of its own, because the help of verbs names the profiles and must not wait for more."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Profile"]


class Profile(StrEnum):
    """Whose answer."""

    KIP_1023 = "kip-1023"
    """Of the proposal."""
    KAFKA = "kafka-4.3"
    """Of brokers of 4.3 and 4.4."""
