"""Explains the late transactions of all partitions: gathers what their files have, and asks ``hang_reasons`` for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from formats.errors import FormatError
from formats.log.batch_headers import HeaderBlock, HeaderReader
from formats.log.record_batch import ATTRIBUTE_LOG_APPEND_TIME
from formats.metadata.transaction_state import TRANSACTION_STATE_TOPIC
from snaprebuild.cluster.metadata.leadership import Leaderships
from snaprebuild.errors import ReadFailedError
from snaprebuild.inspect.coordinator_records import CoordinatorHistory, TransactionStates
from snaprebuild.inspect.hang_reasons import CoordinatorEvidence, LastMarker, LateTransaction, explain_transaction
from snaprebuild.inspect.kafka_transactions_tool import TOOL
from snaprebuild.inspect.producer_trace import BatchKind, batches_of_producer
from snaprebuild.inspect.transaction_model import AbortCommands, OngoingTransaction, PartitionTransactions
from snaprebuild.replay.block_effect import EFFECT_COLUMNS
from snaprebuild.shell_words import shell_word
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.log_dir import known_topic_id

__all__ = ["ReadLeaders", "abort_commands", "explain_late"]

ReadLeaders = Callable[[Collection[tuple[str, int]]], Leaderships | None]
"""Reads the leaders of partitions, by topic and number, from a metadata log; None without one."""


def explain_late(
    partitions: Sequence[PartitionTransactions], states: TransactionStates, read_leaders: ReadLeaders, as_of_ms: int
) -> None:
    """Adds an explanation to each late transaction that is listed.

    Args:
        partitions: with their open transactions.
        states: of the coordinators.
        read_leaders: called once, if a transaction is late.
        as_of_ms: the time of the question.

    Raises:
        UsageError, ReadFailedError: of ``read_leaders``.
    """
    late = [each for each in partitions if any(transaction.is_late for transaction in each.reported.open)]
    if not late:
        return
    cluster_ids = {each.cluster_id for each in late}
    histories = {cluster_id: _histories(late, states, cluster_id) for cluster_id in cluster_ids}
    leaders = read_leaders(_partitions_to_read(late, histories.values()))
    for partition in late:
        coordinators = states.of_cluster(partition.cluster_id)
        cluster = CoordinatorEvidence(
            as_of_ms=as_of_ms,
            state_partitions=coordinators.partition_numbers,
            unread_states=coordinators.unread_paths,
            leaderships=leaders,
        )
        same_cluster = [each for each in partitions if each.cluster_id == partition.cluster_id]
        _explain_partition(partition, same_cluster, histories[partition.cluster_id], cluster)


def _histories(
    late: Sequence[PartitionTransactions], states: TransactionStates, cluster_id: str | None
) -> dict[str, CoordinatorHistory]:
    """The records of the transactional ids of late transactions of one cluster."""
    names = set()
    for partition in late:
        if partition.cluster_id == cluster_id:
            names |= {
                each.transactional_id for each in partition.reported.open if each.is_late and each.transactional_id is not None
            }
    return states.of_cluster(cluster_id).histories(names)


def _partitions_to_read(
    late: Iterable[PartitionTransactions], histories: Iterable[dict[str, CoordinatorHistory]]
) -> set[tuple[str, int]]:
    """The partitions whose leaders matter: those of the transactions, and of their coordinators."""
    names = [each.source.directory.name for each in late]
    coordinators = {(TRANSACTION_STATE_TOPIC, each.directory.name.partition) for by_id in histories for each in by_id.values()}
    return {(name.topic, name.partition) for name in names} | coordinators


def _explain_partition(
    partition: PartitionTransactions,
    others: Sequence[PartitionTransactions],
    histories: dict[str, CoordinatorHistory],
    cluster: CoordinatorEvidence,
) -> None:
    late = [each for each in partition.reported.open if each.is_late]
    first_offsets = {each.producer_id: each.first_offset for each in late if each.transactional_id in histories}
    markers = _last_markers(partition.source, first_offsets)
    end = _end_of_log(partition.source, {offset: partition.last_offsets[offset] for offset in first_offsets})
    topic_id = known_topic_id(partition.source.directory)
    for at, transaction in enumerate(partition.reported.open):
        if not transaction.is_late:
            continue
        history = None if transaction.transactional_id is None else histories.get(transaction.transactional_id)
        subject = replace(
            _subject(partition, transaction, others, topic_id, markers.get(transaction.producer_id)),
            appended_by_ms=end.appended_by_ms.get(transaction.producer_id),
            leader_epoch=end.leader_epoch,
        )
        explanation = explain_transaction(subject, replace(cluster, history=history))
        commands = None
        if explanation.may_abort:
            commands = abort_commands(partition.source, transaction)
        partition.reported.open[at] = msgspec.structs.replace(
            transaction,
            abort_commands=commands,
            hang_reason=explanation.hang_reason,
            reason=explanation.reason,
            facts=explanation.facts,
            missing_evidence=explanation.missing_evidence,
        )


def _subject(
    partition: PartitionTransactions,
    transaction: OngoingTransaction,
    others: Sequence[PartitionTransactions],
    topic_id: bytes | None,
    marker: LastMarker | None,
) -> LateTransaction:
    source = partition.source
    name = source.directory.name
    log_dir = source.log_dir
    return LateTransaction(
        path=source.directory.path,
        topic=name.topic,
        partition=name.partition,
        topic_id=topic_id,
        node_id=log_dir.node_id,
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
        first_offset=transaction.first_offset,
        last_ms=transaction.last_ms,
        log_end_offset=partition.reported.log_end_offset or 0,
        high_watermark=(log_dir.high_watermarks or {}).get(source.directory.topic_partition),
        marker=marker,
        longer_copy=_longer_copy(partition, transaction, others),
        is_read_whole=partition.is_read_whole,
    )


def _longer_copy(
    partition: PartitionTransactions, transaction: OngoingTransaction, others: Sequence[PartitionTransactions]
) -> str | None:
    """Another copy that was read whole, is longer, and ended the transaction."""
    end = partition.reported.log_end_offset or 0
    for other in others:
        is_same = other is not partition and other.source.directory.topic_partition == partition.source.directory.topic_partition
        if (
            not is_same
            or other.reported.log_end_offset is None
            or other.reported.log_end_offset <= end
            or other.reported.totals.open > len(other.reported.open)
        ):
            continue
        segments = other.source.directory.segments
        has_begin = bool(segments) and segments[0].base_offset <= transaction.first_offset
        is_open = any(each.producer_id == transaction.producer_id for each in other.reported.open)
        if has_begin and not is_open and not any(finding.is_unread for finding in other.findings):
            return other.source.directory.path
    return None


def _last_markers(source: PartitionSource, first_offsets: dict[int, int]) -> dict[int, LastMarker]:
    """The last marker of each producer below its offset. A segment that cannot be read was reported before, and ends the search."""
    markers: dict[int, LastMarker] = {}
    if not first_offsets:
        return markers
    end = max(first_offsets.values())
    directory = source.directory
    try:
        for segment in directory.segments:
            if segment.base_offset >= end:
                break
            with directory.open_segment(segment) as opened:
                for block in HeaderReader(opened, columns=EFFECT_COLUMNS):
                    if not np.isin(block.column("producer_id"), list(first_offsets)).any():
                        continue
                    for producer_id, first_offset in first_offsets.items():
                        rows = batches_of_producer(block, producer_id, segment.base_offset)
                        is_marker = (rows["kind"] == BatchKind.COMMIT) | (rows["kind"] == BatchKind.ABORT)
                        rows = rows[is_marker & (rows["base_offset"] < first_offset)]
                        if len(rows):
                            markers[producer_id] = LastMarker(int(rows["base_offset"][-1]), int(rows["timestamp"][-1]))
    except (FormatError, ReadFailedError):
        return markers
    return markers


@dataclass(slots=True)
class _EndOfLog:
    """The last batches of producers, as the end of a log shows them.

    Attributes:
        last_offsets: of these batches, by producer id.
        leader_epoch: of the newest batch that was read; None if none was.
        appended_by_ms: by producer id, when its last batch had been written at the latest, by the clock of a broker.
    """

    last_offsets: dict[int, int]
    leader_epoch: int | None = None
    appended_by_ms: dict[int, int] = field(default_factory=dict)
    _dated: set[int] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        """Whether the log itself shows the time of every last batch: later batches would not change it."""
        return len(self._dated) == len(self.last_offsets)

    def take_block(self, block: HeaderBlock, file_ms: int) -> None:
        """Takes the next batches.

        A later marker, of any producer, has the time of a broker. So has the batch itself if its topic uses LogAppendTime.

        Args:
            block: of headers.
            file_ms: when the segment was last written to.
        """
        if not len(block):
            return
        self.leader_epoch = int(block.column("partition_leader_epoch")[-1])
        begins = block.column("base_offset")
        ends = begins + block.column("last_offset_delta")
        for producer_id, offset in self.last_offsets.items():
            for row in np.flatnonzero((begins <= offset) & (offset <= ends)).tolist():
                self.appended_by_ms[producer_id] = file_ms
                if block.column("attributes")[row] & ATTRIBUTE_LOG_APPEND_TIME:
                    self._lower(producer_id, int(block.column("max_timestamp")[row]))
            later = block.marker_timestamp[begins[block.control] > offset]
            if len(later):
                self._lower(producer_id, int(later[0]))

    def _lower(self, producer_id: int, timestamp_ms: int) -> None:
        """A time of a broker at which the last batch had been written."""
        appended_ms = self.appended_by_ms.get(producer_id)
        if appended_ms is not None and timestamp_ms >= 0:
            self.appended_by_ms[producer_id] = min(appended_ms, timestamp_ms)
            self._dated.add(producer_id)


def _end_of_log(source: PartitionSource, last_offsets: dict[int, int]) -> _EndOfLog:
    """The end of a log, read as far as needed. Nothing is known if a segment of it cannot be read.

    Args:
        source: the partition.
        last_offsets: of the last batches of the late transactions, by producer id.
    """
    end = _EndOfLog(last_offsets)
    if not last_offsets:
        return end
    directory = source.directory
    begin = min(last_offsets.values())
    index = max(bisect_right(directory.base_offsets, begin) - 1, 0)
    try:
        for segment in directory.segments[index:]:
            file_ms = segment.log.identity.modified_ns // 1_000_000 + 1
            with directory.open_segment(segment) as opened:
                for block in HeaderReader(opened, columns=(*EFFECT_COLUMNS, "partition_leader_epoch")):
                    end.take_block(block, file_ms)
            if end.is_complete:
                break
    except (FormatError, ReadFailedError):
        return _EndOfLog(last_offsets)
    return end


def abort_commands(source: PartitionSource, transaction: OngoingTransaction) -> AbortCommands:
    """The commands of Kafka's own tool that abort a transaction, for brokers since 3.0, and for older ones.

    With brokers since 3.0 the tool asks the broker whose transaction begins at the offset. An unknown coordinator epoch is given as 0, as
    the tool itself does. Brokers before 2.8 accept only version 0 of WriteTxnMarkers, which Kafka 4 no longer supports (KIP-896).
    """
    name = source.directory.name
    command = f"{TOOL} abort --topic {shell_word(name.topic)} --partition {name.partition}"
    producer = f"--producer-id {transaction.producer_id} --producer-epoch {transaction.epoch}"
    return AbortCommands(
        since_3_0=f"{command} --start-offset {transaction.first_offset}",
        before_3_0=f"{command} {producer} --coordinator-epoch {max(transaction.coordinator_epoch, 0)}",
    )
