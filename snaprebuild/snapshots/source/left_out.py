"""Why a boundary gets no snapshot: a kind that commands decide by, and the words that they print."""

from __future__ import annotations

from enum import Enum, auto

import msgspec

__all__ = ["LeftOut", "LeftOutReason"]


class LeftOut(Enum):
    """What keeps a snapshot from being written."""

    NOT_NEEDED = auto()
    """No broker uses a snapshot there."""
    MADE_BY_BROKER = auto()
    """The broker writes it itself, at its next stop or start."""
    MADE_BY_INSTALL = auto()
    """Only at the log end: `install` replays it from the staged state."""
    OLD_REPLICA = auto()
    """The next start deletes the partition, and no broker needs it."""
    LOST_END = auto()
    """Only at the log end, which is below the recovery point: the next start decides what the broker does there."""
    STOPPED_WITHOUT = auto()
    """Only at the log end: no broker writes it any more, and what is staged ends below it."""
    NO_BROKER_FILES = auto()
    """The directory is not a broker's."""
    CLEANER_UNKNOWN = auto()
    """Whether the topic is compacted is unknown."""
    IRREGULAR_NAME = auto()
    """A directory, link or pipe has the name."""
    TOPIC_ID_ZERO = auto()
    """Kafka would upload the segment under topic id zero."""
    DISTRUSTED = auto()
    """The verdict on the replica."""
    REMOVED_AT_START = auto()
    """The next start removes it, or writes it again."""
    NOT_WRITABLE = auto()
    """This process cannot write there."""
    UNSAFE_START = auto()
    """The next start loses the partition, or a part of it."""


_NEEDED_BY_NONE = frozenset((LeftOut.NOT_NEEDED, LeftOut.MADE_BY_BROKER, LeftOut.MADE_BY_INSTALL, LeftOut.OLD_REPLICA))


class LeftOutReason(msgspec.Struct, frozen=True):
    """Why a boundary gets no snapshot.

    Attributes:
        kind: that commands decide by.
        text: a sentence without its stop.
    """

    kind: LeftOut
    text: str

    @property
    def may_be_needed(self) -> bool:
        """Whether a broker may need the snapshot, and does not make it itself."""
        return self.kind not in _NEEDED_BY_NONE
