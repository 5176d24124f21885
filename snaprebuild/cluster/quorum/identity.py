"""The files that say whose metadata log a directory holds: ``meta.properties`` of the log directory, ``partition.metadata`` of the log.

A node of 4.3.1 does not start if one of them is damaged, or if ``meta.properties`` is missing. A missing ``partition.metadata`` is written
anew.

Source: ``MetaPropertiesEnsemble``, ``PartitionMetadataFile``, ``UnifiedLog.initializeTopicId``, ``Uuid.METADATA_TOPIC_ID`` of Kafka 4.3.1.
"""

from __future__ import annotations

import os

from formats import limits
from formats.broker.broker_files import MetaProperties
from formats.errors import FormatError
from formats.partition.file_names import BROKER_FILES, META_PROPERTIES, PARTITION_METADATA
from formats.partition.partition_metadata import read_partition_metadata, uuid_to_text
from snaprebuild.cluster.metadata.log import MetadataLog, meta_around
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY

__all__ = ["BOOTSTRAP_CHECKPOINT", "METADATA_TOPIC_ID", "is_bare", "node_identity", "topic_fault"]

METADATA_TOPIC_ID = bytes(15) + b"\1"
"""``Uuid.METADATA_TOPIC_ID``."""

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"


def is_bare(log: MetadataLog) -> bool:
    """Whether a directory is a copy of a metadata log alone, of whatever name: no other file of a log directory is around it.

    Raises:
        ReadFailedError: the directory above cannot be listed.
    """
    if os.path.basename(log.path) != METADATA_DIRECTORY:
        return True
    return log.directory.at(os.path.dirname(log.path)).names().isdisjoint((*BROKER_FILES, BOOTSTRAP_CHECKPOINT))


def node_identity(log: MetadataLog) -> MetaProperties | str | None:
    """``meta.properties`` around a metadata log; or why a node does not start with it; None for a copy of the metadata log alone.

    Raises:
        ReadFailedError: it cannot be read.
    """
    if is_bare(log):
        return None
    path = os.path.join(os.path.dirname(log.path), META_PROPERTIES)
    try:
        meta = meta_around(log.directory)
    except FormatError as error:
        return f"{META_PROPERTIES} cannot be read: {error.message}; a node does not start"
    if meta is None:
        return f"there is no {META_PROPERTIES} in {os.path.dirname(path)}; a node does not start"
    if meta.node_id is None:
        return f"{META_PROPERTIES} names no node; a node does not start"
    return meta


def topic_fault(log: MetadataLog) -> str | None:
    """Why a node does not start with the ``partition.metadata`` of a metadata log; None if it does, or the file is missing.

    Raises:
        ReadFailedError: it cannot be read.
    """
    data = log.directory.below(PARTITION_METADATA).read_small(limits.TEXT_FILE_BYTES_MAX)
    if data is None:
        return None
    try:
        topic_id = read_partition_metadata(data).topic_id
    except FormatError as error:
        return f"{PARTITION_METADATA} cannot be read: {error.message}; a node does not start"
    if topic_id == METADATA_TOPIC_ID:
        return None
    return (
        f"{PARTITION_METADATA} has topic id {uuid_to_text(topic_id)}, and the metadata log has {uuid_to_text(METADATA_TOPIC_ID)}; "
        "a node does not start"
    )
