"""The metadata logs that the verdicts of a run rest on: one that was named, or each broker's own, folded once.

Nothing on a disk shows that it was replaced; the metadata log does (``replaced_partitions``). A log directory that was formatted anew has
a new id. A broker that registers with that id, and without the one that the partition was placed in, has lost the partition (KIP-858).
It has the partition again once a leader, which is another broker, has taken it among the in-sync replicas: that happens after it has
caught up (``Partition.maybeExpandIsr``). A log that is empty after that was never written to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from formats.broker.broker_files import MetaProperties
from formats.errors import FormatError
from formats.metadata.cluster_metadata import MetadataRecordType
from snaprebuild.cluster.metadata.image_model import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerChanged,
    BrokerRegistration,
    MetadataImage,
    PartitionChanged,
    PartitionRegistration,
)
from snaprebuild.cluster.metadata.image_reader import FollowedImage, ImageAt, fold_oldest, read_image
from snaprebuild.cluster.metadata.log import METADATA_DIRECTORY, MetadataLog, meta_around
from snaprebuild.cluster.metadata.proof import prove, unproven_reason
from snaprebuild.cluster.source_check.evidence import ClusterEvidence, LogEvidence
from snaprebuild.errors import DeadlinePassedError, RefusedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.store import USUAL_S3, S3Settings, Store

__all__ = ["BrokerMetadata", "MetadataLogs", "MetadataRead", "ReplacedAt", "replaced_partitions"]

ReplacedAt = dict[tuple[bytes, int], int]
"""Offsets of registrations by topic id, 16 bytes, and number of the partition."""

NO_LEADER = -1
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
    held = {(topic.topic_id, number): each for topic in fold.topics.values() for number, each in topic.partitions.items()}
    known = {*fold.brokers[node_id].directories} if node_id in fold.brokers else set[bytes]()
    replaced: ReplacedAt = {}
    with log.walk(fold.offset + 1).until() as batches:
        for batch in batches:
            if batch.base_offset > last_offset:
                break
            for change in fold.apply_batch(batch, last_offset):
                if isinstance(change, PartitionChanged):
                    key = change.topic_id, change.partition
                    held.pop(key, None)
                    if change.after is not None:
                        held[key] = change.after
                    if change.after is None or node_id not in change.after.replicas or _has_caught_up(change, node_id):
                        replaced.pop(key, None)
                elif isinstance(change, BrokerChanged) and (change.broker_id, change.record.api_key) == (
                    node_id,
                    MetadataRecordType.REGISTER_BROKER,
                ):
                    online = {*(() if change.after is None else change.after.directories)}
                    for key, partition in held.items() if directory_id in online - known else ():
                        if partition.directory_of(node_id) not in (None, *_NO_PLACE, *online):
                            replaced.setdefault(key, change.offset)
                    known |= online
    return replaced


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
        cut_reason: why it has lost its end; None if nothing shows that.
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
        """The epoch under which a broker is registered now: reads only what the log has grown by.

        Args:
            node_id: of the broker.
            epoch: that it is known to have registered with. A log that ends below that offset has no evidence on it yet.
            settings: of object stores.

        Raises:
            SnaprebuildError, FormatError: it cannot be read.
        """
        fold = self.followed.now(settings)
        broker = fold.brokers.get(node_id)
        return epoch if fold.offset < epoch else None if broker is None else broker.epoch

    def facts(self, log: LogEvidence, node_id: int | None) -> ClusterEvidence:
        """Facts about one partition of one broker at the end of the log; no history is read."""
        broker, topic_id, partition = _registered(self.image, log, node_id)
        return ClusterEvidence(
            origin=self.path,
            offset=self.image.offset,
            cluster_id=self.cluster_id,
            broker=broker,
            topic_id=topic_id,
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


def _registered(
    image: MetadataImage, log: LogEvidence, node_id: int | None
) -> tuple[BrokerRegistration | None, bytes | None, PartitionRegistration | None]:
    """The broker, the topic id and the partition of a replica in an image."""
    topic, broker = image.topic_named(log.topic), None if node_id is None else image.brokers.get(node_id)
    return (broker, None, None) if topic is None else (broker, topic.topic_id, topic.partitions.get(log.partition))


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """The metadata log that has evidence on a broker.

    Attributes:
        read: None if there is none.
        why_none: the reason.
        is_unreadable: it is there, and could not be read.
    """

    read: MetadataRead | None = None
    why_none: str = "no metadata log was given (--metadata), and there is none next to the partition"
    is_unreadable: bool = False


@dataclass(slots=True)
class MetadataLogs:
    """The metadata logs of a run.

    Attributes:
        location: of the one that was named, or None for each broker's own.
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
    _known: dict[str, BrokerMetadata | None] = field(default_factory=dict)
    _own_brokers: dict[str, Mapping[int, BrokerRegistration]] = field(default_factory=dict)

    def named(self) -> MetadataRead | None:
        """The log that was named.

        Raises:
            UsageError: there is none, or it does not reach to the offset.
            RefusedError: it is damaged.
            StorageError: it cannot be read.
            DeadlinePassedError: the deadline has passed.
        """
        if self.location is not None and self.location not in self._known:
            try:
                read = self._read(self.location, is_own=False)
            except FormatError as error:
                message = f"the metadata log cannot be read, so no replica is judged: {error.message}"
                raise RefusedError(message, path=error.file) from error
            if read.image.offset < 0:
                raise UsageError("the metadata log is empty", path=read.path)
            self._known[self.location] = BrokerMetadata(read)
        known = None if self.location is None else self._known[self.location]
        return None if known is None else known.read

    def own_epoch(self, log_dirs: Iterable[LogDirState], node_id: int | None) -> int | None:
        """The broker epoch of a broker's registration in the metadata log of its own log directories; None if none shows it."""
        for state in log_dirs:
            path = os.path.join(state.path, METADATA_DIRECTORY)
            if path not in self._own_brokers:
                with contextlib.suppress(SnaprebuildError, FormatError):  # the replicas are judged by another log
                    if state.store.names_in(path):
                        self._own_brokers[path] = read_image(path, None, self.settings, self.deadline).fold.image().brokers
            broker = self._own_brokers.get(path, {}).get(-1 if node_id is None else node_id)
            if broker is not None:
                return broker.epoch
        return None

    def of(self, log_dirs: Iterable[LogDirState], metadata_dir: str | None = None) -> BrokerMetadata:
        """The log that has evidence on a broker.

        Args:
            log_dirs: of the broker; the metadata log is in one of them,
            metadata_dir: or here, as its configuration says (``metadata.log.dir``).

        Raises:
            UsageError: as ``named``.
        """
        if (named := self.named()) is not None:
            return BrokerMetadata(named)
        places = [] if metadata_dir is None else [(metadata_dir, LOCAL)]
        result = BrokerMetadata()
        for directory, store in (*places, *((state.path, state.store) for state in log_dirs)):
            found = self._own(os.path.join(directory, METADATA_DIRECTORY), store)
            if found is not None and found.read is not None:
                return found
            result = found or result
        return result

    def _own(self, path: str, store: Store) -> BrokerMetadata | None:
        """A broker's own log; None if there is none."""
        if path not in self._known:
            try:
                read = self._read(path, is_own=True) if store.names_in(path) else None
                is_empty = read is not None and read.image.offset < 0
                found = self._unreadable(path, "it is empty") if is_empty else None if read is None else BrokerMetadata(read)
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
        return self._known[path]

    def _unreadable(self, path: str, why: str) -> BrokerMetadata:
        """A metadata log that is there and gives no evidence, with its finding."""
        reason = f"the broker's own metadata log could not be asked: {why}"
        message = f"{reason}: the cluster's state of these replicas is unknown"
        self.findings.append(Finding("source-metadata-unreadable", Severity.FINDING, path, message, is_unread=True))
        return BrokerMetadata(None, reason, is_unreadable=True)

    def _read(self, location: str, *, is_own: bool) -> MetadataRead:
        read = read_image(location, self.at, self.settings, self.deadline)
        image, path, fold = read.fold.image(), read.log.path, read.fold
        if fold.fault_count:
            message = f"{pluralize(fold.fault_count, 'record')} of the metadata log left out, as brokers do: {fold.faults[0].error}"
            self.findings.append(Finding("source-metadata-faults", Severity.NOTE, path, message, fold.faults[0].offset))
        meta, proven_image = _meta_around(read.log), None
        proven, proof = _proven(read, image, None if meta is None else meta.node_id)
        is_asked = bool(self.voters) or self.voter_ids is not None
        if is_asked:
            found = prove(read.log, self.voters, self.voter_ids, self.settings)
            proven = max(proven, found.end_offset)
            proof = f"proven committed below {proven}" + (", its end" if proven > image.offset else f"; {unproven_reason(found)}")
            self.findings += [Finding("voter-not-counted", Severity.NOTE, where, why) for where, why in found.not_counted]
            self.findings += [finding_of_error(error, path) for error in found.damage]
            with contextlib.suppress(UsageError):  # the log no longer reaches back to there
                if proven > image.offset:
                    proven_image = image
                elif proven > 0:
                    proven_image = read_image(location, proven - 1, self.settings, self.deadline).fold.image()
        return MetadataRead(
            path=path,
            is_own=is_own,
            image=image,
            cluster_id=None if meta is None else meta.cluster_id,
            proven_below=proven,
            proof=proof,
            read=read,
            followed=FollowedImage(read),
            latest_ms=fold.latest_timestamp_ms,
            cut_reason=_cut_reason(read),
            proven_image=proven_image,
            is_proof_asked=is_asked,
        )


def _cut_reason(read: ImageAt) -> str | None:
    """Why a metadata log has lost its end; None if nothing shows that. A checkpoint is made of what the log holds."""
    newest = max((each.end_offset for each in read.log.checkpoints), default=0)
    if read.walk.end_offset >= newest or (end := read.log.log_end_offset()) >= newest:
        return None
    return f"the metadata log ends at {end}, below the end {newest} of its newest checkpoint: a later one is needed"


def _proven(read: ImageAt, image: MetadataImage, node_id: int | None) -> tuple[int, str]:
    """Below which offset it is committed: a checkpoint holds nothing else, and the only voter has committed all that it wrote.

    The copy of another node lags the voter's, and may have lost its end when that node was killed.
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


def _meta_around(log: MetadataLog) -> MetaProperties | None:
    with contextlib.suppress(SnaprebuildError, FormatError):  # a copy of a metadata log need not have one
        return meta_around(log.path, log.store)
    return None
