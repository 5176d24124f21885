"""A store of remote storage: one listing, read together with the metadata logs.

``Tier`` has the partitions with their true topic names, and hands out each as a ``RemotePartition``. A bucket alone does not show which
copies brokers still read: ``unrecorded_states`` shows why they do not have those without a record.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from formats.errors import FormatError
from formats.limits import MANIFEST_BYTES_MAX
from formats.partition.file_names import DirectoryForm
from formats.partition.partition_metadata import ZERO_UUID, uuid_to_text
from formats.remote.aiven_manifest import read_aiven_manifest
from formats.remote.object_names import AivenKey, AivenObject, LocalTierFile, LocalTierName, aiven_key, parse_aiven_key
from formats.remote.remote_log_metadata import (
    METADATA_TOPIC,
    RemoteSegment,
    SegmentState,
    TopicIdPartition,
    metadata_partition,
    read_remote_log_record,
)
from snaprebuild.errors import LimitReachedError, ReadFailedError, UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, choose_form, finding_of_error, first_of, pluralize
from snaprebuild.snapshots.source.log_records import log_records
from snaprebuild.snapshots.source.selection import EVERYTHING, Selection
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.log_dir import Discovery, directory_fault, find_partitions, is_log_dir
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import (
    CopyObjects,
    ListedPartition,
    TierLayout,
    TierObject,
    UnknownObjects,
    list_tier,
    merged,
    split_key_prefix,
)
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store import USUAL_S3, ReadStore, S3Settings, absolute
from snaprebuild.storage.store_path import StorePath, path_of
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.cost import COLD
from snaprebuild.tier.remote_log import RemoteLog, RemoteLogs
from snaprebuild.tier.remote_partition import (
    PARTITION_MEMBERS,
    RemoteCopy,
    RemotePartition,
    json_member,
    missing_objects,
    take_all_for_finished,
    unreadable_objects,
)
from snaprebuild.tier.running_topic import RunningTopic, cut_topic, unreadable_record

__all__ = [
    "UNRECORDED",
    "UNVERIFIED",
    "CopyState",
    "StoreAccess",
    "Tier",
    "list_store",
    "open_tier",
    "read_remote_logs",
    "refuse_log_directory",
    "refuse_without_copies",
    "store_access",
    "unrecorded_finding",
    "unrecorded_states",
    "zero_id_findings",
]


MANIFESTS_TRIED = 8
"""Manifests of a partition that are read for the name of its topic, at most."""

UNVERIFIED = "whether brokers have these copies, or gave them up, is not verified: give --metadata-log"


class CopyState(StrEnum):
    """State of a copy of a segment."""

    LIVE = "live"
    """Finished, and reads are served from it."""
    SUPERSEDED = "superseded"
    """Finished, and unreferenced in each of its leader epochs: no lookup of a broker leads to it."""
    LOST = "lost"
    """Finished, and objects of it are missing: reads of it fail."""
    PHANTOM = "phantom"
    """COPY_SEGMENT_STARTED, and no object was ever written."""
    UNFINISHED = "unfinished"
    """COPY_SEGMENT_STARTED, with objects: it is being written, or its writer failed."""
    DELETING = "deleting"
    """The deletion of the copy has begun, or that of its partition."""
    DELETED = "deleted"
    """The deletion of the copy is recorded as finished, or that of its partition, or its topic was removed from the cluster."""
    UNKNOWN = "unknown"
    """Objects without a record, so that nothing proves what they are."""
    ANOTHER_TOPIC_ID = "another-topic-id"
    """Objects without a record, of a topic whose name has another topic id in this cluster."""
    ANOTHER_CLUSTER = "another-cluster"
    """Objects that only the records of another cluster name."""
    UNVERIFIED = "unverified"
    """Complete, as far as the store alone shows, or what could be read of a damaged metadata log."""
    UNREADABLE = "unreadable"
    """Objects are missing, or its manifest is bad, and no record has what it should be."""


@dataclass(slots=True)
class Tier:
    """A store, with what a metadata log has of it.

    Attributes:
        base: where the objects are.
        has_metadata: a metadata log was given.
        verified: and all of it could be read: brokers have no copy that it does not have.
        logs: of the metadata.
        partitions: of the listing, in the order of the store.
        unknown: objects of no known layout.
        unanswered: finished copies that lack objects in the listing, and why a request for these had no answer, by segment id.
        private_keys: for copies that are encrypted.
        findings: about the store and the metadata log.
        stores: how the store is reached, and how much may be read of it.
        reads: reads the objects in place of the store of ``base``; None for that one.
    """

    base: StorePath
    has_metadata: bool
    verified: bool
    logs: RemoteLogs
    partitions: dict[TopicIdPartition, ListedPartition]
    unknown: UnknownObjects = field(default_factory=UnknownObjects)
    unanswered: dict[bytes, str] = field(default_factory=dict)
    private_keys: PrivateKeys = NO_KEYS
    findings: list[Finding] = field(default_factory=list)
    stores: S3Settings = USUAL_S3
    reads: ReadStore | None = None

    @property
    def metadata_findings(self) -> list[Finding]:
        """Findings of the metadata logs, without those about other partitions of the store."""
        return [each for each in self.findings if each.cause is FindingCause.METADATA_TOPIC]

    @property
    def partition_names(self) -> set[str]:
        """``<topic>-<partition>`` of all partitions that the listing or the metadata log has."""
        return {f"{each.topic}-{each.partition}" for each in (*self.partitions, *self.logs.partitions)}

    def listed_partition(self, partition: TopicIdPartition) -> RemotePartition:
        """The partition as the listing and the metadata log have it: no object was read."""
        listed = self.partitions.get(partition)
        # Without objects it has the layout of the first partition of the store.
        sample = next(iter(self.partitions.values()), None) if listed is None else listed
        layout = TierLayout.AIVEN if sample is None else sample.layout
        objects: ReadStore = self.base.store if self.reads is None else self.reads
        store = TierStore(objects, self.private_keys) if layout is TierLayout.AIVEN else objects
        log = self.logs.partitions.get(partition, RemoteLog())
        by_segment = {} if listed is None else {each.segment_id: each for each in listed.copies}
        copies = [RemoteCopy.of(layout, each, log.segments.get(segment_id)) for segment_id, each in by_segment.items()]
        copies += [RemoteCopy.of(layout, None, each) for each in log.segments.values() if each.segment_id not in by_segment]
        for copy in copies:
            copy.unanswered = self.unanswered.get(copy.segment_id)
        copies.sort(key=lambda copy: copy.start_offset)
        by_id = {copy.segment_id: copy for copy in copies}
        remote = RemotePartition(partition, self.base, layout, store, log, by_id, self.verified, self.private_keys, self.stores)
        remote.reads = self.reads
        return remote

    def partition(self, partition: TopicIdPartition) -> RemotePartition:
        """The partition as a broker knows it: without a metadata log every complete copy is taken for a finished one.

        Raises:
            RefusedError: a limit of the run is used up.
        """
        remote = self.listed_partition(partition)
        if not self.has_metadata and remote.copies:
            take_all_for_finished(remote)
            return remote
        incomplete = [each for each in remote.incomplete if each.record is not None]
        if incomplete:
            copies = pluralize(len(incomplete), "copy", "copies")
            message = f"{copies} finished, and objects of {choose_form(len(incomplete), 'it', 'them')} are missing: reads fail"
            remote.findings = (Finding("tier-lost", Severity.DAMAGED, remote.place, message, incomplete[0].start_offset),)
        return remote

    def partition_named(self, topic: str, number: int, topic_id: bytes | None) -> RemotePartition | None:
        """The partition of a name in remote storage; None if there is none.

        Args:
            topic: name.
            number: of the partition.
            topic_id: 16 bytes; None for the only topic of that name.

        Raises:
            UsageError: several topics had that name.
            RefusedError: a limit of the run is used up.
        """
        known = {*self.partitions, *self.logs.partitions}
        ids = sorted({each.topic_id for each in known if (each.topic, each.partition) == (topic, number)})
        if topic_id is not None:
            ids = [topic_id] if topic_id in ids else []
        if len(ids) > 1:
            among = ", ".join(map(uuid_to_text, ids))
            raise UsageError(
                f"has copies of several topics called {topic}: name one with --topic-id {topic}=ID, of {among}", path=self.base.path
            )
        return self.partition(TopicIdPartition(topic, ids[0], number)) if ids else None


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """Where copies of segments are, and what is needed to read them.

    Attributes:
        root: of the store, absolute.
        metadata_logs: directories with partitions of ``__remote_log_metadata``: all of them, or good copies look unreferenced.
        private_keys: for copies that are encrypted.
        key_prefix: of the plugin, below the location.
        cluster_id: of the cluster of the store; None for that of the first metadata log.
        keeps_unknown: objects of no known layout are kept, too, and not only counted.
        running: the records of a running cluster, in place of those of ``metadata_logs``; None to read these.
    """

    root: StorePath
    metadata_logs: Sequence[str] = ()
    private_keys: PrivateKeys = NO_KEYS
    key_prefix: str = ""
    cluster_id: str | None = None
    keeps_unknown: bool = False
    running: RunningTopic | None = None

    @property
    def records_place(self) -> str | None:
        """Where records of the copies are read; None without any."""
        if self.running is not None:
            return self.running.servers
        return next(iter(self.metadata_logs), None)


def store_access(
    location: str,
    stores: S3Settings,
    *,
    metadata_logs: Sequence[str] = (),
    private_keys: PrivateKeys = NO_KEYS,
    key_prefix: str = "",
    running: RunningTopic | None = None,
) -> StoreAccess:
    """The access to the store at a location.

    Args:
        location: directory or ``s3://BUCKET/PREFIX``.
        stores: how object stores are reached.
        metadata_logs: directories with partitions of ``__remote_log_metadata``.
        private_keys: for copies that are encrypted.
        key_prefix: of the plugin; empty for the last part of the location, if keys begin with it.
        running: the records of a running cluster, in place of ``metadata_logs``.

    Raises:
        UsageError: there is no such directory, or it is the log directory of a broker.
        ReadFailedError: the location cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    root = path_of(absolute(location), stores)
    prefix = key_prefix
    if not prefix and not location.endswith("/"):
        root, prefix = split_key_prefix(root)
    if root.is_local and (fault := directory_fault(root.path)) is not None:
        raise UsageError(fault, path=location)
    refuse_log_directory(root, "is a log directory: name STORE, where the copies of segments are")
    return StoreAccess(root, metadata_logs, private_keys, prefix, running=running)


