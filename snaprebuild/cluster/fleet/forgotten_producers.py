"""Producers and open transactions that a stopped replica has forgotten, and another one knows, by their newest snapshots.

A scan has no producer ids. So this sees a state that is empty, or has no open transaction; `cluster source` compares producer by producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from snaprebuild.cluster.fleet.replicas import ScannedBroker, ScannedFleet, ScannedReplica
from snaprebuild.cluster.fleet.restart_safety import LeaderSet
from snaprebuild.findings import Finding, Severity, first_of, pluralize
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS

__all__ = ["forgotten_producer_findings"]


def forgotten_producer_findings(partitions: Iterable[LeaderSet], fleet: ScannedFleet) -> Iterator[Finding]:
    """One finding for each broker with such replicas."""
    forgetful: dict[int, list[tuple[str, str]]] = {}
    for leaders in partitions:
        for replica in leaders.replicas:
            what = _forgotten(replica, leaders.replicas, fleet.brokers)
            if what is not None:
                forgetful.setdefault(replica.node_id, []).append((leaders.name, what))
    for node, several in sorted(forgetful.items()):
        names = sorted(name for name, _ in several)
        name, what = min(several)
        message = (
            f"if broker {node} leads {pluralize(len(names), 'partition')} ({first_of(names)}), producers get errors or write duplicates: "
            f"in {name} {what}. `cluster source` with the other disk names them. Let another replica in sync lead"
        )
        yield Finding("leading-forgets-producers", Severity.FINDING, fleet.brokers[node].document, message)


def _forgotten(mine: ScannedReplica, replicas: Sequence[ScannedReplica], brokers: Mapping[int, ScannedBroker]) -> str | None:
    """A clause about producers that this replica has forgotten and another one knows. None without any.

    A live broker has its state in memory.
    """
    newest = mine.newest_snapshot
    if newest is None or mine.is_running:
        return None
    broker = brokers[mine.node_id]
    expiration_ms = None if broker.settings is None else broker.settings.producer_expiration_ms
    oldest_ms = broker.scanned_ms - (DEFAULT_EXPIRATION_MS if expiration_ms is None else expiration_ms)
    for other in replicas:
        theirs = other.newest_snapshot
        if other is mine or theirs is None or other.suspect or not _is_same_log(mine, other):
            continue
        # All of its producers wrote below the snapshot here, and the last one to write has not expired.
        if (
            newest.entries == 0
            and theirs.offset <= newest.offset
            and (theirs.newest_timestamp_ms or 0) > oldest_ms
            and theirs.least_offset is not None
            and theirs.least_offset >= mine.log_start_offset
        ):
            producers = pluralize(theirs.entries, "producer")
            return f"the newest snapshot, at {newest.offset}, is empty, and broker {other.node_id} knows {producers} at {theirs.offset}"
        first = theirs.first_open_offset
        if (
            newest.first_open_offset is None
            and first is not None
            and mine.log_start_offset <= first < newest.offset <= theirs.offset
        ):
            return f"no transaction is open at {newest.offset}, and broker {other.node_id} has one that is open from {first}"
    return None


def _is_same_log(mine: ScannedReplica, other: ScannedReplica) -> bool:
    """Whether neither has records of a leader epoch that the other one lacks. A fork has other producers."""
    if mine.leader_epoch is None or other.leader_epoch is None:
        return False
    if mine.leader_epoch == other.leader_epoch:
        return True
    newer = mine if mine.leader_epoch > other.leader_epoch else other
    ends = [each.log_end_offset for each in (mine, other) if each.log_end_offset is not None]
    return newer.leader_epoch_start_offset is not None and len(ends) == 2 and newer.leader_epoch_start_offset >= min(ends)
