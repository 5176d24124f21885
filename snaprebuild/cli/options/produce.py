"""Options of verbs that announce copies to brokers, and their meaning."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Annotated

from snaprebuild.cli.options.common import quoted
from snaprebuild.cli.options.description import option
from snaprebuild.errors import UploadRefusedError, UsageError

if TYPE_CHECKING:
    from formats.remote.remote_log_metadata import TopicIdPartition
    from snaprebuild.snapshots.source.source import PartitionSource
    from snaprebuild.tier.upload.announce import Announcer

__all__ = ["ProduceTo", "ProducerConfig", "announcing", "wanted_partitions"]

ProduceTo = Annotated[
    str | None,
    option(
        "--produce-to",
        metavar="HOST:PORT[,...]",
        short="Bootstrap servers; produce the records of each copy to their __remote_log_metadata",
        details="Needs snaprebuild[kafka].",
        default="none",
    ),
]
ProducerConfig = Annotated[
    str | None,
    option(
        "--producer-config",
        metavar="FILE",
        short="librdkafka settings for --produce-to, one NAME=VALUE per line, such as security.protocol or sasl.password",
        default="none, an unencrypted connection",
    ),
]


def wanted_partitions(partitions: Iterable[PartitionSource], topic_ids: dict[str, str]) -> Generator[TopicIdPartition, None, None]:
    """The partitions that copies are made of; those without an id are refused later, each with its reason."""
    from formats.remote.remote_log_metadata import TopicIdPartition
    from snaprebuild.tier.upload.prepare import topic_id_of

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
    from snaprebuild.storage.remote.metadata_topic import MetadataTopic, read_client_config
    from snaprebuild.tier.upload.announce import Announcer

    if produce_to is None:
        if producer_config is not None:
            raise UsageError("--producer-config says how to reach the brokers of --produce-to, which is not given")
        yield None
        return
    servers = [each.strip() for each in produce_to.split(",")]
    for each in servers:
        host, colon, port = each.rpartition(":")
        if (
            not colon
            or not host
            or not port.isascii()
            or not port.isdigit()
            or not 0 < int(port) < 2**16
            or "/" in host
            or "@" in host
        ):
            raise UsageError(f"--produce-to: expected HOST:PORT, several with commas between; found {quoted(each)}")
    settings = {} if producer_config is None else read_client_config(producer_config)
    topic = MetadataTopic(",".join(servers), settings)
    try:
        yield Announcer.of(topic, partitions)
    finally:
        topic.close()
