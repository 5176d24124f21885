"""The metadata logs that the verdicts of a run rest on: one that was named, or each broker's own, folded once.

Nothing on a disk shows that it was replaced; the metadata log does (``replaced_partitions``). A log directory that was formatted anew has
a new id. So a broker that registers with that id, and without the one that the partition was placed in, has lost the partition (KIP-858).
It has the partition again once a leader, which is another broker, has taken it among the in-sync replicas: that happens after it has
caught up (``Partition.maybeExpandIsr``). A log that is empty after that was never written to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from formats.broker.broker_files import MetaProperties, read_meta_properties
from formats.errors import FormatError
from formats.limits import TEXT_FILE_BYTES_MAX
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from formats.partition.file_names import META_PROPERTIES
from snaprebuild.cluster.metadata.image_model import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from snaprebuild.cluster.metadata.image_reader import FollowedImage, ImageAt, read_image
from snaprebuild.cluster.metadata.log import METADATA_DIRECTORY, MetadataLog
from snaprebuild.cluster.metadata.proof import prove, unproven_reason
from snaprebuild.cluster.source.evidence import ClusterEvidence, LogEvidence
from snaprebuild.errors import DeadlinePassedError, RefusedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.store import USUAL_S3, S3Settings, Store

__all__ = ["UNREADABLE", "ClusterTruth", "MetadataRead", "ReplacedAt", "replaced_partitions"]


ReplacedAt = dict[tuple[bytes, int], int]
"""Offsets of registrations by topic id, 16 bytes, and number of the partition."""

NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""In ``PartitionChangeRecord.leader``."""

_TELLS_NOTHING = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)


def replaced_partitions(log: MetadataLog, node_id: int, directory_id: bytes, last_offset: int) -> ReplacedAt:
    """The partitions of a broker in place of whose log directory another one was registered, and that have not caught up since.

    Reads what the log still holds, once for all partitions: from its oldest whole checkpoint on.

    Args:
        log: the metadata log.
        node_id: of the broker.
        directory_id: of the log directory in which partitions lie today, 16 bytes.
        last_offset: that counts.

    Raises:
        ReadFailedError: a file cannot be read.
        FormatError: the log is damaged.
    """
    placed = _Placements(node_id)
    replaced: ReplacedAt = {}
    known: set[bytes] = set()
    for offset, record in _records(log, last_offset):
        fields = record.message
        if record.api_key == MetadataRecordType.REGISTER_BROKER and fields["brokerId"] == node_id:
            online = set(fields["logDirs"] or ())
            if directory_id in online - known:
                for partition, held_in in placed.directories():
                    if held_in not in online and held_in not in _TELLS_NOTHING:
                        replaced.setdefault(partition, offset)
            known |= online
        elif record.api_key in (MetadataRecordType.PARTITION, MetadataRecordType.PARTITION_CHANGE):
            partition = fields["topicId"], fields["partitionId"]
            if placed.take(partition, fields) in (_Step.GONE, _Step.CAUGHT_UP):
                replaced.pop(partition, None)
    return replaced


class _Step(Enum):
    """What a record of a partition says of one of its replicas."""

    STAYS = 1
    CAUGHT_UP = 2
    """It joined the replicas in sync, behind a leader that is another broker: it has all that was committed."""
    GONE = 3
    """It is no replica; what comes back later begins anew."""


@dataclass(slots=True)
class _Held:
    """One replica: its place among the others, its log directory, and whether it is in sync, behind which leader."""

    place: int
    directory: bytes
    is_in_sync: bool
    leader: int


