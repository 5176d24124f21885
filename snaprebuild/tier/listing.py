"""One listing of remote storage, read together with the metadata logs: partitions with their true topic names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from formats.errors import BadVersionError, FormatError
from formats.limits import MANIFEST_BYTES_MAX
from formats.partition.partition_metadata import ZERO_UUID, uuid_to_text
from formats.remote.aiven_key import AivenKey, AivenObject, aiven_key, parse_aiven_key
from formats.remote.aiven_manifest import read_aiven_manifest
from formats.remote.local_tier_name import LocalTierFile, LocalTierName
from formats.remote.remote_log_metadata import METADATA_TOPIC, RemoteSegment, TopicIdPartition, read_remote_log_record
from snaprebuild.errors import LimitReachedError, ReadFailedError, UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, first_of, pluralize
from snaprebuild.snapshots.source.log_records import log_records
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.remote.listing import (
    CopyObjects,
    ListedPartition,
    TierLayout,
    TierObject,
    UnknownObjects,
    list_tier,
    merged,
)
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.store_path import StorePath
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.cost import COLD
from snaprebuild.tier.remote_copy import ICEBERG_LACKS, PARTITION_MEMBERS, json_member, missing_objects
from snaprebuild.tier.remote_log import RemoteLogs

__all__ = [
    "UNVERIFIED",
    "list_partitions",
    "read_remote_logs",
    "unreadable_objects",
    "zero_id_findings",
]

UNVERIFIED = "whether brokers have these copies, or gave them up, is not verified: give --metadata-log"


def list_partitions(
    root: StorePath, logs: RemoteLogs, key_prefix: str, unknown: UnknownObjects
) -> tuple[list[ListedPartition], dict[bytes, str]]:
    """The partitions of a store with their true topic names, and with objects that the listing lacks and a request finds.

    Args:
        root: of the store, absolute.
        logs: of the metadata.
        key_prefix: of the plugin, below the location.
        unknown: gets the objects that are left out.

    Returns:
        The partitions in the order of the store; and why there was no answer to the requests for a copy, by segment id.

    Raises:
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    listed = list_tier(root, unknown, key_prefix)
    named = merged(_with_topics(root, _with_recorded_topics(listed, logs)))
    return _request_unlisted(root, named, logs, key_prefix)


def _with_recorded_topics(partitions: list[ListedPartition], logs: RemoteLogs) -> list[ListedPartition]:
    """Partitions with the names that the metadata logs have for them, where these have any.

    ``key.prefix`` needs no separator at its end, so that keys alone do not show where the topic begins.
    """
    topics: dict[tuple[bytes, int], list[str]] = {}
    for each in (*logs.partitions, *logs.deletions, *logs.deleted):
        topics.setdefault((each.topic_id, each.partition), []).append(each.topic)
    return [_with_name_of(each, topics.get((each.topic_id, each.partition), ())) for each in partitions]


def _with_name_of(partition: ListedPartition, names: Iterable[str]) -> ListedPartition:
    """A partition without a name gets the longest of these that its keys can have."""
    fitting = [name for name in names if partition.head.endswith(name)]
    if partition.named is not None or not fitting:
        return partition
    return replace(partition, named=max(fitting, key=len))


def _with_topics(root: StorePath, partitions: list[ListedPartition]) -> list[ListedPartition]:
    """Partitions with the names that manifests have. One manifest is read for each topic that has no name yet."""
    unnamed = dict[tuple[str, bytes], CopyObjects]()
    for each in partitions:
        if each.layout is TierLayout.AIVEN and each.named is None:
            copy = next((copy for copy in each.copies if AivenObject.MANIFEST in copy.by_kind), None)
            if copy is not None and copy.by_kind[AivenObject.MANIFEST].storage_class not in COLD:  # where each byte has a price
                unnamed.setdefault((each.head, each.topic_id), copy)
    topics = dict(zip(unnamed, map_in_threads(partial(_topic_of, root), list(unnamed.values())), strict=True))
    named = [replace(each, named=each.named or topics.get((each.head, each.topic_id))) for each in partitions]
    # A topic id other than zero has one name, which the manifests below another prefix have, too.
    names: dict[bytes, set[str]] = {}
    for each in named:
        if each.named is not None and each.topic_id != ZERO_UUID:
            names.setdefault(each.topic_id, set()).add(each.named)
    return [_with_name_of(each, names.get(each.topic_id, ())) for each in named]


