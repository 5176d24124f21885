"""Adds to a scan whether remote storage is on for each topic, from the metadata logs (KRaft) on the disks that were scanned."""

from __future__ import annotations

import os
from dataclasses import replace

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, Severity, first_of, pluralize
from snaprebuild.snapshots.scan.result import RemoteStorage, ScanResult
from snaprebuild.snapshots.source.broker_properties import metadata_dir_of
from snaprebuild.snapshots.source.source import Source

__all__ = ["metadata_logs", "with_topic_storage"]


def with_topic_storage(result: ScanResult, source: Source) -> ScanResult:
    """Settles the topics of which no other file shows whether remote storage is on. What a metadata log does not settle is a note.

    Topics are looked up by id, so that neither another cluster nor a deleted topic counts. Two logs that differ leave a topic unknown.

    Args:
        result: of the scan.
        source: that was scanned. Metadata logs are read in local log directories, and in ``metadata.log.dir``.
    """
    topics = {topic for topic, state in result.remote_storage.items() if state is RemoteStorage.UNKNOWN}
    logs = metadata_logs(source)
    if not topics or not logs:
        return result
    from snaprebuild.cluster.metadata.topic_storage import ENABLE, read_topic_storages  # loads the readers of batches

    known: dict[bytes, bool | None] = {}
    notes = []
    for path in logs:
        try:
            read = read_topic_storages(path)
        except (SnaprebuildError, FormatError) as error:
            why = f"{ENABLE} of the topics cannot be read: {error.message}"
        else:
            known |= {topic_id: is_on if known.get(topic_id, is_on) is is_on else None for topic_id, is_on in read.by_id.items()}
            names = sorted(read.unproven & topics)
            why = f"{ENABLE} of {pluralize(len(names), 'topic')} ({first_of(names)}) is not known: {read.why}" if names else ""
        notes += [Finding("topic-storage-unknown", Severity.NOTE, path, why)] if why else []
    states: dict[str, set[bool | None]] = {}
    for each in result.partitions:
        is_on = None if each.topic_id is None else known.get(each.topic_id)
        states.setdefault(each.source.directory.name.topic, set()).add(is_on)
    settled = {topic: _one_state(states[topic]) for topic in topics}
    return replace(result, remote_storage={**result.remote_storage, **settled}, findings=(*result.findings, *notes))


def _one_state(states: set[bool | None]) -> RemoteStorage:
    """Of the partitions of a topic."""
    return RemoteStorage.ON if True in states else RemoteStorage.OFF if states == {False} else RemoteStorage.UNKNOWN


def metadata_logs(source: Source) -> list[str]:
    """Paths of the metadata logs on the disks of a source: in its local log directories, and in ``metadata.log.dir``."""
    elsewhere = None if source.properties is None else metadata_dir_of(source.properties)
    places = [state.path for state in source.log_dirs if state.store.is_local] + ([] if elsewhere is None else [elsewhere])
    paths = dict.fromkeys(os.path.realpath(os.path.join(each, "__cluster_metadata-0")) for each in places)
    return [path for path in paths if os.path.isdir(path)]
