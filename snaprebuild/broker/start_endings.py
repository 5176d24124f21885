"""Fates that end the start of a partition: nothing after them happens there. Pure: facts in, fates out.

The order of the checks is that of a broker: the name, the leader epochs, the segments with their indexes, the end of the log, the topic id.
What only the batches show is known to `verify` alone, so that `scan` stays quick.

Source: ``LogManager.loadLogs`` and ``loadLog``, ``LogLoader.load``, ``recoverLog`` and ``loadSegmentFiles``, ``LogSegment.sanityCheck``,
``TransactionIndex.sanityCheck``, ``FileLogInputStream.nextBatch``, ``ProducerAppendInfo.appendDataBatch``, ``PartitionMetadataFile`` of
2.8.2, 3.6, 3.7, 3.9 and 4.3.1. An IOException takes the log directory offline; anything else ends the start of the broker.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from snaprebuild.broker.fates import LEADER_EPOCHS_REMEDY, TAKE_ANOTHER_REPLICA, Fate, FateKind
from snaprebuild.broker.releases import Release
from snaprebuild.broker.start_facts import BrokerFacts, PartitionFacts, Shutdown, SmallFile, TopicIdFile, TransactionIndexFault
from snaprebuild.broker.stray_fates import lost_id_remedy
from snaprebuild.findings import FindingCause

__all__ = ["start_endings"]

FIRST_THAT_GOES_OFFLINE: Release = (3, 2, 1)
FIRST_WITH_ANY_ID_VERSION: Release = (3, 7, 0)
"""From here on a ``partition.metadata`` above version 0 is read."""
FIRST_WITH_TWO_BYTES: Release = (4, 4, 0)
"""From here on the version of an aborted transaction has two bytes, and only 0 passes."""


class Ending(msgspec.Struct, frozen=True):
    """A fate that ends the start of a partition, and the releases that have it: from ``first`` on, below ``before``."""

    fate: Fate
    first: Release | None = None
    before: Release | None = None

    def applies_to(self, release: Release) -> bool:
        """Whether the release has this ending."""
        is_above = self.first is None or release >= self.first
        is_below = self.before is None or release < self.before
        return is_above and is_below


def start_endings(partition: PartitionFacts, broker: BrokerFacts) -> tuple[list[Fate], bool]:
    """The first ending of each release, and whether each release has one."""
    left = broker.releases.releases
    fates = []
    for check in _CHECKS_THAT_END_A_START:
        if check is _topic_id_file and broker.deletes_topic_ids:
            continue  # the file is deleted unread
        for ending in check(partition):
            ended = [release for release in left if ending.applies_to(release)]
            if ended:
                fates.append(msgspec.structs.replace(ending.fate, releases=broker.releases.text_of(ended)))
                left = tuple(release for release in left if release not in ended)
    return fates, not left


def _offline_or_exit(fate: Fate, before: Release | None = None) -> list[Ending]:
    """A KafkaStorageException of the load: releases before 3.2.1 do not catch it, and exit at each start (KAFKA-13773)."""
    exits = msgspec.structs.replace(fate, kind=FateKind.NO_START)
    return [Ending(exits, before=FIRST_THAT_GOES_OFFLINE), Ending(fate, first=FIRST_THAT_GOES_OFFLINE, before=before)]


def _unreadable(partition: PartitionFacts) -> list[Ending]:
    if not partition.unreadable_names:
        return []
    fate = Fate(
        kind=FateKind.OFFLINE,
        subject=partition.topic_partition,
        path=f"{partition.path}/{partition.unreadable_names[0]}",
        code="unreadable-by-broker",
        cause="a file that the broker may not read",
        detail=partition.unreadable_names[0],
        evidence="owner and mode of the file",
        log_line="java.io.IOException: Could not read file",
        remedy="Give the file to the broker's user (chown)",
        finding_cause=FindingCause.NOT_READABLE_BY_BROKER,
    )
    return [Ending(fate)]


def _unloadable_name(partition: PartitionFacts) -> list[Ending]:
    if not partition.unloadable_names:
        return []
    fate = Fate(
        kind=FateKind.NO_START,
        subject=partition.topic_partition,
        path=f"{partition.path}/{partition.unloadable_names[0]}",
        code="misnamed-file",
        cause="a file name without an offset",
        detail=partition.unloadable_names[0],
        evidence="the name",
        log_line="java.lang.NumberFormatException: For input string",
        remedy="Move the file out of the log directory",
    )
    return [Ending(fate)]


def _epochs_negative(partition: PartitionFacts) -> list[Ending]:
    """``LeaderEpochFileCache.assign`` throws an IllegalArgumentException, which nothing catches."""
    if partition.epochs_file is not SmallFile.NEGATIVE:
        return []
    fate = Fate(
        kind=FateKind.NO_START,
        **partition.place,
        code="unreadable-leader-epochs",
        cause="a negative number in leader-epoch-checkpoint",
        evidence="leader-epoch-checkpoint",
        log_line="java.lang.IllegalArgumentException: Received invalid partition leader epoch entry",
        remedy=LEADER_EPOCHS_REMEDY,
    )
    return [Ending(fate)]


def _epochs_malformed(partition: PartitionFacts) -> list[Ending]:
    if partition.epochs_file is not SmallFile.MALFORMED:
        return []
    fate = Fate(
        kind=FateKind.OFFLINE,
        **partition.place,
        code="unreadable-leader-epochs",
        cause="malformed leader-epoch-checkpoint",
        evidence="leader-epoch-checkpoint",
        log_line="java.io.IOException: Malformed line in checkpoint file",
        remedy=LEADER_EPOCHS_REMEDY,
    )
    return _offline_or_exit(fate)


def _transaction_index_version(partition: PartitionFacts) -> list[Ending]:
    return [
        *_transaction_version(partition, TransactionIndexFault.VERSION, None),
        *_transaction_version(partition, TransactionIndexFault.VERSION_OF_TWO_BYTES, FIRST_WITH_TWO_BYTES),
    ]


def _transaction_version(partition: PartitionFacts, fault: TransactionIndexFault, first: Release | None) -> list[Ending]:
    bases = [base for base, each in partition.transaction_index_faults if each is fault]
    checked = [base for base in bases if base not in partition.without_index]
    if not checked:
        return []
    fate = Fate(
        kind=FateKind.NO_START,
        **partition.place,
        code="transaction-index-version",
        cause="a .txnindex of an unknown version",
        detail=f"segment {checked[0]}",
        evidence=".txnindex",
        log_line="org.apache.kafka.common.KafkaException: Unexpected aborted transaction version",
        remedy="Copy the file from a replica in sync, or, if another replica is in sync, remove the directory and let Kafka fetch it again",
    )
    return [Ending(fate, first=first)]


def _end_throws(partition: PartitionFacts) -> list[Ending]:
    end = partition.end
    if end is None or not end.throws or partition.shutdown is not Shutdown.CLEAN or partition.is_deleted:
        return []  # LogLoader.load does not read to the end of a log that is marked for deletion
    fate = Fate(
        kind=FateKind.FAILS_ONCE,
        **partition.place,
        code="bytes-after-last-batch",
        cause="bytes after the last batch, and the marker of a clean stop",
        detail=f"{end.bytes_after} bytes after offset {end.offset}",
        size_bytes=end.bytes_after,
        log_end_offset=end.offset,
        evidence="the end of the last segment",
        log_line="org.apache.kafka.common.errors.CorruptRecordException: Found record size 0 smaller than minimum record overhead",
        remedy="Start twice: the second start recovers the log and cuts these bytes",
    )
    return [Ending(fate)]


def _topic_id_file(partition: PartitionFacts) -> list[Ending]:
    """``PartitionMetadataFile.read``."""
    if partition.topic_id_file is TopicIdFile.NEWER_VERSION:
        return _topic_id_version(partition)
    kind = {
        TopicIdFile.LINE_MISSING: FateKind.NO_START,
        TopicIdFile.NO_UUID: FateKind.NO_START,
        TopicIdFile.ZERO: FateKind.OFFLINE,
        TopicIdFile.MALFORMED: FateKind.OFFLINE,
    }.get(partition.topic_id_file)
    if kind is None:
        return []
    cause, log_line = {
        TopicIdFile.LINE_MISSING: ("partition.metadata is empty or cut", "java.lang.NullPointerException: this.text is null"),
        TopicIdFile.NO_UUID: ("partition.metadata has no UUID", "java.lang.IllegalArgumentException: Input string"),
        TopicIdFile.ZERO: (
            "partition.metadata has the id zero",
            "java.io.IOException: Invalid topic ID in partition metadata file",
        ),
        TopicIdFile.MALFORMED: ("malformed partition.metadata", "java.io.IOException: Malformed line in partition metadata file"),
    }[partition.topic_id_file]
    fate = Fate(
        kind=kind,
        **partition.place,
        code="unreadable-topic-id",
        cause=cause,
        evidence="partition.metadata",
        log_line=log_line,
        remedy=lost_id_remedy(partition)
        or "Copy partition.metadata from another replica of the same topic: all of them have the same id",
    )
    return _offline_or_exit(fate) if kind is FateKind.OFFLINE else [Ending(fate)]


def _topic_id_version(partition: PartitionFacts) -> list[Ending]:
    fate = Fate(
        kind=FateKind.OFFLINE,
        **partition.place,
        code="unreadable-topic-id",
        cause="partition.metadata of a version above 0",
        evidence="partition.metadata",
        log_line="java.io.IOException: Unrecognized version of partition metadata file",
        remedy="Start a release from 3.7 on, or copy partition.metadata from another replica of the same topic",
    )
    return _offline_or_exit(fate, before=FIRST_WITH_ANY_ID_VERSION)


def _plain_write(partition: PartitionFacts) -> list[Ending]:
    """InvalidTxnStateException, at each start: nothing catches it, also after a clean stop."""
    if partition.log_read is None or partition.log_read.plain_write is None:
        return []
    offset, producer_id = partition.log_read.plain_write
    fate = Fate(
        kind=FateKind.NO_START,
        **partition.place,
        code="write-outside-transaction",
        cause="a write outside of the open transaction of its producer",
        detail=f"offset {offset}, producer {producer_id}",
        log_end_offset=offset,
        evidence="the segments and the newest snapshot below",
        log_line="org.apache.kafka.common.errors.InvalidTxnStateException: Expected transactional write from producer",
        remedy=TAKE_ANOTHER_REPLICA,
    )
    return [Ending(fate)]


def _rebuilt_index(partition: PartitionFacts) -> list[Ending]:
    """Offsets that descend in a segment whose index is made anew: InvalidOffsetException, which nothing catches there.

    With a missing ``.index`` the first attempt leaves a file, and the second start loads it. With a faulty ``.txnindex`` each start fails.
    """
    if partition.log_read is None or not partition.log_read.descending:
        return []
    missing = [base for base in partition.log_read.descending if base in partition.without_index]
    is_each_start = len(missing) < len(partition.log_read.descending)
    fate = Fate(
        kind=FateKind.NO_START if is_each_start else FateKind.FAILS_ONCE,
        **partition.place,
        code="offsets-descend",
        cause="descending offsets in a segment whose index is rebuilt",
        detail=f"segment {partition.log_read.descending[0]}",
        evidence="the segment",
        log_line="org.apache.kafka.common.errors.InvalidOffsetException: Attempt to append an offset",
        remedy=TAKE_ANOTHER_REPLICA,
    )
    return [Ending(fate)]


_CHECKS_THAT_END_A_START: tuple[Callable[[PartitionFacts], list[Ending]], ...] = (
    _unreadable,
    _unloadable_name,
    _epochs_malformed,
    _epochs_negative,
    _transaction_index_version,
    _rebuilt_index,
    _plain_write,
    _end_throws,
    _topic_id_file,
)
"""The checks in the order of a broker."""
