"""What Kafka does at its next start with a file of a metadata log whose name is not one that it gave.

Source: ``LogFileUtils.offsetFromFileName``, ``LogLoader``, ``ProducerStateManager.loadSnapshots``, ``Snapshots.parse`` and
``KafkaRaftLog.recoverSnapshots`` of 4.3.1.
"""

from __future__ import annotations

import re
from enum import StrEnum

__all__ = ["NameEffect", "effect_of_name"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,255}")
_CHECKPOINT = ".checkpoint"
_REMOVED_CHECKPOINTS = (".checkpoint.part", ".checkpoint.deleted")
_INDEXES = (".index", ".timeindex", ".txnindex")


class NameEffect(StrEnum):
    """What a name does."""

    NONE = "none"
    REMOVED = "removed"
    """The file is deleted."""
    CLEANER_FAILS = "cleaner-fails"
    """It is taken for a checkpoint whose file has another name: once log and checkpoints are too large, the cleaner throws."""
    TAKEN_FOR_SEGMENT = "taken-for-segment"
    """It becomes part of the log, whatever it holds; the log may lose its end by that."""
    REFUSED = "refused"
    """The node does not start."""


def effect_of_name(name: str) -> NameEffect:
    """What becomes of a file that is none of Kafka's, by the end of its name."""
    if name.endswith((_CHECKPOINT, *_REMOVED_CHECKPOINTS)):
        # Cut at fixed places, whatever stands between and behind.
        is_read = len(name) >= 31 and _is_number(name[:20], 63) and _is_number(name[21:31], 31)
        if not is_read:
            return NameEffect.REFUSED
        return NameEffect.CLEANER_FAILS if name.endswith(_CHECKPOINT) else NameEffect.REMOVED
    if name.endswith(".deleted"):
        return NameEffect.REMOVED
    if not name.endswith((".cleaned", ".swap", ".log", ".snapshot", *_INDEXES)):
        return NameEffect.NONE
    if not _is_number(name[: name.index(".")], 63):
        return NameEffect.REFUSED
    return NameEffect.TAKEN_FOR_SEGMENT if name.endswith((".log", ".log.swap")) else NameEffect.REMOVED


def _is_number(text: str, bits: int) -> bool:
    """``Long.parseLong`` and ``Integer.parseInt``."""
    return _INTEGER.fullmatch(text) is not None and -(1 << bits) <= int(text) < 1 << bits
