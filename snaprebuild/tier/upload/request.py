"""What an upload to remote storage is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from snaprebuild.cluster.source.verdict import SourceVerdict
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.store import LargeObjects, Store
from snaprebuild.tier.remote_log import RemoteLogs
from snaprebuild.tier.upload.announce import Announcer
from snaprebuild.tier.upload.copy import Uploader
from snaprebuild.tier.upload.fence import UploadFence
from snaprebuild.tier.upload.prepared_upload import PreparedUpload

__all__ = ["Prepare", "UploadRequest"]


class Prepare(Protocol):
    """Puts together what belongs to a segment (``snaprebuild.prepare_upload``)."""

    def __call__(self, log: str, after: EnsuredSnapshot | None, topic_id: str | None, source: PartitionSource) -> PreparedUpload:
        """Raises what that raises."""
        ...


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """What is wanted.

    Attributes:
        store: to upload to.
        large: its large files.
        root: location, absolute.
        prefix: ``key.prefix``, below it.
        uploader: who uploads; without a name that is made of the host and the directory, for each partition.
        host: name of this machine.
        topic_ids: Kafka's text of them by topic, where directories do not tell.
        metadata_partitions: of ``__remote_log_metadata``.
        is_dry_run: nothing is written.
        logs: what the metadata logs say.
        knows_all: they were given, and all of them could be read: what they do not call live no broker reads.
        allow_unverified: take every complete copy for one that brokers read.
        allow_plain: upload without encryption where the partition has copies that the plugin encrypted.
        judge: whether a replica may be uploaded; None where nobody asks.
        fence: who uploads a partition, by its broker's registration, and how that is read again; None for nobody in particular.
        announcer: tells brokers of copies; None where that is left to others.
    """

    store: Store
    large: LargeObjects
    root: str
    prefix: str
    uploader: Uploader
    host: str
    topic_ids: dict[str, str]
    metadata_partitions: int
    is_dry_run: bool
    logs: RemoteLogs = field(default_factory=RemoteLogs)
    knows_all: bool = False
    allow_unverified: bool = False
    allow_plain: bool = False
    judge: Callable[[PartitionSource], SourceVerdict] | None = None
    fence: Callable[[PartitionSource], UploadFence] | None = None
    announcer: Announcer | None = None