def _topic_of(root: StorePath, copy: CopyObjects) -> str | None:
    """The topic in a manifest, whose bytes are kept; None where it has none, or cannot be read."""
    manifest = copy.by_kind[AivenObject.MANIFEST]
    file = root.below(manifest.key)
    key = parse_aiven_key(manifest.key)
    topic_id = None if key is None else uuid_to_text(key.topic_id)
    try:
        data = file.read_small(MANIFEST_BYTES_MAX) or b""
        copy.by_kind[AivenObject.MANIFEST] = replace(manifest, data=data)
        metadata = read_aiven_manifest(data, file=file.path).segment
    except (FormatError, ReadFailedError, LimitReachedError):
        return None
    if json_member(metadata, *PARTITION_MEMBERS, "topicId") not in (None, topic_id):
        return None  # of another topic: ``copy_facts`` finds it
    topic = json_member(metadata, *PARTITION_MEMBERS, "topicPartition", "topic")
    return topic if isinstance(topic, str) and topic and (key is None or key.topic.endswith(topic)) else None


def read_remote_logs(paths: Sequence[str], stores: S3Settings) -> tuple[RemoteLogs, list[Finding]]:
    """Reads the metadata logs below some directories; of partitions that several brokers have, the largest. Gives what is unreadable, too.

    Raises:
        UsageError: there is no partition of ``__remote_log_metadata``.
    """
    logs = RemoteLogs()
    if not paths:
        return logs, []
    by_number: dict[int, PartitionDir] = {}
    directories = find_partitions(paths, stores)
    findings = [finding_of_error(error, error.path or "") for error in directories.faults]
    for directory in (each for log_dir in directories.log_dirs for each in log_dir.partitions):
        other = by_number.get(directory.name.partition)
        if directory.name.topic == METADATA_TOPIC and (other is None or other.size_bytes < directory.size_bytes):
            by_number[directory.name.partition] = directory
    if not by_number:
        raise UsageError(f"has no partition of {METADATA_TOPIC}", path=paths[0])
    for number, directory in sorted(by_number.items()):
        try:
            for record in log_records(directory):
                place = f"{directory.path}, offset {record.offset}"
                value = None if record.value is None else read_remote_log_record(record.value, file=place)
                logs.take_keyed(record.key, value)
        except FormatError as error:
            is_newer = isinstance(error, BadVersionError)
            why = "the cluster may use a newer remote.log.metadata.version; " if is_newer else ""
            code, severity = (
                ("unknown-metadata-version", Severity.REFUSED) if is_newer else ("damaged-metadata-log", Severity.DAMAGED)
            )
            message = f"{error}: {why}later records are unknown"
            findings.append(Finding(code, severity, directory.path, message, is_unread=True, cause=FindingCause.METADATA_TOPIC))
        logs.has_read(number)
    return logs, findings


def unreadable_objects(place: str, unknown: UnknownObjects | None = None, iceberg: int = 0) -> list[Finding]:
    """Objects that cannot be read.

    Args:
        place: for the findings.
        unknown: objects of no known layout.
        iceberg: copies that have a manifest alone.
    """
    findings = []
    if unknown is not None and unknown.old_aiven:
        message = f"{pluralize(unknown.old_aiven, 'object')} of Aiven's plugin of before October 2023, whose layout is not read"
        findings.append(Finding("tier-unsupported-layout", Severity.REFUSED, place, message))
    if iceberg:
        message = f"{pluralize(iceberg, 'copy', 'copies')} with a manifest alone, as segment.format=iceberg leaves them: not read"
        findings.append(Finding("tier-unsupported-layout", Severity.REFUSED, place, message))
    if unknown is not None and unknown.count > unknown.old_aiven:
        message = (
            f"{pluralize(unknown.count - unknown.old_aiven, 'object')} of no known layout left out, the first {unknown.first!r}"
        )
        findings.append(Finding("tier-unknown-objects", Severity.NOTE, place, message))
    return findings


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
    places = {
        os.path.dirname(os.path.dirname(key))
        for each in partitions
        if each.layout is TierLayout.LOCAL_TIERED_STORAGE
        for key in [next(iter(each.copies[0].by_kind.values())).key]
    }
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
            if not missing or missing == ICEBERG_LACKS or not log.is_live(segment.segment_id):
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
    """The objects that are there; none if one of the kinds that a copy needs is in no place. The reason if there is no answer."""
    try:
        for stem in lacking.stems:
            objects: dict[str, TierObject] = {}
            for kind in missing_objects(lacking.layout, lacking.copy):
                file = root.below(f"{stem}{kind}")
                if file.read_end(1) is None:
                    break
                with file.open(may_grow=True) as source:
                    objects[kind] = TierObject(f"{stem}{kind}", source.identity)
            else:
                return objects
    except (ReadFailedError, LimitReachedError) as error:
        return error.message
    return {}


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
