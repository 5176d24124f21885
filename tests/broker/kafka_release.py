"""Differences between the Kafka releases that brokers are started from."""

from dataclasses import dataclass

from kafka_classpath import KAFKA_VERSION, NEWEST_BROKER


@dataclass(frozen=True)
class KafkaRelease:
    """A release.

    Attributes:
        version: of it.
        zookeeper: version of the ZooKeeper that its cluster is kept in; None where it is kept in KRaft.
        has_tiering: it knows remote storage (KIP-405), and LocalTieredStorage is there: of its test jars, or lent.
        has_describe_producers: it answers what producers it knows (KIP-664).
        dump_tool: main class of ``kafka-dump-log``.
        tools: version whose command line tools are used, but for ``StorageTool``: mostly its own.
    """

    version: str
    zookeeper: str | None
    has_tiering: bool
    has_describe_producers: bool
    dump_tool: str
    tools: str

    @property
    def started(self) -> str:
        """Pattern of the line that a broker logs when it serves."""
        return r"\] Kafka Server started" if self.zookeeper is None else r"\[KafkaServer id=\d+\] started"


DUMP_IN_CORE, DUMP = "kafka.tools.DumpLogSegments", "org.apache.kafka.tools.DumpLogSegments"

RELEASES = {
    release.version: release
    for release in (
        KafkaRelease("2.7.2", "3.5.9", has_tiering=False, has_describe_producers=False, dump_tool=DUMP_IN_CORE, tools="2.7.2"),
        KafkaRelease("3.6.2", "3.8.4", has_tiering=True, has_describe_producers=True, dump_tool=DUMP_IN_CORE, tools="3.6.2"),
        KafkaRelease("3.9.2", "3.8.4", has_tiering=True, has_describe_producers=True, dump_tool=DUMP_IN_CORE, tools="3.9.2"),
        KafkaRelease(KAFKA_VERSION, None, has_tiering=True, has_describe_producers=True, dump_tool=DUMP, tools=KAFKA_VERSION),
        KafkaRelease(NEWEST_BROKER, None, has_tiering=True, has_describe_producers=True, dump_tool=DUMP, tools=KAFKA_VERSION),
    )
}
"""Releases that brokers are started from, by version."""
