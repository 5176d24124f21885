"""Replicas, copies and costs as the verbs on remote storage and followers show them."""

from __future__ import annotations

from collections.abc import Sequence

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cli.result import labels_of, print_table, print_text, size_text
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.documents import followers as doc
from snaprebuild.findings import pluralize
from snaprebuild.followers.check import CheckedReplica
from snaprebuild.followers.remote_state import RemoteState
from snaprebuild.followers.replica_snapshots import CheckedSnapshot, LostProducer
from snaprebuild.storage.partition_names import names_of
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.remote_copy import leader_epochs_of

__all__ = [
    "announced",
    "leader_epochs_of",
    "print_lost",
    "print_replicas",
    "remote_state_of",
    "replica_of",
]

PRODUCERS_SHOWN_MAX = 5


def remote_state_of(state: RemoteState) -> doc.RemoteState:
    """The state that remote storage gives, without its entries."""
    return doc.RemoteState(
        offset=state.offset,
        segment_id=uuid_to_text(state.segment.segment_id),
        start_offset=state.segment.start_offset,
        end_offset=state.segment.end_offset,
        replayed_from_offset=state.first_offset,
        verdict=None if state.verdict is None else state.verdict.value,
        reason=state.why,
        origin=state.origin.value,
        snapshot_class=state.judgement.snapshot_class,
        reasons=state.judgement.reasons,
        entries=len(state.entries),
        open_transactions=int((state.entries["current_txn_first_offset"] >= 0).sum()),
        read_bytes=state.bytes_read,
    )


def replica_of(replica: CheckedReplica) -> doc.Replica:
    """A replica as it was found."""
    return doc.Replica(
        **names_of(replica.source.directory),
        path=replica.source.path,
        first_offset=replica.first_offset,
        log_start_offset=replica.source.log_start_offset,
        verdict=replica.verdict.value,
        reason=replica.why,
        cause=None if replica.cause is None else replica.cause.value,
        remote=None if replica.remote is None else remote_state_of(replica.remote),
        read_bytes=replica.bytes_read,
        snapshots=[_snapshot(each) for each in replica.snapshots],
    )


def _snapshot(snapshot: CheckedSnapshot) -> doc.ReplicaSnapshot:

    return doc.ReplicaSnapshot(
        offset=snapshot.offset,
        entries=snapshot.entries,
        expected_entries=snapshot.expected_entries,
        status=snapshot.status,
        reason=snapshot.reason,
        proven_wrong=snapshot.proven_wrong,
        lost_count=snapshot.lost_count,
        open_count=snapshot.open_count,
        expired_count=snapshot.expired_count,
        lost=[_producer(each) for each in snapshot.lost],
    )


def _producer(lost: LostProducer) -> doc.LostProducer:

    return doc.LostProducer(
        producer_id=lost.producer_id,
        epoch=int(lost.entry["epoch"]),
        last_sequence=int(lost.entry["last_sequence"]),
        last_offset=int(lost.entry["last_offset"]),
        timestamp_ms=int(lost.entry["timestamp"]),
        open_from=lost.open_from,
        expired=lost.has_expired,
        consequence=lost.consequence,
    )


def print_replicas(title: str, replicas: Sequence[CheckedReplica]) -> None:
    """One line for each replica."""
    labels = labels_of(replica.source for replica in replicas)
    rows = []
    for each in sorted(replicas, key=lambda one: -(0 if one.worst is None else one.worst.lost_count)):
        worst = each.worst
        remote = each.remote
        lost = "-" if remote is None else 0 if worst is None else worst.lost_count
        opened = "-" if remote is None else 0 if worst is None else worst.open_count
        wrong = sum(snapshot.proven_wrong for snapshot in each.snapshots)
        remote_state = "-" if remote is None else f"{remote.judgement.snapshot_class.value}, {len(remote.entries)} producers"
        label = labels[each.source.path]
        rows.append((label, each.verdict, lost, opened, wrong, each.source.log_start_offset, each.first_offset, remote_state))
    columns = ("partition", "verdict", "lost", "open", "wrong", "log start", "first local", "remote storage there")
    print_table(title, columns, rows, right=("lost", "open", "wrong", "log start", "first local"), drop=("log start", "open"))


def print_lost(replicas: Sequence[CheckedReplica]) -> None:
    """The producers that were lost, those with open transactions first, and how many more."""
    found = [(each, lost) for each in replicas if each.worst is not None for lost in each.worst.lost if not lost.has_expired]
    found.sort(key=lambda pair: pair[1].open_from is None)
    rows = [
        (each.source.topic_partition, lost.producer_id, int(lost.entry["epoch"]), int(lost.entry["last_offset"]), lost.consequence)
        for each, lost in found[:PRODUCERS_SHOWN_MAX]
    ]
    if rows:
        columns = ("partition", "producer", "epoch", "last offset", "what its absence costs")
        print_table("Lost producers", columns, rows, right=("producer", "epoch", "last offset"), drop=("epoch", "last offset"))
    total = sum(each.worst.lost_count for each in replicas if each.worst is not None)
    if total > len(rows):
        print_text(f"and {pluralize(total - len(rows), 'more producer')} (--output json lists up to 1,000 of each replica)")


def announced(cost: AuditCost) -> None:
    """Prints on stderr what will be read."""
    classes = ", ".join(f"{name} {size_text(size)}" for name, size in cost.storage_classes.items())
    price = "" if cost.dollars is None else f", about {cost.dollars:.2f} USD by list prices without transfer"
    what = f"{pluralize(cost.copies, 'copy', 'copies')}, {pluralize(cost.objects, 'object')}, {size_text(cost.read_bytes)}"
    if classes:
        what += f" ({classes}), about {pluralize(cost.requests, 'request')}{price}"
    print_on_stderr(f"to be read: {what}")
