"""The query of a read: topics, offsets or times, transactions, and the treatment of damage. The names are those of Spark's Kafka source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.partition_names import TopicKind, topic_kind_of

__all__ = [
    "ALL_TIMES",
    "EARLIEST",
    "LATEST",
    "DamageMode",
    "Moments",
    "NoMatch",
    "Offsets",
    "RecordIsolation",
    "RecordQuery",
    "TimeBounds",
]

EARLIEST = -2
LATEST = -1
"""Offsets with a meaning, as in the protocol of Kafka."""

Offsets = int | Mapping[str, Mapping[int, int]]
"""``EARLIEST`` or ``LATEST`` for all partitions, or an offset for each, by topic and number."""

Moments = int | Mapping[str, Mapping[int, int]]
"""Times in ms since 1970: one for all partitions, or one for each, by topic and number."""


class RecordIsolation(StrEnum):
    """Which records are read."""

    READ_COMMITTED = "read_committed"
    """Records below the last stable offset, without aborted transactions."""
    READ_UNCOMMITTED = "read_uncommitted"
    """Records below the high watermark, also of transactions that were aborted or are open."""
    ALL = "all"
    """Records and control records below the high watermark."""


class DamageMode(StrEnum):
    """The treatment of a batch that cannot be read."""

    FAILFAST = "FAILFAST"
    """The batch ends the read with an error."""
    PERMISSIVE = "PERMISSIVE"
    """The batch becomes a row with an error, and the next batch is read."""
    DROPMALFORMED = "DROPMALFORMED"
    """The batch is left out, and the next batch is read."""


class NoMatch(StrEnum):
    """The treatment of a partition without a record at or after the starting time."""

    ERROR = "error"
    LATEST = "latest"


class TimeBounds(msgspec.Struct, frozen=True):
    """The timestamps that are of interest: batches that have no record between them may be left out.

    Attributes:
        least_ms: ms since 1970; None for no bound.
        most_ms: ms since 1970; None for no bound.
    """

    least_ms: int | None = None
    most_ms: int | None = None


ALL_TIMES = TimeBounds()


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A request for records.

    Attributes:
        topics: shell patterns; none for all.
        subscribe: names of topics, which must exist.
        subscribe_pattern: a regular expression that a whole name matches; None for none.
        finds_pattern: a part of a name is sufficient.
        assign: topics and numbers of partitions, which must exist.
        starting_offsets: the first offset of each partition.
        ending_offsets: the offset after the last one of each partition.
        starting_timestamp: ms since 1970, of all or of each partition, instead of ``starting_offsets``; None without one.
        ending_timestamp: ms since 1970, of all or of each partition, instead of ``ending_offsets``; None without one.
        no_match: for ``starting_timestamp``.
        isolation: which records are read.
        mode: what happens with damage.
        columns: of the rows, in their order.
        topic_ids: 16 bytes by topic, of topics of which remote storage has several of that name.
        times: of the records that are of interest; others may be among the rows.
        fails_on_data_loss: offsets of the range that are not there end the read with an error.
        selection: topics and partitions as the options of a command select them, in place of the four ways above; None for those.
        includes_internal: such a selection takes Kafka's own topics, too.
    """

    topics: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str | None = None
    finds_pattern: bool = False
    assign: frozenset[tuple[str, int]] = frozenset()
    starting_offsets: Offsets = EARLIEST
    ending_offsets: Offsets = LATEST
    starting_timestamp: Moments | None = None
    ending_timestamp: Moments | None = None
    no_match: NoMatch = NoMatch.ERROR
    isolation: RecordIsolation = RecordIsolation.READ_COMMITTED
    mode: DamageMode = DamageMode.FAILFAST
    columns: tuple[str, ...] = ()
    topic_ids: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    times: TimeBounds = ALL_TIMES
    fails_on_data_loss: bool = True
    selection: Selection | None = None
    includes_internal: bool = False

    def takes(self, topic: str, partition: int) -> bool:
        """Whether a partition is selected. Kafka's own topics are, if they are named without a pattern."""
        if self.selection is not None:
            is_allowed = self.includes_internal or topic_kind_of(topic) is TopicKind.ORDINARY
            return is_allowed and self.selection.takes_partition(topic, partition)
        if self.assign:
            return (topic, partition) in self.assign
        if self.subscribe:
            return topic in self.subscribe
        if topic in self.topics:
            return True
        if topic_kind_of(topic) is not TopicKind.ORDINARY:
            return False
        if self.subscribe_pattern is not None:
            match = re.search if self.finds_pattern else re.fullmatch
            return match(self.subscribe_pattern, topic) is not None
        return Selection(self.topics).takes_partition(topic, partition)

    @property
    def needs_outcomes(self) -> bool:
        """Whether it matters how transactions ended."""
        return self.isolation is RecordIsolation.READ_COMMITTED or "transaction" in self.columns

    @property
    def skips_faults(self) -> bool:
        """Whether the batches after a damaged one are read."""
        return self.mode is not DamageMode.FAILFAST
