"""Partition directories of ``__remote_log_metadata``, written into the log directories of all brokers that have a replica.

All replicas of a partition are written in one run, with the same files. A replica that is empty could become the leader, and the others
would truncate their logs to its end. The metadata log of the cluster shows the topic id, the partitions, and where each replica is.

Source: ``LogManager``, ``TopicBasedRemoteLogMetadataManager``, ``PartitionRegistration``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.broker.broker_files import MetaProperties
from formats.partition.file_names import LOG_START_OFFSET_CHECKPOINT, META_PROPERTIES
from formats.remote.remote_log_metadata import METADATA_TOPIC, TopicIdPartition, metadata_partition, write_remote_log_record
from snaprebuild.cluster.metadata.image_model import TopicImage
from snaprebuild.cluster.metadata.registered_model import PartitionRegistration, directory_id_of
from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.errors import RefusedError, SnaprebuildError, UsageError
from snaprebuild.findings import first_of
from snaprebuild.published import Natural, Part
from snaprebuild.shell_words import shell_word
from snaprebuild.snapshots.receipts.directory_receipt import DirectoryReceipt, receipt_of_directory
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.broker_lock import HeldLock, check_hold, hold
from snaprebuild.storage.local.new_directory import (
    check_partition_directory,
    create_partition_directory,
    remove_partition_directory,
)
from snaprebuild.storage.log_dir import LogDirState, directory_fault, read_log_dir
from snaprebuild.storage.store import Ownership, absolute, is_object
from snaprebuild.storage.store_path import path_of
from snaprebuild.tier.metadata.leader_logs import LeaderLog, LeaderLogs
from snaprebuild.tier.metadata.topic_log import partition_files
from snaprebuild.tier.upload.announce import WrittenCopy

if TYPE_CHECKING:
    from snaprebuild.cluster.source_check.metadata_read import MetadataRead

__all__ = ["MetadataReplica", "MetadataTopicPlan", "WrittenDirectory", "plan_topic", "read_cluster", "write_topic"]


class WrittenDirectory(Part, frozen=True):
    """A partition directory of ``__remote_log_metadata``."""

    path: str
    """Path of the directory."""
    partition: Natural
    """Number of the partition."""
    node_id: Natural
    """Broker of the log directory."""
    records: Natural
    """Records in its log."""
    size_bytes: Natural
    """Bytes of all its files."""


@dataclass(frozen=True, slots=True)
class MetadataReplica:
    """A replica of a partition of ``__remote_log_metadata``.

    Attributes:
        log_dir: that it goes to, absolute.
        node_id: of its broker.
        partition: number.
    """

    log_dir: str
    node_id: int
    partition: int

    @property
    def name(self) -> str:
        """Name of its directory."""
        return f"{METADATA_TOPIC}-{self.partition}"

    @property
    def path(self) -> str:
        """Path of its directory."""
        return os.path.join(self.log_dir, self.name)


@dataclass(frozen=True, slots=True)
class MetadataTopicPlan:
    """Where the replicas of ``__remote_log_metadata`` go.

    Attributes:
        topic_id: of it, 16 bytes; None if the cluster does not have it.
        partitions: how many it has.
        replicas: all of them, by partition; none if nothing is to be written.
        topics: of the cluster, by topic id.
        cluster_id: None if no ``meta.properties`` next to the metadata log has it.
    """

    topic_id: bytes | None
    partitions: int
    replicas: tuple[MetadataReplica, ...]
    topics: Mapping[bytes, TopicImage]
    cluster_id: str | None

    @property
    def log_dirs(self) -> list[str]:
        """The log directories, each once."""
        return list(dict.fromkeys(each.log_dir for each in self.replicas))

    def replica_logs(self, partition: TopicIdPartition, leaders: LeaderLogs) -> Sequence[LeaderLog] | None:
        """The logs of all replicas of a partition; a replica without one is left out.

        Args:
            partition: to look up.
            leaders: the logs that were named.

        Returns:
            None unless for each replica its log was named, or the log directory that it is registered in.
        """
        topic = self.topics.get(partition.topic_id)
        registration = None if topic is None else topic.partitions.get(partition.partition)
        if registration is None or not leaders.are_all_read(partition):
            return None
        logs = leaders.logs.get(partition, ())
        with_log = {each.node_id for each in logs}
        directories = {each.directory_id for each in leaders.places if self._is_of_cluster(each)} - {None}
        for node_id in registration.replicas:
            if node_id not in with_log and directory_id_of(registration.directory_of(node_id)) not in directories:
                return None
        return logs

    def _is_of_cluster(self, place: MetaProperties) -> bool:
        return self.cluster_id is None or place.cluster_id == self.cluster_id


# ---------------------------------------------------------------------------------------------------------------------- plan


def plan_topic(log_dirs: Sequence[str], metadata: str | None, run: Run) -> MetadataTopicPlan:
    """Works out where the replicas go, and makes sure that none is there. Writes nothing.

    Args:
        log_dirs: of all brokers with a replica.
        metadata: location of the metadata log of the cluster; None for that in one of ``log_dirs``.
        run: how object stores are reached.

    Raises:
        UsageError: a path is no log directory of a broker, or what was named is no metadata log.
        RefusedError: the cluster has no such topic, or a log directory is of another cluster. So are replicas whose log directory was not
            named, that are there, or that a checkpoint has a log start offset for.
        StorageError: a file cannot be read.
    """
    states = [_log_dir_state(each) for each in log_dirs]
    cluster = _read_metadata(states, metadata, run)
    image = cluster.image
    topic = image.topic_named(METADATA_TOPIC)
    if topic is None:
        message = (
            "the cluster has no such topic: create it with kafka-topics.sh, with cleanup.policy=delete, retention.ms=-1 and the partitions "
            "of remote.log.metadata.topic.num.partitions, while no topic uploads (remote.log.copy.disable)"
        )
        raise RefusedError(message, path=METADATA_TOPIC)
    _check_cluster(states, cluster)
    replicas = tuple(_replicas(topic, states))
    for each in replicas:
        _check_absent(each, states)
        _check_log_start(each, states)
    return MetadataTopicPlan(topic.topic_id, len(topic.partitions), replicas, image.topics, cluster.cluster_id)


def read_cluster(metadata: str, run: Run) -> MetadataTopicPlan:
    """The topics of a cluster, and how many partitions ``__remote_log_metadata`` has, where nothing is to be written.

    Args:
        metadata: location of its metadata log.
        run: how object stores are reached.

    Raises:
        UsageError: it is no metadata log.
        RefusedError: it is damaged.
        StorageError: it cannot be read.
    """
    cluster = _read_metadata((), metadata, run)
    image = cluster.image
    topic = image.topic_named(METADATA_TOPIC)
    if topic is None:
        return MetadataTopicPlan(None, 0, (), image.topics, cluster.cluster_id)
    return MetadataTopicPlan(topic.topic_id, len(topic.partitions), (), image.topics, cluster.cluster_id)


def _log_dir_state(path: str) -> LogDirState:
    if is_object(path) or not path:
        raise UsageError("--log-dirs: expected a directory of this machine, where a broker finds it", path=path or None)
    location = absolute(path)
    if (fault := directory_fault(location)) is not None:
        raise UsageError(fault, path=path)
    state = read_log_dir(path_of(os.path.realpath(location)))
    if state.meta is None or state.meta.node_id is None:
        raise UsageError(f"--log-dirs: is no log directory of a broker: {META_PROPERTIES} is missing or has no node id", path=path)
    return state


def _read_metadata(states: Sequence[LogDirState], metadata: str | None, run: Run) -> MetadataRead:
    logs = MetadataLogs(None if metadata is None else absolute(metadata), run)
    found = logs.of(states)
    if found.read is None:
        raise RefusedError(f"where the replicas of {METADATA_TOPIC} are is unknown: {found.missing_reason}", path=METADATA_TOPIC)
    return found.read


def _check_cluster(states: Sequence[LogDirState], cluster: MetadataRead) -> None:
    """Makes sure that all log directories, and the one around the metadata log, are of one cluster.

    A metadata log without ``meta.properties`` next to it shows no cluster.
    """
    by_id = {state.meta.cluster_id: state.path for state in states if state.meta is not None}
    if len(by_id) > 1:
        described = ", ".join(f"{path} of {cluster_id}" for cluster_id, path in by_id.items())
        raise RefusedError(f"the log directories are of several clusters: {described}", path=states[0].path)
    for cluster_id, path in by_id.items():
        if cluster.cluster_id is not None and cluster_id != cluster.cluster_id:
            message = f"is of cluster {cluster_id}, and the metadata log {cluster.path} is of {cluster.cluster_id}"
            raise RefusedError(message, path=path)


def _replicas(topic: TopicImage, states: Sequence[LogDirState]) -> Iterable[MetadataReplica]:
    numbers = sorted(topic.partitions)
    if numbers != list(range(len(numbers))):
        raise RefusedError(
            f"the metadata log lacks partitions of {METADATA_TOPIC}: it has {first_of([str(n) for n in numbers], 10)}"
        )
    missing: dict[int, int] = {}
    for number in numbers:
        registration = topic.partitions[number]
        for node_id in registration.replicas:
            state = _place_of(registration, node_id, states)
            if state is None:
                missing.setdefault(node_id, number)
            else:
                yield MetadataReplica(state.path, node_id, number)
    if missing:
        described = ", ".join(f"broker {node_id} (partition {number})" for node_id, number in sorted(missing.items()))
        message = f"name the log directories of all replicas with --log-dirs, of stopped brokers: missing is that of {described}"
        raise RefusedError(message, path=METADATA_TOPIC)


def _place_of(registration: PartitionRegistration, node_id: int, states: Sequence[LogDirState]) -> LogDirState | None:
    """The log directory of a replica: the registered one, or the first of its broker if none is registered. None if it was not named."""
    own = [state for state in states if state.meta is not None and state.meta.node_id == node_id]
    directory_id = directory_id_of(registration.directory_of(node_id))
    for state in own:
        if directory_id is None or (state.meta is not None and state.meta.directory_id == directory_id):
            return state
    return None


def _check_absent(replica: MetadataReplica, states: Sequence[LogDirState]) -> None:
    for state in states:
        if state.meta is None or state.meta.node_id != replica.node_id:
            continue
        path = os.path.join(state.path, replica.name)
        if not os.path.lexists(path):
            continue
        receipt = receipt_of_directory(path)
        if receipt is not None:
            undo = f"snaprebuild undo {shell_word(receipt)}"
            message = f"is there, as an earlier run wrote it: `{undo}` removes it while the broker is stopped"
            raise RefusedError(message, path=path)
        if _is_empty(path):
            raise RefusedError("is there and holds no record: remove it while the broker is stopped, and run again", path=path)
        raise RefusedError("is there and is not replaced: move it out of the log directory while the broker is stopped", path=path)


def _check_log_start(replica: MetadataReplica, states: Sequence[LogDirState]) -> None:
    """Refuses a log start offset that an earlier log of the name left: brokers would read no record below it.

    Above the end of the new log it makes the broker delete that log at its start (``LogLoader``).
    """
    state = next(each for each in states if each.path == replica.log_dir)
    log_start = (state.log_starts or {}).get(replica.name, 0)
    if log_start > 0:
        message = (
            f"has the log start offset {log_start} for {replica.name}, and the new log begins at 0: brokers would not read its records. "
            "Remove that line while the broker is stopped, and lower the number of lines by one"
        )
        raise RefusedError(message, path=os.path.join(state.path, LOG_START_OFFSET_CHECKPOINT))


def _is_empty(path: str) -> bool:
    """Whether a partition directory has no byte of a log."""
    try:
        sizes = [entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path) if entry.name.endswith(".log")]
    except OSError:
        return False
    return not any(sizes)


# --------------------------------------------------------------------------------------------------------------------- write


def _values_by_partition(copies: Iterable[WrittenCopy], partitions: int) -> Mapping[int, list[bytes]]:
    """The values of the records of each partition, in the order of the copies."""
    values: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    for copy in copies:
        assert copy.segment.id is not None
        own = values[metadata_partition(copy.segment.id.topic_id_partition, partitions)]
        own.append(write_remote_log_record(copy.segment))
        own.append(write_remote_log_record(copy.finished))
    return values


def write_topic(
    plan: MetadataTopicPlan, copies: Sequence[WrittenCopy], *, timestamp_ms: int, receipt: DirectoryReceipt | None
) -> list[WrittenDirectory]:
    """Writes all replicas, or none: a failure removes those that were written before.

    Args:
        plan: where they go.
        copies: with their records.
        timestamp_ms: of all records, ms since 1970.
        receipt: of the run; None for a dry run, which writes nothing.

    Raises:
        RefusedError: a broker holds a log directory, or the owner of the files cannot be kept.
        AlreadyExistsError: a replica appeared meanwhile.
        WriteFailedError: nothing is left.
        OutcomeUnknownError: replicas may be left; the receipt names them.
    """
    assert plan.topic_id is not None, "else plan_topic refuses"
    values = _values_by_partition(copies, plan.partitions)
    files = {number: partition_files(own, timestamp_ms, plan.topic_id) for number, own in values.items()}
    written = [_described(each, files[each.partition], len(values[each.partition])) for each in plan.replicas]
    for log_dir in plan.log_dirs:
        check_hold(log_dir)
        check_partition_directory(log_dir, _owner_of(log_dir))
    if receipt is None:
        return written
    receipt.check_place()
    with contextlib.ExitStack() as stack:
        locks = {log_dir: stack.enter_context(hold(log_dir)) for log_dir in plan.log_dirs}
        _write_replicas(plan.replicas, files, locks, receipt)
    receipt.close()
    return written


def _write_replicas(
    replicas: Sequence[MetadataReplica],
    files: Mapping[int, Mapping[str, bytes]],
    locks: Mapping[str, HeldLock],
    receipt: DirectoryReceipt,
) -> None:
    done: list[MetadataReplica] = []
    try:
        for each in replicas:
            locks[each.log_dir].verify()
            own = files[each.partition]
            announce = receipt.announcing(each.path, own)
            create_partition_directory(each.log_dir, each.name, own, _owner_of(each.log_dir), announce=announce)
            done.append(each)
    except BaseException:
        for each in reversed(done):
            with contextlib.suppress(SnaprebuildError):  # the receipt names it
                remove_partition_directory(each.log_dir, each.name)
        raise


def _owner_of(log_dir: str) -> Ownership:
    """Owner and group of what only the broker writes; it may read and write its files."""
    status = os.stat(os.path.join(log_dir, META_PROPERTIES))
    return Ownership(status.st_uid, status.st_gid, 0o644)


def _described(replica: MetadataReplica, files: Mapping[str, bytes], records: int) -> WrittenDirectory:
    return WrittenDirectory(
        path=replica.path,
        partition=replica.partition,
        node_id=replica.node_id,
        records=records,
        size_bytes=sum(len(data) for data in files.values()),
    )
