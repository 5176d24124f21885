"""Followers that start from remote storage: offsets, plan, build, check, repair."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Profile"]


class Profile(StrEnum):
    """The rules that a follower or a leader follows. It is here because the help of commands must not load more than this."""

    PROPOSAL = "kip-1023"
    """The rules of the proposal."""
    KAFKA = "kafka-4.3"
    """The rules of brokers of 4.3 and 4.4."""