def refuse_log_directory(root: StorePath, message: str) -> None:
    """Refuses a directory that has a file that only a broker writes. A store may have partitions next to its copies, and below them.

    Raises:
        UsageError: it is a log directory, in which nothing would be found, and nothing wrong.
    """
    if root.is_local and is_log_dir(root):
        raise UsageError(message, path=root.path)


def open_tier(access: StoreAccess, stores: S3Settings = USUAL_S3, *, may_be_empty: bool = False) -> Tier:
    """Lists a store and reads the metadata log.

    Args:
        access: to the store.
        stores: how the store is reached where it holds objects, and those that the metadata logs are in.
        may_be_empty: a store without any object is one to which nothing was uploaded.

    Raises:
        UsageError: neither a copy nor a metadata log is there, and an empty store is no answer.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    tier = list_store(access, stores)
    place = access.root.path
    tier.findings += unreadable_objects(place, tier.unknown)
    if not tier.partitions and access.records_place is None:
        if not may_be_empty:
            refuse_without_copies(tier, tier.findings)
        message = "the store is empty: nothing was uploaded, or it is another store or prefix than the brokers'"
        tier.findings.append(Finding("tier-empty", Severity.NOTE, place, message))
    elif access.records_place is None:
        tier.findings.append(Finding("tier-unverified", Severity.NOTE, place, UNVERIFIED))
    return tier


def refuse_without_copies(tier: Tier, findings: Iterable[Finding], selection: Selection = EVERYTHING) -> None:
    """Refuses an answer about a store without a copy: it would be one about nothing.

    Args:
        tier: the store.
        findings: of it; one that is more than a note is an answer.
        selection: of partitions.

    Raises:
        UsageError: no finding is more than a note.
    """
    if any(each.severity > Severity.NOTE for each in findings):
        return
    narrowed = " that the selection takes" if selection.is_narrowed else ""
    others = ""
    if tier.unknown.count:
        others = f"; it has {pluralize(tier.unknown.count, 'object')} of no known layout, the first {tier.unknown.first!r}"
    hint = selection.hint({each.topic for each in tier.partitions})
    raise UsageError(f"has no copy of a segment{narrowed}{hint}{others}", path=tier.base.path)


def list_store(
    access: StoreAccess,
    stores: S3Settings,
    is_removed: Callable[[TopicIdPartition, RemoteLogs], bool] | None = None,
) -> Tier:
    """Lists a store and reads the metadata logs; an empty store is no error.

    Args:
        access: to the store.
        stores: how the object stores are reached that the metadata logs are in.
        is_removed: whether the topic of a partition was removed, so that nobody needs the records of its copies. None if none
            was.

    Raises:
        UsageError: there is no partition of ``__remote_log_metadata``.
        ReadFailedError: the store cannot be listed, or the cluster does not answer.
        RefusedError: a limit of the run is used up, or the cluster has no such topic.
    """
    notes = []
    if access.running is None:
        logs, findings = read_remote_logs(access.metadata_logs, stores, access.cluster_id)
    else:
        records = access.running.read()
        logs = records.logs
        _check_running_cluster(access.running, logs, access.cluster_id)
        findings = records.findings
        notes = [records.note(access.running.servers)]
    unknown = UnknownObjects(keeps_objects=access.keeps_unknown)
    listed = list_tier(access.root, unknown, access.key_prefix)
    # The names of topics come first: copies of one partition below several prefixes are one partition only with their names.
    named = merged(_with_topics(access.root, _with_recorded_topics(listed, logs)))
    partitions, unanswered = _request_unlisted(access.root, named, logs, access.key_prefix)
    existing = [each for each in partitions if is_removed is None or not is_removed(each.id, logs)]
    has_metadata = access.records_place is not None
    return Tier(
        base=access.root,
        has_metadata=has_metadata,
        verified=has_metadata and logs.is_complete,
        logs=logs,
        partitions={each.id: each for each in partitions},
        unknown=unknown,
        unanswered=unanswered,
        private_keys=access.private_keys,
        findings=[*notes, *findings, *_cut_off_findings(logs, existing, access.root.path)],
        stores=stores,
    )


def _check_running_cluster(running: RunningTopic, logs: RemoteLogs, cluster_id: str | None) -> None:
    """Makes sure that a running cluster is that of the store, as far as both show which one they are.

    Raises:
        UsageError: it is another one.
    """
    if None not in (cluster_id, logs.cluster_id) and cluster_id != logs.cluster_id:
        expected = f"expected cluster {cluster_id}, found {logs.cluster_id}"
        raise UsageError(f"--metadata and --bootstrap-server are of different clusters: {expected}", path=running.servers)


# -------------------------------------------------------------------------------------------------------- copies without a record


def unrecorded_states(
    logs: RemoteLogs, partition: TopicIdPartition, ids: Iterable[bytes], *, verified: bool
) -> dict[bytes, CopyState | None]:
    """Why brokers do not have copies of these ids; None for those that they have, and where nothing shows it.

    Args:
        logs: the metadata log.
        partition: of the copies.
        ids: of the copies.
        verified: a metadata log was given, and all of it could be read.
    """
    if partition in logs.deleted and partition not in logs.partitions:
        return dict.fromkeys(ids, CopyState.DELETED)
    if partition in logs.deletions:
        return dict.fromkeys(ids, CopyState.DELETING)
    other = CopyState.UNKNOWN if verified else None
    if not logs.names(partition) and logs.cluster_naming(partition) is not None:
        other = CopyState.ANOTHER_CLUSTER
    log = logs.partitions.get(partition, RemoteLog())
    return {each: _unrecorded_state(log, each, other) for each in ids}


def _unrecorded_state(log: RemoteLog, segment_id: bytes, other: CopyState | None) -> CopyState | None:
    if segment_id in log.deleted and segment_id not in log.segments:
        return CopyState.DELETED
    segment = log.segments.get(segment_id)
    if segment is None:
        return other
    return CopyState.DELETING if segment.state is SegmentState.DELETE_SEGMENT_STARTED else None


def _cut_off_findings(logs: RemoteLogs, partitions: Iterable[ListedPartition], root: str) -> Iterator[Finding]:
    """Complete copies without a record, where the first records of the metadata partition that would have it are gone."""
    counts = Counter[int]()
    if not logs.begins_at:
        return
    for each in partitions:
        number = metadata_partition(each.id, logs.metadata_partitions())
        if number not in logs.begins_at:
            continue
        recorded = logs.partitions.get(each.id, RemoteLog()).segments
        ids = [
            copy.segment_id for copy in each.copies if not missing_objects(each.layout, copy) and copy.segment_id not in recorded
        ]
        states = unrecorded_states(logs, each.id, ids, verified=False)
        counts[number] += sum(state is None for state in states.values())
    for number, count in sorted(counts.items()):
        if count:
            message = (
                f"{pluralize(count, 'copy has', 'copies have')} no record, and partition {number} of {METADATA_TOPIC} begins at offset "
                f"{logs.begins_at[number]}: brokers that start do not find them. `snaprebuild tier metadata` rebuilds records that are "
                "gone. Delete nothing"
            )
            yield Finding("tier-record-gone", Severity.FINDING, root, message)


def unrecorded_finding(
    logs: RemoteLogs, partition: TopicIdPartition, place: str, state: CopyState, count: int, offset: int
) -> Finding:
    """The finding with the advice for copies that no broker of this cluster reads, or of which that is unknown.

    Args:
        logs: the metadata log.
        partition: of the copies.
        place: of the finding.
        state: of the copies, one of ``UNRECORDED``.
        count: of the copies.
        offset: first of them.
    """
    code, severity, message = UNRECORDED[state]
    is_unread = False
    if state is CopyState.UNKNOWN:
        missing = None if partition in logs.partitions else logs.not_given(partition)
        cluster = logs.cluster_that_may_name(partition)
        if missing is not None:
            message = NOT_GIVEN.format(number=missing, topic=METADATA_TOPIC)
        elif cluster is not None:
            message = MAY_BE_UNREAD.format(cluster=cluster)
        is_unread = missing is not None or cluster is not None
        code = "tier-unknown" if is_unread else code
    if state is CopyState.ANOTHER_CLUSTER:
        message = message.format(cluster=logs.cluster_naming(partition))
    text = f"{pluralize(count, 'copy', 'copies')} {message}"
    return Finding(code, severity, place, text, offset, is_unread=is_unread)


UNRECORDED = {
    CopyState.DELETING: (
        "tier-deleting",
        Severity.NOTE,
        "whose deletion is recorded and not finished: brokers continue it. Wait; if it does not end, look for errors of "
        "the remote storage manager in the log of the partition's leader",
    ),
    CopyState.DELETED: (
        "tier-deleted",
        Severity.FINDING,
        "whose deletion the metadata log records as finished, and whose objects exist: no broker reads them or deletes them again. "
        "Delete these objects",
    ),
    CopyState.UNKNOWN: (
        "tier-orphan",
        Severity.FINDING,
        "without a record in the metadata log, so that nothing proves what they are. Another cluster or plugin wrote them, or "
        "their records are gone: `snaprebuild tier metadata` rebuilds those. Check that no other cluster uses this store before you "
        "delete them",
    ),
    CopyState.ANOTHER_CLUSTER: (
        "tier-another-cluster",
        Severity.NOTE,
        "that only the records of cluster {cluster} name: brokers of that cluster read and delete them",
    ),
}

NOT_GIVEN = (
    "not judged, because their records belong to partition {number} of {topic}, which was not given: add a directory that has it "
    "with --metadata-log. Delete nothing"
)

MAY_BE_UNREAD = (
    "not judged, because their records may be among those of cluster {cluster} that cannot be read or were not given: add directories "
    "that have them with --metadata-log. Delete nothing"
)


# ------------------------------------------------------------------------------------------------------------------------ listing


def _with_recorded_topics(partitions: list[ListedPartition], logs: RemoteLogs) -> list[ListedPartition]:
    """Partitions with the names that the metadata logs have for them, where these have any.

    ``key.prefix`` needs no separator at its end, so that keys alone do not show where the topic begins.
    """
    topics: dict[tuple[bytes, int], list[str]] = {}
    clusters = (logs, *logs.other_clusters.values())
    for each in (each for cluster in clusters for each in (*cluster.partitions, *cluster.deletions, *cluster.deleted)):
        topics.setdefault((each.topic_id, each.partition), []).append(each.topic)
    return [_with_name_of(each, topics.get((each.topic_id, each.partition), ())) for each in partitions]


def _with_name_of(partition: ListedPartition, names: Iterable[str]) -> ListedPartition:
    """A partition without a name gets the longest of these that its keys can have."""
    fitting = [name for name in names if partition.head.endswith(name)]
    if partition.named is not None or not fitting:
        return partition
    return replace(partition, named=max(fitting, key=len))


def _with_topics(root: StorePath, partitions: list[ListedPartition]) -> list[ListedPartition]:
    """Partitions with the names that manifests have. One manifest is read for each topic that has no name yet, or more if it is bad."""
    unnamed = dict[tuple[str, bytes], list[CopyObjects]]()
    for each in partitions:
        if each.layout is TierLayout.AIVEN and each.named is None:
            # The last copies first: retention deletes the first ones.
            copies = [copy for copy in reversed(each.copies) if AivenObject.MANIFEST in copy.by_kind]
            # Each byte of a cold class has a price.
            warm = [copy for copy in copies if copy.by_kind[AivenObject.MANIFEST].storage_class not in COLD]
            if warm:
                unnamed.setdefault((each.head, each.topic_id), []).extend(warm[:MANIFESTS_TRIED])
    topics = dict(zip(unnamed, map_in_threads(partial(_topic_of, root), list(unnamed.values())), strict=True))
    named = [replace(each, named=each.named or topics.get((each.head, each.topic_id))) for each in partitions]
    # A topic id other than zero has one name, which the manifests below another prefix have, too.
    names: dict[bytes, set[str]] = {}
    for each in named:
        if each.named is not None and each.topic_id != ZERO_UUID:
            names.setdefault(each.topic_id, set()).add(each.named)
    return [_with_name_of(each, names.get(each.topic_id, ())) for each in named]


def _topic_of(root: StorePath, copies: Iterable[CopyObjects]) -> str | None:
    """The topic in the first one of some manifests that can be read and has one; None if none has."""
    return next((topic for copy in copies if (topic := _topic_of_manifest(root, copy)) is not None), None)


def _topic_of_manifest(root: StorePath, copy: CopyObjects) -> str | None:
    """The topic in a manifest, whose bytes are kept; None where it has none, or cannot be read."""
    manifest = copy.by_kind[AivenObject.MANIFEST]
    file = root.below(manifest.key)
    key = parse_aiven_key(manifest.key)
    topic_id = None if key is None else uuid_to_text(key.topic_id)
    try:
        data = file.read_small(MANIFEST_BYTES_MAX)
        if data is None:
            return None
        copy.by_kind[AivenObject.MANIFEST] = replace(manifest, data=data)
        metadata = read_aiven_manifest(data, file=file.path).segment
    except (FormatError, ReadFailedError, LimitReachedError):
        return None
    if json_member(metadata, *PARTITION_MEMBERS, "topicId") not in (None, topic_id):
        return None  # of another topic: ``copy_facts`` finds it
    topic = json_member(metadata, *PARTITION_MEMBERS, "topicPartition", "topic")
    if isinstance(topic, str) and topic and (key is None or key.topic.endswith(topic)):
        return topic
    return None


def read_remote_logs(paths: Sequence[str], stores: S3Settings, cluster_id: str | None = None) -> tuple[RemoteLogs, list[Finding]]:
    """Reads the metadata logs below some directories; of partitions that several brokers have, the largest. Gives what is unreadable, too.

    Directories of several clusters, by their ``meta.properties``, are kept apart.

    Args:
        paths: of the directories.
        stores: how the object stores are reached that they are in.
        cluster_id: of the cluster of the store; None for the first one that is named.

    Raises:
        UsageError: there is no partition of ``__remote_log_metadata``, or none of that cluster.
    """
    if not paths:
        return RemoteLogs(), []
    directories = find_partitions(paths, stores)
    findings = [finding_of_error(error, error.path or "") for error in directories.faults]
    by_cluster = _largest_partitions(paths, directories, cluster_id)
    if not by_cluster:
        raise UsageError(f"has no partition of {METADATA_TOPIC}", path=paths[0])
    own, *others = [_read_cluster(cluster_id, by_number, findings) for cluster_id, by_number in by_cluster.items()]
    if directories.faults:
        own.is_complete = False
    for each in others:
        assert each.cluster_id is not None, "directories without a cluster id are those of the first cluster"
        own.other_clusters[each.cluster_id] = each
    return own, findings


def _largest_partitions(
    paths: Sequence[str], directories: Discovery, own_id: str | None
) -> dict[str | None, dict[int, PartitionSource]]:
    """The partitions of ``__remote_log_metadata`` by cluster id and number, those of the cluster of the store first.

    Raises:
        UsageError: all of them are of other clusters.
    """
    holding = [
        each for each in directories.log_dirs if any(directory.name.topic == METADATA_TOPIC for directory in each.partitions)
    ]
    holding.sort(key=lambda each: _place_in(paths, each.state.path))
    ids = [each.state.cluster_id for each in holding]
    known = [each for each in ids if each is not None]
    if own_id is not None and known and own_id not in known:
        expected = f"expected the records of cluster {own_id}, found those of cluster {known[0]}"
        raise UsageError(f"--metadata and --metadata-log are of different clusters: {expected}", path=holding[0].state.path)
    first = own_id or next(iter(known), None)
    by_cluster: dict[str | None, dict[int, PartitionSource]] = {first: {}} if holding else {}
    for log_dir, cluster_id in zip(holding, ids, strict=True):
        by_number = by_cluster.setdefault(cluster_id or first, {})
        for directory in log_dir.partitions:
            if directory.name.form is not DirectoryForm.PLAIN:  # a broker deletes it: it may be of an earlier topic of this name
                continue
            other = by_number.get(directory.name.partition)
            if directory.name.topic == METADATA_TOPIC and (other is None or other.directory.size_bytes < directory.size_bytes):
                by_number[directory.name.partition] = PartitionSource(directory, log_dir.state, directory.topic_partition)
    return by_cluster


def _place_in(paths: Sequence[str], location: str) -> int:
    """The number of the path that a directory is at, below or around."""
    for number, path in enumerate(paths):
        root = absolute(path)
        if location == root or location.startswith(f"{root}/") or root.startswith(f"{location}/"):
            return number
    return len(paths)


def _read_cluster(cluster_id: str | None, by_number: dict[int, PartitionSource], findings: list[Finding]) -> RemoteLogs:
    """The records of one cluster that its brokers read; what cannot be read is added to the findings."""
    logs = RemoteLogs(cluster_id=cluster_id)
    for number, source in sorted(by_number.items()):
        directory = source.directory
        first = source.log_start_offset
        if first > 0:
            findings.append(cut_topic(first, directory.path))
            logs.is_complete = False
        try:
            for record in log_records(directory):
                if record.offset < first:
                    continue
                place = f"{directory.path}, offset {record.offset}"
                value = None if record.value is None else read_remote_log_record(record.value, file=place)
                logs.take_keyed(record.key, value)
        except FormatError as error:
            findings.append(unreadable_record(error, directory.path))
            logs.is_complete = False
        logs.has_read(number, first)
    return logs


def zero_id_findings(root: str, partitions: Iterable[ListedPartition]) -> list[Finding]:
    """One finding for all partitions under topic id zero; none without any.

    Args:
        root: location of the store.
        partitions: of the store.
    """
    under_zero = [each for each in partitions if each.topic_id == ZERO_UUID]
    if not under_zero:
        return []
    topics = sorted({each.topic for each in under_zero})
    copies = [copy for each in under_zero for copy in each.copies]
    size_bytes = sum(copy.size_bytes for copy in copies)
    message = (
        f"{pluralize(len(copies), 'copy', 'copies')} of {pluralize(len(topics), 'topic')} ({first_of(topics)}) under topic id zero, "
        f"{size_bytes} bytes. Brokers read them only while the protocol is below 2.8. Once it is raised, the log start offset "
        "moves above them, consumers lose what is on no local disk, and no broker deletes the objects. Before you raise the "
        "protocol, copy what is needed to another topic"
    )
    return [Finding("tier-topic-id-zero", Severity.FINDING, root, message)]


# ------------------------------------------------------------------------------------------- objects that the listing lacks


@dataclass(frozen=True, slots=True)
class _LackingCopy:
    """A finished copy that lacks objects in the listing.

    Attributes:
        stems: its possible keys, without the kind of object.
    """

    place: TopicIdPartition
    layout: TierLayout
    copy: CopyObjects
    stems: tuple[str, ...]


def _request_unlisted(
    root: StorePath, partitions: Sequence[ListedPartition], logs: RemoteLogs, key_prefix: str
) -> tuple[list[ListedPartition], dict[bytes, str]]:
    """Requests the objects of finished copies that the listing does not have, before anybody concludes that they are lost.

    A listing may be older than a copy, incomplete, or of another prefix. A request for the key itself decides.

    Returns:
        The partitions with the objects that are there all the same; and why there is no answer, by segment id. Of all other copies an
        object that is still missing is lost.
    """
    listed = {each.id: each for each in partitions}
    lacking = list(_lacking_copies(listed, partitions, logs, key_prefix))
    unanswered: dict[bytes, str] = {}
    for each, objects in zip(lacking, map_in_threads(partial(_request, root), lacking), strict=True):
        if isinstance(objects, str):
            unanswered[each.copy.segment_id] = objects
        elif objects:
            _add(listed, each, objects)
    return list(listed.values()), unanswered


def _lacking_copies(
    listed: dict[TopicIdPartition, ListedPartition], partitions: Sequence[ListedPartition], logs: RemoteLogs, key_prefix: str
) -> Iterable[_LackingCopy]:
    heads = {each.head.removesuffix(each.topic) for each in partitions if each.layout is TierLayout.AIVEN}
    places = set()
    for each in partitions:
        if each.layout is TierLayout.LOCAL_TIERED_STORAGE:
            key = next(iter(each.copies[0].by_kind.values())).key
            places.add(os.path.dirname(os.path.dirname(key)))
    default = TierLayout.LOCAL_TIERED_STORAGE if places and not heads else TierLayout.AIVEN
    for place, log in logs.partitions.items():
        if place in logs.deletions:
            continue
        partition = listed.get(place)
        copies = {} if partition is None else {copy.segment_id: copy for copy in partition.copies}
        layout = default if partition is None else partition.layout
        for segment in log.segments.values():
            copy = copies.get(segment.segment_id)
            missing = missing_objects(layout, copy)
            if not missing or not log.is_live(segment.segment_id):
                continue
            objects = CopyObjects(segment.start_offset, segment.segment_id, {}) if copy is None else copy
            prefixes = {key_prefix} | heads if layout is TierLayout.AIVEN else places
            yield _LackingCopy(place, layout, objects, _stems(place, layout, segment, copy, prefixes))


def _stems(
    place: TopicIdPartition, layout: TierLayout, segment: RemoteSegment, copy: CopyObjects | None, prefixes: Iterable[str]
) -> tuple[str, ...]:
    """The keys of a copy without the kind of object: that of its other objects, else those below each prefix of the listing."""
    if copy is not None:
        kind, other = next(iter(copy.by_kind.items()))
        return (other.key.removesuffix(kind),)
    number = place.partition
    start = segment.start_offset
    segment_id = segment.segment_id
    if layout is TierLayout.AIVEN:
        keys = (aiven_key(each, place.topic, place.topic_id, number, start, segment_id, AivenObject.LOG) for each in prefixes)
        return tuple(sorted(key.removesuffix(AivenObject.LOG) for key in keys))
    name = str(LocalTierName(place.topic, place.topic_id, number, start, segment_id, LocalTierFile.LOG))
    return tuple(sorted(os.path.join(each, name).removesuffix(LocalTierFile.LOG) for each in prefixes))


def _request(root: StorePath, lacking: _LackingCopy) -> dict[str, TierObject] | str:
    """The objects that are there, of the place that has most of them. The reason if there is no answer."""
    most: dict[str, TierObject] = {}
    missing = missing_objects(lacking.layout, lacking.copy)
    try:
        for stem in lacking.stems:
            objects = {}
            for kind in missing:
                file = root.below(f"{stem}{kind}")
                if file.read_end(1) is not None:
                    with file.open(may_grow=True) as source:
                        objects[kind] = TierObject(f"{stem}{kind}", source.identity)
            if len(objects) == len(missing):
                return objects
            most = max(most, objects, key=len)
    except (ReadFailedError, LimitReachedError) as error:
        return error.message
    return most


def _add(listed: dict[TopicIdPartition, ListedPartition], lacking: _LackingCopy, objects: dict[str, TierObject]) -> None:
    copy = replace(lacking.copy, by_kind={**lacking.copy.by_kind, **objects})
    partition = listed.get(lacking.place)
    others = () if partition is None else partition.copies
    copies = sorted((copy, *(each for each in others if each.segment_id != copy.segment_id)), key=lambda each: each.base_offset)
    if partition is None:
        key: AivenKey | None = parse_aiven_key(next(iter(objects.values())).key)
        head = lacking.place.topic if key is None else key.head
        place = lacking.place
        partition = ListedPartition(lacking.layout, head, place.topic_id, place.partition, (), named=place.topic)
    listed[lacking.place] = replace(partition, copies=tuple(copies))
