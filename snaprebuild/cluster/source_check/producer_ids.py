"""Producer ids of a log that its cluster has yet to give out: a partition that came from another cluster.

A new producer that gets such an id is taken for the old one: its first batches may be answered as duplicates, and are lost without an
error. An entry that has expired does no harm, as a broker forgets it.

Source: ``ProducerIdControlManager``, ``ProducerStateManager`` of Kafka 4.3.1.
"""

from __future__ import annotations

import os

from formats import limits
from formats.errors import FormatError
from formats.partition.producer_snapshot import read_entries
from snaprebuild.cluster.metadata.image_model import MetadataImage
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["producer_id_finding"]


def producer_id_finding(directory: PartitionDir, image: MetadataImage, now_ms: int) -> Finding | None:
    """The finding of a partition whose newest snapshot has producer ids at or above the next one of the cluster; None if it has none.

    Args:
        directory: the listing.
        image: of the cluster; it must be newer than the batches of the partition.
        now_ms: the clock, for the producers that have expired.
    """
    if not directory.snapshots:
        return None
    _, newest = directory.snapshots[-1]
    path = os.path.join(directory.path, newest.name)
    try:
        data = directory.store.read_small(path, limits.SNAPSHOT_BYTES_MAX)
        entries = None if data is None else read_entries(data)
    except (ReadFailedError, FormatError):  # ``verify`` reports a snapshot that cannot be read
        return None
    if entries is None:
        return None
    following = max(image.next_producer_id or 0, 0)
    ids = entries["producer_id"][entries["timestamp"] + DEFAULT_EXPIRATION_MS > now_ms]
    foreign = ids[ids >= following]
    if not len(foreign):
        return None
    message = (
        f"has producer ids up to {int(foreign.max())}, and the next one that the cluster gives out is {following}. A new producer may "
        "get one of them, and lose records that are acknowledged. Wait until these producers have expired"
    )
    return Finding("producer-id-collision", Severity.FINDING, directory.path, message)
