"""Losses of consumers and producers if a replica leads, as far as other replicas of its partition show them.

* Another replica has a high watermark above the end of this log: consumers may have read records that are not here. So it is if this
  log has other records from an offset below that high watermark on: it forked, because another leader was elected.
* Another replica knows a producer whose last batch is below the newest snapshot here, and which this replica does not know, or knows by an
  earlier batch. Its next batch is accepted with any sequence, or fails: duplicates, or an OutOfOrderSequenceException.
* Another replica has a transaction open that was open here, too: consumers read its records before it has ended.

Entries that have expired are left out, because a broker drops them when it loads the log. So are those that this replica may have dropped
before, with an expiration that is shorter than the one that is known: the other replica shows how long they live.

Source: ``ProducerAppendInfo.checkSequence``, ``ProducerStateManager.removeExpiredProducers`` and ``firstUndecidedOffset`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from formats.partition.file_names import DirectoryForm
from snaprebuild.cluster.source_check.evidence import PeerEvidence, SourceEvidence
from snaprebuild.cluster.source_check.lineage import diverging_epoch, truncated_at
from snaprebuild.cluster.source_check.producer_ids import newest_entries
from snaprebuild.findings import Finding, Severity, choose_form, first_of, pluralize
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.partition_dir import PartitionDir

if TYPE_CHECKING:
    import numpy as np

__all__ = ["OtherReplica", "forgotten_producers", "leading_loss_findings"]


class OtherReplica(msgspec.Struct, frozen=True):
    """Another replica of a partition.

    Attributes:
        directory: the listing.
        evidence: of its files.
        high_watermark: as its broker checkpointed it; None if there is no line.
    """

    directory: PartitionDir
    evidence: PeerEvidence
    high_watermark: int | None


class ForgottenProducers(msgspec.Struct, frozen=True):
    """Producers that another replica knows, and that would be wrong or absent if this one led.

    Attributes:
        producer_ids: without an entry, or with one of an earlier batch, ascending.
        open_transactions: producer ids whose open transaction is not open here, ascending.
    """

    producer_ids: tuple[int, ...]
    open_transactions: tuple[int, ...]


def leading_loss_findings(
    mine: PartitionSource, evidence: SourceEvidence, others: Sequence[OtherReplica], now_ms: int, expiration_ms: int
) -> Iterator[Finding]:
    """At most one finding for consumers and one for producers. Files of a live broker change, and are judged after its stop.

    Args:
        mine: the replica.
        evidence: of it.
        others: replicas of the same partition.
        now_ms: the clock, ms since 1970.
        expiration_ms: ``producer.id.expiration.ms``.
    """
    log = evidence.log
    directory = mine.directory
    comparable = [each for each in others if not evidence.is_of_another_log(each.evidence)]
    is_replica = log.exists and log.form is DirectoryForm.PLAIN
    if evidence.log_dir.is_live or not is_replica or log.log_end_offset is None or not comparable:
        return
    lost = _lost_records(evidence, log.log_end_offset, comparable)
    if lost is not None:
        offset, reason = lost
        message = (
            f"if this replica leads, consumers lose records that they may have read: {reason}. Let it catch up before it leads"
        )
        yield Finding("leading-loses-records", Severity.FINDING, directory.path, message, offset)
    for other in comparable:
        forgotten = _forgotten(mine, evidence, other, now_ms, expiration_ms)
        if forgotten is not None:
            yield _producer_finding(directory.path, other.directory.path, forgotten)
            return


def _lost_records(evidence: SourceEvidence, log_end_offset: int, others: Sequence[OtherReplica]) -> tuple[int, str] | None:
    """The offset from which on this replica lacks records below the high watermark of another one, and why; None if it has all."""
    holder = max(others, key=lambda each: each.high_watermark or 0)
    mark = holder.high_watermark or 0
    if log_end_offset < mark:
        return log_end_offset, f"it ends at {log_end_offset}, below the high watermark {mark} of {holder.directory.path}"
    epochs = evidence.log.epochs
    tail = evidence.log.tail_epoch
    # Where the last epochs of the checkpoint are gone, it does not show what the records are: rule R12 says so.
    if not epochs or (tail or 0) > epochs[-1].epoch:
        return None
    for other in others:
        if not other.evidence.epochs:
            continue
        end = truncated_at(epochs, log_end_offset, other.evidence)
        if end is not None and end < (other.high_watermark or 0):
            path = other.directory.path
            return end, f"from {end} on it has other records than {path}, whose high watermark is {other.high_watermark}"
    return None


def _forgotten(
    replica: PartitionSource, evidence: SourceEvidence, other: OtherReplica, now_ms: int, expiration_ms: int
) -> ForgottenProducers | None:
    """Only of a replica whose log is the same: a fork has other producers."""
    mine = evidence.log.epochs
    theirs = other.evidence.epochs
    if not mine or not theirs or diverging_epoch(mine, theirs) is not None:
        return None
    if truncated_at(mine, evidence.log.log_end_offset, other.evidence) is not None:
        return None
    directory = replica.directory
    entries = newest_entries(directory)
    others = newest_entries(other.directory)
    if entries is None or others is None or not len(others):
        return None
    return forgotten_producers(
        entries,
        directory.snapshots[-1][0],
        others,
        other.directory.snapshots[-1][0],
        log_start_offset=replica.log_start_offset,
        oldest_ms=_oldest_ms(entries, others, evidence.log.tail_timestamp_ms, now_ms, expiration_ms),
    )


def _oldest_ms(entries: np.ndarray, others: np.ndarray, tail_ms: int | None, now_ms: int, expiration_ms: int) -> int:
    """Producers of this moment or before may have expired: now, or when the newest snapshot of this replica was written."""
    mine_ms = max([tail_ms or 0, *map(int, entries["timestamp"])])
    theirs_ms = int(others["timestamp"].max())
    lifetime_ms = min(expiration_ms, theirs_ms - int(others["timestamp"].min()))
    return max(now_ms - expiration_ms, (mine_ms or theirs_ms) - lifetime_ms - 1)


def forgotten_producers(
    entries: np.ndarray, offset: int, others: np.ndarray, others_offset: int, *, log_start_offset: int, oldest_ms: int
) -> ForgottenProducers | None:
    """The producers that are forgotten at an offset; None without any.

    Args:
        entries: of the snapshot of this replica, as of ``read_entries``.
        offset: of that snapshot.
        others: entries of another replica.
        others_offset: of its snapshot.
        log_start_offset: log start offset of this replica. One that was made later never had the records below it, nor their producers.
        oldest_ms: entries that are not newer have expired, ms since 1970.
    """
    own_entries = {int(entry["producer_id"]): entry for entry in entries}
    unknown: list[int] = []
    transactions: list[int] = []
    for entry in others:
        producer_id = int(entry["producer_id"])
        last_offset = int(entry["last_offset"])
        mine = own_entries.get(producer_id)
        first = int(entry["current_txn_first_offset"])
        is_same = mine is not None and int(mine["last_offset"]) >= last_offset
        if log_start_offset <= last_offset < offset and int(entry["timestamp"]) > oldest_ms and not is_same:
            unknown.append(producer_id)
        # It was open at every offset from its first one to the snapshot of the other replica.
        is_open = mine is not None and int(mine["current_txn_first_offset"]) >= 0
        if log_start_offset <= first < offset <= others_offset and not is_open:
            transactions.append(producer_id)
    if not unknown and not transactions:
        return None
    return ForgottenProducers(tuple(sorted(unknown)), tuple(sorted(transactions)))


def _producer_finding(path: str, other: str, forgotten: ForgottenProducers) -> Finding:
    parts = []
    if forgotten.producer_ids:
        names = first_of([*map(str, forgotten.producer_ids)])
        count = len(forgotten.producer_ids)
        parts.append(
            f"{pluralize(count, 'producer')} ({names}) of {other} {choose_form(count, 'is', 'are')} unknown or older here: their next "
            "batches may be duplicates, or fail (OutOfOrderSequenceException)"
        )
    if forgotten.open_transactions:
        names = first_of([*map(str, forgotten.open_transactions)])
        parts.append(
            f"{pluralize(len(forgotten.open_transactions), 'open transaction')} (producer {names}) of {other} not open here: consumers "
            "may read records of a transaction that is aborted later"
        )
    message = f"if this replica leads, {'; '.join(parts)}. `verify` checks its snapshots; let another replica in sync lead"
    return Finding("leading-forgets-producers", Severity.FINDING, path, message)