class _Placements:
    """In which log directories the cluster has the partitions of one broker (``PartitionRegistration.merge``)."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._held: dict[tuple[bytes, int], _Held] = {}

    def directories(self) -> Iterator[tuple[tuple[bytes, int], bytes]]:
        """Each partition with its directory."""
        return ((partition, held.directory) for partition, held in self._held.items())

    def take(self, partition: tuple[bytes, int], fields: dict[str, Any]) -> _Step:
        """Takes a record of a partition, or of a change of one."""
        replicas, directories = fields["replicas"], fields.get("directories")
        before = self._held.get(partition)
        if replicas is not None:
            if self._node_id not in replicas:
                self._held.pop(partition, None)
                return _Step.GONE
            is_in_sync, leader = (False, NO_LEADER) if before is None else (before.is_in_sync, before.leader)
            self._held[partition] = _Held(replicas.index(self._node_id), MIGRATING_DIRECTORY, is_in_sync, leader)
        held = self._held.get(partition)
        if held is None:
            return _Step.GONE
        if directories and held.place < len(directories):
            held.directory = directories[held.place]
        if fields["leader"] != NO_LEADER_CHANGE:
            held.leader = fields["leader"]
        if fields["isr"] is None:
            return _Step.STAYS
        was_in_sync, held.is_in_sync = before is not None and before.is_in_sync, self._node_id in fields["isr"]
        has_joined = before is not None and held.is_in_sync and not was_in_sync
        return _Step.CAUGHT_UP if has_joined and held.leader not in (NO_LEADER, self._node_id) else _Step.STAYS


def _records(log: MetadataLog, last_offset: int) -> Iterator[tuple[int, ClusterMetadataRecord]]:
    """Of the oldest whole checkpoint, at the offset below which it holds everything, and of the log behind it."""
    start = 0
    first = log.first_base_offset
    for checkpoint in log.checkpoints:
        if checkpoint.end_offset <= last_offset and (first is None or first <= checkpoint.end_offset):
            if first == 0 or log.checkpoint_fault(checkpoint) is not None:
                continue
            start = checkpoint.end_offset
            for batch in log.checkpoint_batches(checkpoint):
                for each in batch.records:
                    if isinstance(each.content, ClusterMetadataRecord):
                        yield start - 1, each.content
            break
    with log.walk(start).until() as batches:
        for batch in batches:
            for each in batch.records:
                if each.offset > last_offset:
                    return
                if isinstance(each.content, ClusterMetadataRecord):
                    yield each.offset, each.content


UNREADABLE = "the broker's own metadata log could not be asked"
NO_LOG = "no metadata log was given (--metadata), and none lies beside the partition"


@dataclass(frozen=True, slots=True, eq=False)
class MetadataRead:
    """A metadata log, folded.

    Attributes:
        path: of its directory.
        is_own: it was found beside the partitions, not named.
        image: the cluster at its end, or at the offset that was asked for.
        cluster_id: of the log directory around it, None where nothing tells.
        proven_below: offsets below are known to be committed.
        proof: what proves it.
        read: how it was folded.
        followed: the image as the log grows.
        latest_ms: greatest timestamp in it, ms since 1970; negative for none.
        cut_reason: why it has lost its end; None where nothing shows that.
        proven_image: the cluster as far as that is proven to be committed; None where no proof was asked for, or nothing is proven.
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
    latest_ms: int = -1
    cut_reason: str | None = None
    proven_image: MetadataImage | None = None
    is_proof_asked: bool = False
    _replaced: dict[tuple[int, bytes], ReplacedAt | Exception] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """One sentence."""
        whose = "the broker's own metadata log" if self.is_own else "the metadata log of --metadata"
        return f"{whose}, folded to offset {self.image.offset}; {self.proof}"

    def broker_epoch_now(self, node_id: int, epoch: int, settings: S3Settings) -> int | None:
        """The epoch under which a broker is registered now: what the log has grown by is read, and nothing again.

        Args:
            node_id: of the broker.
            epoch: that it is known to have registered with. A log that ends below that offset says nothing of it yet.
            settings: of object stores.

        Raises:
            SnaprebuildError, FormatError: it cannot be read.
        """
        fold = self.followed.now(settings)
        if fold.offset < epoch:
            return epoch
        broker = fold.brokers.get(node_id)
        return None if broker is None else broker.epoch

    def facts(self, log: LogEvidence, node_id: int | None) -> ClusterEvidence:
        """What its end says of one partition of one broker; no history is read."""
        broker, topic, partition = _facts(self.image, log, node_id)
        return ClusterEvidence(
            origin=self.path,
            offset=self.image.offset,
            cluster_id=self.cluster_id,
            broker=broker,
            topic_id=None if topic is None else topic.topic_id,
            partition=partition,
            is_own=self.is_own,
            older=self.cut_reason,
            unproven=self._unproven(log, node_id),
        )

    def replaced_at(self, log: LogEvidence, node_id: int | None, directory_id: bytes | None) -> int | None:
        """``ClusterEvidence.replaced_at`` of an empty log; None for one with records, whose history is not read.

        Raises:
            SnaprebuildError, FormatError: the log cannot be read again.
        """
        _, topic, partition = _facts(self.image, log, node_id)
        if topic is None or partition is None or not log.is_empty or partition.leader_epoch == 0:
            return None
        return self._replaced_in(node_id, directory_id).get((topic.topic_id, log.partition))

    def _unproven(self, log: LogEvidence, node_id: int | None) -> str | None:
        """Why what it says of a replica is not proven; None where it is, or no proof was asked for."""
        if not self.is_proof_asked or self.proven_below > self.image.offset:
            return None
        proven = MetadataImage() if self.proven_image is None else self.proven_image
        now, then = _facts(self.image, log, node_id), _facts(proven, log, node_id)
        ids = [None if topic is None else topic.topic_id for _, topic, _ in (now, then)]
        if (now[0], ids[0], now[2]) == (then[0], ids[1], then[2]):
            return None
        return f"what the metadata log says of this replica from offset {self.proven_below} on is not proven: {self.proof}"

    def _replaced_in(self, node_id: int | None, directory_id: bytes | None) -> ReplacedAt:
        """``replaced_partitions`` of a log directory. The history is read once: a broker may have thousands of empty partitions."""
        if node_id is None or directory_id is None:
            return {}
        known = self._replaced.get((node_id, directory_id))
        if known is None:
            try:
                known = replaced_partitions(self.read.log, node_id, directory_id, self.image.offset)
            except DeadlinePassedError:
                raise
            except (SnaprebuildError, FormatError) as error:
                known = error
            self._replaced[node_id, directory_id] = known
        if isinstance(known, Exception):
            raise known
        return known


