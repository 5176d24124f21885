"""A metadata log as evidence on replicas: folded, and how far that is proven.

Nothing on a disk shows that it was replaced; the metadata log does (``replaced_partitions``). A log directory that was formatted anew has
a new id. A broker that registers with that id, and without the one that the partition was placed in, has lost the partition (KIP-858).
It has the partition again once a leader, which is another broker, has taken it among the in-sync replicas: that happens after it has
caught up (``Partition.maybeExpandIsr``). A log that is empty after that was never written to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from formats.broker.broker_files import MetaProperties
from formats.errors import FormatError
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_model import BrokerChanged, MetadataImage, PartitionChanged, TopicChanged
from snaprebuild.cluster.metadata.image_reader import FollowedImage, ImageAt, fold_oldest, read_image
from snaprebuild.cluster.metadata.log import MetadataLog, meta_around
from snaprebuild.cluster.metadata.log_end import LogEndEvidence, has_clean_marker, log_end_evidence
from snaprebuild.cluster.metadata.proof import prove, unproven_reason
from snaprebuild.cluster.metadata.registered_model import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    PartitionRegistration,
    directory_text,
)
from snaprebuild.cluster.metadata.unknown_contents import unknown_findings
from snaprebuild.cluster.source_check.evidence import LogEvidence, MetadataEvidence
from snaprebuild.errors import DeadlinePassedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = ["MetadataRead", "ReplacedAt", "TopicRemoval", "read_brokers", "read_metadata", "registered_with", "replaced_partitions"]

ReplacedAt = dict[tuple[bytes, int], int]
"""Offsets of registrations by topic id, 16 bytes, and number of the partition."""

NO_LEADER = -1
_OF_TOPICS = (MetadataRecordType.TOPIC, MetadataRecordType.REMOVE_TOPIC)
_NO_PLACE = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)


def replaced_partitions(log: MetadataLog, node_id: int, directory_id: bytes, last_offset: int) -> ReplacedAt:
    """The partitions of a broker in place of whose log directory another one was registered, and that have not caught up since.

    Reads what the log still holds, once for all partitions: from its oldest whole checkpoint on.

    Args:
        log: the metadata log.
        node_id: of the broker.
        directory_id: of the log directory that has the partitions today, 16 bytes.
        last_offset: that counts.

    Raises:
        ReadFailedError: a file cannot be read.
        FormatError: the log is damaged.
    """
    fold = fold_oldest(log).fold
    history = _DirectoryHistory(fold, node_id, directory_text(directory_id))
    with log.walk(fold.offset + 1).until() as batches:
        for batch in batches:
            if batch.base_offset > last_offset:
                break
            for change in fold.apply_batch(batch, last_offset):
                if isinstance(change, PartitionChanged):
                    history.take_partition(change)
                elif isinstance(change, BrokerChanged) and change.record.api_key == MetadataRecordType.REGISTER_BROKER:
                    history.take_registration(change)
    return history.replaced


class _DirectoryHistory:
    """The registrations of one log directory, and what they mean for the partitions of its broker, as the metadata log is read.

    Attributes:
        replaced: ``replaced_partitions`` up to the records that were taken.
    """

    def __init__(self, start: ImageFold, node_id: int, directory: str) -> None:
        self.replaced: ReplacedAt = {}
        self._node_id = node_id
        self._directory = directory
        self._registered: set[str] = set()
        if node_id in start.brokers:
            self._registered.update(start.brokers[node_id].directories)
        self._assigned: dict[tuple[bytes, int], PartitionRegistration] = {}
        for topic in start.topics.values():
            for number, partition in topic.partitions.items():
                self._assigned[topic.topic_id, number] = partition

    def take_partition(self, change: PartitionChanged) -> None:
        """Takes a change of a partition: one that is not assigned to the broker any more, or has caught up, is not replaced."""
        key = change.topic_id, change.partition
        if change.after is None:
            self._assigned.pop(key, None)
            self.replaced.pop(key, None)
            return
        self._assigned[key] = change.after
        if self._node_id not in change.after.replicas or _has_caught_up(change, self._node_id):
            self.replaced.pop(key, None)

    def take_registration(self, change: BrokerChanged) -> None:
        """Takes a registration. If the directory is new in it, the partitions whose directory is not in it have lost that."""
        if change.node_id != self._node_id or change.after is None:
            return
        online = set(change.after.directories)
        if self._directory in online and self._directory not in self._registered:
            for key, partition in self._assigned.items():
                if partition.directory_of(self._node_id) not in (None, *_NO_PLACE, *online):
                    self.replaced.setdefault(key, change.offset)
        self._registered |= online


def registered_with(log: MetadataLog, epoch: int, last_offset: int) -> int | None:
    """The broker that registered with a broker epoch; None if no record from that offset on says so.

    The epoch is the offset at which the controller was about to write (``QuorumController.registerBroker``). Records of partitions may
    come before that of the broker.

    Raises:
        ReadFailedError: a file cannot be read.
        FormatError: the log is damaged.
    """
    with log.walk(epoch).until() as batches:
        for batch in batches:
            if batch.base_offset > last_offset:
                return None
            for record in batch.records:
                content = record.content
                if not isinstance(content, ClusterMetadataRecord) or content.api_key != MetadataRecordType.REGISTER_BROKER:
                    continue
                if content.message["brokerEpoch"] == epoch:
                    return int(content.message["brokerId"])
                if content.message["brokerEpoch"] > epoch:
                    return None
    return None


def topic_ids_ever(log: MetadataLog, last_offset: int) -> frozenset[bytes]:
    """The ids of all topics that what is left of a metadata log has, also of those that were deleted; 16 bytes each.

    Args:
        log: the metadata log.
        last_offset: that counts.

    Raises:
        ReadFailedError: a file cannot be read.
        FormatError: the log is damaged.
    """
    start = fold_oldest(log)
    ids = {*start.fold.topics}
    with log.walk(start.fold.offset + 1).until() as batches:
        for batch in batches:
            if batch.base_offset > last_offset:
                break
            for record in batch.records:
                content = record.content
                if isinstance(content, ClusterMetadataRecord) and content.api_key in _OF_TOPICS and record.offset <= last_offset:
                    ids.add(content.message["topicId"])
    return frozenset(ids)


@dataclass(frozen=True, slots=True)
class TopicRemoval:
    """The removal of a topic from the cluster.

    Attributes:
        offset: of the record, ``RemoveTopic``.
        timestamp_ms: of its batch, ms since 1970.
    """

    offset: int
    timestamp_ms: int


def topic_removals(log: MetadataLog, last_offset: int) -> dict[bytes, TopicRemoval]:
    """The removals that what is left of a metadata log has, by topic id, if no later record names the topic id.

    A checkpoint that lacks a topic shows no removal.

    Args:
        log: the metadata log.
        last_offset: that counts.

    Raises:
        ReadFailedError: a file cannot be read.
        FormatError: the log is damaged.
    """
    fold = fold_oldest(log).fold
    removals: dict[bytes, TopicRemoval] = {}
    with log.walk(fold.offset + 1).until() as batches:
        for batch in batches:
            if batch.base_offset > last_offset:
                break
            for change in fold.apply_batch(batch, last_offset):
                if not isinstance(change, (TopicChanged, PartitionChanged)):
                    continue
                if change.record.api_key == MetadataRecordType.REMOVE_TOPIC:
                    removals[change.topic_id] = TopicRemoval(change.offset, batch.append_timestamp_ms)
                else:
                    removals.pop(change.topic_id, None)
    return removals


def _has_caught_up(change: PartitionChanged, node_id: int) -> bool:
    """Whether a replica joined the in-sync replicas by another leader: then it has all that was committed."""
    assert change.after is not None
    has_joined = node_id in change.after.isr and change.before is not None and node_id not in change.before.isr
    return has_joined and change.after.leader not in (NO_LEADER, node_id)


@dataclass(frozen=True, slots=True, eq=False)
class MetadataRead:
    """A metadata log, folded.

    Attributes:
        is_own: it was found next to the partitions, not named.
        image: the cluster at its end, or at the offset that was asked for.
        cluster_id: of the log directory around it, None if unknown.
        proven_below: offsets below are known to be committed; ``proof`` is the reason.
        followed: the image as the log grows.
        latest_ms: greatest timestamp in it, ms since 1970; negative for none.
        end: of the log, and what shows that it reached further.
        has_marker: the node that has it stopped cleanly, by the marker next to it.
        proven_image: the cluster as far as that is proven to be committed; None if no proof was asked for, or nothing is proven.
        is_proof_asked: logs of other voters were given.
    """

    path: str
    is_own: bool
    image: MetadataImage
    cluster_id: str | None
    proven_below: int
    proof: str
    read: ImageAt
    followed: FollowedImage
    end: LogEndEvidence
    has_marker: bool
    latest_ms: int = -1
    proven_image: MetadataImage | None = None
    is_proof_asked: bool = False
    _owners: dict[int, tuple[int | None, bool]] = field(default_factory=dict)
    _replaced: dict[tuple[int, bytes], ReplacedAt | Exception] = field(default_factory=dict)
    _topic_ids: list[frozenset[bytes]] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """One sentence."""
        whose = "the broker's own metadata log" if self.is_own else "the metadata log of --metadata"
        return f"{whose}, folded to offset {self.image.offset}; {self.proof}"

    def broker_epoch_now(self, node_id: int, epoch: int) -> int | None:
        """The epoch under which a broker is registered now: reads only what the log has grown by.

        Args:
            node_id: of the broker.
            epoch: that it is known to have registered with. A log that ends below that offset has no evidence on it yet.

        Raises:
            SnaprebuildError, FormatError: it cannot be read.
        """
        fold = self.followed.now()
        if fold.offset < epoch:
            return epoch
        broker = fold.brokers.get(node_id)
        return None if broker is None else broker.epoch

    def facts(self, log: LogEvidence, node_id: int | None, epoch: int | None = None) -> MetadataEvidence:
        """Facts about one partition of one broker at the end of the log.

        Args:
            log: of the replica.
            node_id: of its broker.
            epoch: under which the broker last ran. If it is not that of the registration, the log is read for the record of it.

        Raises:
            SnaprebuildError, FormatError: the log cannot be read again.
        """
        broker, topic_id, partition = _registered(self.image, log, node_id)
        owner = None
        is_trimmed = False
        if epoch is not None and (broker is None or epoch != broker.epoch) and epoch <= self.image.offset:
            owner, is_trimmed = self._owner_of(epoch)
        return MetadataEvidence(
            path=self.path,
            offset=self.image.offset,
            cluster_id=self.cluster_id,
            broker=broker,
            topic_id=topic_id,
            partition=partition,
            is_own=self.is_own,
            older=self.end.reason(was_stopped_cleanly=self.has_marker),
            unproven=self._unproven(log, node_id),
            epoch_owner=owner,
            is_epoch_trimmed=is_trimmed,
        )

    def _owner_of(self, epoch: int) -> tuple[int | None, bool]:
        """The broker that registered with an epoch, and whether the record of that is below the start of the log."""
        if epoch not in self._owners:
            self._owners[epoch] = self._find_owner(epoch)
        return self._owners[epoch]

    def _find_owner(self, epoch: int) -> tuple[int | None, bool]:
        for broker in self.image.brokers.values():
            if broker.epoch == epoch:
                return broker.node_id, False
        first = self.read.log.first_base_offset
        if first is None or epoch < first:
            return None, True
        return registered_with(self.read.log, epoch, self.image.offset), False

    def is_topic_removed(self, topic_id: bytes | None) -> bool:
        """Whether a topic was deleted: its id is in what is left of the log, and no topic has it at the end. Reads the log once.

        Raises:
            SnaprebuildError, FormatError: the log cannot be read again.
        """
        if topic_id is None or topic_id in self.image.topics:
            return False
        return topic_id in self.topic_ids_ever()

    def topic_ids_ever(self) -> frozenset[bytes]:
        """The ids of all topics that what is left of the log has, also of those that were removed. Reads the log once.

        Raises:
            SnaprebuildError, FormatError: the log cannot be read again.
        """
        if not self._topic_ids:
            self._topic_ids.append(topic_ids_ever(self.read.log, self.image.offset))
        return self._topic_ids[0]

    def topic_removals(self) -> dict[bytes, TopicRemoval]:
        """The removals of topics, by topic id; those below ``proven_below`` are committed. Reads the log once more.

        Raises:
            SnaprebuildError, FormatError: the log cannot be read again.
        """
        return topic_removals(self.read.log, self.image.offset)

    def replaced_at(self, log: LogEvidence, node_id: int | None, directory_id: bytes | None) -> int | None:
        """``MetadataEvidence.replaced_at`` of an empty log; None for one with records, whose history is not read.

        Raises:
            SnaprebuildError, FormatError: the log cannot be read again.
        """
        _, topic_id, partition = _registered(self.image, log, node_id)
        if topic_id is None or partition is None or not log.is_empty or partition.leader_epoch == 0:
            return None
        return self._replaced_in(node_id, directory_id).get((topic_id, log.partition))

    def _unproven(self, log: LogEvidence, node_id: int | None) -> str | None:
        """Why what it says of a replica is not proven; None if it is, or no proof was asked for."""
        if not self.is_proof_asked or self.proven_below > self.image.offset:
            return None
        proven = MetadataImage() if self.proven_image is None else self.proven_image
        if _registered(self.image, log, node_id) == _registered(proven, log, node_id):
            return None
        return f"the records of this replica in the metadata log from offset {self.proven_below} on are not proven: {self.proof}"

    def _replaced_in(self, node_id: int | None, directory_id: bytes | None) -> ReplacedAt:
        """``replaced_partitions`` of a log directory. The history is read once: a broker may have thousands of empty partitions."""
        if node_id is None or directory_id is None:
            return {}
        partitions = self._replaced.get((node_id, directory_id))
        if partitions is None:
            try:
                partitions = replaced_partitions(self.read.log, node_id, directory_id, self.image.offset)
            except DeadlinePassedError:
                raise
            except (SnaprebuildError, FormatError) as error:
                partitions = error
            self._replaced[node_id, directory_id] = partitions
        if isinstance(partitions, Exception):
            raise partitions
        return partitions


def _registered(
    image: MetadataImage, log: LogEvidence, node_id: int | None
) -> tuple[BrokerRegistration | None, bytes | None, PartitionRegistration | None]:
    """The broker, the topic id and the partition of a replica in an image."""
    broker = None if node_id is None else image.brokers.get(node_id)
    topic = image.topic_named(log.topic)
    if topic is None:
        return broker, None, None
    return broker, topic.topic_id, topic.partitions.get(log.partition)


def read_metadata(
    location: str,
    at: int | None,
    run: Run | None,
    voters: Sequence[tuple[int | None, str]],
    voter_ids: Sequence[int] | None,
    findings: list[Finding],
    *,
    is_own: bool,
) -> MetadataRead:
    """Folds a metadata log; arguments as in ``MetadataLogs``, to whose findings it adds.

    Raises:
        SnaprebuildError, FormatError: it cannot be read, or does not reach to the offset.
    """
    read = read_image(location, at, run)
    fold = read.fold
    image = fold.image()
    path = read.log.path
    if fold.fault_count:
        message = f"{pluralize(fold.fault_count, 'record')} of the metadata log left out, as brokers do: {fold.faults[0].error}"
        findings.append(Finding("source-metadata-faults", Severity.NOTE, path, message, fold.faults[0].offset))
    findings += unknown_findings(path, read.log.unknown)
    meta = _meta_around(read.log)
    node_id = None if meta is None else meta.node_id
    proven, proof = _proven(read, image, node_id)
    proven_image = None
    is_proof_asked = bool(voters) or voter_ids is not None
    if is_proof_asked:
        commit_proof = prove(read.log, voters, voter_ids, run)
        proven = max(proven, commit_proof.proven_end_offset)
        rest = ", its end" if proven > image.offset else f"; {unproven_reason(commit_proof)}"
        proof = f"proven committed below {proven}{rest}"
        findings += [Finding("voter-not-counted", Severity.NOTE, each.path, each.reason) for each in commit_proof.not_counted]
        findings += [finding_of_error(error, path) for error in commit_proof.damage]
        with contextlib.suppress(UsageError):  # the log no longer reaches back to there
            if proven > image.offset:
                proven_image = image
            elif proven > 0:
                proven_image = read_image(location, proven - 1, run).fold.image()
    return MetadataRead(
        path=path,
        is_own=is_own,
        image=image,
        cluster_id=None if meta is None else meta.cluster_id,
        proven_below=proven,
        proof=proof,
        read=read,
        followed=FollowedImage(read, run),
        latest_ms=fold.latest_timestamp_ms,
        end=_end(read, at),
        has_marker=has_clean_marker(read.log),
        proven_image=proven_image,
        is_proof_asked=is_proof_asked,
    )


def read_brokers(location: str, run: Run | None) -> Mapping[int, BrokerRegistration]:
    """The brokers that are registered at the end of a metadata log, by id.

    Raises:
        SnaprebuildError, FormatError: it cannot be read.
    """
    return read_image(location, None, run).fold.image().brokers


def _end(read: ImageAt, at: int | None) -> LogEndEvidence:
    """The end of a metadata log that was read, to its end or to an offset."""
    if at is None:
        return log_end_evidence(read.log, read.walk.end_offset, is_torn=read.walk.torn_tail is not None)
    try:
        walk = read.log.walk_to_end()
    except FormatError:  # above the offset that was asked for
        return LogEndEvidence(read.walk.end_offset)
    return log_end_evidence(read.log, walk.end_offset, is_torn=walk.torn_tail is not None)


def _proven(read: ImageAt, image: MetadataImage, node_id: int | None) -> tuple[int, str]:
    """Below which offset it is committed: a checkpoint holds nothing else, and the only voter has committed all that it wrote.

    The copy of another node lags the voter's, and may have lost its end when that node was killed.
    """
    voters = [voter.voter_id for voter in image.quorum.voters or ()]
    if voters == [node_id]:
        return image.offset + 1, "proven committed to its end: its quorum has one voter"
    if read.checkpoint is None:
        if len(voters) == 1:
            return 0, f"not proven committed: no checkpoint, and it is not the log of the only voter, node {voters[0]}"
        return 0, "not proven committed: no checkpoint, and what one node holds may be cut off again"
    end = read.checkpoint.end_offset
    if end > image.offset:
        return end, f"proven committed below {end}, by its checkpoint"
    return end, f"proven committed below {end}, by its newest checkpoint; the rest is what this node holds"


def _meta_around(log: MetadataLog) -> MetaProperties | None:
    with contextlib.suppress(SnaprebuildError, FormatError):  # a copy of a metadata log need not have one
        return meta_around(log.directory)
    return None
