"""One listing of remote storage, read together with the metadata logs: partitions with their true topic names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from formats.errors import BadVersionError, FormatError
from formats.limits import MANIFEST_BYTES_MAX
from formats.partition.partition_metadata import ZERO_UUID, uuid_to_text
from formats.remote.aiven_key import AivenObject, parse_aiven_key
from formats.remote.aiven_manifest import read_aiven_manifest
from formats.remote.remote_log_metadata import METADATA_TOPIC, read_remote_log_record
from snaprebuild.errors import LimitReachedError, ReadFailedError, UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.source.log_records import log_records
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.remote.listing import CopyObjects, ListedPartition, TierLayout, UnknownObjects, list_tier, merged
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.store_path import StorePath
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.cost import COLD
from snaprebuild.tier.remote_copy import PARTITION_MEMBERS, json_member
from snaprebuild.tier.remote_log import RemoteLogs
from snaprebuild.tier.unlisted_objects import request_unlisted

__all__ = ["UNVERIFIED", "list_partitions", "read_remote_logs", "unreadable_objects"]

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
    return request_unlisted(root, named, logs, key_prefix)


def _with_recorded_topics(partitions: list[ListedPartition], logs: RemoteLogs) -> list[ListedPartition]:
    """Partitions with the names that the metadata logs have for them, where these have any.

    ``key.prefix`` needs no separator at its end, so that keys alone do not show where the topic begins.
    """
    topics: dict[tuple[bytes, int], list[str]] = {}
    for each in (*logs.partitions, *logs.deletions, *logs.deleted):
        topics.setdefault((each.topic_id, each.partition), []).append(each.topic)

    def recorded(partition: ListedPartition) -> ListedPartition:
        names = topics.get((partition.topic_id, partition.partition), ())
        fitting = [name for name in names if partition.head.endswith(name)]
        if partition.named is not None or not fitting:
            return partition
        return replace(partition, named=max(fitting, key=len))

    return [recorded(each) for each in partitions]


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

    def with_name(partition: ListedPartition) -> ListedPartition:
        fitting = [name for name in names.get(partition.topic_id, ()) if partition.head.endswith(name)]
        return replace(partition, named=max(fitting, key=len)) if partition.named is None and fitting else partition

    return [with_name(each) for each in named]


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