def _facts(
    image: MetadataImage, log: LogEvidence, node_id: int | None
) -> tuple[BrokerRegistration | None, TopicImage | None, PartitionRegistration | None]:
    """The broker, the topic and the partition of a replica in an image."""
    topic = image.topic_named(log.topic)
    partition = None if topic is None else topic.partitions.get(log.partition)
    return None if node_id is None else image.brokers.get(node_id), topic, partition


@dataclass(slots=True)
class ClusterTruth:
    """The metadata logs of a run.

    Attributes:
        location: of the one that was named, or None for each broker's own.
        settings: of object stores.
        at: last offset to take of it, None for all.
        deadline: nothing more is read of metadata logs once ``time.monotonic()`` is past it; None for none.
        voters: metadata logs of other voters, which prove what a majority holds: id (None for that of ``meta.properties``) and location.
        voter_ids: ids of all voters; None for what the log says.
        findings: what could not be read, each log once.
    """

    location: str | None = None
    settings: S3Settings = USUAL_S3
    at: int | None = None
    deadline: float | None = None
    voters: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None
    findings: list[Finding] = field(default_factory=list)
    _known: dict[str, MetadataRead | str] = field(default_factory=dict)
    _own_brokers: dict[str, Mapping[int, BrokerRegistration]] = field(default_factory=dict)

    def named(self) -> MetadataRead | None:
        """The log that was named.

        Raises:
            UsageError: there is none, or it does not reach to the offset.
            RefusedError: it is damaged.
            StorageError: it cannot be read.
            DeadlinePassedError: the deadline has passed.
        """
        if self.location is None:
            return None
        found = self._known.get(self.location)
        if found is None:
            try:
                found = self._read(self.location, is_own=False)
            except FormatError as error:
                message = f"the metadata log cannot be read, so that nobody is judged by it: {error.message}"
                raise RefusedError(message, path=error.file) from error
            if found.image.offset < 0:
                raise UsageError("the metadata log is empty", path=found.path)
            self._known[self.location] = found
        assert isinstance(found, MetadataRead)
        return found

    def own_epoch(self, log_dirs: Iterable[LogDirState], node_id: int | None) -> int | None:
        """The broker epoch of a broker's registration in the metadata log of its own log directories; None where none shows it."""
        for state in log_dirs:
            path = os.path.join(state.path, METADATA_DIRECTORY)
            if path not in self._own_brokers:
                with contextlib.suppress(SnaprebuildError, FormatError):  # it is another log that the replicas are judged by
                    if state.store.names_in(path):
                        self._own_brokers[path] = read_image(path, None, self.settings, self.deadline).fold.image().brokers
            broker = self._own_brokers.get(path, {}).get(-1 if node_id is None else node_id)
            if broker is not None:
                return broker.epoch
        return None

    def of(self, log_dirs: Iterable[LogDirState], metadata_dir: str | None = None) -> MetadataRead | str:
        """The log that tells of a broker, or why there is none.

        Args:
            log_dirs: of the broker; the metadata log lies in one of them,
            metadata_dir: or here, as its configuration says (``metadata.log.dir``).

        Raises:
            UsageError: as ``named``.
        """
        if self.location is not None:
            read = self.named()
            assert read is not None
            return read
        why = NO_LOG
        places = [(state.path, state.store) for state in log_dirs]
        if metadata_dir is not None:
            places.insert(0, (metadata_dir, LOCAL))
        for directory, store in places:
            found = self._own(directory, store)
            if isinstance(found, MetadataRead):
                return found
            why = found or why
        return why

    def _own(self, directory: str, store: Store) -> MetadataRead | str:
        path = os.path.join(directory, METADATA_DIRECTORY)
        known = self._known.get(path)
        if known is not None:
            return known
        try:
            found: MetadataRead | str = self._read(path, is_own=True) if store.names_in(path) else ""
            if isinstance(found, MetadataRead) and found.image.offset < 0:
                found = self._unreadable(path, "it is empty")
        except UsageError as error:
            if self.at is not None or self.voters:
                raise UsageError(error.message, path=error.path) from error
            found = self._unreadable(path, error.message)
        except DeadlinePassedError:
            raise  # no replica may be judged as if there were no log
        except (SnaprebuildError, FormatError) as error:
            finding = finding_of_error(error, path)
            found = self._unreadable(finding.path, finding.message)
        self._known[path] = found
        return found

    def _unreadable(self, path: str, why: str) -> str:
        """The reason why a metadata log that is there gives no evidence, and its finding."""
        reason = f"{UNREADABLE}: {why}"
        message = f"{reason}: what the cluster says of these replicas is not known"
        self.findings.append(Finding("source-metadata-unreadable", Severity.FINDING, path, message, is_unread=True))
        return reason

    def _read(self, location: str, *, is_own: bool) -> MetadataRead:
        read = read_image(location, self.at, self.settings, self.deadline)
        image = read.fold.image()
        if read.fold.fault_count:
            count = pluralize(read.fold.fault_count, "record")
            message = f"{count} of the metadata log left out, as brokers do: {read.fold.faults[0].error}"
            self.findings.append(
                Finding("source-metadata-faults", Severity.NOTE, read.log.path, message, read.fold.faults[0].offset)
            )
        meta = _meta_around(read.log.path, read.log.store)
        cluster_id = None if meta is None else meta.cluster_id
        proven, proof = _proven(read, image, None if meta is None else meta.node_id)
        path, cut, proven_image = read.log.path, _cut_reason(read), None
        if self.voters or self.voter_ids is not None:
            found = prove(read.log, self.voters, self.voter_ids, self.settings)
            proven = max(proven, found.end_offset)
            proof = f"proven committed below {proven}"
            proof += ", its end" if proven > image.offset else f"; {unproven_reason(found)}"
            self.findings += [Finding("voter-not-counted", Severity.NOTE, where, why) for where, why in found.not_counted]
            self.findings += [finding_of_error(error, path) for error in found.damage]
            if proven > image.offset:
                proven_image = image
            elif proven > 0:
                with contextlib.suppress(UsageError):  # the log no longer reaches back to there
                    proven_image = read_image(location, proven - 1, self.settings, self.deadline).fold.image()
        is_asked = bool(self.voters) or self.voter_ids is not None
        followed, latest_ms = FollowedImage(read), read.fold.latest_timestamp_ms
        return MetadataRead(path, is_own, image, cluster_id, proven, proof, read, followed, latest_ms, cut, proven_image, is_asked)


def _cut_reason(read: ImageAt) -> str | None:
    """Why a metadata log has lost its end; None where nothing shows that. A checkpoint is made of what the log holds."""
    newest = max((each.end_offset for each in read.log.checkpoints), default=0)
    if read.walk.end_offset >= newest:
        return None
    end = read.log.log_end_offset()
    if end >= newest:
        return None
    return f"the metadata log ends at {end}, below the end {newest} of its newest checkpoint: a later one is needed"


def _proven(read: ImageAt, image: MetadataImage, node_id: int | None) -> tuple[int, str]:
    """Below which offset it is committed: a checkpoint holds nothing else, and the only voter has committed all that it wrote.

    The copy of another node is behind the voter's, and may have lost its end when that node was killed.
    """
    voters = [each.voter_id for each in image.quorum.voters or ()]
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


def _meta_around(path: str, store: Store) -> MetaProperties | None:
    place = os.path.join(os.path.dirname(path), META_PROPERTIES)
    with contextlib.suppress(SnaprebuildError, FormatError):  # a copy of a metadata log need not have one
        data = store.read_small(place, TEXT_FILE_BYTES_MAX)
        return None if data is None else read_meta_properties(data, file=place)
    return None
