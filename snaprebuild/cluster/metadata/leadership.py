"""The leaders of a few partitions, as a metadata log has them: the present state, and each election.

Elections are those that the log still has. It is read as it is: a record at its very end may not be committed yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from snaprebuild.cluster.metadata.batches import MetadataBatch
from snaprebuild.cluster.metadata.image_model import PartitionChanged
from snaprebuild.cluster.metadata.image_reader import FoldStart, fold_oldest, with_fresh_listing
from snaprebuild.cluster.metadata.log import MetadataLog
from snaprebuild.cluster.metadata.log_findings import checkpoint_findings, fault_findings, read_on
from snaprebuild.cluster.metadata.registered_model import LeaderRecoveryState, PartitionRegistration
from snaprebuild.findings import Finding

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = ["Leadership", "Leaderships", "RecordedElection", "read_leaderships"]

ELECTIONS_MAX = 1000
"""Elections that are kept of one partition, the newest."""


@dataclass(frozen=True, slots=True)
class RecordedElection:
    """A change of the leader, or of its epoch.

    Attributes:
        offset: of the record.
        timestamp_ms: of its batch.
        leader_before: broker id, -1 for none.
        leader: broker id, -1 for none.
        leader_epoch: that began.
        is_unclean: the leader was neither in sync nor an eligible leader replica, so records may be lost.
    """

    offset: int
    timestamp_ms: int
    leader_before: int
    leader: int
    leader_epoch: int
    is_unclean: bool


@dataclass(slots=True)
class Leadership:
    """The leaders of a partition.

    Attributes:
        topic_id: 16 bytes.
        state: at the end of the log.
        elections: the newest ``ELECTIONS_MAX``, oldest first.
    """

    topic_id: bytes
    state: PartitionRegistration
    elections: deque[RecordedElection] = field(default_factory=lambda: deque(maxlen=ELECTIONS_MAX))


@dataclass(frozen=True, slots=True)
class Leaderships:
    """The leaders of partitions.

    Attributes:
        path: of the metadata log.
        first_offset: where the log begins; elections before it are unknown.
        partitions: by topic and number; those that exist.
        partition_counts: of each topic that exists, by name.
        findings: what of the log could not be read.
    """

    path: str
    first_offset: int
    partitions: dict[tuple[str, int], Leadership]
    partition_counts: dict[str, int]
    findings: tuple[Finding, ...]


def read_leaderships(location: str, wanted: Collection[tuple[str, int]], run: Run | None = None) -> Leaderships:
    """The leaders of partitions, from the first record that a metadata log still has.

    Args:
        location: of the metadata log.
        wanted: topic and number of each partition.
        run: stores and deadline; None for those of a usual run.

    Raises:
        UsageError: the location holds no metadata log.
        ReadFailedError: a file cannot be read.
    """
    return with_fresh_listing(location, run, lambda log: _read(log, wanted))


def _read(log: MetadataLog, wanted: Collection[tuple[str, int]]) -> Leaderships:
    begin = fold_oldest(log)
    reader = _LeadershipReader(begin, frozenset(wanted))
    findings = [*checkpoint_findings(begin.bad_checkpoints), *read_on(log, begin.next_offset, reader.take)]
    findings += fault_findings(log, begin.fold)
    counts = {topic.name: len(topic.partitions) for topic in begin.fold.topics.values()}
    return Leaderships(log.path, begin.next_offset, reader.partitions, counts, tuple(findings))


class _LeadershipReader:
    """Folds a log and gathers the elections of the wanted partitions."""

    def __init__(self, begin: FoldStart, wanted: frozenset[tuple[str, int]]) -> None:
        self.partitions: dict[tuple[str, int], Leadership] = {}
        self._fold = begin.fold
        self._wanted = wanted
        for topic in begin.fold.topics.values():
            for number, state in topic.partitions.items():
                if (topic.name, number) in wanted:
                    self.partitions[topic.name, number] = Leadership(topic.topic_id, state)

    def take(self, batch: MetadataBatch) -> bool:
        """Takes the next batch; never ends the reading."""
        for change in self._fold.apply_batch(batch):
            if isinstance(change, PartitionChanged) and (change.topic, change.partition) in self._wanted:
                self._add(change, batch.append_timestamp_ms)
        return False

    def _add(self, change: PartitionChanged, timestamp_ms: int) -> None:
        key = (change.topic, change.partition)
        if change.after is None:
            self.partitions.pop(key, None)
            return
        leadership = self.partitions.get(key)
        if leadership is None or change.before is None:
            self.partitions[key] = Leadership(change.topic_id, change.after)
            return
        leadership.state = change.after
        if change.before.leader_epoch != change.after.leader_epoch:
            leadership.elections.append(_election(change.offset, timestamp_ms, change.before, change.after))


def _election(offset: int, timestamp_ms: int, before: PartitionRegistration, after: PartitionRegistration) -> RecordedElection:
    is_safe = after.leader < 0 or after.leader in before.isr or after.leader in before.elr
    is_recovering = after.leader >= 0 and after.leader_recovery_state == LeaderRecoveryState.RECOVERING
    return RecordedElection(
        offset=offset,
        timestamp_ms=timestamp_ms,
        leader_before=before.leader,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        is_unclean=not is_safe or (is_recovering and before.leader_recovery_state == LeaderRecoveryState.RECOVERED),
    )
