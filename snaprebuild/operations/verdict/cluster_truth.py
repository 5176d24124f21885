"""The metadata logs that verdicts of a run rest on: one that was named, or each broker's own, folded once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from formats.broker_files import MetaProperties, read_meta_properties
from formats.errors import FormatError
from formats.file_names import META_PROPERTIES
from formats.limits import TEXT_FILE_BYTES_MAX
from snaprebuild.cluster.metadata_image import MetadataImage
from snaprebuild.cluster.source_evidence import ClusterEvidence, LogEvidence
from snaprebuild.errors import DeadlinePassedError, RefusedError, SnaprebuildError, UsageError
from snaprebuild.operations.findings import Finding, Severity, counted, finding_of_error
from snaprebuild.operations.metadata.followed_image import FollowedImage
from snaprebuild.operations.metadata.image import ImageAt, read_image
from snaprebuild.operations.metadata.listing import METADATA_DIRECTORY
from snaprebuild.operations.verdict.replaced_disk import ReplacedAt, replaced_partitions
from snaprebuild.storage.local_store import LOCAL
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.store import USUAL_S3, S3Settings, Store

__all__ = ["ClusterTruth", "MetadataRead"]

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
    """

    path: str
    is_own: bool
    image: MetadataImage
    cluster_id: str | None
    proven_below: int
    proof: str
    read: ImageAt
    followed: FollowedImage
    _replaced: dict[tuple[int, bytes], ReplacedAt | Exception] = field(default_factory=dict)

    @property
    def told(self) -> str:
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

    def evidence(self, log: LogEvidence, node_id: int | None, directory_id: bytes | None) -> ClusterEvidence:
        """What it says of one partition of one broker.

        Raises:
            SnaprebuildError, FormatError: the log cannot be read again, where an empty partition asks for its history.
        """
        topic = self.image.topic_named(log.topic)
        partition = None if topic is None else topic.partitions.get(log.partition)
        replaced = None
        if topic is not None and partition is not None and log.is_empty and partition.leader_epoch > 0:
            replaced = self._replaced_in(node_id, directory_id).get((topic.topic_id, log.partition))
        return ClusterEvidence(
            origin=self.path,
            offset=self.image.offset,
            cluster_id=self.cluster_id,
            broker=None if node_id is None else self.image.brokers.get(node_id),
            topic_id=None if topic is None else topic.topic_id,
            partition=partition,
            replaced_at=replaced,
            is_own=self.is_own,
        )

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


@dataclass(slots=True)
class ClusterTruth:
    """The metadata logs of a run.

    Attributes:
        location: of the one that was named, or None for each broker's own.
        settings: of object stores.
        at: last offset to take of it, None for all.
        deadline: nothing more is read of metadata logs once ``time.monotonic()`` is past it; None for none.
        findings: what could not be read, each log once.
    """

    location: str | None = None
    settings: S3Settings = USUAL_S3
    at: int | None = None
    deadline: float | None = None
    findings: list[Finding] = field(default_factory=list)
    _known: dict[str, MetadataRead | str] = field(default_factory=dict)

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
                found = "the broker's own metadata log is empty"
        except UsageError as error:
            if self.at is None:
                found = ""  # nothing of a metadata log is in it
            else:
                raise UsageError(error.message, path=error.path) from error
        except DeadlinePassedError:
            raise  # nobody may be judged as if the log told nothing
        except (SnaprebuildError, FormatError) as error:
            finding = finding_of_error(error, path)
            found = f"the broker's own metadata log could not be asked: {finding.message}"
            message = f"{found}: what the cluster says of these replicas is not known"
            self.findings.append(Finding("source-metadata-unreadable", Severity.FINDING, finding.path, message))
        self._known[path] = found
        return found

    def _read(self, location: str, *, is_own: bool) -> MetadataRead:
        read = read_image(location, self.at, self.settings, self.deadline)
        image = read.fold.image()
        proven, proof = _proven(read, image)
        if read.fold.fault_count:
            message = f"{counted(read.fold.fault_count, 'record')} of the metadata log left out, as brokers do: {read.fold.faults[0].error}"
            self.findings.append(
                Finding("source-metadata-faults", Severity.NOTE, read.log.path, message, read.fold.faults[0].offset)
            )
        meta = _meta_around(read.log.path, read.log.store)
        cluster_id = None if meta is None else meta.cluster_id
        return MetadataRead(read.log.path, is_own, image, cluster_id, proven, proof, read, FollowedImage(read))


def _proven(read: ImageAt, image: MetadataImage) -> tuple[int, str]:
    """Below which offset it is committed: a checkpoint holds nothing else; a quorum of one has committed whatever it wrote."""
    voters = image.quorum.voters
    if voters is not None and len(voters) == 1:
        return image.offset + 1, "proven committed to its end: its quorum has one voter"
    if read.checkpoint is None:
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
