"""Generated stores of one or two clusters in one bucket: the records, the objects, and the state that the model of Kafka's cache gives.

Topics are deleted and made again, leaders overlap, records are out of order or repeated, partitions of the metadata topic are not given,
and listings are short.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from log_dirs import batch, record, write_partition
from metadata_logs import uuid_bytes
from remote_cache_model import DELETING, FINISHED, PARTITION_FINISHED, STARTED, CacheModel, ClusterModel, Partition
from tiers import id_text

from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType, write_cluster_metadata_record
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.remote.remote_log_metadata import (
    DeleteState,
    PartitionDeletion,
    RemoteLogRecord,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
    metadata_partition,
    write_remote_log_record,
)
from snaprebuild.errors import ReadFailedError
from snaprebuild.storage.store import FileIdentity, ObjectStatus

START_MS = 1_795_000_000_000
METADATA_PARTITIONS = 3
KINDS = {
    "local": (".log", ".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot"),
    "aiven": (".log", ".indexes", ".rsm-manifest"),
}
SIZE_BYTES = 7
CONTROL = 0x20
LEADER_1_OF_1 = struct.pack(">hi", 0, 1) + 2 * (b"\x02" + struct.pack(">i", 1) + b"\0") + b"\0"
"""``LeaderChangeMessage``: node 1 leads, and is the only voter."""


@cache
def metadata_partition_of(partition: Partition) -> int:
    """The metadata partition with the records of a partition."""
    topic, topic_id, number = partition
    return metadata_partition(TopicIdPartition(topic, uuid_bytes(topic_id), number), METADATA_PARTITIONS)


@dataclass(frozen=True)
class Copied:
    """An attempt at copying a segment."""

    partition: Partition
    segment: str
    start: int
    end: int
    epochs: tuple[tuple[int, int], ...]
    begun_ms: int


@dataclass(frozen=True)
class Event:
    """A record of remote log metadata: of a copy, or with ``deletion`` of its partition."""

    partition: Partition
    at_ms: int
    copied: Copied | None = None
    state: int = STARTED

    def apply_to(self, cache: CacheModel) -> None:
        """Gives a record of a copy to the cache of its partition."""
        copied = self.copied
        assert copied is not None
        if self.state == STARTED:
            cache.add(copied.segment, copied.start, copied.end, dict(copied.epochs))
        else:
            cache.update(copied.segment, self.state)

    def encoded(self) -> RemoteLogRecord:
        """The record that is written for it."""
        topic, topic_id, number = self.partition
        place = TopicIdPartition(topic, uuid_bytes(topic_id), number)
        if self.copied is None:
            return PartitionDeletion(place, 1, self.at_ms, DeleteState(self.state))
        copied = self.copied
        segment_id = RemoteSegmentId(place, uuid_bytes(copied.segment))
        if self.state != STARTED:
            return RemoteSegmentUpdate(segment_id, 1, self.at_ms, None, SegmentState(self.state))
        epochs = tuple(LeaderEpochEntry(epoch, start) for epoch, start in copied.epochs)
        return RemoteSegment(
            id=segment_id,
            segment_id=segment_id.id,
            start_offset=copied.start,
            end_offset=copied.end,
            broker_id=1,
            max_timestamp_ms=self.at_ms,
            event_timestamp_ms=self.at_ms,
            leader_epochs=epochs,
            size_bytes=SIZE_BYTES,
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=False,
        )


@dataclass
class Cluster:
    """A cluster: its records in order, the metadata partitions that are given, and the life of its topics.

    ``lives`` has for each topic id its name, when it was created, and when it was removed or None.
    """

    cluster_id: str
    events: list[Event] = field(default_factory=list)
    given: frozenset[int] = frozenset()
    lives: dict[str, tuple[str, int, int | None]] = field(default_factory=dict)

    def readable(self) -> list[Event]:
        return [each for each in self.events if metadata_partition_of(each.partition) in self.given]

    def write(self, to: Path) -> Path:
        to.mkdir()
        (to / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={self.cluster_id}\n")
        for number in self.given:
            events = [each for each in self.events if metadata_partition_of(each.partition) == number]
            values = (record(write_remote_log_record(each.encoded())) for each in events)
            data = b"".join(batch(offset, records=[value]) for offset, value in enumerate(values))
            write_partition(to / f"__remote_log_metadata-{number}", {0: data})
        return to

    def folded(self) -> ClusterModel:
        model = ClusterModel()
        for event in self.readable():
            if event.copied is None:
                model.delete(event.partition, event.state)
            else:
                event.apply_to(model.cache(event.partition))
        return model


@dataclass
class Bucket:
    """Objects in memory, some of which a listing lacks. Has what ``tier inventory`` calls of a store."""

    objects: dict[str, tuple[bytes, int]]
    unlisted: frozenset[str]
    is_local: bool = False

    def list_below(self, _location: str, name_prefix: str = "") -> Iterator[tuple[str, ObjectStatus]]:
        for key in sorted(self.objects):
            if key.startswith(name_prefix) and key not in self.unlisted:
                data, modified_ms = self.objects[key]
                yield key, ObjectStatus(len(data), modified_ms * 1_000_000, f'"{key}"')

    def _at(self, location: str) -> bytes | None:
        found = self.objects.get(location.removeprefix("s3://b/"))
        return None if found is None else found[0]

    def read_small(self, location: str, _bytes_max: int) -> bytes | None:
        return self._at(location)

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        data = self._at(location)
        return None if data is None else (len(data), data[-count:])

    def open_bytes(self, location: str, *_: object, may_grow: bool = False) -> "OpenObject":
        data = self._at(location)
        if data is None:
            raise ReadFailedError("does not exist", path=location)
        return OpenObject(FileIdentity(len(data), 0, 0, "x"))


@dataclass
class OpenObject:
    """An open object, of which only the identity is asked for."""

    identity: FileIdentity

    def __enter__(self) -> "OpenObject":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass
class GeneratedCluster:
    """A store of ``own``, which may hold objects of ``other``, too."""

    layout: str
    own: Cluster
    other: Cluster | None
    copies: list[Copied]
    bucket: Bucket
    has_image: bool
    image_ms: int

    def stem(self, copied: Copied) -> str:
        topic, topic_id, number = copied.partition
        name = f"{copied.start:020d}-{copied.segment}"
        return f"{topic}-{number}-{topic_id}/{name}" if self.layout == "local" else f"{topic}-{topic_id}/{number}/{name}"

    def kinds_of(self, copied: Copied, *, listed: bool) -> list[str]:
        keys = [f"{self.stem(copied)}{kind}" for kind in KINDS[self.layout]]
        return [key for key in keys if key in self.bucket.objects and not (listed and key in self.bucket.unlisted)]

    # ------------------------------------------------------------------------------------------------ what is expected

    def expected(self) -> dict[tuple[Partition, str], str]:
        """The state of each copy that is in the listing or, recorded, in the cache of the own cluster."""
        own = self.own.folded()
        other = None if self.other is None else self.other.folded()
        states = {}
        for copied in self.copies:
            cache = own.caches.get(copied.partition)
            is_recorded = cache is not None and copied.segment in cache.segments
            if is_recorded or self.kinds_of(copied, listed=True):
                states[copied.partition, copied.segment] = self._state(copied, own, other)
        return states

    def _state(self, copied: Copied, own: ClusterModel, other: ClusterModel | None) -> str:
        partition = copied.partition
        cache = own.caches.get(partition)
        segment = None if cache is None else cache.segments.get(copied.segment)
        if cache is None and partition in own.deleted:
            return "deleted"
        if partition in own.deletions:
            return "deleting"
        if segment is not None and segment.state == DELETING:
            return "deleting"
        if cache is not None and segment is None and copied.segment in cache.forgotten:
            return "deleted"
        if self._is_removed(partition[1]):
            return "deleted"
        if segment is None:
            return self._unrecorded(copied, own, other)
        if segment.state == STARTED:
            return "unfinished" if self.kinds_of(copied, listed=True) else "phantom"
        assert cache is not None
        if not cache.is_read(copied.segment):
            return "superseded"
        kinds = {key.rpartition(".")[2] for key in self.kinds_of(copied, listed=False)}
        if kinds == {"rsm-manifest"}:
            return "unreadable"  # as if its records were in a table of Iceberg
        return "live" if len(kinds) == len(KINDS[self.layout]) else "lost"

    def _unrecorded(self, copied: Copied, own: ClusterModel, other: ClusterModel | None) -> str:
        partition = copied.partition
        if not own.names(partition) and other is not None and other.names(partition):
            return "another-cluster"
        return "another-topic-id" if self._has_another_id(copied) else "unknown"

    def _is_removed(self, topic_id: str) -> bool:
        """``RemoveTopic`` is the last record of the topic in the metadata log, and later than every record of its copies."""
        life = self.own.lives.get(topic_id)
        if not self.has_image or life is None or life[2] is None or life[2] > self.image_ms:
            return False
        events = [each for each in self.own.readable() if each.partition[1] == topic_id and each.copied is not None]
        return all(each.at_ms < life[2] for each in events if each.state in (STARTED, FINISHED))

    def _has_another_id(self, copied: Copied) -> bool:
        topic, own_id, _ = copied.partition
        recorded = {each.partition[1] for each in self.own.readable() if each.partition[0] == topic}
        image = self.image()
        if own_id in recorded or own_id in {topic_id for topic_id, _ in image}:
            return False
        at_ms = copied.begun_ms if self.layout == "aiven" and self._has_manifest(copied) else self._written_ms(copied)
        current = next((topic_id for topic_id, name in image if name == topic and self._exists(topic_id)), None)
        if current is not None:
            return at_ms < self.image_ms
        copies = (each for each in self.own.readable() if each.copied is not None and each.state in (STARTED, FINISHED))
        return any(each.partition[0] == topic and each.at_ms > at_ms for each in copies)

    def _has_manifest(self, copied: Copied) -> bool:
        return any(key.endswith(".rsm-manifest") for key in self.kinds_of(copied, listed=True))

    def _written_ms(self, copied: Copied) -> int:
        return max(self.bucket.objects[key][1] for key in self.kinds_of(copied, listed=True))

    def image(self) -> list[tuple[str, str]]:
        """Topic id and name of each topic that the metadata log ever had."""
        if not self.has_image:
            return []
        lives = self.own.lives.items()
        return [(topic_id, name) for topic_id, (name, created_ms, _) in lives if created_ms <= self.image_ms]

    def _exists(self, topic_id: str) -> bool:
        removed_ms = self.own.lives[topic_id][2]
        return removed_ms is None or removed_ms > self.image_ms

    # ------------------------------------------------------------------------------------------------ the metadata log

    def write_image(self, to: Path) -> Path:
        """``__cluster_metadata`` of the only voter, with a batch for each record; the last one has the time of the image."""
        to.mkdir()
        (to / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={self.own.cluster_id}\n")
        records: list[tuple[int, MetadataRecordType, dict[str, object]]] = []
        for topic_id, (name, created_ms, removed_ms) in self.own.lives.items():
            records.append((created_ms, MetadataRecordType.TOPIC, {"name": name, "topicId": uuid_bytes(topic_id)}))
            if removed_ms is not None:
                records.append((removed_ms, MetadataRecordType.REMOVE_TOPIC, {"topicId": uuid_bytes(topic_id)}))
        records = sorted((each for each in records if each[0] <= self.image_ms), key=lambda each: each[0])
        data = batch(0, attributes=CONTROL, records=[record(LEADER_1_OF_1, key=struct.pack(">hh", 0, 2))], timestamp=START_MS)
        for offset, (at_ms, kind, message) in enumerate(records, 1):
            name = "".join(part.title() for part in kind.name.split("_")) + "Record"
            value = write_cluster_metadata_record(ClusterMetadataRecord(kind, name, 0, message))
            data += batch(offset, records=[record(value)], timestamp=at_ms)
        noted = batch(len(records) + 1, records=[record(_no_op())], timestamp=self.image_ms)
        write_partition(to / "__cluster_metadata-0", {0: data + noted})
        return to


def _no_op() -> bytes:
    return write_cluster_metadata_record(ClusterMetadataRecord(MetadataRecordType.NO_OP, "NoOpRecord", 0, {}))


# ------------------------------------------------------------------------------------------------------------------ the generator


def generated_cluster(seed: int) -> GeneratedCluster:
    """The store of a seed."""
    chosen = random.Random(seed)
    layout = chosen.choice(("local", "aiven"))
    own = Cluster("own-" + id_text(chosen.randbytes(8)))
    other = Cluster("other-" + id_text(chosen.randbytes(8))) if chosen.random() < 0.4 else None
    copies: list[Copied] = []
    clock = START_MS
    for cluster in filter(None, (own, other)):
        for name in chosen.sample(("orders", "payments", "a-b"), chosen.randrange(1, 3)):
            clock = _lives_of(cluster, name, chosen, clock, copies)
    # Copies that no cluster has a record of: a topic of another one, or records that are gone.
    strangers = [_strange(copied, chosen) for copied in chosen.sample(copies, min(len(copies), chosen.randrange(3)))]
    copies += strangers
    for cluster in filter(None, (own, other)):
        _disorder(cluster, chosen)
        least = 1 if cluster is own else 0
        count = METADATA_PARTITIONS if chosen.random() < 0.6 else chosen.randrange(least, METADATA_PARTITIONS)
        cluster.given = frozenset(chosen.sample(range(METADATA_PARTITIONS), count))
    case = GeneratedCluster(layout, own, other, copies, Bucket({}, frozenset()), chosen.random() < 0.6, clock + 1)
    if chosen.random() < 0.3:
        case.image_ms = chosen.randrange(START_MS + 1, clock + 1)
    _fill(case, chosen)
    return case


def _lives_of(cluster: Cluster, name: str, chosen: random.Random, clock: int, copies: list[Copied]) -> int:
    """One topic, which may be deleted and made again up to twice."""
    for _ in range(chosen.choice((1, 1, 2, 3))):
        topic_id = id_text(chosen.randbytes(16))
        created_ms = clock
        clock += 10
        for number in range(chosen.choice((1, 1, 2))):
            clock = _copied(cluster, (name, topic_id, number), chosen, clock, copies)
        is_removed = chosen.random() < 0.5
        removed_ms = clock + 5 if is_removed else None
        if is_removed and chosen.random() < 0.1:
            removed_ms = max(created_ms + 1, clock - 15)  # records of copies are later
        cluster.lives[topic_id] = (name, created_ms, removed_ms)
        clock += 10
        if not is_removed:
            break
        if chosen.random() < 0.5:
            for state in range(chosen.randrange(1, PARTITION_FINISHED + 2)):
                clock += 1
                cluster.events.append(Event((name, topic_id, 0), clock, None, state))
        clock += 10
    return clock


def _copied(cluster: Cluster, partition: Partition, chosen: random.Random, clock: int, copies: list[Copied]) -> int:
    """Copies by leaders that overlap: each begins somewhere in what is there, with some line of leader epochs."""
    starts = sorted(chosen.sample(range(1, 60), chosen.randrange(4)))
    lines = [[(0, 0), *((epoch + 1, start) for epoch, start in enumerate(starts))]]
    if chosen.random() < 0.4:
        lines.append([(2 * epoch, start) for epoch, start in lines[0]])
    at = 0
    for _ in range(chosen.randrange(1, 7)):
        if chosen.random() < 0.35:
            at = chosen.randrange(at + 1)
        end = at + chosen.randrange(1, 25)
        line = chosen.choice(lines)
        before = [epoch for epoch, start in line if start <= at]
        inside = [(epoch, start) for epoch, start in line if at < start <= end]
        copied = Copied(partition, id_text(chosen.randbytes(16)), at, end, ((before[-1], at), *inside), clock)
        copies.append(copied)
        for state in range(chosen.choice((1, 2, 2, 2, 2, 2, 3, 4))):
            cluster.events.append(Event(partition, clock, copied, state))
            clock += 1
        at = end + 1 if chosen.random() < 0.9 else end
    return clock


def _strange(copied: Copied, chosen: random.Random) -> Copied:
    topic, topic_id, number = copied.partition
    if chosen.random() < 0.6:
        topic_id = id_text(chosen.randbytes(16))
    begun_ms = copied.begun_ms + chosen.choice((-1_000, 0, 1_000))
    return Copied((topic, topic_id, number), id_text(chosen.randbytes(16)), copied.start, copied.end, copied.epochs, begun_ms)


def _disorder(cluster: Cluster, chosen: random.Random) -> None:
    """Some records change places, some come twice, some are gone."""
    events = cluster.events
    if chosen.random() < 0.3:
        for _ in range(chosen.randrange(1, 4)):
            one, two = (chosen.randrange(len(events)) for _ in range(2))
            events[one], events[two] = events[two], events[one]
    if chosen.random() < 0.3:
        events.insert(chosen.randrange(len(events) + 1), chosen.choice(events))
    if chosen.random() < 0.2 and len(events) > 1:
        events.pop(chosen.randrange(len(events)))


def _fill(case: GeneratedCluster, chosen: random.Random) -> None:
    """The objects: all of most copies, some or none of others; a short listing lacks some that are there."""
    unlisted = set()
    is_short = chosen.random() < 0.3
    for copied in case.copies:
        share = chosen.choice((1.0, 1.0, 1.0, 1.0, 0.6, 0.0))
        for kind in KINDS[case.layout]:
            if chosen.random() > share:
                continue
            key = f"{case.stem(copied)}{kind}"
            data = _manifest(copied) if kind == ".rsm-manifest" else b"x" * SIZE_BYTES if kind == ".log" else b""
            case.bucket.objects[key] = (data, copied.begun_ms)
            if is_short and chosen.random() < 0.2:
                unlisted.add(key)
    case.bucket.unlisted = frozenset(unlisted)


def _manifest(copied: Copied) -> bytes:
    topic, topic_id, number = copied.partition
    epochs = ",".join(f'"{epoch}":{start}' for epoch, start in copied.epochs)
    indexes = ",".join(f'"{name}":{{"position":0,"size":0}}' for name in ("offset", "timestamp", "producerSnapshot", "leaderEpoch"))
    return (
        f'{{"version":"1","chunkIndex":{{"type":"fixed","originalChunkSize":{SIZE_BYTES},"originalFileSize":{SIZE_BYTES},'
        f'"transformedChunkSize":{SIZE_BYTES},"finalTransformedChunkSize":{SIZE_BYTES}}},'
        f'"segmentIndexes":{{{indexes},"transaction":null}},"compression":false,"remoteLogSegmentMetadata":'
        f'{{"remoteLogSegmentId":{{"topicIdPartition":{{"topicId":"{topic_id}","topicPartition":{{"topic":"{topic}",'
        f'"partition":{number}}}}},"id":"{copied.segment}"}},"startOffset":{copied.start},"endOffset":{copied.end},'
        f'"maxTimestampMs":{copied.begun_ms},"brokerId":1,"eventTimestampMs":{copied.begun_ms},"segmentLeaderEpochs":{{{epochs}}}}}}}'
    ).encode()
