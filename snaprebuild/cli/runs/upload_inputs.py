"""The inputs that the options of `tier upload` name: ids of topics and brokers, and the producer that announces copies."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence

from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.cli.options.common import quoted
from snaprebuild.cli.runs.remote_storage import client_settings, servers_of
from snaprebuild.errors import UploadRefusedError, UsageError
from snaprebuild.hooks import ReplayOptions, prepare_upload
from snaprebuild.snapshots.destination.output_directory import check_output
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.remote.metadata_topic import MetadataTopic
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.upload.announce import Announcer
from snaprebuild.tier.upload.model import Prepare
from snaprebuild.tier.upload.prepare import PreparedUpload, topic_id_of

__all__ = [
    "announcing",
    "broker_id_of",
    "check_target",
    "metadata_partitions_of",
    "prepare_with",
    "wanted_partitions",
]

METADATA_PARTITIONS = 50


def prepare_with(options: ReplayOptions) -> Prepare:
    """``hooks.prepare_upload`` with the options of the verb."""

    def prepare(log: str, after: EnsuredSnapshot | None, topic_id: str | None, source: PartitionSource) -> PreparedUpload:
        return prepare_upload(log, options=options, after=after, topic_id=topic_id, source=source)

    return prepare


def wanted_partitions(partitions: Iterable[PartitionSource], topic_ids: dict[str, str]) -> Generator[TopicIdPartition, None, None]:
    """The partitions that copies are made of; those without an id are refused later, each with its reason."""
    for each in partitions:
        name = each.directory.name
        with contextlib.suppress(UploadRefusedError):
            if each.can_be_tiered:
                yield TopicIdPartition(name.topic, topic_id_of(each, topic_ids.get(name.topic)), name.partition)


@contextlib.contextmanager
def announcing(
    produce_to: str | None, producer_config: str | None, partitions: Iterable[TopicIdPartition]
) -> Generator[Announcer | None, None, None]:
    """The producer that announces copies to brokers, after it has read the cluster's topic; None without the option.

    Raises:
        UsageError: the options make no sense, or the package is missing.
        RefusedError: the cluster has no such topic.
        ReadFailedError: the cluster does not answer.
    """
    if produce_to is None:
        if producer_config is not None:
            raise UsageError("--producer-config says how to reach the brokers of --produce-to, which is not given")
        yield None
        return
    topic = MetadataTopic(servers_of(produce_to, "--produce-to"), client_settings(producer_config))
    try:
        yield Announcer.of(topic, partitions)
    finally:
        topic.close()


def metadata_partitions_of(given: int | None, announcer: Announcer | None) -> int:
    """Number of partitions of ``__remote_log_metadata``.

    Raises:
        UsageError: the cluster has another count than the one that was given.
    """
    known = METADATA_PARTITIONS if announcer is None else announcer.partitions
    if announcer is not None and given not in (None, known):
        raise UsageError(f"--metadata-partitions: the cluster has {known}, not {given}")
    return known if given is None else given


def broker_id_of(partitions: Sequence[PartitionSource]) -> int:
    """Broker id of the log directories.

    Raises:
        UsageError: they are of several brokers.
    """
    metas = [each.log_dir.meta for each in partitions]
    known = {meta.node_id for meta in metas if meta is not None and meta.node_id is not None}
    if len(known) > 1:
        raise UsageError("the directories are of several brokers: name the one that manifests shall name, --broker-id")
    return known.pop() if known else -1


def check_target(root: StorePath, prefix: str, partitions: Sequence[PartitionSource]) -> None:
    """Makes sure that no object lands in a directory of a broker, or outside of STORE.

    Raises:
        UsageError: the prefix has a part that no directory may have.
        RefusedError: STORE is in a directory of a broker.
    """
    *above, last = prefix.split("/")
    if any(part in ("", ".", "..") for part in above) or last in (".", "..") or not prefix.isprintable() or "\\" in prefix:
        raise UsageError(f"key_prefix: a part of it is empty, '.' or '..', or no text; found {quoted(prefix)}")
    check_output(root, [root.path], partitions, option="STORE")
