"""Producer ids of a log that its cluster has yet to give out: a partition that came from another cluster.

A new producer that gets such an id is taken for the old one: its first batches may be answered as duplicates, and are lost without an
error. An entry that has expired does no harm, as a broker forgets it. No command raises the next id of a cluster. With ZooKeeper the ids
are not in a metadata log, and during a migration they come from ZooKeeper, too.

Source: ``ProducerIdControlManager``, ``ProducerStateManager`` of Kafka 4.3.1.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from formats import limits
from formats.errors import FormatError
from formats.partition.producer_snapshot import read_entries
from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.cluster.source_check.evidence import LogEvidence, MetadataEvidence, SourceEvidence
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.findings import Finding, Severity, choose_form, first_of, pluralize
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.storage.partition_dir import PartitionDir

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "CODE",
    "ForeignProducers",
    "foreign_producers",
    "is_newer_than_batches",
    "is_newer_than_log",
    "newest_entries",
    "producer_id_finding",
    "read_newest_entries",
    "unknown_producer_ids",
    "with_later_batches",
]

CODE = "producer-id-collision"

UNKNOWN = (
    "whether the cluster has given out all producer ids in it is unknown: the metadata log has none above, and may be older or of "
    "another topic of this name"
)

PRE_MIGRATION = 1
MIGRATION = 2
"""``ZkMigrationState``: ZooKeeper still has the producer ids."""

LAST_MOMENT_MS = 253_402_300_799_999
"""The last one that has a date; the clock of a producer may be anywhere."""


class ForeignProducers(msgspec.Struct, frozen=True):
    """Producers of a log whose ids the cluster has yet to give out.

    Attributes:
        count: of them.
        greatest_id: among them.
        next_id: that the cluster gives out next, with all above it.
        expire_ms: moment when the last of them has expired, ms since 1970.
        open_transactions: of them.
    """

    count: int
    greatest_id: int
    next_id: int
    expire_ms: int
    open_transactions: int

    @property
    def text(self) -> str:
        """The ids, what follows, and the two ways out."""
        expired = "after the year 9999"
        if self.expire_ms <= LAST_MOMENT_MS:
            expired = f"{datetime.datetime.fromtimestamp(self.expire_ms / 1000, datetime.UTC):%Y-%m-%d %H:%M}Z"
        transactions = pluralize(self.open_transactions, "open transaction")
        first = f"end their {transactions}, then write" if self.open_transactions else "write"
        return (
            f"{pluralize(self.count, 'producer')} with ids up to {self.greatest_id}, and the next one that the cluster gives out is "
            f"{self.next_id}. A new producer may get one of them, and lose records that are acknowledged. Wait until they have expired, "
            f"{expired}, or {first} the state without them"
        )


def newest_entries(directory: PartitionDir) -> np.ndarray | None:
    """The entries of the newest snapshot; None without one, and of one that cannot be read: ``verify`` reports that."""
    try:
        return read_newest_entries(directory)
    except ReadFailedError:
        return None


def read_newest_entries(directory: PartitionDir) -> np.ndarray | None:
    """The entries of the newest snapshot; None without one, and of one that changes or is damaged: ``verify`` reports that.

    Raises:
        ReadFailedError: it cannot be read.
    """
    if not directory.snapshots:
        return None
    _, newest = directory.snapshots[-1]
    try:
        data = directory.file(newest.name).read_small(limits.SNAPSHOT_BYTES_MAX)
        return None if data is None else read_entries(data)
    except (ChangedFileError, FormatError):
        return None


def with_later_batches(entries: np.ndarray | None, later: np.ndarray | None) -> np.ndarray | None:
    """The entries of a snapshot, and those of the producers that wrote above it, whose last entry counts; None without both.

    Args:
        entries: of the snapshot; None without one.
        later: of the batches above it, in the order of the log; None if they were not read.
    """
    from snaprebuild.snapshots.engine.crosscheck import last_entries

    batches = [each for each in (entries, later) if each is not None and len(each)]
    return last_entries(*batches) if batches else None


def foreign_producers(
    entries: np.ndarray | None, image: MetadataImage, now_ms: int, expiration_ms: int = DEFAULT_EXPIRATION_MS
) -> ForeignProducers | None:
    """The producers that have not expired and whose ids are at or above the next one of the cluster; None without any.

    Args:
        entries: as of ``read_entries``; None for none.
        image: of the cluster.
        now_ms: the clock, ms since 1970.
        expiration_ms: ``producer.id.expiration.ms``.
    """
    if entries is None or image.zk_migration_state in (PRE_MIGRATION, MIGRATION):
        return None
    following = max(image.next_producer_id, 0)
    is_foreign = (entries["timestamp"] > now_ms - expiration_ms) & (entries["producer_id"] >= following)
    foreign = entries[is_foreign]
    if not len(foreign):
        return None
    return ForeignProducers(
        count=len(foreign),
        greatest_id=int(foreign["producer_id"].max()),
        next_id=following,
        expire_ms=int(foreign["timestamp"].max()) + expiration_ms,
        open_transactions=int((foreign["current_txn_first_offset"] >= 0).sum()),
    )


def is_newer_than_log(evidence: SourceEvidence) -> bool:
    """Whether the image is proven to be newer than the last batch of a replica; then it has the ids of all producers before.

    The record of the partition has a leader epoch at least that of the last batch, and nothing shows that the image is older.
    """
    return evidence.cluster is not None and is_newer_than_batches(evidence.cluster, evidence.log)


def is_newer_than_batches(cluster: MetadataEvidence, log: LogEvidence) -> bool:
    """Whether the state of the cluster is newer than a log, also for one without other evidence, such as copies in remote storage."""
    if cluster.older is not None or cluster.partition is None:
        return False
    if log.topic_id is not None and log.topic_id != cluster.topic_id:
        return False
    epochs = [] if log.epochs is None else [epoch.epoch for epoch in log.epochs]
    if log.tail_epoch is not None:
        epochs.append(log.tail_epoch)
    return bool(epochs) and cluster.partition.leader_epoch >= max(epochs)


def producer_id_finding(path: str, names: Sequence[str], foreign: Iterable[ForeignProducers], severity: Severity) -> Finding:
    """One finding for the partitions of a cluster that have such producers.

    Args:
        path: of the partition, or of the log directory.
        names: of the partitions.
        foreign: their producers.
        severity: what the command makes of it.
    """
    several = list(foreign)
    whole = ForeignProducers(
        count=sum(each.count for each in several),
        greatest_id=max(each.greatest_id for each in several),
        next_id=max(each.next_id for each in several),
        expire_ms=max(each.expire_ms for each in several),
        open_transactions=sum(each.open_transactions for each in several),
    )
    where = names[0] if len(names) == 1 else f"{len(names)} partitions ({first_of(names)})"
    has = choose_form(len(names), "has", "have")
    return Finding(CODE, severity, path, f"{where} {has} {whole.text}")


def unknown_producer_ids(path: str, names: Sequence[str]) -> Finding:
    """The note on partitions with such producers, where the metadata log is not proven to be newer than they are.

    Args:
        path: of the log directory, or of the store.
        names: of the partitions.
    """
    return Finding("producer-ids-unknown", Severity.NOTE, path, f"{first_of(names)}: {UNKNOWN}")
